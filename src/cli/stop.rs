//! `teamster stop`: stops the turn that a session runs.

use clap::Args;
use teamster_core::display;
use teamster_protocol::{SessionId, TurnId, text};

use super::{
    Global,
    exit::Exit,
    failure::Failure,
    output::Output,
    reach::{self, Absent},
    show, status,
};

/// Stop the turn that a session runs. The stop is durable; the turn ends within seconds whatever its functions do.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The session
    #[arg(value_name = "SESSION")]
    session: SessionId,
    /// Only this turn, never a later one
    #[arg(long, value_name = "ID")]
    turn: Option<TurnId>,
}

pub(super) async fn run(global: &Global, out: &Output, options: Options) -> Result<Exit, Failure> {
    let client = reach::client(global, out, Absent::Resume).await?;
    // They begin a turn of their own when the one that runs is stopped.
    let waiting = client.queued(&options.session).await?;
    let reply = client.stop(&options.session, options.turn.as_ref()).await?;
    let queued = if reply.stopping { waiting } else { 0 };
    if out.is_text() {
        let session = display::terminal(options.session.as_str());
        let text = if reply.stopping {
            format!("stopping the turn of {session}")
        } else {
            match &options.turn {
                Some(turn) => {
                    format!("the turn {turn} of {session} does not run; nothing is stopped")
                }
                None => format!("no turn of {session} runs; nothing is stopped"),
            }
        };
        out.line(&text)?;
        if queued > 0 {
            let session = display::terminal(&text::operand(options.session.as_str()));
            out.note(&format!(
                "{} in its queue; what is not answered yet begins a new turn now: `teamster sessions tail {session}` follows it, \
                 `teamster stop {session}` stops that one too",
                status::counted(queued, "message")
            ));
        }
    } else {
        let mut document = show::versioned(&reply);
        if let Some(object) = document.as_object_mut() {
            object.insert("queued".to_owned(), queued.into());
        }
        out.document(&document)?;
    }
    Ok(Exit::Completed)
}
