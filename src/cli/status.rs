//! The one status line of a running turn: replaced in place on a terminal, one line a step elsewhere.

use std::time::{Duration, Instant};

use teamster_core::display;
use teamster_protocol::usage::NanoUsd;

use super::output::Output;
use crate::client::session::Turn;

/// How often a line that is replaced in place is drawn.
const DRAW_EVERY: Duration = Duration::from_millis(200);

/// The status line.
#[derive(Debug)]
pub(super) struct Status {
    out: Output,
    since: Instant,
    is_drawn: bool,
    drawn_at: Option<Instant>,
    told: Option<String>,
}

impl Status {
    pub(super) fn new(out: &Output) -> Self {
        Self {
            out: out.clone(),
            since: Instant::now(),
            is_drawn: false,
            drawn_at: None,
            told: None,
        }
    }

    /// A turn begins: what was told of the one before does not count.
    pub(super) fn begin(&mut self) {
        self.since = Instant::now();
        self.told = None;
    }

    /// Shows where the turn stands.
    pub(super) fn show(&mut self, turn: &Turn) {
        if self.out.can_redraw() {
            if self.drawn_at.is_some_and(|at| at.elapsed() < DRAW_EVERY) {
                return;
            }
            self.drawn_at = Some(Instant::now());
            self.is_drawn = true;
            self.out
                .raw(&format!("\r\x1b[K{}", line(turn, self.since.elapsed())));
        } else {
            let what = format!("{} {}", turn.step, doing(turn));
            if self.told.as_ref() != Some(&what) && turn.end.is_none() {
                self.out.note(&line(turn, self.since.elapsed()));
                self.told = Some(what);
            }
        }
    }

    /// Takes the line away, so that something else can be written.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.is_drawn) {
            self.drawn_at = None;
            self.out.raw("\r\x1b[K");
        }
    }

    /// Says something that stays.
    pub(super) fn note(&mut self, text: &str) {
        self.clear();
        self.out.note(text);
    }

    /// The last line of a turn, which stays.
    pub(super) fn end(&mut self, turn: &Turn) {
        self.clear();
        self.out.note(&summary(turn));
    }
}

fn doing(turn: &Turn) -> String {
    match &turn.running {
        Some(function) => display::terminal(function.as_str()),
        None if turn.generating.is_some() => "thinking".to_owned(),
        None if !turn.pending.is_empty() => "waiting for a decision".to_owned(),
        None => "working".to_owned(),
    }
}

/// Where a turn stands: step, function, elapsed time, tokens, money.
pub(super) fn line(turn: &Turn, elapsed: Duration) -> String {
    let mut parts = vec![
        format!("step {}", u64::from(turn.step) + 1),
        doing(turn),
        seconds(elapsed),
    ];
    parts.extend(spent(turn));
    parts.join(" · ")
}

/// What a turn came to.
pub(super) fn summary(turn: &Turn) -> String {
    let took = turn
        .ended_at_ms
        .map(|end| Duration::from_millis(end.saturating_sub(turn.started_at_ms)));
    let mut parts = vec![
        turn.end
            .as_ref()
            .map_or("not ended", |reason| reason.status())
            .to_owned(),
        counted(u64::from(turn.step) + 1, "step"),
    ];
    parts.extend(took.map(seconds));
    parts.extend(spent(turn));
    if let Some(model) = &turn.model {
        parts.push(label(model));
    }
    parts.join(" · ")
}

/// A model's name, with a word where it is no model.
pub(super) fn label(model: &str) -> String {
    let name = display::terminal(model);
    if is_scripted(model) {
        format!("{name} (a script, no model)")
    } else {
        name
    }
}

/// Whether a model's name belongs to the scripted provider.
pub(super) fn is_scripted(model: &str) -> bool {
    model.starts_with("scripted/")
}

fn spent(turn: &Turn) -> Vec<String> {
    let mut parts = Vec::new();
    let tokens = turn.usage.total();
    if tokens > 0 {
        let about = if turn.usage.estimated { "about " } else { "" };
        parts.push(format!("{about}{} tokens", grouped(tokens)));
    }
    // What is known to be free is not worth a word here.
    let cost = turn.cost.filter(|cost| *cost > NanoUsd(0));
    parts.extend(money(cost, turn.cost_is_partial));
    parts
}

/// Money that was spent, in the words of every verb; `None` where nothing was. What a model without a known price cost is never
/// shown as zero.
pub(super) fn money(known: Option<NanoUsd>, has_unpriced: bool) -> Option<String> {
    match known {
        Some(known) if has_unpriced && known > NanoUsd(0) => {
            Some(format!("{} and what is unpriced", dollars(known)))
        }
        _ if has_unpriced => Some("unpriced".to_owned()),
        known => known.map(dollars),
    }
}

/// Money in a column, marked where something of it is unpriced: [`UNPRICED`] stands below.
pub(super) fn money_cell(known: NanoUsd, has_unpriced: bool) -> String {
    match (known, has_unpriced) {
        (NanoUsd(0), true) => "unpriced*".to_owned(),
        (known, true) => format!("{}*", dollars(known)),
        (known, false) => dollars(known),
    }
}

/// What stands below a table that has marks.
pub(super) const UNPRICED: &str = "* and what is unpriced: the price of some models is not known, and what they cost is not in the sum";

/// Money in dollars, exact: at least four digits behind the point, as many as it takes.
fn dollars(money: NanoUsd) -> String {
    let digits = format!("{:09}", money.0 % 1_000_000_000);
    let kept = digits.trim_end_matches('0').len().max(4);
    let digits: String = digits.chars().take(kept).collect();
    format!("${}.{digits}", grouped(money.0 / 1_000_000_000))
}

/// A duration for people.
pub(super) fn seconds(duration: Duration) -> String {
    let whole = duration.as_secs();
    if whole >= 60 {
        format!("{} min {:02} s", whole / 60, whole % 60)
    } else {
        format!("{:.1} s", duration.as_secs_f64())
    }
}

/// A number of things, in words.
pub(super) fn counted(number: u64, thing: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{} {thing}{ending}", grouped(number))
}

/// A number with its thousands apart.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use teamster_protocol::usage::Usage;

    use super::*;

    #[test]
    fn what_is_unknown_is_said_and_never_shown_as_zero() {
        let mut turn = Turn {
            usage: Usage {
                input: 1_234_567,
                ..Usage::default()
            },
            cost_is_partial: true,
            ..Turn::default()
        };
        assert_eq!(spent(&turn), ["1,234,567 tokens", "unpriced"]);
        turn.cost = Some(NanoUsd(0));
        assert_eq!(spent(&turn), ["1,234,567 tokens", "unpriced"]);
        turn.cost = Some(NanoUsd(1_500_000));
        assert_eq!(spent(&turn)[1], "$0.0015 and what is unpriced");
        turn.cost_is_partial = false;
        assert_eq!(spent(&turn)[1], "$0.0015");
    }

    /// Each verb has its words for money from here, so that one thing has one name.
    #[test]
    fn money_has_one_wording_in_text_and_one_in_tables() {
        for (known, has_unpriced, text, cell) in [
            (Some(0), false, Some("$0.0000"), "$0.0000"),
            (Some(1_500_000), false, Some("$0.0015"), "$0.0015"),
            (
                Some(1_500_000),
                true,
                Some("$0.0015 and what is unpriced"),
                "$0.0015*",
            ),
            (Some(0), true, Some("unpriced"), "unpriced*"),
            (None, true, Some("unpriced"), "unpriced*"),
            (None, false, None, "$0.0000"),
        ] {
            let money_of = money(known.map(NanoUsd), has_unpriced);
            assert_eq!(money_of.as_deref(), text, "{known:?}");
            let known = NanoUsd(known.unwrap_or(0));
            assert_eq!(money_cell(known, has_unpriced), cell, "{known:?}");
        }
        assert!(UNPRICED.starts_with("* and what is unpriced"));
    }

    #[test]
    fn money_is_exact() {
        for (nano, want) in [
            (0, "$0.0000"),
            (1, "$0.000000001"),
            (1_500_000, "$0.0015"),
            (1_234_567_890, "$1.23456789"),
            (1_234_000_000_000, "$1,234.0000"),
            (u64::MAX, "$18,446,744,073.709551615"),
        ] {
            assert_eq!(dollars(NanoUsd(nano)), want);
        }
    }

    #[test]
    fn durations_and_numbers_are_for_people() {
        assert_eq!(seconds(Duration::from_millis(1250)), "1.2 s");
        assert_eq!(seconds(Duration::from_secs(61)), "1 min 01 s");
        assert_eq!(
            [grouped(0), grouped(999), grouped(1000), grouped(1_000_000)],
            ["0", "999", "1,000", "1,000,000"]
        );
    }

    #[test]
    fn steps_are_counted_from_one() {
        let mut turn = Turn::default();
        for (step, words) in [(0, "1 step"), (1, "2 steps")] {
            turn.step = step;
            assert!(summary(&turn).contains(words), "{}", summary(&turn));
            let line = line(&turn, Duration::ZERO);
            assert!(line.starts_with(&format!("step {} ", step + 1)), "{line}");
        }
        assert!(!summary(&Turn::default()).contains("steps"));
    }

    #[test]
    fn a_script_is_never_shown_as_a_model() {
        assert_eq!(
            label("scripted/guided"),
            "scripted/guided (a script, no model)"
        );
        assert_eq!(label("openai/gpt"), "openai/gpt");
    }
}
