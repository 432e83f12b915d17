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
    // One message a key is kept: this one takes the place of the entry. The bucket takes no rollup, with which a worker could remove
    // what is not its own.
    headers.insert(KV_OPERATION, "DEL");
    headers.insert(async_nats::header::NATS_MESSAGE_TTL, "60s");
    wire.store(format!("$KV.{REGISTRY}.{key}"), Some(headers), Bytes::new())
        .await?;
    Ok(())
}

/// Header of a bucket's message that removes its key.
const KV_OPERATION: &str = "KV-Operation";

type Entries = BTreeMap<String, Entry>;
/// When registrations end that are not renewed, by key. The server removes them then, without a word.
type Leases = BTreeMap<String, Instant>;

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
    let mut leases = Leases::new();
    let mut is_complete = false;
    loop {
        let ends = leases.values().min().copied();
        let read = tokio::select! {
            read = reads.recv() => read,
            () = sleep_until(ends.unwrap_or(again)), if ends.is_some() => {
                let now = Instant::now();
                leases.retain(|key, ends| {
                    let is_over = *ends <= now;
                    if is_over {
                        entries.remove(key);
                    }
                    !is_over
                });
                if is_complete {
                    view.show(&entries);
                }
                continue;
            }
            // What is shown stays until the next reader is complete.
            () = sleep_until(again), if is_complete => return entries,
        };
        match read {
            None => return known,
            Some(((), Read::Message(message))) => {
                apply(&mut entries, &mut leases, &known, &message);
                // Changes that came together are shown together.
                while is_complete {
                    match reads.try_recv() {
                        Ok(((), Read::Message(message))) => {
                            apply(&mut entries, &mut leases, &known, &message);
                        }
                        Ok(((), Read::Restarted)) => {
                            entries.clear();
                            leases.clear();
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
                leases.clear();
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

/// For how long a registration holds without being renewed; `None` where it would hold for ever.
fn lease(message: &StoredMessage) -> Option<Duration> {
    let ttl = message.headers.get(async_nats::header::NATS_MESSAGE_TTL)?;
    let seconds = ttl.as_str().strip_suffix('s')?.parse().ok()?;
    let lease = Duration::from_secs(seconds);
    (lease <= limits::REGISTRATION_TTL).then_some(lease)
}

fn apply(entries: &mut Entries, leases: &mut Leases, known: &Entries, message: &StoredMessage) {
    let prefix = format!("$KV.{REGISTRY}.");
    let Some(key) = message.subject.strip_prefix(&prefix) else {
        return;
    };
    leases.remove(key);
    let is_removal = message.headers.get(KV_OPERATION).is_some()
        || message
            .headers
            .get(async_nats::header::NATS_MARKER_REASON)
            .is_some();
    if is_removal {
        entries.remove(key);
        return;
    }
    if key.starts_with("worker.") {
        let Some(lease) = lease(message) else {
            tracing::warn!(
                key,
                "a registration without a lease is left out: it must carry `Nats-TTL: {}s` or less",
                limits::REGISTRATION_TTL.as_secs()
            );
            entries.remove(key);
            return;
        };
        leases.insert(key.to_owned(), deadline(lease));
    }
    let before = entries.get(key).or_else(|| known.get(key));
    let entry = Entry::read(key, &message.body, before);
    entries.insert(key.to_owned(), entry);
}
