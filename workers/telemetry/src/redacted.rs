//! Addresses whose credentials must not be printed.

use std::fmt;

/// What stands in the place of a secret.
const HIDDEN: &str = "***";

/// Prints a text with addresses, one or a list of them, without user, password, token and query values. It hides rather
/// too much: an `@` in a path hides what is before it.
#[derive(Clone, Copy)]
pub struct Redacted<'a>(pub &'a str);

impl fmt::Display for Redacted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some((before, after)) = rest.split_once("://") {
            f.write_str(before)?;
            f.write_str("://")?;
            let (address, next) = split_address(after);
            write_address(f, address)?;
            rest = next;
        }
        f.write_str(rest)
    }
}

impl fmt::Debug for Redacted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Splits behind the address that `text` begins with. It ends at white space or a quote, and where another address
/// follows, at the last comma before that. A comma before the first `@` may be one of a password, and ends nothing.
fn split_address(text: &str) -> (&str, &str) {
    let end = text
        .find(|character: char| character.is_whitespace() || matches!(character, '"' | '\''))
        .unwrap_or(text.len());
    let (address, rest) = text.split_at(end);
    let comma = address.split_once("://").and_then(|(first, _)| {
        let (own, _) = first.rsplit_once(',')?;
        (own.contains('@') || !address.contains('@')).then_some(own.len())
    });
    match comma {
        Some(comma) => text.split_at(comma),
        None => (address, rest),
    }
}

/// Writes what follows `scheme://`.
fn write_address(f: &mut fmt::Formatter<'_>, address: &str) -> fmt::Result {
    let place = match address.rsplit_once('@') {
        Some((_, place)) => {
            write!(f, "{HIDDEN}@")?;
            place
        }
        None => address,
    };
    let Some((path, query)) = place.split_once(['?', '#']) else {
        return f.write_str(place);
    };
    write!(f, "{path}?")?;
    for (index, pair) in query.split('&').enumerate() {
        let separator = if index == 0 { "" } else { "&" };
        match pair.split_once('=') {
            Some((key, _)) => write!(f, "{separator}{key}={HIDDEN}")?,
            None => write!(f, "{separator}{HIDDEN}")?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn credentials_of_addresses_are_hidden() {
        for (text, shown) in [
            ("nats://127.0.0.1:4222", "nats://127.0.0.1:4222"),
            ("nats://user:pass@host:4222", "nats://***@host:4222"),
            ("tls://token@host", "tls://***@host"),
            (
                "nats://u:a,b@one:1,nats://v:c@two:2",
                "nats://***@one:1,nats://***@two:2",
            ),
            ("nats://u:a,://b@one:1", "nats://***@one:1"),
            (
                "nats://u:a,b://c@one:1,nats://two",
                "nats://***@one:1,nats://two",
            ),
            ("nats://one:1,nats://two:2", "nats://one:1,nats://two:2"),
            ("nats://u:p/w@host/path", "nats://***@host/path"),
            (
                "https://api.example/v1?key=s3cret&x=1",
                "https://api.example/v1?key=***&x=***",
            ),
            ("https://h/p#token", "https://h/p?***"),
            (
                "cannot reach \"https://u:p@h/x\" now",
                "cannot reach \"https://***@h/x\" now",
            ),
            ("no address: a@b", "no address: a@b"),
        ] {
            assert_eq!(Redacted(text).to_string(), shown);
            assert_eq!(format!("{:?}", Redacted(text)), shown);
        }
    }

    proptest! {
        #[test]
        fn a_password_never_shows(password in "[a-z0-9/,?#:&=]{1,24}", hosts in 1_usize..4) {
            let secret = format!("SECRET{password}TERCES");
            let list = vec![format!("nats://user:{secret}@host:4222/p?token={secret}"); hosts].join(",");
            let shown = Redacted(&list).to_string();
            prop_assert!(!shown.contains("SECRET"), "{shown}");
            prop_assert!(!shown.contains("TERCES"), "{shown}");
        }
    }
}
