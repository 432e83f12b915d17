//! Why the gate does not start.

use std::path::{Path, PathBuf};

use teamster_protocol::id::ParseError;

/// Why the gate does not start, or does not take a changed policy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The policy file cannot be read.
    #[error("cannot read the policy file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The policy file cannot be used.
    #[error("cannot use the policy file {}", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// Why, with the place.
        #[source]
        source: teamster_core::policy::Error,
    },
    /// The compiled-in policy cannot be used.
    #[error("cannot use the compiled-in policy")]
    CompiledIn(#[source] teamster_core::policy::Error),
    /// A name that is compiled in is not one.
    #[error("a compiled-in name is not valid")]
    Name(#[from] ParseError),
}

impl Error {
    /// The policy file that is in the way, where it is one.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Read { path, .. } | Self::Form { path, .. } => Some(path),
            Self::CompiledIn(_) | Self::Name(_) => None,
        }
    }
}
