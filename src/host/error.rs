//! Why workers could not be run.

use teamster_protocol::text;

use crate::cli::Exit;

/// The one error of hosting.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such worker.
    #[error("there is no worker {0:?}; there are {known}", known = super::WORKERS.join(", "))]
    UnknownWorker(String),
    /// A worker cannot be built from its configuration.
    #[error("cannot set up the worker {worker}")]
    Build {
        /// Which.
        worker: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The policy file cannot be used.
    #[error("cannot set up the worker approval-gate")]
    Policy(#[source] teamster_approval_gate::Error),
    /// A worker cannot be served.
    #[error("cannot run the worker {worker}")]
    Serve {
        /// Which.
        worker: String,
        /// Why.
        #[source]
        source: teamster_mesh::Error,
    },
    /// The streams and buckets are not as they must be.
    #[error("cannot prepare the streams")]
    Topology(#[source] teamster_mesh::Error),
    /// Streams are gone that hold what nothing else does.
    #[error("what was stored in {data} is not there any more: {absent}", data = data.display(), absent = absent.join(", "))]
    StoreLost {
        /// The streams.
        absent: Vec<String>,
        /// The data directory.
        data: std::path::PathBuf,
    },
    /// The embedded server cannot be run.
    #[error("cannot run the embedded server")]
    Broker(#[source] teamster_mesh::broker::Error),
}

impl Error {
    pub(super) fn build<E>(worker: &str) -> impl FnOnce(E) -> Self
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let worker = worker.to_owned();
        move |source| Self::Build {
            worker,
            source: source.into(),
        }
    }

    /// A gate that cannot be built: nearly always the policy file, which is a file of its own.
    pub(super) fn gate(source: teamster_approval_gate::Error) -> Self {
        use teamster_approval_gate::Error as Gate;
        match source {
            source @ (Gate::Read { .. } | Gate::Form { .. }) => Self::Policy(source),
            source => Self::build("approval-gate")(source),
        }
    }

    /// Exit code, stable code, and what to do next.
    pub fn verdict(&self) -> (Exit, &'static str, Option<String>) {
        use teamster_mesh::broker;
        match self {
            Self::UnknownWorker(_) => (
                Exit::Usage,
                "host.unknown_worker",
                Some("name some of these, for example: teamster worker router context".to_owned()),
            ),
            Self::Build { worker, .. } => (
                Exit::Usage,
                "host.config",
                Some(format!("look at the section `{worker}` of config.yaml")),
            ),
            Self::Policy(source) => (
                Exit::Usage,
                "host.policy",
                source
                    .file()
                    .map(|file| format!("correct {}; `teamster doctor` checks it", file.display())),
            ),
            Self::Serve { .. } => (
                Exit::Unavailable,
                "host.serve",
                Some("`teamster doctor` shows what is missing".to_owned()),
            ),
            Self::Topology(teamster_mesh::Error::Connect { .. }) => (
                Exit::Unavailable,
                "host.topology",
                Some(
                    "is a server running there, and do --nats and --creds name it? `teamster doctor` looks"
                        .to_owned(),
                ),
            ),
            Self::Topology(_) => (
                Exit::Unavailable,
                "host.topology",
                Some(
                    "the server must be 2.14 or newer with JetStream; `teamster doctor` looks"
                        .to_owned(),
                ),
            ),
            Self::StoreLost { data, .. } => (
                Exit::Failed,
                "host.store_lost",
                Some(format!(
                    "restore {nats} from a copy; or go on without what was in it: rm {list}",
                    nats = text::shell(&data.join("nats").to_string_lossy()),
                    list = text::shell(&data.join("store.json").to_string_lossy()),
                )),
            ),
            Self::Broker(broker::Error::Held { .. }) => (
                Exit::TryAgain,
                "host.held",
                Some("use that one, stop it, or choose another --data directory".to_owned()),
            ),
            Self::Broker(broker::Error::NoServer { .. }) => {
                (Exit::Unavailable, "host.no_server", None)
            }
            // Without its directory there is no log to look into.
            Self::Broker(broker::Error::Io { .. } | broker::Error::Path { .. }) => (
                Exit::Unavailable,
                "host.broker",
                Some(
                    "is the data directory yours to write? `--data DIR` names another one"
                        .to_owned(),
                ),
            ),
            Self::Broker(_) => (
                Exit::Unavailable,
                "host.broker",
                Some("the server's own words are in the data directory's log".to_owned()),
            ),
        }
    }
}
