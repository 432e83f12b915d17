//! The bounded raw history that a loop sends to a model when no context worker serves it.

use teamster_protocol::{Message, message::Content};

use crate::context::History;

/// Bytes that a masked result takes at most.
const MARK_BYTES: usize = 192;

/// The longest end of the transcript that fits into `bytes_max` and begins with a user's message, so that no result lacks
/// its call. `None` when not even the last turn fits.
pub fn window(transcript: &[Message], bytes_max: usize) -> Option<&[Message]> {
    let mut bytes = 0_usize;
    let mut start = None;
    for (index, message) in transcript.iter().enumerate().rev() {
        bytes = bytes.saturating_add(bytes_of(message));
        if bytes > bytes_max {
            break;
        }
        if matches!(message, Message::User { .. }) {
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
    let sent = history.messages.iter().map(|message| match message {
        Message::FunctionResult { call, .. } if history.masked.contains(call) => {
            bytes_of(message).min(MARK_BYTES)
        }
        other => bytes_of(other),
    });
    sent.sum()
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
