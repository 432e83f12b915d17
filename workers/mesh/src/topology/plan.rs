//! What the broker must hold, as the configurations that it is asked for. Pure.

use serde_json::{Value, json};
use teamster_protocol::limits;

/// User messages, in order.
pub(crate) const TURNS: &str = "TURNS";
/// Control inputs, kicks and timers.
pub(crate) const CONTROL: &str = "CONTROL";
/// Snapshots.
pub(crate) const SNAP: &str = "SNAP";
/// Finished completions.
pub(crate) const GENERATIONS: &str = "GENERATIONS";
/// Values that are too large for a commit.
pub(crate) const BLOBS: &str = "BLOBS";
/// Notices for consumers that were away.
pub(crate) const EVENTS: &str = "EVENTS";
/// Deltas.
pub(crate) const LIVE: &str = "LIVE";
/// The bucket of workers, functions and hooks.
pub(crate) const REGISTRY: &str = "registry";
/// The bucket of the live configuration.
pub(crate) const CONFIG: &str = "config";
/// The bucket of the second copies of heads.
pub(crate) const HEADS: &str = "heads";
/// The doorbell consumer of TURNS and of CONTROL.
pub(crate) const BELL: &str = "bell";

/// The consumer of each log stream from which notices are made.
pub(crate) const FEED: &str = "events";

/// Bytes of a stored message around its body.
const HEADERS_BYTES_MAX: usize = 4096;
/// Bytes that GENERATIONS may hold. The broker sets them aside in memory when the stream is made.
const GENERATIONS_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Streams whose loss is a loss of what can be said, paid or looked up again.
pub(super) const MAY_BE_LOST: [&str; 3] = [EVENTS, LIVE, GENERATIONS];
/// Streams that hold what nothing else does, besides the logs.
const LASTING: [&str; 4] = [TURNS, CONTROL, BLOBS, "KV_config"];
/// Bytes that EVENTS may hold; the oldest notices go first.
const EVENTS_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Bytes that LIVE may hold.
const LIVE_BYTES_MAX: u64 = 64 * 1024 * 1024;
const SECOND: u64 = 1_000_000_000;

/// The stream that holds a session's log.
pub(crate) fn log_stream(session: &teamster_protocol::SessionId) -> String {
    let partition = teamster_protocol::subject::partition(&session.token());
    log_stream_name(teamster_protocol::subject::log_stream_of(partition))
}

/// The name of log stream `k`.
pub(crate) fn log_stream_name(k: u8) -> String {
    format!("LOG_{k}")
}

/// The streams that hold what nothing else does.
pub(super) fn lasting() -> Vec<String> {
    let logs = (0..limits::LOG_STREAMS).map(log_stream_name);
    logs.chain(LASTING.map(str::to_owned)).collect()
}

/// A consumer that is made once and shared.
pub(super) struct Durable {
    pub(super) stream: String,
    pub(super) name: &'static str,
    pub(super) config: Value,
}

/// The doorbell consumers. `max_deliver` has no limit because the broker would drop what goes beyond it in silence; attempts
/// are counted in the log.
pub(super) fn bells() -> Vec<Durable> {
    [
        (TURNS, json!(["turn.in.>"])),
        (CONTROL, json!(["turn.ctl.>", "turn.kick.>"])),
    ]
    .into_iter()
    .map(|(stream, filters)| {
        let mut config = json!({
            "durable_name": BELL,
            "name": BELL,
            "deliver_policy": "all",
            "ack_policy": "explicit",
            "ack_wait": nanos(limits::ACK_WAIT),
            "max_deliver": -1,
            "max_ack_pending": limits::ACK_PENDING_MAX,
            "max_waiting": 4096,
            "replay_policy": "instant",
        });
        if let (Some(fields), Some(list)) = (config.as_object_mut(), filters.as_array()) {
            match list.as_slice() {
                [one] => fields.insert("filter_subject".to_owned(), one.clone()),
                _ => fields.insert("filter_subjects".to_owned(), filters.clone()),
            };
        }
        Durable {
            stream: stream.to_owned(),
            name: BELL,
            config,
        }
    })
    .collect()
}

/// The consumer of a log stream from which notices are made: one message in flight, so that notices keep the log's order, however
/// many workers share it.
pub(super) fn feed(k: u8) -> Durable {
    Durable {
        stream: log_stream_name(k),
        name: FEED,
        config: json!({
            "durable_name": FEED,
            "name": FEED,
            "deliver_policy": "all",
            "ack_policy": "explicit",
            "ack_wait": nanos(limits::FEED_WAIT),
            "max_deliver": -1,
            "max_ack_pending": 1,
            "max_waiting": 512,
            "filter_subject": "log.>",
            "replay_policy": "instant",
        }),
    }
}

/// All streams, those of the buckets included.
pub(super) fn streams(replicas: usize) -> Vec<Value> {
    let mut all = vec![
        turns(),
        control(),
        snap(),
        generations(),
        live(),
        blobs(),
        events(),
    ];
    all.extend((0..limits::LOG_STREAMS).map(log));
    all.push(registry());
    all.push(bucket(CONFIG, limits::CONFIG_HISTORY_MAX as u64));
    all.push(bucket(HEADS, 1));
    for stream in &mut all {
        if let Some(fields) = stream.as_object_mut() {
            fields.insert("num_replicas".to_owned(), replicas.into());
            fields.insert("retention".to_owned(), "limits".into());
        }
    }
    all
}

fn turns() -> Value {
    json!({
        "name": TURNS,
        "subjects": ["turn.in.*.*"],
        "storage": "file",
        "max_msgs_per_subject": limits::QUEUE_PER_SESSION_MAX,
        "discard": "new",
        "discard_new_per_subject": true,
        "duplicate_window": nanos(limits::DUPLICATE_WINDOW),
        "allow_direct": true,
    })
}

/// Apart from TURNS because message schedules exclude the refusal of messages beyond a limit.
fn control() -> Value {
    json!({
        "name": CONTROL,
        "subjects": ["turn.ctl.*.*.*", "turn.kick.*.*", "turn.tmr.*.*.*"],
        "storage": "file",
        "discard": "old",
        "duplicate_window": nanos(limits::DUPLICATE_WINDOW),
        "allow_direct": true,
        "allow_msg_ttl": true,
        "allow_msg_schedules": true,
    })
}

fn log(k: u8) -> Value {
    let subjects: Vec<String> = (0..limits::PARTITIONS)
        .filter(|partition| teamster_protocol::subject::log_stream_of(*partition) == k)
        .map(|partition| format!("log.{partition:02}.*"))
        .collect();
    json!({
        "name": log_stream_name(k),
        "subjects": subjects,
        "storage": "file",
        "discard": "old",
        "max_msg_size": limits::COMMIT_BYTES_MAX + HEADERS_BYTES_MAX,
        "duplicate_window": 10 * SECOND,
        "allow_direct": true,
        "allow_msg_ttl": true,
    })
}

fn snap() -> Value {
    json!({
        "name": SNAP,
        "subjects": ["snap.*.*"],
        "storage": "file",
        "max_msgs_per_subject": 1,
        "discard": "old",
        "compression": "s2",
        "duplicate_window": SECOND,
        "allow_direct": true,
    })
}

/// In memory: what is lost with it costs one repeated generation, and each generation saves two flushes to the disk (its
/// completion and the removal of it). `gen.run.…` is a question to a router and has one token more.
fn generations() -> Value {
    json!({
        "name": GENERATIONS,
        "subjects": ["gen.*.*.*"],
        "storage": "memory",
        "max_age": 7 * 24 * 3600 * SECOND,
        "max_bytes": GENERATIONS_BYTES_MAX,
        "max_msgs_per_subject": 1,
        "discard": "old",
        "duplicate_window": SECOND,
        "allow_direct": true,
    })
}

/// Values by their digest: one message each, the same bytes at most once.
fn blobs() -> Value {
    json!({
        "name": BLOBS,
        "subjects": ["blob.*"],
        "storage": "file",
        "max_msgs_per_subject": 1,
        "discard": "old",
        "compression": "s2",
        "duplicate_window": SECOND,
        "allow_direct": true,
    })
}

/// Derived from the logs, so that a week of it is enough.
fn events() -> Value {
    json!({
        "name": EVENTS,
        "subjects": ["evt.*.*"],
        "storage": "file",
        "max_age": nanos(limits::NOTICES_KEPT),
        "max_bytes": EVENTS_BYTES_MAX,
        "discard": "old",
        "duplicate_window": nanos(limits::DUPLICATE_WINDOW),
        "allow_direct": true,
    })
}

fn live() -> Value {
    json!({
        "name": LIVE,
        "subjects": ["live.*"],
        "storage": "memory",
        "max_age": nanos(limits::DELTAS_KEPT),
        "max_bytes": LIVE_BYTES_MAX,
        "discard": "old",
        "duplicate_window": SECOND,
        "allow_direct": true,
    })
}

/// The stream of a key-value bucket, as the client libraries lay it out.
fn bucket(name: &str, history: u64) -> Value {
    json!({
        "name": format!("KV_{name}"),
        "subjects": [format!("$KV.{name}.>")],
        "storage": "file",
        "max_msgs_per_subject": history,
        "discard": "new",
        "allow_rollup_hdrs": true,
        "deny_delete": true,
        "allow_direct": true,
        "allow_msg_ttl": true,
        "subject_delete_marker_ttl": 60 * SECOND,
        "duplicate_window": 120 * SECOND,
    })
}

/// The bucket that workers from outside write to. It takes no rollup: with one of all, whoever may write one key could remove the
/// hooks of others. So the server marks no end of a lease either, which it does by rollups: readers count leases themselves.
fn registry() -> Value {
    let mut config = bucket(REGISTRY, 1);
    if let Some(fields) = config.as_object_mut() {
        fields.insert("allow_rollup_hdrs".to_owned(), Value::Bool(false));
        fields.remove("subject_delete_marker_ttl");
    }
    config
}

/// Streams that are changed where an earlier version made them otherwise.
pub(super) const CHANGED: [&str; 1] = ["KV_registry"];

/// `found` with what is `wanted` of it, and without what an earlier version asked for.
pub(super) fn changed(wanted: &Value, mut found: Value) -> Value {
    if let (Some(found), Some(wanted)) = (found.as_object_mut(), wanted.as_object()) {
        let ours = wanted
            .iter()
            .filter(|(key, _)| !OPERATORS.contains(&key.as_str()));
        found.extend(ours.map(|(key, want)| (key.clone(), want.clone())));
        found.remove("subject_delete_marker_ttl");
    }
    found
}

/// What of `wanted` the broker holds otherwise, in words. Fields that were not asked for are the operator's business, except
/// an asynchronous persist mode, which acknowledges what is not stored.
pub(super) fn differences(wanted: &Value, found: &Value) -> Vec<String> {
    let mut differences = Vec::new();
    for (key, want) in wanted.as_object().into_iter().flatten() {
        if OPERATORS.contains(&key.as_str()) {
            continue;
        }
        let have = found.get(key).unwrap_or(&Value::Null);
        if !is_equal(want, have) {
            differences.push(format!("`{key}` {have} instead of {want}"));
        }
    }
    if found.get("persist_mode").and_then(Value::as_str) == Some("async") {
        differences
            .push("`persist_mode` \"async\", which acknowledges before it stores".to_owned());
    }
    differences
}

/// What an operator may set otherwise than we would.
const OPERATORS: [&str; 6] = [
    "num_replicas",
    "max_age",
    "max_bytes",
    "compression",
    "max_waiting",
    "name",
];

fn is_equal(want: &Value, have: &Value) -> bool {
    let sorted = |list: &[Value]| {
        let mut list: Vec<String> = list.iter().map(Value::to_string).collect();
        list.sort();
        list
    };
    match (want, have) {
        (Value::Array(want), Value::Array(have)) => sorted(want) == sorted(have),
        (Value::Bool(false), Value::Null) => true,
        _ => want == have,
    }
}

/// Whether an error number says that an object of the name is there: a stream (with another configuration) or a consumer.
pub(super) fn exists_already(number: u64) -> bool {
    matches!(number, 10058 | 10105 | 10148 | 10013)
}

fn nanos(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_partition_has_one_log_stream() {
        let mut subjects: Vec<String> = (0..limits::LOG_STREAMS)
            .flat_map(|k| {
                let stream = log(k);
                let list = stream.get("subjects").cloned().expect("subjects");
                serde_json::from_value::<Vec<String>>(list).expect("texts")
            })
            .collect();
        subjects.sort();
        let want: Vec<String> = (0..64).map(|p| format!("log.{p:02}.*")).collect();
        assert_eq!(subjects, want);
    }

    #[test]
    fn differences_are_named() {
        let wanted = turns();
        let mut found = wanted.clone();
        assert!(differences(&wanted, &found).is_empty());
        let fields = found.as_object_mut().expect("an object");
        fields.insert("storage".to_owned(), "memory".into());
        fields.insert("persist_mode".to_owned(), "async".into());
        fields.insert("max_age".to_owned(), 5.into());
        let words = differences(&wanted, &found);
        assert_eq!(words.len(), 2, "{words:?}");
        assert!(words.iter().any(|word| word.starts_with("`storage`")));
        assert!(words.iter().any(|word| word.contains("async")));
    }

    #[test]
    fn the_order_of_subjects_does_not_matter() {
        let wanted = json!({"subjects": ["a", "b"]});
        assert!(differences(&wanted, &json!({"subjects": ["b", "a"]})).is_empty());
        assert!(!differences(&wanted, &json!({"subjects": ["a"]})).is_empty());
    }
}
