//! Finds the mesh that a command talks to, and starts one in the background where that is wanted.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use teamster_mesh::{Connect, credential, permission};
use teamster_protocol::text;
use tokio::time::Instant;

use super::{Global, exit::Exit, failure::Failure, output::Output, place};
use crate::{
    client::{self, Client},
    host,
};

/// What to do where no mesh runs for the data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Absent {
    /// Start it in the background if there ever was one; where there was none, there is nothing to see or to decide.
    Resume,
    /// Start it in the background.
    Start,
}

/// How long a mesh in the background stays without anybody needing it.
const IDLE_EXIT: &str = "10m";
/// How long a start may take: the first one may fetch nats-server.
const START_MAX: Duration = Duration::from_secs(330);
/// How long a running mesh may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// How long the registry of a foreign server may take to show its workers.
const FOREIGN_MAX: Duration = Duration::from_secs(4);
/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes of a failed start's words that are shown.
const WORDS_MAX: usize = 2000;

/// A client of the mesh that the options name: a server, or the one of the data directory.
pub(super) async fn client(
    global: &Global,
    out: &Output,
    absent: Absent,
) -> Result<Client, Failure> {
    if let Some(url) = &global.nats {
        let connect = place::foreign(url, global.creds.as_deref())?;
        return foreign(&connect, absent).await;
    }
    let data = place::data_dir(global.data.as_deref())?;
    if let Some(warning) = super::keep::warning(&data) {
        out.note(&warning);
    }
    if host::embedded::is_held(&data)
        && let Some(client) = running(&data).await?
    {
        return Ok(client);
    }
    if absent == Absent::Start || host::embedded::was_used(&data) {
        return started(&data, out).await;
    }
    Err(not_running(&data))
}

/// A client for what only reads the log: the broker is enough, and a mesh is started only where there is no broker.
pub(super) async fn log(global: &Global, out: &Output) -> Result<Client, Failure> {
    if global.nats.is_none() {
        let data = place::data_dir(global.data.as_deref())?;
        if let Some(connect) = host::embedded::locate(&data)
            && let Ok(client) = Client::connect(&connect).await
        {
            return Ok(client);
        }
    }
    client(global, out, Absent::Resume).await
}

/// A server that somebody else runs. Nothing is started there; who wants to run turns needs the workers, though.
async fn foreign(connect: &Connect, absent: Absent) -> Result<Client, Failure> {
    let client = Client::connect(connect).await?;
    if absent == Absent::Start {
        let missing = client.wait_for_workers(&host::NEEDED, FOREIGN_MAX).await?;
        if !missing.is_empty() {
            let (names, url) = (missing.join(" "), connect.shown());
            let url = text::shell(&url);
            let creds = connect.credentials.as_ref();
            let hint = match creds.map(|path| path.to_string_lossy()) {
                None => format!("start them: teamster worker {names} --nats={url}"),
                Some(creds) => {
                    let creds = text::shell(&creds);
                    format!("start them: teamster worker {names} --nats={url} --creds={creds}")
                }
            };
            return Err(no_workers(&missing).hint(hint));
        }
    }
    Ok(client)
}

fn no_workers(missing: &[String]) -> Failure {
    Failure::new(
        Exit::Unavailable,
        "mesh.no_workers",
        format_args!("nobody runs: {}", missing.join(", ")),
    )
}

fn not_running(data: &Path) -> Failure {
    Failure::new(
        Exit::Unavailable,
        "mesh.not_running",
        format_args!(
            "no mesh has ever run for the data directory {}",
            data.display()
        ),
    )
    .hint("`teamster run \"...\"` or `teamster up` starts one; --data names another directory")
}

/// The mesh of a data directory that is running; `None` where its process went away before it answered, and with it the lock.
async fn running(data: &Path) -> Result<Option<Client>, Failure> {
    let began = Instant::now();
    loop {
        let failure = match answering(data).await {
            Ok(client) => return Ok(Some(client)),
            Err(failure) => failure,
        };
        if !host::embedded::is_held(data) {
            return Ok(None);
        }
        if failure.code == "mesh.credentials" {
            return Err(failure);
        }
        // Another process starts it, and may fetch the server first.
        let limit = if failure.code == "mesh.starting" {
            START_MAX
        } else {
            ANSWER_MAX
        };
        if began.elapsed() >= limit {
            return Err(failure);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Tries once.
pub(super) async fn answering(data: &Path) -> Result<Client, Failure> {
    let connect = host::embedded::locate(data).ok_or_else(|| {
        Failure::new(
            Exit::TryAgain,
            "mesh.starting",
            format_args!("the mesh of {} is starting", data.display()),
        )
        .hint("try again in a moment")
    })?;
    let client = match Client::connect(&connect).await {
        Err(client::Error::Mesh(error @ teamster_mesh::Error::Credentials { .. })) => {
            return Err(locked_out(data, error));
        }
        client => client?,
    };
    // The harness starts last: where it answers, its siblings do.
    if client.is_harness_there().await? {
        Ok(client)
    } else {
        Err(no_workers(&["harness".to_owned()]).hint("`teamster doctor` shows what runs"))
    }
}

/// Starts the mesh of a data directory in the background and waits for it.
async fn started(data: &Path, out: &Output) -> Result<Client, Failure> {
    host::embedded::prepare(data)?;
    // A mistake in the configuration is told here, where somebody reads it.
    super::up::configuration(data)?;
    let words = words_of(data);
    out.note(&format!(
        "starting teamster up in the background (data {}, ends after {IDLE_EXIT} without work)",
        data.display()
    ));
    let mut child = spawn(data, &words)?;
    let until = Instant::now() + START_MAX;
    loop {
        let mut failure = None;
        if host::embedded::is_held(data) {
            match answering(data).await {
                Ok(client) => return Ok(client),
                Err(error) => failure = Some(error),
            }
        }
        let ended = child.try_wait().ok().flatten();
        if ended.is_some() && !host::embedded::is_held(data) {
            return Err(ended_early(&words));
        }
        if Instant::now() >= until {
            return Err(failure.unwrap_or_else(|| ended_early(&words)));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Whether the mesh of a data directory was killed: nobody holds the directory, but the server that it had still runs.
pub(super) fn was_killed(data: &Path) -> bool {
    !host::embedded::is_held(data) && host::embedded::locate(data).is_some()
}

/// Starts the mesh of a data directory again in the background, without waiting for it.
pub(super) fn revive(data: &Path) -> Result<(), Failure> {
    spawn(data, &words_of(data)).map(drop)
}

/// Where a mesh in the background writes what it says.
fn words_of(data: &Path) -> PathBuf {
    data.join("log").join("up.out")
}

fn spawn(data: &Path, words: &Path) -> Result<Child, Failure> {
    let program = std::env::current_exe().map_err(|error| {
        Failure::new(
            Exit::Failed,
            "cli.exe",
            format_args!("cannot find this program again: {error}"),
        )
    })?;
    let open = || -> std::io::Result<(File, File)> {
        let file = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(words)?;
        Ok((file.try_clone()?, file))
    };
    let (out, err) = open().map_err(|error| Failure::io("write", words, &error))?;
    Command::new(program)
        .arg("up")
        .arg("--detached")
        .arg("--idle-exit")
        .arg(IDLE_EXIT)
        .arg("--data")
        .arg(data)
        // A file of the workspace that a shell left open, or the terminal, is none of its business.
        .current_dir(PathBuf::from("/"))
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        .spawn()
        .map_err(|error| {
            Failure::new(
                Exit::Failed,
                "cli.spawn",
                format_args!("cannot start teamster up: {error}"),
            )
        })
}

/// The end of what a process wrote into a file.
pub(super) fn last_words(words: &Path) -> String {
    let said = std::fs::read_to_string(words).unwrap_or_default();
    teamster_protocol::text::tail(said.trim(), WORDS_MAX).to_owned()
}

fn ended_early(words: &Path) -> Failure {
    let said = last_words(words);
    start_failed(&said)
}

/// A start that failed, by what it said itself: what happened, and what to do if it said that.
fn start_failed(said: &str) -> Failure {
    let (what, next) = match said.split_once("\n  next: ") {
        Some((what, next)) => (what, next),
        None => (
            said,
            "`teamster up` in the foreground shows more; `teamster doctor` looks for causes",
        ),
    };
    let message = match what.trim_start_matches("error: ") {
        "" => "teamster up did not start".to_owned(),
        what => format!("teamster up did not start: {what}"),
    };
    Failure::new(Exit::Unavailable, "mesh.start_failed", message).hint(next)
}

/// Who runs the mesh of a data directory knows other credentials than lie there now, or none.
fn locked_out(data: &Path, error: teamster_mesh::Error) -> Failure {
    let failure = Failure::from(error);
    let file = credential::file(&data.join("credentials"), permission::OPERATOR);
    let first = if file.exists() {
        let file = file.to_string_lossy();
        format!("move {} away; ", text::shell(&file))
    } else {
        String::new()
    };
    let Some(pid) = host::embedded::holder(data) else {
        return failure.hint(format_args!(
            "{first}`teamster up` makes credentials anew that are missing"
        ));
    };
    failure.hint(format_args!(
        "{first}`kill {pid}` ends the mesh in order, and its next start makes credentials anew that are missing"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_start_says_of_itself_is_said_once() {
        let said =
            "error: cannot set up the worker session (host.projection)\n  next: move it away";
        let failure = start_failed(said);
        assert_eq!(
            (failure.message.as_str(), failure.hint.as_deref()),
            (
                "teamster up did not start: cannot set up the worker session (host.projection)",
                Some("move it away")
            )
        );
        let failure = start_failed("");
        assert_eq!(failure.message, "teamster up did not start");
        assert!(
            failure
                .hint
                .is_some_and(|hint| hint.contains("teamster doctor"))
        );
    }

    /// A mesh whose process is killed while a command waits for it is one that has to be started again.
    #[tokio::test]
    async fn a_mesh_that_goes_away_while_it_is_waited_for_is_no_failure() {
        let dir = tempfile::tempdir().expect("a directory");
        let lock = host::embedded::prepare(dir.path())
            .expect("made")
            .lock()
            .expect("free");
        std::fs::create_dir_all(dir.path().join("nats")).expect("made");
        assert!(host::embedded::is_held(dir.path()));
        let (found, ()) = tokio::join!(running(dir.path()), async { drop(lock) });
        assert!(matches!(found, Ok(None)));
    }
}
