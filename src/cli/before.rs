//! How a session stands before `run`, `chat` and `send` give it a message, and what has to be said of it.

use std::time::Duration;

use teamster_core::display;
use teamster_protocol::{Commit, Event, Phase, SessionId, text};

use super::{failure::Failure, show};
use crate::client::{Client, Error};

/// How long a whole log is read to see whether anything of it is damaged. Nobody waits longer for a warning.
const LOOK_MAX: Duration = Duration::from_secs(2);

/// How a session stands before a message is sent to it.
pub(super) struct Before {
    /// Whether the message begins it.
    pub is_new: bool,
    /// What has to be said where a session of this id was deleted.
    pub notice: Option<String>,
    /// What has to be said where the log is damaged and the session goes on all the same.
    pub damage: Option<String>,
}

/// Looks how a session stands before a message is sent to it.
///
/// A message to a deleted session is taken and begins a new one, as a message under an id that was never used does: ids are
/// names that scripts choose (`nightly`), and a deletion must not make a name useless. What the old one had (transcript,
/// workspace, functions) is gone for good, so that the new one gets what every new session gets, and it is said, because
/// whoever names a session may expect that it remembers.
pub(super) async fn before(
    client: &Client,
    session: Option<&SessionId>,
) -> Result<Before, Failure> {
    let nothing = Before {
        is_new: true,
        notice: None,
        damage: None,
    };
    let Some(id) = session else {
        return Ok(nothing);
    };
    let Some(tail) = client.mesh().log().tail(id).await? else {
        return Ok(nothing);
    };
    // What cannot be read is there; the harness says what is wrong with it.
    let is_new = Commit::decode(&tail.body).is_ok_and(|commit| commit.head.phase == Phase::Deleted);
    if is_new {
        return Ok(Before {
            notice: deletion(client, id).await,
            ..nothing
        });
    }
    let (running, damage) = tokio::join!(is_running(client, id), damage(client, id));
    running?;
    Ok(Before {
        is_new,
        notice: None,
        damage,
    })
}

async fn deletion(client: &Client, id: &SessionId) -> Option<String> {
    let commits = client.commits(id).await.ok()?;
    let (_, tombstone) = commits.iter().rev().find(|(_, commit)| {
        let mut events = commit.events.iter();
        events.any(|event| matches!(event, Event::SessionDeleted { .. }))
    })?;
    Some(format!(
        "session {} was deleted on {}; this begins a new one of the same name, which knows nothing of the old one",
        display::terminal(id.as_str()),
        show::moment(tombstone.at_ms)
    ))
}

/// Refuses a session that stands still because its log is damaged: a message to it would wait without an end. Whatever else is
/// wrong shows when the message is sent.
pub(super) async fn is_running(client: &Client, id: &SessionId) -> Result<(), Failure> {
    match client.status(id).await {
        Err(Error::Fault(fault)) if fault.code == "session.log_damaged" => Err(fault.into()),
        _ => Ok(()),
    }
}

/// What has to be said of a session that goes on from a snapshot behind a damage: the longer it does, the more stands behind what
/// is lost.
async fn damage(client: &Client, id: &SessionId) -> Option<String> {
    let history = tokio::time::timeout(LOOK_MAX, client.history(id)).await;
    let damage = history.ok()?.ok()?.damage?;
    let session = text::operand(id.as_str());
    Some(display::terminal(&format!(
        "the log of session {id} is damaged: {damage}. It goes on from a snapshot, and what is lost does not come back by that. Look with \
         `teamster sessions show {session}`, keep what can be read with `teamster sessions export {session}`, and give up the \
         rest with `teamster sessions accept-loss {session}`, which says first how much that is"
    )))
}
