//! What must happen next.

use std::collections::BTreeSet;

use teamster_protocol::{
    ApprovalId, CallId, Class, RequestId,
    event::EndReason,
    function::router::Price,
    hook::Point,
    limits,
    trace::Trace,
    usage::{Budget, BudgetKind, NanoUsd},
};

use crate::turn::{
    history,
    state::{Call, CallState, Cut, Failure, State, Turn},
};

/// Exactly one thing that must happen next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Nothing: the session waits for an input.
    Idle,
    /// Let appended messages that waited join the transcript.
    Join,
    /// Start a turn for the messages that wait.
    StartTurn,
    /// Run the hooks of a point.
    RunHook(Point),
    /// Tell the model that its stream was cut, so that it goes on.
    Resume(Cut),
    /// Tell the model that it repeats itself.
    Warn,
    /// Announce the next request to a model.
    Assemble,
    /// Make the announced request.
    Generate(RequestId),
    /// Find out what became of a request that an earlier owner made.
    Recover(RequestId),
    /// Decide whether a call may run.
    Decide(CallId),
    /// End the wait of requests that nobody answered in time.
    Expire(Vec<ApprovalId>),
    /// Wait for a person, until the deadline in milliseconds since 1970.
    Await {
        /// When the first wait ends.
        deadline: u64,
    },
    /// Announce the next calls: one that changes something, or several reads.
    Begin(Vec<CallId>),
    /// Make the announced calls, all at once.
    Invoke(Vec<CallId>),
    /// Find out what became of calls that an earlier owner made and that must not run twice.
    RecoverCalls(Vec<CallId>),
    /// End the turn.
    Finish(EndReason),
}

/// What must be stored before an action is executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Barrier {
    /// Nothing: the action has no effect outside.
    None,
    /// This owner's claim.
    Claim,
    /// Everything drafted so far.
    All,
}

impl Action {
    /// What must be stored before the action is executed.
    pub fn barrier(&self) -> Barrier {
        match self {
            Self::Join
            | Self::StartTurn
            | Self::Resume(_)
            | Self::Warn
            | Self::Assemble
            | Self::Expire(_)
            | Self::Begin(_)
            | Self::Finish(_) => Barrier::None,
            Self::RunHook(_) | Self::Decide(_) | Self::Recover(_) => Barrier::Claim,
            Self::Generate(_)
            | Self::Invoke(_)
            | Self::RecoverCalls(_)
            | Self::Idle
            | Self::Await { .. } => Barrier::All,
        }
    }
}

/// What the machine may assume beyond the state.
#[derive(Debug, Clone, Copy)]
pub struct Env<'a> {
    /// The points at which hooks are bound.
    pub bound: &'a BTreeSet<Point>,
    /// The price of the turn's model, if it is known.
    pub price: Option<&'a Price>,
    /// Configuration.
    pub settings: &'a Settings,
    /// The time, in milliseconds since 1970.
    pub now_ms: u64,
    /// The span of a turn that begins now.
    pub trace: Option<&'a Trace>,
}

/// What of the machine is configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The model of turns that name none.
    pub model: String,
    /// The bounds of turns that name none.
    pub budget: Budget,
    /// Cut streams that one turn may resume.
    pub resumes_max: u32,
    /// Tokens that one generation may produce where neither turn nor model says.
    pub output_tokens: u64,
    /// How long an approval waits where the policy states nothing, in milliseconds.
    pub approval_ttl_ms: u64,
    /// Bytes of history that are sent to a model.
    pub history_bytes: usize,
    /// Digest of the configuration, recorded in each turn.
    pub revision: teamster_protocol::Digest,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            model: "scripted/guided".to_owned(),
            budget: Budget {
                steps: Some(limits::STEPS_DEFAULT),
                ..Budget::default()
            },
            resumes_max: limits::RESUMES_DEFAULT,
            output_tokens: 8192,
            approval_ttl_ms: u64::try_from(limits::APPROVAL_TTL.as_millis()).unwrap_or(u64::MAX),
            history_bytes: limits::HISTORY_BYTES_MAX,
            revision: teamster_protocol::Digest::ZERO,
        }
    }
}

/// What must happen next.
pub fn next(state: &State, env: &Env<'_>) -> Action {
    if !state.joining().is_empty() {
        return Action::Join;
    }
    let Some(turn) = &state.turn else {
        return if state.is_unanswered {
            Action::StartTurn
        } else {
            Action::Idle
        };
    };
    if turn.attempt > limits::ATTEMPTS_MAX {
        return Action::Finish(EndReason::Poisoned);
    }
    if let Some((rule, message)) = &turn.denied {
        return Action::Finish(EndReason::Denied {
            rule: rule.clone(),
            message: message.clone(),
        });
    }
    if let Some(generation) = &turn.generation {
        let request = generation.request.clone();
        return if generation.n < state.epoch {
            Action::Recover(request)
        } else {
            Action::Generate(request)
        };
    }
    if let Some(action) = smaller(state, turn, env) {
        return action;
    }
    if turn.steps > 0
        && env.bound.contains(&Point::PostGenerate)
        && !turn.has_run(Point::PostGenerate, turn.step())
    {
        return Action::RunHook(Point::PostGenerate);
    }
    if let Some(failure) = &turn.failure {
        return after_failure(state, turn, failure, env);
    }
    if let Some(action) = next_call(state, turn, env) {
        return action;
    }
    if turn
        .repeats
        .as_ref()
        .is_some_and(|(_, count)| *count >= limits::REPEATS_MAX)
    {
        return Action::Finish(EndReason::NoProgress);
    }
    if turn.is_answered && !turn.has_unseen {
        return Action::Finish(EndReason::Completed);
    }
    next_generation(state, turn, env)
}

/// A router has tried again by itself as long as nothing was visible; what is left to do is to go on with an answer that broke
/// off. An answer that was ended because the time is over is no failure of the model.
fn after_failure(state: &State, turn: &Turn, failure: &Failure, env: &Env<'_>) -> Action {
    let wall_ms = state.options.budget.wall_ms;
    if wall_ms.is_some_and(|max| turn.worked_ms(env.now_ms) >= max) {
        return Action::Finish(EndReason::Budget {
            which: BudgetKind::Wall,
        });
    }
    match failure.cut {
        Some(cut) if turn.resumes < env.settings.resumes_max => Action::Resume(cut),
        _ => Action::Finish(EndReason::Failed {
            code: failure.code.clone(),
            message: failure.message.clone(),
        }),
    }
}

/// All calls of an answer are decided before the first of them runs; then reads run together, others one by one, in order.
fn next_call(state: &State, turn: &Turn, env: &Env<'_>) -> Option<Action> {
    let mut deadline: Option<u64> = None;
    let mut expired = Vec::new();
    for call in &turn.calls {
        match &call.state {
            CallState::Proposed => return Some(Action::Decide(call.id.clone())),
            CallState::Held(held) if held.expires_at_ms <= env.now_ms => {
                expired.push(held.approval.clone());
            }
            CallState::Held(held) => {
                deadline = Some(deadline.unwrap_or(u64::MAX).min(held.expires_at_ms));
            }
            _ => {}
        }
    }
    if !expired.is_empty() {
        return Some(Action::Expire(expired));
    }
    if let Some(deadline) = deadline {
        return Some(Action::Await { deadline });
    }
    if let Some(call) = turn
        .calls
        .iter()
        .find(|call| matches!(call.state, CallState::Released { .. }))
    {
        return Some(Action::Decide(call.id.clone()));
    }
    let started: Vec<&Call> = turn
        .calls
        .iter()
        .filter(|call| matches!(call.state, CallState::Started { .. }))
        .collect();
    if !started.is_empty() {
        let in_doubt: Vec<CallId> = started
            .iter()
            .filter(|call| {
                !call.is_repeatable
                    && matches!(call.state, CallState::Started { n } if n < state.epoch)
            })
            .map(|call| call.id.clone())
            .collect();
        return Some(if in_doubt.is_empty() {
            Action::Invoke(started.iter().map(|call| call.id.clone()).collect())
        } else {
            Action::RecoverCalls(in_doubt)
        });
    }
    begin(turn, &state.options.budget, env)
}

fn begin(turn: &Turn, budget: &Budget, env: &Env<'_>) -> Option<Action> {
    let mut allowed = turn
        .calls
        .iter()
        .filter(|call| call.state == CallState::Allowed)
        .peekable();
    let first = allowed.peek()?;
    if let Some(which) = exceeded(turn, budget, env, 0, 1) {
        return Some(Action::Finish(EndReason::Budget { which }));
    }
    if first.class != Class::Read {
        return Some(Action::Begin(vec![first.id.clone()]));
    }
    let room = budget.calls.map_or(usize::MAX, |calls| {
        usize::try_from(calls.saturating_sub(turn.calls_started)).unwrap_or(usize::MAX)
    });
    let batch = allowed
        .take_while(|call| call.class == Class::Read)
        .take(limits::READS_AT_ONCE_MAX.min(room))
        .map(|call| call.id.clone())
        .collect();
    Some(Action::Begin(batch))
}

fn next_generation(state: &State, turn: &Turn, env: &Env<'_>) -> Action {
    if let Some(which) = exceeded(turn, &state.options.budget, env, reserve(state, env), 0) {
        return Action::Finish(EndReason::Budget { which });
    }
    if turn.steps == 0 && env.bound.contains(&Point::PreTurn) && !turn.has_run(Point::PreTurn, 0) {
        return Action::RunHook(Point::PreTurn);
    }
    if turn
        .repeats
        .as_ref()
        .is_some_and(|(_, count)| *count >= limits::REPEATS_WARN)
        && !turn.is_warned
    {
        return Action::Warn;
    }
    if env.bound.contains(&Point::PreGenerate) && !turn.has_run(Point::PreGenerate, turn.steps) {
        return Action::RunHook(Point::PreGenerate);
    }
    Action::Assemble
}

/// A request that the provider refused as too large is made again, smaller, a few times. It is the same step.
fn smaller(state: &State, turn: &Turn, env: &Env<'_>) -> Option<Action> {
    turn.failure.as_ref().filter(|failure| failure.is_refused)?;
    if turn.refused > limits::CONTEXT_REFUSALS_MAX {
        return None;
    }
    let budget = Budget {
        steps: None,
        ..state.options.budget
    };
    Some(match exceeded(turn, &budget, env, reserve(state, env), 0) {
        Some(which) => Action::Finish(EndReason::Budget { which }),
        None => Action::Assemble,
    })
}

/// Tokens to set aside for the next generation: what it reads, by a byte estimate, and all that it may write.
pub fn reserve(state: &State, env: &Env<'_>) -> u64 {
    let bytes = history::bytes(&state.history()).min(env.settings.history_bytes);
    u64::try_from(bytes / 4)
        .unwrap_or(u64::MAX)
        .saturating_add(output_tokens(state, env))
}

/// The step that the next generation belongs to.
pub(crate) fn next_step(turn: &Turn) -> u32 {
    match &turn.failure {
        Some(failure) if failure.is_refused => turn.step(),
        _ => turn.steps,
    }
}

/// Tokens that the next generation may produce.
pub fn output_tokens(state: &State, env: &Env<'_>) -> u64 {
    state
        .options
        .max_output_tokens
        .unwrap_or(env.settings.output_tokens)
}

/// The first bound that the next action would break: a generation with `reserve` tokens, or `calls` more calls.
fn exceeded(
    turn: &Turn,
    budget: &Budget,
    env: &Env<'_>,
    reserve: u64,
    calls: u32,
) -> Option<BudgetKind> {
    let is_generation = calls == 0;
    let cost = worst_cost(turn, env, reserve);
    let checks = [
        (
            BudgetKind::Steps,
            is_generation && budget.steps.is_some_and(|max| turn.steps >= max),
        ),
        (
            BudgetKind::Tokens,
            budget
                .tokens
                .is_some_and(|max| turn.spent.total().saturating_add(reserve) > max),
        ),
        (BudgetKind::Cost, budget.cost.is_some_and(|max| cost > max)),
        (
            BudgetKind::Calls,
            !is_generation && budget.calls.is_some_and(|max| turn.calls_started >= max),
        ),
        (
            BudgetKind::Wall,
            budget
                .wall_ms
                .is_some_and(|max| turn.worked_ms(env.now_ms) >= max),
        ),
    ];
    checks
        .into_iter()
        .find(|(_, is_met)| *is_met)
        .map(|(which, _)| which)
}

/// The bound and what stands against it, for the event that names both.
pub(crate) fn measure(which: BudgetKind, state: &State, env: &Env<'_>) -> (u64, u64) {
    let budget = &state.options.budget;
    let Some(turn) = &state.turn else {
        return (0, 0);
    };
    let reserve = if turn
        .calls
        .iter()
        .any(|call| call.state == CallState::Allowed)
    {
        0
    } else {
        reserve(state, env)
    };
    match which {
        BudgetKind::Steps => (budget.steps.unwrap_or(0).into(), turn.steps.into()),
        BudgetKind::Tokens => (
            budget.tokens.unwrap_or(0),
            turn.spent.total().saturating_add(reserve),
        ),
        BudgetKind::Cost => (
            budget.cost.unwrap_or_default().0,
            worst_cost(turn, env, reserve).0,
        ),
        BudgetKind::Calls => (budget.calls.unwrap_or(0).into(), turn.calls_started.into()),
        BudgetKind::Wall => (budget.wall_ms.unwrap_or(0), turn.worked_ms(env.now_ms)),
    }
}

/// What would be spent if the next generation cost all that it may. A model without a known price adds nothing here; its
/// tokens count.
fn worst_cost(turn: &Turn, env: &Env<'_>, reserve: u64) -> NanoUsd {
    let per_token = env
        .price
        .map_or(0, |price| price.input.0.max(price.output.0));
    turn.cost.plus(NanoUsd(reserve.saturating_mul(per_token)))
}

impl Turn {
    /// Whether the hooks of a point were done at a step.
    fn has_run(&self, point: Point, step: u32) -> bool {
        self.hooks.get(&point) == Some(&step)
    }

    /// How long the turn has worked: time in which it waited for people does not count.
    pub fn worked_ms(&self, now_ms: u64) -> u64 {
        let waiting = self
            .waits_since_ms
            .map_or(0, |since| now_ms.saturating_sub(since));
        now_ms
            .saturating_sub(self.started_ms)
            .saturating_sub(self.waited_ms)
            .saturating_sub(waiting)
    }
}
