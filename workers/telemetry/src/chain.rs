//! An error and its sources as one line of a log.

use std::error::Error;

/// Sources that are followed; a longer chain is a cycle or a mistake.
const LINKS_MAX: usize = 16;

/// Joins the texts of `error` and its sources with `: `. A source whose text its parent already ends with, as errors of
/// outside crates do, is not said twice.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut line = error.to_string();
    let links = std::iter::successors(error.source(), |link| (*link).source()).take(LINKS_MAX);
    for link in links {
        let text = link.to_string();
        if !line.ends_with(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Link {
        text: &'static str,
        #[source]
        source: Option<Box<Link>>,
    }

    fn link(text: &'static str, source: Option<Link>) -> Link {
        Link {
            text,
            source: source.map(Box::new),
        }
    }

    #[test]
    fn every_source_is_said_once_and_in_order() {
        let alone = link("cannot read the policy", None);
        assert_eq!(chain(&alone), "cannot read the policy");

        let io = link("permission denied", None);
        let open = link("cannot open: permission denied", Some(io));
        let load = link("cannot read the policy", Some(open));
        assert_eq!(
            chain(&load),
            "cannot read the policy: cannot open: permission denied"
        );
    }
}
