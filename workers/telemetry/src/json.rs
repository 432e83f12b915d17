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
        if let Some((trace, span)) = trace_of(context) {
            put("trace_id", trace.into());
            put("span_id", span.into());
        }
        if !fields.others.is_empty() {
            put("fields", fields.others.into());
        }
        let spans = spans_of(context);
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
