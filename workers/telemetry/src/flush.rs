//! The end of what exports: all at the same time, and all of it bounded.
//!
//! Owns: how long the end of a process waits for collectors. Invariant: not longer than it is told, whatever an exporter does; one that
//! takes a bound does not always keep it.
//!
//! Never: what is sent.

use std::{
    sync::mpsc::{RecvTimeoutError, sync_channel},
    thread,
    time::{Duration, Instant},
};

use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};

/// One end: sends what waits, within the time that it is given.
pub(crate) type End = Box<dyn FnOnce(Duration) -> OTelSdkResult + Send>;

/// Runs all `ends` at once and waits for them, `limit` in all. What has not come to its end by then is left to the end of the
/// process.
pub(crate) fn within(limit: Duration, ends: Vec<End>) -> Vec<OTelSdkResult> {
    let until = Instant::now() + limit;
    let begun: Vec<_> = ends
        .into_iter()
        .map(|end| {
            let (say, ended) = sync_channel(1);
            let begun = thread::Builder::new()
                .name("telemetry end".to_owned())
                .spawn(move || {
                    // Nobody listens any more where the time is over.
                    let _ = say.send(end(limit));
                });
            begun.map(|_| ended)
        })
        .collect();
    begun
        .into_iter()
        .map(|ended| {
            let ended = ended.map_err(|error| OTelSdkError::InternalFailure(error.to_string()))?;
            let left = until.saturating_duration_since(Instant::now());
            match ended.recv_timeout(left) {
                Ok(result) => result,
                Err(RecvTimeoutError::Timeout) => Err(OTelSdkError::Timeout(limit)),
                Err(RecvTimeoutError::Disconnected) => Err(OTelSdkError::InternalFailure(
                    "an exporter panicked".to_owned(),
                )),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc::SyncSender};

    use opentelemetry::metrics::MeterProvider as _;
    use opentelemetry_sdk::metrics::{
        PeriodicReader, SdkMeterProvider, Temporality, data::ResourceMetrics,
        exporter::PushMetricExporter,
    };

    use super::*;

    /// An exporter of figures whose collector takes the connection and never answers.
    struct Silent {
        asked: Mutex<SyncSender<()>>,
        gate: Mutex<std::sync::mpsc::Receiver<()>>,
    }

    impl PushMetricExporter for Silent {
        async fn export(&self, _metrics: &ResourceMetrics) -> OTelSdkResult {
            let _ = self.asked.lock().expect("a lock").send(());
            let _ = self.gate.lock().expect("a lock").recv();
            Ok(())
        }

        fn force_flush(&self) -> OTelSdkResult {
            Ok(())
        }

        fn shutdown_with_timeout(&self, _limit: Duration) -> OTelSdkResult {
            Ok(())
        }

        fn temporality(&self) -> Temporality {
            Temporality::Cumulative
        }
    }

    /// The gate stays closed until the end has been waited for: whoever waited for the collector would be told another limit, or
    /// nothing.
    #[test]
    fn a_collector_that_never_answers_holds_up_no_end() {
        let (asked, seen) = sync_channel(4);
        let (open, gate) = sync_channel(4);
        let exporter = Silent {
            asked: Mutex::new(asked),
            gate: Mutex::new(gate),
        };
        let meters = SdkMeterProvider::builder()
            .with_reader(PeriodicReader::builder(exporter).build())
            .build();
        meters.meter("x").u64_counter("x").build().add(1, &[]);
        let limit = Duration::from_millis(50);
        let ends: Vec<End> = vec![
            Box::new(move |limit| meters.shutdown_with_timeout(limit)),
            Box::new(|_| Ok(())),
        ];
        let ended = within(limit, ends);
        assert!(
            matches!(ended.as_slice(), [Err(OTelSdkError::Timeout(at)), Ok(())] if *at == limit),
            "{ended:?}"
        );
        assert_eq!(
            seen.recv_timeout(Duration::from_secs(30)),
            Ok(()),
            "the collector was asked"
        );
        drop(open);
    }

    #[test]
    fn what_each_end_came_to_is_told_in_order() {
        let limit = Duration::from_secs(30);
        let ends: Vec<End> = vec![
            Box::new(|_| Err(OTelSdkError::AlreadyShutdown)),
            Box::new(move |given| {
                assert_eq!(given, limit);
                Ok(())
            }),
        ];
        let ended = within(limit, ends);
        assert!(
            matches!(
                ended.as_slice(),
                [Err(OTelSdkError::AlreadyShutdown), Ok(())]
            ),
            "{ended:?}"
        );
        assert!(within(limit, Vec::new()).is_empty());
    }
}
