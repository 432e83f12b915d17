//! Takes what was read of the logs into the tables: one transaction a batch, with how far each log stream is read in it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};
use teamster_mesh::{
    head::Head,
    log::{End, Stored},
};
use teamster_protocol::{Digest, Event, Message, SessionId};

use crate::{
    account::{Account, Counted, DAMAGED, DELETED, Taken},
    error::StoreError,
    store::{Db, STREAMS, number, unsigned},
};

mod approval;
mod rows;

/// Sessions whose commits did not follow, and the sequence of the last one that was taken in.
pub(crate) type Broken = BTreeMap<SessionId, u64>;

/// What a batch came to.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// Sessions whose logs are to be read again.
    pub(crate) broken: Broken,
    /// Where the logs of the sessions stand that it moved.
    pub(crate) heads: Vec<(SessionId, Head)>,
    /// Whether it deleted a session.
    pub(crate) has_deleted: bool,
}

/// Sessions that are kept in memory between batches.
const ACCOUNTS_MAX: usize = 256;

/// What was read of a log stream.
#[derive(Debug)]
pub(crate) struct Record {
    /// The stream.
    pub(crate) stream: u8,
    /// Its place.
    pub(crate) seq: u64,
    /// The commit, if it is one.
    pub(crate) commit: Option<Read>,
}

/// A commit, with what it names and does not hold.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) session: SessionId,
    pub(crate) stored: Stored,
    /// The transcript that a fork begins with.
    pub(crate) forked: Option<Vec<Message>>,
}

/// How far a log stream is taken in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// The last sequence.
    pub(crate) seq: u64,
    /// When the stream was made, as the broker writes it.
    pub(crate) made: String,
    /// What was read at that sequence; `None` if that was no commit.
    pub(crate) digest: Option<Digest>,
}

/// How far each log stream is taken in.
pub(crate) fn cursors(db: &Db) -> Result<[Cursor; STREAMS], StoreError> {
    read_cursors(db.connection()?)
}

fn read_cursors(connection: &Connection) -> Result<[Cursor; STREAMS], StoreError> {
    let mut all: [Cursor; STREAMS] = Default::default();
    let mut rows = connection.prepare_cached("SELECT k, seq, made, digest FROM stream")?;
    let mut rows = rows.query([])?;
    while let Some(row) = rows.next()? {
        let k = usize::try_from(row.get::<_, i64>(0)?).unwrap_or(STREAMS);
        if let Some(cursor) = all.get_mut(k) {
            *cursor = Cursor {
                seq: unsigned(row.get(1)?),
                made: row.get(2)?,
                digest: row
                    .get::<_, Option<String>>(3)?
                    .and_then(|text| Digest::try_from(text).ok()),
            };
        }
    }
    Ok(all)
}

/// Notes which streams the places are of, where nothing was read of them yet.
pub(crate) fn adopt(db: &mut Db, ends: &[End; STREAMS]) -> Result<(), StoreError> {
    for (k, end) in ends.iter().enumerate() {
        db.connection()?.execute(
            "INSERT INTO stream (k, made, seq) VALUES (?1, ?2, 0) ON CONFLICT (k) DO UPDATE SET made = ?2 WHERE seq = 0",
            params![number(k as u64), end.created],
        )?;
    }
    Ok(())
}

/// Takes a batch in. What was taken in before changes nothing, so that processes may share a file.
pub(crate) fn apply(db: &mut Db, batch: Vec<Record>) -> Result<Applied, StoreError> {
    let mut accounts = std::mem::take(&mut db.accounts);
    let result = transact(db, &mut accounts, |writer, cursors| {
        for record in batch {
            let Some(cursor) = cursors.get_mut(usize::from(record.stream)) else {
                continue;
            };
            if record.seq <= cursor.seq {
                continue;
            }
            cursor.seq = record.seq;
            cursor.digest = record
                .commit
                .as_ref()
                .map(|read| Digest::of(&read.stored.body));
            if let Some(read) = record.commit {
                writer.take(read)?;
            }
        }
        Ok(())
    });
    keep(db, accounts, result)
}

/// Reads one session anew: `log` is all that its log holds up to where its stream is taken in.
pub(crate) fn replace(
    db: &mut Db,
    session: &SessionId,
    log: Vec<Read>,
) -> Result<Applied, StoreError> {
    let mut accounts = std::mem::take(&mut db.accounts);
    let result = transact(db, &mut accounts, |writer, _| {
        writer.forget(session)?;
        log.into_iter().try_for_each(|read| writer.take(read))
    });
    keep(db, accounts, result)
}

/// Those of the sessions whose logs end before where they are known to have stood, and why that is damage.
pub(crate) fn behind(
    db: &Db,
    heads: &[(SessionId, Head)],
) -> Result<BTreeMap<SessionId, String>, StoreError> {
    let connection = db.connection()?;
    let mut behind = BTreeMap::new();
    for (session, head) in heads {
        let found: Option<String> = connection
            .prepare_cached("SELECT account FROM session WHERE name = ?1")?
            .query_row([session.as_str()], |row| row.get(0))
            .optional()?;
        let account = match found {
            Some(text) => serde_json::from_str(&text)?,
            None => Account::new(session.clone()),
        };
        if account.is_behind(head) {
            let why = format!(
                "the log ends before commit {}, which was stored at sequence {}",
                head.n, head.seq
            );
            behind.insert(session.clone(), why);
        }
    }
    Ok(behind)
}

/// Where the logs stand that are projected, of all sessions about which nothing is in doubt.
pub(crate) fn heads(db: &Db) -> Result<Vec<(SessionId, Head)>, StoreError> {
    let connection = db.connection()?;
    let mut rows = connection.prepare_cached("SELECT account FROM session")?;
    let mut rows = rows.query([])?;
    let mut heads = Vec::new();
    while let Some(row) = rows.next()? {
        let account: Account = serde_json::from_str(&row.get::<_, String>(0)?)?;
        heads.extend(account.head());
    }
    Ok(heads)
}

/// Notes which sessions are in doubt, all others not; returns those that were not before.
pub(crate) fn doubt(
    db: &mut Db,
    doubts: &BTreeMap<SessionId, String>,
) -> Result<Vec<SessionId>, StoreError> {
    let mut accounts = std::mem::take(&mut db.accounts);
    let mut fresh = Vec::new();
    let result = transact(db, &mut accounts, |writer, _| {
        for session in writer.damaged()? {
            if !doubts.contains_key(&session) {
                writer.doubt(&session, None)?;
            }
        }
        for (session, why) in doubts {
            if writer.doubt(session, Some(why))? {
                fresh.push(session.clone());
            }
        }
        Ok(())
    });
    keep(db, accounts, result)?;
    Ok(fresh)
}

/// Accounts of a transaction that failed are not those of the file.
fn keep<T>(
    db: &mut Db,
    accounts: HashMap<String, (i64, Account)>,
    result: Result<T, StoreError>,
) -> Result<T, StoreError> {
    if result.is_ok() && accounts.len() <= ACCOUNTS_MAX {
        db.accounts = accounts;
    }
    result
}

fn transact(
    db: &mut Db,
    accounts: &mut HashMap<String, (i64, Account)>,
    work: impl FnOnce(&mut Writer<'_>, &mut [Cursor; STREAMS]) -> Result<(), StoreError>,
) -> Result<Applied, StoreError> {
    let connection = db.connection()?;
    let transaction =
        rusqlite::Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    let version: i64 = transaction.pragma_query_value(None, "data_version", |row| row.get(0))?;
    if version != db.version {
        accounts.clear();
    }
    let mut cursors = read_cursors(&transaction)?;
    let before = cursors.clone();
    let mut writer = Writer {
        connection: &transaction,
        accounts,
        touched: BTreeSet::new(),
        broken: Broken::new(),
        has_deleted: false,
    };
    work(&mut writer, &mut cursors)?;
    let applied = writer.finish()?;
    for (k, (cursor, before)) in cursors.iter().zip(&before).enumerate() {
        if cursor != before {
            rows::write_cursor(&transaction, k as u64, cursor)?;
        }
    }
    transaction.commit()?;
    db.version = version;
    db.tell(std::array::from_fn(|k| {
        cursors.get(k).map_or(0, |cursor| cursor.seq)
    }));
    Ok(applied)
}

/// Writes rows of sessions in one transaction.
struct Writer<'a> {
    connection: &'a Connection,
    accounts: &'a mut HashMap<String, (i64, Account)>,
    /// Sessions whose accounts are to be written.
    touched: BTreeSet<String>,
    broken: Broken,
    has_deleted: bool,
}

impl Writer<'_> {
    fn take(&mut self, read: Read) -> Result<(), StoreError> {
        let name = read.session.as_str();
        self.load(&read.session)?;
        let Some((id, account)) = self.accounts.get_mut(name) else {
            return Ok(());
        };
        let id = *id;
        match account.take(&read.stored.body, read.stored.seq, read.forked) {
            Taken::Counts(counted) => {
                self.has_deleted |= counted.is_deletion;
                self.write(id, &read.session, &read.stored, &counted)?;
            }
            Taken::Breaks(lost) => {
                self.broken.insert(read.session.clone(), read.stored.seq);
                self.write_lost(id, &read.session, lost.as_deref())?;
            }
            Taken::Lost(lost) => self.write_lost(id, &read.session, lost.as_deref())?,
        }
        if let Some(last) = self.broken.get_mut(&read.session) {
            *last = read.stored.seq;
        }
        self.touched.insert(name.to_owned());
        Ok(())
    }

    /// Has a session's account in memory; makes its row if there is none.
    fn load(&mut self, session: &SessionId) -> Result<(), StoreError> {
        let name = session.as_str();
        if self.accounts.contains_key(name) {
            return Ok(());
        }
        let found: Option<(i64, String)> = self
            .connection
            .prepare_cached("SELECT id, account FROM session WHERE name = ?1")?
            .query_row([name], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let entry = if let Some((id, text)) = found {
            (id, serde_json::from_str(&text)?)
        } else {
            self.connection
                .prepare_cached(
                    "INSERT INTO session (name, status, updated_at_ms, account, info) VALUES (?1, ?2, 0, '', '')",
                )?
                .execute(params![name, DELETED])?;
            let id = self.connection.last_insert_rowid();
            (id, Account::new(session.clone()))
        };
        self.accounts.insert(name.to_owned(), entry);
        Ok(())
    }

    /// The sessions that are damaged, for whatever reason.
    fn damaged(&self) -> Result<Vec<SessionId>, StoreError> {
        let mut statement = self
            .connection
            .prepare_cached("SELECT name FROM session WHERE status = ?1")?;
        let mut rows = statement.query([DAMAGED])?;
        let mut damaged = Vec::new();
        while let Some(row) = rows.next()? {
            damaged.extend(SessionId::parse(&row.get::<_, String>(0)?).ok());
        }
        Ok(damaged)
    }

    /// Notes why a session is in doubt, or that it is not; says whether that is new.
    fn doubt(&mut self, session: &SessionId, why: Option<&String>) -> Result<bool, StoreError> {
        self.load(session)?;
        let account = self.accounts.get_mut(session.as_str());
        let is_new = account.is_some_and(|(_, account)| account.doubt(why));
        if is_new {
            self.touched.insert(session.as_str().to_owned());
        }
        Ok(is_new)
    }

    /// Removes everything that was read of a session.
    fn forget(&mut self, session: &SessionId) -> Result<(), StoreError> {
        self.load(session)?;
        if let Some((id, account)) = self.accounts.get_mut(session.as_str()) {
            *account = Account::new(session.clone());
            rows::clear(self.connection, *id)?;
            approval::clear(self.connection, *id)?;
        }
        self.touched.insert(session.as_str().to_owned());
        Ok(())
    }

    fn write(
        &self,
        id: i64,
        session: &SessionId,
        stored: &Stored,
        counted: &Counted,
    ) -> Result<(), StoreError> {
        if counted.is_deletion {
            rows::clear(self.connection, id)?;
            rows::bury(self.connection, id, &counted.commit)?;
            return approval::bury(self.connection, id, session, &counted.commit);
        }
        rows::accept_loss(self.connection, id, &counted.commit)?;
        rows::place(self.connection, id, stored, &counted.commit)?;
        rows::values(self.connection, id, &counted.commit)?;
        rows::messages(self.connection, id, counted)?;
        rows::generations(self.connection, id, counted)?;
        approval::take(self.connection, id, session, counted)
    }

    /// What a commit that does not count says was spent and asked: whether or not the log folds, that was so.
    fn write_lost(
        &self,
        id: i64,
        session: &SessionId,
        lost: Option<&Counted>,
    ) -> Result<(), StoreError> {
        let ends = |event: &Event| {
            matches!(
                event,
                Event::LossAccepted { .. } | Event::SessionDeleted { .. }
            )
        };
        let Some(lost) = lost.filter(|lost| !lost.commit.events.iter().any(ends)) else {
            return Ok(());
        };
        rows::generations(self.connection, id, lost)?;
        approval::take(self.connection, id, session, lost)
    }

    /// Writes the accounts that changed.
    fn finish(self) -> Result<Applied, StoreError> {
        let mut applied = Applied {
            broken: self.broken,
            heads: Vec::new(),
            has_deleted: self.has_deleted,
        };
        for name in &self.touched {
            if let Some((id, account)) = self.accounts.get(name) {
                rows::write_account(self.connection, *id, account)?;
                applied.heads.extend(account.head());
            }
        }
        Ok(applied)
    }
}
