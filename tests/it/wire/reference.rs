//! The parts of docs/protocol.md that are made from the sources: they cannot go stale. `TEAMSTER_BLESS=1` writes them anew.

mod sample;
mod scan;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use teamster_protocol::{
    RequestId, SessionId,
    input::ControlKind,
    notice::NoticeKind,
    subject::{self, partition, token},
};

use self::scan::{Item, Member, constants, item};
use super::page::{PAGE, text};
use crate::house::tree::root;

/// A type: its source file below `workers/protocol/src`, its name in it, its name on the page.
type Shown = (&'static str, &'static str, &'static str);

/// Types by the chapter that shows them.
const TYPES: &[(&str, &[Shown])] = &[
    (
        "contract types",
        &[
            ("contract.rs", "Contract", "Contract"),
            ("contract.rs", "Class", "Class"),
            ("contract.rs", "Data", "Data"),
            ("contract.rs", "Trust", "Trust"),
            ("contract.rs", "Visibility", "Visibility"),
        ],
    ),
    (
        "fault types",
        &[
            ("fault.rs", "Fault", "Fault"),
            ("fault.rs", "FaultClass", "FaultClass"),
        ],
    ),
    (
        "registry types",
        &[
            ("registry.rs", "Worker", "Worker"),
            ("registry.rs", "Hooks", "Hooks"),
        ],
    ),
    (
        "hook types",
        &[
            ("hook.rs", "Binding", "Binding"),
            ("hook.rs", "Point", "Point"),
            ("hook.rs", "Stage", "Stage"),
            ("hook.rs", "OnError", "OnError"),
            ("hook.rs", "Request", "HookRequest"),
            ("hook.rs", "Generate", "Generate"),
            ("hook.rs", "Call", "HookCall"),
            ("hook.rs", "CallResult", "CallResult"),
            ("hook.rs", "Verdict", "Verdict"),
            ("hook.rs", "Mutations", "Mutations"),
            ("policy.rs", "Judgement", "Judgement"),
            ("policy.rs", "Labels", "Labels"),
            ("policy.rs", "Effect", "Effect"),
        ],
    ),
    (
        "request types",
        &[
            ("function/harness.rs", "SendRequest", "SendRequest"),
            ("function/harness.rs", "SendReply", "SendReply"),
            ("function/harness.rs", "SendState", "SendState"),
            ("function/harness.rs", "StopRequest", "StopRequest"),
            ("function/harness.rs", "StopReply", "StopReply"),
            ("input.rs", "SessionOptions", "SessionOptions"),
            ("input.rs", "TurnOptions", "TurnOptions"),
            ("usage.rs", "Budget", "Budget"),
            ("policy.rs", "FunctionPolicy", "FunctionPolicy"),
            ("policy.rs", "Exposure", "Exposure"),
            ("function/engine.rs", "ListRequest", "ListRequest"),
            ("function/engine.rs", "ListReply", "ListReply"),
            ("function/engine.rs", "Entry", "Entry"),
            ("function/approval.rs", "ResolveRequest", "ResolveRequest"),
            ("function/approval.rs", "ResolveReply", "ResolveReply"),
            ("function/approval.rs", "Resolution", "Resolution"),
            ("input.rs", "Decision", "Decision"),
        ],
    ),
    (
        "commit types",
        &[
            ("commit.rs", "Commit", "Commit"),
            ("commit.rs", "Head", "Head"),
            ("commit.rs", "Phase", "Phase"),
            ("commit.rs", "Lane", "Lane"),
            ("commit.rs", "Bell", "Bell"),
            ("commit.rs", "Cursor", "Cursor"),
            ("commit.rs", "Consumed", "Consumed"),
            ("commit.rs", "Outbox", "Outbox"),
        ],
    ),
    (
        "event types",
        &[
            ("message.rs", "Message", "Message"),
            ("message.rs", "Content", "Content"),
            ("trace.rs", "Trace", "Trace"),
            ("message.rs", "WireCall", "WireCall"),
            ("message.rs", "ResultKind", "ResultKind"),
            ("message.rs", "StopReason", "StopReason"),
            ("event.rs", "EndReason", "EndReason"),
            ("event.rs", "DropReason", "DropReason"),
            ("event.rs", "ApprovalDigest", "ApprovalDigest"),
            ("event.rs", "Settled", "Settled"),
            ("event.rs", "SpentKey", "SpentKey"),
            ("usage.rs", "Spent", "Spent"),
            ("usage.rs", "Usage", "Usage"),
            ("usage.rs", "BudgetKind", "BudgetKind"),
            ("input.rs", "Fork", "Fork"),
            ("function/router.rs", "CompletionError", "CompletionError"),
            ("function/router.rs", "ErrorKind", "ErrorKind"),
            ("blob.rs", "BlobRef", "BlobRef"),
        ],
    ),
    (
        "notice types",
        &[
            ("notice.rs", "Notice", "Notice"),
            ("notice.rs", "NoticeKind", "NoticeKind"),
        ],
    ),
    (
        "live types",
        &[
            ("function/router.rs", "Delta", "Delta"),
            ("function/router.rs", "DeltaKind", "DeltaKind"),
        ],
    ),
];

/// Where a type of the protocol that is no plain JSON value is explained in words.
const WORDS: &[(&str, &str)] = &[
    ("String", "text"),
    ("bool", "true or false"),
    ("u64", "integer"),
    ("u32", "integer"),
    ("i32", "integer"),
    ("Schema", "JSON Schema"),
    ("serde_json::Value", "any JSON"),
    ("Arguments", "text: one JSON object, exact bytes"),
    ("Digest", "SHA-256, 64 hexadecimal digits"),
    ("NanoUsd", "integer, billionths of a US dollar"),
    ("FunctionId", "function id"),
    ("SessionId", "session id"),
    ("TurnId", "turn id"),
    ("CallId", "call id"),
    ("ApprovalId", "approval id"),
    ("MessageId", "message id"),
    ("RequestId", "request id"),
    ("Principal", "principal"),
    ("WorkerName", "worker name"),
    ("Incarnation", "incarnation"),
    ("Event", "[event](#the-events)"),
];

/// Bounds that somebody at the other end of the wire must know.
const BOUNDS: &[&str] = &[
    "CALL_PROGRESS_EVERY",
    "CALL_SILENCE_MAX",
    "CALL_TIMEOUT",
    "CALL_TIMEOUT_MAX",
    "CALL_MEMORY",
    "CALL_MEMORY_MAX",
    "CALL_CANCEL_GRACE",
    "HOOK_TIMEOUT",
    "HOOK_CHAIN",
    "HOOKS_PER_POINT_MAX",
    "HOOK_REPLY_BYTES_MAX",
    "REGISTRATION_TTL",
    "REGISTRATION_EVERY",
    "DRAIN",
    "DUPLICATE_WINDOW",
    "KEY_TTL",
    "PAYLOAD_BYTES_MAX",
    "RESULT_BYTES_MAX",
    "MESSAGE_BYTES_MAX",
    "COMMIT_BYTES_MAX",
    "FAULT_TEXT_BYTES_MAX",
    "KEY_BYTES_MAX",
    "FUNCTION_ID_BYTES_MAX",
    "SESSION_TOKEN_BYTES_MAX",
    "QUEUE_PER_SESSION_MAX",
    "PARTITIONS",
    "LOG_STREAMS",
];

#[test]
fn what_the_page_says_of_the_code_is_what_the_code_says() {
    let mut sections: BTreeMap<String, String> = TYPES
        .iter()
        .map(|(name, types)| ((*name).to_owned(), types.iter().map(shown).collect()))
        .collect();
    sections.insert("events".to_owned(), events());
    sections.insert("headers".to_owned(), headers());
    sections.insert("bounds".to_owned(), bounds());
    sections.insert("tokens".to_owned(), tokens());
    sections.insert("subjects".to_owned(), subjects());
    let page = text();
    let mut written = page.to_owned();
    for (name, section) in &sections {
        let (open, close) = (format!("<!-- made: {name} -->\n"), "<!-- end -->");
        let from = written.find(&open);
        let from = from.unwrap_or_else(|| panic!("{PAGE} has no place for: {name}")) + open.len();
        let length = written[from..].find(close);
        let length = length.unwrap_or_else(|| panic!("{PAGE} does not end: {name}"));
        written.replace_range(from..from + length, &format!("\n{}\n", section.trim_end()));
    }
    if written == page {
        return;
    }
    if std::env::var_os("TEAMSTER_BLESS").is_some() {
        std::fs::write(root().join(PAGE), written).expect("the page is written");
        return;
    }
    let differs = written.lines().zip(page.lines()).find(|(a, b)| a != b);
    panic!("{PAGE} is not what the code says; TEAMSTER_BLESS=1 writes it anew: {differs:?}");
}

#[test]
fn every_kind_of_event_has_an_example() {
    let item = item("workers/protocol/src/event.rs", "Event");
    let declared: Vec<&str> = item.members.iter().map(|kind| kind.name.as_str()).collect();
    let shown: Vec<String> = sample::events()
        .iter()
        .map(|event| {
            let json = serde_json::to_value(event).expect("encodes");
            json["type"].as_str().expect("a type").to_owned()
        })
        .collect();
    let sorted = |names: Vec<&str>| {
        names
            .into_iter()
            .map(str::to_owned)
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(sorted(declared), shown.into_iter().collect());
}

/// A type under its heading.
fn shown((file, name, heading): &Shown) -> String {
    let item = item(&format!("workers/protocol/src/{file}"), name);
    let mut section = format!("#### {heading}\n\n{}\n\n", item.docs);
    section.push_str(&table(&item, file));
    section.push('\n');
    section
}

fn table(item: &Item, file: &str) -> String {
    if !item.is_enum {
        return fields(&item.members, file);
    }
    let mut table = match &item.tag {
        Some(tag) => format!("| `{tag}` | fields | meaning |\n| --- | --- | --- |\n"),
        None => "| value | meaning |\n| --- | --- |\n".to_owned(),
    };
    for variant in &item.members {
        let _ = match &item.tag {
            Some(_) => writeln!(
                table,
                "| `{}` | {} | {} |",
                variant.name,
                inline(variant, file),
                variant.docs
            ),
            None => writeln!(table, "| `{}` | {} |", variant.name, variant.docs),
        };
    }
    table
}

/// The fields of a variant in one cell.
fn inline(variant: &Member, file: &str) -> String {
    if !variant.kind.is_empty() && variant.members.is_empty() {
        return format!("those of {}", wire(&variant.kind, file));
    }
    let fields = variant.members.iter().map(|field| {
        let optional = if field.is_optional { ", optional" } else { "" };
        format!(
            "`{}` ({}{optional}): {}",
            field.name,
            wire(&field.kind, file),
            field.docs
        )
    });
    fields.collect::<Vec<_>>().join("<br>")
}

fn fields(members: &[Member], file: &str) -> String {
    let mut table = "| field | type | meaning |\n| --- | --- | --- |\n".to_owned();
    for field in members {
        let optional = if field.is_optional { ", optional" } else { "" };
        let _ = writeln!(
            table,
            "| `{}` | {}{optional} | {} |",
            field.name,
            wire(&field.kind, file),
            field.docs
        );
    }
    table
}

/// A Rust type as what travels.
fn wire(kind: &str, file: &str) -> String {
    for wrapper in ["Option<", "Box<", "Arc<"] {
        if let Some(inner) = kind.strip_prefix(wrapper) {
            return wire(inner.strip_suffix('>').expect("closed"), file);
        }
    }
    if let Some(inner) = kind.strip_prefix("Vec<") {
        return format!(
            "list of {}",
            wire(inner.strip_suffix('>').expect("closed"), file)
        );
    }
    // Ids are text.
    let keyed = ["BTreeMap<String, ", "BTreeMap<CallId, "];
    if let Some(inner) = keyed.iter().find_map(|key| kind.strip_prefix(key)) {
        let inner = inner.strip_suffix('>').expect("closed");
        let or_null = if inner.starts_with("Option<") {
            " or null"
        } else {
            ""
        };
        return format!("object whose values are {}{or_null}", wire(inner, file));
    }
    if let Some((_, words)) = WORDS.iter().find(|(name, _)| *name == kind) {
        return (*words).to_owned();
    }
    let name = kind.rsplit("::").next().unwrap_or(kind);
    let all = || TYPES.iter().flat_map(|(_, types)| types.iter());
    let (_, _, heading) = all()
        .find(|(of, known, _)| *of == file && *known == name)
        .or_else(|| all().find(|(_, known, _)| *known == name))
        .unwrap_or_else(|| panic!("the page does not show the type {kind} of {file}"));
    format!("[{heading}](#{})", heading.to_lowercase())
}

fn events() -> String {
    let item = item("workers/protocol/src/event.rs", "Event");
    let mut section = String::new();
    for event in sample::events() {
        let json = serde_json::to_value(&event).expect("encodes");
        let name = json["type"].as_str().expect("a type").to_owned();
        let variant = item.members.iter().find(|kind| kind.name == name);
        let variant = variant.unwrap_or_else(|| panic!("{name} is declared"));
        let example = serde_json::to_string(&event).expect("encodes");
        let _ = write!(
            section,
            "#### `{name}`\n\n{}\n\n{}\n```json Event\n{example}\n```\n\n",
            variant.docs,
            fields(&variant.members, "event.rs"),
        );
    }
    section
}

fn headers() -> String {
    let mut table = "| header | meaning |\n| --- | --- |\n".to_owned();
    for (name, value, docs) in constants("workers/protocol/src/header.rs", "&str") {
        if !name.starts_with("STATUS_") {
            let _ = writeln!(table, "| `{}` | {docs} |", value.trim_matches('"'));
        }
    }
    table
}

fn bounds() -> String {
    let all = constants("workers/protocol/src/limits.rs", "");
    let mut table = "| bound | value | meaning |\n| --- | --- | --- |\n".to_owned();
    for bound in BOUNDS {
        let (_, value, docs) = all
            .iter()
            .find(|(name, ..)| name == bound)
            .unwrap_or_else(|| panic!("there is no bound {bound}"));
        let value = value.trim_start_matches("Duration::").replace('_', " ");
        let value = value.replace("from ", "").replace(['(', ')'], " ");
        let words: Vec<&str> = value.split_whitespace().collect();
        let value = match words.as_slice() {
            ["secs", n] => format!("{n} s"),
            ["millis", n] => format!("{n} ms"),
            ["mins", n] => format!("{n} min"),
            ["hours", n] => format!("{n} h"),
            _ => words.join(" "),
        };
        let _ = writeln!(table, "| `{bound}` | {value} | {docs} |");
    }
    table
}

/// Test vectors for whoever writes the encoding anew.
fn tokens() -> String {
    let mut table =
        "| text | token | partition | log stream |\n| --- | --- | --- | --- |\n".to_owned();
    for text in [
        "a", "foobar", "ses_1", "chat/42", "Ünï", "a b", "=41", "x.y", "🦀",
    ] {
        let token = token(text);
        let place = partition(&token);
        let stream = subject::log_stream_of(place);
        let _ = writeln!(
            table,
            "| `{text}` | `{token}` | `{place:02}` | `LOG_{stream}` |"
        );
    }
    table
}

fn subjects() -> String {
    let session = SessionId::parse("chat/42").expect("valid");
    let id = teamster_protocol::FunctionId::parse("weather::current").expect("valid");
    let request = RequestId::of(&session, 3, 0);
    let rows = [
        (
            "a function",
            "`fn.<id, dots for ::>`",
            subject::function(&id),
            "request",
        ),
        (
            "an operator's function",
            "`op.<principal>.<id>`",
            subject::operator("owner", &id),
            "request",
        ),
        (
            "a question about a call",
            "`call.<namespace>.<call id>`",
            subject::call("weather", "call_1"),
            "request",
        ),
        (
            "a user message",
            "`turn.in.<p>.<s>`",
            subject::turn_in(&session),
            "TURNS",
        ),
        (
            "a control input",
            "`turn.ctl.<p>.<s>.<kind>`",
            subject::turn_ctl(&session, ControlKind::Stop),
            "CONTROL",
        ),
        (
            "a kick",
            "`turn.kick.<p>.<s>`",
            subject::turn_kick(&session),
            "CONTROL",
        ),
        (
            "a session's log",
            "`log.<p>.<s>`",
            subject::log(&session),
            "LOG_0 to LOG_7",
        ),
        (
            "a session's snapshot",
            "`snap.<p>.<s>`",
            subject::snap(&session),
            "SNAP",
        ),
        ("deltas", "`live.<s>`", subject::live(&session), "LIVE"),
        (
            "a notice",
            "`evt.<kind>.<s>`",
            subject::notice(NoticeKind::TurnCompleted, &session),
            "EVENTS",
        ),
        (
            "a finished completion",
            "`gen.<request id>`",
            subject::generation(&request),
            "GENERATIONS",
        ),
        (
            "who streams a request",
            "`gen.run.<request id>`",
            subject::generation_run(&request),
            "request",
        ),
    ];
    let mut table = "| what | subject | example | where |\n| --- | --- | --- | --- |\n".to_owned();
    for (what, pattern, example, place) in rows {
        let place = if place == "request" {
            "request and reply".to_owned()
        } else {
            format!("stream `{place}`")
        };
        let _ = writeln!(table, "| {what} | {pattern} | `{example}` | {place} |");
    }
    table
}
