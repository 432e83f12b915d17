//! The command line: one file a subcommand, one place for output, failures and exit codes.
//!
//! Never: a decision about a turn. Commands ask the mesh as an operator and show what it says.

mod advice;
mod approvals;
mod ask;
mod before;
mod chat;
mod completions;
mod compose;
mod config;
mod cost;
mod demo;
mod deploy;
mod doctor;
mod events;
mod exit;
mod failure;
mod fit;
mod functions;
mod keep;
mod man;
mod output;
mod place;
mod policy;
mod reach;
mod run;
mod send;
mod sessions;
mod show;
mod status;
mod stop;
mod up;
mod when;
mod worker;
mod workers;

use std::{
    ffi::OsString,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    time::Duration,
};

use clap::{Args, Parser, Subcommand, error::ErrorKind};
use teamster_protocol::text;

pub use exit::Exit;
use failure::Failure;
use output::{Format, Output};

use crate::env;

/// Agents on your own systems: durable turns, governed functions, approvals.
#[derive(Debug, Parser)]
#[command(
    name = "teamster",
    version,
    max_term_width = 110,
    after_help = "Exit codes: 0 completed · 1 failed · 2 usage · 3 waiting for approval · 4 refused · 5 budget · \
                  6 verification · 69 mesh or provider unavailable · 75 try again · 130 interrupted"
)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
/// Options that every command takes.
#[derive(Debug, Clone, Args)]
struct Global {
    /// Data directory: the log, credentials, configuration. Default: `teamster` in the user's data directory
    #[arg(long, global = true, value_name = "DIR", env = env::DATA, hide_env_values = true)]
    data: Option<PathBuf>,
    /// Use this NATS server or cluster instead of the one that `teamster up` starts
    #[arg(long, global = true, value_name = "URL", env = env::NATS, hide_env_values = true)]
    nats: Option<String>,
    /// Credentials for --nats: a directory that holds <worker>.creds, or one file
    #[arg(long, global = true, value_name = "PATH", env = env::CREDS, hide_env_values = true)]
    creds: Option<PathBuf>,
    /// One JSON document on standard output, also on failure
    #[arg(long, global = true, conflicts_with = "jsonl")]
    json: bool,
    /// Lines of JSON on standard output, also on failure
    #[arg(long, global = true)]
    jsonl: bool,
    /// Nothing but errors on standard error
    #[arg(long, short, global = true)]
    quiet: bool,
    /// No colours, no lines replaced in place (as with `NO_COLOR`)
    #[arg(long, global = true)]
    no_color: bool,
}

impl Global {
    fn output(&self) -> Output {
        let format = match (self.json, self.jsonl) {
            (true, _) => Format::Json,
            (_, true) => Format::JsonLines,
            _ => Format::Text,
        };
        Output::new(format, self.quiet, self.no_color)
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the whole thing once, without a key: an answer, an approval, a kill, and the turn that goes on
    Demo(demo::Options),
    /// Send a message and wait for the end of its turn
    Run(run::Options),
    /// Talk with a session: answers as they come, messages into the running turn, approvals in place
    Chat(chat::Options),
    /// Add a message to a session and come back at once
    Send(send::Options),
    /// Stop the turn that a session runs
    Stop(stop::Options),
    /// List, show and follow sessions, from the log itself
    #[command(subcommand)]
    Sessions(sessions::Command),
    /// Show what happened in all sessions, by sequence, and on as it happens
    Events(events::Options),
    /// Add up tokens and money, by session, model and day
    Cost(cost::Options),
    /// See and decide what waits for a person
    #[command(subcommand)]
    Approvals(approvals::Command),
    /// List, describe and call functions
    #[command(subcommand)]
    Functions(functions::Command),
    /// Ask what the policy says about a call
    #[command(subcommand)]
    Policy(policy::Command),
    /// See and change the configuration, also while the workers run
    #[command(subcommand)]
    Config(config::Command),
    /// See who serves the mesh, and let workers from outside serve
    #[command(subcommand)]
    Workers(workers::Command),
    /// Start a server and all workers, or all workers against an existing server
    Up(up::Options),
    /// Run some workers against an existing server
    Worker(worker::Options),
    /// Check what is needed and what is there
    Doctor(doctor::Options),
    /// Write the completion script of a shell
    Completions(completions::Options),
    /// Write the manual
    Man(man::Options),
    /// Make what a NATS server of your own needs
    #[command(subcommand)]
    Deploy(deploy::Command),
}

/// Runs the command line of this process.
pub fn main() -> Exit {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    // Before clap has understood anything, a wrong command line must be told in the wanted form too.
    let wants = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let format = match (wants("--json"), wants("--jsonl")) {
        (true, _) => Format::Json,
        (_, true) => Format::JsonLines,
        _ => Format::Text,
    };
    let out = Output::new(format, wants("--quiet") || wants("-q"), wants("--no-color"));
    match Cli::try_parse_from(&arguments) {
        Ok(cli) => {
            let out = cli.global.output();
            let exit = guarded(cli, &out);
            out.finish(exit)
        }
        Err(error) => {
            let exit = misunderstood(&out, &error);
            out.finish(exit)
        }
    }
}

/// Help and version are data; everything else is a usage error.
fn misunderstood(out: &Output, error: &clap::Error) -> Exit {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion if out.is_text() => {
            let _ = out.text(&error.render().to_string());
            Exit::Completed
        }
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let text = error.render().to_string();
            let _ = out.document(&serde_json::json!({ "v": 1, "text": text }));
            Exit::Completed
        }
        _ if out.is_text() => {
            out.raw(&plain(&error.render().to_string()));
            Exit::Usage
        }
        _ => {
            let text = plain(&error.render().to_string());
            let message = text.trim_end().trim_start_matches("error: ").to_owned();
            out.failure(
                &Failure::usage("cli.usage", message).hint("`teamster --help` shows all commands"),
                None,
            );
            Exit::Usage
        }
    }
}

/// What is said of a wrong command line, so that what was typed neither fills the screen nor drives it, and in words that are not those of
/// a reader of numbers.
fn plain(text: &str) -> String {
    const LINE_BYTES_MAX: usize = 400;
    let lines = text.lines().map(|line| {
        let line = [
            ("invalid digit found in string", "that is no whole number"),
            (
                "cannot parse integer from empty string",
                "that is no whole number",
            ),
            (
                "number too large to fit in target type",
                "that number is too large",
            ),
            ("is not in 1..18446744073709551615", "is not 1 or more"),
        ]
        .iter()
        .fold(line.to_owned(), |line, (from, to)| line.replace(from, to));
        if line.len() <= LINE_BYTES_MAX {
            return teamster_core::display::terminal(&line);
        }
        // What is wrong with a value stands behind it.
        let half = LINE_BYTES_MAX / 2;
        let (head, tail) = (text::head(&line, half), text::tail(&line, half));
        let left_out = line.len() - head.len() - tail.len();
        teamster_core::display::terminal(&format!(
            "{head}... [{left_out} bytes left out] ...{tail}"
        ))
    });
    let mut shown = lines.collect::<Vec<String>>().join("\n");
    shown.push('\n');
    shown
}

/// Runs the command; a bug in it is told in the wanted form and never as garbage on standard output.
fn guarded(cli: Cli, out: &Output) -> Exit {
    std::panic::set_hook(Box::new(|panic| {
        tracing::error!(target: "teamster::panic", "{panic}");
    }));
    let failure = match catch_unwind(AssertUnwindSafe(|| start(cli, out))) {
        Ok(Ok(exit)) => return exit,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let text = panic
                .downcast_ref::<&str>()
                .copied()
                .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
                .unwrap_or("no text");
            Failure::new(
                Exit::Failed,
                "internal.panic",
                format_args!("this is a bug: {text}"),
            )
            .hint("what is in the log is safe; please report it with the command that led here")
        }
    };
    out.failure(&failure, None);
    failure.exit
}

fn start(cli: Cli, out: &Output) -> Result<Exit, Failure> {
    // A detached process leaves the terminal's session before it has threads.
    if let Command::Up(options) = &cli.command {
        options.detach()?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| {
            Failure::new(
                Exit::Failed,
                "cli.runtime",
                format_args!("cannot start: {error}"),
            )
        })?;
    let result = runtime.block_on(dispatch(cli, out));
    // A task that reads standard input may wait for ever.
    runtime.shutdown_timeout(Duration::from_millis(200));
    result
}

async fn dispatch(cli: Cli, out: &Output) -> Result<Exit, Failure> {
    let global = &cli.global;
    if global.creds.is_some() && global.nats.is_none() {
        return Err(Failure::usage(
            "cli.usage",
            "--creds (or TEAMSTER_CREDS) is for a server that --nats names, and none is named",
        )
        .hint("add --nats URL, or leave the credentials out"));
    }
    match cli.command {
        Command::Demo(options) => Box::pin(demo::run(global, out, options)).await,
        Command::Run(options) => Box::pin(run::run(global, out, options)).await,
        Command::Chat(options) => Box::pin(chat::run(global, out, options)).await,
        Command::Send(options) => Box::pin(send::run(global, out, options)).await,
        Command::Stop(options) => Box::pin(stop::run(global, out, options)).await,
        Command::Sessions(command) => Box::pin(sessions::run(global, out, command)).await,
        Command::Events(options) => Box::pin(events::run(global, out, options)).await,
        Command::Cost(options) => Box::pin(cost::run(global, out, options)).await,
        Command::Approvals(command) => Box::pin(approvals::run(global, out, command)).await,
        Command::Functions(command) => Box::pin(functions::run(global, out, command)).await,
        Command::Policy(command) => Box::pin(policy::run(global, out, command)).await,
        Command::Config(command) => Box::pin(config::run(global, out, command)).await,
        Command::Workers(command) => Box::pin(workers::run(global, out, command)).await,
        Command::Up(options) => Box::pin(up::run(global, out, options)).await,
        Command::Worker(options) => Box::pin(worker::run(global, out, options)).await,
        Command::Doctor(options) => Box::pin(doctor::run(global, out, options)).await,
        Command::Completions(options) => completions::run(out, &options),
        Command::Man(options) => man::run(out, &options),
        Command::Deploy(command) => deploy::run(global, out, &command),
    }
}

#[cfg(test)]
mod tests;
