//! `session::events`: a part of a session's events, read from the log itself.

use std::{collections::BTreeSet, sync::Arc};

use serde::Deserialize;
use teamster_mesh::{Ctx, Function};
use teamster_protocol::{
    Class, Fault,
    function::session::{EventEntry, EventsReply, EventsRequest},
    id::ParseError,
};

use super::page::Page;
use crate::{
    error::StoreError,
    projection::{About, Projection},
    store::{Db, unsigned},
};

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
    let page = Page {
        session: &request.session_id,
        from: request.after,
        limit: request.limit,
    };
    let statement =
        "SELECT n, seq, bytes FROM place WHERE session = ?1 AND n > ?2 ORDER BY n LIMIT ?3";
    let found = page.read(db, statement, |row| {
        let bytes = usize::try_from(unsigned(row.get(2)?)).unwrap_or(usize::MAX);
        Ok(((unsigned(row.get(0)?), unsigned(row.get(1)?)), bytes))
    })?;
    Ok(found.map(|(info, places)| Part {
        upto: places.last().map_or(request.after, |(n, _)| *n),
        seqs: places.into_iter().map(|(_, seq)| seq).collect(),
        commits: info.commits,
    }))
}
