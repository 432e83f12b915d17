//! Log lines and spans call one thing by one name: whoever searches for a session, a call or an error need not guess.

use std::collections::BTreeSet;

use super::tree::{assert_none, is_test, sources};

/// All fields of lines and spans. Ids first; what stands for the same thing has the name that is here.
const FIELDS: &[&str] = &[
    // Ids.
    "session",
    "turn",
    "call",
    "request",
    "seq",
    "trace_id",
    "span_id",
    "approval",
    "n",
    "commit",
    // Who and where.
    "worker",
    "function",
    "peer",
    "from",
    "by",
    "pid",
    "url",
    "subject",
    "stream",
    "lane",
    "key",
    "file",
    "task",
    "place",
    "channel",
    "subscription",
    "object",
    "collector",
    "source",
    "blob",
    // What happened.
    "code",
    "error",
    "reason",
    "message",
    "what",
    "event",
    "panic",
    "output",
    "policy",
    "model",
    "provider",
    "tool",
    "stop",
    "layer",
    "layers",
    "kick",
    "kept",
    "adopted",
    "tail",
    // How much.
    "bytes",
    "count",
    "calls",
    "events",
    "sessions",
    "deliveries",
    "tokens",
    "attempts",
    "tried",
    "wait_ms",
    "lost",
    "erased",
    "dirs",
    "free",
    "commits",
    "window",
    "spans",
    "figures",
    // Of spans, by the conventions.
    "otel.kind",
    "otel.status_code",
    "error.type",
    "gen_ai.provider.name",
    "gen_ai.request.model",
    "gen_ai.response.model",
    "teamster.provider.attempts",
];

const MACROS: &[&str] = &["trace!", "debug!", "info!", "warn!", "error!", "info_span!"];

#[test]
fn lines_and_spans_call_things_by_the_same_names() {
    let known: BTreeSet<&str> = FIELDS.iter().copied().collect();
    let mut used = BTreeSet::new();
    let mut places = Vec::new();
    for (name, text) in sources().filter(|(name, _)| !is_test(name, "", 0)) {
        let product = text.split("#[cfg(test)]").next().unwrap_or_default();
        for fields in product.split("tracing::").skip(1).filter_map(arguments) {
            for field in fields {
                if known.contains(field.as_str()) {
                    used.insert(field);
                } else {
                    places.push(format!("{name}: {field}"));
                }
            }
        }
    }
    assert_none("a field that is not in the list", &places);
    let unused: Vec<String> = known
        .iter()
        .filter(|field| !used.contains(**field))
        .map(|field| (*field).to_owned())
        .collect();
    assert_none("a name in the list that nothing uses", &unused);
}

#[test]
fn fields_are_found_in_a_macro() {
    let fields = arguments(
        "warn!(target: X, session = %a(b, \"c, d\"), ?lane, seq, error.type = Empty, \"text {}\", x)",
    );
    assert_eq!(
        fields.expect("a macro"),
        ["session", "lane", "seq", "error.type"]
    );
    assert_eq!(arguments("Span::current()"), None);
}

/// The names of the fields of a macro that `text` begins with. What follows the message is no field.
fn arguments(text: &str) -> Option<Vec<String>> {
    let body = MACROS
        .iter()
        .find_map(|name| text.strip_prefix(name)?.strip_prefix('('))?;
    let is_span = text.starts_with("info_span!");
    let mut fields = Vec::new();
    for part in parts(body) {
        let part = part.trim();
        if part.starts_with("target:") {
            continue;
        }
        if part.starts_with('"') {
            // The name of a span comes first, the message of a line last.
            if is_span {
                continue;
            }
            break;
        }
        let name: String = part
            .trim_start_matches(['%', '?'])
            .chars()
            .take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.'))
            .collect();
        if !name.is_empty() {
            fields.push(name);
        }
    }
    Some(fields)
}

/// The arguments of a call whose text begins behind its parenthesis.
fn parts(body: &str) -> Vec<String> {
    let (mut parts, mut part) = (Vec::new(), String::new());
    let (mut depth, mut is_text) = (0, false);
    let mut chars = body.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' if is_text => {
                part.push(c);
                part.extend(chars.next());
                continue;
            }
            '"' => is_text = !is_text,
            _ if is_text => {}
            '(' | '[' | '{' => depth += 1,
            ')' if depth == 0 => break,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(std::mem::take(&mut part));
                continue;
            }
            _ => {}
        }
        part.push(c);
    }
    parts.push(part);
    parts
}
