//! `teamster deploy`: what a NATS server of one's own needs to serve a mesh.

use clap::{Args, Subcommand};
use serde_json::json;
use teamster_core::display;
use teamster_mesh::broker::grant;

use super::{Global, exit::Exit, failure::Failure, output::Output, place};
use crate::host;

/// Make what a NATS server of your own needs.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Print the accounts for the server's configuration: one user a worker, each with the rights that it needs
    NatsAccounts(NatsAccounts),
}

/// Print the accounts for the server's configuration: one user a worker, each with the rights that it needs.
///
/// The file is included by the configurations in deploy/nats. Credentials are made in the data directory where they are
/// missing, and kept where they are not; the file holds public keys alone. Make it again after an upgrade, and after `workers
/// grant`, and have each server of the cluster read it again: `nats-server --signal reload`.
#[derive(Debug, Args)]
pub(super) struct NatsAccounts {}

pub(super) fn run(global: &Global, out: &Output, command: &Command) -> Result<Exit, Failure> {
    let Command::NatsAccounts(NatsAccounts {}) = command;
    let data = host::embedded::prepare(&place::data_dir(global.data.as_deref())?)?;
    let accounts = grant::accounts(&data).map_err(host::Error::Broker)?;
    if out.is_text() {
        out.note(&format!(
            "credentials of all users in {}",
            display::terminal(&data.credentials().display().to_string())
        ));
        out.text(&accounts)?;
    } else {
        out.document(&json!({"v": 1, "creds": data.credentials(), "accounts": accounts}))?;
    }
    Ok(Exit::Completed)
}
