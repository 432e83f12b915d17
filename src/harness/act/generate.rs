//! Asks the router for a generation, joins one that an earlier owner began, and ends one that was stopped.

use std::time::Duration;

use teamster_core::turn::{
    Outcome, Sent,
    call::{AGENT_TRIGGER, Allowed},
    history,
    state::State,
};
use teamster_mesh::{connection::Call, near::Value, registry::Catalog};
use teamster_protocol::{
    Fault, FunctionId, RequestId,
    function::router::{
        AbortRequest, ChatRequest, Completion, CompletionError, ErrorKind, Model, ModelsGetRequest,
        Price, RunQuery, Tool,
    },
    limits,
    message::StopReason,
    policy::Exposure,
    subject,
    usage::Usage,
    wire_name,
};
use tokio::time::Instant;

use super::{
    Interrupt,
    context::{Prepared, prepare},
    decide::offered,
    interrupted,
};
use crate::harness::{
    shared::Harness,
    work::{GiveUp, Work},
};

/// The identity that a model gets where nobody says another.
const PROMPT: &str = include_str!("../../../prompts/default.md");
/// How long a router may be absent before the turn fails for want of one.
const ROUTER_ABSENCE: Duration = Duration::from_secs(5);
/// Pause between two questions whether a router is back.
const ROUTER_PAUSE: Duration = Duration::from_millis(100);
/// How long a stopped generation may take to say how far it came.
const ABORT_GRACE: Duration = Duration::from_millis(1500);
/// How long the router that may run a request has to say so.
const PROBE: Duration = Duration::from_millis(300);
/// Tries of one generation whose router was lost.
const TRIES_MAX: u32 = 4;

/// Makes the announced request.
pub(super) async fn generate(
    work: &mut Work<'_>,
    request: &RequestId,
) -> Result<Vec<Outcome>, GiveUp> {
    let prepared = match prepare(work).await {
        Ok(prepared) => prepared,
        Err(error) => return Ok(vec![unsendable(work, request, error)]),
    };
    let sent = prepared.sent.clone();
    let chat = ChatRequest {
        is_first: true,
        ..chat_request(work, request, prepared)
    };
    let trace = work.trace(Some(request.as_str()));
    let answer = chat_with_patience(work.harness, value(chat), trace.clone());
    let mut answer = std::pin::pin!(answer);
    let interrupt = tokio::select! {
        answer = &mut answer => return Ok(vec![outcome(work, request, answer, sent)]),
        interrupt = interrupted(work) => interrupt,
        // The turn's time is over: what has come is kept, and the machine ends the turn for that reason.
        () = tokio::time::sleep(work.time_left()) => Interrupt::Timeout,
    };
    match interrupt {
        // The router goes on; whoever has the session next joins it.
        Interrupt::Drain => Err(GiveUp::Handover),
        Interrupt::Stop | Interrupt::Timeout => {
            abort(work.harness, request, trace).await;
            let partial = tokio::time::timeout(ABORT_GRACE, answer).await;
            if interrupt == Interrupt::Timeout {
                return Ok(vec![match partial {
                    Ok(answer) => outcome(work, request, answer, sent),
                    Err(_) => failed(
                        work,
                        request,
                        ErrorKind::Transient,
                        "the turn's time was over before the model had answered",
                    ),
                }]);
            }
            work.drain_strictly = true;
            Ok(match partial {
                Ok(Ok(completion)) => vec![Outcome::Generated {
                    request: request.clone(),
                    completion,
                    sent,
                }],
                Ok(Err(_)) | Err(_) => Vec::new(),
            })
        }
    }
}

/// Finds out what became of a request that an earlier owner made.
pub(super) async fn recover(work: &Work<'_>, request: &RequestId) -> Outcome {
    let mesh = &work.harness.mesh;
    if let Ok(Some(completion)) = mesh.generations().get(request).await {
        // The plan is a function of the log: it is the one that the request was made with.
        let sent = prepare(work).await.map(|prepared| prepared.sent);
        return Outcome::Generated {
            request: request.clone(),
            completion,
            sent: sent.unwrap_or_default(),
        };
    }
    let query = serde_json::to_vec(&RunQuery::Join).unwrap_or_default();
    let probe = mesh
        .request(subject::generation_run(request), query.into(), PROBE)
        .await;
    if matches!(probe, Err(teamster_mesh::Error::NoResponders { .. })) {
        return Outcome::Lost(request.clone());
    }
    // Somebody runs it: the same request again joins it, or is answered from what was kept.
    let prepared = match prepare(work).await {
        Ok(prepared) => prepared,
        Err(error) => return unsendable(work, request, error),
    };
    let sent = prepared.sent.clone();
    let chat = value(chat_request(work, request, prepared));
    match mesh
        .call(chat_call(chat, work.trace(Some(request.as_str()))))
        .await
        .map(|bytes| serde_json::from_slice::<Completion>(&bytes))
    {
        Ok(Ok(completion)) => Outcome::Generated {
            request: request.clone(),
            completion,
            sent,
        },
        Ok(Err(_)) | Err(_) => Outcome::Lost(request.clone()),
    }
}

/// The price of a model, if the router knows one.
pub(in crate::harness) async fn price(
    harness: &Harness,
    model: &str,
    trace: Option<String>,
) -> Option<Price> {
    let function = FunctionId::parse("router::models::get").ok()?;
    let body = serde_json::to_vec(&ModelsGetRequest {
        model: model.to_owned(),
    })
    .ok()?;
    let call = Call {
        timeout: limits::BROKER_REQUEST,
        trace,
        ..Call::new(function, body)
    };
    let reply = harness.mesh.call(call).await.ok()?;
    serde_json::from_slice::<Model>(&reply).ok()?.price
}

/// A request as a router of the same process takes it.
fn value(mut chat: ChatRequest) -> Value {
    let messages = std::mem::take(&mut chat.messages);
    let rest = serde_json::to_vec(&chat).map_or(usize::MAX, |json| json.len());
    let bytes_max = messages
        .iter()
        .map(|message| history::json_bytes_max(message))
        .sum::<usize>();
    chat.messages = messages;
    Value::new(chat, bytes_max.saturating_add(rest))
}

fn chat_call(request: Value, trace: Option<String>) -> Call {
    let timeout = limits::GENERATION_MAX;
    match FunctionId::parse("router::chat") {
        Ok(function) => Call {
            timeout,
            trace,
            value: Some(request),
            ..Call::new(function, Vec::new())
        },
        Err(error) => unreachable!("a constant: {error}"),
    }
}

/// Calls the router; one that is restarting is waited for.
async fn chat_with_patience(
    harness: &Harness,
    request: Value,
    trace: Option<String>,
) -> Result<Completion, Fault> {
    let begun = Instant::now();
    loop {
        match harness
            .mesh
            .call(chat_call(request.clone(), trace.clone()))
            .await
        {
            Ok(reply) => {
                return serde_json::from_slice(&reply)
                    .map_err(|error| Fault::internal("router.bad_reply", error));
            }
            Err(fault)
                if fault.code == "mesh.no_responders" && begun.elapsed() < ROUTER_ABSENCE =>
            {
                tokio::time::sleep(ROUTER_PAUSE).await;
            }
            Err(fault) => return Err(fault),
        }
    }
}

fn outcome(
    work: &Work<'_>,
    request: &RequestId,
    answer: Result<Completion, Fault>,
    sent: Sent,
) -> Outcome {
    let tries = work
        .draft
        .state()
        .turn
        .as_ref()
        .and_then(|turn| turn.generation.as_ref())
        .map_or(0, |open| open.attempt);
    match answer {
        Ok(completion) => Outcome::Generated {
            request: request.clone(),
            completion,
            sent,
        },
        Err(fault) if matches!(fault.code.as_str(), "mesh.callee_lost" | "mesh.timeout") => {
            tracing::warn!(session = %work.session, %request, "the router was lost in mid-generation");
            if tries < TRIES_MAX {
                Outcome::Lost(request.clone())
            } else {
                failed(
                    work,
                    request,
                    ErrorKind::Transient,
                    "the router was lost again and again",
                )
            }
        }
        Err(fault) if fault.code == "mesh.no_responders" => failed(
            work,
            request,
            ErrorKind::NotConfigured,
            "no router answers; start one with `teamster up` or `teamster worker router`, then send again",
        ),
        Err(fault) => failed(work, request, ErrorKind::Rejected, &fault.to_string()),
    }
}

fn failed(work: &Work<'_>, request: &RequestId, kind: ErrorKind, message: &str) -> Outcome {
    let error = CompletionError {
        kind,
        message: message.to_owned(),
        hint: None,
    };
    unsendable(work, request, error)
}

/// The failure of a request that reached no provider.
fn unsendable(work: &Work<'_>, request: &RequestId, error: CompletionError) -> Outcome {
    let model = work.draft.state().options.model.clone().unwrap_or_default();
    Outcome::Generated {
        request: request.clone(),
        completion: Completion {
            parts: Vec::new(),
            stop: StopReason::Error,
            error: Some(error),
            usage: Usage::default(),
            cost: None,
            model,
            attempts: 0,
        },
        sent: Sent::default(),
    }
}

async fn abort(harness: &Harness, request: &RequestId, trace: Option<String>) {
    let Ok(function) = FunctionId::parse("router::abort") else {
        return;
    };
    let Ok(body) = serde_json::to_vec(&AbortRequest {
        request_id: request.clone(),
    }) else {
        return;
    };
    let call = Call {
        timeout: ABORT_GRACE,
        trace,
        ..Call::new(function, body)
    };
    if let Err(fault) = harness.mesh.call(call).await {
        tracing::warn!(%request, error = %fault, "a stopped generation could not be ended");
    }
}

fn chat_request(work: &Work<'_>, request: &RequestId, prepared: Prepared) -> ChatRequest {
    ChatRequest {
        request_id: request.clone(),
        session_id: Some(work.session.clone()),
        model: prepared.model,
        system_prompt: Some(prepared.system_prompt),
        messages: prepared.messages,
        tools: prepared.tools,
        max_output_tokens: Some(prepared.output),
        is_first: false,
    }
}

/// The system prompt of the coming generation: what the hooks made, else what the turn asks for, else the built-in one.
pub(super) fn system_prompt(state: &State) -> String {
    let made = state
        .turn
        .as_ref()
        .and_then(|turn| turn.system_prompt.clone());
    made.or_else(|| state.options.system_prompt.clone())
        .unwrap_or_else(|| PROMPT.to_owned())
}

/// What is offered to the model.
pub(super) fn tools(state: &State, allowed: &Allowed, catalog: &Catalog) -> Vec<Tool> {
    let Some(policy) = &state.options.functions else {
        return Vec::new();
    };
    if policy.expose == Exposure::AgentTrigger {
        return if policy.allow.is_empty() {
            Vec::new()
        } else {
            vec![agent_trigger()]
        };
    }
    offered(catalog, allowed)
        .into_iter()
        .filter(|contract| allowed.names(&contract.id))
        .map(|contract| Tool {
            name: wire_name::encode(&contract.id),
            description: contract.description.clone(),
            parameters: contract.request.clone().to_value(),
        })
        .collect()
}

fn agent_trigger() -> Tool {
    Tool {
        name: AGENT_TRIGGER.to_owned(),
        description: "Calls a function by its id. Find functions with engine::functions::list and their arguments with \
                      engine::functions::info."
            .to_owned(),
        parameters: serde_json::json!({
            "type": "object",
            "properties": {
                "function": {"type": "string", "description": "The function's id, for example fs::read."},
                "payload": {"type": "object", "description": "The function's arguments: an object, never a string."}
            },
            "required": ["function", "payload"],
            "additionalProperties": false
        }),
    }
}
