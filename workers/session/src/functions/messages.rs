//! `session::messages`: a part of a transcript.

use std::sync::Arc;

use teamster_mesh::{Ctx, Function};
use teamster_protocol::{
    Class, Fault,
    function::session::{MessageEntry, MessagesReply, MessagesRequest},
    id::ParseError,
};

use super::page::Page;
use crate::{
    error::StoreError,
    message::join,
    projection::{About, Projection},
    store::{Db, unsigned},
};

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
    let page = Page {
        session: &request.session_id,
        from: request.skip,
        limit: request.limit,
    };
    let statement = "SELECT n, at_ms, text, rest FROM message WHERE session = ?1 AND place >= ?2 ORDER BY place LIMIT ?3";
    let found = page.read(db, statement, |row| {
        let (text, rest): (String, String) = (row.get(2)?, row.get(3)?);
        let bytes = text.len() + rest.len();
        let entry = MessageEntry {
            n: unsigned(row.get(0)?),
            at_ms: unsigned(row.get(1)?),
            message: join(serde_json::from_str(&rest)?, text),
        };
        Ok((entry, bytes))
    })?;
    Ok(found.map(|(info, messages)| MessagesReply {
        messages,
        total: info.messages,
    }))
}
