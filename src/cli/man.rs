//! `teamster man`: the manual, one page a command.

use std::path::{Path, PathBuf};

use clap::{Args, Command, CommandFactory as _};
use serde_json::json;

use super::{Cli, exit::Exit, failure::Failure, output::Output};

/// Write the manual.
///
/// For example: teamster man | man -l -, or teamster man -o ~/.local/share/man/man1
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Directory for one page a command. Default: the first page, to standard output
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// One page.
struct Page {
    /// Its file: `teamster-config-set.1`.
    file: String,
    /// Its roff text.
    text: Vec<u8>,
}

pub(super) fn run(out: &Output, options: &Options) -> Result<Exit, Failure> {
    let pages = pages().map_err(|error| {
        Failure::new(
            Exit::Failed,
            "cli.man",
            format_args!("the manual cannot be made: {error}"),
        )
    })?;
    let Some(dir) = &options.output else {
        let first = pages.first().map(|page| page.text.as_slice());
        let text = String::from_utf8_lossy(first.unwrap_or_default());
        if out.is_text() {
            out.text(&text)?;
        } else {
            out.document(&json!({ "v": 1, "text": text }))?;
        }
        return Ok(Exit::Completed);
    };
    let files = write(dir, &pages)?;
    if out.is_text() {
        for file in &files {
            out.line(&file.display().to_string())?;
        }
    } else {
        out.document(&json!({ "v": 1, "files": files }))?;
    }
    Ok(Exit::Completed)
}

fn write(dir: &Path, pages: &[Page]) -> Result<Vec<PathBuf>, Failure> {
    std::fs::create_dir_all(dir).map_err(|error| Failure::io("make", dir, &error))?;
    pages
        .iter()
        .map(|page| {
            let path = dir.join(&page.file);
            std::fs::write(&path, &page.text)
                .map_err(|error| Failure::io("write", &path, &error))?;
            Ok(path)
        })
        .collect()
}

/// All pages, the first page first. Commands that are hidden have none.
fn pages() -> std::io::Result<Vec<Page>> {
    let mut root = Cli::command().disable_help_subcommand(true);
    root.build();
    let mut found = Vec::new();
    collect(&root, "teamster", &mut found)?;
    Ok(found)
}

fn collect(command: &Command, name: &str, found: &mut Vec<Page>) -> std::io::Result<()> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone().display_name(name.to_owned()))
        .title(name)
        .render(&mut text)?;
    found.push(Page {
        file: format!("{name}.1"),
        text,
    });
    for inner in command
        .get_subcommands()
        .filter(|inner| !inner.is_hide_set())
    {
        collect(inner, &format!("{name}-{}", inner.get_name()), found)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn names(command: &Command, name: &str, found: &mut BTreeSet<String>) {
        found.insert(format!("{name}.1"));
        for inner in command.get_subcommands() {
            names(inner, &format!("{name}-{}", inner.get_name()), found);
        }
    }

    #[test]
    fn each_command_has_a_page_that_names_it() {
        let pages = pages().expect("made");
        let mut want = BTreeSet::new();
        names(&Cli::command(), "teamster", &mut want);
        let have: BTreeSet<String> = pages.iter().map(|page| page.file.clone()).collect();
        assert_eq!(have, want);
        assert_eq!(pages.len(), want.len(), "no page twice");
        for page in &pages {
            let text = String::from_utf8(page.text.clone()).expect("text");
            let name = page.file.trim_end_matches(".1").replace('-', "\\-");
            assert!(
                text.contains(&format!(".TH {name}")) || text.contains(&name),
                "{}",
                page.file
            );
            assert!(text.contains(".SH SYNOPSIS"), "{}", page.file);
        }
        let set = pages
            .iter()
            .find(|page| page.file == "teamster-config-set.1");
        let text = String::from_utf8_lossy(&set.expect("a page").text);
        assert!(text.contains("if\\-revision"), "{text}");
    }

    #[test]
    fn a_folder_is_made_and_filled() {
        let dir = tempfile::tempdir().expect("a folder");
        let files = write(&dir.path().join("a/man1"), &pages().expect("made")).expect("written");
        assert!(files.iter().all(|file| file.is_file()));
    }
}
