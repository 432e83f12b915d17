//! What a followed turn comes to: a report, an exit code, words. Pure.

use serde_json::Value;
use teamster_protocol::{ApprovalId, SessionId, event::EndReason, text};

use crate::{
    cli::{exit::Exit, failure::Failure},
    client::session::{Report, Turn},
};

/// How following ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) enum Outcome {
    /// The turn ended.
    Ended(EndReason),
    /// The turn waits for a person, and nobody is asked here.
    Waiting(Vec<ApprovalId>),
    /// The user let go; the turn goes on.
    Detached,
    /// Nobody reads standard output any longer; the turn goes on.
    Closed,
}

/// The exit code, and the failure to tell where there is one. `denied` says that this command said no in the user's name.
pub(in crate::cli) fn verdict(
    session: &SessionId,
    turn: Option<&Turn>,
    outcome: &Outcome,
    denied: bool,
) -> (Exit, Option<Failure>) {
    match outcome {
        Outcome::Closed => (Exit::Completed, None),
        Outcome::Detached => {
            let session = text::operand(session.as_str());
            let failure = Failure::new(Exit::Interrupted, "cli.detached", "you let go; the turn goes on")
                .hint(format_args!("teamster sessions tail {session}"));
            (Exit::Interrupted, Some(failure))
        }
        Outcome::Waiting(approvals) => {
            (Exit::Waiting, Some(waiting(session, turn.is_some(), approvals)))
        }
        Outcome::Ended(EndReason::Completed) if denied => (
            Exit::Refused,
            Some(
                Failure::new(
                    Exit::Refused,
                    "approval.denied",
                    "the turn is complete, but a call that needed a person was denied by --approvals deny",
                )
                .hint("run it on a terminal, or with --approvals wait"),
            ),
        ),
        Outcome::Ended(reason) => {
            let exit = Exit::of_end(reason, turn.and_then(|turn| turn.trouble));
            (exit, failure_of(session, exit, reason))
        }
    }
}

/// Names all that waits: whoever decides one of several and comes back must not find another one behind it.
fn waiting(session: &SessionId, is_mine: bool, approvals: &[ApprovalId]) -> Failure {
    let names: Vec<&str> = approvals.iter().map(ApprovalId::as_str).collect();
    let decisions = match names.len() {
        1 => "a decision".to_owned(),
        n => format!("{n} decisions"),
    };
    let names = names.join(", ");
    let message = if is_mine {
        format!("the turn waits for {decisions}: {names}")
    } else {
        format!(
            "the session waits for {decisions}: {names}; the message is stored and is taken up behind that"
        )
    };
    let first = text::operand(approvals.first().map_or("ID", ApprovalId::as_str));
    let session = text::operand(session.as_str());
    let others = if approvals.len() > 1 {
        ", the same for each of the others"
    } else {
        ""
    };
    Failure::new(Exit::Waiting, "approval.pending", message).hint(format_args!(
        "teamster approvals approve {first} (or deny){others}, then teamster sessions tail {session}"
    ))
}

fn failure_of(session: &SessionId, exit: Exit, reason: &EndReason) -> Option<Failure> {
    let failure = match reason {
        EndReason::Completed => return None,
        EndReason::Failed { code, message } => {
            Failure::new(exit, code, message).hint(hint_for(session, code))
        }
        EndReason::Cancelled { by } => Failure::new(
            exit,
            "turn.cancelled",
            format_args!("the turn was stopped by {by}"),
        ),
        EndReason::Budget { which } => Failure::new(
            exit,
            "turn.budget",
            format_args!("the turn met its bound on {}", which.as_str()),
        )
        .hint(
            "raise it with --max-turns, --max-tokens, --max-cost-usd, --max-calls or --max-seconds",
        ),
        EndReason::Denied { rule, message } => Failure::new(
            exit,
            "turn.denied",
            format_args!("the turn was refused by {rule}: {message}"),
        ),
        EndReason::NoProgress => Failure::new(
            exit,
            "turn.no_progress",
            "the model made the same call with the same result again and again",
        )
        .hint("say more precisely what you want, or take another model with --model"),
        EndReason::Poisoned => Failure::new(
            exit,
            "turn.poisoned",
            "the turn was taken over too often; something in it ends the process that runs it",
        )
        .hint("teamster doctor, and the log in the data directory"),
    };
    Some(failure)
}

/// What to do about a failed turn.
fn hint_for(session: &SessionId, code: &str) -> String {
    let session = text::operand(session.as_str());
    match code {
        "model.auth" => "keys are read where the mesh runs: end it (`teamster doctor` names its process) and run this \
                         again with the key set, or name a file with `key: file:/path` in config.yaml"
            .to_owned(),
        "model.not_configured" => {
            "providers stand in the section `router` of config.yaml; `teamster doctor` looks".to_owned()
        }
        _ => format!("teamster sessions show {session} tells what led to it"),
    }
}

/// The one document of `--json`.
pub(in crate::cli) fn document(session: &SessionId, turn: Option<&Turn>) -> Value {
    serde_json::to_value(Report::of(session, turn)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use teamster_protocol::{Principal, usage::BudgetKind};

    use super::*;

    #[test]
    fn every_outcome_has_its_code_and_its_words() {
        let session = SessionId::parse("s").expect("valid");
        let approval = ApprovalId::parse("apr_1").expect("valid");
        let by = Principal::parse("owner").expect("valid");
        let rows = [
            (Outcome::Ended(EndReason::Completed), false, 0, None),
            (
                Outcome::Ended(EndReason::Completed),
                true,
                4,
                Some("approval.denied"),
            ),
            (
                Outcome::Ended(EndReason::Cancelled { by }),
                false,
                130,
                Some("turn.cancelled"),
            ),
            (
                Outcome::Ended(EndReason::Budget {
                    which: BudgetKind::Steps,
                }),
                false,
                5,
                Some("turn.budget"),
            ),
            (
                Outcome::Ended(EndReason::NoProgress),
                false,
                1,
                Some("turn.no_progress"),
            ),
            (
                Outcome::Waiting(vec![approval]),
                false,
                3,
                Some("approval.pending"),
            ),
            (Outcome::Detached, false, 130, Some("cli.detached")),
            (Outcome::Closed, false, 0, None),
        ];
        for (outcome, denied, code, failure) in rows {
            let (exit, told) = verdict(&session, None, &outcome, denied);
            assert_eq!(exit.code(), code, "{outcome:?}");
            assert_eq!(
                told.map(|told| told.code).as_deref(),
                failure,
                "{outcome:?}"
            );
        }
    }

    #[test]
    fn all_that_waits_is_named() {
        let session = SessionId::parse("s").expect("valid");
        let approvals = ["apr_1", "apr_2"].map(|id| ApprovalId::parse(id).expect("valid"));
        let outcome = Outcome::Waiting(approvals.to_vec());
        let told = verdict(&session, None, &outcome, false).1.expect("told");
        assert!(told.message.contains("2 decisions: apr_1, apr_2"), "{told}");
        assert!(told.message.contains("the message is stored"), "{told}");
    }

    #[test]
    fn a_document_has_all_its_fields_even_when_nothing_is_known() {
        let session = SessionId::parse("s").expect("valid");
        let document = document(&session, None);
        let keys: Vec<&str> = document
            .as_object()
            .expect("an object")
            .keys()
            .map(String::as_str)
            .collect();
        let mut want = vec![
            "v",
            "session",
            "turn",
            "status",
            "reason",
            "text",
            "usage",
            "cost_usd",
            "approvals",
        ];
        want.sort_unstable();
        let mut keys = keys;
        keys.sort_unstable();
        assert_eq!(keys, want);
        assert_eq!(document["status"], "unknown");
    }
}
