//! Landlock: which paths a command reads, runs and changes, whatever is mounted where.

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, PathBeneath, PathFd,
    PathFdError, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, RulesetStatus,
    Scope,
};

use super::{failure::Failure, frame::Inner};
use crate::layer::Layer;

/// Levels of Landlock, best first, down to the first that guards truncation: below it a file that may only be read can still
/// be emptied.
const LEVELS: [(ABI, u8); 8] = [
    (ABI::V10, 10),
    (ABI::V9, 9),
    (ABI::V8, 8),
    (ABI::V7, 7),
    (ABI::V6, 6),
    (ABI::V5, 5),
    (ABI::V4, 4),
    (ABI::V3, 3),
];

/// Locks this process and what it becomes in, and says by which level.
pub(super) fn apply(told: &Inner) -> Result<u8, Failure> {
    let mut last = None;
    for (abi, level) in LEVELS {
        match ruleset(abi) {
            Ok(ruleset) => {
                return restrict(ruleset, abi, told)
                    .map(|()| level)
                    .map_err(failure);
            }
            Err(error) => last = Some(error),
        }
    }
    Err(last.map_or_else(|| failure("no level is known"), failure))
}

fn failure(error: impl std::fmt::Display) -> Failure {
    Failure {
        layer: Some(Layer::Landlock),
        step: "lock in by Landlock".to_owned(),
        why: error.to_string(),
    }
}

/// Everything that a level can refuse, refused; an error if the kernel does not know the level.
fn ruleset(abi: ABI) -> Result<Ruleset, RulesetError> {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(abi))?;
    let (network, scopes) = (AccessNet::from_all(abi), Scope::from_all(abi));
    if !network.is_empty() {
        ruleset = ruleset.handle_access(network)?;
    }
    if !scopes.is_empty() {
        ruleset = ruleset.scope(scopes)?;
    }
    Ok(ruleset)
}

fn restrict(ruleset: Ruleset, abi: ABI, told: &Inner) -> Result<(), Error> {
    let mut created = ruleset.create()?;
    // Device control is for nobody: a command has no terminal.
    let change = AccessFs::from_all(abi) & !AccessFs::IoctlDev;
    let list = if told.layers.contains(&Layer::MountNs) {
        vec!["/".to_owned()]
    } else {
        Vec::new()
    };
    for (paths, access) in [
        // The root is the command's own: its directories may be listed, which opens none of their files.
        (&list, AccessFs::ReadDir.into()),
        (&told.readable, AccessFs::from_read(abi)),
        (&told.writable, change),
    ] {
        for path in paths {
            // What a host has no such directory for is no hole: nothing is allowed there.
            let Ok(meta) = std::fs::metadata(path) else {
                continue;
            };
            let access = if meta.is_dir() {
                access
            } else {
                access & AccessFs::from_file(abi)
            };
            created = created.add_rule(PathBeneath::new(PathFd::new(path)?, access))?;
        }
    }
    let status = created.restrict_self()?;
    if status.ruleset == RulesetStatus::FullyEnforced && status.no_new_privs {
        Ok(())
    } else {
        Err(Error::Partly)
    }
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Ruleset(#[from] RulesetError),
    #[error(transparent)]
    Path(#[from] PathFdError),
    #[error("the rules hold in part only")]
    Partly,
}
