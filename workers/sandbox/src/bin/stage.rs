//! The helper that tests and benchmarks of this package start as the sandbox's stages.

use std::process::ExitCode;

fn main() -> ExitCode {
    teamster_sandbox::stage::main().unwrap_or(ExitCode::from(2))
}
