//! The lines of a log file.

use std::io;

use serde_json::Value;
use teamster_telemetry::{Format, Options, Sink, init, task, trace};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[tokio::test]
async fn each_line_is_one_document_with_its_trace_and_panics_are_lines_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("up.log");
    let options = Options {
        sink: Sink::File(file.clone()),
        format: Format::Auto,
        filter: Some("warn,teamster=info".to_owned()),
    };
    let guard = init("up", &options).expect("the first set-up");
    assert!(init("up", &options).is_err(), "a second set-up");

    let span = tracing::info_span!(target: "teamster_it", "call", session = "ses_1");
    trace::set_parent(&span, PARENT);
    let error = io::Error::other("disk \u{9b}2J full");
    span.in_scope(|| {
        tracing::info!(target: "teamster_it", n = 3, seq = 9, error = &error as &dyn std::error::Error, "stored");
        tracing::info!(target: "outsider", "not ours");
    });
    let joined = task::spawn("doomed", async { assert_eq!(1 + 1, 3, "arithmetic") }).await;
    assert!(joined.is_err());
    drop(guard);

    let text = std::fs::read_to_string(&file).expect("the file");
    assert!(!text.contains('\u{9b}'));
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect(line))
        .collect();
    let [stored, hook, task] = lines.as_slice() else {
        panic!("three lines, not {lines:#?}");
    };
    assert_eq!(stored["message"], "stored");
    assert_eq!(stored["service"], "up");
    assert_eq!(stored["level"], "INFO");
    assert_eq!(stored["trace_id"], "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(stored["fields"]["n"], 3);
    assert_eq!(stored["fields"]["error"], "disk \u{9b}2J full");
    assert_eq!(stored["spans"][0]["name"], "call");
    assert_eq!(stored["session"], "ses_1");
    assert_eq!(stored["seq"], 9);
    assert_eq!(hook["message"], "panicked");
    assert_eq!(task["fields"]["task"], "doomed");
    assert!(
        task["fields"]["panic"]
            .as_str()
            .is_some_and(|text| text.contains("arithmetic"))
    );
    assert_is_private(&file);
}

#[cfg(unix)]
fn assert_is_private(file: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::metadata(file)
        .expect("metadata")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}
