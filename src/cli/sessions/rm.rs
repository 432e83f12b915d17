//! `sessions rm`: deletes sessions for good.

use clap::Args;
use serde_json::json;
use teamster_protocol::{
    SessionId,
    function::session::{ChangeReply, DeleteRequest},
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

/// Delete sessions for good: transcript, events and results. Decisions stay in the history of approvals, as digests.
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
        out.document(&json!({ "v": 1, "deleted": replies }))?;
    }
    Ok(Exit::Completed)
}
