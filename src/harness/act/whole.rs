//! Keeps results that are too long for the log: the whole is stored before the commit that names it.
//!
//! A crash between the two leaves a value that nothing names; the call's result is asked for again, and the same value has
//! the same name.

use bytes::Bytes;
use teamster_core::context;
use teamster_protocol::{BlobRef, CallId, limits, text};

use crate::harness::work::Work;

/// A result as the log keeps it.
pub(super) struct Kept {
    pub(super) text: String,
    /// The whole, where the text is a part of it.
    pub(super) whole: Option<BlobRef>,
}

/// Stores a result's whole, if it is too long for the log. Where that fails the text says that the rest was not kept.
pub(super) async fn keep(work: &Work<'_>, call: &CallId, full: String) -> Kept {
    if context::fits(&full) {
        return Kept {
            text: full,
            whole: None,
        };
    }
    let full = if full.len() > limits::BLOB_BYTES_MAX {
        text::cut(&full, limits::BLOB_BYTES_MAX)
    } else {
        full
    };
    let bytes = Bytes::from(full);
    let whole = match work.harness.mesh.blobs().put(bytes.clone()).await {
        Ok(blob) => Some(blob),
        Err(error) => {
            tracing::warn!(session = %work.session, %call, error = %teamster_telemetry::chain(&error), "a long result is kept in part");
            None
        }
    };
    let full = std::str::from_utf8(&bytes).unwrap_or_default();
    Kept {
        text: context::fit(call, full, whole.map(|blob| blob.bytes)),
        whole,
    }
}
