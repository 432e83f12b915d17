//! Pauses between attempts: they double up to a bound, and part of each is random, so that the workers of a mesh do not come
//! back in step.

use std::time::Duration;

use backoff::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};

/// The pauses of one series of attempts.
pub(crate) struct Pauses {
    builder: ExponentialBuilder,
    series: ExponentialBackoff,
    /// Half of the longest pause: chance adds up to as much again.
    longest: Duration,
}

impl Pauses {
    /// Pauses from about `min` to at most `max`.
    pub(crate) fn new(min: Duration, max: Duration) -> Self {
        let longest = max / 2;
        let builder = ExponentialBuilder::new()
            .with_min_delay(min / 2)
            .with_max_delay(longest)
            .with_factor(2.0)
            .without_max_times()
            .with_jitter();
        Self {
            series: builder.build(),
            builder,
            longest,
        }
    }

    /// The next pause.
    pub(crate) fn next(&mut self) -> Duration {
        self.series.next().unwrap_or(self.longest)
    }

    /// Begins the series again: an attempt succeeded.
    pub(crate) fn reset(&mut self) {
        self.series = self.builder.build();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_and_are_bounded() {
        let (min, max) = (Duration::from_millis(50), Duration::from_secs(2));
        let mut pauses = Pauses::new(min, max);
        let mut floor = min / 2;
        for attempt in 0..200 {
            let pause = pauses.next();
            assert!(pause >= floor && pause <= max, "{attempt} {pause:?}");
            floor = (floor * 2).min(max / 2);
        }
        pauses.reset();
        assert!(pauses.next() <= min);
    }
}
