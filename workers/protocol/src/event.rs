//! Everything that happened to a session. State is a fold over these.
//!
//! Each variant is a fact in the past tense, complete in itself: what a reader needs to show it stands in it or in an
//! earlier event that it names.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    arguments::Arguments,
    blob::BlobRef,
    commit::Lane,
    contract::Class,
    digest::Digest,
    function::{approval::Resolution, router::CompletionError},
    hook::Point,
    id::{ApprovalId, CallId, FunctionId, Incarnation, MessageId, Principal, RequestId, TurnId},
    input::{Decision, Fork, TurnOptions},
    message::{Message, ResultKind, StopReason},
    policy::Judgement,
    trace::Trace,
    usage::{BudgetKind, NanoUsd, Spent, Usage},
};

/// One fact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Event {
    /// The session began.
    SessionCreated {
        /// Who sent its first message.
        by: Principal,
        /// A title for lists.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// The directory that file functions may touch.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        workspace: Option<String>,
        /// Notes of whoever owns the session.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        metadata: BTreeMap<String, String>,
    },
    /// The session began as a fork of another. Grants, approvals, queue and budgets are not copied.
    SessionForked {
        /// Who asked.
        by: Principal,
        /// What it begins with.
        fork: Box<Fork>,
    },
    /// Title or metadata changed.
    MetaChanged {
        /// Who asked.
        by: Principal,
        /// The new title.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// Values that were set; `None` where one was removed.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        metadata: BTreeMap<String, Option<String>>,
    },
    /// The session was deleted. The only commit that is left of it, until a newer input creates it anew; so it holds what
    /// must outlive the others.
    SessionDeleted {
        /// Who asked.
        by: Principal,
        /// Turns so far, of every session that had the name. One that is created anew counts from the first again.
        turns: u64,
        /// The last sequence of TURNS whose message goes with the session.
        queued: u64,
        /// Requests for a person's decision, oldest first, at most `TOMBSTONE_APPROVALS_MAX`: what was asked and decided, as
        /// digests.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        approvals: Vec<ApprovalDigest>,
        /// Inputs that were consumed last, oldest first, at most `TOMBSTONE_KEYS_MAX`: a late repetition of one must not create
        /// the session anew.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        keys: Vec<SpentKey>,
        /// What all its generations came to, also those of the session that was deleted under this id before: money that was
        /// spent stays spent. Oldest first, at most `SPENT_ROWS_MAX`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        spent: Vec<Spent>,
    },
    /// Messages that an operator appended wait until they may join the transcript: not between a call and its result, nor
    /// while a model answers. Each joins by a `MessageAdded` of its own.
    AppendWaits {
        /// Who asked.
        by: Principal,
        /// The messages, in order.
        messages: Vec<Message>,
    },
    /// From here on the model reads a short mark in place of these calls' results; the results themselves stay in the log.
    ContextMasked {
        /// The calls, oldest first.
        calls: Vec<CallId>,
        /// Estimated tokens of the next request without the masks.
        tokens_before: u64,
        /// Estimated tokens of it with them.
        tokens_after: u64,
    },
    /// A message joined the transcript: a user's, one that was appended, or a notice of the harness.
    MessageAdded {
        /// The message.
        message: Message,
        /// What the next turn shall run with, when the message asks for something. A running turn keeps what it has.
        #[serde(default, skip_serializing_if = "TurnOptions::is_empty")]
        options: TurnOptions,
        /// Whether an operator appended it: then it begins no turn, and no turn goes on for its sake.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        appended: bool,
    },
    /// A turn began. What it runs with is frozen here.
    TurnStarted {
        /// The turn.
        turn: TurnId,
        /// Its number in the session, from 1.
        number: u64,
        /// The resolved options, when they differ from the turn before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        options: Option<TurnOptions>,
        /// Digest of the configuration that it began with.
        config: Digest,
        /// Its span; none where nothing was traced.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trace: Option<Trace>,
    },
    /// A turn ended, for a reason that is written down.
    TurnEnded {
        /// The turn.
        turn: TurnId,
        /// The reason.
        reason: EndReason,
    },
    /// A request to a model is about to be made.
    GenerationStarted {
        /// Its id; the last part is the try.
        request: RequestId,
        /// The step of the turn, from 0.
        step: u32,
        /// Tokens reserved for the worst case.
        reserved: u64,
    },
    /// A model answered.
    GenerationFinished {
        /// The request.
        request: RequestId,
        /// The answer; `None` if the model said nothing at all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<Message>,
        /// Why it stopped.
        stop: StopReason,
        /// Tokens.
        usage: Usage,
        /// Money; `None` where the model has no known price.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost: Option<NanoUsd>,
        /// `provider/model` that answered.
        model: String,
        /// Requests that reached the provider for this answer.
        attempts: u32,
        /// Tokens that the request was estimated at before it was sent; 0 where nobody estimated them.
        #[serde(default, skip_serializing_if = "is_zero")]
        estimated: u64,
    },
    /// A generation came to no answer; what was visible of it is kept.
    GenerationInterrupted {
        /// The request.
        request: RequestId,
        /// The part that had arrived.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        partial: Option<Message>,
        /// What went wrong.
        error: CompletionError,
        /// Whether the answer had begun when it broke off, so that it may be resumed.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_cut: bool,
        /// Tokens, as far as known.
        usage: Usage,
        /// Money, as far as known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost: Option<NanoUsd>,
        /// Requests that reached the provider.
        attempts: u32,
    },
    /// The model asked for a call. Its exact text stands in the assistant message.
    CallProposed {
        /// Our id of it.
        call: CallId,
        /// The function that it means, if that can be read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        function: Option<FunctionId>,
        /// SHA-256 of the argument bytes, if they are arguments.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<Digest>,
    },
    /// The call may run.
    CallAllowed {
        /// The call.
        call: CallId,
        /// What it does, by its contract.
        class: Class,
        /// Whether it may run again when its outcome is lost.
        repeatable: bool,
        /// How long it may take, in milliseconds.
        timeout_ms: u64,
        /// The argument bytes, when a shaping hook or an approver changed them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arguments: Option<Arguments>,
        /// Why it may run; `None` where no judge is bound.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        judgement: Option<Judgement>,
    },
    /// The call will not run; the model reads `text` as its result.
    CallRefused {
        /// The call.
        call: CallId,
        /// Why, as a kind.
        outcome: ResultKind,
        /// Why, for the model.
        text: String,
        /// What led to it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        judgement: Option<Judgement>,
    },
    /// A person must decide about the call. The request holds all that is shown.
    ApprovalRequested {
        /// The request.
        approval: ApprovalId,
        /// The call.
        call: CallId,
        /// The function.
        function: FunctionId,
        /// The exact argument bytes that will run.
        arguments: Arguments,
        /// What led to the request.
        judgement: Judgement,
        /// The hook that holds the call.
        holder: FunctionId,
        /// The judges after the holder, frozen: they run when the call is released.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        rest: Vec<FunctionId>,
        /// When the wait ends, in milliseconds since 1970.
        expires_at_ms: u64,
    },
    /// A person decided. The first decision wins.
    ApprovalResolved {
        /// The request.
        approval: ApprovalId,
        /// The call.
        call: CallId,
        /// Who decided.
        by: Principal,
        /// Through what.
        channel: String,
        /// Digest of the argument bytes that were shown.
        digest: Digest,
        /// The decision.
        decision: Decision,
    },
    /// Nobody decided in time, or the turn ended first.
    ApprovalExpired {
        /// The request.
        approval: ApprovalId,
        /// The call.
        call: CallId,
        /// Whether the turn's end withdrew it, rather than time.
        withdrawn: bool,
    },
    /// The call is about to run: the intent.
    CallStarted {
        /// The call.
        call: CallId,
    },
    /// The call came to something.
    CallFinished {
        /// The call.
        call: CallId,
        /// What kind of result it is.
        outcome: ResultKind,
        /// The text that the model reads.
        text: String,
        /// The whole result, where `text` is a part of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        whole: Option<BlobRef>,
        /// How long it took, in milliseconds; 0 where nobody knows.
        duration_ms: u64,
    },
    /// A bound was met; the turn ends with it.
    BudgetExceeded {
        /// Which.
        which: BudgetKind,
        /// The bound.
        limit: u64,
        /// What had been used or would have been, with the next action.
        used: u64,
    },
    /// A hook ran and said something.
    HookRan {
        /// The point.
        point: Point,
        /// The step of the turn.
        step: u32,
        /// The hook; `None` stands for the end of the point's chain.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        function: Option<FunctionId>,
        /// The call, at the trigger points.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<CallId>,
        /// Its note.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        annotation: Option<String>,
        /// Why it said no, where that ends the turn.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        denied: Option<String>,
        /// At pre-generate: the system prompt that it made.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        system_prompt: Option<String>,
    },
    /// An input was consumed without effect.
    InputDropped {
        /// Its lane.
        lane: Lane,
        /// Its stream sequence.
        seq: u64,
        /// Why.
        why: DropReason,
    },
    /// The log was shorter than it had been, or did not fold, and an operator let the session go on without what is missing.
    /// Only the first event of a commit, and the only way past a break: what lies between the commit that is kept and this
    /// one does not count any more.
    LossAccepted {
        /// Who accepted it.
        by: Principal,
        /// The first commit that does not count.
        lost_from: u64,
        /// SHA-256 of the last commit that counts; zero if none does.
        kept: Digest,
        /// What was wrong.
        message: String,
        /// Turns that began in what does not count, as far as is known: later ones are numbered on.
        #[serde(default, skip_serializing_if = "is_zero")]
        turns: u64,
        /// What was spent in what does not count, as far as is known: it is spent all the same.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        spent: Vec<Spent>,
        /// Commits of which nobody knows any more what was spent in them.
        #[serde(default, skip_serializing_if = "is_zero")]
        unknown: u64,
    },
    /// Another harness took the running turn over.
    TookOver {
        /// The owner before.
        from: Incarnation,
        /// Takeovers of this turn so far, this one included.
        attempt: u32,
    },
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the form that serde asks for"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Why an input was consumed without effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum DropReason {
    /// The same input was consumed before.
    Duplicate,
    /// It is not of the form that its subject names.
    Malformed {
        /// What is wrong.
        message: String,
    },
    /// No turn runs that it could stop.
    NothingToStop,
    /// The approval was decided, expired or never asked for.
    NotPending,
    /// The digest is not that of the request.
    StaleDigest,
    /// The session exists already, so it can be neither created nor begun as a fork.
    SessionExists,
    /// There is no session that could be changed or deleted.
    NoSession,
    /// The stored value that a fork begins with is not there, or is not what the input says.
    ValueMissing,
}

/// A request for a person's decision, as it outlives its session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovalDigest {
    /// The request.
    pub approval: ApprovalId,
    /// The function.
    pub function: FunctionId,
    /// SHA-256 of the argument bytes that were shown.
    pub digest: Digest,
    /// What became of it; `None` while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<Settled>,
}

/// What became of a request, without any content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Settled {
    /// A person let it run as shown.
    Approved {
        /// Who.
        by: Principal,
        /// When, in milliseconds since 1970.
        at_ms: u64,
    },
    /// A person let other arguments run.
    Edited {
        /// Who.
        by: Principal,
        /// SHA-256 of the argument bytes that ran.
        digest: Digest,
        /// When, in milliseconds since 1970.
        at_ms: u64,
    },
    /// A person said no.
    Denied {
        /// Who.
        by: Principal,
        /// When, in milliseconds since 1970.
        at_ms: u64,
    },
    /// Nobody decided in time.
    Expired {
        /// When, in milliseconds since 1970.
        at_ms: u64,
    },
    /// The turn ended first, or a result came from outside.
    Withdrawn {
        /// When, in milliseconds since 1970.
        at_ms: u64,
    },
}

impl From<&Resolution> for Settled {
    fn from(resolution: &Resolution) -> Self {
        match resolution {
            Resolution::Decided {
                by,
                decision,
                at_ms,
                ..
            } => Self::decided(by.clone(), decision, *at_ms),
            Resolution::Expired { at_ms } => Self::Expired { at_ms: *at_ms },
            Resolution::Withdrawn { at_ms } => Self::Withdrawn { at_ms: *at_ms },
        }
    }
}

impl Settled {
    /// A person's decision.
    pub fn decided(by: Principal, decision: &Decision, at_ms: u64) -> Self {
        match decision {
            Decision::Approve => Self::Approved { by, at_ms },
            Decision::Edit { arguments } => Self::Edited {
                by,
                digest: arguments.digest(),
                at_ms,
            },
            Decision::Deny { .. } => Self::Denied { by, at_ms },
        }
    }
}

/// A consumed input, as it outlives its session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpentKey {
    /// Its id.
    pub id: MessageId,
    /// Its stream sequence.
    pub seq: u64,
    /// When its commit was made, in milliseconds since 1970.
    pub at_ms: u64,
}

/// Why a turn ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum EndReason {
    /// The model was done.
    Completed,
    /// Something failed for good.
    Failed {
        /// A stable code.
        code: String,
        /// What happened, and what to do next.
        message: String,
    },
    /// Somebody stopped it.
    Cancelled {
        /// Who.
        by: Principal,
    },
    /// A bound was met.
    Budget {
        /// Which.
        which: BudgetKind,
    },
    /// A hook said no before anything was spent.
    Denied {
        /// The hook or rule.
        rule: String,
        /// Its reason.
        message: String,
    },
    /// The same call with the same result, again and again.
    NoProgress,
    /// It was taken over too often.
    Poisoned,
}

impl EndReason {
    /// One word for lists, output and exit codes.
    pub fn status(&self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed { .. } => "failed",
            Self::Cancelled { .. } => "cancelled",
            Self::Budget { .. } => "budget",
            Self::Denied { .. } => "denied",
            Self::NoProgress => "no-progress",
            Self::Poisoned => "poisoned",
        }
    }
}
