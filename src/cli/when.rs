//! Moments and days as people type them. Pure.
//!
//! A day is one of the clock that the user names with an offset from UTC: which rules the machine's time zone has is not
//! known here.

/// Milliseconds of a minute.
const MINUTE_MS: u64 = 60_000;
/// Milliseconds of a day.
const DAY_MS: u64 = 24 * 60 * MINUTE_MS;
/// The largest offset of a clock from UTC, in minutes.
const OFFSET_MAX: i32 = 14 * 60;

/// A moment as it was typed: so long ago, or on a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// So many milliseconds before now.
    Ago(u64),
    /// The beginning of a day, as milliseconds since 1970 on the user's clock.
    Day(u64),
}

impl When {
    /// In milliseconds since 1970.
    pub(super) fn at(self, now_ms: u64, offset_minutes: i32) -> u64 {
        match self {
            Self::Ago(ms) => now_ms.saturating_sub(ms),
            Self::Day(local_ms) => {
                let offset = u64::from(offset_minutes.unsigned_abs()) * MINUTE_MS;
                if offset_minutes >= 0 {
                    local_ms.saturating_sub(offset)
                } else {
                    local_ms.saturating_add(offset)
                }
            }
        }
    }
}

/// Reads `30m`, `24h`, `7d`, `2w` or a date.
pub(super) fn when(text: &str) -> Result<When, String> {
    if let Some(day) = date(text) {
        return Ok(When::Day(day));
    }
    let problem = || "write for example 24h, 7d, 2w or a date as 2026-11-30".to_owned();
    let unit = text.chars().next_back().ok_or_else(problem)?;
    let length = match unit {
        'm' => MINUTE_MS,
        'h' => 60 * MINUTE_MS,
        'd' => DAY_MS,
        'w' => 7 * DAY_MS,
        _ => return Err(problem()),
    };
    let number = text.strip_suffix(unit).unwrap_or_default();
    let is_plain = !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
    let number: u64 = number
        .parse()
        .ok()
        .filter(|_| is_plain)
        .ok_or_else(problem)?;
    number
        .checked_mul(length)
        .map(When::Ago)
        .ok_or_else(problem)
}

/// A day as milliseconds since 1970, without a zone.
fn date(text: &str) -> Option<u64> {
    let mut parts = text.split('-');
    let mut number = |digits: usize| {
        let part = parts.next()?;
        let is_plain = part.len() == digits && part.bytes().all(|digit| digit.is_ascii_digit());
        part.parse::<u64>().ok().filter(|_| is_plain)
    };
    let (year, month, day) = (number(4)?, number(2)?, number(2)?);
    if parts.next().is_some() || year < 1970 || !(1..=12).contains(&month) {
        return None;
    }
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let length = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    (1..=length)
        .contains(&day)
        .then(|| days(year, month, day) * DAY_MS)
}

/// Days since 1970: years are counted from March, so that the leap day is last.
fn days(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * month + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Reads an offset from UTC: `+02:00`, `-0530`, `Z`. In minutes.
pub(super) fn offset(text: &str) -> Result<i32, String> {
    let problem = || "write the offset of your clock from UTC, for example +02:00".to_owned();
    if text.eq_ignore_ascii_case("z") {
        return Ok(0);
    }
    let (sign, rest) = match (text.strip_prefix('+'), text.strip_prefix('-')) {
        (Some(rest), _) => (1, rest),
        (None, Some(rest)) => (-1, rest),
        (None, None) => return Err(problem()),
    };
    let digits = rest.replacen(':', "", 1);
    let is_plain = digits.len() == 4 && digits.bytes().all(|digit| digit.is_ascii_digit());
    let number: i32 = digits
        .parse()
        .ok()
        .filter(|_| is_plain)
        .ok_or_else(problem)?;
    let minutes = number / 100 * 60 + number % 100;
    if number % 100 > 59 || minutes > OFFSET_MAX {
        return Err(problem());
    }
    Ok(sign * minutes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read() {
        for (text, want) in [
            ("30m", Some(When::Ago(1_800_000))),
            ("7d", Some(When::Ago(7 * DAY_MS))),
            ("2w", Some(When::Ago(14 * DAY_MS))),
            ("1970-01-01", Some(When::Day(0))),
            ("2000-02-29", Some(When::Day(951_782_400_000))),
            ("2026-12-01", Some(When::Day(1_796_083_200_000))),
            ("2100-03-01", Some(When::Day(4_107_542_400_000))),
            ("2026-02-29", None),
            ("2026-13-01", None),
            ("1969-12-31", None),
            ("2026-1-1", None),
            ("", None),
            ("d", None),
            ("7", None),
            ("-7d", None),
            ("+7d", None),
            ("99999999999999999999d", None),
            ("18446744073709551615w", None),
            ("中", None),
        ] {
            assert_eq!(when(text).ok(), want, "{text}");
        }
    }

    #[test]
    fn a_day_begins_by_the_clock_of_the_user() {
        let day = When::Day(DAY_MS);
        assert_eq!(day.at(0, 120), DAY_MS - 120 * MINUTE_MS);
        assert_eq!(day.at(0, -330), DAY_MS + 330 * MINUTE_MS);
        assert_eq!(When::Ago(5).at(3, 0), 0);
    }

    #[test]
    fn offsets_are_read() {
        for (text, want) in [
            ("+02:00", Some(120)),
            ("-0530", Some(-330)),
            ("Z", Some(0)),
            ("+14:00", Some(840)),
            ("+14:01", None),
            ("+02:60", None),
            ("02:00", None),
            ("+2", None),
            ("+-200", None),
            ("", None),
        ] {
            assert_eq!(offset(text).ok(), want, "{text}");
        }
    }
}
