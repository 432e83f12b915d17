//! The way of finished spans to a collector: a bounded queue and a thread of its own.
//!
//! Invariants: handing a span over never waits; what finds the queue full is dropped and counted; a collector that is
//! missing, slow or silent costs its spans and nothing else; the end waits no longer than it is told.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use opentelemetry::Context;
use opentelemetry_sdk::{
    Resource,
    error::{OTelSdkError, OTelSdkResult},
    trace::{Span, SpanData, SpanExporter, SpanProcessor},
};

/// Pause between two complaints about a collector.
const COMPLAIN_EVERY: Duration = Duration::from_mins(1);

/// A cheap handle on the queue.
#[derive(Clone, Debug)]
pub(crate) struct Outlet {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Closed by taking it away.
    queue: Mutex<Option<SyncSender<Box<SpanData>>>>,
    dropped: AtomicU64,
    failed: AtomicU64,
    /// Says that the thread has ended.
    ended: Mutex<Option<Receiver<()>>>,
}

/// How spans gather.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gather {
    pub(crate) queue: usize,
    pub(crate) batch: usize,
    pub(crate) delay: Duration,
}

impl Outlet {
    /// Starts the thread. `name` is the collector as a complaint shows it.
    pub(crate) fn start<E: SpanExporter + 'static>(
        exporter: E,
        name: String,
        gather: Gather,
    ) -> std::io::Result<Self> {
        let (sender, receiver) = sync_channel(gather.queue);
        let (say_ended, ended) = sync_channel(1);
        let outlet = Self {
            shared: Arc::new(Shared {
                queue: Mutex::new(Some(sender)),
                dropped: AtomicU64::new(0),
                failed: AtomicU64::new(0),
                ended: Mutex::new(Some(ended)),
            }),
        };
        let shared = Arc::clone(&outlet.shared);
        thread::Builder::new()
            .name("telemetry".to_owned())
            .spawn(move || {
                // What the exporter does must not be traced in its turn.
                let _unseen = Context::enter_telemetry_suppressed_scope();
                export_all(
                    &exporter,
                    &receiver,
                    gather,
                    &mut Complaints::new(name, &shared),
                );
                let _ = exporter.shutdown();
                let _ = say_ended.send(());
            })?;
        Ok(outlet)
    }

    /// Hands a finished span over.
    pub(crate) fn put(&self, span: SpanData) {
        let queue = self
            .shared
            .queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let refused = match queue.as_ref().map(|queue| queue.try_send(Box::new(span))) {
            Some(Ok(())) => false,
            Some(Err(TrySendError::Full(_) | TrySendError::Disconnected(_))) | None => true,
        };
        if refused {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Spans that were lost so far: the queue was full, or the collector did not take them.
    pub(crate) fn lost(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed) + self.shared.failed.load(Ordering::Relaxed)
    }

    /// Sends what waits and ends; gives up after `limit`.
    fn close(&self, limit: Duration) -> OTelSdkResult {
        let queue = self
            .shared
            .queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if queue.is_none() {
            return Err(OTelSdkError::AlreadyShutdown);
        }
        // The thread ends once it has sent what waits.
        drop(queue);
        let ended = self
            .shared
            .ended
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        match ended.map(|ended| ended.recv_timeout(limit)) {
            Some(Err(RecvTimeoutError::Timeout)) => Err(OTelSdkError::Timeout(limit)),
            _ => Ok(()),
        }
    }
}

impl SpanProcessor for Outlet {
    fn on_start(&self, _span: &mut Span, _context: &Context) {}

    fn on_end(&self, span: SpanData) {
        if span.span_context.is_sampled() {
            self.put(span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, limit: Duration) -> OTelSdkResult {
        self.close(limit)
    }

    fn set_resource(&mut self, _resource: &Resource) {
        // The exporter has it from the beginning.
    }
}

/// Sends in batches until the queue is closed and empty.
fn export_all<E: SpanExporter>(
    exporter: &E,
    queue: &Receiver<Box<SpanData>>,
    gather: Gather,
    complaints: &mut Complaints<'_>,
) {
    while let Ok(first) = queue.recv() {
        let mut batch = vec![*first];
        let until = Instant::now() + gather.delay;
        while batch.len() < gather.batch {
            let left = until.saturating_duration_since(Instant::now());
            match queue.recv_timeout(left) {
                Ok(span) => batch.push(*span),
                Err(_) => break,
            }
        }
        let count = batch.len();
        let sent = futures::executor::block_on(exporter.export(batch));
        complaints.note(count, sent);
    }
}

/// Says once in a while what a collector did not take.
struct Complaints<'a> {
    collector: String,
    shared: &'a Shared,
    said: Option<Instant>,
    last: u64,
}

impl<'a> Complaints<'a> {
    fn new(collector: String, shared: &'a Shared) -> Self {
        Self {
            collector,
            shared,
            said: None,
            last: 0,
        }
    }

    fn note(&mut self, count: usize, sent: OTelSdkResult) {
        let error = match sent {
            Ok(()) => None,
            Err(error) => {
                let count = u64::try_from(count).unwrap_or(u64::MAX);
                self.shared.failed.fetch_add(count, Ordering::Relaxed);
                Some(error.to_string())
            }
        };
        let lost = self.shared.dropped.load(Ordering::Relaxed)
            + self.shared.failed.load(Ordering::Relaxed);
        let is_due = self
            .said
            .is_none_or(|said| said.elapsed() >= COMPLAIN_EVERY);
        if lost > self.last && is_due {
            self.last = lost;
            self.said = Some(Instant::now());
            tracing::warn!(
                code = "telemetry.spans_lost",
                collector = self.collector,
                lost,
                error,
                "spans are lost: the collector does not take them"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::SyncSender;

    use opentelemetry_sdk::trace::{SpanEvents, SpanLinks};

    use super::*;

    /// An exporter that stands still until it is told to go on, and says what it was given.
    #[derive(Debug)]
    struct Gated {
        taken: Mutex<SyncSender<usize>>,
        gate: Mutex<Receiver<()>>,
    }

    impl SpanExporter for Gated {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            let lock = self.taken.lock().expect("a lock");
            lock.send(batch.len()).expect("the test listens");
            drop(lock);
            // An error is the end of the test: nobody opens the gate any more.
            let _ = self.gate.lock().expect("a lock").recv();
            Ok(())
        }
    }

    fn span() -> SpanData {
        SpanData {
            span_context: opentelemetry::trace::SpanContext::NONE,
            parent_span_id: opentelemetry::trace::SpanId::INVALID,
            parent_span_is_remote: false,
            span_kind: opentelemetry::trace::SpanKind::Internal,
            name: "x".into(),
            start_time: std::time::SystemTime::UNIX_EPOCH,
            end_time: std::time::SystemTime::UNIX_EPOCH,
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: opentelemetry::trace::Status::Unset,
            instrumentation_scope: opentelemetry::InstrumentationScope::default(),
        }
    }

    fn gated(queue: usize) -> (Outlet, Receiver<usize>, SyncSender<()>) {
        let (taken, seen) = sync_channel(16);
        let (open, gate) = sync_channel(16);
        let exporter = Gated {
            taken: Mutex::new(taken),
            gate: Mutex::new(gate),
        };
        let gather = Gather {
            queue,
            batch: 1,
            delay: Duration::ZERO,
        };
        let outlet = Outlet::start(exporter, "test".to_owned(), gather).expect("a thread");
        (outlet, seen, open)
    }

    #[test]
    fn a_collector_that_hangs_costs_spans_and_never_the_callers_time() {
        let (outlet, seen, _open) = gated(4);
        outlet.put(span());
        assert_eq!(seen.recv(), Ok(1), "the thread has the first and hangs");
        for _ in 0..10 {
            outlet.put(span());
        }
        assert_eq!(outlet.lost(), 6, "four wait, six are dropped");
        assert!(matches!(
            outlet.shutdown_with_timeout(Duration::from_millis(20)),
            Err(OTelSdkError::Timeout(_))
        ));
        outlet.put(span());
        assert_eq!(outlet.lost(), 7, "after the end everything is dropped");
    }

    #[test]
    fn the_end_sends_what_waits() {
        let (outlet, seen, open) = gated(4);
        for _ in 0..3 {
            outlet.put(span());
            open.send(()).expect("the exporter waits");
        }
        outlet
            .shutdown_with_timeout(Duration::from_secs(30))
            .expect("all is sent");
        assert_eq!(seen.iter().take(3).sum::<usize>(), 3);
        assert_eq!(outlet.lost(), 0);
        assert!(outlet.shutdown_with_timeout(Duration::ZERO).is_err());
    }
}
