//! How an approval is shown: a fixed header that is derived from facts, and the raw argument bytes, whole.
//!
//! Nothing of it comes from the model but the arguments themselves, which are pure ASCII on the screen.

use std::fmt::Write as _;

use serde::Serialize;
use teamster_core::display;
use teamster_protocol::{
    Arguments, Digest,
    event::Settled,
    function::approval::{GetReply, Pending, Resolution},
    input::Decision,
    policy::Judgement,
    text,
};

use super::status::grouped;

/// A value's name as it stands in JSON, for example `workspace` or `read`.
pub(super) fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        Ok(other) => other.to_string(),
        Err(error) => error.to_string(),
    }
}

/// A reply as a document of the command line: the same fields, and a version.
pub(super) fn versioned(reply: &impl Serialize) -> serde_json::Value {
    let mut value = serde_json::to_value(reply).unwrap_or_default();
    match &mut value {
        serde_json::Value::Object(object) => {
            object.insert("v".to_owned(), 1.into());
            value
        }
        _ => serde_json::json!({ "v": 1, "value": value }),
    }
}

/// Rows as lines whose columns stand below each other, two spaces apart; the last one is as wide as it is.
pub(super) fn columns(rows: &[Vec<String>]) -> Vec<String> {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count).map(width).collect();
    rows.iter()
        .map(|row| {
            let cells = row.iter().zip(&widths);
            let cells: Vec<String> = cells
                .map(|(cell, width)| format!("{cell:<width$}"))
                .collect();
            cells.join("  ").trim_end().to_owned()
        })
        .collect()
}

/// What a call is about, in a few words: what its target names, else the command that it runs, else how its arguments begin.
pub(super) fn about(pending: &Pending) -> String {
    const BYTES_MAX: usize = 120;
    let argv = || {
        let argv: Vec<String> = serde_json::from_value(pending.arguments.pointer("/argv")?).ok()?;
        let words: Vec<_> = argv.iter().map(|word| text::shell(word)).collect();
        Some(words.join(" "))
    };
    let about = pending
        .judgement
        .target
        .clone()
        .or_else(argv)
        .unwrap_or_else(|| pending.arguments.as_str().to_owned());
    display::ascii(&text::cut(&about, BYTES_MAX))
}

/// The whole request for a decision.
pub(super) fn pending(pending: &Pending, now_ms: u64) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "approval   {}",
        display::ascii(pending.approval_id.as_str())
    );
    let _ = writeln!(
        text,
        "session    {}",
        display::ascii(pending.session_id.as_str())
    );
    let _ = writeln!(
        text,
        "function   {}",
        display::ascii(pending.function.as_str())
    );
    text.push_str(&judgement(&pending.judgement));
    let left = pending.expires_at_ms.saturating_sub(now_ms) / 1000;
    let _ = writeln!(text, "expires    {}", in_words(left));
    text.push_str(&arguments(&pending.arguments));
    text
}

/// What led to a judgement, line by line.
pub(super) fn judgement(judgement: &Judgement) -> String {
    let mut text = String::new();
    let labels = &judgement.labels;
    let _ = writeln!(
        text,
        "labels     class {}, data {}, {}",
        word(&labels.class),
        word(&labels.data),
        word(&labels.trust)
    );
    if let Some(target) = &judgement.target {
        let _ = writeln!(text, "target     {}", display::ascii(target));
    }
    let _ = writeln!(
        text,
        "rule       {} (layer {}, policy {})",
        display::ascii(&judgement.rule),
        display::ascii(&judgement.layer),
        judgement.policy.short()
    );
    text
}

/// The exact argument bytes, whole, with their number and digest, and a word on long runs of white space.
pub(super) fn arguments(arguments: &Arguments) -> String {
    let mut text = String::new();
    let raw = arguments.as_str();
    let _ = writeln!(
        text,
        "arguments  {} bytes, sha256 {}",
        grouped(raw.len() as u64),
        arguments.digest()
    );
    for blank in display::blanks(raw) {
        let _ = writeln!(text, "           {blank}");
    }
    let _ = writeln!(text, "{}", display::ascii(raw));
    text
}

/// The arguments so that a person can read them: each field apart, texts with their line ends. What runs is the bytes.
pub(super) fn details(arguments: &Arguments) -> String {
    let mut text = String::from("for reading only; what runs is the bytes above\n");
    let parsed = serde_json::from_str::<serde_json::Map<_, _>>(arguments.as_str());
    for (name, value) in parsed.unwrap_or_default() {
        let name = display::terminal(&name);
        let value = match value {
            serde_json::Value::String(value) => value,
            other => serde_json::to_string_pretty(&other).unwrap_or_default(),
        };
        let value = display::terminal(&value);
        if value.contains('\n') {
            let _ = writeln!(text, "{name}:");
            for line in value.lines() {
                let _ = writeln!(text, "  | {line}");
            }
        } else {
            let _ = writeln!(text, "{name}: {value}");
        }
    }
    text
}

/// What became of a request, in words.
pub(super) fn resolution(resolution: &Resolution) -> String {
    match resolution {
        Resolution::Decided {
            by,
            channel,
            decision,
            outcome,
            ..
        } => {
            let mut text = match decision {
                Decision::Approve => "approved".to_owned(),
                Decision::Edit { arguments } => {
                    format!("edited (now sha256 {})", arguments.digest().short())
                }
                Decision::Deny { reason: None } => "denied".to_owned(),
                Decision::Deny {
                    reason: Some(reason),
                } => {
                    format!("denied ({})", display::terminal(reason))
                }
            };
            let _ = write!(text, " by {by} through {}", display::terminal(channel));
            if let Some(outcome) = outcome {
                let _ = write!(text, "; the call came to: {}", word(outcome));
            }
            text
        }
        Resolution::Expired { .. } => "expired: nobody decided in time".to_owned(),
        Resolution::Withdrawn { .. } => "withdrawn: its turn ended first".to_owned(),
    }
}

/// What became of a request of a deleted session, in words.
pub(super) fn settled(settled: &Settled) -> String {
    match settled {
        Settled::Approved { by, .. } => format!("approved by {by}"),
        Settled::Edited { by, digest, .. } => {
            format!("edited (sha256 {}) by {by}", digest.short())
        }
        Settled::Denied { by, .. } => format!("denied by {by}"),
        Settled::Expired { .. } => "expired: nobody decided in time".to_owned(),
        Settled::Withdrawn { .. } => "withdrawn: its turn ended first".to_owned(),
    }
}

/// One request and what became of it.
pub(super) fn get(reply: &GetReply, now_ms: u64) -> String {
    let mut text = pending(&reply.request, now_ms);
    let became = reply
        .resolution
        .as_ref()
        .map_or_else(|| "waiting for a decision".to_owned(), resolution);
    let _ = writeln!(text, "state      {became}");
    text
}

/// A digest that a person typed: the whole of it.
pub(super) fn digest(text: &str) -> Result<Digest, String> {
    Digest::try_from(text.to_owned()).map_err(|error| error.to_string())
}

/// A time span for people, coarse.
pub(super) fn in_words(seconds: u64) -> String {
    match seconds {
        0 => "now".to_owned(),
        1..=119 => format!("in {seconds} s"),
        120..=7199 => format!("in {} min", seconds / 60),
        _ => format!("in {} h", seconds / 3600),
    }
}

/// Milliseconds since 1970.
pub(super) fn now_ms() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| {
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        })
}

/// A moment in UTC, to the second.
pub(super) fn moment(at_ms: u64) -> String {
    let seconds = at_ms / 1000;
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}Z",
        of_day / 3600,
        of_day / 60 % 60,
        of_day % 60
    )
}

/// A moment, or a dash where none is known.
pub(super) fn moment_or_none(at_ms: u64) -> String {
    if at_ms == 0 {
        "-".to_owned()
    } else {
        moment(at_ms)
    }
}

/// The date of a day since 1970, by the Gregorian calendar: years are counted from March, so that the leap day is last.
fn civil(days: u64) -> (u64, u64, u64) {
    let from_march_0 = days + 719_468;
    let era = from_march_0 / 146_097;
    let of_era = from_march_0 % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use teamster_protocol::{
        ApprovalId, CallId, FunctionId, SessionId, TurnId,
        policy::{Effect, Labels},
    };

    use super::*;

    fn request(raw: &str) -> Pending {
        let arguments = Arguments::parse(raw).expect("valid");
        Pending {
            approval_id: ApprovalId::parse("apr_1").expect("valid"),
            session_id: SessionId::parse("chat\u{202e}é").expect("valid"),
            turn_id: TurnId::parse("trn_1").expect("valid"),
            call_id: CallId::parse("call_1").expect("valid"),
            function: FunctionId::parse("fs::write").expect("valid"),
            digest: arguments.digest(),
            arguments_bytes: raw.len() as u64,
            arguments,
            judgement: Judgement {
                effect: Effect::Ask,
                layer: "workspace".to_owned(),
                rule: "0: ask fs::write".to_owned(),
                labels: Labels::default(),
                target: Some("a\u{202e}b".to_owned()),
                policy: Digest::ZERO,
                ask_ttl_ms: None,
            },
            requested_at_ms: 0,
            expires_at_ms: 90_000,
        }
    }

    /// APPR-4: what is shown is made from the exact bytes, and all of them.
    #[test]
    fn appr_4_the_whole_call_is_shown_in_ascii_with_its_digest() {
        let raw = format!(
            "{{\"path\":\"x\",\"content\":\"{}rm -rf /\u{1b}[2J\u{202e}\"}}",
            "é ".repeat(3000)
        );
        // The escape character stands raw in no JSON text, so the model must write it escaped.
        let raw = raw.replace('\u{1b}', "\\u001b");
        let shown = pending(&request(&raw), 0);
        assert!(
            shown
                .bytes()
                .all(|byte| byte == b'\n' || (b' '..=b'~').contains(&byte))
        );
        let line = shown.lines().last().expect("a line");
        assert_eq!(display::from_ascii(line).as_deref(), Some(raw.as_str()));
        assert!(shown.contains(&Digest::of(&raw).to_string()));
        assert!(shown.contains(&format!("{} bytes", grouped(raw.len() as u64))));
        assert!(shown.contains("expires    in 90 s"));
    }

    /// APPR-5: the header is short and the same for the same call.
    #[test]
    fn appr_5_the_header_is_fixed() {
        let header = |raw: &str| {
            let text = pending(&request(raw), 0);
            text.lines().take(7).map(str::to_owned).collect::<Vec<_>>()
        };
        let first = header("{\"a\":1}");
        assert_eq!(first.len(), 7);
        assert_eq!(first[2], "function   fs::write");
        assert_eq!(first, header("{\"a\":1}"));
    }

    #[test]
    fn details_are_read_and_drive_no_terminal() {
        let arguments =
            Arguments::parse(r#"{"path":"a.md","content":"one\ntwo\u001b[2J\n","n":[1]}"#)
                .expect("valid");
        let shown = details(&arguments);
        for part in [
            "path: a.md\n",
            "content:\n  | one\n  | two\\u{1b}[2J\n",
            "n:\n  | [\n",
        ] {
            assert!(shown.contains(part), "{shown}");
        }
        assert!(!shown.contains('\u{1b}'));
    }

    #[test]
    fn columns_stand_below_each_other() {
        let rows = [["a", "bb", "long text"], ["ccc", "ä", ""]];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(columns(&rows), ["a    bb  long text", "ccc  ä"]);
        assert!(columns(&[]).is_empty());
    }

    #[test]
    fn a_line_says_what_a_call_is_about() {
        for (arguments, target, says) in [
            (r#"{"argv":["sh","-c","echo hi"]}"#, None, "sh -c 'echo hi'"),
            (r#"{"argv":["rm","it's"]}"#, None, r"rm 'it'\''s'"),
            (r#"{"path":"a b","content":""}"#, Some("a b"), "a b"),
            (r#"{"what":"x"}"#, None, r#"{"what":"x"}"#),
            (r#"{"argv":"x"}"#, None, r#"{"argv":"x"}"#),
            ("{}", None, "{}"),
        ] {
            let mut pending = request(arguments);
            pending.judgement.target = target.map(str::to_owned);
            assert_eq!(about(&pending), says);
        }
        let long = request(&format!(r#"{{"argv":["{}\u001b"]}}"#, "x".repeat(500)));
        let shown = about(&long);
        assert!(shown.len() < 160 && shown.is_ascii(), "{shown}");
    }

    #[test]
    fn padding_is_counted() {
        let raw = format!("{{\"a\":\"x{}y\"}}", " ".repeat(1900));
        assert!(
            arguments(&Arguments::parse(raw).expect("valid")).contains("[1900 spaces at byte 7]")
        );
    }

    #[test]
    fn moments_are_dates() {
        for (at_ms, want) in [
            (0, "1970-01-01 00:00:00Z"),
            (951_782_400_000, "2000-02-29 00:00:00Z"),
            (1_709_251_199_999, "2024-02-29 23:59:59Z"),
            (1_796_083_200_000, "2026-12-01 00:00:00Z"),
            (4_107_542_400_000, "2100-03-01 00:00:00Z"),
        ] {
            assert_eq!(moment(at_ms), want);
        }
    }
}
