//! Carrying the trace of a caller to its callee in the header `traceparent` (W3C trace context).

use async_nats::HeaderMap;
use teamster_protocol::header;

/// Adds the context `above`, else the current span's, if there is one.
pub(crate) fn inject(headers: &mut HeaderMap, above: Option<&str>) {
    match above {
        Some(above) => headers.insert(header::TRACEPARENT, above),
        None => {
            if let Some(parent) = teamster_telemetry::trace::current() {
                headers.insert(header::TRACEPARENT, parent);
            }
        }
    }
}

/// The context in `headers`, as far as it can be one: a broken header is none.
pub(crate) fn of(headers: &HeaderMap) -> Option<String> {
    let parent = headers.get(header::TRACEPARENT)?.as_str();
    teamster_telemetry::trace::ids(parent).map(|_| parent.to_owned())
}

/// Makes `span` a child of the context in `headers`, if there is one.
pub(crate) fn extract(headers: Option<&HeaderMap>, span: &tracing::Span) {
    if let Some(parent) = headers.and_then(|headers| headers.get(header::TRACEPARENT)) {
        teamster_telemetry::trace::set_parent(span, parent.as_str());
    }
}
