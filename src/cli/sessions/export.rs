//! `sessions export`: a session's stored commits as a file that verifies by itself.

use std::{
    collections::BTreeSet,
    fs::OpenOptions,
    io::{IsTerminal as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use clap::Args;
use serde_json::json;
use teamster_core::{display, turn::fold::behind_deletion};
use teamster_mesh::{Error as MeshError, log::Stored};
use teamster_protocol::{Commit, Digest, SessionId, text};

use super::archive::{self, Header};
use crate::{
    cli::{
        exit::Exit,
        failure::Failure,
        output::{Format, Output},
        show,
        status::counted,
    },
    client::{Client, Surveyed},
};

/// Write a session's stored commits, byte for byte and with their digests, as lines of JSON. `sessions verify` checks such a
/// file without a mesh. It holds everything that was said.
#[derive(Debug, Args)]
pub(in crate::cli) struct Export {
    /// The session
    #[arg(value_name = "SESSION")]
    session: SessionId,
    /// The file, which must not exist yet. Default: standard output, if that is no terminal
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Refuses what cannot be written before anything is asked.
pub(super) fn check(out: &Output, options: &Export) -> Result<(), Failure> {
    let hint = "-o FILE names a file";
    match &options.output {
        Some(path) if path.exists() => Err(Failure::usage(
            "cli.exists",
            format_args!("{} exists already", path.display()),
        )
        .hint("choose another name, or remove it first")),
        None if out.format == Format::Json => {
            Err(Failure::usage("cli.usage", "an export is lines, not one document").hint(hint))
        }
        None if std::io::stdout().is_terminal() => Err(Failure::usage(
            "cli.usage",
            "an export is exact bytes, which a terminal may obey",
        )
        .hint(hint)),
        _ => Ok(()),
    }
}

pub(super) async fn run(out: &Output, client: &Client, options: Export) -> Result<Exit, Failure> {
    let Surveyed { survey, damage } = client.survey(&options.session).await?;
    let (unreadable, mut stored) = (survey.unreadable, survey.commits);
    // What a deleted session of the same name has left is on its way out.
    let whole: Vec<(u64, &[u8])> = stored.iter().map(|one| (one.seq, &*one.body)).collect();
    let gone = whole.len() - behind_deletion(&whole).len();
    stored.drain(..gone);
    if unreadable > 0 {
        out.note(&format!(
            "{unreadable} of {} stored messages of this log cannot be read, because their bytes are damaged; the export holds the \
             others",
            survey.stored
        ));
    }
    let (lines, missing) = lines(client, &options.session, &stored, damage.clone()).await?;
    if let Some(damage) = damage {
        let session = text::operand(options.session.as_str());
        out.note(&format!(
            "the log is damaged: {}. The export says so, and verifies once the loss is accepted: teamster sessions accept-loss \
             {session}",
            display::terminal(&damage)
        ));
    }
    for digest in &missing {
        out.note(&format!(
            "the value {} is not stored any more, or cannot be read; the commits name it by its digest alone",
            digest.short()
        ));
    }
    match &options.output {
        None => out.text(&lines)?,
        Some(path) => {
            write(path, &lines)?;
            told(out, &options.session, path, &stored, lines.len())?;
        }
    }
    Ok(Exit::Completed)
}

/// The whole export, and the values that are not there any more.
async fn lines(
    client: &Client,
    session: &SessionId,
    stored: &[Stored],
    damage: Option<String>,
) -> Result<(String, Vec<Digest>), Failure> {
    let last = stored
        .last()
        .map(|stored| &*stored.body)
        .unwrap_or_default();
    let header = Header::new(session, stored.len() as u64, last, show::now_ms(), damage);
    let mut lines = serde_json::to_string(&header)
        .map_err(|error| Failure::new(Exit::Failed, "cli.document", error))?;
    lines.push('\n');
    let mut blobs = BTreeSet::new();
    let mut refs = Vec::new();
    for stored in stored {
        lines.push_str(&archive::commit_line(stored.seq, &stored.body));
        lines.push('\n');
        // A commit that cannot be read is exported all the same.
        let named = Commit::decode(&stored.body).map(|commit| archive::blobs(&commit));
        refs.extend(
            named
                .unwrap_or_default()
                .into_iter()
                .filter(|blob| blobs.insert(blob.sha256)),
        );
    }
    let mut missing = Vec::new();
    for blob in refs {
        match client.mesh().blobs().get(&blob).await {
            Ok(Some(bytes)) => {
                lines.push_str(&archive::blob_line(&bytes));
                lines.push('\n');
            }
            Ok(None) | Err(MeshError::Damaged { .. } | MeshError::Malformed { .. }) => {
                missing.push(blob.sha256);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok((lines, missing))
}

/// Writes a file that only its owner reads; what is not written whole is not left there.
fn write(path: &Path, lines: &str) -> Result<(), Failure> {
    let write = || -> std::io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        let written = file
            .write_all(lines.as_bytes())
            .and_then(|()| file.sync_all());
        if written.is_err() {
            let _ = std::fs::remove_file(path);
        }
        written
    };
    write().map_err(|error| Failure::io("write", path, &error))
}

fn told(
    out: &Output,
    session: &SessionId,
    path: &Path,
    stored: &[Stored],
    bytes: usize,
) -> Result<(), Failure> {
    let last = stored.last().map(|stored| Digest::of(&stored.body));
    if out.is_text() {
        out.line(&format!(
            "{}: {} in {}",
            display::terminal(session.as_str()),
            counted(stored.len() as u64, "commit"),
            path.display()
        ))?;
        return Ok(());
    }
    out.document(&json!({
        "v": 1,
        "session": session,
        "file": path.display().to_string(),
        "commits": stored.len(),
        "bytes": bytes,
        "last_sha256": last,
    }))?;
    Ok(())
}
