//! Figures: how long turns, requests to models and calls took, and their tokens. Nothing is counted where nothing is
//! exported.

use std::sync::OnceLock;

use opentelemetry::{
    KeyValue,
    metrics::{Histogram, MeterProvider as _},
};
use opentelemetry_sdk::metrics::SdkMeterProvider;

use crate::semconv;

static METERS: OnceLock<Meters> = OnceLock::new();

/// Borders of durations, in seconds.
const SECONDS: &[f64] = &[
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 300.0,
    1800.0, 7200.0, 86400.0,
];
/// Borders of tokens.
const TOKENS: &[f64] = &[
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
];

struct Meters {
    turn: Histogram<f64>,
    operation: Histogram<f64>,
    tokens: Histogram<u64>,
    call: Histogram<f64>,
}

/// Counts by this provider from now on.
pub(crate) fn install(provider: &SdkMeterProvider) {
    let meter = provider.meter("teamster");
    let seconds = |name: &'static str| {
        meter
            .f64_histogram(name)
            .with_unit("s")
            .with_boundaries(SECONDS.to_vec())
            .build()
    };
    let _ = METERS.set(Meters {
        turn: seconds(semconv::METRIC_TURN),
        operation: seconds(semconv::METRIC_OPERATION),
        call: seconds(semconv::METRIC_CALL),
        tokens: meter
            .u64_histogram(semconv::METRIC_TOKENS)
            .with_unit("{token}")
            .with_boundaries(TOKENS.to_vec())
            .build(),
    });
}

/// Counts a turn that ended.
pub fn turn(seconds: f64, status: &'static str) {
    if let Some(meters) = METERS.get() {
        let attributes = [KeyValue::new(semconv::STATUS, status)];
        meters.turn.record(seconds, &attributes);
    }
}

/// Counts a request to a model that came to its end; `error` is a stable code.
pub fn generation(seconds: f64, model: &str, input: u64, output: u64, error: Option<&str>) {
    let Some(meters) = METERS.get() else { return };
    let base = [
        KeyValue::new(semconv::OPERATION, semconv::CHAT),
        KeyValue::new(semconv::REQUEST_MODEL, model.to_owned()),
    ];
    let mut attributes = base.to_vec();
    attributes.extend(error.map(|code| KeyValue::new(semconv::ERROR_TYPE, code.to_owned())));
    meters.operation.record(seconds, &attributes);
    for (kind, tokens) in [("input", input), ("output", output)] {
        let mut attributes = base.to_vec();
        attributes.push(KeyValue::new(semconv::TOKEN_TYPE, kind));
        meters.tokens.record(tokens, &attributes);
    }
}

/// Counts a call that came to something.
pub fn call(seconds: f64, function: &str, outcome: &'static str) {
    if let Some(meters) = METERS.get() {
        let attributes = [
            KeyValue::new(semconv::TOOL, function.to_owned()),
            KeyValue::new(semconv::OUTCOME, outcome),
        ];
        meters.call.record(seconds, &attributes);
    }
}
