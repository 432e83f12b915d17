//! Whether and when a failed request is made again. Pure.
//!
//! Owns: the plan after a failure, and the reading of `Retry-After`. Invariants: attempts and waits are bounded; the same
//! seed gives the same wait.
//!
//! Never: waiting. The caller has made sure that nothing was visible yet.

use teamster_protocol::function::router::ErrorKind;

use crate::config::Retry;

/// Attempts of one generation, whatever is configured.
const ATTEMPTS_MAX: u32 = 10;

/// What to do after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plan {
    /// Try again after a wait.
    Retry {
        /// How long, in milliseconds.
        wait_ms: u64,
    },
    /// Give up.
    GiveUp,
    /// Give up because the provider asks for a longer wait than is allowed.
    WaitTooLong {
        /// How long it asks to wait, in milliseconds.
        wait_ms: u64,
    },
}

/// Plans what follows the `attempt`th failure (from 1) of kind `kind`, when the provider asked to wait `retry_after_ms`.
pub fn plan(
    retry: &Retry,
    attempt: u32,
    kind: ErrorKind,
    retry_after_ms: Option<u64>,
    seed: u64,
) -> Plan {
    if !kind.is_transient() {
        return Plan::GiveUp;
    }
    match retry_after_ms {
        Some(wait_ms) if wait_ms > retry.retry_after_max_ms => Plan::WaitTooLong { wait_ms },
        _ if attempt >= retry.attempts_max.min(ATTEMPTS_MAX) => Plan::GiveUp,
        Some(wait_ms) => Plan::Retry { wait_ms },
        None => Plan::Retry {
            wait_ms: backoff(retry, attempt, seed),
        },
    }
}

/// The wait after the `attempt`th failure: doubled each time, capped, spread between half and full by the seed.
fn backoff(retry: &Retry, attempt: u32, seed: u64) -> u64 {
    let doublings = attempt.saturating_sub(1).min(32);
    let full = retry
        .base_ms
        .saturating_mul(1 << doublings)
        .min(retry.cap_ms);
    let half = full / 2;
    half + mix(seed ^ u64::from(attempt)) % (full - half + 1)
}

/// A seed from what identifies a request.
pub fn seed(text: &str) -> u64 {
    // FNV-1a: nothing depends on its quality beyond that two sessions do not wait in step.
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn mix(seed: u64) -> u64 {
    let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Reads a `Retry-After` value: seconds, a fraction, or an HTTP date. In milliseconds from `now_ms`; `None`: unreadable.
pub fn retry_after_ms(value: &str, now_ms: u64) -> Option<u64> {
    let value = value.trim();
    if value.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
        return decimal_ms(value);
    }
    Some(http_date_ms(value)?.saturating_sub(now_ms))
}

/// Milliseconds of a decimal number of seconds, rounded up to one.
fn decimal_ms(value: &str) -> Option<u64> {
    let (whole, fraction) = value.split_once('.').unwrap_or((value, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(whole) || !is_digits(fraction) || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    // A number beyond u64 is a wait beyond every bound.
    let seconds: u64 = if whole.is_empty() {
        0
    } else {
        whole.parse().unwrap_or(u64::MAX)
    };
    let thousandths: String = fraction.chars().chain("000".chars()).take(3).collect();
    let has_rest = fraction.bytes().skip(3).any(|byte| byte != b'0');
    Some(
        seconds
            .saturating_mul(1000)
            .saturating_add(thousandths.parse().ok()?)
            .saturating_add(u64::from(has_rest)),
    )
}

/// Milliseconds since 1970 of an HTTP date in its one current form, `Sun, 06 Nov 1994 08:49:37 GMT`.
fn http_date_ms(value: &str) -> Option<u64> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (_, date) = value.split_once(", ")?;
    let fields: Vec<&str> = date.split(' ').collect();
    let [day, month, year, time, "GMT"] = fields.as_slice() else {
        return None;
    };
    let clock: Vec<u64> = time
        .split(':')
        .map(str::parse)
        .collect::<Result<_, _>>()
        .ok()?;
    let [hour, minute, second] = clock.as_slice() else {
        return None;
    };
    let (day, year): (u64, u64) = (day.parse().ok()?, year.parse().ok()?);
    let month = MONTHS.iter().position(|name| name == month)? as u64 + 1;
    if !(1..=31).contains(&day)
        || !(1970..=9999).contains(&year)
        || *hour > 23
        || *minute > 59
        || *second > 60
    {
        return None;
    }
    let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    Some(seconds * 1000)
}

/// Days from 1970-01-01 to a date from then on, in the Gregorian calendar.
fn days(year: u64, month: u64, day: u64) -> u64 {
    // Years begin in March, so that the leap day is the last one.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1 - 719_468
}

/// A moment in milliseconds since 1970 as `YYYY-MM-DD HH:MM:SS UTC`.
pub fn utc(at_ms: u64) -> String {
    let seconds = at_ms / 1000;
    let (mut day, clock) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let era = day / 146_097;
    day %= 146_097;
    let year_of_era = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (year_of_era * 365 + year_of_era / 4 - year_of_era / 100);
    let shifted = (day_of_year * 5 + 2) / 153;
    let (month, carry) = if shifted < 10 {
        (shifted + 3, 0)
    } else {
        (shifted - 9, 1)
    };
    let year = era * 400 + year_of_era + carry;
    let day = day_of_year - (shifted * 153 + 2) / 5 + 1;
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC",
        clock / 3600,
        clock / 60 % 60,
        clock % 60
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: u64 = 1_700_000_000_000;

    #[test]
    fn retry_1_every_form_of_retry_after_is_read() {
        for (value, want) in [
            ("2", Some(2_000)),
            ("0", Some(0)),
            (" 1.5 ", Some(1_500)),
            ("0.0001", Some(1)),
            (".25", Some(250)),
            ("99999999999999999999999", Some(u64::MAX)),
            ("Tue, 14 Nov 2023 22:13:25 GMT", Some(5_000)),
            ("Tue, 14 Nov 2000 22:13:25 GMT", Some(0)),
            ("abc", None),
            ("", None),
            ("-1", None),
            ("1e9", None),
            ("Wed, 32 Oct 2099 07:28:00 GMT", None),
            ("Wed, 21 Okt 2099 07:28:00 GMT", None),
        ] {
            assert_eq!(retry_after_ms(value, NOW), want, "{value}");
        }
        let far = retry_after_ms("Wed, 21 Oct 2099 07:28:00 GMT", NOW).expect("a date");
        assert_eq!(utc(NOW + far), "2099-10-21 07:28:00 UTC");
    }

    #[test]
    fn retry_1_a_wait_beyond_the_maximum_fails_with_the_time() {
        let retry = Retry::default();
        let plan = |after| plan(&retry, 1, ErrorKind::RateLimited, after, 7);
        assert_eq!(plan(Some(2_000)), Plan::Retry { wait_ms: 2_000 });
        assert_eq!(plan(Some(30_001)), Plan::WaitTooLong { wait_ms: 30_001 });
        assert!(matches!(plan(None), Plan::Retry { wait_ms: 250..=500 }));
    }

    #[test]
    fn retry_2_attempts_are_bounded_and_only_transient_kinds_are_tried_again() {
        let retry = Retry::default();
        assert!(matches!(
            plan(&retry, 2, ErrorKind::Transient, None, 7),
            Plan::Retry { .. }
        ));
        assert_eq!(plan(&retry, 3, ErrorKind::Transient, None, 7), Plan::GiveUp);
        assert_eq!(
            plan(&retry, 3, ErrorKind::Transient, Some(1), 7),
            Plan::GiveUp
        );
        for kind in [
            ErrorKind::Quota,
            ErrorKind::Auth,
            ErrorKind::Rejected,
            ErrorKind::ContextOverflow,
            ErrorKind::NotConfigured,
        ] {
            assert_eq!(plan(&retry, 1, kind, Some(1), 7), Plan::GiveUp);
        }
        let endless = Retry {
            attempts_max: u32::MAX,
            ..retry
        };
        assert_eq!(
            plan(&endless, 10, ErrorKind::Transient, None, 7),
            Plan::GiveUp
        );
    }

    #[test]
    fn moments_are_written_for_people() {
        for (at_ms, want) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400_000, "2000-02-29 00:00:00 UTC"),
            (1_709_164_799_000, "2024-02-28 23:59:59 UTC"),
            (4_102_444_800_000, "2100-01-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(at_ms), want);
        }
    }

    proptest! {
        #[test]
        fn waits_lie_between_half_and_full(attempt in 1_u32..12, seed: u64) {
            let retry = Retry { attempts_max: 10, ..Retry::default() };
            let full = (500_u64 << (attempt - 1)).min(8_000);
            let wait = backoff(&retry, attempt, seed);
            prop_assert!((full / 2..=full).contains(&wait));
            prop_assert_eq!(wait, backoff(&retry, attempt, seed));
        }

        #[test]
        fn a_date_is_read_back(seconds in 0_u64..250_000_000_000) {
            let text = utc(seconds * 1000);
            let (date, time) = text.trim_end_matches(" UTC").split_once(' ').expect("two parts");
            let numbers: Vec<u64> = date.split('-').chain(time.split(':')).map(|part| part.parse().expect("a number")).collect();
            let back = days(numbers[0], numbers[1], numbers[2]) * 86_400 + numbers[3] * 3600 + numbers[4] * 60 + numbers[5];
            prop_assert_eq!(back, seconds);
        }

        #[test]
        fn no_value_panics(value in ".{0,40}") {
            let _ = retry_after_ms(&value, NOW);
        }
    }
}
