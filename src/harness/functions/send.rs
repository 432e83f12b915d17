//! `harness::send`: a message enters a session.

use std::sync::Arc;

use teamster_mesh::{Ctx, Function};
use teamster_protocol::{
    Class, Commit, Fault, Lane, MessageId, Phase, SessionId,
    commit::Bell,
    function::harness::{SendReply, SendRequest, SendState},
    id::ParseError,
    input::Send,
    limits,
};

use super::{Shared, operator, principal, read};
use crate::harness::clock;

pub(super) fn function(shared: &Arc<Shared>) -> Result<Function, ParseError> {
    let contract = operator::<SendRequest, SendReply>(
        "harness::send",
        "Stores a message for a session and returns at once. The same idempotency key never gives a second message.",
        Class::Write,
    )?;
    let shared = Arc::clone(shared);
    Ok(Function::new(contract, move |ctx, request| {
        send(ctx, Arc::clone(&shared), request)
    }))
}

async fn send(ctx: Ctx, shared: Arc<Shared>, request: SendRequest) -> Result<SendReply, Fault> {
    let from = principal(&ctx)?;
    check(&request)?;
    let key = request.idempotency_key.clone();
    let session_id = match (&request.session_id, &key) {
        (Some(session), _) => session.clone(),
        (None, Some(key)) => SessionId::for_key(&from, key),
        (None, None) => SessionId::fresh(uuid::Uuid::now_v7()),
    };
    let is_keyed = key.is_some();
    let key = key.unwrap_or_else(|| uuid::Uuid::now_v7().simple().to_string());
    let message_id = MessageId::of_input(&session_id, "in", &format!("{from}/{key}"));
    if is_keyed && let Some(reply) = repeated(&ctx, &shared, &session_id, &message_id).await? {
        return Ok(reply);
    }
    let send = Send {
        id: message_id.clone(),
        from,
        text: request.message,
        at_ms: clock::now_ms(),
        session: request.session,
        options: request.options,
    };
    let body =
        serde_json::to_vec(&send).map_err(|error| Fault::internal("harness.encode", error))?;
    if body.len() > limits::MESSAGE_BYTES_MAX * 3 / 2 {
        return Err(too_large(body.len()));
    }
    // Both at once: a turn that the message itself begins is told apart by its bell.
    let is_here = shared.desk.get(&session_id).is_some();
    let lanes = ctx.mesh.lanes();
    let (running, accepted) = tokio::join!(
        running_elsewhere(&ctx, &session_id, is_here),
        lanes.send(&session_id, &message_id, body.into()),
    );
    let accepted = accepted.map_err(|error| match error {
        teamster_mesh::Error::QueueFull => Fault::busy(
            "session.queue_full",
            "too many messages wait in this session",
        )
        .hint("wait until some are answered, or stop the turn that runs")
        .retry_after_ms(1_000),
        other => other.into(),
    })?;
    let mine = Bell {
        lane: Lane::In,
        seq: accepted.seq,
    };
    let state = match (accepted.is_duplicate, is_here, running) {
        (true, ..) => SendState::Deduplicated,
        (false, true, _) => SendState::Merged,
        (false, false, Some(bell)) if bell != mine => SendState::Merged,
        (false, false, _) => SendState::Queued,
    };
    Ok(SendReply {
        session_id,
        message_id,
        seq: accepted.seq,
        deduplicated: accepted.is_duplicate,
        state,
    })
}

fn check(request: &SendRequest) -> Result<(), Fault> {
    let invalid = |message: String| Err(Fault::caller("harness.invalid_request", message));
    if request.message.trim().is_empty() {
        return invalid("the message is empty".to_owned());
    }
    if request.message.len() > limits::MESSAGE_BYTES_MAX {
        return Err(too_large(request.message.len()));
    }
    if request
        .idempotency_key
        .as_ref()
        .is_some_and(|key| key.is_empty() || key.len() > limits::KEY_BYTES_MAX)
    {
        return invalid(format!(
            "an idempotency key has 1 to {} bytes",
            limits::KEY_BYTES_MAX
        ));
    }
    if request
        .session
        .workspace
        .as_ref()
        .is_some_and(|path| !path.starts_with('/'))
    {
        return invalid("the workspace must be an absolute path".to_owned());
    }
    if request
        .options
        .model
        .as_ref()
        .is_some_and(|model| !model.contains('/'))
    {
        return invalid("a model is named `provider/model`".to_owned());
    }
    Ok(())
}

fn too_large(bytes: usize) -> Fault {
    Fault::caller(
        "harness.message_too_large",
        format_args!(
            "the message has {bytes} bytes; at most {} are taken",
            limits::MESSAGE_BYTES_MAX
        ),
    )
    .hint("put long text into a file of the workspace and name it in the message")
}

/// The first answer again, where the broker's window has passed but the session remembers.
async fn repeated(
    ctx: &Ctx,
    shared: &Shared,
    session_id: &SessionId,
    message_id: &MessageId,
) -> Result<Option<SendReply>, Fault> {
    let state = read(ctx, shared, session_id).await?;
    Ok(state.consumed(message_id).map(|consumed| SendReply {
        session_id: session_id.clone(),
        message_id: message_id.clone(),
        seq: consumed.seq,
        deduplicated: true,
        state: SendState::Deduplicated,
    }))
}

/// The bell of the turn that another process runs in the session; not asked for when the turn runs here.
async fn running_elsewhere(ctx: &Ctx, session: &SessionId, is_here: bool) -> Option<Bell> {
    if is_here {
        return None;
    }
    // What is unknown is called queued: that is certain.
    let tail = ctx.mesh.log().tail(session).await.ok().flatten()?;
    let commit = Commit::decode(&tail.body).ok()?;
    (commit.head.phase == Phase::Active).then_some(commit.head.bell)
}
