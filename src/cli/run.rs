//! `teamster run`: sends a message, shows the turn, and ends with the code of its end.

mod follow;
mod result;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use teamster_protocol::SessionId;

pub(super) use result::{Outcome, document, verdict};

use super::{
    Global, before, compose,
    exit::Exit,
    failure::Failure,
    output::Output,
    place,
    reach::{self, Absent},
};

/// Send a message and wait for the end of its turn.
///
/// Where no mesh answers for the data directory, `teamster up` is started in the background. On a terminal the answer
/// appears as it is made; elsewhere each finished message is written once, from the log.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The message; nothing or `-` reads standard input
    #[arg(value_name = "MESSAGE")]
    message: Vec<String>,
    /// Go on with this session, or create it under this id
    #[arg(long, value_name = "ID")]
    session: Option<SessionId>,
    /// Directory that file functions may touch, for a new session. Default: the working directory
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// Title of a new session
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    /// What to do when a person must decide. Default: ask on a terminal, else fail
    #[arg(long, value_enum)]
    approvals: Option<Approvals>,
    #[command(flatten)]
    turn: compose::Turn,
    #[command(flatten)]
    key: compose::Key,
}

/// What is known of the message beside its turn.
#[derive(Debug, Default)]
struct Told {
    /// What the user should know although nothing failed.
    warnings: Vec<String>,
    /// Whether the message's key was used before, so that an earlier message is followed.
    is_repeated: bool,
    /// Whether something of the session's log cannot be read.
    is_damaged: bool,
}

/// What to do when a person must decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Approvals {
    /// Ask here
    Ask,
    /// Wait until somebody decides elsewhere
    Wait,
    /// Say no
    Deny,
    /// Leave the turn waiting and end with code 3
    Fail,
}

pub(super) async fn run(global: &Global, out: &Output, options: Options) -> Result<Exit, Failure> {
    let approvals = approvals(out, options.approvals)?;
    let message = compose::message(&options.message, "teamster run")?;
    let created_with = compose::created_with(options.title, options.workspace.as_ref())?;
    let data = match global.nats {
        Some(_) => None,
        None => Some(place::data_dir(global.data.as_deref())?),
    };
    if let (Some(data), Some(workspace)) = (&data, &created_with.workspace) {
        place::keep_apart(data, workspace.as_ref())?;
    }
    let client = reach::client(global, out, Absent::Start).await?;
    let before = before::before(&client, options.session.as_ref()).await?;
    let unpriced = options
        .turn
        .look(&client, options.session.as_ref(), data.as_deref())
        .await?;
    if let Some(warning) = &unpriced {
        out.note(&format!("warning: {warning}"));
    }
    let request = options.turn.request(
        options.session,
        &options.key,
        message,
        created_with,
        before.is_new,
    );
    let sent = client.send(request).await?;
    let is_repeated = options.key.is_repeated(&sent);
    let is_damaged = before.damage.is_some();
    let notices: Vec<String> = before
        .notice
        .filter(|_| !is_repeated)
        .into_iter()
        .chain(before.damage)
        .collect();
    for notice in &notices {
        out.note(&format!("warning: {notice}"));
    }
    let told = Told {
        warnings: unpriced
            .into_iter()
            .chain(notices)
            .chain(is_repeated.then(|| compose::REPEATED.to_owned()))
            .collect(),
        is_repeated,
        is_damaged,
    };
    follow::Follower::new(out, client, data, &sent, approvals, told)
        .run()
        .await
}

/// Refuses to ask where nobody can answer.
pub(super) fn approvals(out: &Output, wanted: Option<Approvals>) -> Result<Approvals, Failure> {
    match wanted {
        Some(Approvals::Ask) if !out.can_ask() => Err(Failure::usage(
            "cli.no_terminal",
            "--approvals ask needs a terminal for the question and the answer",
        )
        .hint("use --approvals wait, deny or fail")),
        Some(wanted) => Ok(wanted),
        None if out.can_ask() && out.is_text() => Ok(Approvals::Ask),
        None => Ok(Approvals::Fail),
    }
}
