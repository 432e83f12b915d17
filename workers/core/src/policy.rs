//! Policy: whether a call may run, must be asked about, or must not run.
//!
//! Owns: the policy file's form, the stack of layers, the judgement. Invariants: the judgement is total and depends on
//! nothing but its arguments; evaluation is deny-first over the whole stack (any deny, else any ask, else any allow, else
//! the default of the call's class), so the order of layers never changes an effect and no rule lifts another's deny;
//! what cannot be evaluated counts for a deny and an ask and against an allow.
//!
//! Never: a file, a clock, a person's decision. The gate reads the file, holds calls and takes decisions.
//!
//! # Layering
//!
//! The compiled-in policy ([`COMPILED_IN`]) is the bottom of the stack. A user's file is laid on top: the defaults that it
//! names replace the compiled-in ones, its layers are added. Naming a layer `workspace` replaces the compiled-in layer of
//! that name; `secrets` cannot be replaced.
//!
//! # Targets
//!
//! The contract's `target` points at the argument that names the resource. It is a path when the function is of the
//! namespaces `fs` or `sandbox` or the pointer's last part says so (`path`, `file`, `dir`, ...). Paths are judged relative
//! to the workspace, without `.` and empty parts, and in the letter case they have; a path with `..`, or an absolute one
//! outside of the workspace, is denied whatever the rules say. Other targets (hosts, mail addresses) are judged as they
//! are; denies and asks match them without regard to letter case.

mod below;
pub mod burst;
mod error;
mod file;
mod nearest;
mod target;
mod when;

use teamster_protocol::{
    Arguments, Class, Contract, Digest, Visibility, limits,
    policy::{Effect, Judgement, Labels},
    text,
};

pub use self::error::Error;
use self::{
    file::{File, Layer, Rule},
    target::Target,
    when::Match,
};

/// The compiled-in policy file.
pub const COMPILED_IN: &str = include_str!("../../../config/policy.yaml");
/// The layer under which class defaults are reported.
pub const LAYER_DEFAULTS: &str = "defaults";
/// The layer under which the rules that no file can change are reported.
pub const LAYER_BUILT_IN: &str = "built-in";
/// The compiled-in layer that no user's file can replace.
pub const LAYER_SECRETS: &str = "secrets";

/// A stack of layers, ready to judge.
#[derive(Debug, Clone)]
pub struct Policy {
    defaults: [(Class, Effect); 5],
    layers: Vec<Layer>,
    digest: Digest,
}

impl Policy {
    /// The compiled-in policy alone.
    pub fn compiled_in() -> Result<Self, Error> {
        let file = File::parse(COMPILED_IN)?;
        // A class that a file does not name asks.
        let defaults =
            file::CLASSES.map(|class| (class, file.defaults.of(class).unwrap_or(Effect::Ask)));
        Ok(Self {
            defaults,
            layers: file.layers,
            digest: Digest::of_fields(&[COMPILED_IN.as_bytes()]),
        })
    }

    /// The compiled-in policy with the text of a user's file laid on top. Refused as a whole where any part of it is
    /// wrong; the error names line, column and the nearest known word.
    pub fn layered(user: &str) -> Result<Self, Error> {
        let mut policy = Self::compiled_in()?;
        let file = File::parse(user)?;
        for (class, effect) in &mut policy.defaults {
            if let Some(wanted) = file.defaults.of(*class) {
                *effect = wanted;
            }
        }
        for layer in file.layers {
            if layer.name == LAYER_SECRETS {
                return Err(Error::Fixed { layer: layer.name });
            }
            match policy.layers.iter_mut().find(|old| old.name == layer.name) {
                Some(old) => *old = layer,
                None => policy.layers.push(layer),
            }
        }
        policy.digest = Digest::of_fields(&[COMPILED_IN.as_bytes(), user.as_bytes()]);
        Ok(policy)
    }

    /// What identifies this policy: a digest of the files that it was made of.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The names of the layers, bottom first.
    pub fn layers(&self) -> impl Iterator<Item = &str> {
        self.layers.iter().map(|layer| layer.name.as_str())
    }

    fn default_of(&self, class: Class) -> Effect {
        self.defaults
            .iter()
            .find(|(named, _)| *named == class)
            .map_or(Effect::Ask, |(_, effect)| *effect)
    }
}

/// A call as rules see it.
struct Call<'a> {
    contract: &'a Contract,
    labels: Labels,
    arguments: Option<serde_json::Value>,
    target: Target,
}

/// What decided.
struct Decided {
    effect: Effect,
    layer: String,
    rule: String,
}

/// Judges a call that a model wants. The same function enforces and explains.
pub fn judge(
    policy: &Policy,
    contract: &Contract,
    arguments: &Arguments,
    workspace: Option<&str>,
) -> Judgement {
    let value: Option<serde_json::Value> = arguments.read().ok();
    let call = Call {
        contract,
        labels: Labels {
            class: contract.class,
            data: contract.data,
            trust: contract.trust,
        },
        target: Target::of(contract, value.as_ref(), workspace),
        arguments: value,
    };
    let decided = built_in(&call)
        .or_else(|| strictest(policy, &call))
        .unwrap_or_else(|| {
            let effect = policy.default_of(call.labels.class);
            Decided {
                effect,
                layer: LAYER_DEFAULTS.to_owned(),
                rule: format!(
                    "{}: {}",
                    file::class_word(call.labels.class),
                    file::effect_word(effect)
                ),
            }
        });
    Judgement {
        effect: decided.effect,
        layer: decided.layer,
        rule: decided.rule,
        labels: call.labels,
        target: call.target.shown(),
        policy: policy.digest,
        ask_ttl_ms: (decided.effect == Effect::Ask)
            .then(|| shortest_wait(policy, &call))
            .flatten(),
    }
}

/// The stricter of two judgements of one call; the first where they are equally strict.
pub fn stricter(one: Judgement, two: Judgement) -> Judgement {
    if two.effect > one.effect { two } else { one }
}

/// The rules that no file can change.
fn built_in(call: &Call<'_>) -> Option<Decided> {
    let rule = if call.contract.visibility != Visibility::Agent {
        "0: deny a function that models may not call"
    } else if matches!(call.target, Target::Outside(_)) {
        "1: deny a path that leaves the workspace"
    } else {
        return None;
    };
    Some(Decided {
        effect: Effect::Deny,
        layer: LAYER_BUILT_IN.to_owned(),
        rule: rule.to_owned(),
    })
}

/// The first rule of the strictest effect among those that apply.
fn strictest(policy: &Policy, call: &Call<'_>) -> Option<Decided> {
    let mut found: Option<Decided> = None;
    let mut consider = |effect: Effect, layer: &Layer, rule: String| {
        if found.as_ref().is_none_or(|best| effect > best.effect) {
            found = Some(Decided {
                effect,
                layer: layer.name.clone(),
                rule: text::cut(&rule, limits::RULE_TEXT_BYTES_MAX),
            });
        }
    };
    for (layer, index, rule) in applying(policy, call) {
        consider(rule.effect, layer, format!("{index}: {}", rule.text()));
    }
    for (effect, layer, index, rule) in meeting(policy, call) {
        consider(
            effect,
            layer,
            format!("{index}: {} (speaks of what lies below)", rule.text()),
        );
    }
    found
}

/// The rules that do not speak about the target of a search, but about what it may meet below. The layer of secrets is not among
/// them: a search leaves out what is in it.
fn meeting<'a>(
    policy: &'a Policy,
    call: &'a Call<'_>,
) -> impl Iterator<Item = (Effect, &'a Layer, usize, &'a Rule)> {
    let layers = policy
        .layers
        .iter()
        .filter(|layer| layer.name != LAYER_SECRETS && below::is_search(call.contract.id.as_str()));
    layers.flat_map(move |layer| {
        let rules = layer.rules.iter().enumerate();
        rules.filter_map(move |(index, rule)| {
            let globs = rule.target.as_ref().filter(|_| names(rule, call))?;
            let when = rule
                .when
                .as_ref()
                .map_or(Match::Yes, |when| when.matches(call.arguments.as_ref()));
            if when == Match::No {
                return None;
            }
            let paths = call.target.paths().iter();
            let effect = paths
                .filter_map(|path| below::effect(rule.effect, globs, path))
                .max()?;
            Some((effect, layer, index, rule))
        })
    })
}

/// The shortest wait that any applying ask states, so that the order of rules does not matter here either.
fn shortest_wait(policy: &Policy, call: &Call<'_>) -> Option<u64> {
    applying(policy, call)
        .filter(|(_, _, rule)| rule.effect == Effect::Ask)
        .filter_map(|(_, _, rule)| rule.ttl_s)
        .min()
        .map(|seconds| seconds.saturating_mul(1000))
}

fn applying<'a>(
    policy: &'a Policy,
    call: &'a Call<'_>,
) -> impl Iterator<Item = (&'a Layer, usize, &'a Rule)> {
    policy.layers.iter().flat_map(move |layer| {
        layer
            .rules
            .iter()
            .enumerate()
            .filter(move |(_, rule)| applies(rule, call))
            .map(move |(index, rule)| (layer, index, rule))
    })
}

/// Whether a rule speaks about such a function.
fn names(rule: &Rule, call: &Call<'_>) -> bool {
    rule.function
        .as_ref()
        .is_none_or(|glob| glob.is_match(call.contract.id.as_str()))
        && rule
            .class
            .as_ref()
            .is_none_or(|class| class.contains(&call.labels.class))
        && rule
            .data
            .as_ref()
            .is_none_or(|data| data.contains(&call.labels.data))
        && rule
            .trust
            .as_ref()
            .is_none_or(|trust| trust.contains(&call.labels.trust))
}

/// Whether a rule applies: all its conditions hold. One that cannot be evaluated holds for a deny and an ask only.
fn applies(rule: &Rule, call: &Call<'_>) -> bool {
    if !names(rule, call) {
        return false;
    }
    let target = rule
        .target
        .as_ref()
        .map_or(Match::Yes, |globs| call.target.matches(globs, rule.effect));
    let when = rule
        .when
        .as_ref()
        .map_or(Match::Yes, |when| when.matches(call.arguments.as_ref()));
    match target.and(when) {
        Match::Yes => true,
        Match::No => false,
        Match::Unknown => rule.effect != Effect::Allow,
    }
}

#[cfg(test)]
mod tests;
