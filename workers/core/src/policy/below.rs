//! What a search may meet below the directory that it names. Pure.
//!
//! Owns: which functions read more than their target, and what a rule on paths means for them. A rule that denies reading
//! `secret/**` would mean little if a search of the directory above showed what stands there.
//!
//! Never: the files themselves. It is not known here what there is, so that what may be met counts as met.

use teamster_protocol::policy::Effect;

use super::file::Targets;

/// The functions of the house that read what lies below their target.
const SEARCHES: [&str; 3] = ["fs::find", "fs::grep", "fs::list"];
/// A name that no glob spells out.
const ANY: &str = "\u{1}";

/// Whether a function reads what lies below its target.
pub(super) fn is_search(function: &str) -> bool {
    SEARCHES.contains(&function)
}

/// What a rule with this effect and these globs means for a search of `path`; the workspace itself is empty. Where all that lies below
/// is meant, it is the rule's own effect; where some of it may be, a person decides.
pub(super) fn effect(effect: Effect, globs: &Targets, path: &str) -> Option<Effect> {
    if effect == Effect::Allow {
        return None;
    }
    let child = if path.is_empty() {
        ANY.to_owned()
    } else {
        format!("{path}/{ANY}")
    };
    let is_whole = |text: &String| text.ends_with("**");
    if globs.texts().iter().any(is_whole) && globs.is_match(&child) {
        return Some(effect);
    }
    globs
        .texts()
        .iter()
        .any(|text| may_meet(text, path))
        .then_some(effect.min(Effect::Ask))
}

/// Whether something below `path` could match a glob.
fn may_meet(glob: &str, path: &str) -> bool {
    let is_below = |of: &str, above: &str| {
        above.is_empty()
            || of
                .strip_prefix(above)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let Some(wild) = glob.find(['*', '?', '[', '{', '\\']) else {
        return glob != path && is_below(glob, path);
    };
    let (literal, _) = glob.split_at(wild);
    let directory = literal
        .rsplit_once('/')
        .map_or("", |(directory, _)| directory);
    is_below(directory, path) || is_below(path, directory)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_may_be_met_counts_as_met() {
        for (glob, path, want) in [
            ("secret/**", "secret", true),
            ("secret/**", "", true),
            ("secret/**", "secret/a", true),
            ("secret/**", "docs", false),
            ("secret/**", "secretary", false),
            ("a/b/c.txt", "a", true),
            ("a/b/c.txt", "a/b", true),
            ("a/b/c.txt", "a/b/c.txt", false),
            ("a/b/c.txt", "a/c", false),
            ("**/*.pem", "docs", true),
            ("a/*/x", "a/q", true),
            ("a/{b,c}/x", "d", false),
        ] {
            assert_eq!(may_meet(glob, path), want, "{glob} {path}");
        }
    }

    proptest! {
        /// Whatever a glob matches below a directory, a search of the directory may meet it.
        #[test]
        fn nothing_that_matches_is_missed(
            parts in proptest::collection::vec("[ab]{1,2}", 1..5),
            wild in proptest::collection::vec(prop_oneof![Just("*"), Just("**"), Just("?"), Just("")], 5),
            upto in 0_usize..4,
        ) {
            let glob: Vec<&str> = parts
                .iter()
                .zip(&wild)
                .map(|(part, wild)| if wild.is_empty() { part.as_str() } else { wild })
                .collect();
            let glob = glob.join("/");
            let matcher = globset::GlobBuilder::new(&glob)
                .literal_separator(true)
                .build()
                .expect("a glob")
                .compile_matcher();
            let path = parts.join("/");
            let above = parts.get(..upto.min(parts.len() - 1)).unwrap_or_default().join("/");
            prop_assume!(matcher.is_match(&path));
            prop_assert!(may_meet(&glob, &above), "{} {} {}", glob, path, above);
        }
    }
}
