//! A message as rows hold it: its text apart from the rest, so that the text is stored once.

use teamster_protocol::{Message, limits, message::Content, text};

/// A message in two parts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Split {
    /// Whose it is, in a word.
    pub(crate) role: &'static str,
    /// What people read of it and search.
    pub(crate) text: String,
    /// The message without that text, where it can be put back.
    pub(crate) rest: Message,
}

/// Takes a message apart.
pub(crate) fn split(mut message: Message) -> Split {
    let role = role(&message);
    let text = match &mut message {
        Message::User { text, .. }
        | Message::Custom { text, .. }
        | Message::Notice { text, .. }
        | Message::FunctionResult { text, .. } => std::mem::take(text),
        Message::Assistant { content, .. } => match content.as_mut_slice() {
            [Content::Text { text }] => std::mem::take(text),
            parts => visible(parts),
        },
    };
    Split {
        role,
        text,
        rest: message,
    }
}

/// Puts a message together again.
pub(crate) fn join(rest: Message, whole: String) -> Message {
    let mut message = rest;
    match &mut message {
        Message::User { text, .. }
        | Message::Custom { text, .. }
        | Message::Notice { text, .. }
        | Message::FunctionResult { text, .. } => *text = whole,
        Message::Assistant { content, .. } => {
            if let [Content::Text { text }] = content.as_mut_slice() {
                *text = whole;
            }
        }
    }
    message
}

/// The first words of a text, for lists; `None` if there are none.
pub(crate) fn preview(text: &str) -> Option<String> {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    let head = text::head(line, limits::PREVIEW_BYTES_MAX);
    let more = if head.len() < line.len() { "…" } else { "" };
    Some(format!("{head}{more}"))
}

fn role(message: &Message) -> &'static str {
    match message {
        Message::User { .. } => "user",
        Message::Assistant { .. } => "assistant",
        Message::FunctionResult { .. } => "function_result",
        Message::Custom { .. } => "custom",
        Message::Notice { .. } => "notice",
    }
}

fn visible(parts: &[Content]) -> String {
    let texts: Vec<&str> = parts
        .iter()
        .filter_map(|part| match part {
            Content::Text { text } => Some(text.as_str()),
            Content::Thinking { .. } | Content::Call(_) => None,
        })
        .collect();
    texts.join("\n")
}

#[cfg(test)]
mod tests {
    use teamster_protocol::{CallId, MessageId, Principal, message::ResultKind, message::WireCall};

    use super::*;

    #[test]
    fn a_message_is_put_together_as_it_was() {
        let id = MessageId::parse("msg_1").expect("valid");
        let from = Principal::parse("owner").expect("valid");
        let call = CallId::parse("call_1").expect("valid");
        let say = |text: &str| Content::Text {
            text: text.to_owned(),
        };
        let assistant = |content| Message::Assistant {
            id: id.clone(),
            content,
            partial: true,
        };
        let asks = Content::Call(WireCall {
            call: call.clone(),
            name: "fs__read".to_owned(),
            arguments: "{}".to_owned(),
        });
        for (message, text) in [
            (
                Message::User {
                    id: id.clone(),
                    from: from.clone(),
                    text: "hi ⟦ü⟧".to_owned(),
                },
                "hi ⟦ü⟧",
            ),
            (
                Message::Custom {
                    id: id.clone(),
                    from,
                    kind: "note".to_owned(),
                    text: String::new(),
                },
                "",
            ),
            (
                Message::FunctionResult {
                    call,
                    function: None,
                    text: "done".to_owned(),
                    outcome: ResultKind::Ok,
                },
                "done",
            ),
            (assistant(vec![say("one")]), "one"),
            (
                assistant(vec![say("one"), asks.clone(), say("two")]),
                "one\ntwo",
            ),
            (assistant(vec![asks]), ""),
            (assistant(Vec::new()), ""),
        ] {
            let parts = split(message.clone());
            assert_eq!(parts.text, text);
            let stored = serde_json::to_string(&parts.rest).expect("JSON");
            let rest = serde_json::from_str(&stored).expect("JSON");
            assert_eq!(join(rest, parts.text), message);
        }
    }

    #[test]
    fn a_preview_is_the_first_line_that_says_something() {
        assert_eq!(
            preview(" \n\n  two words \nmore").as_deref(),
            Some("two words")
        );
        assert_eq!(preview(" \n"), None);
        let long = preview(&"ü".repeat(1000)).expect("some");
        assert!(long.ends_with('…') && long.len() <= limits::PREVIEW_BYTES_MAX + '…'.len_utf8());
    }
}
