//! The task that keeps the projection: reads all logs behind what it holds and takes in what comes.

use std::time::Duration;

use teamster_mesh::{
    Error, Mesh,
    log::{Scanned, Stored},
};
use teamster_protocol::{Commit, Event, Message, SessionId, limits, subject};
use tokio_util::sync::CancellationToken;

use crate::{
    apply::{self, Read, Record},
    error::StoreError,
    projection::Projection,
    store::{STREAMS, Store},
};

/// Commits of one transaction.
const BATCH: usize = 512;
/// Bytes of commits of one transaction.
const BATCH_BYTES: usize = 4 * 1024 * 1024;
/// How often it is looked whether the file is still there while nothing comes.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The first wait after a failure.
const RETRY_FIRST: Duration = Duration::from_millis(100);
/// The longest wait after a failure.
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Why reading began anew.
#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error("the log cannot be read")]
    Log(#[from] Error),
    #[error("the projection cannot be written")]
    Store(#[from] StoreError),
    #[error("the reading of log stream {0} broke off")]
    Resumed(u8),
    #[error("the connection is closed")]
    Closed,
}

/// Keeps the projection until cancelled.
pub(crate) async fn run(mesh: &Mesh, projection: &Projection, cancel: &CancellationToken) {
    let mut wait = RETRY_FIRST;
    loop {
        let stop = tokio::select! {
            () = cancel.cancelled() => return,
            stop = follow(mesh, projection, &mut wait) => stop,
        };
        let Err(stop) = stop;
        match stop {
            Stop::Store(StoreError::Replaced) => {
                tracing::info!("the projection is built anew from the log");
            }
            Stop::Resumed(stream) => {
                tracing::debug!(
                    stream,
                    "whether the logs are those that were read is looked at"
                );
            }
            stop => tracing::warn!(
                error = %teamster_telemetry::chain(&stop),
                "the projection does not move; trying again"
            ),
        }
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(wait) => wait = (wait * 2).min(RETRY_MAX),
        }
    }
}

async fn follow(
    mesh: &Mesh,
    projection: &Projection,
    wait: &mut Duration,
) -> Result<std::convert::Infallible, Stop> {
    let store = projection.store();
    let mut progress = store.progress();
    // From before the places are read: what is begun anew after that has other places.
    let life = progress.borrow_and_update().life;
    let after = begin(mesh, projection).await?;
    let mut scan = mesh.log().scan(&after).await?;
    projection.begin_anew();
    loop {
        let begun_anew = async {
            let changed = progress.wait_for(|progress| progress.life != life).await;
            changed.map_or(StoreError::Closed, |_| StoreError::Replaced)
        };
        let batch = tokio::select! {
            batch = scan.next(BATCH, BATCH_BYTES) => batch.ok_or(Stop::Closed)?,
            why = begun_anew => return Err(why.into()),
            () = tokio::time::sleep(LOOK_EVERY) => {
                // Nothing to do but to see that the file is in its place.
                store.run(|_| Ok(())).await?;
                continue;
            }
        };
        take(mesh, projection, life, batch).await?;
        *wait = RETRY_FIRST;
    }
}

/// Where to go on in each log stream. A projection of other streams than those that are there is thrown away; where one of them is
/// shorter than it was, what the projection knows of that is kept first.
async fn begin(mesh: &Mesh, projection: &Projection) -> Result<[u64; STREAMS], Stop> {
    let store = projection.store();
    let ends = mesh.log().ends().await?;
    let cursors = store.run(|db| apply::cursors(db)).await?;
    let mut after = [0; STREAMS];
    let places = after.iter_mut().zip(&cursors).zip(&ends);
    for (k, ((after, cursor), end)) in (0..).zip(places) {
        *after = cursor.seq;
        if cursor.seq == 0 {
            continue;
        }
        let is_other = cursor.made != end.created || cursor.seq > end.last;
        let is_there = async {
            let Some(known) = cursor.digest else {
                return Ok(true);
            };
            // What lay there may have been removed with its session.
            let (found, _) = mesh.log().look_at(k, cursor.seq).await?;
            Ok::<_, Stop>(found.is_none_or(|found| found == known))
        };
        if is_other || !is_there.await? {
            tracing::warn!(stream = k, "a log stream is not the one that was projected");
            let last = end.last;
            if cursor.made == end.created && cursor.seq > last {
                let mut heads = store.run(|db| apply::heads(db)).await?;
                heads.retain(|(session, head)| stream_of(session) == k && head.seq > last);
                projection.heads().copy(mesh, heads).await;
            }
            return Err(give_up(store).await);
        }
    }
    store.run(move |db| apply::adopt(db, &ends)).await?;
    Ok(after)
}

fn stream_of(session: &SessionId) -> u8 {
    subject::log_stream_of(subject::partition(&session.token()))
}

/// Throws the projection away.
async fn give_up(store: &Store) -> Stop {
    match store.run(crate::store::Db::begin_anew).await {
        Ok(()) => StoreError::Replaced.into(),
        Err(error) => error.into(),
    }
}

/// Takes a batch in, and then anew the sessions that it broke.
async fn take(
    mesh: &Mesh,
    projection: &Projection,
    life: u64,
    batch: Vec<Scanned>,
) -> Result<(), Stop> {
    let store = projection.store();
    let mut records = Vec::with_capacity(batch.len());
    for scanned in batch {
        records.push(match scanned {
            Scanned::Commit {
                stream,
                session,
                stored,
            } => Record {
                stream,
                seq: stored.seq,
                commit: Some(read(mesh, session, stored).await?),
            },
            Scanned::Passed { stream, seq } => Record {
                stream,
                seq,
                commit: None,
            },
            // What else the batch holds is read again behind what is taken in.
            Scanned::Resumed { stream } => return Err(Stop::Resumed(stream)),
        });
    }
    let applied = store
        .run(move |db| {
            db.check_life(life)?;
            apply::apply(db, records)
        })
        .await?;
    projection.heads().note(applied.heads);
    if applied.has_deleted {
        projection.remains().notify_one();
    }
    for (session, upto) in applied.broken {
        read_again(mesh, store, life, &session, upto).await?;
    }
    Ok(())
}

/// A commit does not follow from what was read of its session: because the log is damaged, or because it is not what it was when
/// it was read. The log itself tells, up to the commit that was taken in last.
async fn read_again(
    mesh: &Mesh,
    store: &Store,
    life: u64,
    session: &SessionId,
    upto: u64,
) -> Result<(), Stop> {
    let mut log = Vec::new();
    for stored in mesh.log().read(session, 0, upto).await? {
        log.push(read(mesh, session.clone(), stored).await?);
    }
    tracing::warn!(%session, commits = log.len(), "a session's log is read again, because it did not go on where it was");
    let session = session.clone();
    store
        .run(move |db| {
            db.check_life(life)?;
            apply::replace(db, &session, log)
        })
        .await?;
    Ok(())
}

/// A commit, with the transcript that it begins with if it begins a fork.
async fn read(mesh: &Mesh, session: SessionId, stored: Stored) -> Result<Read, Stop> {
    let forked = if begins_fork(&stored.body) {
        forked(mesh, &session, &stored).await?
    } else {
        None
    };
    Ok(Read {
        session,
        stored,
        forked,
    })
}

/// Told from the text, because few commits begin a fork. A text that only looks so costs one reading.
fn begins_fork(body: &[u8]) -> bool {
    std::str::from_utf8(body).is_ok_and(|text| text.contains(r#""type":"session_forked""#))
}

async fn forked(
    mesh: &Mesh,
    session: &SessionId,
    stored: &Stored,
) -> Result<Option<Vec<Message>>, Stop> {
    let Ok(commit) = Commit::decode(&stored.body) else {
        return Ok(None);
    };
    let fork = commit.events.iter().find_map(|event| match event {
        Event::SessionForked { fork, .. } => Some(fork),
        _ => None,
    });
    let Some(fork) = fork else {
        return Ok(None);
    };
    let found = match mesh.blobs().get(&fork.transcript).await {
        // Other bytes lie there, or damaged ones: nothing can be read of them.
        Err(Error::Malformed { .. } | Error::Damaged { .. }) => None,
        found => found?,
    };
    let messages = found.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    if messages.is_none() {
        tracing::error!(%session, blob = %fork.transcript.sha256, "the transcript that a fork begins with is gone");
    }
    Ok(messages)
}

const _: () = assert!(BATCH_BYTES > limits::COMMIT_BYTES_MAX);
