//! `session::search`: the text of all transcripts.

use std::sync::Arc;

use rusqlite::types::Value;
use teamster_mesh::{Ctx, Function};
use teamster_protocol::{
    Class, Fault,
    function::session::{Hit, SearchReply, SearchRequest, SessionInfo},
    id::ParseError,
    limits,
};

use crate::{
    account::DELETED,
    error::StoreError,
    projection::{About, Projection},
    query::Query,
    store::{Db, unsigned},
};

/// Hits of one answer when nothing is asked for.
const COUNT: u32 = 20;
/// Words that a snippet of the index shows.
const SNIPPET_WORDS: u32 = 24;

/// The function.
pub(super) fn function(projection: &Arc<Projection>) -> Result<Function, ParseError> {
    let contract = super::contract::<SearchRequest, SearchReply>(
        "session::search",
        "Searches the text of all transcripts: users' messages, answers, results. All words must be in a message; word* stands for \
         words that begin so; a part in double quotes is looked for as it stands.",
        Class::Read,
    )?;
    let projection = Arc::clone(projection);
    Ok(Function::new(contract, move |ctx, request| {
        search(Arc::clone(&projection), ctx, request)
    }))
}

async fn search(
    projection: Arc<Projection>,
    ctx: Ctx,
    request: SearchRequest,
) -> Result<SearchReply, Fault> {
    let query = Query::parse(&request.query).map_err(|why| {
        Fault::caller(
            "session.bad_query",
            format_args!("the query cannot be understood: {why}"),
        )
        .hint("Write words; word* finds what begins so, \"a part in quotes\" what stands so.")
    })?;
    let session = request.session_id.clone();
    let about = session.as_ref().map_or(About::All, About::Session);
    let hits = projection
        .ask(&ctx, about, move |db| hits(db, &query, &request))
        .await?;
    match (hits, session) {
        (Some(hits), _) => Ok(SearchReply { hits }),
        (None, Some(session)) => Err(super::get::unknown(&session)),
        (None, None) => Ok(SearchReply { hits: Vec::new() }),
    }
}

/// The places; `None` if there is no such session.
fn hits(db: &Db, query: &Query, request: &SearchRequest) -> Result<Option<Vec<Hit>>, StoreError> {
    let within = match &request.session_id {
        None => None,
        Some(session) => match super::get::find(db, session)? {
            Some((id, _)) => Some(id),
            None => return Ok(None),
        },
    };
    let count = request
        .limit
        .unwrap_or(COUNT)
        .clamp(1, limits::HITS_LISTED_MAX);
    let mut values = vec![
        Value::Text(DELETED.to_owned()),
        within.map_or(Value::Null, Value::Integer),
        Value::Integer(count.into()),
    ];
    let is_indexed = !query.index.is_empty();
    let mut conditions = String::new();
    if is_indexed {
        values.push(Value::Text(query.index.clone()));
        conditions.push_str(" AND search MATCH ?4");
    }
    for pattern in &query.patterns {
        values.push(Value::Text(pattern.clone()));
        conditions.push_str(" AND message.text LIKE ?");
        conditions.push_str(&values.len().to_string());
        conditions.push_str(r" ESCAPE '\'");
    }
    let (from, shown, order) = if is_indexed {
        (
            "search JOIN message ON message.id = search.rowid",
            format!("snippet(search, 0, '⟦', '⟧', '…', {SNIPPET_WORDS})"),
            "search.rank, message.at_ms DESC, session.name, message.place DESC",
        )
    } else {
        (
            "message",
            "(message.text)".to_owned(),
            "message.at_ms DESC, session.name, message.place DESC",
        )
    };
    let mut statement = db.connection()?.prepare_cached(&format!(
        "SELECT session.info, message.n, message.at_ms, message.role, {shown}
         FROM {from} JOIN session ON session.id = message.session
         WHERE session.status <> ?1 AND (?2 IS NULL OR message.session = ?2){conditions}
         ORDER BY {order} LIMIT ?3"
    ))?;
    let mut rows = statement.query(rusqlite::params_from_iter(values))?;
    let mut hits = Vec::new();
    while let Some(row) = rows.next()? {
        let info: SessionInfo = serde_json::from_str(&row.get::<_, String>(0)?)?;
        let shown: String = row.get(4)?;
        hits.push(Hit {
            session_id: info.session_id,
            title: info.title,
            n: unsigned(row.get(1)?),
            at_ms: unsigned(row.get(2)?),
            role: row.get(3)?,
            snippet: if is_indexed {
                teamster_protocol::text::cut(&shown, limits::FAULT_TEXT_BYTES_MAX)
            } else {
                query.snippet(&shown)
            },
        });
    }
    Ok(Some(hits))
}
