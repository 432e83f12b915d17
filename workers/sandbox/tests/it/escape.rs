//! Attempts to get out of the sandbox, each as the host's root and as one of its plain users, and with single layers left
//! out to see the next one hold. `docs/sandbox.md` has the table.

mod missing;
mod network;
mod outside;
mod resources;
mod workspace;

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use teamster_sandbox::{Config, Layer, Minimum};

use crate::exec::{Bench, config};

/// Whose process the worker's helper is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    /// The host's root: nothing but the sandbox is in its way.
    Root,
    /// A plain user of the host.
    User,
}

/// The user and group of [`Who::User`].
const NOBODY: u32 = 65_534;

impl Who {
    /// Everybody that this process can be.
    fn all() -> Vec<Self> {
        if nix::unistd::geteuid().is_root() {
            vec![Self::Root, Self::User]
        } else {
            eprintln!("NOT RUN as root: this test process is a plain user's");
            vec![Self::User]
        }
    }
}

/// A sandbox to break out of.
struct Cell {
    bench: Bench,
    /// A directory of the host beside the workspace.
    outside: tempfile::TempDir,
}

impl Cell {
    /// One with every layer that the product puts up.
    async fn new(who: Who) -> Self {
        Self::without(who, &[]).await
    }

    /// One that leaves out `layers`.
    async fn without(who: Who, layers: &[&str]) -> Self {
        let mut weak: Vec<String> = layers
            .iter()
            .map(|layer| format!("--without {layer}"))
            .collect();
        if !weak.is_empty() {
            weak.insert(0, "--lies".to_owned());
        }
        Self::with(who, &weak.join(" "), config()).await
    }

    /// One whose helper is started with `words`.
    async fn with(who: Who, words: &str, config: Config) -> Self {
        let outside = tempfile::tempdir().expect("a directory");
        open(outside.path());
        let helper = script(outside.path(), who, words);
        let minimum = Minimum::try_from(Layer::ALWAYS.to_vec()).expect("valid");
        let bench = Bench::new(Config {
            helper: Some(helper),
            minimum: if words.contains("--without") {
                minimum
            } else {
                config.minimum.clone()
            },
            ..config
        })
        .await;
        open(bench.work.path());
        Self { bench, outside }
    }

    fn secret(&self) -> String {
        let path = self.outside.path().join("secret.txt");
        path.to_str().expect("a text path").to_owned()
    }

    /// Runs a shell line that prints `ESCAPED` if it succeeds, and returns all that it said.
    async fn attempt(&self, line: &str) -> String {
        self.attempt_with(json!({"argv": ["sh", "-c", line]})).await
    }

    async fn attempt_with(&self, request: Value) -> String {
        let said = said(&self.bench.ask(request.clone()).await);
        assert!(
            !said.contains("ESCAPED") && !said.contains("LOOT"),
            "{request}: {said}"
        );
        said
    }
}

/// What a command said on both streams.
fn said(reply: &Value) -> String {
    let text = |stream: &str| reply[stream]["text"].as_str().expect("text").to_owned();
    text("stdout") + &text("stderr")
}

/// Lets every user of the host in.
fn open(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("permissions");
}

/// A helper that begins as careless programs do: with a secret in its environment and an open descriptor of a host file.
fn script(dir: &Path, who: Who, words: &str) -> PathBuf {
    let binary = if words.is_empty() {
        env!("CARGO_BIN_EXE_teamster-sandbox-stage")
    } else {
        env!("CARGO_BIN_EXE_teamster-sandbox-weak")
    };
    fs::write(dir.join("secret.txt"), "LOOT-FILE\n").expect("a file");
    // The build's own folder may be closed to plain users.
    let copy = dir.join("helper");
    fs::hard_link(binary, &copy)
        .or_else(|_| fs::copy(binary, &copy).map(drop))
        .expect("a copy");
    let (copy, secret) = (copy.display(), dir.join("secret.txt"));
    let become_user = if who == Who::User && nix::unistd::geteuid().is_root() {
        format!("setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups ")
    } else {
        String::new()
    };
    let text = format!(
        "#!/bin/sh\nexport PATH=/usr/bin:/bin TOKEN=LOOT-ENV\nexec 9<{}\nexec {become_user}{copy} {words} \"$@\"\n",
        secret.display()
    );
    let path = dir.join("helper.sh");
    fs::write(&path, text).expect("a script");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("permissions");
    path
}

/// A Perl line, for system calls that no plain program makes; `None` where there is no Perl, which is said.
fn perl(code: &str) -> Option<Value> {
    if Path::new("/usr/bin/perl").exists() {
        return Some(json!({"argv": ["/usr/bin/perl", "-e", code]}));
    }
    eprintln!("NOT RUN, there is no /usr/bin/perl: {code}");
    None
}

/// Makes each attempt in each cell and compares the reason with the layer that should give it: `(left out, what is said)`.
async fn held_by(request: impl Fn(&Cell) -> Option<Value>, layers: &[(&[&str], &str)]) {
    for who in Who::all() {
        for (without, reason) in layers {
            let cell = Cell::without(who, without).await;
            let Some(request) = request(&cell) else {
                return;
            };
            let said = cell.attempt_with(request.clone()).await;
            assert!(
                said.contains(reason),
                "{who:?} without {without:?}, {request}: {said:?} is not {reason:?}"
            );
        }
    }
}

/// A shell line that says so if it succeeds.
#[expect(clippy::unnecessary_wraps, reason = "a request like that of Perl")]
fn sh(line: impl AsRef<str>) -> Option<Value> {
    let line = format!("{} && echo ESCAPED", line.as_ref());
    Some(json!({"argv": ["sh", "-c", line]}))
}
