//! One log line as one JSON document: time, level, service, target, trace, message, fields, and the spans around it.

use std::fmt;

use serde_json::{Map, Value};
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_opentelemetry::get_otel_context;
use tracing_subscriber::{
    fmt::{
        FmtContext, FormatEvent, FormatFields, FormattedFields,
        format::Writer,
        time::{FormatTime, SystemTime},
    },
    registry::LookupSpan,
};

use opentelemetry::trace::TraceContextExt as _;

use crate::escape::escape_unseen;

/// What a line is about: fields that stand at its top, wherever they were said. The event's own is stronger than that of a
/// span around it.
const IDS: [&str; 5] = ["session", "turn", "call", "request", "seq"];

/// Formats events as JSON lines. Spans must be formatted with `JsonFields`.
pub(crate) struct JsonLine {
    /// The process's name in every line.
    pub(crate) service: String,
}

impl<S, N> FormatEvent<S, N> for JsonLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut at = String::new();
        SystemTime.format_time(&mut Writer::new(&mut at))?;

        let metadata = event.metadata();
        let mut line = Map::new();
        let mut put = |key: &str, value: Value| line.insert(key.to_owned(), value);
        put("at", at.into());
        put("level", metadata.level().as_str().into());
        put("service", self.service.as_str().into());
        put("target", metadata.target().into());
        if let Some(message) = fields.message {
            put("message", message.into());
        }
        let mut spans = spans_of(context);
        // A span that only gives lines their ids says them as its fields.
        let said = spans.iter_mut().rev().find_map(place_of);
        let own = trace_of(context).map(|(trace, span)| (trace.into(), span.into()));
        if let Some((trace, span)) = own.or(said) {
            put("trace_id", trace);
            put("span_id", span);
        }
        for id in IDS {
            let inner = || spans.iter_mut().rev().find_map(|span| taken(span, id));
            if let Some(value) = fields.others.remove(id).or_else(inner) {
                put(id, value);
            }
        }
        if !fields.others.is_empty() {
            put("fields", fields.others.into());
        }
        if !spans.is_empty() {
            put("spans", spans.into());
        }
        let line = serde_json::to_string(&line).map_err(|_| fmt::Error)?;
        // Inside a JSON document only strings can hold such characters, so the escape is JSON's own.
        writeln!(writer, "{}", escape_unseen(&line))
    }
}

/// The trace and span ids of the span that the event stands in.
fn trace_of<S, N>(context: &FmtContext<'_, S, N>) -> Option<(String, String)>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    let id = context.lookup_current()?.id();
    let otel = tracing::dispatcher::get_default(|dispatch| get_otel_context(&id, dispatch))?;
    let span = otel.span().span_context().clone();
    span.is_valid()
        .then(|| (span.trace_id().to_string(), span.span_id().to_string()))
}

/// Takes the place in a trace out of a span's fields.
fn place_of(span: &mut Value) -> Option<(Value, Value)> {
    taken(span, "trace_id").zip(taken(span, "span_id"))
}

fn taken(span: &mut Value, field: &str) -> Option<Value> {
    span.as_object_mut()?.remove(field)
}

/// The spans around an event, outermost first: each its fields and its name.
fn spans_of<S, N>(context: &FmtContext<'_, S, N>) -> Vec<Value>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    let Some(scope) = context.event_scope() else {
        return Vec::new();
    };
    scope
        .from_root()
        .map(|span| {
            let extensions = span.extensions();
            let mut fields = extensions
                .get::<FormattedFields<N>>()
                .and_then(|fields| serde_json::from_str::<Map<String, Value>>(fields).ok())
                .unwrap_or_default();
            // What the collector is told about a span is no matter of lines.
            fields.retain(|field, _| !field.starts_with("otel."));
            fields.insert("name".to_owned(), span.name().into());
            Value::Object(fields)
        })
        .collect()
}

/// The fields of one event.
#[derive(Default)]
struct Fields {
    message: Option<String>,
    others: Map<String, Value>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        if field.name() != "message" {
            self.others.insert(field.name().to_owned(), value);
        } else if let Value::String(message) = value {
            self.message = Some(message);
        } else {
            self.message = Some(value.to_string());
        }
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.put(field, crate::chain(value).into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}").into());
    }
}
