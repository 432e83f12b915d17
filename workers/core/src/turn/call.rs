//! What a call means, and whether a turn may make it at all.

use globset::{GlobBuilder, GlobMatcher};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use teamster_protocol::{
    Arguments, Contract, FunctionId, Visibility,
    message::{ResultKind, WireCall},
    policy::{Exposure, FunctionPolicy},
    text, wire_name,
};

/// The one tool of the exposure `agent_trigger`.
pub const AGENT_TRIGGER: &str = "agent_trigger";
/// Functions by which a model finds others; they may be called wherever anything may be called.
const DISCOVERY: [&str; 2] = ["engine::functions::list", "engine::functions::info"];
/// Bytes of a malformed argument text that are shown to the model again.
const ECHO_BYTES_MAX: usize = 800;

/// What a call means.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meant {
    /// The function, where the name alone says it. A native wire name whose id was cut is resolved by the table of what
    /// was offered, when the call is decided.
    pub function: Option<FunctionId>,
    /// The wire name.
    pub name: String,
    /// The exact argument bytes: the inner payload under `agent_trigger`.
    pub arguments: Arguments,
}

/// Reads a wire call. The error is for the model.
pub fn meaning(wire: &WireCall, exposure: Exposure) -> Result<Meant, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Trigger<'a> {
        function: String,
        #[serde(borrow)]
        payload: Option<&'a RawValue>,
    }
    let raw = if wire.arguments.trim().is_empty() {
        "{}"
    } else {
        wire.arguments.as_str()
    };
    let outer = Arguments::parse(raw).map_err(|error| {
        format!(
            "{error}. What came: {}",
            text::cut(&wire.arguments, ECHO_BYTES_MAX)
        )
    })?;
    if exposure == Exposure::Native || wire.name != AGENT_TRIGGER {
        let function = plain_function(&wire.name);
        return Ok(Meant {
            function,
            name: wire.name.clone(),
            arguments: outer,
        });
    }
    let trigger: Trigger<'_> = serde_json::from_str(outer.as_str()).map_err(|error| {
        format!("agent_trigger takes {{\"function\": \"…\", \"payload\": {{…}}}}: {error}")
    })?;
    let function = FunctionId::parse(trigger.function).map_err(|error| error.to_string())?;
    let payload = trigger.payload.map_or("{}", RawValue::get);
    let arguments = Arguments::parse(payload).map_err(|error| format!("payload: {error}"))?;
    Ok(Meant {
        function: Some(function),
        name: wire.name.clone(),
        arguments,
    })
}

/// The function whose wire name needs no table to be read back.
fn plain_function(name: &str) -> Option<FunctionId> {
    let id = FunctionId::parse(name.replace("__", "::")).ok()?;
    (wire_name::encode(&id) == name).then_some(id)
}

/// The compiled form of a turn's function policy.
#[derive(Debug, Clone, Default)]
pub struct Allowed {
    allow: Vec<GlobMatcher>,
    deny: Vec<GlobMatcher>,
    /// Whether a glob could not be read: then everything is denied.
    is_broken: bool,
}

impl Allowed {
    /// Compiles a policy. No policy allows nothing; a glob that cannot be read denies everything.
    pub fn compile(policy: Option<&FunctionPolicy>) -> Self {
        let Some(policy) = policy else {
            return Self::default();
        };
        let compile = |globs: &[String]| -> Result<Vec<GlobMatcher>, globset::Error> {
            globs
                .iter()
                .map(|glob| Ok(GlobBuilder::new(glob).build()?.compile_matcher()))
                .collect()
        };
        match (compile(&policy.allow), compile(&policy.deny)) {
            (Ok(allow), Ok(deny)) => Self {
                allow,
                deny,
                is_broken: false,
            },
            _ => Self {
                is_broken: true,
                ..Self::default()
            },
        }
    }

    /// Whether the function may be called: named by the policy, or one by which a model finds others.
    pub fn permits(&self, id: &FunctionId) -> bool {
        let is_discovery = DISCOVERY.contains(&id.as_str()) && !self.allow.is_empty();
        self.names(id) || (is_discovery && !self.is_broken && !matches(&self.deny, id))
    }

    /// Whether the policy itself names the function.
    pub fn names(&self, id: &FunctionId) -> bool {
        !self.is_broken && !matches(&self.deny, id) && matches(&self.allow, id)
    }

    /// Whether a model may call the function: permitted, and made for models.
    pub fn offers(&self, contract: &Contract) -> bool {
        contract.visibility == Visibility::Agent && self.permits(&contract.id)
    }
}

fn matches(globs: &[GlobMatcher], id: &FunctionId) -> bool {
    globs.iter().any(|glob| glob.is_match(id.as_str()))
}

/// A call that will not run, with the text that the model reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The kind.
    pub outcome: ResultKind,
    /// The text.
    pub text: String,
}

/// Whether the turn may make the call at all, before any hook is asked. `offered` are the contracts that the turn's model
/// may call.
pub fn admit<'a>(
    meant: &Result<Meant, String>,
    allowed: &Allowed,
    offered: &[&'a Contract],
) -> Result<&'a Contract, Refusal> {
    let invalid = |text: String| Refusal {
        outcome: ResultKind::Invalid,
        text,
    };
    let meant = meant.as_ref().map_err(|why| invalid(why.clone()))?;
    let named = |contract: &&&Contract| match &meant.function {
        Some(id) => contract.id == *id,
        None => wire_name::encode(&contract.id) == meant.name,
    };
    if let Some(contract) = offered.iter().find(named) {
        return Ok(contract);
    }
    match &meant.function {
        // Whether a function that is not allowed exists is nothing a model may find out.
        Some(id) if !allowed.permits(id) => Err(Refusal {
            outcome: ResultKind::DeniedByPolicy,
            text: format!(
                "the functions allowed to this turn do not include {id}{}",
                nearest(id.as_str(), offered)
            ),
        }),
        Some(id) => Err(invalid(format!(
            "there is no function {id}{}",
            nearest(id.as_str(), offered)
        ))),
        None => Err(invalid(format!(
            "there is no tool {:?}{}",
            text::cut(&meant.name, 80),
            nearest(&meant.name, offered)
        ))),
    }
}

/// Up to three offered functions whose names share most with `name`.
fn nearest(name: &str, offered: &[&Contract]) -> String {
    let words = |text: &str| -> Vec<String> {
        text.split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|word| !word.is_empty())
            .map(str::to_lowercase)
            .collect()
    };
    let wanted = words(name);
    let mut scored: Vec<(usize, &str)> = offered
        .iter()
        .map(|contract| {
            let shared = words(contract.id.as_str())
                .iter()
                .filter(|word| wanted.contains(word))
                .count();
            (shared, contract.id.as_str())
        })
        .collect();
    scored.sort_by(|one, other| other.0.cmp(&one.0).then(one.1.cmp(other.1)));
    let names: Vec<&str> = scored.iter().take(3).map(|(_, id)| *id).collect();
    if names.is_empty() {
        String::new()
    } else {
        format!("; near it: {}", names.join(", "))
    }
}
