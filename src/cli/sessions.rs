//! `teamster sessions`: what the log says about sessions, read from the log itself.

mod ls;
mod tail;
mod transcript;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use teamster_protocol::{Commit, Event, SessionId};

use super::{
    Global,
    exit::Exit,
    failure::Failure,
    output::Output,
    reach::{self, Absent},
};

/// List, show and follow sessions, from the log itself.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// All sessions, the last used first
    Ls(Ls),
    /// One session: its state and its transcript
    Show(Show),
    /// One session's events, and on while a turn runs
    Tail(Tail),
}

/// All sessions.
#[derive(Debug, Args)]
pub(super) struct Ls {
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
}

/// One session.
#[derive(Debug, Args)]
pub(super) struct Show {
    /// The session
    #[arg(value_name = "SESSION")]
    session: SessionId,
}

/// One session's events, and on while a turn runs. Ends when the session is idle or waits for a decision.
#[derive(Debug, Args)]
pub(super) struct Tail {
    /// The session
    #[arg(value_name = "SESSION")]
    session: SessionId,
    /// Begin after this commit instead of at the last turn; 0 shows everything
    #[arg(long, value_name = "N")]
    after: Option<u64>,
    /// Go on until interrupted
    #[arg(long, short)]
    follow: bool,
}

pub(super) async fn run(global: &Global, out: &Output, command: Command) -> Result<Exit, Failure> {
    let client = reach::client(global, out, Absent::Fail).await?;
    match command {
        Command::Ls(options) => ls::run(out, &client, options.limit).await,
        Command::Show(options) => transcript::run(out, &client, &options.session).await,
        Command::Tail(options) => tail::run(out, &client, &options).await,
    }
}

/// An event as a line of JSON: the log's fields, and the place of its commit.
pub(super) fn event_line(seq: u64, commit: &Commit, event: &Event) -> Value {
    let mut line = serde_json::to_value(event)
        .unwrap_or_else(|error| json!({ "type": "unreadable", "message": error.to_string() }));
    if let Some(object) = line.as_object_mut() {
        object.insert("n".to_owned(), commit.n.into());
        object.insert("seq".to_owned(), seq.into());
        object.insert("at_ms".to_owned(), commit.at_ms.into());
    }
    line
}

/// One event as a line for people: its kind, and what tells it from others.
pub(super) fn event_words(event: &Event) -> String {
    use super::show::word;
    use teamster_core::display::terminal;
    let cut = |text: &str| terminal(&teamster_protocol::text::cut(text, 160).replace('\n', " "));
    match event {
        Event::SessionCreated { by, workspace, .. } => format!(
            "session created by {by}, workspace {}",
            cut(workspace.as_deref().unwrap_or("none"))
        ),
        Event::MessageAdded { message, .. } => format!(
            "message: {}",
            cut(&crate::client::session::visible(message))
        ),
        Event::TurnStarted { number, .. } => format!("turn {number} started"),
        Event::TurnEnded { reason, .. } => format!("turn ended: {}", end_words(reason)),
        Event::GenerationStarted { step, .. } => format!("step {step}: generation started"),
        Event::GenerationFinished {
            message,
            usage,
            model,
            ..
        } => format!(
            "generation finished ({}, {} tokens): {}",
            terminal(model),
            usage.total(),
            cut(&message
                .as_ref()
                .map(crate::client::session::visible)
                .unwrap_or_default())
        ),
        Event::GenerationInterrupted { error, .. } => {
            format!("generation interrupted: {}", cut(&error.message))
        }
        Event::CallProposed { call, function, .. } => {
            format!("call proposed: {} {call}", name(function.as_ref()))
        }
        Event::CallAllowed {
            call,
            class,
            judgement,
            ..
        } => format!(
            "call allowed: {call}, class {}{}",
            word(class),
            judgement
                .as_ref()
                .map(|judgement| format!(", rule {}", cut(&judgement.rule)))
                .unwrap_or_default()
        ),
        Event::CallRefused {
            call,
            outcome,
            text,
            ..
        } => format!("call refused: {call}, {}: {}", word(outcome), cut(text)),
        Event::ApprovalRequested {
            approval, function, ..
        } => format!("approval requested: {function} {approval}"),
        Event::ApprovalResolved {
            approval,
            by,
            channel,
            decision,
            ..
        } => {
            let word = match decision {
                teamster_protocol::input::Decision::Approve => "approved",
                teamster_protocol::input::Decision::Edit { .. } => "edited",
                teamster_protocol::input::Decision::Deny { .. } => "denied",
            };
            format!(
                "approval {word} by {by} through {}: {approval}",
                cut(channel)
            )
        }
        Event::ApprovalExpired {
            approval,
            withdrawn,
            ..
        } => {
            format!(
                "approval {}: {approval}",
                if *withdrawn { "withdrawn" } else { "expired" }
            )
        }
        Event::CallStarted { call } => format!("call started: {call}"),
        Event::CallFinished {
            call,
            outcome,
            duration_ms,
            ..
        } => format!("call finished: {call}, {}, {duration_ms} ms", word(outcome)),
        Event::BudgetExceeded { which, limit, used } => {
            format!("budget {} exceeded: {used} of {limit}", which.as_str())
        }
        Event::HookRan {
            point, function, ..
        } => format!(
            "hook ran at {}: {}",
            point.as_str(),
            name(function.as_ref())
        ),
        Event::InputDropped { lane, seq, why } => {
            format!("input dropped: {} {seq}, {}", word(lane), word(why))
        }
        Event::TookOver { from, attempt } => format!("took over from {from}, attempt {attempt}"),
    }
}

fn name(function: Option<&teamster_protocol::FunctionId>) -> String {
    function.map_or_else(|| "-".to_owned(), ToString::to_string)
}

/// A reason in words.
pub(super) fn end_words(reason: &teamster_protocol::event::EndReason) -> String {
    use teamster_core::display::terminal;
    use teamster_protocol::event::EndReason;
    match reason {
        EndReason::Failed { code, message } => {
            format!("failed ({}): {}", terminal(code), terminal(message))
        }
        EndReason::Cancelled { by } => format!("cancelled by {by}"),
        EndReason::Budget { which } => format!("budget ({})", which.as_str()),
        EndReason::Denied { rule, message } => {
            format!("denied by {}: {}", terminal(rule), terminal(message))
        }
        EndReason::Completed | EndReason::NoProgress | EndReason::Poisoned => {
            reason.status().to_owned()
        }
    }
}
