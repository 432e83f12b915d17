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

/// What a look came to: values that nobody names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Those that were not noted yet.
    pub(crate) unknown: Vec<Digest>,
    /// Those that have been noted for long enough.
    pub(crate) due: Vec<Note>,
    /// Why those that were stored before a certain moment are not among them.
    pub(crate) kept: Option<String>,
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

/// `floor` is the place of the last value that a session may name of which not everything can be read.
fn judge(
    stored: &BTreeSet<Digest>,
    named: &BTreeSet<Digest>,
    known: &BTreeMap<Digest, Known>,
    floor: u64,
    now_ms: u64,
) -> Verdict {
    let kept_ms = u64::try_from(limits::VALUE_UNNAMED_KEPT.as_millis()).unwrap_or(u64::MAX);
    let mut verdict = Verdict::default();
    for (name, noted) in known {
        if !stored.contains(name) || named.contains(name) {
            verdict.void.push(*name);
        } else if noted.since_ms > now_ms {
            verdict.early.push(*name);
        } else if noted.seq > floor
            && now_ms - noted.since_ms >= kept_ms
            && verdict.due.len() < limits::VALUES_SWEPT_MAX
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

/// Looks which of the stored values nobody names. `headed` are the sessions that are known to have had a log, and `last` is where the
/// last value lay before anything was looked at.
pub(crate) fn look(
    connection: &Connection,
    stored: &BTreeSet<Digest>,
    headed: &[SessionId],
    last: u64,
    now_ms: u64,
) -> Result<Found, StoreError> {
    let (floor, kept) = uncertain(connection, headed, last)?;
    let named = names(connection, "SELECT DISTINCT sha256 FROM value")?;
    let verdict = judge(stored, &named, &known(connection)?, floor, now_ms);
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
    Ok(Found {
        unknown: verdict.unknown,
        due: verdict.due,
        kept,
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

/// Up to which place a stored value may be named by a session of which not everything can be read, and which sessions these are.
/// What such a session names was stored before that was noticed.
fn uncertain(
    connection: &Connection,
    headed: &[SessionId],
    last: u64,
) -> Result<(u64, Option<String>), StoreError> {
    let mut doubtful: BTreeSet<String> = BTreeSet::new();
    let mut damaged = connection.prepare_cached("SELECT name FROM session WHERE status = ?1")?;
    let mut rows = damaged.query([DAMAGED])?;
    while let Some(row) = rows.next()? {
        doubtful.insert(row.get(0)?);
    }
    let mut is_there = connection.prepare_cached("SELECT 1 FROM session WHERE name = ?1")?;
    for session in headed {
        if !is_there.exists([session.as_str()])? {
            doubtful.insert(session.as_str().to_owned());
        }
    }
    let names = serde_json::to_string(&doubtful)?;
    connection
        .prepare_cached("DELETE FROM doubt WHERE name NOT IN (SELECT value FROM json_each(?1))")?
        .execute([&names])?;
    connection
        .prepare_cached(
            "INSERT OR IGNORE INTO doubt (name, seq) SELECT value, ?2 FROM json_each(?1)",
        )?
        .execute(params![names, number(last)])?;
    let floor: Option<i64> =
        connection.query_row("SELECT max(seq) FROM doubt", [], |row| row.get(0))?;
    let kept = doubtful.first().map(|first| {
        format!(
            "{} session(s) are damaged or their logs are gone, the first is {first}; `teamster sessions ls --status damaged` lists \
             them",
            doubtful.len()
        )
    });
    Ok((floor.map_or(0, unsigned), kept))
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
        let verdict = judge(&stored, &named, &known, 0, 1000 + DAY_MS);
        assert_eq!(verdict.unknown, [digest(3)]);
        assert_eq!(verdict.due, [note(2)]);
        assert_eq!(verdict.early, []);
        let void: BTreeSet<Digest> = verdict.void.into_iter().collect();
        assert_eq!(void, set(&[4, 6]), "named again, and gone");
        let before = judge(&stored, &named, &known, 0, 999 + DAY_MS);
        assert_eq!(before.due, []);
        let set_back = judge(&stored, &named, &known, 0, 2000);
        assert_eq!((set_back.early, set_back.due), (vec![digest(5)], vec![]));
    }

    /// DUR-6: while a log cannot be read to its end, or is gone, nobody knows what it names: what was stored before that was
    /// noticed stays, and what was stored later goes as always.
    #[test]
    fn dur_6_what_is_older_than_a_damage_stays_while_it_lasts() {
        let connection = Connection::open_in_memory().expect("opens");
        assert!(crate::schema::ensure(&connection).expect("makes"));
        let notes = [note(1), note(9)];
        add(&connection, &notes, 0).expect("notes");
        let session = SessionId::parse("s").expect("valid");
        let headed = std::slice::from_ref(&session);
        let set_status = |name: &str, status: &str| {
            connection
                .execute(
                    "INSERT INTO session (name, status, updated_at_ms, account, info) VALUES (?1, ?2, 0, '', '')
                     ON CONFLICT (name) DO UPDATE SET status = ?2",
                    [name, status],
                )
                .expect("written");
        };
        let due = |headed: &[SessionId], last: u64| {
            let found = look(&connection, &set(&[1, 9]), headed, last, DAY_MS).expect("looks");
            let mut due = found.due;
            due.sort_by_key(|note| note.seq);
            (due, found.kept)
        };
        assert_eq!(due(&[], 5), (notes.to_vec(), None));
        let (left, why) = due(headed, 5);
        assert_eq!(left, [note(9)], "its log is gone");
        assert!(why.is_some_and(|why| why.contains("the first is s")));
        // Noticed once: what is stored later is not older.
        assert_eq!(due(headed, 20).0, [note(9)]);
        set_status("s", "idle");
        assert_eq!(due(headed, 20), (notes.to_vec(), None));
        set_status("t", DAMAGED);
        let (left, why) = due(headed, 20);
        assert_eq!(left, []);
        assert!(why.is_some_and(|why| why.contains("1 session(s) are damaged")));
        set_status("t", "idle");
        assert_eq!(due(headed, 20), (notes.to_vec(), None));
        drop_all(&connection, &notes).expect("forgets");
        assert_eq!(known(&connection).expect("reads"), BTreeMap::new());
    }

    proptest! {
        #[test]
        fn dur_6_no_value_goes_that_is_named_or_new(
            stored in proptest::collection::vec(0_u8..12, 0..12),
            named in proptest::collection::vec(0_u8..12, 0..12),
            known in proptest::collection::vec((0_u8..12, 0..3 * DAY_MS), 0..12),
            floor in 0_u64..12,
            now in 0..3 * DAY_MS,
        ) {
            let known = known.into_iter().map(|(n, at)| since(n, at)).collect();
            let (stored, named) = (set(&stored), set(&named));
            let verdict = judge(&stored, &named, &known, floor, now);
            for due in &verdict.due {
                prop_assert!(stored.contains(&due.name) && !named.contains(&due.name));
                prop_assert!(due.seq > floor);
                prop_assert!(now - known[&due.name].since_ms >= DAY_MS);
            }
            for name in &verdict.unknown {
                prop_assert!(stored.contains(name) && !named.contains(name) && !known.contains_key(name));
            }
        }
    }
}
