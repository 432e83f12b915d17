//! Figures from samples. Pure.

use std::time::Duration;

/// The value below which `percent` of the samples lie; zero without samples.
pub(crate) fn percentile(samples: &mut [Duration], percent: usize) -> Duration {
    samples.sort_unstable();
    let at = (samples.len() * percent).div_ceil(100).saturating_sub(1);
    samples.get(at).copied().unwrap_or_default()
}

/// The middle of the values; zero without values.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.len().saturating_sub(1) / 2, values.len() / 2);
    match (values.get(low), values.get(high)) {
        (Some(low), Some(high)) => f64::midpoint(*low, *high),
        _ => 0.0,
    }
}

/// A duration in milliseconds.
pub(crate) fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// What one round measured of one contestant at one turn after the other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Latency {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

impl Latency {
    /// Of samples; in milliseconds.
    pub(crate) fn of(mut samples: Vec<Duration>) -> Self {
        Self {
            p50: ms(percentile(&mut samples, 50)),
            p99: ms(percentile(&mut samples, 99)),
        }
    }
}

/// The median over rounds of one figure of them.
pub(crate) fn over<T>(rounds: &[T], figure: impl Fn(&T) -> f64) -> f64 {
    median(&rounds.iter().map(figure).collect::<Vec<_>>())
}
