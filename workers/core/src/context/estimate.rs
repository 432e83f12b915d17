//! How many tokens a text takes, without the model's vocabulary.

use serde::{Deserialize, Serialize};
use teamster_protocol::{Message, message::Content, usage::Usage};

/// Tokens that a message takes besides its text: its role and its separators.
const FRAME: u64 = 6;
/// Tokens that a call takes besides its name and its arguments: its id and its form.
const CALL_FRAME: u64 = 16;
/// Estimated tokens of a request from which its real number says something about the next one.
const CALIBRATED_FROM: u64 = 1024;
/// The bounds of what a real number may say, in tokens for a thousand estimated ones.
const PER_MILLE: std::ops::RangeInclusive<u64> = 800..=4000;
/// Estimated tokens of a request from which a server can be told to have read only a part of it.
const TRUNCATED_FROM: u64 = 4096;
/// The smallest window that servers cut requests to. A smaller number of tokens is no count at all.
const WINDOW_MIN: u64 = 512;
/// No text takes so few tokens: a sixteenth of its bytes.
const TRUNCATED_BELOW: u64 = 4;

/// Estimated tokens of a text: a quarter of its bytes, but one for each character of three bytes (Chinese, Japanese,
/// Korean and others that take three), and two for each of four.
pub fn of_text(text: &str) -> u64 {
    if text.is_ascii() {
        return of_bytes(text.len() as u64);
    }
    let (mut threes, mut fours) = (0_u64, 0_u64);
    for byte in text.as_bytes() {
        threes += u64::from(*byte >= 0xE0 && *byte < 0xF0);
        fours += u64::from(*byte >= 0xF0);
    }
    let narrow = text.len() as u64 - 3 * threes - 4 * fours;
    narrow.div_ceil(4) + threes + 2 * fours
}

/// Estimated tokens of bytes that are mostly ASCII, as JSON schemas are.
pub fn of_bytes(bytes: u64) -> u64 {
    bytes.div_ceil(4)
}

/// Estimated tokens of one message; none for what no model reads.
pub fn of_message(message: &Message) -> u64 {
    match message {
        Message::Custom { .. } => 0,
        Message::User { text, .. }
        | Message::Notice { text, .. }
        | Message::FunctionResult { text, .. } => FRAME + of_text(text),
        Message::Assistant { content, .. } => FRAME + content.iter().map(of_part).sum::<u64>(),
    }
}

fn of_part(part: &Content) -> u64 {
    match part {
        Content::Text { text } => of_text(text),
        // Without a signature it is not sent again.
        Content::Thinking {
            signature: None, ..
        } => 0,
        Content::Thinking {
            text,
            signature: Some(signature),
        } => of_text(text) + of_text(signature),
        Content::Call(call) => CALL_FRAME + of_text(&call.name) + of_text(&call.arguments),
    }
}

/// What a provider counted for the last request, beside what had been estimated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calibration {
    /// `provider/model`: others have other vocabularies.
    pub model: String,
    /// Tokens for a thousand estimated ones; bounded, so that no provider can talk an estimate away.
    pub per_mille: u64,
    /// What it counted: its window is at least as large.
    #[serde(default)]
    pub counted: u64,
}

impl Calibration {
    /// What a finished generation says. `None` where it says nothing: a small request, a count that is an estimate itself, or
    /// one of several attempts together, or one that no text can have.
    pub fn of(model: &str, estimated: u64, usage: &Usage, attempts: u32) -> Option<Self> {
        let counted = counted(usage, attempts)?;
        let is_plausible = counted.saturating_mul(TRUNCATED_BELOW) >= estimated;
        (estimated >= CALIBRATED_FROM && is_plausible).then(|| Self {
            model: model.to_owned(),
            per_mille: (counted.saturating_mul(1000) / estimated)
                .clamp(*PER_MILLE.start(), *PER_MILLE.end()),
            counted,
        })
    }
}

/// Whether a server read far less than it was sent: it cut the request to a window of its own without a word. One that has read
/// more before (`known`) has a larger window; it leaves out what it had in a cache.
pub fn is_truncated(
    estimated: u64,
    usage: &Usage,
    attempts: u32,
    known: Option<&Calibration>,
) -> bool {
    counted(usage, attempts).is_some_and(|counted| {
        known.is_none_or(|known| known.counted <= counted)
            && estimated >= TRUNCATED_FROM
            && counted >= WINDOW_MIN
            && counted.saturating_mul(TRUNCATED_BELOW) < estimated
    })
}

/// Tokens of the one request, as the provider counted them.
fn counted(usage: &Usage, attempts: u32) -> Option<u64> {
    let counted = usage
        .input
        .saturating_add(usage.cache_read)
        .saturating_add(usage.cache_write);
    (!usage.estimated && attempts == 1 && counted > 0).then_some(counted)
}
