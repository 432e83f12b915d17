//! `teamster functions`: list, describe and call functions.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use teamster_core::display;
use teamster_protocol::{
    Arguments, Contract, Fault, FaultClass, FunctionId, SessionId, function::engine, text,
};

use super::{
    Global, advice,
    exit::Exit,
    failure::Failure,
    output::{Format, Output},
    place,
    reach::{self, Absent},
    show,
};
use crate::client::{DirectCall, Error};

/// List, describe and call functions.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// All functions that somebody serves
    Ls(Ls),
    /// One function's contract
    Info(Info),
    /// Call a function as the operator; policy and approvals are for models and do not apply
    Call(Call),
}

/// All functions that somebody serves.
#[derive(Debug, Args)]
pub(super) struct Ls {
    /// Only ids that begin with this
    #[arg(value_name = "PREFIX")]
    prefix: Option<String>,
}

/// One function's contract.
#[derive(Debug, Args)]
pub(super) struct Info {
    /// The function, for example `fs::read`
    #[arg(value_name = "FUNCTION")]
    function: FunctionId,
}

/// Call a function.
#[derive(Debug, Args)]
pub(super) struct Call {
    /// The function, for example `fs::read`
    #[arg(value_name = "FUNCTION")]
    function: FunctionId,
    /// The arguments: one JSON object
    #[arg(value_name = "JSON", default_value = "{}")]
    arguments: String,
    /// Directory that file functions may touch
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// In the name of this session
    #[arg(long, value_name = "ID")]
    session: Option<SessionId>,
    /// How long to wait
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=1800))]
    timeout: u64,
}

pub(super) async fn run(global: &Global, out: &Output, command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Ls(options) => list(global, out, options).await,
        Command::Info(options) => info(global, out, &options).await,
        Command::Call(options) => call(global, out, options).await,
    }
}

async fn list(global: &Global, out: &Output, options: Ls) -> Result<Exit, Failure> {
    let client = reach::client(global, out, Absent::Resume).await?;
    let catalog = client.catalog().await?;
    let prefix = options.prefix.unwrap_or_default();
    let entries: Vec<(engine::Entry, &Contract)> = catalog
        .functions
        .iter()
        .filter(|(id, _)| id.as_str().starts_with(&prefix))
        .map(|(id, (contract, worker))| {
            let entry = engine::Entry {
                function_id: id.clone(),
                description: contract.description.clone(),
                class: contract.class,
                worker: worker.clone(),
            };
            (entry, &**contract)
        })
        .collect();
    match out.format {
        Format::Json => {
            let functions: Vec<&engine::Entry> = entries.iter().map(|(entry, _)| entry).collect();
            out.document(&json!({ "v": 1, "functions": functions }))?;
        }
        Format::JsonLines => {
            for (entry, _) in &entries {
                out.document(entry)?;
            }
        }
        Format::Text => {
            let rows: Vec<Vec<String>> = entries
                .iter()
                .map(|(entry, contract)| {
                    vec![
                        entry.function_id.to_string(),
                        show::word(&entry.class),
                        show::word(&contract.visibility),
                        brief(&entry.description),
                    ]
                })
                .collect();
            for line in show::columns(&rows) {
                out.line(&display::terminal(&line))?;
            }
            if rows.is_empty() {
                out.note(&display::terminal(&format!(
                    "no function that is served begins with {prefix:?}; `teamster functions ls` lists all"
                )));
            }
        }
    }
    Ok(Exit::Completed)
}

async fn info(global: &Global, out: &Output, options: &Info) -> Result<Exit, Failure> {
    let client = reach::client(global, out, Absent::Resume).await?;
    let catalog = client.catalog().await?;
    let Some((contract, worker)) = catalog.functions.get(&options.function) else {
        return Err(Failure::new(
            Exit::Failed,
            "function.unknown",
            format_args!("no worker serves {}", options.function),
        )
        .hint("`teamster functions ls` shows what is served"));
    };
    if !out.is_text() {
        out.document(&json!({ "v": 1, "contract": contract, "worker": worker }))?;
        return Ok(Exit::Completed);
    }
    let timeout = contract.timeout().as_secs();
    let header = format!(
        "{}\n{}\n\nworker     {worker}\nclass      {}{}\nlabels     data {}, {}\ntarget     {}\nvisible    {}\ntimeout    {timeout} s\n",
        contract.id,
        display::terminal(&contract.description),
        show::word(&contract.class),
        if contract.idempotent {
            ", idempotent"
        } else {
            ""
        },
        show::word(&contract.data),
        show::word(&contract.trust),
        contract.target.as_deref().unwrap_or("-"),
        show::word(&contract.visibility),
    );
    out.text(&header)?;
    for (name, schema) in [("request", &contract.request), ("reply", &contract.reply)] {
        let text = serde_json::to_string_pretty(schema).unwrap_or_default();
        out.line(&format!("\n{name}\n{}", display::terminal(&text)))?;
    }
    Ok(Exit::Completed)
}

async fn call(global: &Global, out: &Output, options: Call) -> Result<Exit, Failure> {
    let arguments = Arguments::parse(options.arguments).map_err(|error| {
        Failure::usage("cli.arguments", error).hint("for example '{\"path\":\"README.md\"}'")
    })?;
    let workspace = match &options.workspace {
        Some(path) => Some(place::workspace(Some(path))?.to_string_lossy().into_owned()),
        None => None,
    };
    let client = reach::client(global, out, Absent::Resume).await?;
    if let Some(session) = &options.session
        && matches!(client.mesh().log().tail(session).await, Ok(None))
    {
        return Err(Error::NoSession(session.to_string()).into());
    }
    let function = options.function.clone();
    let reply = client
        .call(DirectCall {
            function: options.function,
            arguments: String::from(arguments).into(),
            session: options.session,
            workspace,
            timeout: Duration::from_secs(options.timeout),
        })
        .await
        .map_err(|error| formed(error, &function))?;
    let value: Value = serde_json::from_slice(&reply).map_err(|error| {
        Failure::from(Fault::internal(
            "function.reply",
            format_args!("the reply is no JSON: {error}"),
        ))
    })?;
    if out.is_text() {
        let text = serde_json::to_string_pretty(&value).unwrap_or_default();
        out.line(&display::terminal(&text))?;
    } else {
        out.document(&json!({ "v": 1, "reply": value }))?;
    }
    Ok(Exit::Completed)
}

/// The first sentence of a description, as much of it as a line has room for; `info` shows all of it.
fn brief(description: &str) -> String {
    const BYTES_MAX: usize = 72;
    let line = description.lines().next().unwrap_or_default();
    let sentence = line.split_inclusive(". ").next().unwrap_or_default().trim();
    if sentence.len() <= BYTES_MAX {
        return sentence.to_owned();
    }
    let head = text::head(sentence, BYTES_MAX - 3);
    let whole_words = head.rsplit_once(' ').map_or(head, |(words, _)| words);
    format!("{whole_words}...")
}

/// Where the request itself is wrong and nobody said what to do, the form of the function helps.
fn formed(error: Error, function: &FunctionId) -> Failure {
    let is_request = matches!(&error, Error::Fault(fault) if fault.class == FaultClass::Caller);
    let failure = Failure::from(error);
    if failure.code == "fs.no_workspace" {
        return failure.hint("name the directory that it may touch: `--workspace DIR`");
    }
    // What the page of errors says about a code says more, unless it is the form that is wrong.
    let is_form = failure.code.ends_with(".bad_request") || advice::of(&failure.code).is_none();
    if is_request && is_form && failure.hint.is_none() {
        let function = text::operand(function.as_str());
        return failure.hint(format_args!(
            "`teamster functions info {function}` shows the form of its arguments"
        ));
    }
    failure
}
