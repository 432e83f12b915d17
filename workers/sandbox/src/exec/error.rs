//! What can go wrong with a command before it runs, or instead of its answer.

use teamster_protocol::{Fault, FaultClass, limits};

use crate::layer::Layer;

/// Why there is no answer from a command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A layer of the configured minimum does not hold here.
    #[error(
        "commands are refused on this host: the isolation layer {} is missing ({why})",
        layer.name()
    )]
    LayerMissing {
        /// The layer.
        layer: Layer,
        /// Why it does not hold.
        why: String,
    },
    /// A request that its schema does not exclude.
    #[error("{0}")]
    Request(String),
    /// The workspace has more entries than are looked at for what must be hidden.
    #[error(
        "the workspace is too large or too deep to be looked through for files that must be hidden ({0}); no command runs in it"
    )]
    TooLarge(&'static str),
    /// Too many commands run.
    #[error("too many commands are running; this one was not started")]
    Busy,
    /// The caller gave up, or the worker is stopping.
    #[error("the call was cancelled, and the command with it")]
    Cancelled,
    /// The executable of the stages cannot be started.
    #[error("the sandbox's helper cannot be started: {0}")]
    Helper(std::io::Error),
    /// A stage failed for another reason than a missing layer.
    #[error("the command was not run: {0}")]
    Stage(String),
    /// The workspace or a path in it.
    #[error(transparent)]
    Files(#[from] crate::Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let (code, class) = match error {
            Error::LayerMissing { layer, .. } => {
                return Self::new("sandbox.layer_missing", FaultClass::Denied, &error).hint(
                    format_args!(
                        "{}; `teamster doctor` shows all layers, sandbox.minimum says which must hold",
                        layer.remedy()
                    ),
                );
            }
            Error::Files(error) => return error.into(),
            Error::Request(_) => {
                return Self::caller("sandbox.bad_request", &error)
                    .hint("`teamster functions info sandbox::exec` shows the form and the bounds");
            }
            Error::TooLarge(_) => ("sandbox.workspace_too_large", FaultClass::Denied),
            Error::Busy => {
                return Self::new("sandbox.busy", FaultClass::Busy, &error).retry_after_ms(
                    u64::try_from(limits::EXEC_TERM_GRACE.as_millis()).unwrap_or(1000),
                );
            }
            Error::Cancelled => ("sandbox.cancelled", FaultClass::Busy),
            Error::Helper(_) => {
                return Self::new("sandbox.helper", FaultClass::Internal, &error).hint(
                    "check sandbox.helper in the configuration, and that this executable can be started again",
                );
            }
            Error::Stage(_) => ("sandbox.stage_failed", FaultClass::Internal),
        };
        Self::new(code, class, &error)
    }
}
