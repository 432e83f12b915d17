//! `teamster chat`: a conversation with a session, line by line.
//!
//! Owns: what a person types and sees while turns run. A line is a message, or a command of this program. With a terminal
//! the line is edited here and what streams does not tear it; without one each line is a message, answered before the next
//! is read.
//!
//! Never: a turn's fate. Leaving changes nothing: the work goes on, and the same session is found again.

mod act;
mod answer;
mod draft;
mod editor;
mod here;
mod input;
mod item;
mod key;
mod outgoing;
mod page;
mod past;
mod screen;
mod slash;
mod talk;

use std::path::PathBuf;

use clap::Args;
use teamster_core::display;
use teamster_mesh::log::From as Begin;
use teamster_protocol::{Commit, Phase, SessionId, text};

use super::{
    Global, before, compose,
    exit::Exit,
    failure::Failure,
    output::{Format, Output},
    place,
    reach::{self, Absent},
    run::Approvals,
};
use crate::client::Client;
use here::Here;
use input::{Input, Lines, Terminal};
use talk::Chat;

/// Talk with a session: answers as they come, messages into the running turn, approvals in place.
///
/// On a terminal a line that is typed while a turn runs steers it, Ctrl-C once asks and twice stops the turn, Ctrl-D leaves
/// (work goes on), /help lists the commands. Elsewhere each line of standard input is a message and is answered before the
/// next is read; the code is that of the last turn. A backslash at the end of a line, or """ around it, makes a message of
/// several lines.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Go on with this session, or create it under this id
    #[arg(long, value_name = "ID", conflicts_with = "last")]
    session: Option<SessionId>,
    /// Go on with the session that was used last
    #[arg(long)]
    last: bool,
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
}

pub(super) async fn run(global: &Global, out: &Output, options: Options) -> Result<Exit, Failure> {
    let approvals = super::run::approvals(out, options.approvals)?;
    let created_with = compose::created_with(options.title, options.workspace.as_ref())?;
    let data = match global.nats {
        Some(_) => None,
        None => Some(place::data_dir(global.data.as_deref())?),
    };
    if let (Some(data), Some(workspace)) = (&data, &created_with.workspace) {
        place::keep_apart(data, workspace.as_ref())?;
    }
    let client = reach::client(global, out, Absent::Start).await?;
    let session = if options.last {
        Some(newest(&client).await?)
    } else {
        options.session
    };
    let is_new = session.is_none();
    let before = before::before(&client, session.as_ref()).await?;
    for notice in before.notice.into_iter().chain(before.damage) {
        out.note(&format!("warning: {notice}"));
    }
    let (here, past) = match session {
        Some(id) => Here::load(&client, id).await?,
        None => (
            Here::fresh(SessionId::fresh(uuid::Uuid::now_v7())),
            Vec::new(),
        ),
    };
    let unpriced = options
        .turn
        .look(&client, (!is_new).then_some(&here.id), data.as_deref())
        .await?;
    if let Some(warning) = unpriced {
        out.note(&format!("warning: {warning}"));
    }
    // Before the terminal is taken.
    let signals = talk::Signals::open()?;
    let chat = Chat::new(
        talk::Setting {
            global,
            out,
            turn: options.turn,
            created_with,
            approvals,
        },
        client,
        data,
        here,
        input(out),
    );
    Box::pin(chat.run(past, signals)).await
}

/// How messages are read here.
fn input(out: &Output) -> Input {
    let is_edited = out.format == Format::Text && out.can_ask() && out.can_redraw();
    match is_edited.then(|| Terminal::open(out)) {
        Some(Ok(terminal)) => Input::Keys(terminal),
        // A terminal that cannot be set hands over whole lines.
        Some(Err(_)) | None => Input::Lines(Lines::open()),
    }
}

/// The session whose last commit is the newest.
async fn newest(client: &Client) -> Result<SessionId, Failure> {
    let mut heads = client.mesh().log().follow(Begin::LastOfEach, false).await?;
    let mut newest: Option<(u64, SessionId)> = None;
    while let Some(stored) = heads.next().await {
        let (session, stored) = stored?;
        let Ok(commit) = Commit::decode(&stored.body) else {
            continue; // a damaged session cannot be gone on with
        };
        if commit.head.phase != Phase::Deleted
            && newest
                .as_ref()
                .is_none_or(|(at_ms, _)| commit.at_ms >= *at_ms)
        {
            newest = Some((commit.at_ms, session));
        }
    }
    newest.map(|(_, session)| session).ok_or_else(|| {
        Failure::new(
            Exit::Failed,
            "session.not_found",
            "there is no session to go on with",
        )
        .hint("teamster chat begins one")
    })
}

/// How to come back to a session.
fn come_back(session: &SessionId) -> String {
    let session = display::terminal(&text::shell(session.as_str()));
    format!("teamster chat --session={session}")
}
