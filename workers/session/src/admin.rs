//! Changes of sessions: each is one input of a session's control lane, and what is answered is what the log says became of it.

use teamster_core::turn::{Fold, State};
use teamster_mesh::{Ctx, log::Stored};
use teamster_protocol::{
    Commit, Event, Fault, Lane, MessageId, Phase, Principal, SessionId,
    event::DropReason,
    input::{Admin, AdminAction, ControlKind},
    limits, text,
};
use tokio::time::{Duration, Instant, timeout_at};

/// What is left of a caller's patience for the way back.
const ANSWER_MARGIN: Duration = Duration::from_millis(500);

/// A change that somebody asks for.
pub(crate) struct Change<'a> {
    pub(crate) ctx: &'a Ctx,
    /// The session that changes.
    pub(crate) session: &'a SessionId,
    /// Who asks.
    pub(crate) by: Principal,
    /// Makes a repetition recognisable, among the changes of this session and asker.
    pub(crate) key: String,
}

/// What became of a change.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// This commit took it.
    Taken(u64),
    /// It is stored and will be taken; it was not seen in time, or so long ago that the log does not name its commit any more.
    Stored,
    /// It was consumed without effect.
    Dropped(DropReason),
}

impl Change<'_> {
    /// The id of the input.
    fn id(&self) -> MessageId {
        MessageId::of_input(self.session, "admin", &format!("{}/{}", self.by, self.key))
    }

    /// What became of the same change, if it was asked for before and the log still tells.
    pub(crate) async fn before(&self) -> Result<Option<Outcome>, Fault> {
        self.find(&self.id()).await
    }

    /// Stores the change and waits, in bounds, for the commit that takes it. The same key never changes the session twice.
    pub(crate) async fn submit(&self, action: AdminAction) -> Result<Outcome, Fault> {
        let id = self.id();
        let admin = Admin {
            id: id.clone(),
            by: self.by.clone(),
            action,
        };
        let body =
            serde_json::to_vec(&admin).map_err(|error| Fault::internal("session.encode", error))?;
        let mesh = &self.ctx.mesh;
        let before = tail(self.ctx, self.session).await?;
        let before = before.map_or(0, |stored| stored.seq);
        let stored = mesh
            .lanes()
            .control(self.session, ControlKind::Admin, &id, body.into())
            .await?;
        tracing::info!(session = %self.session, by = %self.by, seq = stored.seq, "a change is stored");
        if stored.is_duplicate
            && let Some(outcome) = self.find(&id).await?
        {
            return Ok(outcome);
        }
        let until = self
            .ctx
            .deadline
            .checked_sub(ANSWER_MARGIN)
            .unwrap_or(self.ctx.deadline)
            .min(Instant::now() + limits::ADMIN_WAIT);
        match timeout_at(until, self.wait(&id, before)).await {
            Ok(outcome) => outcome,
            // The reader may be behind; the log has the last word.
            Err(_) => Ok(self.find(&id).await?.unwrap_or(Outcome::Stored)),
        }
    }

    async fn wait(&self, id: &MessageId, before: u64) -> Result<Outcome, Fault> {
        let mut reader = self
            .ctx
            .mesh
            .log()
            .follow_session(self.session, before)
            .await?;
        while let Some(next) = reader.next().await {
            // A stream that cannot be read now is read on by itself.
            let Ok((_, stored)) = next else { continue };
            match outcome(&stored, id) {
                // A repetition that the broker did not recognise any more: what counts is what became of the first.
                Some(Outcome::Dropped(DropReason::Duplicate)) => {
                    return Ok(self.find(id).await?.unwrap_or(Outcome::Stored));
                }
                Some(outcome) => return Ok(outcome),
                None => {}
            }
        }
        Ok(Outcome::Stored)
    }

    /// What the log says about a change that was stored before.
    async fn find(&self, id: &MessageId) -> Result<Option<Outcome>, Fault> {
        let Some(tail) = tail(self.ctx, self.session).await? else {
            return Ok(None);
        };
        let stored = self.ctx.mesh.log().read(self.session, 0, tail.seq).await?;
        Ok(stored
            .iter()
            .filter_map(|one| outcome(one, id))
            .find(|outcome| *outcome != Outcome::Dropped(DropReason::Duplicate)))
    }

    /// What an answer says of a change that was not taken.
    pub(crate) fn refused(&self, why: DropReason) -> Fault {
        let session = self.session;
        match why {
            DropReason::NoSession => super::functions::unknown(session),
            DropReason::SessionExists => exists(session),
            DropReason::Malformed { message } => invalid(message),
            DropReason::ValueMissing => Fault::internal(
                "session.value_missing",
                format_args!(
                    "the transcript that {session} was to begin with is not stored any more"
                ),
            )
            .hint("Fork again: the transcript is stored anew."),
            other => Fault::internal(
                "session.not_taken",
                format_args!("the change was consumed without effect: {other:?}"),
            ),
        }
    }
}

/// What a commit says about an input; `None` if it does not consume it.
fn outcome(stored: &Stored, id: &MessageId) -> Option<Outcome> {
    // Told from the text first, because most commits need not be parsed.
    if !std::str::from_utf8(&stored.body).is_ok_and(|text| text.contains(id.as_str())) {
        return None;
    }
    let commit = Commit::decode(&stored.body).ok()?;
    let mut consumed = commit.consumed.iter();
    let input = consumed.find(|input| input.lane == Lane::Ctl && input.id == *id)?;
    let dropped = commit.events.iter().find_map(|event| match event {
        Event::InputDropped { lane, seq, why } if *lane == Lane::Ctl && *seq == input.seq => {
            Some(why.clone())
        }
        _ => None,
    });
    Some(dropped.map_or(Outcome::Taken(commit.n), Outcome::Dropped))
}

async fn tail(ctx: &Ctx, session: &SessionId) -> Result<Option<Stored>, Fault> {
    Ok(ctx.mesh.log().tail(session).await?)
}

/// Refuses a session that is not there. The log is asked, not the projection: it may be behind.
pub(crate) async fn must_exist(ctx: &Ctx, session: &SessionId) -> Result<(), Fault> {
    if is_there(ctx, session).await? {
        Ok(())
    } else {
        Err(super::functions::unknown(session))
    }
}

/// Whether a session is there. One whose last commit cannot be read is.
pub(crate) async fn is_there(ctx: &Ctx, session: &SessionId) -> Result<bool, Fault> {
    let Some(tail) = tail(ctx, session).await? else {
        return Ok(false);
    };
    Ok(Commit::decode(&tail.body).map_or(true, |commit| commit.head.phase != Phase::Deleted))
}

/// Refuses a session whose log is damaged: nothing that is asked of it would be taken, or what is left of it would be taken for
/// all of it.
pub(crate) async fn must_be_sound(ctx: &Ctx, session: &SessionId) -> Result<(), Fault> {
    let survey = ctx.mesh.log().survey(session).await?;
    let mut fold = Fold::new(State::new(session.clone()));
    for stored in &survey.commits {
        fold.take(&stored.body, stored.seq);
        drop(fold.unload());
    }
    match fold.broken() {
        Some(why) => Err(damaged(session, why)),
        None if survey.is_end_unreadable => Err(damaged(session, "its end cannot be read")),
        None => Ok(()),
    }
}

/// A session's log is damaged.
pub(crate) fn damaged(session: &SessionId, why: &str) -> Fault {
    let fault = Fault::internal(
        "session.log_damaged",
        format_args!("the log of {session} is damaged: {why}"),
    );
    let session = text::operand(session.as_str());
    fault.hint(format_args!(
        "Look at what can be read: `teamster sessions show {session}`; then accept the loss: `teamster sessions accept-loss \
         --yes {session}`."
    ))
}

/// Who asks: the broker checked the subject that says so.
pub(crate) fn principal(ctx: &Ctx) -> Result<Principal, Fault> {
    ctx.principal.clone().ok_or_else(|| {
        Fault::denied("session.no_principal", "only an operator changes sessions")
            .hint("Call it as an operator.")
    })
}

/// What makes a repetition recognisable: the call's id, what the request says, else something that never comes again.
pub(crate) fn key(ctx: &Ctx, verb: &str, asked: Option<&str>) -> Result<String, Fault> {
    if asked.is_some_and(|key| key.is_empty() || key.len() > limits::KEY_BYTES_MAX) {
        return Err(invalid(format!(
            "a key has 1 to {} bytes",
            limits::KEY_BYTES_MAX
        )));
    }
    let key = asked.map(str::to_owned).or_else(|| ctx.call.clone());
    let key = key.unwrap_or_else(|| uuid::Uuid::now_v7().simple().to_string());
    Ok(format!("{verb}/{key}"))
}

/// The id of a session that is to be made up: the same for a repeated call.
pub(crate) fn made_up(ctx: &Ctx, by: &Principal) -> SessionId {
    match &ctx.call {
        Some(call) => SessionId::for_key(by, call),
        None => SessionId::fresh(uuid::Uuid::now_v7()),
    }
}

/// A request that is out of bounds or of a wrong form.
pub(crate) fn invalid(message: String) -> Fault {
    Fault::caller("session.invalid_request", message).hint("Correct it, then ask again.")
}

/// The session is there already.
pub(crate) fn exists(session: &SessionId) -> Fault {
    Fault::caller(
        "session.exists",
        format_args!("the session {session} is there already"),
    )
    .hint("Choose another id, or use `session::ensure`, which takes a session that is there.")
}
