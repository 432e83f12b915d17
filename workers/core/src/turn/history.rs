//! The bounded raw history that a loop sends to a model when no context worker serves it.

use std::sync::Arc;

use teamster_protocol::{Message, message::Content};

use crate::context::History;

/// Bytes that a masked result takes at most.
const MARK_BYTES: usize = 192;

/// The longest end of the transcript that fits into `bytes_max` and begins with a user's message, so that no result lacks
/// its call. `None` when not even the last turn fits.
pub fn window(transcript: &[Arc<Message>], bytes_max: usize) -> Option<&[Arc<Message>]> {
    let mut bytes = 0_usize;
    let mut start = None;
    for (index, message) in transcript.iter().enumerate().rev() {
        bytes = bytes.saturating_add(bytes_of(message));
        if bytes > bytes_max {
            break;
        }
        if matches!(**message, Message::User { .. }) {
            start = Some(index);
        }
    }
    match start {
        Some(start) => transcript.get(start..),
        None if transcript.is_empty() => Some(transcript),
        None => None,
    }
}

/// About how many bytes a whole history takes on a provider's wire.
pub fn bytes(history: &History<'_>) -> usize {
    let sent = history.messages.iter().map(|message| match &**message {
        Message::FunctionResult { call, .. } if history.masked.contains(call) => {
            bytes_of(message).min(MARK_BYTES)
        }
        other => bytes_of(other),
    });
    sent.sum()
}

/// What a byte of text can come to in JSON.
const ESCAPED_MAX: usize = 6;
/// At most what the rest of a message, or of a part of one, takes as JSON: names of fields, ids, the function's name.
const FIELDS_MAX: usize = 1024;

/// At most how many bytes a message takes as JSON.
pub fn json_bytes_max(message: &Message) -> usize {
    let texts = match message {
        Message::User { text, .. }
        | Message::Notice { text, .. }
        | Message::FunctionResult { text, .. } => text.len(),
        Message::Custom { kind, text, .. } => kind.len() + text.len(),
        Message::Assistant { content, .. } => {
            return FIELDS_MAX + content.iter().map(part_bytes_max).sum::<usize>();
        }
    };
    FIELDS_MAX + ESCAPED_MAX * texts
}

fn part_bytes_max(part: &Content) -> usize {
    let texts = match part {
        Content::Text { text } => text.len(),
        Content::Thinking { text, signature } => {
            text.len() + signature.as_ref().map_or(0, String::len)
        }
        Content::Call(call) => call.name.len() + call.arguments.len(),
    };
    FIELDS_MAX + ESCAPED_MAX * texts
}

/// About how many bytes a message takes on a provider's wire.
pub fn bytes_of(message: &Message) -> usize {
    let frame = 48;
    frame
        + match message {
            Message::Custom { .. } => return 0,
            Message::User { text, .. }
            | Message::Notice { text, .. }
            | Message::FunctionResult { text, .. } => text.len(),
            Message::Assistant { content, .. } => content
                .iter()
                .map(|part| match part {
                    Content::Text { text } | Content::Thinking { text, .. } => text.len(),
                    Content::Call(call) => call.name.len() + call.arguments.len() + frame,
                })
                .sum(),
        }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use teamster_protocol::{
        id::{CallId, FunctionId, MessageId, Principal},
        message::{ResultKind, WireCall},
    };

    use super::*;

    fn text() -> impl Strategy<Value = String> {
        proptest::collection::vec(any::<char>(), 0..200)
            .prop_map(|chars| chars.into_iter().collect())
    }

    fn message() -> impl Strategy<Value = Message> {
        let id = || MessageId::parse(format!("msg_{}", "a".repeat(32))).expect("an id");
        let call = || CallId::parse(format!("call_{}", "c".repeat(64))).expect("an id");
        prop_oneof![
            text().prop_map(move |text| Message::User {
                id: id(),
                from: Principal::parse("owner").expect("a principal"),
                text,
            }),
            text().prop_map(move |text| Message::FunctionResult {
                call: call(),
                function: FunctionId::parse("a::b").ok(),
                text,
                outcome: ResultKind::DeniedByPolicy,
            }),
            (text(), text(), text()).prop_map(move |(one, two, three)| Message::Assistant {
                id: id(),
                content: vec![
                    Content::Thinking {
                        text: one.clone(),
                        signature: Some(two.clone()),
                    },
                    Content::Text { text: three },
                    Content::Call(WireCall {
                        call: call(),
                        name: one,
                        arguments: two,
                    }),
                ],
                partial: true,
            }),
        ]
    }

    proptest! {
        /// What is handed over without being written must fit where it would be.
        #[test]
        fn a_message_is_never_larger_than_said(message in message()) {
            let json = serde_json::to_vec(&message).expect("JSON");
            prop_assert!(json.len() <= json_bytes_max(&message));
        }

        #[test]
        fn control_characters_are_counted_as_they_are_escaped(count in 0..4096_usize) {
            let message = Message::Notice {
                id: MessageId::parse(format!("msg_{}", "a".repeat(32))).expect("an id"),
                text: "\u{1}".repeat(count),
            };
            let json = serde_json::to_vec(&message).expect("JSON");
            prop_assert!(json.len() >= 6 * count && json.len() <= json_bytes_max(&message));
        }
    }
}
