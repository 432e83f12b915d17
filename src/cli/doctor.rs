//! `teamster doctor`: looks at what is needed and at what is there, and says what to do about the rest.

mod checks;
mod credentials;
mod damage;
mod disk;
mod live;
mod projection;
mod window;
mod workers;

use clap::Args;
use serde::Serialize;
use serde_json::json;
use teamster_core::display;

use super::{
    Global,
    exit::Exit,
    failure::Failure,
    output::{Format, Output},
    place,
};

/// Check what is needed and what is there. Nothing is changed but by a test write, which is removed; no key is ever shown.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Read the log of every session to its end, instead of asking the session worker which of them are damaged
    #[arg(long)]
    deep: bool,
}

/// What a check found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    /// As it should be.
    Ok,
    /// Works, but not as well or as safely as it could.
    Warning,
    /// Does not work.
    Failed,
}

/// One check and its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Finding {
    /// What was looked at.
    check: &'static str,
    /// How it is.
    state: State,
    /// What was found.
    detail: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

impl Finding {
    fn new(check: &'static str, state: State, detail: impl std::fmt::Display) -> Self {
        Self {
            check,
            state,
            detail: detail.to_string(),
            hint: None,
        }
    }

    fn hint(mut self, hint: impl std::fmt::Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }
}

pub(super) async fn run(global: &Global, out: &Output, options: Options) -> Result<Exit, Failure> {
    let data = place::data_dir(global.data.as_deref())?;
    let findings = checks::all(global, &data, options.deep).await;
    let failed = findings
        .iter()
        .filter(|finding| finding.state == State::Failed)
        .count();
    match out.format {
        Format::Json => {
            out.document(&json!({ "v": 1, "ok": failed == 0, "findings": findings }))?;
        }
        Format::JsonLines => {
            for finding in &findings {
                out.document(finding)?;
            }
        }
        Format::Text => {
            for finding in &findings {
                out.line(&line(finding))?;
            }
        }
    }
    if failed == 0 {
        return Ok(Exit::Completed);
    }
    out.note(&format!("{failed} of {} checks failed", findings.len()));
    Ok(Exit::Failed)
}

fn line(finding: &Finding) -> String {
    let mark = match finding.state {
        State::Ok => "ok     ",
        State::Warning => "warning",
        State::Failed => "FAILED ",
    };
    let mut text = format!(
        "{mark}  {:<12} {}",
        finding.check,
        display::terminal(&finding.detail)
    );
    if let Some(hint) = &finding.hint {
        text.push_str("\n         next: ");
        text.push_str(&display::terminal(hint));
    }
    text
}
