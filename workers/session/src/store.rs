//! The thread that alone uses `SQLite`, and the bounded queue to it.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    time::Instant,
};

use teamster_protocol::limits;
use tokio::sync::{mpsc, oneshot, watch};

use crate::{
    account::Account,
    error::{Error, StoreError},
    file::{self, Opened},
};

/// Log streams.
pub(crate) const STREAMS: usize = limits::LOG_STREAMS as usize;
/// Steps of `SQLite` between two looks at the clock.
const STEPS: i32 = 10_000;
/// Questions and batches that wait for the thread.
const QUEUE: usize = 64;

/// How far the projection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    /// How often it was begun anew since the start.
    pub(crate) life: u64,
    /// The last sequence of each log stream that it has taken in.
    pub(crate) at: [u64; STREAMS],
}

/// What the thread owns.
pub(crate) struct Db {
    path: Option<PathBuf>,
    /// `None` while the file cannot be opened.
    opened: Option<Opened>,
    /// Sessions that are not read again for each commit, by name; with the number of their row.
    pub(crate) accounts: HashMap<String, (i64, Account)>,
    /// Changes when another process has written to the file.
    pub(crate) version: i64,
    progress: watch::Sender<Progress>,
}

type Job = Box<dyn FnOnce(&mut Db) + Send>;

/// The projection: a handle.
#[derive(Clone)]
pub(crate) struct Store {
    jobs: mpsc::Sender<Job>,
    progress: watch::Receiver<Progress>,
}

impl Store {
    /// Opens or makes the projection, and starts its thread, which ends with the last handle.
    pub(crate) fn open(path: Option<&Path>) -> Result<Self, Error> {
        let failed = |source: StoreError| Error::Open {
            path: path.map(Path::to_owned).unwrap_or_default(),
            source: Box::new(source),
        };
        let opened = Opened::open(path).map_err(failed)?;
        let (told, progress) = watch::channel(Progress {
            life: 0,
            at: [0; STREAMS],
        });
        let mut db = Db {
            path: path.map(Path::to_owned),
            opened: Some(opened),
            accounts: HashMap::new(),
            version: 0,
            progress: told,
        };
        db.read_progress().map_err(failed)?;
        let (jobs, mut queue) = mpsc::channel::<Job>(QUEUE);
        std::thread::Builder::new()
            .name("projection".to_owned())
            .spawn(move || {
                while let Some(job) = queue.blocking_recv() {
                    job(&mut db);
                }
            })
            .map_err(Error::Thread)?;
        Ok(Self { jobs, progress })
    }

    /// Has the thread do something with an open projection. [`StoreError::Replaced`]: it was found to be of no use, and is begun
    /// anew.
    pub(crate) async fn run<T, F>(&self, job: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Db) -> Result<T, StoreError> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let work: Job = Box::new(move |db| {
            let result = db.run(job);
            let _ = answer.send(result);
        });
        if self.jobs.send(work).await.is_err() {
            return Err(StoreError::Closed);
        }
        answered.await.unwrap_or(Err(StoreError::Closed))
    }

    /// How far it is.
    pub(crate) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.clone()
    }
}

impl Db {
    fn run<T>(
        &mut self,
        job: impl FnOnce(&mut Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if !self.opened.as_ref().is_some_and(Opened::is_in_place) {
            tracing::warn!("the projection's file is gone or another one; it is opened anew");
            self.open_again()?;
            return Err(StoreError::Replaced);
        }
        match job(self) {
            Err(error) if error.is_damage() => {
                tracing::warn!(
                    error = %teamster_telemetry::chain(&error),
                    "the projection is damaged; it is built anew"
                );
                self.begin_anew()?;
                Err(StoreError::Replaced)
            }
            result => result,
        }
    }

    /// The open projection.
    pub(crate) fn opened(&self) -> Result<&Opened, StoreError> {
        self.opened.as_ref().ok_or(StoreError::Replaced)
    }

    /// Its connection.
    pub(crate) fn connection(&self) -> Result<&rusqlite::Connection, StoreError> {
        Ok(&self.opened()?.connection)
    }

    /// Asks something that may take until `until` and no longer.
    pub(crate) fn within<T>(
        &mut self,
        until: Instant,
        question: impl FnOnce(&Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.stop_at(Some(until))?;
        let answer = question(self);
        self.stop_at(None)?;
        answer.map_err(|error| match error {
            StoreError::Sqlite(rusqlite::Error::SqliteFailure(failure, _))
                if failure.code == rusqlite::ErrorCode::OperationInterrupted =>
            {
                StoreError::TooSlow
            }
            error => error,
        })
    }

    fn stop_at(&mut self, until: Option<Instant>) -> Result<(), StoreError> {
        let opened = self.opened.as_mut().ok_or(StoreError::Replaced)?;
        let is_over = until.map(|until| move || Instant::now() >= until);
        opened.connection.progress_handler(STEPS, is_over)?;
        Ok(())
    }

    /// Throws everything away and begins at the beginning of the logs.
    pub(crate) fn begin_anew(&mut self) -> Result<(), StoreError> {
        self.opened = None;
        if let Some(path) = &self.path {
            file::remove(path)?;
        }
        self.open_again()
    }

    fn open_again(&mut self) -> Result<(), StoreError> {
        self.opened = None;
        self.accounts.clear();
        self.opened = Some(Opened::open(self.path.as_deref())?);
        // Together: nobody may take the old places for those of the new life.
        self.progress.send_modify(|progress| {
            progress.life += 1;
            progress.at = [0; STREAMS];
        });
        self.read_progress()
    }

    /// Tells how far the file is.
    pub(crate) fn read_progress(&mut self) -> Result<(), StoreError> {
        let mut at = [0; STREAMS];
        let connection = self.connection()?;
        let mut rows = connection.prepare_cached("SELECT k, seq FROM stream")?;
        let found = rows.query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))?;
        for row in found {
            let (k, seq) = row?;
            let place = usize::try_from(k).ok().and_then(|k| at.get_mut(k));
            if let Some(place) = place {
                *place = u64::try_from(seq).unwrap_or(0);
            }
        }
        drop(rows);
        self.tell(at);
        Ok(())
    }

    /// Whether it is still in this life; else what was known about it does not hold.
    pub(crate) fn check_life(&self, life: u64) -> Result<(), StoreError> {
        if self.progress.borrow().life == life {
            Ok(())
        } else {
            Err(StoreError::Replaced)
        }
    }

    /// Tells how far it is.
    pub(crate) fn tell(&self, at: [u64; STREAMS]) {
        self.progress.send_modify(|progress| progress.at = at);
    }
}

/// A number as `SQLite` keeps it; one that is too large is kept as the largest.
pub(crate) fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A number as `SQLite` kept it.
pub(crate) fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}
