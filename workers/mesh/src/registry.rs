//! The registry: which workers live, which functions they serve, which hooks are bound.

mod catalog;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use bytes::Bytes;
use teamster_protocol::{limits, subject};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout_at},
};
use tokio_util::sync::CancellationToken;

use crate::{
    Error,
    reader::{Read, Reader, Reads, Spec, Start, channel},
    topology::REGISTRY,
    wire::{Failure, StoredMessage, Wire, deadline},
};

pub use catalog::Catalog;
use catalog::Entry;

/// How often everything is read again, whether or not the watch seems to live: also how long an entry may be shown whose lease
/// ended without a word.
const READ_AGAIN_EVERY: Duration = limits::REGISTRATION_TTL;

/// A live view of the registry. The watch is supervised: it is made anew after the broker restarts.
#[derive(Clone)]
pub struct Registry {
    catalog: Arc<ArcSwap<Catalog>>,
    changes: watch::Receiver<()>,
    wire: Wire,
}

impl Registry {
    /// Starts the watch and waits until everything is read once.
    pub(crate) async fn open(wire: Wire, alive: CancellationToken) -> Result<Self, Error> {
        let catalog = Arc::new(ArcSwap::default());
        let (teller, changes) = watch::channel(());
        let (ready, is_ready) = tokio::sync::oneshot::channel();
        let view = View {
            catalog: Arc::clone(&catalog),
            teller,
            ready: Some(ready),
        };
        let watching = teamster_telemetry::task::spawn("registry", {
            let wire = wire.clone();
            async move {
                tokio::select! {
                    () = watch_entries(wire, view) => {}
                    () = alive.cancelled() => {}
                }
            }
        });
        let action = || "reading the registry".to_owned();
        let ready = match tokio::time::timeout(limits::BROKER_REQUEST, is_ready).await {
            Ok(Ok(ready)) => ready.map_err(|failure| failure.during(action())),
            Ok(Err(_)) | Err(_) => Err(Error::Timeout { action: action() }),
        };
        // The next use begins anew.
        ready.inspect_err(|_| watching.abort())?;
        Ok(Self {
            catalog,
            changes,
            wire,
        })
    }

    /// What it says now.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.load_full()
    }

    /// Waits until `wanted` holds, at most `limit`; the catalog either way.
    pub async fn wait(
        &self,
        limit: Duration,
        wanted: impl Fn(&Catalog) -> bool + Send,
    ) -> Arc<Catalog> {
        let deadline = deadline(limit);
        let mut changes = self.changes.clone();
        loop {
            // In this order: a change after the look ends the wait.
            changes.mark_unchanged();
            let now = self.catalog();
            if wanted(&now) {
                return now;
            }
            match timeout_at(deadline, changes.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return now,
            }
        }
    }

    /// Removes the hooks that a worker bound (an operator's act).
    pub async fn unbind(&self, worker: &str) -> Result<(), Error> {
        remove(&self.wire, &hooks_key(worker))
            .await
            .map_err(|failure| failure.during(format!("removing the hooks of {worker}")))
    }
}

/// The key of a worker's registration.
pub(crate) fn worker_key(worker: &str, incarnation: &str) -> String {
    format!("worker.{worker}.{incarnation}")
}

/// The key of a worker's hooks.
pub(crate) fn hooks_key(worker: &str) -> String {
    format!("hooks.{}", subject::token(worker))
}

/// Writes an entry; with a lease it ends by itself.
pub(crate) async fn put(
    wire: &Wire,
    key: &str,
    body: Bytes,
    lease: Option<Duration>,
) -> Result<(), Failure> {
    let mut headers = async_nats::HeaderMap::new();
    if let Some(lease) = lease {
        headers.insert(
            async_nats::header::NATS_MESSAGE_TTL,
            format!("{}s", lease.as_secs().max(1)),
        );
    }
    wire.store(format!("$KV.{REGISTRY}.{key}"), Some(headers), body)
        .await?;
    Ok(())
}

/// Removes an entry.
pub(crate) async fn remove(wire: &Wire, key: &str) -> Result<(), Failure> {
    let mut headers = async_nats::HeaderMap::new();
    headers.insert(KV_OPERATION, "PURGE");
    headers.insert(async_nats::header::NATS_ROLLUP, "sub");
    headers.insert(async_nats::header::NATS_MESSAGE_TTL, "60s");
    wire.store(format!("$KV.{REGISTRY}.{key}"), Some(headers), Bytes::new())
        .await?;
    Ok(())
}

/// Header of a bucket's message that removes its key.
const KV_OPERATION: &str = "KV-Operation";

type Entries = BTreeMap<String, Entry>;

/// Where the watch writes.
struct View {
    catalog: Arc<ArcSwap<Catalog>>,
    teller: watch::Sender<()>,
    ready: Option<tokio::sync::oneshot::Sender<Result<(), Failure>>>,
}

impl View {
    fn show(&mut self, entries: &Entries) {
        let catalog = catalog::build(entries);
        if **self.catalog.load() != catalog {
            self.catalog.store(Arc::new(catalog));
            self.teller.send_replace(());
        }
        if let Some(ready) = self.ready.take() {
            let _ = ready.send(Ok(()));
        }
    }
}

impl View {
    fn fail(&mut self, failure: Failure) {
        tracing::warn!(error = %failure, "the registry cannot be read now");
        if let Some(ready) = self.ready.take() {
            let _ = ready.send(Err(failure));
        }
    }
}

/// Reads all entries, follows their changes, and begins anew in time.
async fn watch_entries(wire: Wire, mut view: View) {
    let mut known = Entries::new();
    loop {
        let (sink, reads) = channel();
        let spec = Spec {
            stream: format!("KV_{REGISTRY}"),
            filters: Vec::new(),
            start: Start::LastOfEach,
            is_restarting: true,
            is_headers_only: false,
        };
        let mut reader = Reader::spawn(&wire, spec, (), sink);
        if let Err(failure) = reader.opened().await {
            view.fail(failure);
        }
        known = follow(reads, &mut view, known).await;
    }
}

/// Follows one reader until it is time to read everything again. `known` are the entries of the reading before; this reading's are
/// given back.
async fn follow(mut reads: Reads<()>, view: &mut View, known: Entries) -> Entries {
    let again = Instant::now() + READ_AGAIN_EVERY;
    let mut entries = Entries::new();
    let mut is_complete = false;
    loop {
        let read = tokio::select! {
            read = reads.recv() => read,
            // What is shown stays until the next reader is complete.
            () = sleep_until(again), if is_complete => return entries,
        };
        match read {
            None => return known,
            Some(((), Read::Message(message))) => {
                apply(&mut entries, &known, &message);
                // Changes that came together are shown together.
                while is_complete {
                    match reads.try_recv() {
                        Ok(((), Read::Message(message))) => apply(&mut entries, &known, &message),
                        Ok(((), Read::Restarted)) => {
                            entries.clear();
                            is_complete = false;
                        }
                        Ok(_) => {}
                        Err(_) => break,
                    }
                }
                if is_complete {
                    view.show(&entries);
                }
            }
            Some(((), Read::CaughtUp)) => {
                is_complete = true;
                view.show(&entries);
            }
            Some(((), Read::Restarted)) => {
                entries.clear();
                is_complete = false;
            }
            // Everything is read from the beginning, so that nothing is jumped over.
            Some(((), Read::Began { .. })) => {}
            Some(((), Read::Failed(failure))) => {
                view.fail(failure);
            }
        }
    }
}

fn apply(entries: &mut Entries, known: &Entries, message: &StoredMessage) {
    let prefix = format!("$KV.{REGISTRY}.");
    let Some(key) = message.subject.strip_prefix(&prefix) else {
        return;
    };
    let is_removal = message.headers.get(KV_OPERATION).is_some()
        || message
            .headers
            .get(async_nats::header::NATS_MARKER_REASON)
            .is_some();
    if is_removal {
        entries.remove(key);
    } else {
        let before = entries.get(key).or_else(|| known.get(key));
        let entry = Entry::read(key, &message.body, before);
        entries.insert(key.to_owned(), entry);
    }
}
