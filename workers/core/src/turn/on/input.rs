//! What an input means: a message, a stop, a decision, a result from outside, a timer, administration.

use teamster_protocol::{
    ApprovalId, Event, Message,
    event::{DropReason, EndReason},
    input::{Control, Decide, Decision, Deliver, Send, Stop, Timer},
    message::ResultKind,
    text,
};

use crate::context;
use crate::turn::state::State;

use super::{
    Incoming, Input,
    admin::{delete, on_admin},
    close,
};

pub(super) fn on_input(state: &State, incoming: &Incoming, at_ms: u64) -> Vec<Event> {
    let drop = |why: DropReason| {
        vec![Event::InputDropped {
            lane: incoming.lane,
            seq: incoming.seq,
            why,
        }]
    };
    let consumed = incoming.consumed(state);
    if state.consumed(&consumed.id).is_some() {
        return drop(DropReason::Duplicate);
    }
    match &incoming.input {
        Input::Malformed(message) => drop(DropReason::Malformed {
            message: message.clone(),
        }),
        Input::Message(send) => on_message(state, send),
        Input::Control(Control::Stop(stop)) => on_stop(state, stop).unwrap_or_else(drop),
        Input::Control(Control::Decide(decide)) => {
            on_decision(state, decide, at_ms).unwrap_or_else(drop)
        }
        Input::Control(Control::Result(deliver)) => {
            on_delivery(state, deliver).unwrap_or_else(drop)
        }
        Input::Control(Control::Admin(admin)) => {
            on_admin(state, admin, incoming.seq, at_ms).unwrap_or_else(drop)
        }
        Input::Deletion { admin, queued } => {
            delete(state, admin, *queued, incoming.seq, at_ms).unwrap_or_else(drop)
        }
        Input::Refused { why, .. } => drop(why.clone()),
        Input::Control(Control::Timer(timer)) => on_timer(state, timer, at_ms).unwrap_or_else(drop),
    }
}

fn on_message(state: &State, send: &Send) -> Vec<Event> {
    let created = state.origin.is_none().then(|| Event::SessionCreated {
        by: send.from.clone(),
        title: send.session.title.clone(),
        workspace: send.session.workspace.clone(),
        metadata: send.session.metadata.clone(),
    });
    let added = Event::MessageAdded {
        message: Message::User {
            id: send.id.clone(),
            from: send.from.clone(),
            text: send.text.clone(),
        },
        options: send.options.clone(),
        appended: false,
    };
    created.into_iter().chain([added]).collect()
}

fn on_stop(state: &State, stop: &Stop) -> Result<Vec<Event>, DropReason> {
    let turn = state.turn.as_ref().ok_or(DropReason::NothingToStop)?;
    if stop.turn.as_ref().is_some_and(|wanted| *wanted != turn.id) {
        return Err(DropReason::NothingToStop);
    }
    Ok(close(
        state,
        &EndReason::Cancelled {
            by: stop.from.clone(),
        },
    ))
}

fn on_decision(state: &State, decide: &Decide, at_ms: u64) -> Result<Vec<Event>, DropReason> {
    let (call, held) = state
        .held()
        .find(|(_, held)| held.approval == decide.approval)
        .ok_or(DropReason::NotPending)?;
    if held.expires_at_ms <= at_ms {
        return Ok(expire(state, &decide.approval));
    }
    if held.digest != decide.digest {
        return Err(DropReason::StaleDigest);
    }
    let mut events = vec![Event::ApprovalResolved {
        approval: decide.approval.clone(),
        call: call.id.clone(),
        by: decide.by.clone(),
        channel: text::cut(&decide.channel, 64),
        digest: decide.digest,
        decision: decide.decision.clone(),
    }];
    if let Decision::Deny { reason } = &decide.decision {
        let reason = reason
            .as_deref()
            .map(|reason| format!(": {}", text::cut(reason, 1024)))
            .unwrap_or_default();
        events.push(Event::CallRefused {
            call: call.id.clone(),
            outcome: ResultKind::DeniedByOwner,
            text: format!("the owner denied this call{reason}"),
            judgement: Some(held.judgement.clone()),
        });
    }
    Ok(events)
}

fn on_delivery(state: &State, deliver: &Deliver) -> Result<Vec<Event>, DropReason> {
    let (call, held) = state
        .held()
        .find(|(call, _)| call.id == deliver.call)
        .ok_or(DropReason::NotPending)?;
    Ok(vec![
        Event::ApprovalExpired {
            approval: held.approval.clone(),
            call: call.id.clone(),
            withdrawn: true,
        },
        Event::CallFinished {
            whole: None,
            call: call.id.clone(),
            outcome: if deliver.is_error {
                ResultKind::Error
            } else {
                ResultKind::Ok
            },
            text: context::fit(&call.id, &deliver.content, None),
            duration_ms: 0,
        },
    ])
}

fn on_timer(state: &State, timer: &Timer, at_ms: u64) -> Result<Vec<Event>, DropReason> {
    let (_, held) = state
        .held()
        .find(|(_, held)| held.approval == timer.approval)
        .ok_or(DropReason::NotPending)?;
    // A clock of the broker that runs a little ahead must not keep the wait open for ever.
    let slack_ms = 5_000;
    if held.expires_at_ms > at_ms.saturating_add(slack_ms) {
        return Err(DropReason::NotPending);
    }
    Ok(expire(state, &timer.approval))
}

pub(super) fn expire(state: &State, approval: &ApprovalId) -> Vec<Event> {
    let Some((call, held)) = state.held().find(|(_, held)| held.approval == *approval) else {
        return Vec::new();
    };
    vec![
        Event::ApprovalExpired {
            approval: approval.clone(),
            call: call.id.clone(),
            withdrawn: false,
        },
        Event::CallRefused {
            call: call.id.clone(),
            outcome: ResultKind::Expired,
            text: "denied: expired. Nobody decided about this call in time".to_owned(),
            judgement: Some(held.judgement.clone()),
        },
    ]
}
