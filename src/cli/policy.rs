//! `teamster policy explain`: what the policy says about a call, by the code that enforces it.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use teamster_core::display;
use teamster_protocol::{
    Arguments, FunctionId,
    function::approval::{ExplainReply, ExplainRequest},
};

use super::{
    Global,
    exit::Exit,
    failure::Failure,
    output::Output,
    place,
    reach::{self, Absent},
    show,
};

/// Ask what the policy says about a call.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Judge a call without making it
    Explain(Explain),
}

/// Judge a call without making it, by the code and the policy that enforce.
#[derive(Debug, Args)]
pub(super) struct Explain {
    /// The function, for example `fs::write`
    #[arg(value_name = "FUNCTION")]
    function: FunctionId,
    /// The arguments: one JSON object
    #[arg(value_name = "JSON", default_value = "{}")]
    arguments: String,
    /// Directory that paths are judged against. Default: the working directory
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
}

pub(super) async fn run(global: &Global, out: &Output, command: Command) -> Result<Exit, Failure> {
    let Command::Explain(options) = command;
    let arguments = Arguments::parse(options.arguments).map_err(|error| {
        Failure::usage("cli.arguments", error).hint("for example '{\"path\":\"README.md\"}'")
    })?;
    let workspace = place::workspace(options.workspace.as_deref())?;
    let client = reach::client(global, out, Absent::Resume).await?;
    let reply: ExplainReply = client
        .operate(
            "approval::explain",
            &ExplainRequest {
                function: options.function,
                arguments,
                workspace: Some(workspace.to_string_lossy().into_owned()),
            },
        )
        .await?;
    if out.is_text() {
        if let Some(invalid) = &reply.invalid {
            out.line(&format!(
                "arguments  NOT VALID by the function's schema: {}; the model gets an error, and nobody is asked",
                display::terminal(invalid)
            ))?;
        }
        out.line(&format!(
            "effect     {}",
            show::word(&reply.judgement.effect)
        ))?;
        out.text(&show::judgement(&reply.judgement))?;
        if let Some(note) = &reply.note {
            out.line(&format!("note       {}", display::terminal(note)))?;
        }
    } else {
        out.document(&show::versioned(&reply))?;
    }
    Ok(Exit::Completed)
}
