//! `teamster up`: a server and all workers in this process, until it is told to end.

use std::{path::Path, sync::Arc, time::Duration};

use clap::Args;
use serde_json::json;
use teamster_core::display;
use teamster_mesh::{Connect, broker, connection::CONNECT_PATIENCE, topology::Topology};
use teamster_telemetry::Sink;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::{Instant, timeout},
};

use super::{Global, exit::Exit, failure::Failure, output::Output, place, status};
use crate::{
    client::Client,
    config::{Config, Source},
    env,
    host::{self, Activity, Host, embedded::Embedded, notify::Notify},
};

/// How long a start may take before it is said what it waits for.
const MOMENT: Duration = Duration::from_secs(1);
/// How long the workers may take to drain before the process ends all the same.
const DRAIN_MAX: Duration = Duration::from_secs(25);
/// How often it is checked whether anybody needs this process.
const IDLE_LOOK: Duration = Duration::from_millis(500);

/// Start a server and all workers, or all workers against an existing server.
///
/// Ctrl-C or SIGTERM hands the running sessions over and ends; a second one ends at once. Whatever ends it, the next
/// `teamster up` goes on where it stopped.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// End when nothing was asked for so long, for example 10m, 90s
    #[arg(long, value_name = "TIME", value_parser = span)]
    idle_exit: Option<Duration>,
    /// Leave the terminal's session (what `run` does with the mesh that it starts)
    #[arg(long, hide = true)]
    detached: bool,
}

impl Options {
    /// Makes this process the leader of a session of its own, so that no terminal's signals reach it.
    pub(super) fn detach(&self) -> Result<(), Failure> {
        if !self.detached {
            return Ok(());
        }
        nix::unistd::setsid().map(drop).map_err(|error| {
            Failure::new(
                Exit::Failed,
                "cli.detach",
                format_args!("cannot leave the terminal: {error}"),
            )
        })
    }
}

pub(super) async fn run(global: &Global, out: &Output, options: Options) -> Result<Exit, Failure> {
    let mut signals = Signals::new()?;
    let data = place::data_dir(global.data.as_deref())?;
    host::embedded::prepare(&data)?;
    let source = Source::of_process(&data);
    let reading = source.read()?;
    let _telemetry = telemetry("up", &data)?;
    let embedded = if global.nats.is_some() {
        None
    } else {
        let words = out.clone();
        let progress: broker::Progress = Arc::new(move |line| words.note(line));
        let started = Box::pin(Embedded::start(&data, progress));
        Some(signals.or_end(started).await??)
    };
    let connect = match (&embedded, &global.nats) {
        (Some(embedded), _) => embedded.connect(),
        (None, Some(url)) => place::foreign(url, global.creds.as_deref())?,
        (None, None) => {
            return Err(Failure::new(
                Exit::Failed,
                "internal.server",
                "no server was chosen",
            ));
        }
    };
    let topology = Topology {
        replicas: reading.config.mesh.replicas,
    };
    let config = reading.config.clone();
    let started = patiently(out, embedded.is_none().then_some(&connect), async {
        match &embedded {
            Some(embedded) => embedded.ensure(&topology).await?,
            None => host::embedded::ensure(&connect, &topology).await?,
        }
        Host::follow(&connect, source, reading, &host::WORKERS).await
    });
    let result = match signals.or_end(Box::pin(started)).await {
        Ok(Ok(host)) => {
            tell(out, &data, &connect, &config, &host)?;
            serve(out, &connect, host, &mut signals, options.idle_exit).await
        }
        Ok(Err(error)) => Err(error.into()),
        Err(failure) => Err(failure),
    };
    match (embedded, &result) {
        // Ended at once: the next `up` goes on with the server that is left.
        (None, _) | (Some(_), Ok(Exit::Interrupted)) => {}
        (Some(embedded), _) => embedded.stop().await,
    }
    result
}

/// Runs a start; where a server that somebody else runs does not answer at once, says which one is tried and for how long.
pub(super) async fn patiently<T>(
    out: &Output,
    connect: Option<&Connect>,
    start: impl Future<Output = T>,
) -> T {
    let Some(connect) = connect else {
        return start.await;
    };
    let mut start = std::pin::pin!(start);
    if let Ok(result) = timeout(MOMENT, &mut start).await {
        return result;
    }
    out.note(&format!(
        "not up yet: {} is tried for {}; Ctrl-C ends it",
        display::terminal(&connect.shown()),
        status::seconds(CONNECT_PATIENCE)
    ));
    start.await
}

/// The configuration that this process starts with.
pub(super) fn configuration(data: &Path) -> Result<Config, Failure> {
    Ok(Source::of_process(data).read()?.config)
}

/// The process's log: JSON lines in the data directory.
pub(super) fn telemetry(name: &str, data: &Path) -> Result<teamster_telemetry::Guard, Failure> {
    let sink = match std::env::var(env::LOG_TO).unwrap_or_default().as_str() {
        "" | "file" => Sink::File(data.join("log").join(format!("{name}.jsonl"))),
        "stderr" => Sink::Stderr,
        other => {
            let message = format!("{} is {other:?}: it is `file` or `stderr`", env::LOG_TO);
            return Err(Failure::usage("config.telemetry", message)
                .hint("`stderr` is for a service manager that keeps the lines"));
        }
    };
    let options = teamster_telemetry::Options {
        format: match sink {
            Sink::File(_) => teamster_telemetry::Format::Json,
            // Text on a terminal, JSON for everybody else.
            Sink::Stderr => teamster_telemetry::Format::Auto,
        },
        sink,
        filter: None,
    };
    teamster_telemetry::init("teamster", &options).map_err(|error| {
        let text = teamster_telemetry::chain(&error);
        match error {
            teamster_telemetry::Error::Variable { variable, .. } => {
                Failure::usage("config.telemetry", text).hint(format_args!(
                    "correct {variable} in the environment, or unset it"
                ))
            }
            _ => Failure::new(Exit::Failed, "cli.log", text),
        }
    })
}

/// Says what runs, where, with which model, and how it ends.
fn tell(
    out: &Output,
    data: &Path,
    connect: &Connect,
    config: &Config,
    host: &Host,
) -> Result<(), Failure> {
    let model = &config.harness.default_model;
    if !out.is_text() {
        out.document(&json!({
            "v": 1,
            "nats": connect.shown(),
            "data": data,
            "model": model,
            "is_scripted": status::is_scripted(model),
            "workers": host.names(),
            "pid": std::process::id(),
        }))?;
        return Ok(());
    }
    out.line(&format!(
        "listening  {}",
        display::terminal(&connect.shown())
    ))?;
    out.line(&format!("data       {}", data.display()))?;
    out.line(&format!("workers    {}", host.names().join(", ")))?;
    out.line(&format!("model      {}", status::label(model)))?;
    out.line(&format!(
        "stop       Ctrl-C, or kill {}",
        std::process::id()
    ))?;
    Ok(())
}

/// Serves until a signal, or until nobody needs the process.
pub(super) async fn serve(
    out: &Output,
    connect: &Connect,
    host: Host,
    signals: &mut Signals,
    idle_exit: Option<Duration>,
) -> Result<Exit, Failure> {
    let idle = async {
        match idle_exit {
            Some(limit) => idle(connect, &host.activity(), limit).await,
            None => std::future::pending().await,
        }
    };
    let mut alive = Notify::from_env().ready(&host.names().join(", "));
    tokio::select! {
        () = signals.next() => out.note("draining; once more ends at once"),
        () = idle => out.note("nobody needs this mesh; ending"),
    }
    alive.stopping();
    tracing::info!("draining");
    tokio::select! {
        drained = timeout(DRAIN_MAX, host.drain()) => {
            if drained.is_err() {
                out.note("not everything came to an end in time; what was open goes on at the next start");
            }
            Ok(Exit::Completed)
        }
        () = signals.next() => Ok(Exit::Interrupted),
    }
}

/// Comes back when no call ran for `limit` and no session is in the middle of something.
async fn idle(connect: &Connect, activity: &Arc<Activity>, limit: Duration) {
    activity.touch();
    loop {
        tokio::time::sleep(IDLE_LOOK.min(limit)).await;
        if activity.idle_for() < limit {
            continue;
        }
        match is_busy(connect).await {
            Ok(false) => return,
            // A turn between two calls, a message that waits, or a broker that does not answer: look again later.
            Ok(true) | Err(_) => activity.touch(),
        }
    }
}

/// Whether a session is active or has something in its queues. A parked session needs nobody.
async fn is_busy(connect: &Connect) -> Result<bool, Failure> {
    let client = Client::connect(connect).await?;
    client.is_busy().await.map_err(Failure::from)
}

/// The signals that end a process in order.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(super) fn new() -> Result<Self, Failure> {
        let trap = |kind| {
            signal(kind).map_err(|error| {
                Failure::new(
                    Exit::Failed,
                    "cli.signal",
                    format_args!("cannot wait for signals: {error}"),
                )
            })
        };
        Ok(Self {
            interrupt: trap(SignalKind::interrupt())?,
            terminate: trap(SignalKind::terminate())?,
        })
    }

    /// Waits for one.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// Runs a start that a signal ends.
    pub(super) async fn or_end<T>(&mut self, start: impl Future<Output = T>) -> Result<T, Failure> {
        let began = Instant::now();
        tokio::select! {
            result = start => Ok(result),
            () = self.next() => Err(Failure::new(
                Exit::Interrupted,
                "cli.interrupted",
                format_args!("interrupted after {} of starting", status::seconds(began.elapsed())),
            )),
        }
    }
}

/// Reads a time span: a number and s, m or h.
fn span(text: &str) -> Result<Duration, String> {
    let wrong = || "write a number and s, m or h, for example 10m".to_owned();
    let (digits, unit) = text
        .split_at_checked(text.len().saturating_sub(1))
        .ok_or_else(wrong)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    match number.checked_mul(seconds) {
        Some(seconds) if (1..=366 * 24 * 3600).contains(&seconds) => {
            Ok(Duration::from_secs(seconds))
        }
        _ => Err("must be between 1s and a year".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_spans_are_read() {
        for (text, want) in [("90s", 90), ("10m", 600), ("2h", 7200)] {
            assert_eq!(span(text), Ok(Duration::from_secs(want)));
        }
        for bad in [
            "",
            "10",
            "m",
            "-1s",
            "1.5h",
            "0s",
            "10d",
            "99999999999999999h",
            "1é",
        ] {
            assert!(span(bad).is_err(), "{bad}");
        }
    }
}
