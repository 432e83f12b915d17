//! Questions to the projection: answered once it holds everything that was committed before they were asked.

use std::time::Duration;

use teamster_mesh::{Ctx, Mesh, log::End};
use teamster_protocol::{Fault, SessionId};
use tokio::{
    sync::Notify,
    time::{Instant, timeout},
};

use crate::{
    error::StoreError,
    heads::Heads,
    store::{Db, Progress, STREAMS, Store},
};

/// What is left of a caller's patience for the way back.
const ANSWER_MARGIN: Duration = Duration::from_millis(500);
/// How long a question waits for the projection.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked whether a stream's end is empty, while its last sequence does not come.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What a question is about.
#[derive(Debug, Clone, Copy)]
pub(crate) enum About<'a> {
    /// One session.
    Session(&'a SessionId),
    /// All.
    All,
}

/// The projection, as functions use it.
pub(crate) struct Projection {
    store: Store,
    heads: Heads,
    remains: Notify,
    /// Told whenever the reading of the logs begins anew.
    begun: Notify,
}

impl Projection {
    pub(crate) fn new(store: Store) -> Self {
        Self {
            store,
            heads: Heads::default(),
            remains: Notify::new(),
            begun: Notify::new(),
        }
    }

    /// Told when a session was deleted, so that what remains of it is looked for.
    pub(crate) fn remains(&self) -> &Notify {
        &self.remains
    }

    /// Says that the reading of the logs begins anew.
    pub(crate) fn begin_anew(&self) {
        self.begun.notify_one();
    }

    /// Waits until the reading of the logs begins anew; for one task.
    pub(crate) async fn begun_anew(&self) {
        self.begun.notified().await;
    }

    /// What is to be copied of heads.
    pub(crate) fn heads(&self) -> &Heads {
        &self.heads
    }

    /// The thread.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Asks, once the projection holds what was committed before. A projection that is being built does not answer with a part:
    /// the fault `session.rebuilding` says how far it is.
    pub(crate) async fn ask<T, F>(
        &self,
        ctx: &Ctx,
        about: About<'_>,
        question: F,
    ) -> Result<T, Fault>
    where
        T: Send + 'static,
        F: Fn(&Db) -> Result<T, StoreError> + Clone + Send + 'static,
    {
        let until = ctx
            .deadline
            .checked_sub(ANSWER_MARGIN)
            .unwrap_or(ctx.deadline)
            .min(Instant::now() + PATIENCE);
        self.ask_until(&ctx.mesh, until, about, question).await
    }

    /// The same for a task of the worker itself.
    pub(crate) async fn ask_all<T, F>(&self, mesh: &Mesh, question: F) -> Result<T, Fault>
    where
        T: Send + 'static,
        F: Fn(&Db) -> Result<T, StoreError> + Clone + Send + 'static,
    {
        let until = Instant::now() + PATIENCE;
        self.ask_until(mesh, until, About::All, question).await
    }

    async fn ask_until<T, F>(
        &self,
        mesh: &Mesh,
        until: Instant,
        about: About<'_>,
        question: F,
    ) -> Result<T, Fault>
    where
        T: Send + 'static,
        F: Fn(&Db) -> Result<T, StoreError> + Clone + Send + 'static,
    {
        let ends = ends(mesh, about).await?;
        loop {
            let life = self.reach(mesh, &ends, until).await?;
            let question = question.clone();
            let answer = self.store.run(move |db| {
                db.check_life(life)?;
                db.within(until.into_std(), question)
            });
            match answer.await {
                Err(StoreError::Replaced) if Instant::now() < until => {}
                answer => return answer.map_err(Fault::from),
            }
        }
    }

    /// Waits until the projection has reached these ends; says in which of its lives it did.
    async fn reach(&self, mesh: &Mesh, ends: &[(u8, End)], until: Instant) -> Result<u64, Fault> {
        let mut progress = self.store.progress();
        loop {
            let now = *progress.borrow_and_update();
            let Some((stream, _)) = ends.iter().find(|(k, end)| place(&now, *k) < end.last) else {
                return Ok(now.life);
            };
            // What was last in a stream may be gone: then nothing comes that could be waited for.
            let moved = timeout(LOOK_EVERY, progress.changed()).await;
            if moved.is_err() && self.is_at_ends(mesh, &now, ends).await? {
                return Ok(now.life);
            }
            if Instant::now() >= until {
                tracing::debug!(stream, "a question came before the projection was there");
                return Err(behind(&now, ends));
            }
        }
    }

    async fn is_at_ends(
        &self,
        mesh: &Mesh,
        now: &Progress,
        ends: &[(u8, End)],
    ) -> Result<bool, Fault> {
        for (k, end) in ends {
            let at = place(now, *k);
            if at < end.last && mesh.log().look_at(*k, at).await?.1 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

async fn ends(mesh: &Mesh, about: About<'_>) -> Result<Vec<(u8, End)>, Fault> {
    Ok(match about {
        About::Session(session) => vec![mesh.log().end_of(session).await?],
        About::All => (0..).zip(mesh.log().ends().await?).collect(),
    })
}

/// How far a stream is taken in.
pub(crate) fn place(progress: &Progress, stream: u8) -> u64 {
    progress
        .at
        .get(usize::from(stream))
        .copied()
        .unwrap_or_default()
}

/// How many sequences are behind.
pub(crate) fn distance(progress: &Progress, ends: &[(u8, End)]) -> u64 {
    ends.iter()
        .map(|(k, end)| end.last.saturating_sub(place(progress, *k)))
        .sum()
}

fn behind(progress: &Progress, ends: &[(u8, End)]) -> Fault {
    let total: u64 = ends.iter().map(|(_, end)| end.last).sum();
    let left = distance(progress, ends);
    Fault::busy(
        "session.rebuilding",
        format_args!(
            "the projection is being built: {} of {total} commits are read",
            total.saturating_sub(left)
        ),
    )
    .hint("Ask again in a few seconds; nothing is lost, and turns go on meanwhile.")
    .retry_after_ms(2000)
}

const _: () = assert!(STREAMS <= u8::MAX as usize);
