//! `teamster workers grant` and `revoke`: credentials for workers from outside.

use std::{collections::BTreeSet, path::Path, time::Duration};

use clap::Args;
use serde_json::json;
use teamster_mesh::{
    Connect, Mesh,
    broker::{
        DataDir,
        grant::{self, Change},
    },
    credential,
};
use teamster_protocol::{id::WorkerName, text};
use tokio::time::Instant;

use crate::{
    cli::{Global, exit::Exit, failure::Failure, output::Output, place},
    host,
};

/// How long a running server may take to know the change.
const KNOWN_MAX: Duration = Duration::from_secs(15);
/// The pause before the server is told once more: it may have been starting.
const AGAIN: Duration = Duration::from_millis(300);

/// Make credentials for a worker of your own.
///
/// It may serve functions of its namespaces, register them and answer; nothing else. A running server takes it without ending
/// anything. For a server of your own (--nats) the block for its configuration is printed instead.
#[derive(Debug, Args)]
pub(in crate::cli) struct Grant {
    /// The worker's name
    #[arg(value_name = "NAME")]
    name: WorkerName,
    /// First part of the ids of the functions that it serves; may be given more than once. Default: its name
    #[arg(long, value_name = "NS")]
    namespace: Vec<String>,
}

/// Take a worker's credentials back. Its connection ends at once.
#[derive(Debug, Args)]
pub(in crate::cli) struct Revoke {
    /// The worker's name
    #[arg(value_name = "NAME")]
    name: WorkerName,
    /// Really do so
    #[arg(long)]
    yes: bool,
}

/// What became of a change.
enum Taken {
    /// No server runs; the next one knows it.
    Later,
    /// The running server knows it.
    Now(String),
}

pub(super) async fn grant(global: &Global, out: &Output, options: Grant) -> Result<Exit, Failure> {
    let name = options.name;
    let mut namespaces: BTreeSet<String> = options.namespace.into_iter().collect();
    if namespaces.is_empty() {
        namespaces.insert(name.to_string());
    }
    let data = host::embedded::prepare(&place::data_dir(global.data.as_deref())?)?;
    let file = credential::file(&data.credentials(), name.as_str());
    let mut change = Change::begin(&data).map_err(host::Error::Broker)?;
    if let Some(why) = change.grants().refuse(&name, &namespaces) {
        return Err(Failure::usage("worker.name_taken", why)
            .hint("choose another name, or other namespaces with --namespace"));
    }
    let key = grant::credentials(&file).map_err(host::Error::Broker)?;
    let granted = grant::Grant { namespaces, key };
    if let Some(url) = &global.nats {
        drop(change);
        return print_block(out, url, &name, &granted, &file);
    }
    change
        .put(name.clone(), granted.clone())
        .map_err(host::Error::Broker)?;
    drop(change);
    let taken = apply(&data, &name, &file, true).await?;
    print_connect(out, &name, &granted, &file, &taken)
}

pub(super) async fn revoke(
    global: &Global,
    out: &Output,
    options: &Revoke,
) -> Result<Exit, Failure> {
    let name = &options.name;
    if !options.yes {
        let name = text::operand(name.as_str());
        return Err(Failure::usage(
            "cli.unconfirmed",
            format_args!("{name} would lose its connection, and its credentials would be removed"),
        )
        .hint(format_args!("teamster workers revoke --yes {name}")));
    }
    if global.nats.is_some() {
        return Err(Failure::usage(
            "worker.foreign_server",
            "who may connect stands in the configuration of that server",
        )
        .hint("remove the worker's block there and have the server read it again"));
    }
    let data = host::embedded::prepare(&place::data_dir(global.data.as_deref())?)?;
    let file = credential::file(&data.credentials(), name.as_str());
    let mut change = Change::begin(&data).map_err(host::Error::Broker)?;
    let was_there = change.remove(name).map_err(host::Error::Broker)?;
    drop(change);
    if !was_there {
        return Err(Failure::new(
            Exit::Failed,
            "worker.unknown",
            format_args!("{name} has no credentials"),
        )
        .hint("only what `teamster workers grant` gave can be taken back"));
    }
    let taken = apply(&data, name, &file, false).await?;
    grant::forget(&file).map_err(host::Error::Broker)?;
    if out.is_text() {
        out.line(&match taken {
            Taken::Now(_) => format!("{name} may connect no more"),
            Taken::Later => format!("{name} may connect no more; no server runs now"),
        })?;
    } else {
        out.document(&json!({ "v": 1, "name": name, "revoked": true }))?;
    }
    Ok(Exit::Completed)
}

/// Has a running server take the change, and waits until the credentials are good there, or good no more.
async fn apply(
    data: &DataDir,
    name: &WorkerName,
    file: &Path,
    is_good: bool,
) -> Result<Taken, Failure> {
    let until = Instant::now() + KNOWN_MAX;
    loop {
        // Again each time: a server that was just starting may have read the list before it changed.
        if !grant::apply(data).map_err(host::Error::Broker)? {
            return Ok(Taken::Later);
        }
        let Some(connect) = host::embedded::locate(data.root()) else {
            return Ok(Taken::Later);
        };
        let url = connect.url.clone();
        if !file.exists() || is_accepted(connect, name, file).await == is_good {
            return Ok(Taken::Now(url));
        }
        if Instant::now() >= until {
            return Err(Failure::new(
                Exit::TryAgain,
                "worker.not_taken",
                "the running server has not taken the change; its next start will",
            )
            .hint("what it says is in log/nats-server.log of the data directory"));
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn is_accepted(connect: Connect, name: &WorkerName, file: &Path) -> bool {
    let connect = Connect {
        credentials: Some(file.to_owned()),
        ..connect
    };
    Mesh::connect_within(&connect, name.clone(), Duration::ZERO)
        .await
        .is_ok()
}

fn print_connect(
    out: &Output,
    name: &WorkerName,
    granted: &grant::Grant,
    file: &Path,
    taken: &Taken,
) -> Result<Exit, Failure> {
    let url = match taken {
        Taken::Now(url) => Some(url.as_str()),
        Taken::Later => None,
    };
    if !out.is_text() {
        out.document(&json!({
            "v": 1,
            "name": name,
            "namespaces": granted.namespaces,
            "creds": file,
            "nats": url,
            "inbox_prefix": format!("_INBOX.{name}"),
            "public_key": granted.key,
        }))?;
        return Ok(Exit::Completed);
    }
    let namespaces: Vec<&str> = granted.namespaces.iter().map(String::as_str).collect();
    out.line(&format!("credentials  {}", file.display()))?;
    out.line(&format!("serves       {}", namespaces.join(", ")))?;
    let shown = url.unwrap_or("nats://127.0.0.1:PORT");
    let quoted = file.display().to_string();
    out.line(&format!(
        "python       nc = await nats.connect({shown:?}, nkeys_seed={quoted:?}, inbox_prefix=\"_INBOX.{name}\")"
    ))?;
    out.line(&format!(
        "nats         nats --server {shown} --nkey {} --inbox-prefix _INBOX.{name} micro ls",
        text::shell(&quoted)
    ))?;
    if url.is_none() {
        out.note("no server runs now; `teamster up` says where it listens");
    }
    Ok(Exit::Completed)
}

fn print_block(
    out: &Output,
    url: &str,
    name: &WorkerName,
    granted: &grant::Grant,
    file: &Path,
) -> Result<Exit, Failure> {
    let block = grant::block(name, granted);
    if out.is_text() {
        out.note(&format!(
            "credentials in {}; put this into the users of the account on {}, and have the server read it again",
            file.display(),
            teamster_core::display::terminal(url)
        ));
        out.text(&block)?;
    } else {
        out.document(&json!({
            "v": 1,
            "name": name,
            "namespaces": granted.namespaces,
            "creds": file,
            "inbox_prefix": format!("_INBOX.{name}"),
            "public_key": granted.key,
            "block": block,
        }))?;
    }
    Ok(Exit::Completed)
}
