//! `sessions ls`: one line a session, folded from all logs.

use std::collections::HashMap;

use clap::Args;
use serde_json::{Value, json};
use teamster_core::display;
use teamster_mesh::log::From as Begin;
use teamster_protocol::{
    Commit, Digest, Event, SessionId, commit::Phase, function::session::SessionInfo, usage::NanoUsd,
};

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

/// All sessions.
#[derive(Debug, Args)]
pub(in crate::cli) struct Ls {
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
}

/// A session as a line.
pub(in crate::cli) fn line(session: &SessionInfo) -> String {
    let name = session.title.as_ref().or(session.preview.as_ref());
    let first = name
        .and_then(|name| name.lines().next())
        .unwrap_or_default();
    format!(
        "{}  {:<8} {}  {}",
        display::terminal(session.session_id.as_str()),
        display::terminal(&session.status),
        show::moment(session.updated_at_ms),
        display::terminal(&teamster_protocol::text::cut(first, 80)),
    )
}

pub(super) async fn run(out: &Output, client: &Client, Ls { limit }: Ls) -> Result<Exit, Failure> {
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
            for listed in sessions.iter().take(limit) {
                let session = &listed.session;
                out.line(&format!(
                    "{}  {:<8} {}  {:>3} turns  {:>9} tokens  {}",
                    display::terminal(listed.id.as_str()),
                    status(listed),
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
            if let Some(damaged) = sessions.iter().find(|listed| listed.is_damaged) {
                out.note(&format!(
                    "the log of {} is damaged: restore the broker's data from a copy, or go on without what is missing: \
                     teamster sessions accept-loss ID --yes",
                    display::terminal(damaged.id.as_str())
                ));
            }
            if sessions.is_empty() {
                out.note("there is no session yet: teamster run \"what is in this directory?\"");
            }
        }
    }
    Ok(Exit::Completed)
}

/// A session as its log shows it.
struct Listed {
    id: SessionId,
    session: Session,
    /// Digest of the last stored bytes.
    last: Digest,
    is_damaged: bool,
}

impl Listed {
    fn new(id: SessionId) -> Self {
        Self {
            id,
            session: Session::default(),
            last: Digest::ZERO,
            is_damaged: false,
        }
    }

    /// Takes the next stored commit. One that cannot be read or does not follow is a damage, until its loss is accepted.
    fn take(&mut self, bytes: &[u8]) {
        match Commit::decode(bytes) {
            Ok(commit) => {
                let is_accepted = matches!(commit.events.first(), Some(Event::LossAccepted { .. }));
                self.is_damaged = commit.prev != self.last || (self.is_damaged && !is_accepted);
                self.session.apply(&self.id, &commit);
            }
            Err(_) => self.is_damaged = true,
        }
        self.last = Digest::of(bytes);
    }
}

/// All sessions, the last used first.
async fn all(client: &Client) -> Result<Vec<Listed>, Failure> {
    let mut follow = client.mesh().log().follow(Begin::Start, false).await?;
    let mut sessions: HashMap<SessionId, Listed> = HashMap::new();
    while let Some(stored) = follow.next().await {
        let (id, stored) = stored?;
        sessions
            .entry(id.clone())
            .or_insert_with(|| Listed::new(id.clone()))
            .take(&stored.body);
    }
    let mut sessions: Vec<_> = sessions.into_values().collect();
    sessions.sort_by(|left, right| {
        (right.session.updated_at_ms, &right.id).cmp(&(left.session.updated_at_ms, &left.id))
    });
    Ok(sessions)
}

/// What the session does, in one word.
fn status(listed: &Listed) -> &'static str {
    if listed.is_damaged {
        "damaged"
    } else {
        phase(&listed.session)
    }
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

fn row(listed: &Listed) -> Value {
    let session = &listed.session;
    json!({
        "session": listed.id,
        "status": status(listed),
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

#[cfg(test)]
mod tests {
    use teamster_protocol::{
        Head, Lane, Principal,
        commit::{Bell, Cursor},
        id::Incarnation,
    };

    use super::*;

    fn commit(n: u64, prev: Digest, events: Vec<Event>) -> Vec<u8> {
        let head = Head {
            phase: Phase::Idle,
            owner: Incarnation::parse("h").expect("valid"),
            bell: Bell {
                lane: Lane::In,
                seq: 1,
            },
            epoch: 1,
            attempt: 0,
            cursor: Cursor::default(),
            deadline: None,
        };
        let commit = Commit {
            v: teamster_protocol::commit::VERSION,
            session: SessionId::parse("s").expect("valid"),
            n,
            prev,
            at_ms: n,
            head,
            consumed: Vec::new(),
            events,
            outbox: Vec::new(),
        };
        commit.encode().expect("encodes")
    }

    /// A session with a torn or foreign commit stays listed, as damaged, until its loss is accepted.
    #[test]
    fn a_damaged_session_stays_listed() {
        let first = commit(1, Digest::ZERO, Vec::new());
        let foreign = commit(2, Digest::of("other"), Vec::new());
        for broken in [b"\0\0\0".to_vec(), foreign] {
            let accepted = Event::LossAccepted {
                by: Principal::parse("owner").expect("valid"),
                lost_from: 2,
                kept: Digest::of(&first),
                message: "torn".to_owned(),
            };
            let acceptance = commit(9, Digest::of(&broken), vec![accepted]);
            let mut listed = Listed::new(SessionId::parse("s").expect("valid"));
            let mut seen = Vec::new();
            for bytes in [&first, &broken, &acceptance] {
                listed.take(bytes);
                seen.push(status(&listed));
            }
            assert_eq!(seen, ["idle", "damaged", "idle"]);
        }
    }
}
