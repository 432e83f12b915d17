//! Spans that are complete when they are made: they tell what a log has stored, with times and ids that the log gives.
//!
//! A span that a process carries about is lost when the process is killed. These are told by whoever reads the log, so each
//! has an end, and its parent is always told by somebody.

use std::{
    borrow::Cow,
    sync::OnceLock,
    time::{Duration, SystemTime},
};

use opentelemetry::{
    Array, InstrumentationScope, KeyValue, StringValue, Value as OtelValue,
    trace::{Link, SpanId, SpanKind, Status},
};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use crate::{outlet::Outlet, semconv, trace};

static OUTLET: OnceLock<Outlet> = OnceLock::new();

/// Takes what is emitted from now on.
pub(crate) fn install(outlet: Outlet) {
    // A second set-up of the process is refused before it comes here.
    let _ = OUTLET.set(outlet);
}

/// Whether anybody takes spans: if not, none need be made.
pub fn is_wanted() -> bool {
    OUTLET.get().is_some()
}

/// An attribute's value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A number.
    Whole(u64),
    /// A figure.
    Real(f64),
    /// Texts.
    Texts(Vec<String>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Whole(number)
    }
}

/// What a span stands for at its border.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Something within.
    Internal,
    /// A request to somebody else.
    Client,
}

/// A finished span.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    /// Its place: a `traceparent`.
    pub context: String,
    /// The span above it, 16 hexadecimal digits; none at the top of a trace.
    pub parent: Option<String>,
    /// Its name, of few different ones.
    pub name: Cow<'static, str>,
    /// Its kind.
    pub kind: Kind,
    /// When it began, in milliseconds since 1970.
    pub start_ms: u64,
    /// When it ended, in milliseconds since 1970.
    pub end_ms: u64,
    /// What is known of it.
    pub attributes: Vec<(&'static str, Value)>,
    /// Spans that it goes on from: each a `traceparent`.
    pub links: Vec<String>,
    /// Stable code of what went wrong; such a span has failed, any other has succeeded.
    pub error: Option<Cow<'static, str>>,
}

/// Hands a finished span to the collector. Nothing happens where nothing is exported, or the trace is not kept.
pub fn emit(span: Finished) {
    if let Some(outlet) = OUTLET.get()
        && let Some(data) = data(span)
    {
        outlet.put(data);
    }
}

/// The span as the exporter takes it; `None` if its trace is not kept or its context cannot be read.
fn data(span: Finished) -> Option<SpanData> {
    let context =
        trace::parse(&span.context).filter(opentelemetry::trace::SpanContext::is_sampled)?;
    let parent = span
        .parent
        .as_deref()
        .and_then(|parent| SpanId::from_hex(parent).ok());
    let mut attributes: Vec<KeyValue> = span
        .attributes
        .into_iter()
        .map(|(name, value)| KeyValue::new(name, value_of(value)))
        .collect();
    let status = match span.error {
        Some(code) => {
            attributes.push(KeyValue::new(semconv::ERROR_TYPE, code.to_string()));
            Status::error(code)
        }
        None => Status::Ok,
    };
    let mut links = SpanLinks::default();
    links.links = span
        .links
        .iter()
        .filter_map(|link| trace::parse(link))
        .map(Link::with_context)
        .collect();
    let at = |ms: u64| SystemTime::UNIX_EPOCH + Duration::from_millis(ms);
    Some(SpanData {
        span_context: context,
        parent_span_id: parent.unwrap_or(SpanId::INVALID),
        parent_span_is_remote: false,
        span_kind: match span.kind {
            Kind::Internal => SpanKind::Internal,
            Kind::Client => SpanKind::Client,
        },
        name: span.name,
        start_time: at(span.start_ms),
        end_time: at(span.end_ms.max(span.start_ms)),
        attributes,
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links,
        status,
        instrumentation_scope: InstrumentationScope::builder("teamster").build(),
    })
}

fn value_of(value: Value) -> OtelValue {
    match value {
        Value::Text(text) => text.into(),
        Value::Whole(number) => i64::try_from(number).unwrap_or(i64::MAX).into(),
        Value::Real(figure) => figure.into(),
        Value::Texts(texts) => OtelValue::Array(Array::String(
            texts.into_iter().map(StringValue::from).collect(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const LEFT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

    fn finished(context: &str, error: Option<&'static str>) -> Finished {
        Finished {
            context: context.to_owned(),
            parent: Some("00f067aa0ba902b7".to_owned()),
            name: "chat".into(),
            kind: Kind::Client,
            start_ms: 5,
            end_ms: 3,
            attributes: vec![("a", 1.into())],
            links: vec![KEPT.to_owned(), "nonsense".to_owned()],
            error: error.map(Cow::Borrowed),
        }
    }

    #[test]
    fn a_finished_span_keeps_its_place_and_its_end_is_never_before_its_beginning() {
        let span = data(finished(KEPT, None)).expect("it is kept");
        assert_eq!(trace::format(&span.span_context).as_deref(), Some(KEPT));
        assert_eq!(span.parent_span_id.to_string(), "00f067aa0ba902b7");
        assert_eq!(span.end_time, span.start_time);
        assert_eq!(span.status, Status::Ok);
        assert_eq!(span.links.len(), 1);
    }

    #[test]
    fn an_error_is_status_and_attribute() {
        let span = data(finished(KEPT, Some("mesh.timeout"))).expect("it is kept");
        assert_eq!(span.status, Status::error("mesh.timeout"));
        assert!(
            span.attributes
                .iter()
                .any(|pair| pair.key.as_str() == semconv::ERROR_TYPE)
        );
    }

    #[test]
    fn a_trace_that_is_not_kept_has_no_spans() {
        for context in [LEFT, "nonsense"] {
            assert_eq!(data(finished(context, None)), None);
        }
    }
}
