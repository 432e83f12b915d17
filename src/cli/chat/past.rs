//! What was said before: the last messages of a session, for whoever comes back to it.

use std::fmt::Write as _;

use teamster_core::display;
use teamster_protocol::{Commit, Event, message::Message, text};

use crate::{
    cli::{sessions::end_words, show},
    client::{
        Client,
        session::{Session, visible},
    },
};

/// Bytes of one message that are shown again.
const SHOWN_BYTES_MAX: usize = 4000;

/// Something that was said or done.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Past {
    /// Who said it; `None` for what happened in between.
    who: Option<&'static str>,
    text: String,
}

/// What an event adds to it.
pub(super) fn entry(session: &Session, event: &Event) -> Option<Past> {
    match event {
        Event::MessageAdded { message, .. }
        | Event::GenerationFinished {
            message: Some(message),
            ..
        }
        | Event::GenerationInterrupted {
            partial: Some(message),
            ..
        } => of(message),
        Event::CallFinished { call, outcome, .. } | Event::CallRefused { call, outcome, .. } => {
            let name = session
                .function_of(call)
                .map_or_else(|| call.to_string(), ToString::to_string);
            Some(between(format!("{name}: {}", show::word(outcome))))
        }
        Event::TurnEnded { reason, .. } if reason.status() != "completed" => {
            Some(between(format!("turn ended: {}", end_words(reason))))
        }
        _ => None,
    }
}

fn of(message: &Message) -> Option<Past> {
    let who = match message {
        Message::User { .. } => "you",
        Message::Assistant { .. } => "assistant",
        Message::Custom { .. } | Message::Notice { .. } => "note",
        Message::FunctionResult { .. } => return None,
    };
    let text = visible(message);
    (!text.is_empty()).then_some(Past {
        who: Some(who),
        text,
    })
}

fn between(text: String) -> Past {
    Past { who: None, text }
}

/// What a fork took over from its source.
pub(super) async fn before(client: &Client, commits: &[(u64, Commit)]) -> Vec<Past> {
    client
        .inherited(commits)
        .await
        .iter()
        .filter_map(of)
        .collect()
}

/// The last `messages` messages, and what happened in between, for a terminal.
pub(super) fn shown(past: &[Past], messages: usize) -> String {
    let mut left = messages;
    let from = past
        .iter()
        .rposition(|entry| {
            left = left.saturating_sub(usize::from(entry.who.is_some()));
            left == 0
        })
        .unwrap_or(0);
    let said = past.iter().filter(|entry| entry.who.is_some()).count();
    let mut text = String::new();
    if said > messages {
        let _ = writeln!(
            text,
            "({} earlier messages; /history {said} shows them)",
            said - messages
        );
    }
    for entry in past.iter().skip(from) {
        let shown = display::terminal(&text::cut(&entry.text, SHOWN_BYTES_MAX));
        match entry.who {
            Some("you") => {
                let _ = writeln!(text, "> {}", shown.replace('\n', "\n. "));
            }
            Some("assistant") => {
                let _ = writeln!(text, "{shown}");
            }
            Some(who) => {
                let _ = writeln!(text, "({who}: {shown})");
            }
            None => {
                let _ = writeln!(text, "  {shown}");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_messages_are_shown_and_the_others_counted() {
        let said = |who, text: &str| Past {
            who,
            text: text.to_owned(),
        };
        let past = [
            said(Some("you"), "one"),
            said(Some("assistant"), "two"),
            said(None, "fs::read: ok"),
            said(Some("you"), "three\nfour\u{1b}[2J"),
        ];
        assert_eq!(
            shown(&past, 2),
            "(1 earlier messages; /history 3 shows them)\ntwo\n  fs::read: ok\n> three\n. four\\u{1b}[2J\n"
        );
        assert!(shown(&past, 3).starts_with("> one\n"));
        assert!(shown(&past, 50).starts_with("> one\n"));
        assert_eq!(shown(&[], 5), "");
    }
}
