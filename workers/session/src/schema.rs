//! The tables of the projection.

use rusqlite::Connection;
use teamster_core::turn::state::FOLD_VERSION;

use crate::error::StoreError;

/// Marks the file as ours (`PRAGMA application_id`).
const APPLICATION: i32 = 0x7465_616d;
/// Version of these tables. A file of another version is built anew; so is one of another version of the fold.
const VERSION: i32 = 7;

/// `account` is what further commits are folded into, `info` what is answered: both JSON. The text of a message stands apart from
/// the rest of it, so that the index reads it without keeping it again. `place` says where the commits that count lie in the log;
/// their bytes stay there. `generation` holds what was spent: a
/// row a generation, and for those that went with their session (`buried`) the rows that its tombstone keeps of them. `tombstone` holds the last deletion of each name. `value` says which stored values sessions name. `unnamed` alone does not follow from the log: since when this
/// projection has known of stored values that nobody names them. So does `doubt`: where the last stored value lay when a session was first
/// found of which not everything can be read.
const TABLES: &str = "
CREATE TABLE stream (
    k INTEGER PRIMARY KEY,
    made TEXT NOT NULL,
    seq INTEGER NOT NULL,
    digest TEXT
);
CREATE TABLE session (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    status TEXT NOT NULL,
    updated_at_ms INTEGER NOT NULL,
    account TEXT NOT NULL,
    info TEXT NOT NULL
);
CREATE INDEX session_by_age ON session (updated_at_ms DESC, name DESC);
CREATE TABLE place (
    session INTEGER NOT NULL,
    n INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (session, n)
) WITHOUT ROWID;
CREATE TABLE message (
    id INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    place INTEGER NOT NULL,
    n INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    role TEXT NOT NULL,
    text TEXT NOT NULL,
    rest TEXT NOT NULL,
    UNIQUE (session, place)
);
CREATE VIRTUAL TABLE search USING fts5 (
    text, content = 'message', content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 2'
);
INSERT INTO search (search, rank) VALUES ('secure-delete', 1);
CREATE TABLE generation (
    session INTEGER NOT NULL,
    n INTEGER NOT NULL,
    i INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    model TEXT NOT NULL,
    count INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    usage TEXT NOT NULL,
    cost INTEGER NOT NULL,
    unpriced INTEGER NOT NULL,
    buried INTEGER NOT NULL,
    PRIMARY KEY (session, n, i)
) WITHOUT ROWID;
CREATE TABLE tombstone (
    session INTEGER PRIMARY KEY,
    n INTEGER NOT NULL,
    at_ms INTEGER NOT NULL
);
CREATE TABLE value (
    session INTEGER NOT NULL,
    sha256 TEXT NOT NULL,
    PRIMARY KEY (session, sha256)
) WITHOUT ROWID;
CREATE TABLE unnamed (
    sha256 TEXT PRIMARY KEY,
    seq INTEGER NOT NULL,
    since_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE doubt (
    name TEXT PRIMARY KEY,
    seq INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE approval (
    id TEXT PRIMARY KEY,
    session INTEGER NOT NULL,
    call TEXT NOT NULL,
    requested_at_ms INTEGER NOT NULL,
    entry TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX approval_by_session ON approval (session, requested_at_ms DESC);
CREATE INDEX approval_by_age ON approval (requested_at_ms DESC);
";

/// Makes the tables where there are none. `false`: there are other ones, and the file must go.
pub(crate) fn ensure(connection: &Connection) -> Result<bool, StoreError> {
    connection.pragma_update(None, "journal_mode", "wal")?;
    // A power loss may undo the last transactions, never tear one: what they held is read again from the log.
    connection.pragma_update(None, "synchronous", "normal")?;
    // What is deleted is overwritten: somebody wanted it gone.
    connection.pragma_update(None, "secure_delete", "on")?;
    connection.pragma_update(None, "temp_store", "memory")?;
    connection.pragma_update(None, "cache_size", -2048)?;
    connection.pragma_update(None, "journal_size_limit", 16 * 1024 * 1024)?;
    let number = |name: &str| -> Result<i32, StoreError> {
        Ok(connection.pragma_query_value(None, name, |row| row.get(0))?)
    };
    if (number("application_id")?, number("user_version")?) == (APPLICATION, version()) {
        return Ok(true);
    }
    let objects: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if objects > 0 {
        return Ok(false);
    }
    connection.execute_batch(&format!(
        "BEGIN IMMEDIATE; {TABLES} PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {}; COMMIT;",
        version()
    ))?;
    Ok(true)
}

fn version() -> i32 {
    VERSION * 10_000 + i32::try_from(FOLD_VERSION).unwrap_or(0)
}
