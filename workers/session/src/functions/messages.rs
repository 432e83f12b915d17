//! `session::messages`: a part of a transcript.

use std::sync::Arc;

use rusqlite::params;
use teamster_mesh::{Ctx, Function};
use teamster_protocol::{
    Class, Fault,
    function::session::{MessageEntry, MessagesReply, MessagesRequest},
    id::ParseError,
    limits,
};

use crate::{
    error::StoreError,
    message::join,
    projection::{About, Projection},
    store::{Db, number, unsigned},
};

/// Messages of one answer when nothing is asked for.
const COUNT: u32 = 200;

/// The function.
pub(super) fn function(projection: &Arc<Projection>) -> Result<Function, ParseError> {
    let contract = super::contract::<MessagesRequest, MessagesReply>(
        "session::messages",
        "Reads a part of a transcript, oldest first: as many messages as were asked for and as one reply can hold.",
        Class::Read,
    )?;
    let projection = Arc::clone(projection);
    Ok(Function::new(contract, move |ctx, request| {
        messages(Arc::clone(&projection), ctx, request)
    }))
}

async fn messages(
    projection: Arc<Projection>,
    ctx: Ctx,
    request: MessagesRequest,
) -> Result<MessagesReply, Fault> {
    let session = request.session_id.clone();
    projection
        .ask(&ctx, About::Session(&session), move |db| page(db, &request))
        .await?
        .ok_or_else(|| super::get::unknown(&session))
}

fn page(db: &Db, request: &MessagesRequest) -> Result<Option<MessagesReply>, StoreError> {
    let Some((id, info)) = super::get::find(db, &request.session_id)? else {
        return Ok(None);
    };
    let count = request
        .limit
        .unwrap_or(COUNT)
        .clamp(1, limits::MESSAGES_LISTED_MAX);
    let mut statement = db.connection()?.prepare_cached(
        "SELECT n, at_ms, text, rest FROM message WHERE session = ?1 AND place >= ?2 ORDER BY place LIMIT ?3",
    )?;
    let mut rows = statement.query(params![id, number(request.skip), count])?;
    let mut messages = Vec::new();
    let mut bytes = 0;
    while let Some(row) = rows.next()? {
        let (text, rest): (String, String) = (row.get(2)?, row.get(3)?);
        bytes += text.len() + rest.len();
        if bytes > limits::LISTING_BYTES_MAX && !messages.is_empty() {
            break;
        }
        messages.push(MessageEntry {
            n: unsigned(row.get(0)?),
            at_ms: unsigned(row.get(1)?),
            message: join(serde_json::from_str(&rest)?, text),
        });
    }
    Ok(Some(MessagesReply {
        messages,
        total: info.messages,
    }))
}
