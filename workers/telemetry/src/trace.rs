//! W3C trace context: what lets one trace run through all workers, and over a restart.

use std::sync::OnceLock;

use opentelemetry::{
    Context,
    trace::{SpanContext, SpanId, SpanKind, TraceContextExt as _, TraceFlags, TraceId, TraceState},
};
use opentelemetry_sdk::trace::{
    IdGenerator as _, RandomIdGenerator, Sampler, SamplingDecision, ShouldSample as _,
};
use sha2::{Digest as _, Sha256};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// Target of spans that give log lines their ids and are no spans of a trace.
pub const LINES: &str = "teamster_lines";

static SAMPLER: OnceLock<Sampler> = OnceLock::new();

/// Decides by this sampler which traces that begin here are kept.
pub(crate) fn install(sampler: Sampler) {
    let _ = SAMPLER.set(sampler);
}

/// A span's place that is stored and told to others before the span is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Its `traceparent`.
    pub context: String,
    /// The span above it, 16 hexadecimal digits.
    pub parent: Option<String>,
}

/// The place of something that begins now: below the span that `cause` names, or at the top of a trace of its own. `None`
/// where there is no cause and telemetry was not set up.
pub fn begin(cause: Option<&str>, name: &str) -> Option<Place> {
    let cause = cause.and_then(parse);
    let ids = RandomIdGenerator::default();
    let (trace, flags, parent) = match &cause {
        Some(cause) => (
            cause.trace_id(),
            cause.trace_flags(),
            Some(cause.span_id().to_string()),
        ),
        None => (ids.new_trace_id(), TraceFlags::default(), None),
    };
    let is_kept = match SAMPLER.get() {
        Some(sampler) => {
            let above = cause.map(|cause| Context::new().with_remote_span_context(cause));
            let kind = SpanKind::Internal;
            let decided = sampler.should_sample(above.as_ref(), trace, name, &kind, &[], &[]);
            decided.decision == SamplingDecision::RecordAndSample
        }
        None if parent.is_some() => flags.is_sampled(),
        None => return None,
    };
    let flags = TraceFlags::default().with_sampled(is_kept);
    let span = SpanContext::new(trace, ids.new_span_id(), flags, true, TraceState::default());
    Some(Place {
        context: format(&span)?,
        parent,
    })
}

/// The `traceparent` of what happens below `above` and is called `key` there: the same for everybody who asks. `None` if
/// `above` is no `traceparent`.
pub fn below(above: &str, key: &str) -> Option<String> {
    let above = parse(above)?;
    let hash = Sha256::new()
        .chain_update(above.trace_id().to_bytes())
        .chain_update(above.span_id().to_bytes())
        .chain_update(key)
        .finalize();
    let id = hash.first_chunk::<8>().copied()?;
    format(&SpanContext::new(
        above.trace_id(),
        SpanId::from_bytes(id),
        above.trace_flags(),
        true,
        TraceState::default(),
    ))
}

/// The trace id and the span id in `traceparent`.
pub fn ids(traceparent: &str) -> Option<(String, String)> {
    let span = parse(traceparent)?;
    Some((span.trace_id().to_string(), span.span_id().to_string()))
}

/// The `traceparent` of the current span, to be sent with a request or stored with a step. `None` outside of any span, or
/// where telemetry was not set up.
pub fn current() -> Option<String> {
    let context = Span::current().context();
    format(context.span().span_context())
}

/// Makes `span` a child of the span that `traceparent` names. Must come before the first line or child of the span. A
/// text that is no `traceparent` changes nothing: a broken header must not fail a call.
pub fn set_parent(span: &Span, traceparent: &str) {
    if let Some(parent) = parse(traceparent) {
        // Refused only where telemetry was not set up or the span has started: then it keeps the parent it has.
        let _ = span.set_parent(Context::new().with_remote_span_context(parent));
    }
}

/// Links `span` to the span that `traceparent` names, without making it a child: a resumed step points at the attempt
/// that it takes up.
pub fn link(span: &Span, traceparent: &str) {
    if let Some(other) = parse(traceparent) {
        span.add_link(other);
    }
}

/// Version 00 of the header.
pub(crate) fn format(span: &SpanContext) -> Option<String> {
    span.is_valid().then(|| {
        format!(
            "00-{}-{}-{:02x}",
            span.trace_id(),
            span.span_id(),
            span.trace_flags().to_u8()
        )
    })
}

/// Reads the header. A later version may carry more fields, which are ignored; `ff` is forbidden.
pub(crate) fn parse(traceparent: &str) -> Option<SpanContext> {
    let mut fields = traceparent.split('-');
    let version = hex(fields.next()?, 2)?;
    let trace = TraceId::from_hex(hex(fields.next()?, 32)?).ok()?;
    let span = SpanId::from_hex(hex(fields.next()?, 16)?).ok()?;
    let flags = u8::from_str_radix(hex(fields.next()?, 2)?, 16).ok()?;
    if version == "ff" || (version == "00" && fields.next().is_some()) {
        return None;
    }
    let context = SpanContext::new(
        trace,
        span,
        TraceFlags::new(flags) & TraceFlags::SAMPLED,
        true,
        TraceState::default(),
    );
    context.is_valid().then_some(context)
}

/// `field` if it is exactly `digits` lower-case hexadecimal digits.
fn hex(field: &str, digits: usize) -> Option<&str> {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (field.len() == digits && field.bytes().all(is_hex)).then_some(field)
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::TracerProvider as _;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn traced(run: impl FnOnce()) {
        let provider = SdkTracerProvider::builder().build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), run);
    }

    #[test]
    fn a_header_is_read_and_written_the_same() {
        for good in [
            PARENT,
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
        ] {
            assert_eq!(
                parse(good).and_then(|span| format(&span)).as_deref(),
                Some(good)
            );
        }
        let newer = format!("cc{}-more", PARENT.strip_prefix("00").expect("prefix"));
        assert_eq!(
            parse(&newer).and_then(|span| format(&span)).as_deref(),
            Some(PARENT)
        );
    }

    #[test]
    fn what_is_no_header_is_refused() {
        for bad in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-é",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_child_keeps_the_trace_of_the_caller_and_has_its_own_span() {
        traced(|| {
            let span = tracing::info_span!("call");
            set_parent(&span, PARENT);
            let seen = span.in_scope(current).expect("a context");
            let (parent, child) = (
                parse(PARENT).expect("valid"),
                parse(&seen).expect("what is written can be read"),
            );
            assert_eq!(child.trace_id(), parent.trace_id());
            assert_ne!(child.span_id(), parent.span_id());
            let inner = span.in_scope(|| tracing::info_span!("inner").in_scope(current));
            let inner = parse(&inner.expect("a context")).expect("valid");
            assert_eq!(inner.trace_id(), parent.trace_id());
            assert_ne!(inner.span_id(), child.span_id());
        });
    }

    #[test]
    fn a_broken_header_and_a_link_leave_the_span_in_its_own_trace() {
        traced(|| {
            for act in [set_parent as fn(&Span, &str), |span, _| link(span, PARENT)] {
                let span = tracing::info_span!("call");
                act(&span, "nonsense");
                let seen = parse(&span.in_scope(current).expect("a context")).expect("valid");
                assert_ne!(seen.trace_id(), parse(PARENT).expect("valid").trace_id());
            }
        });
    }

    #[test]
    fn without_telemetry_there_is_no_context() {
        assert_eq!(current(), None);
        assert_eq!(begin(None, "turn"), None);
    }

    #[test]
    fn what_begins_for_a_cause_goes_on_in_its_trace() {
        let begun = begin(Some(PARENT), "turn").expect("a place");
        assert_eq!(begun.parent.as_deref(), Some("b7ad6b7169203331"));
        let (trace, span) = ids(&begun.context).expect("readable");
        assert_eq!(trace, "0af7651916cd43dd8448eb211c80319c");
        assert_ne!(span, "b7ad6b7169203331");
        assert!(begun.context.ends_with("-01"));
    }

    #[test]
    fn everybody_finds_the_same_place_below_a_span() {
        let one = below(PARENT, "call_1").expect("a place");
        assert_eq!(below(PARENT, "call_1").as_ref(), Some(&one));
        let other = below(PARENT, "call_2").expect("a place");
        assert_ne!(one, other);
        assert_eq!(
            ids(&one).map(|(trace, _)| trace).as_deref(),
            Some("0af7651916cd43dd8448eb211c80319c")
        );
        assert_eq!(below("nonsense", "call_1"), None);
    }
}
