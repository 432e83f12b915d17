//! What an attempt means, and what follows it. Pure but for the memory of refused tools.
//!
//! Owns: the one place that decides whether a generation is over, has failed, or is tried again. Never: waiting.

use teamster_protocol::{
    function::router::{ChatRequest, CompletionError, ErrorKind},
    message::StopReason,
};

use crate::{
    accumulate::Ending,
    classify,
    provider::{Backend, End, Failure, Progress, Provider},
    retry::{self, Plan},
};

/// How an attempt came to its end, seen from outside.
#[derive(Debug)]
pub(super) enum Outcome {
    Ended(End),
    Aborted,
    Left,
    TimedOut,
}

/// What an attempt means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The generation is over.
    Over(StopReason, Option<CompletionError>),
    /// Nothing was visible and it failed: it may be tried again.
    Failed(Failure),
}

/// Decides what an attempt means. Pure.
pub(super) fn judge(outcome: Outcome, progress: &Progress, provider: &str, model: &str) -> Verdict {
    let transient = |message: String| CompletionError {
        kind: ErrorKind::Transient,
        message,
        hint: None,
    };
    let failure = match outcome {
        Outcome::Aborted => return Verdict::Over(StopReason::Aborted, None),
        Outcome::Left => {
            let error = transient("the router stopped before the answer was whole".to_owned());
            return Verdict::Over(StopReason::Incomplete, Some(error));
        }
        Outcome::TimedOut => {
            let error = transient(format!("{provider} did not come to an end in time"));
            return Verdict::Over(StopReason::Incomplete, Some(error));
        }
        Outcome::Ended(End::Failed(failure)) => failure,
        Outcome::Ended(End::Stream) => match progress.accumulator.ending() {
            Ending::Stop(stop) => return Verdict::Over(stop, None),
            Ending::Paused => {
                let error = transient(format!("{provider} paused the answer"));
                return Verdict::Over(StopReason::Incomplete, Some(error));
            }
            Ending::Failed(error) => {
                let kind = classify::in_band(&error);
                let error = classify::error(kind, &error.message, provider, model);
                if progress.accumulator.is_visible() {
                    return Verdict::Over(StopReason::Error, Some(error));
                }
                Failure::from(error)
            }
            Ending::Malformed(what) => Failure::from(classify::malformed(&what, provider)),
            Ending::Cut => Failure::from(transient(format!(
                "the stream of {provider} ended without a terminal signal"
            ))),
        },
    };
    if progress.accumulator.is_visible() {
        return Verdict::Over(StopReason::Incomplete, Some(failure.error));
    }
    Verdict::Failed(failure)
}

/// What follows a failure.
pub(super) enum Next {
    Again { wait_ms: u64, reason: String },
    GiveUp(CompletionError),
}

pub(super) fn next(
    provider: &Provider,
    model: &str,
    request: &ChatRequest,
    tried: u32,
    failure: Failure,
    seed: u64,
) -> Next {
    let Failure {
        mut error,
        retry_after_ms,
        is_final,
        refused_tool,
    } = failure;
    if let (Some(refused), Backend::OpenAi(server)) = (refused_tool, &provider.backend)
        && let Some(tool) = request.tools.iter().find(|tool| tool.name == refused)
        && tried < provider.retry.attempts_max
    {
        server.refuse(model, tool);
        let reason = format!(
            "the tool {refused} is left out, since the provider refused it: {}",
            error.message
        );
        return Next::Again { wait_ms: 0, reason };
    }
    if is_final {
        return Next::GiveUp(error);
    }
    match retry::plan(&provider.retry, tried, error.kind, retry_after_ms, seed) {
        Plan::Retry { wait_ms } => Next::Again {
            wait_ms,
            reason: error.message,
        },
        Plan::GiveUp => Next::GiveUp(error),
        Plan::WaitTooLong { wait_ms } => {
            let at = retry::utc(crate::provider::openai::now_ms().saturating_add(wait_ms));
            error.hint = Some(format!(
                "{} asks to wait {} s: try again after {at}",
                provider.name,
                wait_ms.div_ceil(1000)
            ));
            Next::GiveUp(error)
        }
    }
}
