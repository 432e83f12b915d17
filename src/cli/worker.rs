//! `teamster worker`: some workers of the mesh, against a server that runs.

use clap::Args;
use serde_json::json;
use teamster_core::display;
use teamster_mesh::topology::Topology;

use super::{
    Global,
    exit::Exit,
    failure::Failure,
    output::Output,
    place,
    up::{self, Signals},
};
use crate::{
    config::Source,
    host::{self, Host},
};

/// Run some workers against an existing server: that of --nats, or the one that `teamster up` runs for the data directory.
///
/// Any number of processes may run the same worker; a dead one's sessions move to the others.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// harness, router, context, approval-gate, session, sandbox
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
    /// Do not create or check streams and buckets: the credentials at hand must not
    #[arg(long)]
    no_ensure: bool,
}

pub(super) async fn run(global: &Global, out: &Output, options: Options) -> Result<Exit, Failure> {
    let names: Vec<&str> = options.names.iter().map(String::as_str).collect();
    host::check_names(&names)?;
    let mut signals = Signals::new()?;
    let data = place::data_dir(global.data.as_deref())?;
    let connect = match &global.nats {
        Some(url) => place::foreign(url, global.creds.as_deref())?,
        None => host::embedded::locate(&data).ok_or_else(|| {
            Failure::new(
                Exit::Unavailable,
                "mesh.not_running",
                format_args!("no server runs for the data directory {}", data.display()),
            )
            .hint("name one with --nats URL --creds PATH, or start one with `teamster up`")
        })?,
    };
    host::embedded::prepare(&data)?;
    let source = Source::of_process(&data);
    let reading = source.read()?;
    let _telemetry = up::telemetry(&format!("worker-{}", std::process::id()), &data)?;
    let started = up::patiently(out, Some(&connect), async {
        if !options.no_ensure && global.nats.is_some() {
            let topology = Topology {
                replicas: reading.config.mesh.replicas,
            };
            host::embedded::ensure(&connect, &topology).await?;
        }
        Host::follow(&connect, source, reading, &names).await
    });
    let host = signals.or_end(Box::pin(started)).await??;
    if out.is_text() {
        out.line(&format!(
            "{} on {}; stop with Ctrl-C or kill {}",
            host.names().join(", "),
            display::terminal(&connect.shown()),
            std::process::id()
        ))?;
    } else {
        out.document(&json!({ "v": 1, "nats": connect.shown(), "workers": host.names(), "pid": std::process::id() }))?;
    }
    up::serve(out, &connect, host, &mut signals, None).await
}
