//! `sessions fork`: a new session that begins with the transcript of another.

use clap::Args;
use teamster_core::display;
use teamster_protocol::{SessionId, function::session::ForkRequest, input::SessionOptions, text};

use super::meta;
use crate::{
    cli::{exit::Exit, failure::Failure, output::Output, show},
    client::Client,
};

/// Begin a new session with the transcript of another, which does not change. Grants, approvals and what waits are not taken
/// over.
#[derive(Debug, Args)]
pub(in crate::cli) struct Fork {
    /// The session
    #[arg(value_name = "SESSION")]
    session: SessionId,
    /// The last commit of it that counts. Default: its newest; `sessions tail --after 0` shows the numbers
    #[arg(long, value_name = "COMMIT", value_parser = clap::value_parser!(u64).range(1..))]
    at: Option<u64>,
    /// The new session's id. Default: a fresh one
    #[arg(long, value_name = "ID")]
    id: Option<SessionId>,
    /// The new session's title. Default: that of the other
    #[arg(long, value_name = "TEXT", value_parser = meta::title)]
    title: Option<String>,
}

pub(super) async fn run(out: &Output, client: &Client, options: Fork) -> Result<Exit, Failure> {
    // The id is ours, so that the new session is known even if the answer is lost.
    let new = options
        .id
        .unwrap_or_else(|| SessionId::fresh(uuid::Uuid::now_v7()));
    let request = ForkRequest {
        session_id: options.session,
        at: options.at,
        new_session_id: Some(new),
        session: SessionOptions {
            title: options.title,
            ..SessionOptions::default()
        },
    };
    let reply = client.fork(&request).await.map_err(|error| {
        let failure = Failure::from(error);
        if failure.code != "session.exists" {
            return failure;
        }
        failure.hint("choose another --id, or leave it out for a fresh one; `teamster sessions ls` lists what there is")
    })?;
    if !out.is_text() {
        out.document(&show::versioned(&reply))?;
        return Ok(Exit::Completed);
    }
    out.line(&display::terminal(reply.session_id.as_str()))?;
    if reply.commit.is_none() {
        out.note("stored; it begins as soon as a harness takes it up");
    }
    let session = display::terminal(&text::shell(reply.session_id.as_str()));
    out.note(&format!("go on with: teamster chat --session={session}"));
    Ok(Exit::Completed)
}
