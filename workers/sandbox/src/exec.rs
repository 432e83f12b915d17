//! Running a command behind every layer that the host has, or not at all.
//!
//! Invariants: there is one way to start a process (`spawn`); a layer of the configured minimum that a probe did not find
//! refuses the call; whatever happens, the processes, mounts and groups of a call end with it.

mod error;
mod group;
mod mask;
mod output;
mod probe;
mod request;
mod spawn;

use std::{
    ffi::OsString,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use teamster_mesh::{Ctx, config::Live};
use teamster_protocol::{Fault, FaultClass, limits};
use tokio::{sync::Semaphore, time::timeout_at};

pub(crate) use error::Error;
pub(crate) use probe::{levels, missing, summary};
pub(crate) use request::{Reply, Request};

use crate::{
    config::Config,
    layer::{Layer, Level},
    root::Root,
    stage::frame::{End, Outer, Report},
    stop::Stop,
};
use group::Groups;
use mask::Placeholders;

/// How long before the caller's deadline a command ends, so that its answer still arrives.
const ANSWER_MARGIN: Duration = Duration::from_secs(1);
/// How long a cancelled call is given to take its processes down.
const CANCEL_GRACE: Duration = Duration::from_millis(1500);
/// How long the stages may take to begin.
const BEGIN_MAX: Duration = Duration::from_secs(10);

/// Runs the commands of this process.
#[derive(Debug, Clone)]
pub(crate) struct Executor(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    config: Live<Config>,
    permits: Arc<Semaphore>,
    /// What the last probe found, if it found what is needed.
    known: Mutex<Option<Known>>,
    placeholders: Placeholders,
}

/// What a probe found.
#[derive(Debug, Clone)]
struct Known {
    /// What was configured then.
    of: Arc<Config>,
    levels: Vec<Level>,
    groups: Option<Groups>,
}

impl Executor {
    /// One that runs under this configuration.
    pub(crate) fn new(config: Live<Config>) -> Self {
        Self(Arc::new(Shared {
            config,
            permits: Arc::new(Semaphore::new(limits::EXEC_AT_ONCE_MAX)),
            known: Mutex::new(None),
            placeholders: Placeholders::default(),
        }))
    }

    /// Runs one command in the workspace of the call. Returns by the call's deadline; dropping the future, or the call's
    /// cancellation, ends the command.
    pub(crate) async fn run(&self, ctx: Ctx, request: Request) -> Result<Reply, Fault> {
        let workspace = ctx.workspace.ok_or(crate::Error::NoWorkspace)?;
        let cancel = ctx.cancel.child_token();
        let ends_with_this = cancel.clone().drop_guard();
        let permit = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(Error::Cancelled.into()),
            permit = timeout_at(ctx.deadline, Arc::clone(&self.0.permits).acquire_owned()) => match permit {
                Ok(Ok(permit)) => permit,
                _ => return Err(Error::Busy.into()),
            },
        };
        let stop = Stop {
            cancel: cancel.clone(),
            until: ctx
                .deadline
                .checked_sub(ANSWER_MARGIN)
                .unwrap_or(ctx.deadline)
                .into_std(),
        };
        let shared = Arc::clone(&self.0);
        // The stages end with the thread that started them, and this one stays until they have ended.
        let mut thread = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            shared.run(&workspace, request, &stop)
        });
        let joined = tokio::select! {
            joined = timeout_at(ctx.deadline, &mut thread) => joined,
            () = cancel.cancelled() => tokio::time::timeout(CANCEL_GRACE, &mut thread).await,
        };
        drop(ends_with_this);
        match joined {
            Ok(Ok(Ok(reply))) => Ok(reply),
            Ok(Ok(Err(error))) => Err(report(error)),
            Ok(Err(panic)) => {
                tracing::error!(error = %panic, "a command's thread did not come to its end");
                Err(Fault::internal(
                    "sandbox.internal",
                    "the function failed inside; whether the command ran is not known",
                ))
            }
            Err(_) => Err(Fault::new(
                "sandbox.timeout",
                FaultClass::Busy,
                "the command's end was not seen in time; what it did until then is not known",
            )),
        }
    }
}

impl Executor {
    /// The levels as commands would find them, and why none runs, if so. Blocks.
    pub(crate) fn levels(&self) -> (Vec<Level>, Option<String>) {
        match self.0.known() {
            Ok(known) => (known.levels, None),
            Err(error) => (
                probe::levels(&self.0.config.load()),
                Some(error.to_string()),
            ),
        }
    }
}

/// What the log may know more than the caller.
fn report(error: Error) -> Fault {
    match &error {
        Error::Stage(why) => tracing::error!(reason = %why, "a command could not be started"),
        Error::LayerMissing { layer, why } => {
            tracing::warn!(layer = layer.name(), reason = why, "a command is refused");
        }
        _ => {}
    }
    error.into()
}

impl Shared {
    fn run(&self, workspace: &str, request: Request, stop: &Stop) -> Result<Reply, Error> {
        let order = request.check()?;
        let Known {
            of: config,
            levels,
            groups,
        } = self.known()?;
        stop.check()?;
        let root = Root::open(workspace)?;
        if !order.cwd.is_root() {
            root.dir(&order.cwd)?;
        }
        let host = std::fs::canonicalize(workspace).map_err(crate::Error::Workspace)?;
        let host = host.to_str().filter(|host| *host != "/").ok_or_else(|| {
            Error::Request(
                "commands cannot run in this workspace: its path is / or not UTF-8".to_owned(),
            )
        })?;
        let _git = self.placeholders.hold(host)?;
        let masks = mask::find(&root, &config.protected, stop)?;
        let layers: Vec<Layer> = levels
            .iter()
            .filter(|level| level.holds)
            .map(|level| level.name)
            .collect();
        let left = stop.until.saturating_duration_since(Instant::now());
        let wall = order
            .wall
            .min(left.saturating_sub(limits::EXEC_TERM_GRACE + limits::EXEC_ANSWER_GRACE));
        let (spec, bounds) = order.into_spec(&layers, host, masks, config.shown.paths(), wall);
        let group = groups
            .map(|groups| groups.make(&bounds.group))
            .transpose()?;
        let until = Instant::now() + wall + BEGIN_MAX + limits::EXEC_ANSWER_GRACE;
        let helper = helper(&config);
        let outer = Outer {
            layers,
            is_probe: false,
        };
        let job = spawn::Job {
            helper: &helper,
            outer: &outer,
            spec: &spec,
            group: group.as_ref(),
        };
        let said = spawn::talk(&job, &stop.until(until));
        let hit = group.as_ref().map(group::Group::hit).unwrap_or_default();
        // The group goes before the answer: who has it finds nothing left.
        drop(group);
        let (report, bytes) = said?;
        match report {
            Report::Ended {
                end: End::Cancelled,
                ..
            } => Err(Error::Cancelled),
            Report::Ended {
                end,
                duration_ms,
                stdout,
                stderr,
            } => Ok(Reply {
                status: request::status(end, hit),
                duration_ms,
                limits_hit: hit.names(),
                layers: levels.into_iter().collect(),
                ..output::reply(&bytes, stdout, stderr, bounds.output_bytes)
            }),
            Report::Failed(failure) => Err(self.failed(&failure)),
            Report::Probed(_) => Err(Error::Stage("a probe was answered".to_owned())),
        }
    }

    /// What a failed stage means. A layer that a probe found and that is missing now makes the probe void.
    fn failed(&self, failure: &crate::stage::Failure) -> Error {
        *self.lock() = None;
        match failure.layer {
            Some(layer) => Error::LayerMissing {
                layer,
                why: failure.to_string(),
            },
            None => Error::Stage(failure.to_string()),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the last probe that found the minimum found, else a new one.
    fn known(&self) -> Result<Known, Error> {
        // Held over the probe: whoever asks meanwhile waits for its answer instead of making another.
        let mut known = self.lock();
        let config = self.config.load();
        if let Some(known) = &*known
            && Arc::ptr_eq(&known.of, &config)
        {
            return Ok(known.clone());
        }
        let (levels, groups) = probe::look(&config);
        probe::require(config.minimum.layers(), &levels)?;
        tracing::info!(
            layers = probe::summary(&levels),
            "commands run behind these layers"
        );
        let found = Known {
            of: config,
            levels,
            groups,
        };
        Ok(known.insert(found).clone())
    }
}

/// The executable of the stages. This process's own is named as the kernel knows it, even if its path leads elsewhere now.
fn helper(config: &Config) -> OsString {
    config
        .helper
        .clone()
        .unwrap_or_else(|| PathBuf::from("/proc/self/exe"))
        .into_os_string()
}
