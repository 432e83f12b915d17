//! `session::events`: a part of a session's events, read from the log itself.

use std::{collections::BTreeSet, sync::Arc};

use rusqlite::params;
use serde::Deserialize;
use teamster_mesh::{Ctx, Function};
use teamster_protocol::{
    Class, Fault,
    function::session::{EventEntry, EventsReply, EventsRequest},
    id::ParseError,
    limits,
};

use crate::{
    error::StoreError,
    projection::{About, Projection},
    store::{Db, number, unsigned},
};

/// Commits of one answer when nothing is asked for.
const COUNT: u32 = 200;

/// The function.
pub(super) fn function(projection: &Arc<Projection>) -> Result<Function, ParseError> {
    let contract = super::contract::<EventsRequest, EventsReply>(
        "session::events",
        "Reads a session's events behind a commit, oldest first: of as many commits as were asked for and as one reply can hold.",
        Class::Read,
    )?;
    let projection = Arc::clone(projection);
    Ok(Function::new(contract, move |ctx, request| {
        events(Arc::clone(&projection), ctx, request)
    }))
}

/// Where the wanted commits lie.
#[derive(Default)]
struct Part {
    seqs: BTreeSet<u64>,
    upto: u64,
    commits: u64,
}

/// What of a commit is shown. The events stay what they are in the log.
#[derive(Deserialize)]
struct Shown {
    n: u64,
    at_ms: u64,
    #[serde(default)]
    events: Vec<serde_json::Value>,
}

async fn events(
    projection: Arc<Projection>,
    ctx: Ctx,
    request: EventsRequest,
) -> Result<EventsReply, Fault> {
    let session = request.session_id.clone();
    let part = projection
        .ask(&ctx, About::Session(&session), move |db| part(db, &request))
        .await?
        .ok_or_else(|| super::get::unknown(&session))?;
    let mut events = Vec::new();
    if let (Some(first), Some(last)) = (part.seqs.first(), part.seqs.last()) {
        let log = ctx.mesh.log();
        for stored in log.read(&session, first.saturating_sub(1), *last).await? {
            // What does not count any more lies between.
            if !part.seqs.contains(&stored.seq) {
                continue;
            }
            let shown: Shown = serde_json::from_slice(&stored.body)
                .map_err(|error| Fault::internal("log.unreadable", error))?;
            events.extend((0..).zip(shown.events).map(|(i, event)| EventEntry {
                n: shown.n,
                i,
                at_ms: shown.at_ms,
                event,
            }));
        }
    }
    Ok(EventsReply {
        events,
        upto: part.upto,
        commits: part.commits,
    })
}

fn part(db: &Db, request: &EventsRequest) -> Result<Option<Part>, StoreError> {
    let Some((id, info)) = super::get::find(db, &request.session_id)? else {
        return Ok(None);
    };
    let count = request
        .limit
        .unwrap_or(COUNT)
        .clamp(1, limits::MESSAGES_LISTED_MAX);
    let mut statement = db.connection()?.prepare_cached(
        "SELECT n, seq, bytes FROM place WHERE session = ?1 AND n > ?2 ORDER BY n LIMIT ?3",
    )?;
    let mut rows = statement.query(params![id, number(request.after), count])?;
    let mut part = Part {
        upto: request.after,
        commits: info.commits,
        ..Part::default()
    };
    let mut bytes = 0;
    while let Some(row) = rows.next()? {
        bytes += unsigned(row.get(2)?);
        if bytes > limits::LISTING_BYTES_MAX as u64 && !part.seqs.is_empty() {
            break;
        }
        part.upto = unsigned(row.get(0)?);
        part.seqs.insert(unsigned(row.get(1)?));
    }
    Ok(Some(part))
}
