//! The executable: one call, one exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    teamster::cli::main().into()
}
