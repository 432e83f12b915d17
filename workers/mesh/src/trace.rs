//! Carrying the trace of a caller to its callee in the header `traceparent` (W3C trace context).

use async_nats::HeaderMap;
use teamster_protocol::header;

/// Adds the current span's context, if there is one.
pub(crate) fn inject(headers: &mut HeaderMap) {
    if let Some(parent) = teamster_telemetry::trace::current() {
        headers.insert(header::TRACEPARENT, parent);
    }
}

/// Makes `span` a child of the context in `headers`, if there is one.
pub(crate) fn extract(headers: Option<&HeaderMap>, span: &tracing::Span) {
    if let Some(parent) = headers.and_then(|headers| headers.get(header::TRACEPARENT)) {
        teamster_telemetry::trace::set_parent(span, parent.as_str());
    }
}
