//! A page of one session's rows: as many as were asked for and as one reply can hold.

use rusqlite::{Row, params};
use teamster_protocol::{SessionId, function::session::SessionInfo, limits};

use crate::{
    error::StoreError,
    store::{Db, number},
};

/// Rows of one answer when nothing is asked for.
const COUNT: u32 = 200;

/// What is asked for.
pub(super) struct Page<'a> {
    /// The session.
    pub(super) session: &'a SessionId,
    /// Where the page begins: the second parameter of the statement.
    pub(super) from: u64,
    /// How many rows at most, if that is said.
    pub(super) limit: Option<u32>,
}

impl Page<'_> {
    /// Reads the rows of a statement over session, beginning and number, in its order. `read` gives a row and the bytes that it
    /// takes in a reply; the first fits always. `None`: there is no such session.
    pub(super) fn read<T>(
        &self,
        db: &Db,
        statement: &str,
        mut read: impl FnMut(&Row<'_>) -> Result<(T, usize), StoreError>,
    ) -> Result<Option<(SessionInfo, Vec<T>)>, StoreError> {
        let Some((id, info)) = super::get::find(db, self.session)? else {
            return Ok(None);
        };
        let count = self
            .limit
            .unwrap_or(COUNT)
            .clamp(1, limits::MESSAGES_LISTED_MAX);
        let mut statement = db.connection()?.prepare_cached(statement)?;
        let mut rows = statement.query(params![id, number(self.from), count])?;
        let (mut page, mut bytes) = (Vec::new(), 0_usize);
        while let Some(row) = rows.next()? {
            let (one, size) = read(row)?;
            bytes = bytes.saturating_add(size);
            if bytes > limits::LISTING_BYTES_MAX && !page.is_empty() {
                break;
            }
            page.push(one);
        }
        Ok(Some((info, page)))
    }
}
