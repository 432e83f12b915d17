//! The form of a policy file. Reading compiles it: what was read can be judged with.

use std::{fmt, marker::PhantomData};

use globset::{GlobBuilder, GlobMatcher, GlobSet, GlobSetBuilder};
use serde::{
    Deserialize,
    de::{self, Deserializer, SeqAccess, Visitor, value::StrDeserializer},
};
use teamster_protocol::{
    arguments::NoDuplicates,
    contract::{Class, Data, Trust},
    limits,
    policy::Effect,
};

use super::{Error, LAYER_BUILT_IN, LAYER_DEFAULTS, nearest, when::When};

/// All classes, from loose to strict.
pub(super) const CLASSES: [Class; 5] = [
    Class::Read,
    Class::Write,
    Class::Exec,
    Class::Destructive,
    Class::Egress,
];

/// A policy file as it was read.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(rename = "version")]
    _version: Version,
    /// Effects of classes for calls that no rule speaks about.
    #[serde(default)]
    pub(super) defaults: Defaults,
    /// Groups of rules.
    #[serde(default)]
    pub(super) layers: Vec<Layer>,
}

impl File {
    /// Reads a file's text.
    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        if text.len() > limits::YAML_BYTES_MAX {
            return Err(Error::TooLong);
        }
        let file: Self = serde_yaml::from_str(text).map_err(|error| form(&error))?;
        // A mapping without fixed keys takes the last of two in silence.
        serde_yaml::from_str::<NoDuplicates>(text).map_err(|error| form(&error))?;
        let mut names: Vec<&str> = file
            .layers
            .iter()
            .map(|layer| layer.name.as_str())
            .collect();
        names.sort_unstable();
        let twice = names.windows(2).find_map(|pair| match pair {
            [one, two] if one == two => Some((*one).to_owned()),
            _ => None,
        });
        if let Some(layer) = twice {
            return Err(Error::Twice { layer });
        }
        if file
            .layers
            .iter()
            .map(|layer| layer.rules.len())
            .sum::<usize>()
            > limits::POLICY_RULES_MAX
        {
            return Err(Error::TooManyRules);
        }
        Ok(file)
    }
}

fn form(error: &serde_yaml::Error) -> Error {
    let location = error.location();
    let (line, column) = location
        .map(|location| (location.line(), location.column()))
        .unzip();
    let mut message = error.to_string();
    // The parser appends the place; ours stands in front.
    if let (Some(line), Some(column)) = (line, column) {
        let suffix = format!(" at line {line} column {column}");
        message = message.replace(&suffix, "");
    }
    let hint = nearest::hint(&message);
    let message = teamster_protocol::form::words(&message);
    Error::Form {
        line,
        column,
        message: teamster_protocol::text::cut(&message, limits::FAULT_TEXT_BYTES_MAX / 2),
        hint,
    }
}

/// The version of the form: 1.
#[derive(Debug, Deserialize)]
#[serde(try_from = "u64")]
struct Version;

impl TryFrom<u64> for Version {
    type Error = String;

    fn try_from(version: u64) -> Result<Self, String> {
        match version {
            1 => Ok(Self),
            other => Err(format!(
                "version {other} is not known: this build reads version 1"
            )),
        }
    }
}

/// Effects by class; one that is left out says nothing.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Defaults {
    read: Option<Effect>,
    write: Option<Effect>,
    exec: Option<Effect>,
    destructive: Option<Effect>,
    egress: Option<Effect>,
}

impl Defaults {
    /// The effect of a class, if the file names it.
    pub(super) fn of(&self, class: Class) -> Option<Effect> {
        match class {
            Class::Read => self.read,
            Class::Write => self.write,
            Class::Exec => self.exec,
            Class::Destructive => self.destructive,
            Class::Egress => self.egress,
        }
    }
}

/// A named group of rules.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Layer {
    /// Its name, unique in the stack.
    #[serde(deserialize_with = "layer_name")]
    pub(super) name: String,
    /// Its rules; their order does not matter.
    #[serde(default)]
    pub(super) rules: Vec<Rule>,
}

fn layer_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let name = String::deserialize(deserializer)?;
    let is_word = (1..=64).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    if !is_word {
        return Err(de::Error::custom(
            "the name of a layer has 1 to 64 letters, digits, `_` or `-`",
        ));
    }
    if name == LAYER_DEFAULTS || name == LAYER_BUILT_IN {
        return Err(de::Error::custom(format_args!(
            "the layer name `{name}` is reserved"
        )));
    }
    Ok(name)
}

/// One rule: an effect and the conditions under which it holds, all of them.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "RawRule")]
pub(super) struct Rule {
    /// What it says.
    pub(super) effect: Effect,
    /// The function id.
    pub(super) function: Option<FunctionGlob>,
    /// The class, one of these.
    pub(super) class: Option<List<Class>>,
    /// The data label, one of these.
    pub(super) data: Option<List<Data>>,
    /// The trust label, one of these.
    pub(super) trust: Option<List<Trust>>,
    /// The target, one of these globs.
    pub(super) target: Option<Targets>,
    /// The arguments.
    pub(super) when: Option<When>,
    /// How long its question may wait, in seconds.
    pub(super) ttl_s: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    effect: Effect,
    function: Option<FunctionGlob>,
    class: Option<List<Class>>,
    data: Option<List<Data>>,
    trust: Option<List<Trust>>,
    target: Option<Targets>,
    when: Option<When>,
    ttl_s: Option<u64>,
}

impl TryFrom<RawRule> for Rule {
    type Error = String;

    fn try_from(raw: RawRule) -> Result<Self, String> {
        if let Some(ttl_s) = raw.ttl_s {
            let max = limits::APPROVAL_TTL_MAX.as_secs();
            if raw.effect != Effect::Ask {
                return Err("`ttl_s` is for rules with `effect: ask` only".to_owned());
            }
            if ttl_s == 0 || ttl_s > max {
                return Err(format!("`ttl_s` must be 1 to {max} seconds"));
            }
        }
        Ok(Self {
            effect: raw.effect,
            function: raw.function,
            class: raw.class,
            data: raw.data,
            trust: raw.trust,
            target: raw.target,
            when: raw.when,
            ttl_s: raw.ttl_s,
        })
    }
}

impl Rule {
    /// The rule on one line, for judgements.
    pub(super) fn text(&self) -> String {
        let mut parts = vec![effect_word(self.effect).to_owned()];
        if let Some(class) = &self.class {
            parts.push(join(class.0.iter().map(|class| class_word(*class))));
        }
        if let Some(data) = &self.data {
            parts.push(join(data.0.iter().map(|data| data_word(*data))));
        }
        if let Some(trust) = &self.trust {
            parts.push(join(trust.0.iter().map(|trust| trust_word(*trust))));
        }
        if let Some(function) = &self.function {
            parts.push(function.text.clone());
        }
        if let Some(target) = &self.target {
            parts.push(format!(
                "target {}",
                join(target.texts.iter().map(String::as_str))
            ));
        }
        if let Some(when) = &self.when {
            parts.push(format!("when {}", join(when.pointers())));
        }
        parts.join(" ")
    }
}

fn join<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.collect::<Vec<_>>().join(",")
}

/// The word that a policy file has for an effect.
pub(super) fn effect_word(effect: Effect) -> &'static str {
    match effect {
        Effect::Allow => "allow",
        Effect::Ask => "ask",
        Effect::Deny => "deny",
    }
}

/// The word that a policy file has for a class.
pub(super) fn class_word(class: Class) -> &'static str {
    match class {
        Class::Read => "read",
        Class::Write => "write",
        Class::Exec => "exec",
        Class::Destructive => "destructive",
        Class::Egress => "egress",
    }
}

fn data_word(data: Data) -> &'static str {
    match data {
        Data::Public => "public",
        Data::Business => "business",
        Data::Personal => "personal",
    }
}

fn trust_word(trust: Trust) -> &'static str {
    match trust {
        Trust::Trusted => "trusted",
        Trust::Untrusted => "untrusted",
    }
}

/// A glob over function ids; `*` matches any characters, `::` included.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct FunctionGlob {
    matcher: GlobMatcher,
    text: String,
}

impl FunctionGlob {
    /// Whether a function id is meant.
    pub(super) fn is_match(&self, id: &str) -> bool {
        self.matcher.is_match(id)
    }
}

impl TryFrom<String> for FunctionGlob {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Ok(Self {
            matcher: glob(&text, false, false)?.compile_matcher(),
            text,
        })
    }
}

/// Globs over targets; `*` stays within one part of a path, `**` does not.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "List<String>")]
pub(super) struct Targets {
    exact: GlobSet,
    folded: GlobSet,
    texts: Vec<String>,
}

impl Targets {
    /// Whether a target matches one of the globs.
    pub(super) fn is_match(&self, target: &str) -> bool {
        self.exact.is_match(target)
    }

    /// The globs as they were written.
    pub(super) fn texts(&self) -> &[String] {
        &self.texts
    }

    /// Whether a target matches one of the globs, letter case aside.
    pub(super) fn is_match_folded(&self, target: &str) -> bool {
        self.folded.is_match(target)
    }
}

impl TryFrom<List<String>> for Targets {
    type Error = String;

    fn try_from(List(texts): List<String>) -> Result<Self, String> {
        let set = |is_folded: bool| {
            let mut set = GlobSetBuilder::new();
            for text in &texts {
                set.add(glob(text, true, is_folded)?);
            }
            set.build().map_err(|error| error.to_string())
        };
        Ok(Self {
            exact: set(false)?,
            folded: set(true)?,
            texts,
        })
    }
}

/// Builds a glob: one that separates at `/`, or one that does not; with or without regard to letter case.
fn glob(text: &str, is_separated: bool, is_folded: bool) -> Result<globset::Glob, String> {
    if text.is_empty() || text.len() > limits::GLOB_BYTES_MAX {
        return Err(format!("a glob has 1 to {} bytes", limits::GLOB_BYTES_MAX));
    }
    GlobBuilder::new(text)
        .literal_separator(is_separated)
        .case_insensitive(is_folded)
        .build()
        .map_err(|error| format!("the glob {text:?} cannot be used: {}", error.kind()))
}

/// One word or a list of words.
#[derive(Debug, Clone)]
pub(super) struct List<T>(Vec<T>);

impl<T: PartialEq> List<T> {
    /// Whether the word is in it.
    pub(super) fn contains(&self, word: &T) -> bool {
        self.0.contains(word)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Lists<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Lists<T> {
            type Value = List<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a word or a list of words")
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<List<T>, E> {
                T::deserialize(StrDeserializer::new(word)).map(|word| List(vec![word]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<List<T>, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    if list.len() >= limits::RULE_LIST_MAX {
                        return Err(de::Error::custom(format_args!(
                            "a list has at most {} words",
                            limits::RULE_LIST_MAX
                        )));
                    }
                    list.push(item);
                }
                if list.is_empty() {
                    return Err(de::Error::custom("an empty list matches nothing"));
                }
                Ok(List(list))
            }
        }

        deserializer.deserialize_any(Lists(PhantomData))
    }
}
