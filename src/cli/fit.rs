//! Whether what is configured fits what runs: a model that a provider has, hooks that somebody has bound. What does not fit is
//! good by itself and stops every turn.

use std::{fmt, time::Duration};

use serde_json::Value;
use teamster_mesh::registry::Catalog;
use teamster_protocol::{
    FunctionId,
    function::router::{ModelsGetRequest, UNKNOWN_MODEL},
    hook::Point,
    text,
};

use super::config;
use crate::{
    client::{Client, DirectCall, Error},
    config::section::named,
};

/// How long a router may take to say whether it knows a model.
const ANSWER: Duration = Duration::from_secs(3);

/// What does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unfit {
    /// What it is and what comes of it.
    pub(super) problem: String,
    /// What to type or change next.
    pub(super) next: String,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; next: {}", self.problem, self.next)
    }
}

/// What a change of `key` leaves that does not fit.
pub(super) async fn look(client: &Client, key: &str) -> Vec<Unfit> {
    let (section, within) = key.split_once('.').unwrap_or((key, ""));
    let mut found = Vec::new();
    if matches!(
        (section, within),
        ("router", _) | ("harness", "" | "default_model")
    ) {
        found.extend(model(client).await.and_then(Result::err));
    }
    if matches!((section, within), ("harness", "" | "required_hooks"))
        && let Ok(catalog) = client.catalog().await
    {
        found.extend(hooks(client, &catalog).await);
    }
    found
}

/// The model of turns that name none, as the router that runs knows it; `None` where nobody says.
pub(super) async fn model(client: &Client) -> Option<Result<String, Unfit>> {
    let model = in_force(client, "default_model").await?;
    let model = model.as_str()?.to_owned();
    let request = ModelsGetRequest {
        model: model.clone(),
    };
    let call = DirectCall {
        function: FunctionId::parse("router::models::get").ok()?,
        arguments: serde_json::to_vec(&request).ok()?.into(),
        session: None,
        workspace: None,
        timeout: ANSWER,
    };
    match client.call(call).await {
        Ok(_) => Some(Ok(model)),
        Err(Error::Fault(fault)) if fault.code == UNKNOWN_MODEL => Some(Err(Unfit {
            problem: format!(
                "turns that name no model ask for {model}, and {}: each of them fails",
                fault.message
            ),
            next: match fault.hint {
                Some(hint) => {
                    format!("`teamster config set harness.default_model PROVIDER/NAME` ({hint})")
                }
                None => "`teamster config set harness.default_model PROVIDER/NAME`".to_owned(),
            },
        })),
        Err(_) => None,
    }
}

/// Required hooks that nobody has bound, or whose worker does not live.
pub(super) async fn hooks(client: &Client, catalog: &Catalog) -> Vec<Unfit> {
    let Some(required) = required(client).await else {
        return Vec::new();
    };
    unbound(&required, catalog)
}

/// Workers whose hook must be bound before a call runs, as the harness that runs has it; `None` where none answers.
pub(super) async fn required(client: &Client) -> Option<Vec<String>> {
    let required = in_force(client, "required_hooks").await?;
    serde_json::from_value(required).ok()
}

fn unbound(required: &[String], catalog: &Catalog) -> Vec<Unfit> {
    let is_bound = |name: &str| {
        let mut hooks = catalog.hooks.iter();
        hooks.any(|(binding, worker)| binding.point == Point::PreTrigger && worker == name)
    };
    let lives = |name: &str| {
        let mut workers = catalog.workers.iter();
        workers.any(|worker| worker.name.as_str() == name)
    };
    required
        .iter()
        .filter_map(|name| {
            let what = match (is_bound(name), lives(name)) {
                (true, true) => return None,
                (true, false) => "does not run",
                (false, true) => "has bound no hook",
                (false, false) => "is not there",
            };
            let worker = text::operand(name);
            Some(Unfit {
                problem: format!(
                    "harness.required_hooks names {name}, which {what}: every call is denied"
                ),
                next: format!(
                    "start it (`teamster worker {worker}`, or your own), or take its name away: `teamster config explain \
                     harness.required_hooks` shows where it stands"
                ),
            })
        })
        .collect()
}

/// A value of the harness's section as it is in force.
async fn in_force(client: &Client, key: &str) -> Option<Value> {
    let status = config::status(client, named("harness")?).await?;
    let key = format!("harness.{key}");
    let mut values = status.values.into_iter();
    values
        .find(|value| value.key == key)
        .map(|value| value.value)
}

#[cfg(test)]
mod tests {
    use teamster_protocol::{
        hook::{Binding, Stage},
        id::{Incarnation, WorkerName},
        registry,
    };

    use super::*;

    #[test]
    fn a_required_hook_needs_a_binding_and_a_worker() {
        let worker = |name: &str| registry::Worker {
            name: WorkerName::parse(name).expect("a name"),
            incarnation: Incarnation::parse("1").expect("an incarnation"),
            version: String::new(),
            description: String::new(),
            functions: Vec::new(),
        };
        let hook = |name: &str| {
            let binding = Binding {
                point: Point::PreTrigger,
                function: FunctionId::parse("x::y").expect("an id"),
                priority: 0,
                stage: Stage::Judge,
                functions: Vec::new(),
                timeout_ms: None,
                on_error: None,
            };
            (binding, name.to_owned())
        };
        let catalog = Catalog {
            workers: vec![worker("whole").into(), worker("loose").into()],
            hooks: vec![hook("whole"), hook("dead")],
            ..Catalog::default()
        };
        for (name, says) in [
            ("whole", None),
            ("loose", Some("has bound no hook")),
            ("dead", Some("does not run")),
            ("nobody", Some("is not there")),
        ] {
            let found = unbound(&[name.to_owned()], &catalog);
            assert_eq!(found.len(), usize::from(says.is_some()), "{name}");
            for unfit in found {
                let text = unfit.to_string();
                assert!(text.contains(says.unwrap_or_default()), "{text}");
            }
        }
    }
}
