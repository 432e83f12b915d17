//! `teamster completions`: what a shell reads to complete this command line.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;
use serde_json::json;

use super::{Cli, exit::Exit, failure::Failure, output::Output};

/// Write the completion script of a shell.
///
/// For example: teamster completions bash > ~/.local/share/bash-completion/completions/teamster
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

pub(super) fn run(out: &Output, options: &Options) -> Result<Exit, Failure> {
    let script = script(options.shell);
    if out.is_text() {
        out.text(&script)?;
    } else {
        out.document(&json!({ "v": 1, "shell": options.shell.to_string(), "script": script }))?;
    }
    Ok(Exit::Completed)
}

fn script(shell: Shell) -> String {
    let mut bytes = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "teamster", &mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn each_shell_knows_every_command() {
        for shell in Shell::value_variants() {
            let script = script(*shell);
            for command in Cli::command().get_subcommands() {
                assert!(
                    script.contains(command.get_name()),
                    "{shell}: {}",
                    command.get_name()
                );
            }
        }
    }
}
