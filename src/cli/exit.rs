//! The exit codes, in one table.

use teamster_protocol::{Fault, FaultClass, event::EndReason, function::router::ErrorKind};

/// How a command ended, for the caller's shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done; for a turn: completed.
    Completed = 0,
    /// Failed.
    Failed = 1,
    /// The command line, the configuration or the request is wrong: the same again fails again.
    Usage = 2,
    /// A person must decide before the turn goes on.
    Waiting = 3,
    /// A rule or a person said no.
    Refused = 4,
    /// A bound of the turn was met.
    Budget = 5,
    /// The result did not pass its verification.
    Verification = 6,
    /// The mesh or the provider cannot be reached.
    Unavailable = 69,
    /// Not now: the same command may work later.
    TryAgain = 75,
    /// Interrupted, or the turn was stopped.
    Interrupted = 130,
}

impl Exit {
    /// The number.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// What a turn's end means. `trouble` is what its last generation failed with.
    pub fn of_end(reason: &EndReason, trouble: Option<ErrorKind>) -> Self {
        match reason {
            EndReason::Completed => Self::Completed,
            EndReason::Cancelled { .. } => Self::Interrupted,
            EndReason::Budget { .. } => Self::Budget,
            EndReason::Denied { .. } => Self::Refused,
            EndReason::NoProgress | EndReason::Poisoned => Self::Failed,
            EndReason::Failed { .. } => match trouble {
                Some(ErrorKind::Transient) => Self::Unavailable,
                Some(ErrorKind::RateLimited) => Self::TryAgain,
                Some(ErrorKind::NotConfigured) => Self::Usage,
                _ => Self::Failed,
            },
        }
    }

    /// What a fault means: its class says so, and four codes that say that nobody is reached. `docs/errors.md` has the rule.
    pub fn of_fault(fault: &Fault) -> Self {
        match (fault.code.as_str(), fault.class) {
            (
                "mesh.no_responders" | "mesh.unavailable" | "mesh.credentials" | "mesh.callee_lost",
                _,
            ) => Self::Unavailable,
            (_, FaultClass::Caller) => Self::Usage,
            (_, FaultClass::Busy) => Self::TryAgain,
            (_, FaultClass::Denied) => Self::Refused,
            (_, FaultClass::Gone | FaultClass::Internal) => Self::Failed,
        }
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_and_faults_have_the_published_codes() {
        let failed = EndReason::Failed {
            code: "provider.transient".to_owned(),
            message: String::new(),
        };
        for (reason, trouble, code) in [
            (EndReason::Completed, None, 0),
            (failed.clone(), None, 1),
            (failed.clone(), Some(ErrorKind::Auth), 1),
            (failed.clone(), Some(ErrorKind::Transient), 69),
            (failed.clone(), Some(ErrorKind::NotConfigured), 2),
            (failed, Some(ErrorKind::RateLimited), 75),
            (EndReason::NoProgress, None, 1),
            (EndReason::Poisoned, None, 1),
        ] {
            assert_eq!(Exit::of_end(&reason, trouble).code(), code, "{reason:?}");
        }
        for (fault, code) in [
            (Fault::gone("mesh.no_responders", ""), 69),
            (Fault::internal("mesh.credentials", ""), 69),
            (Fault::busy("mesh.timeout", ""), 75),
            (Fault::denied("approval.denied", ""), 4),
            (Fault::caller("mesh.bad_request", ""), 2),
            (Fault::caller("sandbox.bad_request", ""), 2),
            (Fault::internal("mesh.panic", ""), 1),
            (Fault::gone("approval.unknown", ""), 1),
        ] {
            assert_eq!(Exit::of_fault(&fault).code(), code, "{fault:?}");
        }
    }
}
