//! The executable: one call, one exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    // This executable is also the helper that commands are isolated by. That comes first: a stage must have no threads.
    if let Some(code) = teamster_sandbox::stage::main() {
        return code;
    }
    teamster::cli::main().into()
}
