//! How a result that is too long is shown: its beginning and its end, and between them a line that says what is missing and
//! how it is read.

use teamster_protocol::{CallId, limits, text};

/// A result as it is shown and as it is.
#[derive(Debug, Clone, Copy)]
pub struct Cut<'a> {
    /// The call.
    pub call: &'a CallId,
    /// The text, or the part of it that is left.
    pub text: &'a str,
    /// Bytes of the whole, where it can be read; else `None`.
    pub whole: Option<u64>,
}

/// Bytes that the line in the middle takes at most; call ids are short.
const LINE_BYTES: usize = 224;
/// Control characters take up to six bytes each in JSON; a commit must hold several results.
const JSON_BYTES_MAX: usize = limits::RESULT_BYTES_MAX * 3 / 2;

impl Cut<'_> {
    /// The text in at most `bytes_max` bytes, which are never fewer than `RESULT_BYTES_MIN`. `None`: it fits as it is.
    pub fn to(&self, bytes_max: usize) -> Option<String> {
        let bytes_max = bytes_max.max(limits::RESULT_BYTES_MIN);
        if self.text.len() <= bytes_max {
            return None;
        }
        Some(self.around(bytes_max - LINE_BYTES))
    }

    /// Head and tail of `kept` bytes together, with the line between them.
    fn around(&self, kept: usize) -> String {
        let head = text::head(self.text, kept / 2);
        let tail = text::tail(self.text, kept / 2);
        let shown = self.text.len();
        let (call, from) = (self.call, head.len());
        let line = match self.whole {
            Some(bytes) => format!(
                "[… {} of {bytes} bytes left out; context::read {{\"call\": \"{call}\", \"offset\": {from}}} reads them …]",
                bytes.saturating_sub((from + tail.len()) as u64)
            ),
            None => format!(
                "[… {} of {shown} bytes left out, which were not kept …]",
                shown.saturating_sub(from + tail.len())
            ),
        };
        format!("{head}\n{line}\n{tail}")
    }
}

/// A result's text as the log keeps it, if the whole is kept elsewhere or (`whole` is `None`) nowhere: within
/// `RESULT_BYTES_MAX`, and small enough as JSON. An empty result says so.
pub fn fit(call: &CallId, text: &str, whole: Option<u64>) -> String {
    if text.is_empty() {
        return "(no output)".to_owned();
    }
    let cut = Cut { call, text, whole };
    let mut shown = cut
        .to(limits::RESULT_BYTES_MAX)
        .unwrap_or_else(|| text.to_owned());
    let mut kept = limits::RESULT_BYTES_MAX / 2;
    while !is_small(&shown) && kept > 64 {
        shown = cut.around(kept.min(text.len() / 2));
        kept /= 2;
    }
    shown
}

/// Whether the log keeps a result's text as it is. If not, the whole is worth storing apart.
pub fn fits(text: &str) -> bool {
    text.len() <= limits::RESULT_BYTES_MAX && is_small(text)
}

fn is_small(text: &str) -> bool {
    // Most texts cannot be too large whatever they hold.
    text.len() * 6 <= JSON_BYTES_MAX
        || serde_json::to_string(text).is_ok_and(|json| json.len() <= JSON_BYTES_MAX)
}
