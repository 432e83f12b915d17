//! `sessions rm`: deletes sessions for good.

use clap::Args;
use serde_json::{Value, json};
use teamster_protocol::{
    SessionId,
    function::session::{ChangeReply, DeleteRequest},
    limits,
};

use super::meta;
use crate::{
    cli::{
        exit::Exit,
        failure::Failure,
        output::{Format, Output},
    },
    client::Client,
};

/// Delete sessions for good: transcript, events and results.
///
/// Decisions stay in the history of approvals as digests, what was spent in the sums of `cost`. Log, notices and projection are
/// overwritten within moments; what goes later is said.
#[derive(Debug, Args)]
pub(in crate::cli) struct Rm {
    /// The sessions
    #[arg(value_name = "SESSION", required = true)]
    sessions: Vec<SessionId>,
    /// You are sure
    #[arg(long)]
    yes: bool,
}

/// Refuses before anything is asked, so that nothing of a list is deleted.
pub(super) fn check(options: &Rm) -> Result<(), Failure> {
    if options.yes {
        return Ok(());
    }
    Err(Failure::usage(
        "cli.unconfirmed",
        "deleting a session cannot be undone, so it needs --yes",
    )
    .hint("`teamster sessions export ID -o FILE` keeps a copy"))
}

pub(super) async fn run(out: &Output, client: &Client, options: Rm) -> Result<Exit, Failure> {
    let mut replies: Vec<ChangeReply> = Vec::new();
    for session in options.sessions {
        let request = DeleteRequest {
            session_id: session.clone(),
            confirm: options.yes,
        };
        match client.delete(&request).await {
            Ok(reply) => replies.push(reply),
            Err(error) => {
                let mut failure = Failure::from(error);
                failure.message = format!("{session}: {}", failure.message);
                let told =
                    (out.format == Format::Json).then(|| json!({ "v": 1, "deleted": replies }));
                out.failure(&failure, told);
                return Ok(failure.exit);
            }
        }
        if let Some(reply) = replies.last().filter(|_| out.is_text()) {
            meta::told(out, reply, "deleted")?;
        }
        if let Some(reply) = replies.last().filter(|_| out.format == Format::JsonLines) {
            out.document(reply)?;
        }
    }
    if out.format == Format::Json {
        out.document(&json!({ "v": 1, "deleted": replies, "remains": remains() }))?;
    }
    out.note(&format!(
        "what goes later: large results that no other session names, after {} hours; what was shown while it came, after {} minutes; \
         parts of the broker's files that are given up, when it writes there anew (docs/operations.md, \"What a deletion leaves\")",
        hours(VALUES_S),
        limits::DELTAS_KEPT.as_secs() / 60,
    ));
    Ok(Exit::Completed)
}

/// Until when stored values lie there that nobody names, in seconds after the deletion.
const VALUES_S: u64 =
    limits::VALUE_UNNAMED_KEPT.as_secs() + 2 * limits::VALUES_SWEEP_EVERY.as_secs();

/// Whole hours, and one for what is left.
fn hours(seconds: u64) -> u64 {
    seconds.div_ceil(3600)
}

/// What is not gone at once, with how many seconds it may take; `null`: until the broker writes its files anew.
fn remains() -> Value {
    json!({
        "stored_values_s": VALUES_S,
        "deltas_s": limits::DELTAS_KEPT.as_secs(),
        "broker_files_s": null,
    })
}
