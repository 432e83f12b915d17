//! `teamster workers`: who serves, how well, and who from outside may.

mod grant;
pub(super) mod micro;
mod unbind;

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::{Value, json};
use teamster_core::display;
use teamster_mesh::registry::Catalog;
use teamster_protocol::{Contract, id::WorkerName, registry};

use super::{
    Global,
    exit::Exit,
    failure::Failure,
    output::{Format, Output},
    reach::{self, Absent},
    show,
};
use micro::Health;

/// See who serves the mesh, and let workers from outside serve.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// All workers, their processes and whether they answer
    Ls(Ls),
    /// One worker: its processes, functions, hooks and figures
    Info(Info),
    /// Make credentials for a worker of your own
    Grant(grant::Grant),
    /// Take a worker's credentials back
    Revoke(grant::Revoke),
    /// Remove the hooks that a worker has bound and that outlive it
    Unbind(unbind::Unbind),
}

/// All workers, their processes and whether they answer.
#[derive(Debug, Args)]
pub(super) struct Ls {}

/// One worker: its processes, functions, hooks and figures.
#[derive(Debug, Args)]
pub(super) struct Info {
    /// The worker, for example router
    #[arg(value_name = "NAME")]
    name: WorkerName,
    /// Show the schemas of requests and replies too
    #[arg(long)]
    schemas: bool,
}

pub(super) async fn run(global: &Global, out: &Output, command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Ls(Ls {}) => list(global, out).await,
        Command::Info(options) => info(global, out, &options).await,
        Command::Grant(options) => grant::grant(global, out, options).await,
        Command::Revoke(options) => grant::revoke(global, out, &options).await,
        Command::Unbind(options) => unbind::unbind(global, out, &options).await,
    }
}

/// One worker as it is shown.
#[derive(Debug, Serialize)]
struct Shown {
    name: String,
    version: String,
    description: String,
    functions: usize,
    processes: Vec<Health>,
}

async fn list(global: &Global, out: &Output) -> Result<Exit, Failure> {
    let client = reach::client(global, out, Absent::Resume).await?;
    let catalog = client.catalog().await?;
    let mut shown = Vec::new();
    for (name, processes) in by_name(&catalog) {
        let health = micro::health(client.mesh(), &processes).await;
        // The newest comes last; what it says of itself counts.
        let newest = processes.last().copied();
        shown.push(Shown {
            name: name.to_owned(),
            version: newest.map_or_else(String::new, |worker| worker.version.clone()),
            description: newest.map_or_else(String::new, |worker| worker.description.clone()),
            functions: newest.map_or(0, |worker| worker.functions.len()),
            processes: health,
        });
    }
    match out.format {
        Format::Json => out.document(&json!({ "v": 1, "workers": shown }))?,
        Format::JsonLines => {
            for worker in &shown {
                out.document(worker)?;
            }
        }
        Format::Text => {
            let mut rows = vec![
                [
                    "WORKER",
                    "VERSION",
                    "FUNCTIONS",
                    "PROCESS",
                    "PING",
                    "CALLS",
                    "ERRORS",
                ]
                .map(str::to_owned)
                .to_vec(),
            ];
            for worker in &shown {
                rows.extend(worker.processes.iter().map(|process| {
                    vec![
                        worker.name.clone(),
                        worker.version.clone(),
                        worker.functions.to_string(),
                        process.incarnation.clone(),
                        process.ping(),
                        process.requests.to_string(),
                        process.errors.to_string(),
                    ]
                }));
            }
            for line in show::columns(&rows) {
                out.line(&display::terminal(&line))?;
            }
        }
    }
    let silent = shown
        .iter()
        .flat_map(|worker| &worker.processes)
        .filter(|process| process.ping_ms.is_none())
        .count();
    if silent > 0 {
        out.note(&format!(
            "{} not answer: killed, revoked or hanging; a registration is late then and ends by itself, 30 s after it was renewed last",
            if silent == 1 {
                "1 process does".to_owned()
            } else {
                format!("{silent} processes do")
            }
        ));
    }
    Ok(Exit::Completed)
}

async fn info(global: &Global, out: &Output, options: &Info) -> Result<Exit, Failure> {
    let client = reach::client(global, out, Absent::Resume).await?;
    let catalog = client.catalog().await?;
    let all = by_name(&catalog);
    let Some(processes) = all.get(options.name.as_str()) else {
        return Err(Failure::new(
            Exit::Failed,
            "worker.unknown",
            format_args!("no worker {} is registered", options.name),
        )
        .hint("`teamster workers ls` shows who is"));
    };
    let health = micro::health(client.mesh(), processes).await;
    let hooks: Vec<Value> = catalog
        .hooks
        .iter()
        .filter(|(_, worker)| worker == options.name.as_str())
        .map(|(binding, _)| serde_json::to_value(binding).unwrap_or_default())
        .collect();
    let Some(newest) = processes.last() else {
        return Ok(Exit::Completed);
    };
    if !out.is_text() {
        let functions: Vec<Value> = newest
            .functions
            .iter()
            .map(|contract| json!({ "contract": contract, "figures": figures(&health, contract) }))
            .collect();
        out.document(&json!({
            "v": 1,
            "name": newest.name,
            "version": newest.version,
            "description": newest.description,
            "processes": health,
            "functions": functions,
            "hooks": hooks,
        }))?;
        return Ok(Exit::Completed);
    }
    out.line(&format!(
        "{} {}\n{}\n",
        newest.name,
        display::terminal(&newest.version),
        display::terminal(&newest.description)
    ))?;
    for process in &health {
        out.line(&format!(
            "process    {}  ping {}, {} calls, {} errors, on average {} ms{}",
            display::terminal(&process.incarnation),
            process.ping(),
            process.requests,
            process.errors,
            millis(process.average_ms()),
            process
                .started
                .as_ref()
                .map_or_else(String::new, |started| format!(
                    ", since {}",
                    display::terminal(started)
                )),
        ))?;
    }
    for hook in &hooks {
        out.line(&format!(
            "hook       {}",
            display::terminal(&hook.to_string())
        ))?;
    }
    out.line("")?;
    for contract in &newest.functions {
        function(out, contract, &figures(&health, contract), options.schemas)?;
    }
    if !options.schemas && !newest.functions.is_empty() {
        out.note("`--schemas` shows what each takes and answers");
    }
    Ok(Exit::Completed)
}

fn function(
    out: &Output,
    contract: &Contract,
    figures: &micro::Figures,
    with_schemas: bool,
) -> Result<(), Failure> {
    out.line(&format!(
        "{:<28} {:<12} {:<9} {:>6} calls {:>5} errors {:>8} ms",
        contract.id,
        show::word(&contract.class),
        show::word(&contract.visibility),
        figures.requests,
        figures.errors,
        millis(figures.average_ms()),
    ))?;
    if let Some(error) = &figures.last_error {
        out.line(&format!("    last error: {}", display::terminal(error)))?;
    }
    if with_schemas {
        for (name, schema) in [("request", &contract.request), ("reply", &contract.reply)] {
            let text = serde_json::to_string_pretty(schema).unwrap_or_default();
            out.line(&format!("  {name} {}", display::terminal(&text)))?;
        }
    }
    Ok(())
}

/// Living processes by their worker's name, the newest last.
fn by_name(catalog: &Catalog) -> BTreeMap<&str, Vec<&registry::Worker>> {
    let mut all: BTreeMap<&str, Vec<&registry::Worker>> = BTreeMap::new();
    for worker in &catalog.workers {
        all.entry(worker.name.as_str()).or_default().push(worker);
    }
    all
}

/// What all processes of a worker did of one function.
fn figures(health: &[Health], contract: &Contract) -> micro::Figures {
    let endpoint = contract.id.as_str().replace("::", "-");
    let mut sum = micro::Figures::default();
    for figures in health
        .iter()
        .filter_map(|process| process.endpoints.get(&endpoint))
    {
        sum.add(figures);
    }
    sum
}

fn millis(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
}
