//! Lines that begin with a slash: what they mean. Pure.

use teamster_protocol::SessionId;

/// What a line asks this program to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Slash {
    /// Show what there is.
    Help,
    /// Stop the turn.
    Stop,
    /// What the session does.
    Status,
    /// Ask again about what waits.
    Approvals,
    /// The model of the next turns, or which one it is.
    Model(Option<String>),
    /// What the session cost.
    Cost,
    /// Other sessions.
    Sessions,
    /// Begin a new session.
    New,
    /// Go on in a fork of this session, of its first commits if a number is given.
    Fork(Option<u64>),
    /// Go on with another session.
    Switch(SessionId),
    /// Give the session a title.
    Title(String),
    /// Show the last messages again.
    History(usize),
    /// Leave.
    Quit,
}

/// What `/help` prints.
pub(super) const HELP: &str = "\
/stop            stop the turn that runs        /status          what the session does
/approvals       ask again about what waits     /cost            tokens and money so far
/model [P/NAME]  the model of the next turns    /history [N]     the last N messages again
/sessions        other sessions                 /switch ID       go on with one of them
/new             begin a new session            /fork [COMMIT]   go on in a copy of this one
/title TEXT      name the session               /quit            leave; work goes on (also Ctrl-D)
A line that is typed while a turn runs steers it. A backslash at its end, or \"\"\" around it, makes a message of several
lines; // at its beginning stands for one slash. Ctrl-C once asks, twice stops the turn.";

/// Messages that `/history` shows when no number is given.
pub(super) const HISTORY: usize = 10;

/// What a line means; `None` where it is a message. `Err` says what is wrong with it.
pub(super) fn parse(line: &str) -> Option<Result<Slash, String>> {
    // A command is one line: what is pasted as several is a message, whatever it begins with.
    let command = line
        .strip_prefix('/')
        .filter(|rest| !rest.starts_with('/') && !rest.trim_end().contains('\n'))?;
    let (word, rest) = command
        .split_once(char::is_whitespace)
        .unwrap_or((command, ""));
    let rest = rest.trim();
    let meant = match (word, rest) {
        ("help" | "?", "") => Slash::Help,
        ("stop", "") => Slash::Stop,
        ("status", "") => Slash::Status,
        ("approvals", "") => Slash::Approvals,
        ("model", "") => Slash::Model(None),
        ("model", name) => match crate::cli::compose::model(name) {
            Ok(name) => Slash::Model(Some(name)),
            Err(problem) => return Some(Err(problem)),
        },
        ("cost", "") => Slash::Cost,
        ("sessions", "") => Slash::Sessions,
        ("new", "") => Slash::New,
        ("fork", "") => Slash::Fork(None),
        ("fork", number) => match number.parse() {
            Ok(number) => Slash::Fork(Some(number)),
            Err(_) => return Some(Err("/fork takes the number of a commit".to_owned())),
        },
        ("switch", id) => match SessionId::parse(id) {
            Ok(id) => Slash::Switch(id),
            Err(error) => return Some(Err(format!("/switch takes a session's id: {error}"))),
        },
        ("title", "") => return Some(Err("/title takes a text".to_owned())),
        ("title", text) => Slash::Title(text.to_owned()),
        ("history", "") => Slash::History(HISTORY),
        ("history", number) => match number.parse() {
            Ok(number) => Slash::History(number),
            Err(_) => return Some(Err("/history takes a number".to_owned())),
        },
        ("quit" | "exit" | "q", "") => Slash::Quit,
        _ => {
            return Some(Err(format!(
                "there is no command /{word} {}",
                if rest.is_empty() { "" } else { "with that" }
            )
            .trim_end()
            .to_owned()));
        }
    };
    Some(Ok(meant))
}

/// A message as it is meant: two slashes at its beginning stand for one.
pub(super) fn message(text: &str) -> &str {
    match text.strip_prefix('/') {
        Some(rest) if rest.starts_with('/') => rest,
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_messages_are_told_apart() {
        for (line, want) in [
            ("hello", None),
            ("//etc/hosts is a file", None),
            (" /stop", None),
            ("/etc/hosts\n127.0.0.1 localhost", None),
            ("/stop\n", Some(Ok(Slash::Stop))),
            ("/stop", Some(Ok(Slash::Stop))),
            (
                "/model openai/x",
                Some(Ok(Slash::Model(Some("openai/x".to_owned())))),
            ),
            ("/fork 12", Some(Ok(Slash::Fork(Some(12))))),
            ("/title  a b ", Some(Ok(Slash::Title("a b".to_owned())))),
        ] {
            assert_eq!(parse(line), want, "{line}");
        }
        for wrong in [
            "/",
            "/etc/hosts",
            "/stop it",
            "/model x",
            "/fork x",
            "/title",
            "/history -1",
            "/switch",
        ] {
            assert!(matches!(parse(wrong), Some(Err(_))), "{wrong}");
        }
        assert_eq!(message("//etc"), "/etc");
        assert_eq!(message("a//b"), "a//b");
    }

    #[test]
    fn help_names_every_command() {
        for name in [
            "stop",
            "status",
            "approvals",
            "model",
            "cost",
            "sessions",
            "new",
            "fork",
            "switch",
            "title",
            "history",
            "quit",
        ] {
            assert!(HELP.contains(&format!("/{name}")), "{name}");
        }
    }
}
