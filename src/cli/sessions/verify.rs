//! `sessions verify`: whether an exported session is what its log held. Needs no mesh.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read as _},
    path::{Path, PathBuf},
};

use clap::Args;
use serde_json::json;
use teamster_core::display;
use teamster_protocol::limits;

use super::archive::{Problem, Summary, Verifier};
use crate::cli::{exit::Exit, failure::Failure, output::Output, show, status::counted};

/// Bytes of a line: a value in hexadecimal digits or escaped, and what stands around it.
const LINE_BYTES_MAX: u64 = limits::BLOB_BYTES_MAX as u64 * 6 + 4096;

/// Check an exported session: the digest of each commit, that each follows the one before, and that the last is the one that the
/// export was begun with. Needs no mesh. Whether that one is the session's last, `sessions show` tells, or its digest that was kept
/// elsewhere.
#[derive(Debug, Args)]
pub(in crate::cli) struct Verify {
    /// The file; `-` reads standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub(super) fn run(out: &Output, options: &Verify) -> Result<Exit, Failure> {
    let verified = if options.file == Path::new("-") {
        verify(&mut std::io::stdin().lock())
    } else {
        let file = File::open(&options.file)
            .map_err(|error| Failure::io("read", &options.file, &error))?;
        verify(&mut BufReader::new(file))
    };
    let verified = verified.map_err(|error| Failure::io("read", &options.file, &error))?;
    let summary = match verified {
        Ok(summary) => summary,
        Err(Problem(what)) => {
            let failure = Failure::new(Exit::Verification, "export.not_verified", what)
                .hint("export it again; if that verifies, the file was cut or changed, or the log was mended since");
            out.failure(&failure, Some(json!({ "v": 1, "ok": false })));
            return Ok(failure.exit);
        }
    };
    told(out, &summary)?;
    Ok(Exit::Completed)
}

fn told(out: &Output, summary: &Summary) -> Result<(), Failure> {
    if !out.is_text() {
        let mut document = show::versioned(summary);
        if let Some(object) = document.as_object_mut() {
            object.insert("ok".to_owned(), true.into());
        }
        out.document(&document)?;
        return Ok(());
    }
    out.line(&format!(
        "{}: {} ({} to {}), unchanged, each following the one before; the last has sha256 {}",
        display::terminal(summary.session.as_str()),
        counted(summary.commits, "commit"),
        summary.first,
        summary.last,
        summary.last_sha256,
    ))?;
    if summary.losses > 0 {
        out.note(&format!(
            "an operator accepted that something was lost, {}",
            counted(summary.losses, "time")
        ));
    }
    if summary.first > 1 {
        out.note(if summary.losses > 0 {
            "the commits before were given up with what was lost, or purged when a session of this name was deleted"
        } else {
            "the commits before were purged when the session was deleted"
        });
    }
    Ok(())
}

/// Reads line by line, so that a file of any size is checked in bounded memory.
pub(super) fn verify(input: &mut impl BufRead) -> std::io::Result<Result<Summary, Problem>> {
    let mut verifier: Option<Verifier> = None;
    let mut number = 0;
    loop {
        let mut bytes = Vec::new();
        input
            .by_ref()
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut bytes)?;
        if bytes.is_empty() {
            break;
        }
        number += 1;
        if bytes.last() != Some(&b'\n') && bytes.len() as u64 == LINE_BYTES_MAX {
            return Ok(Err(Problem(format!(
                "line {number} is longer than any line of an export"
            ))));
        }
        let Ok(line) = std::str::from_utf8(&bytes) else {
            return Ok(Err(Problem(format!("line {number} is no text"))));
        };
        let line = line.trim_end_matches(['\n', '\r']);
        let taken = match &mut verifier {
            Some(verifier) => verifier.line(number, line),
            None => Verifier::begin(line).map(|begun| verifier = Some(begun)),
        };
        if let Err(problem) = taken {
            return Ok(Err(problem));
        }
    }
    Ok(match verifier {
        Some(verifier) => verifier.end(),
        None => Err(Problem("the file is empty".to_owned())),
    })
}
