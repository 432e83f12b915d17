//! What is known about models' windows: the configuration's word, then the router's, else an assumption.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use teamster_core::context::Window;
use teamster_mesh::{Mesh, config::Live, connection::Call};
use teamster_protocol::{
    Fault, FunctionId,
    function::router::{Model, ModelsGetRequest, UNKNOWN_MODEL},
    limits,
};
use tokio::time::Instant;

use crate::Config;

/// How long the router may take to say what it knows about a model.
const ROUTER_WAIT: Duration = Duration::from_millis(800);
/// A script reads no tokens; its window is one that no history fills.
const SCRIPT: u64 = 1_000_000;

/// What is known about models' windows.
pub(crate) struct Windows {
    config: Live<Config>,
    known: Mutex<HashMap<String, Card>>,
}

/// What the router said about a model; `None`: it does not know it.
#[derive(Clone)]
struct Card {
    at: Instant,
    model: Option<Model>,
}

impl Windows {
    pub(crate) fn new(config: Live<Config>) -> Self {
        Self {
            config,
            known: Mutex::default(),
        }
    }

    /// The window of a model, for an answer of `output` tokens.
    pub(crate) async fn of(&self, mesh: &Mesh, model: &str, output: u64) -> Window {
        if let Some(tokens) = self.config.load().windows.get(model) {
            return Window::known(*tokens, output);
        }
        let card = match self.remembered(model) {
            Some(card) => card.model,
            None => self.ask(mesh, model).await,
        };
        self.window(card.as_ref(), output)
    }

    fn window(&self, card: Option<&Model>, output: u64) -> Window {
        let Some(card) = card else {
            return Window::assumed(self.config.load().default_window, output);
        };
        let output = output.min(card.max_output_tokens.unwrap_or(u64::MAX));
        match card.context_window {
            Some(tokens) => Window::known(tokens, output),
            None if card.scripted => Window::known(SCRIPT, output),
            None => Window::assumed(self.config.load().default_window, output),
        }
    }

    fn remembered(&self, model: &str) -> Option<Card> {
        let card = self.known().get(model).cloned()?;
        (card.at.elapsed() < limits::CONTEXT_MODEL_TTL).then_some(card)
    }

    /// Asks the router. Where it does not answer, what it said before still holds.
    async fn ask(&self, mesh: &Mesh, model: &str) -> Option<Model> {
        let answer = match get(mesh, model).await {
            Ok(card) => Some(card),
            Err(fault) if fault.code == UNKNOWN_MODEL => None,
            Err(fault) => {
                tracing::warn!(model, error = %fault, "the router does not say how large a model's window is");
                return self.known().get(model).and_then(|card| card.model.clone());
            }
        };
        let is_unknown = answer
            .as_ref()
            .is_none_or(|card| card.context_window.is_none() && !card.scripted);
        if is_unknown {
            tracing::warn!(
                model,
                window = self.config.load().default_window,
                "the model's window is not known; name it in the configuration (context.windows)"
            );
        }
        let mut known = self.known();
        if known.len() >= limits::CONTEXT_MODELS_MAX {
            known.clear();
        }
        known.insert(
            model.to_owned(),
            Card {
                at: Instant::now(),
                model: answer.clone(),
            },
        );
        answer
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<String, Card>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn get(mesh: &Mesh, model: &str) -> Result<Model, Fault> {
    let invalid = |error: &dyn std::fmt::Display| Fault::internal("context.bad_reply", error);
    let function = FunctionId::parse("router::models::get").map_err(|error| invalid(&error))?;
    let request = ModelsGetRequest {
        model: model.to_owned(),
    };
    let body = serde_json::to_vec(&request).map_err(|error| invalid(&error))?;
    let call = Call {
        timeout: ROUTER_WAIT,
        ..Call::new(function, body)
    };
    let reply = mesh.call(call).await?;
    serde_json::from_slice(&reply).map_err(|error| invalid(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_router_says_how_large_a_window_is_and_else_it_is_assumed_small() {
        let windows = Windows::new(Live::new(Config::default()));
        let card = |context_window, scripted| Model {
            id: "p/m".to_owned(),
            context_window,
            max_output_tokens: Some(4000),
            price: None,
            scripted,
        };
        for (card, window) in [
            (
                Some(card(Some(100_000), false)),
                Window::known(100_000, 4000),
            ),
            (Some(card(None, true)), Window::known(SCRIPT, 4000)),
            (Some(card(None, false)), Window::assumed(8192, 4000)),
            (None, Window::assumed(8192, 8192)),
        ] {
            assert_eq!(windows.window(card.as_ref(), 8192), window);
        }
    }
}
