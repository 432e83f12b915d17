//! A helper that leaves out layers, or lets its kernel miss a system call. Tests start it to see the next layer hold, and
//! the product refuse. The product's executable knows neither.
//!
//! `teamster-sandbox-weak [--lies] [--without LAYER]... [--deny NUMBER]... sandbox-stage ...`

use std::{collections::BTreeMap, ffi::OsString, process::ExitCode};

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};
use teamster_sandbox::{
    Layer,
    stage::{self, Entry, MARK},
};

fn main() -> ExitCode {
    let mut entry = Entry::default();
    let mut denied = BTreeMap::new();
    let mut arguments = std::env::args_os().skip(1);
    while let Some(word) = arguments.next() {
        if word == MARK {
            if !denied.is_empty() && refuse(denied).is_none() {
                return ExitCode::from(3);
            }
            return stage::run(&entry, arguments);
        }
        if word == "--lies" {
            entry.lies = true;
            entry.prefix.push(word);
            continue;
        }
        let Some(value) = arguments.next() else { break };
        let text = value.to_str().unwrap_or_default();
        match (word.to_str(), Layer::parse(text), text.parse::<i64>()) {
            (Some("--without"), Some(layer), _) => entry.without.push(layer),
            (Some("--deny"), _, Ok(number)) => drop(denied.insert(number, Vec::new())),
            _ => break,
        }
        entry.prefix.extend::<[OsString; 2]>([word, value]);
    }
    ExitCode::from(2)
}

/// From here on the kernel does not know these calls.
fn refuse(calls: BTreeMap<i64, Vec<seccompiler::SeccompRule>>) -> Option<()> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).ok()?;
    let unknown = SeccompAction::Errno(38);
    let filter = SeccompFilter::new(calls, SeccompAction::Allow, unknown, arch).ok()?;
    apply_filter(&BpfProgram::try_from(filter).ok()?).ok()
}
