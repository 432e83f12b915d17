//! `teamster stop`: stops the turn that a session runs.

use clap::Args;
use teamster_core::display;
use teamster_protocol::{SessionId, TurnId};

use super::{
    Global,
    exit::Exit,
    failure::Failure,
    output::Output,
    reach::{self, Absent},
    show,
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
    let reply = client.stop(&options.session, options.turn.as_ref()).await?;
    if out.is_text() {
        let session = display::terminal(options.session.as_str());
        let text = if reply.stopping {
            format!("stopping the turn of {session}")
        } else {
            format!("no turn of {session} runs; the stop is stored all the same")
        };
        out.line(&text)?;
    } else {
        out.document(&show::versioned(&reply))?;
    }
    Ok(Exit::Completed)
}
