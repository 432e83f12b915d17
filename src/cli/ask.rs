//! Asking a person at the terminal: a question, a line, an editor.

use std::io::{BufRead as _, Write as _};

use teamster_protocol::{Arguments, input::Decision};
use tokio::sync::mpsc;

use super::{failure::Failure, output::Output};
use crate::env;

/// Lines from standard input. A thread reads one line at a time, only when one is wanted, so that an editor finds the
/// terminal free.
pub(super) struct Lines {
    wanted: std::sync::mpsc::SyncSender<()>,
    typed: mpsc::Receiver<Option<String>>,
    is_reading: bool,
}

impl Lines {
    pub(super) fn new() -> Self {
        let (wanted, wants) = std::sync::mpsc::sync_channel(1);
        let (sender, typed) = mpsc::channel(1);
        std::thread::spawn(move || {
            while wants.recv().is_ok() {
                let mut line = String::new();
                let line = match std::io::stdin().lock().read_line(&mut line) {
                    Ok(0) | Err(_) => None,
                    Ok(_) => Some(line.trim_end_matches(['\n', '\r']).to_owned()),
                };
                if sender.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            wanted,
            typed,
            is_reading: false,
        }
    }

    /// Throws away what was typed before the question, and asks for one line.
    pub(super) fn want(&mut self) {
        if self.is_reading {
            return;
        }
        let _ = nix::sys::termios::tcflush(std::io::stdin(), nix::sys::termios::FlushArg::TCIFLUSH);
        self.is_reading = self.wanted.send(()).is_ok();
    }

    /// The line that was asked for; `None` at the end of the input. Waits for ever where none was asked for. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<String> {
        if !self.is_reading {
            return std::future::pending().await;
        }
        let line = self.typed.recv().await.flatten();
        self.is_reading = false;
        line
    }
}

/// What a person typed at an approval.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// A decision.
    Decided(Decision),
    /// Edit the arguments first.
    Edit,
    /// Show the arguments so that they can be read.
    Details,
    /// Something else.
    Unclear,
}

/// The question.
pub(super) const QUESTION: &str =
    "run exactly this? [y]es · [n]o, with a reason if you like · [e]dit · [d]etails: ";

/// What is said to an answer that decides nothing.
pub(super) const UNCLEAR: &str =
    "nothing is decided: answer y, n (with a reason if you like), e or d, and Enter";

/// Reads an answer. There is no default: an empty line decides nothing.
pub(super) fn read(line: &str) -> Answer {
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    match word.to_ascii_lowercase().as_str() {
        "y" | "yes" if rest.is_empty() => Answer::Decided(Decision::Approve),
        "n" | "no" => Answer::Decided(Decision::Deny {
            reason: (!rest.is_empty()).then(|| rest.to_owned()),
        }),
        "e" | "edit" if rest.is_empty() => Answer::Edit,
        "d" | "details" if rest.is_empty() => Answer::Details,
        _ => Answer::Unclear,
    }
}

/// Lets a person edit arguments in their editor. `None` where nothing was changed.
pub(super) fn edit(out: &Output, arguments: &Arguments) -> Result<Option<Arguments>, Failure> {
    let editor = std::env::var(env::VISUAL)
        .or_else(|_| std::env::var(env::EDITOR))
        .unwrap_or_else(|_| "vi".to_owned());
    let mut words = editor.split_whitespace();
    let Some(program) = words.next() else {
        return Err(no_editor("the editor's name is empty"));
    };
    let path =
        std::env::temp_dir().join(format!("teamster-{}.json", uuid::Uuid::now_v7().simple()));
    let written = write_private(&path, arguments.as_str());
    written.map_err(|error| Failure::io("write", &path, &error))?;
    let status = std::process::Command::new(program)
        .args(words)
        .arg(&path)
        .status();
    let text = std::fs::read_to_string(&path);
    // What a person edited is nobody else's business; a file that cannot be removed is not worth stopping for.
    let _ = std::fs::remove_file(&path);
    match status {
        Err(error) => return Err(no_editor(&format!("cannot start {program}: {error}"))),
        Ok(status) if !status.success() => return Ok(None),
        Ok(_) => {}
    }
    let mut text = text.map_err(|error| Failure::io("read", &path, &error))?;
    if text.ends_with('\n') && !arguments.as_str().ends_with('\n') {
        text.pop(); // editors end the last line
    }
    if text == arguments.as_str() {
        return Ok(None);
    }
    match Arguments::parse(text) {
        Ok(edited) => Ok(Some(edited)),
        Err(error) => {
            out.say(&format!("not taken: {error}"));
            Ok(None)
        }
    }
}

fn no_editor(what: &str) -> Failure {
    Failure::usage("cli.no_editor", what).hint("set EDITOR to the name of your editor")
}

fn write_private(path: &std::path::Path, text: &str) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?
        .write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_yes_approves() {
        for (line, want) in [
            ("y", Answer::Decided(Decision::Approve)),
            (" YES ", Answer::Decided(Decision::Approve)),
            ("n", Answer::Decided(Decision::Deny { reason: None })),
            (
                "no not today",
                Answer::Decided(Decision::Deny {
                    reason: Some("not today".to_owned()),
                }),
            ),
            ("e", Answer::Edit),
            ("Details", Answer::Details),
            ("d x", Answer::Unclear),
            ("", Answer::Unclear),
            ("yes please", Answer::Unclear),
            ("ok", Answer::Unclear),
            ("yy", Answer::Unclear),
        ] {
            assert_eq!(read(line), want, "{line:?}");
        }
    }
}
