//! `teamster send`: adds a message to a session and comes back at once.

use std::path::PathBuf;

use clap::Args;
use teamster_core::display;
use teamster_protocol::{SessionId, text};

use super::{
    Global, before, compose,
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
    /// Directory that file functions may touch, for a new session. Default: the working directory
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    #[command(flatten)]
    turn: compose::Turn,
    #[command(flatten)]
    key: compose::Key,
}

pub(super) async fn run(global: &Global, out: &Output, options: Options) -> Result<Exit, Failure> {
    let session = text::operand(options.session.as_str());
    let how = format!("teamster send {session}");
    let message = compose::message(&options.message, &how)?;
    let mut created_with = match &options.workspace {
        Some(workspace) => compose::created_with(None, Some(workspace))?,
        None => teamster_protocol::input::SessionOptions::default(),
    };
    let data = match global.nats {
        Some(_) => None,
        None => Some(place::data_dir(global.data.as_deref())?),
    };
    let client = reach::client(global, out, Absent::Start).await?;
    let before = before::before(&client, Some(&options.session)).await?;
    if before.is_new && created_with.workspace.is_none() {
        created_with = compose::created_with(None, None)?;
    }
    if let (Some(data), Some(workspace)) = (&data, &created_with.workspace) {
        place::keep_apart(data, workspace.as_ref())?;
    }
    let unpriced = options
        .turn
        .look(&client, Some(&options.session), data.as_deref())
        .await?;
    if let Some(warning) = &unpriced {
        out.note(&format!("warning: {warning}"));
    }
    let request = options.turn.request(
        Some(options.session),
        &options.key,
        message,
        created_with,
        before.is_new,
    );
    let sent = client.send(request).await?;
    let is_repeated = options.key.is_repeated(&sent);
    if is_repeated {
        out.note(compose::REPEATED);
    }
    let notices: Vec<String> = before
        .notice
        .filter(|_| !is_repeated)
        .into_iter()
        .chain(before.damage)
        .collect();
    for notice in &notices {
        out.note(&format!("warning: {notice}"));
    }
    if out.is_text() {
        out.line(sent.message_id.as_str())?;
        let session = display::terminal(&session);
        out.note(&format!(
            "{}; follow it with: teamster sessions tail {session}",
            show::word(&sent.state)
        ));
    } else {
        let mut document = show::versioned(&sent);
        if let Some(object) = document.as_object_mut() {
            let repeated = is_repeated.then(|| compose::REPEATED.to_owned());
            let warnings = unpriced.into_iter().chain(notices).chain(repeated);
            let warnings: Vec<String> = warnings.collect();
            object.insert("warnings".to_owned(), warnings.into());
        }
        out.document(&document)?;
    }
    Ok(Exit::Completed)
}
