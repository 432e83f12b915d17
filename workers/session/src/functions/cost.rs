//! `session::cost`: tokens and money, added up.

use std::{collections::BTreeMap, sync::Arc};

use rusqlite::{OptionalExtension as _, params};
use teamster_mesh::{Ctx, Function};
use teamster_protocol::{
    Class, Fault, SessionId,
    function::session::{CostBy, CostReply, CostRequest, CostRow, CostSum},
    id::ParseError,
    limits,
    usage::{NanoUsd, Usage},
};

use crate::{
    account::{DAMAGED, DELETED},
    error::StoreError,
    projection::{About, Projection},
    store::{Db, number, unsigned},
};

/// Milliseconds of a day.
const DAY_MS: i64 = 24 * 3600 * 1000;
/// The time zone that is furthest ahead, and a little more.
const OFFSET_MINUTES_MAX: i32 = 18 * 60;

/// The function.
pub(super) fn function(projection: &Arc<Projection>) -> Result<Function, ParseError> {
    let contract = super::contract::<CostRequest, CostReply>(
        "session::cost",
        "Adds up tokens and money by session, model and day, deleted sessions included. The rows add up to the total exactly. \
         Of one session: of the one that has the name now, or else of those that had it.",
        Class::Read,
    )?;
    let projection = Arc::clone(projection);
    Ok(Function::new(contract, move |ctx, request| {
        cost(Arc::clone(&projection), ctx, request)
    }))
}

async fn cost(
    projection: Arc<Projection>,
    ctx: Ctx,
    request: CostRequest,
) -> Result<CostReply, Fault> {
    check(&request)?;
    let session = request.session_id.clone();
    let about = session.as_ref().map_or(About::All, About::Session);
    let found = projection
        .ask(&ctx, about, move |db| add_up(db, &request))
        .await?;
    match (found, session) {
        (None, Some(session)) => Err(super::get::unknown(&session)),
        (found, _) => Ok(found.unwrap_or(CostReply {
            rows: Vec::new(),
            total: CostSum::default(),
            incomplete: 0,
        })),
    }
}

fn check(request: &CostRequest) -> Result<(), Fault> {
    let bad = |message: &str| Err(Fault::caller("session.bad_request", message));
    for (index, by) in request.by.iter().enumerate() {
        if request.by.iter().take(index).any(|before| before == by) {
            return bad("`by` names each of session, model and day at most once");
        }
    }
    if request.utc_offset_minutes.abs() > OFFSET_MINUTES_MAX {
        return bad("no clock is more than 18 hours away from UTC");
    }
    Ok(())
}

/// What a sum is grouped by; the order of the fields is that of the question.
type Key = Vec<Part>;

/// One part of a group's name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// Its id, and whether it is deleted.
    Session(String, bool),
    Model(String),
    Day(i64),
}

/// Adds up; `None` if there is no such session.
fn add_up(db: &Db, request: &CostRequest) -> Result<Option<CostReply>, StoreError> {
    let within = match &request.session_id {
        None => None,
        Some(session) => match spender(db, session)? {
            Some(id) => Some(id),
            None => return Ok(None),
        },
    };
    let mut statement = db.connection()?.prepare_cached(
        "SELECT session.name, session.status = ?1 OR buried, model, at_ms, count, attempts, usage, cost, unpriced
         FROM generation JOIN session ON session.id = generation.session
         WHERE (?2 IS NULL OR generation.session = ?2 AND (session.status = ?1 OR NOT buried))
           AND at_ms >= ?3 AND (?4 IS NULL OR at_ms < ?4)",
    )?;
    let mut rows = statement.query(params![
        DELETED,
        within,
        number(request.since_ms.unwrap_or(0)),
        request.until_ms.map(number),
    ])?;
    let mut groups: BTreeMap<Key, CostSum> = BTreeMap::new();
    let mut total = CostSum::default();
    while let Some(row) = rows.next()? {
        let usage: Usage =
            serde_json::from_str(row.get_ref(6)?.as_str().map_err(rusqlite::Error::from)?)?;
        let one = CostSum {
            generations: unsigned(row.get(4)?),
            attempts: unsigned(row.get(5)?),
            usage,
            cost: NanoUsd(unsigned(row.get(7)?)),
            unpriced: unsigned(row.get(8)?),
        };
        let mut key = Key::new();
        for by in &request.by {
            key.push(match by {
                CostBy::Session => Part::Session(row.get(0)?, row.get(1)?),
                CostBy::Model => Part::Model(row.get(2)?),
                CostBy::Day => Part::Day(day(row.get(3)?, request.utc_offset_minutes)),
            });
        }
        add(&mut total, &one);
        add(groups.entry(key).or_default(), &one);
    }
    let rows = groups.into_iter().take(limits::COST_ROWS_MAX);
    Ok(Some(CostReply {
        rows: rows.map(|(key, sum)| named(key, sum)).collect(),
        total,
        incomplete: incomplete(db, within)?,
    }))
}

/// Sessions of whose logs not everything can be read, or of which nobody knows all that was spent in a part that was given up.
fn incomplete(db: &Db, within: Option<i64>) -> Result<u64, StoreError> {
    let count = db
        .connection()?
        .prepare_cached(
            "SELECT count(*) FROM session WHERE (?1 IS NULL OR id = ?1)
               AND (status = ?2 OR json_extract(account, '$.fold.state.loss.unknown') > 0)",
        )?
        .query_row(params![within, DAMAGED], |row| row.get(0))?;
    Ok(unsigned(count))
}

/// The number of the row of a session that is there or has spent something before it was deleted.
fn spender(db: &Db, session: &SessionId) -> Result<Option<i64>, StoreError> {
    Ok(db
        .connection()?
        .prepare_cached(
            "SELECT id FROM session WHERE name = ?1 AND (status <> ?2
               OR EXISTS (SELECT 1 FROM generation WHERE generation.session = session.id))",
        )?
        .query_row([session.as_str(), DELETED], |row| row.get(0))
        .optional()?)
}

fn add(sum: &mut CostSum, one: &CostSum) {
    sum.generations = sum.generations.saturating_add(one.generations);
    sum.attempts = sum.attempts.saturating_add(one.attempts);
    sum.usage.add(&one.usage);
    sum.cost = sum.cost.plus(one.cost);
    sum.unpriced = sum.unpriced.saturating_add(one.unpriced);
}

fn named(key: Key, sum: CostSum) -> CostRow {
    let mut row = CostRow {
        session_id: None,
        deleted: false,
        model: None,
        day: None,
        sum,
    };
    for part in key {
        match part {
            Part::Session(name, is_deleted) => {
                row.session_id = SessionId::parse(name).ok();
                row.deleted = is_deleted;
            }
            Part::Model(model) => row.model = Some(model),
            Part::Day(day) => row.day = Some(date(day)),
        }
    }
    row
}

/// The day of a moment, counted from 1970, by a clock that is so many minutes ahead of UTC.
fn day(at_ms: i64, offset_minutes: i32) -> i64 {
    at_ms
        .saturating_add(i64::from(offset_minutes) * 60_000)
        .div_euclid(DAY_MS)
}

/// A day as `2026-11-30`. The Gregorian calendar in eras of 400 years, which begin in March.
fn date(day: i64) -> String {
    let day = day.saturating_add(719_468);
    let era = day.div_euclid(146_097);
    let of_era = day.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    format!("{:04}-{month:02}-{of_month:02}", year + era * 400 + next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_that_of_the_askers_clock() {
        // 2026-11-30T23:30:00Z
        let at = 1_796_081_400_000;
        for (offset, want) in [
            (0, "2026-11-30"),
            (29, "2026-11-30"),
            (30, "2026-12-01"),
            (-23 * 60 - 31, "2026-11-29"),
        ] {
            assert_eq!(date(day(at, offset)), want, "{offset}");
        }
        for (days, want) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (20_787, "2026-11-30"),
        ] {
            assert_eq!(date(days), want);
        }
    }
}
