//! What an administrator's input means.

use teamster_protocol::{
    Event, Message, MessageId,
    event::{ApprovalDigest, DropReason, EndReason, Settled, SpentKey},
    input::{self, Admin, AdminAction, Appended, SessionOptions},
    limits,
};

use crate::turn::{
    admin::{joins, json_bytes},
    state::State,
};

use super::close;

/// The events of an administrator's input. `seq` is its stream sequence in CONTROL.
pub(super) fn on_admin(
    state: &State,
    admin: &Admin,
    seq: u64,
    at_ms: u64,
) -> Result<Vec<Event>, DropReason> {
    match &admin.action {
        AdminAction::Create { session } => create(state, admin, session),
        AdminAction::Fork { fork } => {
            may_begin(state, &fork.session)?;
            Ok(vec![Event::SessionForked {
                by: admin.by.clone(),
                fork: fork.clone(),
            }])
        }
        AdminAction::Append { messages } => append(state, admin, messages),
        AdminAction::SetMeta { .. } => set_meta(state, admin),
        AdminAction::Delete => delete(state, admin, state.cursor.input, seq, at_ms),
    }
}

fn may_begin(state: &State, session: &SessionOptions) -> Result<(), DropReason> {
    if state.exists() {
        return Err(DropReason::SessionExists);
    }
    session
        .fault()
        .map_or(Ok(()), |message| Err(malformed(message)))
}

fn create(
    state: &State,
    admin: &Admin,
    session: &SessionOptions,
) -> Result<Vec<Event>, DropReason> {
    may_begin(state, session)?;
    Ok(vec![Event::SessionCreated {
        by: admin.by.clone(),
        title: session.title.clone(),
        workspace: session.workspace.clone(),
        metadata: session.metadata.clone(),
    }])
}

fn append(state: &State, admin: &Admin, messages: &[Appended]) -> Result<Vec<Event>, DropReason> {
    if !state.exists() {
        return Err(DropReason::NoSession);
    }
    if let Some(message) = input::appended_fault(messages) {
        return Err(malformed(message));
    }
    let messages: Vec<Message> = messages
        .iter()
        .enumerate()
        .map(|(index, appended)| message(state, admin, index, appended))
        .collect();
    // What came earlier joins first.
    if state.takes_messages() && state.waiting.is_empty() {
        return Ok(messages.into_iter().map(joins).collect());
    }
    let waiting: usize = state.waiting.iter().chain(&messages).map(json_bytes).sum();
    if waiting > limits::APPEND_WAITING_BYTES_MAX {
        return Err(malformed(format!(
            "{waiting} bytes of messages would wait for the end of a step; at most {} may",
            limits::APPEND_WAITING_BYTES_MAX
        )));
    }
    Ok(vec![Event::AppendWaits {
        by: admin.by.clone(),
        messages,
    }])
}

fn message(state: &State, admin: &Admin, index: usize, appended: &Appended) -> Message {
    let id = MessageId::of_input(&state.session, "append", &format!("{}/{index}", admin.id));
    let from = admin.by.clone();
    match appended {
        Appended::User { text } => Message::User {
            id,
            from,
            text: text.clone(),
        },
        Appended::Custom { kind, text } => Message::Custom {
            id,
            from,
            kind: kind.clone(),
            text: text.clone(),
        },
    }
}

fn set_meta(state: &State, admin: &Admin) -> Result<Vec<Event>, DropReason> {
    let AdminAction::SetMeta { title, metadata } = &admin.action else {
        return Ok(Vec::new());
    };
    let Some(origin) = &state.origin else {
        return Err(DropReason::NoSession);
    };
    let kept = origin
        .metadata
        .keys()
        .filter(|name| !metadata.contains_key(*name))
        .count();
    let values = kept + metadata.values().filter(|value| value.is_some()).count();
    let notes = metadata.iter().map(|(name, value)| (name, value.as_ref()));
    let fault = input::title_fault(title.as_deref())
        .or_else(|| input::metadata_fault(notes))
        .or_else(|| input::too_many(values));
    match fault {
        Some(message) => Err(malformed(message)),
        None => Ok(vec![Event::MetaChanged {
            by: admin.by.clone(),
            title: title.clone(),
            metadata: metadata.clone(),
        }]),
    }
}

/// Ends the turn as a stop does, and the session. Messages of TURNS up to `queued` go with it.
pub(super) fn delete(
    state: &State,
    admin: &Admin,
    queued: u64,
    seq: u64,
    at_ms: u64,
) -> Result<Vec<Event>, DropReason> {
    if !state.exists() {
        return Err(DropReason::NoSession);
    }
    let by = admin.by.clone();
    let mut events = close(state, &EndReason::Cancelled { by: by.clone() });
    let own = SpentKey {
        id: admin.id.clone(),
        seq,
        at_ms,
    };
    let older = state
        .consumed
        .len()
        .saturating_sub(limits::TOMBSTONE_KEYS_MAX - 1);
    let keys = state
        .consumed
        .iter()
        .skip(older)
        .map(SpentKey::from)
        .chain([own]);
    let mut spent = state.spent.clone();
    for event in &events {
        spent.note(event, state.options.model.as_deref(), at_ms);
    }
    events.push(Event::SessionDeleted {
        by,
        turns: turns_before(state).saturating_add(state.turns),
        queued: queued.max(state.cursor.input),
        approvals: state
            .approvals
            .iter()
            .cloned()
            .map(|entry| withdrawn(entry, at_ms))
            .collect(),
        keys: keys.collect(),
        spent: spent.rows().to_vec(),
    });
    Ok(events)
}

/// Turns of the deleted sessions that had the name before.
fn turns_before(state: &State) -> u64 {
    state.deleted.map_or(0, |tombstone| tombstone.turns)
}

/// A request that is still open is withdrawn with its turn.
fn withdrawn(mut entry: ApprovalDigest, at_ms: u64) -> ApprovalDigest {
    entry.settled.get_or_insert(Settled::Withdrawn { at_ms });
    entry
}

fn malformed(message: String) -> DropReason {
    DropReason::Malformed { message }
}
