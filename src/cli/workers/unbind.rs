//! `teamster workers unbind`: removes hooks whose worker is gone for good.

use std::time::Duration;

use clap::Args;
use serde_json::json;
use teamster_mesh::registry::Catalog;
use teamster_protocol::{id::WorkerName, subject, text};

use super::{Absent, Exit, Failure, Global, Output, reach};

/// How long the registry may take to show the removal.
const SHOWN_MAX: Duration = Duration::from_secs(10);

/// Remove the hooks that a worker has bound and that outlive it.
#[derive(Debug, Args)]
pub(in crate::cli) struct Unbind {
    /// The worker that bound them
    #[arg(value_name = "NAME")]
    name: WorkerName,
    /// Confirm it
    #[arg(long)]
    yes: bool,
}

pub(super) async fn unbind(
    global: &Global,
    out: &Output,
    options: &Unbind,
) -> Result<Exit, Failure> {
    let name = options.name.as_str();
    let client = reach::client(global, out, Absent::Resume).await?;
    let catalog = client.catalog().await?;
    if !has_bound(&catalog, name) {
        return Err(Failure::new(
            Exit::Failed,
            "worker.no_hooks",
            format_args!("{name} has bound no hooks"),
        )
        .hint("`teamster workers info NAME` shows what a worker has bound"));
    }
    let operand = text::operand(name);
    if !options.yes {
        return Err(Failure::usage(
            "cli.unconfirmed",
            format_args!("calls would run without the hooks of {name}, until it binds them again"),
        )
        .hint(format_args!("teamster workers unbind --yes {operand}")));
    }
    let registry = client.mesh().registry().await?;
    registry.unbind(name).await?;
    let catalog = registry
        .wait(SHOWN_MAX, |catalog| !has_bound(catalog, name))
        .await;
    if has_bound(&catalog, name) {
        return Err(Failure::new(
            Exit::TryAgain,
            "worker.not_taken",
            format_args!("{name} has bound hooks again: it runs"),
        )
        .hint("stop it first"));
    }
    if out.is_text() {
        out.line(&format!("the hooks of {name} are removed"))?;
    } else {
        out.document(&json!({ "v": 1, "name": name, "unbound": true }))?;
    }
    Ok(Exit::Completed)
}

fn has_bound(catalog: &Catalog, name: &str) -> bool {
    let token = subject::token(name);
    catalog.hooks.iter().any(|(_, worker)| worker == name)
        || catalog.unreadable_hooks.contains(&token)
}
