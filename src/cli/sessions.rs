//! `teamster sessions`: what the log says about sessions, read from the log itself.

mod accept_loss;
mod ls;
mod tail;
mod transcript;
mod words;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use teamster_protocol::{Commit, Event, SessionId};

pub(super) use ls::damaged;
pub(super) use words::event_words;

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
    /// Let a session go on whose log is damaged, without what is missing
    AcceptLoss(AcceptLoss),
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

/// Let a session go on whose log is damaged, from what the log still holds. What is missing is given up for good: restore the
/// broker's data from a copy instead if there is one.
#[derive(Debug, Args)]
pub(super) struct AcceptLoss {
    /// The session
    #[arg(value_name = "SESSION")]
    session: SessionId,
    /// You have looked at the log and give up what is missing
    #[arg(long)]
    yes: bool,
}

pub(super) async fn run(global: &Global, out: &Output, command: Command) -> Result<Exit, Failure> {
    let client = match command {
        Command::AcceptLoss(_) => reach::client(global, out, Absent::Resume).await?,
        Command::Ls(_) | Command::Show(_) | Command::Tail(_) => reach::log(global, out).await?,
    };
    match command {
        Command::Ls(options) => ls::run(out, &client, options.limit).await,
        Command::Show(options) => transcript::run(out, &client, &options.session).await,
        Command::Tail(options) => tail::run(out, &client, &options).await,
        Command::AcceptLoss(options) => accept_loss::run(out, &client, &options).await,
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
