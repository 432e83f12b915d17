//! Executes one action of the turn machine, and says what came of it.

mod context;
pub(super) mod decide;
pub(super) mod generate;
pub(super) mod hook;
pub(super) mod invoke;
mod whole;

use teamster_core::turn::{Action, Outcome};

use super::work::{GiveUp, Work};

/// Executes an action that needs somebody else.
pub(super) async fn execute(work: &mut Work<'_>, action: &Action) -> Result<Vec<Outcome>, GiveUp> {
    match action {
        Action::RunHook(point) => Ok(vec![hook::run_point(work, *point).await]),
        Action::Generate(request) => generate::generate(work, request).await,
        Action::Recover(request) => Ok(vec![generate::recover(work, request).await]),
        Action::Decide(call) => Ok(decide::decide(work, call).await.into_iter().collect()),
        Action::Invoke(calls) => invoke::invoke(work, calls).await,
        Action::RecoverCalls(calls) => Ok(invoke::recover(work, calls).await),
        // The machine settles all others by itself.
        _ => Ok(Vec::new()),
    }
}

/// What may cut an action short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interrupt {
    /// Somebody stopped the turn.
    Stop,
    /// This harness ends.
    Drain,
    /// The turn's time is over.
    Timeout,
}

/// Waits until something cuts the running action short. Cancel-safe.
pub(super) async fn interrupted(work: &Work<'_>) -> Interrupt {
    loop {
        if work.entry.promised().ctl > work.draft.state().cursor.ctl && work.has_stop().await {
            return Interrupt::Stop;
        }
        tokio::select! {
            () = work.harness.drain.cancelled() => return Interrupt::Drain,
            () = work.entry.wake.notified() => {}
        }
    }
}
