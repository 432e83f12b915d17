//! Where data and words go: data to standard output, words to standard error.
//!
//! Standard output holds text, or exactly one JSON document, or lines of JSON documents. A closed pipe is quiet;
//! any other failure to write is told.

use std::{
    fmt::Write as _,
    io::{ErrorKind, IsTerminal as _, Write as _},
    sync::{Arc, OnceLock},
};

use serde::Serialize;

use super::{exit::Exit, failure::Failure};
use crate::env;

/// The form of standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// Text for people.
    Text,
    /// One JSON document.
    Json,
    /// One JSON document a line.
    JsonLines,
}

/// Where a command writes.
#[derive(Debug, Clone)]
pub(super) struct Output {
    /// The form of standard output.
    pub(super) format: Format,
    /// No words but errors.
    pub(super) is_quiet: bool,
    /// Whether colours and cursor movement are wanted.
    pub(super) is_plain: bool,
    /// Why something could not be written to standard output, except that nobody reads.
    lost: Arc<OnceLock<String>>,
}

/// Standard output is closed: nobody reads any longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Closed;

impl From<Closed> for Failure {
    fn from(_: Closed) -> Self {
        // Nobody reads: neither the text nor the code is seen. `head` closing a pipe is no failure.
        Failure::new(Exit::Completed, "cli.closed", "standard output was closed")
    }
}

#[expect(
    clippy::unused_self,
    reason = "who may write holds the handle, whether or not it decides how"
)]
impl Output {
    /// Decides how to write.
    pub(super) fn new(format: Format, is_quiet: bool, no_color: bool) -> Self {
        let is_dumb = std::env::var_os(env::TERM).is_some_and(|term| term == "dumb");
        let is_plain = no_color || is_dumb || std::env::var_os(env::NO_COLOR).is_some();
        Self {
            format,
            is_quiet,
            is_plain,
            lost: Arc::default(),
        }
    }

    /// Whether text for people is wanted.
    pub(super) fn is_text(&self) -> bool {
        self.format == Format::Text
    }

    /// Whether standard output is a terminal that shows text.
    pub(super) fn is_live(&self) -> bool {
        self.is_text() && std::io::stdout().is_terminal()
    }

    /// Whether a line on standard error can be replaced in place.
    pub(super) fn can_redraw(&self) -> bool {
        !self.is_plain && !self.is_quiet && std::io::stderr().is_terminal()
    }

    /// Whether a person can be asked: both the question and the answer have a terminal.
    pub(super) fn can_ask(&self) -> bool {
        std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
    }

    /// Writes text to standard output as it is; the caller has made it safe for a terminal.
    pub(super) fn text(&self, text: &str) -> Result<(), Closed> {
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes())
            .and_then(|()| out.flush())
            .map_err(|error| {
                if error.kind() != ErrorKind::BrokenPipe {
                    let _ = self.lost.set(error.to_string());
                }
                Closed
            })
    }

    /// Says so where something could not be written to standard output. What looked like success then is none; another
    /// code keeps its meaning.
    pub(super) fn finish(&self, exit: Exit) -> Exit {
        let Some(error) = self.lost.get() else {
            return exit;
        };
        let failure = Failure::new(
            Exit::Failed,
            "cli.write",
            format_args!("cannot write to standard output: {error}"),
        );
        self.failure(&failure, None);
        if exit == Exit::Completed {
            failure.exit
        } else {
            exit
        }
    }

    /// Writes a line of text to standard output.
    pub(super) fn line(&self, text: &str) -> Result<(), Closed> {
        self.text(&format!("{text}\n"))
    }

    /// Writes one JSON document as one line.
    pub(super) fn document(&self, value: &impl Serialize) -> Result<(), Closed> {
        let text = serde_json::to_string(value).unwrap_or_else(|error| {
            serde_json::json!({ "v": 1, "error": { "code": "cli.document", "message": error.to_string() } })
                .to_string()
        });
        self.line(&visible(text))
    }

    /// Says something on standard error, unless quiet.
    pub(super) fn note(&self, text: &str) {
        if !self.is_quiet {
            self.say(text);
        }
    }

    /// Says something on standard error in any case.
    pub(super) fn say(&self, text: &str) {
        let mut err = std::io::stderr().lock();
        // Where nobody reads standard error there is nobody to tell.
        let _ = writeln!(err, "{text}");
    }

    /// Writes to standard error without a line end.
    pub(super) fn raw(&self, text: &str) {
        let mut err = std::io::stderr().lock();
        let _ = err.write_all(text.as_bytes());
        let _ = err.flush();
    }

    /// Tells about a failure in the wanted form; `document` is what a command has to say all the same.
    pub(super) fn failure(&self, failure: &Failure, document: Option<serde_json::Value>) {
        if failure.code == "cli.closed" {
            return;
        }
        let failure = &failure.advised();
        let mut text = format!("error: {failure}");
        if let Some(hint) = &failure.hint {
            text.push_str("\n  next: ");
            text.push_str(hint);
        }
        self.say(&teamster_core::display::terminal(&text));
        if self.is_text() {
            return;
        }
        let mut value = document.unwrap_or_else(|| serde_json::json!({ "v": 1 }));
        if let Some(object) = value.as_object_mut() {
            if self.format == Format::JsonLines {
                object.insert("type".to_owned(), "error".into());
            }
            object.insert(
                "error".to_owned(),
                serde_json::to_value(failure).unwrap_or_default(),
            );
        }
        let _ = self.document(&value);
    }
}

/// JSON in which no character can drive a terminal or hide: such ones are written as JSON escapes, which mean the same.
fn visible(text: String) -> String {
    if text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return text;
    }
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        let alone = character.encode_utf8(&mut [0; 4]).to_owned();
        if character.is_ascii_graphic()
            || character == ' '
            || teamster_core::display::terminal(&alone) == alone
        {
            shown.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                let _ = write!(shown, "\\u{unit:04x}");
            }
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_stays_the_same_value_and_holds_nothing_invisible() {
        let value = serde_json::json!({ "text": "a\u{9b}2J\u{202e}é世\u{1b}\u{7f}😀\u{e0041}\n" });
        let shown = visible(value.to_string());
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&shown).expect("json"),
            value
        );
        assert!(shown.contains("é世") && shown.contains('😀'));
        assert!(!shown.contains(['\u{9b}', '\u{202e}', '\u{1b}', '\u{7f}', '\u{e0041}']));
    }
}
