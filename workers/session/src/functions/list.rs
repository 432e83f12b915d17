//! `session::list`: sessions, the one with the newest commit first.

use std::sync::Arc;

use rusqlite::params;
use teamster_mesh::{Ctx, Function};
use teamster_protocol::{
    Class, Fault,
    function::session::{ListReply, ListRequest, SessionInfo},
    id::ParseError,
    limits,
};

use crate::{
    account::{DAMAGED, DELETED},
    error::StoreError,
    projection::{About, Projection},
    store::{Db, number},
};

/// The words that `status` takes.
const STATUSES: [&str; 4] = ["idle", "running", "awaiting_approval", DAMAGED];
/// Sessions of one answer when nothing is asked for.
const COUNT: u32 = 50;

/// The function.
pub(super) fn function(projection: &Arc<Projection>) -> Result<Function, ParseError> {
    let contract = super::contract::<ListRequest, ListReply>(
        "session::list",
        "Lists sessions, the one with the newest commit first.",
        Class::Read,
    )?;
    let projection = Arc::clone(projection);
    Ok(Function::new(contract, move |ctx, request| {
        list(Arc::clone(&projection), ctx, request)
    }))
}

async fn list(
    projection: Arc<Projection>,
    ctx: Ctx,
    request: ListRequest,
) -> Result<ListReply, Fault> {
    check(&request)?;
    let after =
        match &request.after {
            None => None,
            Some(text) => Some(Place::read(text).ok_or_else(|| {
                bad("`after` is not a place that an earlier answer gave as `next`")
            })?),
        };
    projection
        .ask(&ctx, About::All, move |db| {
            page(db, &request, after.as_ref())
        })
        .await
}

fn bad(message: &str) -> Fault {
    Fault::caller("session.bad_request", message)
}

fn check(request: &ListRequest) -> Result<(), Fault> {
    if let Some(status) = &request.status
        && !STATUSES.contains(&status.as_str())
    {
        return Err(bad(&format!(
            "there is no status {status:?}; there are {}",
            STATUSES.join(", ")
        )));
    }
    if request.metadata.len() > limits::METADATA_MAX {
        return Err(bad("more metadata is asked for than a session can have"));
    }
    Ok(())
}

/// A place in the list: behind this session.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    updated_at_ms: u64,
    name: String,
}

impl Place {
    fn of(info: &SessionInfo) -> Self {
        Self {
            updated_at_ms: info.updated_at_ms,
            name: info.session_id.as_str().to_owned(),
        }
    }

    fn write(&self) -> String {
        format!("{}:{}", self.updated_at_ms, self.name)
    }

    fn read(text: &str) -> Option<Self> {
        let (at, name) = text.split_once(':')?;
        Some(Self {
            updated_at_ms: at.parse().ok()?,
            name: name.to_owned(),
        })
    }
}

fn page(db: &Db, request: &ListRequest, after: Option<&Place>) -> Result<ListReply, StoreError> {
    let count = request
        .limit
        .unwrap_or(COUNT)
        .clamp(1, limits::SESSIONS_LISTED_MAX);
    let wanted = serde_json::to_string(&request.metadata)?;
    let (at, name) = after.map_or((i64::MAX, String::new()), |place| {
        (number(place.updated_at_ms), place.name.clone())
    });
    let mut statement = db.connection()?.prepare_cached(
        "SELECT info FROM session
         WHERE status <> ?1 AND (?2 IS NULL OR status = ?2)
           AND (?3 = 0 OR (updated_at_ms, name) < (?4, ?5))
           AND NOT EXISTS (
               SELECT 1 FROM json_each(?6) AS wanted WHERE NOT EXISTS (
                   SELECT 1 FROM json_each(session.info, '$.metadata') AS held
                   WHERE held.key = wanted.key AND held.value = wanted.value))
         ORDER BY updated_at_ms DESC, name DESC",
    )?;
    let mut rows = statement.query(params![
        DELETED,
        request.status,
        after.is_some(),
        at,
        name,
        wanted
    ])?;
    let mut sessions: Vec<SessionInfo> = Vec::new();
    let mut bytes = 0;
    while let Some(row) = rows.next()? {
        let info: String = row.get(0)?;
        let is_full = sessions.len() >= count as usize
            || (!sessions.is_empty() && bytes + info.len() > limits::LISTING_BYTES_MAX);
        if is_full {
            let next = sessions.last().map(|last| Place::of(last).write());
            return Ok(ListReply { sessions, next });
        }
        bytes += info.len();
        sessions.push(serde_json::from_str(&info)?);
    }
    Ok(ListReply {
        sessions,
        next: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_back() {
        let place = Place {
            updated_at_ms: 7,
            name: "chat:42/é".to_owned(),
        };
        assert_eq!(Place::read(&place.write()), Some(place));
        assert_eq!(Place::read("x"), None);
        assert_eq!(Place::read("x:y"), None);
    }
}
