//! Which sessions are damaged, as their logs show it.

use std::collections::HashMap;

use teamster_mesh::log::From as Begin;
use teamster_protocol::{Commit, Digest, Event, SessionId};

use crate::{cli::failure::Failure, client::Client};

/// A session as far as its chain goes.
#[derive(Default)]
struct Chain {
    /// Digest of the last stored bytes; zero before the first.
    last: Option<Digest>,
    is_damaged: bool,
}

impl Chain {
    /// Takes the next stored commit. One that cannot be read or does not follow is a damage, until its loss is accepted.
    fn take(&mut self, bytes: &[u8]) {
        match Commit::decode(bytes) {
            Ok(commit) => {
                let is_accepted = matches!(commit.events.first(), Some(Event::LossAccepted { .. }));
                let follows = commit.prev == self.last.unwrap_or(Digest::ZERO);
                self.is_damaged = !follows || (self.is_damaged && !is_accepted);
            }
            Err(_) => self.is_damaged = true,
        }
        self.last = Some(Digest::of(bytes));
    }
}

/// How many sessions the log holds, and which of them are damaged. Reads everything.
pub(super) async fn damaged(client: &Client) -> Result<(usize, Vec<SessionId>), Failure> {
    let mut follow = client.mesh().log().follow(Begin::Start, false).await?;
    let mut sessions: HashMap<SessionId, Chain> = HashMap::new();
    while let Some(stored) = follow.next().await {
        let (id, stored) = stored?;
        sessions.entry(id).or_default().take(&stored.body);
    }
    let damaged = sessions
        .iter()
        .filter(|(_, chain)| chain.is_damaged)
        .map(|(id, _)| id.clone())
        .collect();
    Ok((sessions.len(), damaged))
}

#[cfg(test)]
mod tests {
    use teamster_protocol::{
        Head, Lane, Phase, Principal,
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

    /// DUR-7: a session with a torn or foreign commit is damaged until its loss is accepted.
    #[test]
    fn dur_7_a_session_is_damaged_until_its_loss_is_accepted() {
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
            let mut chain = Chain::default();
            let mut seen = Vec::new();
            for bytes in [&first, &broken, &acceptance] {
                chain.take(bytes);
                seen.push(chain.is_damaged);
            }
            assert_eq!(seen, [false, true, false]);
        }
    }
}
