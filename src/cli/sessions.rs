//! `teamster sessions`: what the log says about sessions, read from the log itself.

mod accept_loss;
mod archive;
mod buried;
mod export;
mod fork;
pub(super) mod ls;
mod meta;
mod rm;
mod search;
mod standing;
mod tail;
mod transcript;
mod verify;
mod words;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use teamster_protocol::{Commit, Event, SessionId};

pub(super) use words::{end_words, event_words};

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
    Ls(ls::Ls),
    /// One session: its state and its transcript
    Show(Show),
    /// Find messages by their words
    Search(search::Search),
    /// Begin a new session with the transcript of another
    Fork(fork::Fork),
    /// Delete sessions for good
    Rm(rm::Rm),
    /// Write a session's stored commits to a file that verifies by itself
    Export(export::Export),
    /// Check an exported session, without a mesh
    Verify(verify::Verify),
    /// Give a session a title
    Rename(meta::Rename),
    /// Set or remove notes of a session
    SetMeta(meta::SetMeta),
    /// One session's events, and on while a turn runs
    Tail(Tail),
    /// Let a session go on whose log is damaged, without what is missing
    AcceptLoss(AcceptLoss),
}

fn last(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("a number from 1 up".to_owned()),
        Ok(n) => Ok(n),
    }
}

/// One session.
#[derive(Debug, Args)]
pub(super) struct Show {
    /// The session
    #[arg(value_name = "SESSION")]
    session: SessionId,
    /// Its events instead of its transcript
    #[arg(long)]
    events: bool,
    /// Only the last ones
    #[arg(long, value_name = "N", value_parser = last)]
    last: Option<usize>,
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
    match &command {
        Command::Verify(options) => return verify::run(out, options),
        Command::Rm(options) => rm::check(options)?,
        Command::Export(options) => export::check(out, options)?,
        _ => {}
    }
    let client = match command {
        Command::Show(_) | Command::Tail(_) | Command::Export(_) => reach::log(global, out).await?,
        _ => reach::client(global, out, Absent::Resume).await?,
    };
    match command {
        Command::Ls(options) => ls::run(out, &client, options).await,
        Command::Show(options) => transcript::run(out, &client, &options).await,
        Command::Search(options) => search::run(out, &client, options).await,
        Command::Fork(options) => fork::run(out, &client, options).await,
        Command::Rm(options) => rm::run(out, &client, options).await,
        Command::Export(options) => export::run(out, &client, options).await,
        Command::Verify(options) => verify::run(out, &options),
        Command::Rename(options) => meta::rename(out, &client, options).await,
        Command::SetMeta(options) => meta::set(out, &client, options).await,
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
