//! `teamster demo`: the whole guided tour, without a key: an answer, an approval, a kill, and the turn that goes on.
//!
//! Everything that it shows is real but the model, which is a script and says so: a server, the workers, the log, an
//! approval that an operator decides, and a `kill -9` of the process that runs the turn.

mod stage;
mod table;
mod tour;

use std::time::Duration;

use clap::Args;
use tokio::time::timeout;

use super::{Global, exit::Exit, failure::Failure, output::Output};
use stage::Stage;
use tour::Tour;

/// How long the tour may take where nobody is asked; the first start, which may fetch nats-server, counts apart.
const TOUR_MAX: Duration = Duration::from_mins(2);

/// Show the whole thing once, without a key.
///
/// A copy of a sample workspace, a data directory of its own and a script instead of a model. On a terminal you decide the
/// approval and kill the process yourself; without one the demo does both, and says so.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Keep the demo's directory, to look at it with the other commands
    #[arg(long)]
    keep: bool,
}

pub(super) async fn run(global: &Global, out: &Output, options: Options) -> Result<Exit, Failure> {
    if global.nats.is_some() {
        return Err(Failure::usage(
            "cli.usage",
            "the demo kills and restarts its own mesh, so it takes no --nats",
        )
        .hint("teamster run works against any server"));
    }
    let is_asked = out.is_text() && out.can_ask();
    let mut stage = Stage::set(global.data.as_deref(), out)?;
    let played = play(out, &mut stage, is_asked).await;
    stage.clear(options.keep).await;
    played
}

async fn play(out: &Output, stage: &mut Stage, is_asked: bool) -> Result<Exit, Failure> {
    let mut signals = super::up::Signals::new()?;
    let tour = async {
        let client = stage.start().await?;
        let tour = Tour::begin(out, client, stage, is_asked).await?;
        if is_asked {
            tour.run().await
        } else {
            timeout(TOUR_MAX, tour.run()).await.unwrap_or_else(|_| {
                Err(Failure::new(
                    Exit::Failed,
                    "demo.timeout",
                    format_args!("the tour did not end within {} s", TOUR_MAX.as_secs()),
                ))
            })
        }
    };
    signals.or_end(Box::pin(tour)).await?
}
