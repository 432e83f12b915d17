//! Which results are masked, and where results are cut, so that a request fits.
//!
//! Old results go first and many at once: a request that begins like the one before it is answered from the provider's
//! cache, so the beginning should change seldom. What the model is working with goes last.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use teamster_protocol::{CallId, Message, function::context::Plan, limits};

use super::{
    apply::History,
    estimate::{of_message, of_text},
    overflow::Overflow,
    window::Window,
};

/// The share of what is usable that masking goes down to, in percent.
const STRIDE: u64 = 60;
/// Estimated tokens that masking a result must save, as long as nothing forces it.
const SAVING_MIN: u64 = 32;

/// What a history must fit into, and what else the request holds.
#[derive(Debug, Clone, Copy)]
pub struct Ask {
    /// The model's window.
    pub window: Window,
    /// Estimated tokens of the system prompt.
    pub system_prompt: u64,
    /// Estimated tokens of the functions' schemas.
    pub functions: u64,
    /// The model's tokens for a thousand estimated ones.
    pub per_mille: u64,
    /// Requests for this answer that the provider refused as too large. Each halves what may be sent.
    pub refused: u32,
}

/// Fits a history into a window. A plan that is returned fits.
pub fn plan(history: &History<'_>, ask: &Ask) -> Result<Plan, Overflow> {
    let sums = Sums::of(history, ask);
    let per_mille = ask.per_mille.max(1);
    let usable = ask.window.usable().saturating_mul(1000) / per_mille;
    let cap = ask.window.result_bytes_max();
    let mut found = sums.fit(usable, cap);
    let mut limit = usable;
    if ask.refused > 0 {
        // The window is smaller than was believed. What was sent tells more about it than what was believed.
        let sent = found.as_ref().map_or(usable, |fitted| fitted.after);
        limit = sent.checked_shr(ask.refused).unwrap_or(0);
        found = sums.fit(limit, cap);
    }
    let scaled = |tokens: u64| tokens.saturating_mul(per_mille).div_ceil(1000);
    let Some(fitted) = found else {
        return Err(sums.overflow(ask, scaled, limit));
    };
    Ok(Plan {
        mask: fitted.mask.into_iter().cloned().collect(),
        result_bytes_max: fitted.cap as u64,
        window: ask.window.tokens,
        usable: if ask.refused == 0 {
            ask.window.usable()
        } else {
            scaled(limit)
        },
        tokens_before: scaled(fitted.before),
        tokens_after: scaled(fitted.after),
    })
}

/// The results of one call: one, in a sound history.
struct Answered<'a> {
    call: &'a CallId,
    /// Where the last of them stands.
    at: usize,
    is_masked: bool,
    messages: Vec<&'a Message>,
}

/// What a request is made of, in estimated tokens.
struct Sums<'a> {
    history: &'a History<'a>,
    /// Everything but results.
    fixed: u64,
    users: u64,
    assistant: u64,
    /// Oldest first.
    results: Vec<Answered<'a>>,
    /// Where the last turns begin.
    turns_from: usize,
}

/// A history that fits.
struct Fitted<'a> {
    /// New masks, oldest first.
    mask: Vec<&'a CallId>,
    cap: usize,
    before: u64,
    after: u64,
}

/// The sizes of all results under one cap.
struct Sizes {
    /// Whole, within the cap; and as a mark.
    each: Vec<(u64, u64)>,
}

impl<'a> Sums<'a> {
    fn of(history: &'a History<'a>, ask: &Ask) -> Self {
        let (mut users, mut assistant) = (0, 0);
        let mut by_call: BTreeMap<&CallId, Answered<'a>> = BTreeMap::new();
        for (at, message) in history.messages.iter().enumerate() {
            match &**message {
                Message::FunctionResult { call, .. } => {
                    let answered = by_call.entry(call).or_insert_with(|| Answered {
                        call,
                        at,
                        is_masked: history.masked.contains(call),
                        messages: Vec::new(),
                    });
                    answered.at = at;
                    answered.messages.push(message);
                }
                Message::Assistant { .. } => assistant += of_message(message),
                other => users += of_message(other),
            }
        }
        let mut results: Vec<Answered<'a>> = by_call.into_values().collect();
        results.sort_by_key(|answered| answered.at);
        Self {
            history,
            fixed: ask.system_prompt + ask.functions + users + assistant,
            users,
            assistant,
            results,
            turns_from: turns_from(history.messages),
        }
    }

    fn sizes(&self, cap: usize) -> Sizes {
        let each = self.results.iter().map(|answered| {
            answered.messages.iter().fold((0, 0), |(whole, mark), one| {
                let (added, marked) = self.size(one, cap);
                (whole + added, mark + marked)
            })
        });
        Sizes {
            each: each.collect(),
        }
    }

    /// Tokens of one result within a cap, and of its mark.
    fn size(&self, message: &Message, cap: usize) -> (u64, u64) {
        let Message::FunctionResult {
            call,
            function,
            text,
            ..
        } = message
        else {
            return (0, 0);
        };
        let frame = of_message(message) - of_text(text);
        let whole = frame + of_text(&self.history.cut(call, text, cap));
        let mark = frame + of_text(&self.history.mark(call, function.as_ref(), text));
        (whole, mark)
    }

    fn total(&self, sizes: &Sizes, mask: &BTreeSet<&CallId>) -> u64 {
        let results = self.results.iter().zip(&sizes.each);
        let shown = results.map(|(answered, (whole, mark))| {
            if answered.is_masked || mask.contains(answered.call) {
                *mark
            } else {
                *whole
            }
        });
        self.fixed + shown.sum::<u64>()
    }

    fn fit(&self, usable: u64, cap: usize) -> Option<Fitted<'a>> {
        let sizes = self.sizes(cap);
        let mut mask = BTreeSet::new();
        let before = self.total(&sizes, &mask);
        let mut after = before;
        let stride = usable * STRIDE / 100;
        let newest_from = self.newest_from(&sizes, usable);
        for bound in [newest_from.min(self.turns_from), newest_from] {
            if after > usable {
                after = self.mask_before(bound, stride, SAVING_MIN, &sizes, &mut mask, after);
            }
        }
        let (mut cap, mut sizes) = (cap, sizes);
        while after > usable && cap > limits::RESULT_BYTES_MIN {
            cap = (cap / 2).max(limits::RESULT_BYTES_MIN);
            sizes = self.sizes(cap);
            after = self.total(&sizes, &mask);
        }
        if after > usable {
            after = self.mask_before(usize::MAX, usable, 1, &sizes, &mut mask, after);
        }
        (after <= usable).then(|| Fitted {
            mask: self
                .results
                .iter()
                .filter(|answered| mask.contains(answered.call))
                .map(|answered| answered.call)
                .collect(),
            cap,
            before,
            after,
        })
    }

    /// Masks results that stand before `bound`, oldest first, until no more than `goal` is left. Returns what is left.
    fn mask_before(
        &self,
        bound: usize,
        goal: u64,
        saving_min: u64,
        sizes: &Sizes,
        mask: &mut BTreeSet<&'a CallId>,
        total: u64,
    ) -> u64 {
        let mut left = total;
        for (answered, (whole, mark)) in self.results.iter().zip(&sizes.each) {
            if left <= goal || answered.at >= bound {
                break;
            }
            let saving = whole.saturating_sub(*mark);
            if !answered.is_masked && saving >= saving_min && mask.insert(answered.call) {
                left -= saving;
            }
        }
        left
    }

    /// Where the newest results begin, which the model is working with: the last one, and as many before it as fit.
    fn newest_from(&self, sizes: &Sizes, usable: u64) -> usize {
        let room = limits::CONTEXT_NEWEST_TOKENS.min(usable / 4);
        let mut tokens = 0;
        let mut from = usize::MAX;
        for (answered, (whole, _)) in self.results.iter().zip(&sizes.each).rev() {
            if tokens > room {
                break;
            }
            tokens += whole;
            from = answered.at;
        }
        from
    }

    fn overflow(&self, ask: &Ask, scaled: impl Fn(u64) -> u64, limit: u64) -> Overflow {
        let sizes = self.sizes(limits::RESULT_BYTES_MIN);
        let results = sizes.each.iter().map(|(whole, mark)| whole.min(mark)).sum();
        Overflow {
            window: ask.window.tokens,
            certainty: ask.window.certainty,
            usable: scaled(limit).min(ask.window.usable()),
            refused: ask.refused,
            system_prompt: scaled(ask.system_prompt),
            functions: scaled(ask.functions),
            users: scaled(self.users),
            assistant: scaled(self.assistant),
            results: scaled(results),
        }
    }
}

/// Where the last turns begin: at the first of the messages of users that opened them.
fn turns_from(messages: &[Arc<Message>]) -> usize {
    let is_user = |message: &Arc<Message>| matches!(**message, Message::User { .. });
    let mut turns = 0;
    for (at, message) in messages.iter().enumerate().rev() {
        let before = at.checked_sub(1).and_then(|before| messages.get(before));
        if is_user(message) && !before.is_some_and(is_user) {
            turns += 1;
            if turns == limits::CONTEXT_TURNS_KEPT {
                return at;
            }
        }
    }
    0
}
