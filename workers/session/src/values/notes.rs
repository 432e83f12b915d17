//! Since when stored values are known to be named by nobody, and which of them may go. The decision is pure.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{Connection, params};
use teamster_protocol::{Digest, SessionId, limits};

use crate::{
    account::DAMAGED,
    error::StoreError,
    store::{number, unsigned},
};

/// A stored value that nobody names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Note {
    /// Its name.
    pub(crate) name: Digest,
    /// Where it lay when it was noted.
    pub(crate) seq: u64,
}

/// What a look came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It cannot be said which values are named, and why.
    Uncertain(String),
    /// Values that nobody names.
    Unnamed {
        /// Those that were not noted yet.
        unknown: Vec<Digest>,
        /// Those that have been noted for long enough.
        due: Vec<Note>,
    },
}

/// What is noted of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Known {
    seq: u64,
    since_ms: u64,
}

/// What follows from what is stored, named and noted.
#[derive(Debug, Default, PartialEq, Eq)]
struct Verdict {
    /// Stored, named by nobody, not noted.
    unknown: Vec<Digest>,
    /// Noted for long enough.
    due: Vec<Note>,
    /// Noted, and named again or gone.
    void: Vec<Digest>,
    /// Noted at a time that has not come: the clock was set back, and counting begins anew.
    early: Vec<Digest>,
}

fn judge(
    stored: &BTreeSet<Digest>,
    named: &BTreeSet<Digest>,
    known: &BTreeMap<Digest, Known>,
    now_ms: u64,
) -> Verdict {
    let kept_ms = u64::try_from(limits::VALUE_UNNAMED_KEPT.as_millis()).unwrap_or(u64::MAX);
    let mut verdict = Verdict::default();
    for (name, noted) in known {
        if !stored.contains(name) || named.contains(name) {
            verdict.void.push(*name);
        } else if noted.since_ms > now_ms {
            verdict.early.push(*name);
        } else if now_ms - noted.since_ms >= kept_ms && verdict.due.len() < limits::VALUES_SWEPT_MAX
        {
            verdict.due.push(Note {
                name: *name,
                seq: noted.seq,
            });
        }
    }
    let unknown = stored
        .iter()
        .filter(|name| !named.contains(name) && !known.contains_key(name));
    verdict.unknown = unknown.take(limits::VALUES_SWEPT_MAX).copied().collect();
    verdict
}

/// Looks which of the stored values nobody names. `headed` are the sessions that are known to have had a log.
pub(crate) fn look(
    connection: &Connection,
    stored: &BTreeSet<Digest>,
    headed: &[SessionId],
    now_ms: u64,
) -> Result<Found, StoreError> {
    if let Some(why) = uncertain(connection, headed)? {
        return Ok(Found::Uncertain(why));
    }
    let named = names(connection, "SELECT DISTINCT sha256 FROM value")?;
    let verdict = judge(stored, &named, &known(connection)?, now_ms);
    let transaction = connection.unchecked_transaction()?;
    for name in &verdict.void {
        transaction
            .prepare_cached("DELETE FROM unnamed WHERE sha256 = ?1")?
            .execute([name.to_string()])?;
    }
    for name in &verdict.early {
        transaction
            .prepare_cached("UPDATE unnamed SET since_ms = ?2 WHERE sha256 = ?1")?
            .execute(params![name.to_string(), number(now_ms)])?;
    }
    transaction.commit()?;
    Ok(Found::Unnamed {
        unknown: verdict.unknown,
        due: verdict.due,
    })
}

/// Notes values that nobody names.
pub(crate) fn add(connection: &Connection, notes: &[Note], now_ms: u64) -> Result<(), StoreError> {
    let transaction = connection.unchecked_transaction()?;
    for note in notes {
        transaction
            .prepare_cached(
                "INSERT OR IGNORE INTO unnamed (sha256, seq, since_ms) VALUES (?1, ?2, ?3)",
            )?
            .execute(params![
                note.name.to_string(),
                number(note.seq),
                number(now_ms)
            ])?;
    }
    transaction.commit()?;
    Ok(())
}

/// Forgets notes whose values were removed. What was stored again meanwhile is noted anew.
pub(crate) fn drop_all(connection: &Connection, notes: &[Note]) -> Result<(), StoreError> {
    let transaction = connection.unchecked_transaction()?;
    for note in notes {
        transaction
            .prepare_cached("DELETE FROM unnamed WHERE sha256 = ?1 AND seq = ?2")?
            .execute(params![note.name.to_string(), number(note.seq)])?;
    }
    transaction.commit()?;
    Ok(())
}

/// Why it cannot be said which values are named: what cannot be read of a log may name any.
fn uncertain(connection: &Connection, headed: &[SessionId]) -> Result<Option<String>, StoreError> {
    let damaged: i64 = connection.query_row(
        "SELECT count(*) FROM session WHERE status = ?1",
        [DAMAGED],
        |row| row.get(0),
    )?;
    if damaged > 0 {
        return Ok(Some(format!(
            "{damaged} session(s) are damaged; `teamster sessions ls --status damaged` lists them"
        )));
    }
    let mut is_there = connection.prepare_cached("SELECT 1 FROM session WHERE name = ?1")?;
    for session in headed {
        if !is_there.exists([session.as_str()])? {
            return Ok(Some(format!("the log of {session} is gone")));
        }
    }
    Ok(None)
}

fn names(connection: &Connection, query: &str) -> Result<BTreeSet<Digest>, StoreError> {
    let mut statement = connection.prepare_cached(query)?;
    let mut rows = statement.query([])?;
    let mut names = BTreeSet::new();
    while let Some(row) = rows.next()? {
        names.extend(Digest::try_from(row.get::<_, String>(0)?).ok());
    }
    Ok(names)
}

fn known(connection: &Connection) -> Result<BTreeMap<Digest, Known>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT sha256, seq, since_ms FROM unnamed")?;
    let mut rows = statement.query([])?;
    let mut known = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let noted = Known {
            seq: unsigned(row.get(1)?),
            since_ms: unsigned(row.get(2)?),
        };
        let name = Digest::try_from(row.get::<_, String>(0)?).ok();
        known.extend(name.map(|name| (name, noted)));
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY_MS: u64 = 24 * 3600 * 1000;

    fn digest(n: u8) -> Digest {
        Digest::of([n])
    }

    fn set(all: &[u8]) -> BTreeSet<Digest> {
        all.iter().copied().map(digest).collect()
    }

    fn since(n: u8, since_ms: u64) -> (Digest, Known) {
        let seq = n.into();
        (digest(n), Known { seq, since_ms })
    }

    fn note(n: u8) -> Note {
        Note {
            name: digest(n),
            seq: n.into(),
        }
    }

    /// DUR-6: a value goes a day after it was first seen to be named by nobody, and not a moment before.
    #[test]
    fn dur_6_a_value_goes_when_nobody_has_named_it_for_a_day() {
        let stored = set(&[1, 2, 3, 4, 5]);
        let named = set(&[1, 4]);
        let known = BTreeMap::from([since(2, 1000), since(4, 0), since(5, 3000), since(6, 0)]);
        let verdict = judge(&stored, &named, &known, 1000 + DAY_MS);
        assert_eq!(verdict.unknown, [digest(3)]);
        assert_eq!(verdict.due, [note(2)]);
        assert_eq!(verdict.early, []);
        let void: BTreeSet<Digest> = verdict.void.into_iter().collect();
        assert_eq!(void, set(&[4, 6]), "named again, and gone");
        let before = judge(&stored, &named, &known, 999 + DAY_MS);
        assert_eq!(before.due, []);
        let set_back = judge(&stored, &named, &known, 2000);
        assert_eq!((set_back.early, set_back.due), (vec![digest(5)], vec![]));
    }

    /// DUR-6: while a log cannot be read to its end, or is gone, nobody knows what it names, and nothing goes.
    #[test]
    fn dur_6_nothing_goes_while_a_log_cannot_be_read() {
        let connection = Connection::open_in_memory().expect("opens");
        assert!(crate::schema::ensure(&connection).expect("makes"));
        let note = [note(1)];
        add(&connection, &note, 0).expect("notes");
        let session = SessionId::parse("s").expect("valid");
        let add_session = |name: &str, status: &str| {
            connection
                .execute(
                    "INSERT INTO session (name, status, updated_at_ms, account, info) VALUES (?1, ?2, 0, '', '')",
                    [name, status],
                )
                .expect("inserts");
        };
        let looked =
            |headed: &[SessionId]| look(&connection, &set(&[1]), headed, DAY_MS).expect("looks");
        let due = Found::Unnamed {
            unknown: Vec::new(),
            due: note.to_vec(),
        };
        assert_eq!(looked(&[]), due);
        let Found::Uncertain(why) = looked(std::slice::from_ref(&session)) else {
            panic!("a log is gone")
        };
        assert!(why.contains("the log of s is gone"), "{why}");
        add_session("s", "idle");
        assert_eq!(looked(std::slice::from_ref(&session)), due);
        add_session("t", DAMAGED);
        let Found::Uncertain(why) = looked(&[session]) else {
            panic!("a session is damaged")
        };
        assert!(why.contains("1 session(s) are damaged"), "{why}");
        drop_all(&connection, &note).expect("forgets");
        assert_eq!(known(&connection).expect("reads"), BTreeMap::new());
    }

    proptest! {
        #[test]
        fn dur_6_no_value_goes_that_is_named_or_new(
            stored in proptest::collection::vec(0_u8..12, 0..12),
            named in proptest::collection::vec(0_u8..12, 0..12),
            known in proptest::collection::vec((0_u8..12, 0..3 * DAY_MS), 0..12),
            now in 0..3 * DAY_MS,
        ) {
            let known = known.into_iter().map(|(n, at)| since(n, at)).collect();
            let (stored, named) = (set(&stored), set(&named));
            let verdict = judge(&stored, &named, &known, now);
            for due in &verdict.due {
                prop_assert!(stored.contains(&due.name) && !named.contains(&due.name));
                prop_assert!(now - known[&due.name].since_ms >= DAY_MS);
            }
            for name in &verdict.unknown {
                prop_assert!(stored.contains(name) && !named.contains(name) && !known.contains_key(name));
            }
        }
    }
}
