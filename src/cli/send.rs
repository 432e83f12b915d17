//! `teamster send`: adds a message to a session and comes back at once.

use std::path::PathBuf;

use clap::Args;
use teamster_core::display;
use teamster_protocol::SessionId;

use super::{
    Global, compose,
    exit::Exit,
    failure::Failure,
    output::Output,
    place,
    reach::{self, Absent},
    show,
};

/// Add a message to a session and come back at once. A busy session takes it into its running turn.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The session; created when it does not exist
    #[arg(value_name = "SESSION")]
    session: SessionId,
    /// The message; nothing or `-` reads standard input
    #[arg(value_name = "MESSAGE")]
    message: Vec<String>,
    /// Directory that file functions may touch, if the session is new
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    #[command(flatten)]
    turn: compose::Turn,
    #[command(flatten)]
    key: compose::Key,
}

pub(super) async fn run(global: &Global, out: &Output, options: Options) -> Result<Exit, Failure> {
    let message = compose::message(&options.message)?;
    let created_with = match &options.workspace {
        Some(workspace) => compose::created_with(None, Some(workspace))?,
        None => teamster_protocol::input::SessionOptions::default(),
    };
    let client = reach::client(global, out, Absent::Start).await?;
    let data = match global.nats {
        Some(_) => None,
        None => Some(place::data_dir(global.data.as_deref())?),
    };
    let unpriced = options
        .turn
        .unpriced(&client, Some(&options.session), data.as_deref())
        .await?;
    if let Some(warning) = &unpriced {
        out.note(&format!("warning: {warning}"));
    }
    let request = options.turn.request(
        Some(options.session),
        &options.key,
        message,
        created_with,
        false,
    );
    let sent = client.send(request).await?;
    if options.key.is_repeated(&sent) {
        out.note(compose::REPEATED);
    }
    if out.is_text() {
        out.line(sent.message_id.as_str())?;
        out.note(&format!(
            "{}; follow it with: teamster sessions tail {}",
            show::word(&sent.state),
            display::terminal(sent.session_id.as_str())
        ));
    } else {
        let mut document = show::versioned(&sent);
        if let Some(object) = document.as_object_mut() {
            let warnings: Vec<String> = unpriced.into_iter().collect();
            object.insert("warnings".to_owned(), warnings.into());
        }
        out.document(&document)?;
    }
    Ok(Exit::Completed)
}
