//! The demo's directories and its `teamster up` process: set up, started, killed, started again, cleared away.

use std::{
    fs::{DirBuilder, File, OpenOptions},
    os::unix::{fs::DirBuilderExt as _, fs::OpenOptionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use teamster_core::display;
use teamster_protocol::text;
use tokio::time::Instant;

use crate::{
    cli::{exit::Exit, failure::Failure, output::Output, reach},
    client::Client,
    env,
    host::embedded::{self, Embedded},
};

/// The files of the sample workspace.
const FILES: [(&str, &str); 2] = [
    (
        "notes.md",
        include_str!("../../../config/demo/workspace/notes.md"),
    ),
    (
        "plan.md",
        include_str!("../../../config/demo/workspace/plan.md"),
    ),
];
/// How long a start may take: the first one may fetch nats-server.
const START_MAX: Duration = Duration::from_secs(330);
/// How long an orderly end may take.
const END_MAX: Duration = Duration::from_secs(40);
/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// The demo's directories and its process.
pub(super) struct Stage {
    out: Output,
    root: PathBuf,
    is_temporary: bool,
    child: Option<Child>,
    /// Bytes of the process's words that were shown.
    shown: usize,
}

impl Stage {
    /// Makes the directories: under the data directory that was named, else in a temporary place.
    pub(super) fn set(data: Option<&Path>, out: &Output) -> Result<Self, Failure> {
        let (root, is_temporary) = if let Some(data) = data {
            let data =
                std::path::absolute(data).map_err(|error| Failure::io("resolve", data, &error))?;
            (data.join("demo"), false)
        } else {
            let name = format!("teamster-demo-{}", uuid::Uuid::now_v7().simple());
            (std::env::temp_dir().join(name), true)
        };
        let stage = Self {
            out: out.clone(),
            root,
            is_temporary,
            child: None,
            shown: 0,
        };
        for dir in [
            stage.root.clone(),
            stage.data(),
            stage.data().join("log"),
            stage.workspace(),
        ] {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&dir)
                .map_err(|error| Failure::io("create", &dir, &error))?;
        }
        // A demo before this one may have written its summary; the script would not mind, but the reader might.
        let _ = std::fs::remove_file(stage.workspace().join("summary.md"));
        for (name, text) in FILES {
            let path = stage.workspace().join(name);
            std::fs::write(&path, text).map_err(|error| Failure::io("write", &path, &error))?;
        }
        Ok(stage)
    }

    pub(super) fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    pub(super) fn workspace(&self) -> PathBuf {
        self.root.join("workspace")
    }

    /// Starts `teamster up` and waits until it answers.
    pub(super) async fn start(&mut self) -> Result<Client, Failure> {
        self.spawn()?;
        let until = Instant::now() + START_MAX;
        loop {
            self.forward_words();
            if let Some(status) = self.ended() {
                return Err(Failure::new(
                    Exit::Unavailable,
                    "demo.start_failed",
                    format_args!(
                        "teamster up ended at its start ({status}): {}",
                        reach::last_words(&self.words())
                    ),
                )
                .hint("`teamster doctor` looks for causes"));
            }
            if embedded::is_held(&self.data()) {
                match reach::answering(&self.data()).await {
                    Ok(client) => return Ok(client),
                    Err(failure) if Instant::now() >= until => return Err(failure),
                    Err(_) => {}
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn words(&self) -> PathBuf {
        self.data().join("log").join("up.out")
    }

    /// The process: this program again, in a process group of its own, so that Ctrl-C reaches the demo alone.
    fn spawn(&mut self) -> Result<(), Failure> {
        let words = self.words();
        let open = || -> std::io::Result<(File, File)> {
            let file = OpenOptions::new()
                .create(true)
                .write(true)
                .truncate(true)
                .mode(0o600)
                .open(&words)?;
            Ok((file.try_clone()?, file))
        };
        let (stdout, stderr) = open().map_err(|error| Failure::io("write", &words, &error))?;
        let spawn_failed = |error: std::io::Error| {
            Failure::new(
                Exit::Failed,
                "cli.spawn",
                format_args!("cannot start teamster up: {error}"),
            )
        };
        let program = std::env::current_exe().map_err(spawn_failed)?;
        self.shown = 0;
        self.child = Some(
            Command::new(program)
                .arg("up")
                .arg("--data")
                .arg(self.data())
                // Should the demo itself be killed, its mesh does not stay for ever.
                .args(["--idle-exit", "10m"])
                .env_remove(env::NATS)
                .env_remove(env::CREDS)
                .env_remove(env::MODEL)
                .process_group(0)
                .stdin(Stdio::null())
                .stdout(stdout)
                .stderr(stderr)
                .spawn()
                .map_err(spawn_failed)?,
        );
        Ok(())
    }

    /// Shows what the process says while it starts, for example that it fetches nats-server.
    fn forward_words(&mut self) {
        let said = std::fs::read_to_string(self.words()).unwrap_or_default();
        let Some(new) = said.get(self.shown..) else {
            return;
        };
        let Some(end) = new.rfind('\n') else { return };
        for line in new.get(..end).unwrap_or_default().lines() {
            self.out.note(&format!("  up: {}", display::terminal(line)));
        }
        self.shown += end + 1;
    }

    /// The process's id.
    pub(super) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// How the process ended, if it did.
    pub(super) fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.child.as_mut()?.try_wait().ok().flatten()
    }

    /// Kills the process at once: SIGKILL, which no program can notice.
    pub(super) fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
    }

    /// A child that was not waited for keeps its id, so the signal cannot meet another process.
    fn signal(&mut self, signal: Signal) {
        if self.ended().is_some() {
            return;
        }
        if let Some(pid) = self.pid().and_then(|pid| i32::try_from(pid).ok()) {
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    async fn wait(&mut self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        while self.child.is_some() && self.ended().is_none() {
            if Instant::now() >= until {
                return false;
            }
            tokio::time::sleep(PAUSE).await;
        }
        true
    }

    /// Ends the process and the server, and removes what is temporary.
    pub(super) async fn clear(mut self, keep: bool) {
        self.signal(Signal::SIGTERM);
        if !self.wait(END_MAX).await {
            self.kill();
            self.wait(Duration::from_secs(5)).await;
        }
        // Between a kill and the next start the server runs alone: it is taken over once more, to be ended in order.
        if embedded::locate(&self.data()).is_some()
            && let Ok(left) = Embedded::start(&self.data(), Arc::new(|_| {})).await
        {
            left.stop().await;
        }
        if keep || !self.is_temporary {
            let data = self.data().display().to_string();
            let data = text::shell(&data);
            self.out.note(&format!(
                "everything is kept in {}; look at it with: teamster up --data={data}",
                self.root.display()
            ));
        } else {
            // What cannot be removed lies in the temporary directory, where nobody minds.
            let _ = std::fs::remove_dir_all(&self.root);
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.kill();
        self.ended();
    }
}
