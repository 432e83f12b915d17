//! A history as a model reads it.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use teamster_protocol::{BlobRef, CallId, FunctionId, Message};

use super::cut::Cut;

/// A history, and what is known about its results.
#[derive(Debug, Clone, Copy)]
pub struct History<'a> {
    /// The messages, oldest first.
    pub messages: &'a [Arc<Message>],
    /// Calls whose results are masked already.
    pub masked: &'a BTreeSet<CallId>,
    /// Results whose whole is stored apart.
    pub stored: &'a BTreeMap<CallId, BlobRef>,
    /// Whether whole results can be read again: in a session, but not where messages came along with a request.
    pub is_readable: bool,
}

/// The messages that are sent, shared with the history where nothing of them changes: each result within `result_bytes_max`, in the place of masked ones (also those that `mask`
/// names) a mark; without what no model reads.
pub fn apply(
    history: &History<'_>,
    mask: &BTreeSet<CallId>,
    result_bytes_max: usize,
) -> Vec<Arc<Message>> {
    history
        .messages
        .iter()
        .filter(|message| !matches!(***message, Message::Custom { .. }))
        .map(|message| match &**message {
            Message::FunctionResult {
                call,
                function,
                text,
                outcome,
            } => {
                let is_masked = history.masked.contains(call) || mask.contains(call);
                let shown = if is_masked {
                    history.mark(call, function.as_ref(), text)
                } else {
                    history.cut(call, text, result_bytes_max)
                };
                match shown {
                    Cow::Borrowed(_) => Arc::clone(message),
                    Cow::Owned(text) => Arc::new(Message::FunctionResult {
                        call: call.clone(),
                        function: function.clone(),
                        text,
                        outcome: *outcome,
                    }),
                }
            }
            _ => Arc::clone(message),
        })
        .collect()
}

impl History<'_> {
    /// Bytes of a whole result.
    fn bytes(&self, call: &CallId, text: &str) -> u64 {
        self.stored
            .get(call)
            .map_or(text.len() as u64, |blob| blob.bytes)
    }

    /// A result within a bound.
    pub(super) fn cut<'t>(&self, call: &CallId, text: &'t str, bytes_max: usize) -> Cow<'t, str> {
        let whole = self.is_readable.then(|| self.bytes(call, text));
        let cut = Cut { call, text, whole };
        cut.to(bytes_max).map_or(Cow::Borrowed(text), Cow::Owned)
    }

    /// What stands in the place of a masked result; a result that is no longer than that stands for itself.
    pub(super) fn mark<'t>(
        &self,
        call: &CallId,
        function: Option<&FunctionId>,
        text: &'t str,
    ) -> Cow<'t, str> {
        let name = function.map_or("a function", FunctionId::as_str);
        let bytes = self.bytes(call, text);
        let how = if self.is_readable {
            format!("; context::read {{\"call\": \"{call}\"}} reads it again")
        } else {
            String::new()
        };
        let mark = format!("[the result of {name}, {bytes} bytes, is left out here{how}]");
        if mark.len() < text.len() {
            Cow::Owned(mark)
        } else {
            Cow::Borrowed(text)
        }
    }
}
