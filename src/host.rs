//! Runs any set of workers in one process and drains them.
//!
//! Invariants: one connection and one identity a worker, even within one process; the harness starts last and drains first,
//! so that it finds its siblings there and hands its sessions over while they still answer.
//!
//! Never: a worker's business. It is all in the worker's own crate.

pub mod activity;
pub mod embedded;
pub mod error;
mod live;
pub mod notify;

use std::sync::Arc;

use teamster_mesh::{
    Connect, Mesh, Worker,
    near::Near,
    serve::{Serving, serve},
};
use teamster_protocol::id::WorkerName;

pub use activity::Activity;
pub use error::Error;

use crate::config::{Config, Reading, Source};
use live::Layers;

/// All workers, in the order in which they start.
pub const WORKERS: [&str; 6] = [
    "sandbox",
    "router",
    "context",
    "approval-gate",
    "session",
    "harness",
];

/// The workers without which no turn runs.
pub const NEEDED: [&str; 4] = ["sandbox", "router", "approval-gate", "harness"];

/// Workers that are served by this process.
pub struct Host {
    served: Vec<(WorkerName, Serving)>,
    layers: Layers,
    activity: Arc<Activity>,
    near: Arc<Near>,
}

impl Host {
    /// Connects and serves the workers of `names`, in the order of [`WORKERS`]. Either all are served or none. What is set live
    /// is laid over `config`, which stays as it is.
    pub async fn start(connect: &Connect, config: &Config, names: &[&str]) -> Result<Self, Error> {
        let layers = Layers::fixed(Reading::fixed(config.clone()));
        Self::run(connect, layers, names).await
    }

    /// Like [`Host::start`], and follows the configuration file: `reading` is what `source` said just now.
    pub async fn follow(
        connect: &Connect,
        source: Source,
        reading: Reading,
        names: &[&str],
    ) -> Result<Self, Error> {
        Self::run(connect, Layers::follow(source, reading), names).await
    }

    async fn run(connect: &Connect, layers: Layers, names: &[&str]) -> Result<Self, Error> {
        let reading = layers.reading();
        let mut host = Self {
            served: Vec::new(),
            layers,
            activity: Arc::new(Activity::default()),
            near: Arc::default(),
        };
        for name in in_order(names)? {
            let worker = build(&reading.config, name)?;
            if let Err(error) = host.serve(connect, worker).await {
                host.drain().await;
                return Err(error);
            }
        }
        Ok(host)
    }

    async fn serve(&mut self, connect: &Connect, worker: Worker) -> Result<(), Error> {
        let name = worker.name.clone();
        let failed = |source| Error::Serve {
            worker: name.to_string(),
            source,
        };
        let mesh = Mesh::connect_near(connect, name.clone(), &self.near)
            .await
            .map_err(failed)?;
        // What is set live counts from the first call on.
        let worker = self.layers.attach(&mesh, worker).await.map_err(failed)?;
        let worker = self.activity.observe(worker);
        let serving = serve(mesh, worker).await.map_err(failed)?;
        tracing::info!(worker = %name, "serving");
        self.served.push((name, serving));
        Ok(())
    }

    /// The names of what is served.
    pub fn names(&self) -> Vec<String> {
        self.served
            .iter()
            .map(|(name, _)| name.to_string())
            .collect()
    }

    /// What the workers are asked to do, for the question whether anybody needs them.
    pub fn activity(&self) -> Arc<Activity> {
        Arc::clone(&self.activity)
    }

    /// Ends all: the harness first, which hands its sessions over, then the others together. Bounded by the drain of each.
    pub async fn drain(mut self) {
        if let Some(at) = self
            .served
            .iter()
            .position(|(name, _)| name.as_str() == "harness")
        {
            let (name, serving) = self.served.swap_remove(at);
            serving.drain().await;
            tracing::info!(worker = %name, "drained");
        }
        let rest = self.served.drain(..).map(|(name, serving)| async move {
            serving.drain().await;
            tracing::info!(worker = %name, "drained");
        });
        futures::future::join_all(rest).await;
    }
}

/// Whether all names are workers'.
pub fn check_names(names: &[&str]) -> Result<(), Error> {
    in_order(names).map(drop)
}

/// The wanted workers in the order in which they start, each once.
fn in_order(names: &[&str]) -> Result<Vec<&'static str>, Error> {
    if let Some(unknown) = names.iter().find(|name| !WORKERS.contains(name)) {
        return Err(Error::UnknownWorker((*unknown).to_owned()));
    }
    Ok(WORKERS
        .into_iter()
        .filter(|name| names.contains(name))
        .collect())
}

/// Builds one worker from its section of the configuration.
fn build(config: &Config, name: &str) -> Result<Worker, Error> {
    let built = match name {
        "harness" => crate::harness::worker(&config.harness).map_err(Error::build(name))?,
        "router" => teamster_router::worker(&config.router),
        "approval-gate" => {
            teamster_approval_gate::worker(&config.approval_gate).map_err(Error::gate)?
        }
        "session" => teamster_session::worker(&config.session).map_err(Error::session)?,
        "sandbox" => teamster_sandbox::worker(config.sandbox.clone()),
        "context" => teamster_context::worker(&config.context).map_err(Error::build(name))?,
        unknown => return Err(Error::UnknownWorker(unknown.to_owned())),
    };
    Ok(built)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_start_in_one_order_however_they_are_named() {
        assert_eq!(
            in_order(&["harness", "sandbox", "sandbox"]).expect("known"),
            ["sandbox", "harness"]
        );
        assert!(
            matches!(in_order(&["gateway"]), Err(Error::UnknownWorker(name)) if name == "gateway")
        );
    }

    #[test]
    fn each_worker_is_built_from_the_compiled_in_configuration() {
        let config = Config::compiled_in().expect("valid");
        for name in WORKERS {
            assert_eq!(build(&config, name).expect(name).name.as_str(), name);
        }
    }
}
