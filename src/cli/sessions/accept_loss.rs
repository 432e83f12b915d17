//! `teamster sessions accept-loss`: an operator lets a session go on whose log is damaged.

use teamster_core::display;

use super::{AcceptLoss, Exit, Failure, Output};
use crate::{cli::show, client::Client};

pub(super) async fn run(
    out: &Output,
    client: &Client,
    options: &AcceptLoss,
) -> Result<Exit, Failure> {
    let reply = client.accept_loss(&options.session, options.yes).await?;
    if out.is_text() {
        let session = display::terminal(options.session.as_str());
        out.line(&format!(
            "{session} goes on behind commit {} (accepted in commit {})",
            reply.kept, reply.commit
        ))?;
        out.line(&format!("given up: {}", reply.loss.words()))?;
        out.line(&format!(
            "what was wrong: {}",
            display::terminal(&reply.message)
        ))?;
    } else {
        out.document(&show::versioned(&reply))?;
    }
    Ok(Exit::Completed)
}
