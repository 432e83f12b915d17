//! Blocking work on files, away from the threads that serve the mesh, and only so much of it at once.

use std::{sync::Arc, time::Duration};

use teamster_mesh::{Ctx, config::Live};
use teamster_protocol::{Fault, FaultClass, limits};
use tokio::{sync::Semaphore, time::timeout_at};

use crate::{config::Config, error::Error, protected::Protected, root::Root, stop::Stop};

/// How long before the caller's deadline the work ends, so that its answer still arrives.
const ANSWER_MARGIN: Duration = Duration::from_millis(250);
/// How long a cancelled call is given to say what it did; work looks up far more often than that.
const CANCEL_GRACE: Duration = Duration::from_secs(2);

/// Runs the work of all file functions of this process.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    config: Live<Config>,
    permits: Arc<Semaphore>,
}

/// What the work of one call has to go on.
pub(crate) struct Job {
    /// The session's workspace.
    pub(crate) root: Root,
    /// What is neither opened nor named.
    pub(crate) protected: Arc<Protected>,
    /// When to end.
    pub(crate) stop: Stop,
}

impl Pool {
    /// A pool under this configuration.
    pub(crate) fn new(config: Live<Config>) -> Self {
        Self {
            config,
            permits: Arc::new(Semaphore::new(limits::FS_AT_ONCE_MAX)),
        }
    }

    /// Runs `work` in the workspace of the call. Returns by the call's deadline, and soon after its cancellation, even when
    /// a system call does not come back; the permit is held until it does. Dropping the future ends the work at its next
    /// look-up.
    pub(crate) async fn run<Reply: Send + 'static>(
        &self,
        ctx: Ctx,
        work: impl FnOnce(&Job) -> Result<Reply, Error> + Send + 'static,
    ) -> Result<Reply, Fault> {
        let workspace = ctx.workspace.ok_or(Error::NoWorkspace)?;
        let cancel = ctx.cancel.child_token();
        let ends_with_this = cancel.clone().drop_guard();
        let permit = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(Error::Cancelled.into()),
            permit = timeout_at(ctx.deadline, Arc::clone(&self.permits).acquire_owned()) => match permit {
                Ok(Ok(permit)) => permit,
                _ => return Err(busy()),
            },
        };
        let protected = Arc::new(self.config.load().protected.clone());
        let stop = Stop {
            cancel: cancel.clone(),
            until: ctx
                .deadline
                .checked_sub(ANSWER_MARGIN)
                .unwrap_or(ctx.deadline)
                .into_std(),
        };
        let mut thread = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            stop.check()?;
            let root = Root::open(&workspace)?;
            work(&Job {
                root,
                protected,
                stop,
            })
        });
        let joined = tokio::select! {
            joined = timeout_at(ctx.deadline, &mut thread) => joined,
            () = cancel.cancelled() => tokio::time::timeout(CANCEL_GRACE, &mut thread).await,
        };
        drop(ends_with_this);
        match joined {
            Ok(Ok(answer)) => answer.map_err(|error| report(&ctx.function, error)),
            Ok(Err(panic)) => {
                tracing::error!(function = %ctx.function, error = %panic, "file work did not come to its end");
                Err(Fault::internal(
                    "fs.internal",
                    "the function failed inside; nothing more is known",
                ))
            }
            Err(_) => Err(Fault::new(
                "fs.timeout",
                FaultClass::Busy,
                "the file system did not answer in time; whether a change took effect is unknown",
            )),
        }
    }
}

fn busy() -> Fault {
    Fault::busy(
        "fs.busy",
        "too many file functions are at work; nothing was done",
    )
    .retry_after_ms(1000)
}

/// What the log may know more than the caller.
fn report(function: &teamster_protocol::FunctionId, error: Error) -> Fault {
    if let Error::Workspace(source) = &error {
        tracing::warn!(%function, %source, "cannot open a session's workspace");
    }
    let fault = Fault::from(error);
    if fault.class == FaultClass::Internal {
        tracing::error!(%function, code = fault.code, message = fault.message, "a file function failed");
    }
    fault
}
