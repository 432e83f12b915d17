//! docs/protocol.md is held to the code: each example that it shows is read by the type that it names.

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use teamster_protocol::{Contract, Event, Fault, commit, function, hook, input, notice, registry};

use crate::house::tree::files;

pub(super) const PAGE: &str = "docs/protocol.md";

/// The page.
pub(super) fn text() -> &'static str {
    files().get(PAGE).expect("docs/protocol.md is there")
}

/// An example: the name of its type and its text.
fn examples() -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    let mut open: Option<(&str, String)> = None;
    for line in text().lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(info)) => open = Some((info, String::new())),
            (Some(_), Some(_)) => found.extend(open.take()),
            (Some((_, text)), None) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, None) => {}
        }
    }
    let json = found
        .into_iter()
        .filter_map(|(info, text)| Some((info.strip_prefix("json")?.trim(), text)));
    json.collect()
}

/// Reads an example as `T` and writes it again: what comes out must say the same.
fn same<T: DeserializeOwned + Serialize>(text: &str) -> Result<(), String> {
    let want: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let read: T = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let written = serde_json::to_value(&read).map_err(|error| error.to_string())?;
    let again: T = serde_json::from_value(written.clone()).map_err(|error| error.to_string())?;
    let twice = serde_json::to_value(&again).map_err(|error| error.to_string())?;
    if twice != written {
        return Err("it is not read back".to_owned());
    }
    // What the example says is kept; what it leaves out may be filled in.
    if covers(&written, &want) {
        Ok(())
    } else {
        Err(format!("it is written as {written}"))
    }
}

/// Whether `whole` says all that `part` says.
fn covers(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => part
            .iter()
            .all(|(key, part)| whole.get(key).is_some_and(|whole| covers(whole, part))),
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() == part.len()
                && whole
                    .iter()
                    .zip(part)
                    .all(|(whole, part)| covers(whole, part))
        }
        _ => whole == part,
    }
}

type Check = fn(&str) -> Result<(), String>;

/// The types that the page may name.
const CHECKS: &[(&str, Check)] = &[
    ("Contract", same::<Contract>),
    ("Event", same::<Event>),
    ("Fault", same::<Fault>),
    ("Worker", same::<registry::Worker>),
    ("Hooks", same::<registry::Hooks>),
    ("HookRequest", same::<hook::Request>),
    ("Verdict", same::<hook::Verdict>),
    ("Commit", same::<commit::Commit>),
    ("Notice", same::<notice::Notice>),
    ("Delta", same::<function::router::Delta>),
    ("Send", same::<input::Send>),
    ("SendRequest", same::<function::harness::SendRequest>),
    ("SendReply", same::<function::harness::SendReply>),
    ("StopRequest", same::<function::harness::StopRequest>),
    ("ResolveRequest", same::<function::approval::ResolveRequest>),
    ("ListRequest", same::<function::engine::ListRequest>),
    ("ListReply", same::<function::engine::ListReply>),
    ("any", same::<Value>),
];

#[test]
fn every_example_of_the_page_is_read_by_its_type() {
    let examples = examples();
    assert!(examples.len() > 20, "the examples were found");
    for (name, text) in examples {
        let (_, check) = CHECKS
            .iter()
            .find(|(known, _)| *known == name)
            .unwrap_or_else(|| panic!("an example must name its type, not {name:?}: {text}"));
        if let Err(reason) = check(&text) {
            panic!("this is no {name}: {reason}\n{text}");
        }
    }
}
