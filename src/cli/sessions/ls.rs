//! `sessions ls`: one line a session, folded from all logs.

use std::collections::HashMap;

use serde_json::{Value, json};
use teamster_core::display;
use teamster_mesh::log::From as Begin;
use teamster_protocol::{Commit, SessionId, commit::Phase, usage::NanoUsd};

use crate::{
    cli::{
        exit::Exit,
        failure::Failure,
        output::{Format, Output},
        show,
        status::grouped,
    },
    client::{Client, session::Session},
};

pub(super) async fn run(out: &Output, client: &Client, limit: usize) -> Result<Exit, Failure> {
    let sessions = all(client).await?;
    match out.format {
        Format::Json => {
            let rows: Vec<Value> = sessions.iter().take(limit).map(row).collect();
            out.document(&json!({ "v": 1, "sessions": rows, "total": sessions.len() }))?;
        }
        Format::JsonLines => {
            for session in sessions.iter().take(limit) {
                out.document(&row(session))?;
            }
        }
        Format::Text => {
            for (id, session) in sessions.iter().take(limit) {
                out.line(&format!(
                    "{}  {:<8} {}  {:>3} turns  {:>9} tokens  {}",
                    display::terminal(id.as_str()),
                    phase(session),
                    show::moment(session.updated_at_ms),
                    session.turns,
                    grouped(session.usage.total()),
                    name(session),
                ))?;
            }
            if sessions.len() > limit {
                out.note(&format!(
                    "{} more; --limit shows them",
                    sessions.len() - limit
                ));
            }
            if sessions.is_empty() {
                out.note("there is no session yet: teamster run \"what is in this directory?\"");
            }
        }
    }
    Ok(Exit::Completed)
}

/// All sessions, the last used first.
async fn all(client: &Client) -> Result<Vec<(SessionId, Session)>, Failure> {
    let mut follow = client.mesh().log().follow(Begin::Start, false).await?;
    let mut sessions: HashMap<SessionId, Session> = HashMap::new();
    while let Some(stored) = follow.next().await {
        let (id, stored) = stored?;
        let commit =
            Commit::decode(&stored.body).map_err(|source| crate::client::Error::Commit {
                session: id.to_string(),
                seq: stored.seq,
                source,
            })?;
        sessions.entry(id.clone()).or_default().apply(&id, &commit);
    }
    let mut sessions: Vec<_> = sessions.into_iter().collect();
    sessions.sort_by(|(left_id, left), (right_id, right)| {
        (right.updated_at_ms, right_id).cmp(&(left.updated_at_ms, left_id))
    });
    Ok(sessions)
}

/// The session's phase in one word.
pub(super) fn phase(session: &Session) -> &'static str {
    match session.phase {
        Some(Phase::Active) => "running",
        Some(Phase::Parked) => "waiting",
        Some(Phase::Deleted) => "deleted",
        Some(Phase::Idle) | None => "idle",
    }
}

fn name(session: &Session) -> String {
    let text = session.title.as_ref().or(session.opening.as_ref());
    let first = text
        .and_then(|text| text.lines().next())
        .unwrap_or_default();
    display::terminal(&teamster_protocol::text::cut(first, 80))
}

fn row((id, session): &(SessionId, Session)) -> Value {
    json!({
        "session": id,
        "status": phase(session),
        "title": session.title,
        "opening": session.opening,
        "workspace": session.workspace,
        "commits": session.commits,
        "turns": session.turns,
        "created_at_ms": session.created_at_ms,
        "updated_at_ms": session.updated_at_ms,
        "usage": session.usage,
        "cost_usd": session.cost.filter(|_| !session.cost_is_partial).map(NanoUsd::as_usd),
    })
}
