//! What is tried again, when, and what the user hears of it.

use serde_json::json;
use teamster_protocol::{
    function::router::{DeltaKind, ErrorKind},
    message::StopReason,
};
use teamster_router::Engine;
use teamster_testkit::{ModelServer, model::Reply};

use crate::support::{config, engine, generate, patient, request, retries, text};

fn refusal(status: u16, code: &str, message: &str) -> Reply {
    Reply::status(status).json(&json!({"error": {"message": message, "code": code}}))
}

#[tokio::test]
async fn retry_1_the_provider_names_the_wait() {
    let server = ModelServer::start(vec![
        refusal(429, "rate_limit_exceeded", "slow down").header("retry-after", "0.05"),
        refusal(503, "", "busy").header("retry-after", "abc"),
        Reply::says("ok"),
    ])
    .await;
    let (completion, deltas) = generate(&patient(&server), &request("s.1.1")).await;
    assert_eq!((completion.stop, completion.attempts), (StopReason::End, 3));
    let retries = retries(&deltas);
    assert_eq!((retries[0].0, retries[0].1, retries[1].0), (2, 50, 3));
    assert!(retries[0].2.contains("slow down") && retries[1].1 <= 2);
    // The waits are told before the first text.
    assert!(matches!(
        deltas.as_slice(),
        [
            DeltaKind::Retry { .. },
            DeltaKind::Retry { .. },
            DeltaKind::Text { .. },
            DeltaKind::Done
        ]
    ));
}

#[tokio::test]
async fn retry_1_a_wait_beyond_the_maximum_fails_with_the_time() {
    for after in [
        "Wed, 21 Oct 2099 07:28:00 GMT",
        "3600",
        "99999999999999999999",
    ] {
        let server = ModelServer::start(vec![
            refusal(429, "", "come back").header("retry-after", after),
        ])
        .await;
        let (completion, deltas) = generate(&patient(&server), &request("s.1.1")).await;
        let error = completion.error.expect("an error");
        assert_eq!(
            (error.kind, server.count()),
            (ErrorKind::RateLimited, 1),
            "{after}"
        );
        assert!(error.message.contains("come back"));
        let hint = error.hint.expect("a hint");
        assert!(hint.contains("UTC"), "{hint}");
        assert!(
            !after.contains("2099") || hint.contains("2099-10-21 07:28:0"),
            "{hint}"
        );
        assert!(retries(&deltas).is_empty());
    }
}

#[tokio::test]
async fn retry_1_the_last_attempt_tells_what_the_provider_said() {
    let server = ModelServer::start(vec![
        refusal(500, "", "one"),
        refusal(500, "", "two"),
        refusal(500, "", "three"),
    ])
    .await;
    let (completion, _) = generate(&patient(&server), &request("s.1.1")).await;
    let error = completion.error.expect("an error");
    assert!(
        error.message.contains("three") && error.message.contains("500"),
        "{}",
        error.message
    );
    assert_eq!(
        (
            completion.attempts,
            server.count(),
            completion.usage.total()
        ),
        (3, 3, 0)
    );
}

#[tokio::test]
async fn retry_2_overload_is_transient_and_quota_is_final() {
    let overload = || refusal(529, "overloaded_error", "overloaded");
    let server = ModelServer::start(vec![overload(), overload(), Reply::says("ok")]).await;
    let (completion, _) = generate(&patient(&server), &request("s.1.1")).await;
    assert_eq!((text(&completion).as_str(), completion.attempts), ("ok", 3));

    for (status, code, message, want) in [
        (
            429,
            "insufficient_quota",
            "You exceeded your current quota",
            ErrorKind::Quota,
        ),
        (402, "", "Insufficient credits", ErrorKind::Quota),
        (
            401,
            "invalid_api_key",
            "Incorrect API key provided",
            ErrorKind::Auth,
        ),
        (
            404,
            "model_not_found",
            "The model `m` does not exist",
            ErrorKind::Rejected,
        ),
        (
            400,
            "context_length_exceeded",
            "too long",
            ErrorKind::ContextOverflow,
        ),
        (302, "", "", ErrorKind::Rejected),
    ] {
        let server = ModelServer::start(vec![
            refusal(status, code, message).header("location", "http://127.0.0.1:1/"),
        ])
        .await;
        let (completion, _) = generate(&patient(&server), &request("s.1.1")).await;
        let error = completion.error.expect("an error");
        assert_eq!(
            (completion.stop, error.kind, server.count()),
            (StopReason::Error, want, 1),
            "{status}"
        );
        assert!(error.hint.is_some(), "{status}");
    }
}

#[tokio::test]
async fn retry_2_an_overload_inside_a_stream_is_tried_again_only_before_text() {
    let overload =
        json!({"type": "error", "error": {"type": "overloaded_error", "message": "overloaded"}});
    let event = format!("event: error\ndata: {overload}\n\n");
    let server = ModelServer::start(vec![Reply::stream().body(&event), Reply::says("ok")]).await;
    let (completion, deltas) = generate(&patient(&server), &request("s.1.1")).await;
    assert_eq!(
        (
            text(&completion).as_str(),
            completion.attempts,
            retries(&deltas).len()
        ),
        ("ok", 2, 1)
    );
    // The attempt that broke was paid in part: what it cost is in the sum, as an estimate.
    assert!(completion.usage.estimated && completion.usage.input > 10);

    let server = ModelServer::start(vec![
        Reply::stream().text("a").text("b").body(&event),
        Reply::says("ok"),
    ])
    .await;
    let (completion, _) = generate(&patient(&server), &request("s.1.1")).await;
    let error = completion.error.as_ref().expect("an error");
    assert_eq!(
        (completion.stop, error.kind),
        (StopReason::Error, ErrorKind::Transient)
    );
    assert_eq!((text(&completion).as_str(), server.count()), ("ab", 1));
}

#[tokio::test]
async fn retry_2_a_server_that_is_not_there_is_told_and_not_counted() {
    let server = ModelServer::start(Vec::new()).await;
    let engine = patient(&server);
    let place = server.base_url();
    drop(server);
    let (completion, deltas) = generate(&engine, &request("s.1.1")).await;
    let error = completion.error.expect("an error");
    assert_eq!((error.kind, completion.attempts), (ErrorKind::Transient, 0));
    let port = place
        .trim_end_matches("/v1")
        .rsplit(':')
        .next()
        .expect("a port");
    assert!(error.hint.is_some_and(|hint| hint.contains(port)));
    assert_eq!(retries(&deltas).len(), 2);
}

#[tokio::test]
async fn a_cut_before_anything_was_visible_is_tried_again() {
    let server = ModelServer::start(vec![
        Reply::stream().body(": hello\n\n").cut(),
        Reply::stream(),
        Reply::says("ok"),
    ])
    .await;
    let (completion, deltas) = generate(&patient(&server), &request("s.1.1")).await;
    assert_eq!(
        (
            text(&completion).as_str(),
            completion.attempts,
            retries(&deltas).len()
        ),
        ("ok", 3, 2)
    );
}

#[tokio::test]
async fn a_price_gives_a_cost_over_all_attempts() {
    let server = ModelServer::start(vec![
        refusal(500, "", "x"),
        Reply::stream()
            .text("ok")
            .finish("stop")
            .usage(10, 5)
            .done(),
    ])
    .await;
    let mut config = config(&server, "retry: {base_ms: 1, cap_ms: 1}");
    let priced = "{m: {price: {input: 10, cache_read: 1, cache_write: 1, output: 100, as_of: '2026-01-01'}}}";
    let provider = config.providers.get_mut("x").expect("configured");
    provider.models = serde_yaml::from_str(priced).expect("valid");
    let (completion, _) = generate(&Engine::new(&config), &request("s.1.1")).await;
    assert_eq!(completion.cost.map(|cost| cost.0), Some(10 * 10 + 5 * 100));
}

#[tokio::test]
async fn a_key_is_sent_and_never_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("key");
    std::fs::write(&path, "sk-very-secret-1\n").expect("written");
    let server = ModelServer::start(vec![
        refusal(
            401,
            "invalid_api_key",
            "Incorrect API key provided: sk-very-secret-1",
        ),
        Reply::stream()
            .event(&json!({"error": {"message": "the key sk-very-secret-1 is odd", "code": 400}})),
        Reply::says("ok"),
    ])
    .await;
    let yaml = format!(
        "{{providers: {{x: {{base_url: '{}', key: 'file:{}', headers: {{X-Title: Teamster, X-Extra: 'file:{}'}}}}}}}}",
        server.base_url(),
        path.display(),
        path.display()
    );
    let config = serde_yaml::from_str(&yaml).expect("valid");
    let engine = Engine::new(&config);
    assert!(!format!("{engine:?}").contains("sk-very"));
    for want in [ErrorKind::Auth, ErrorKind::Rejected] {
        let (completion, _) = generate(&engine, &request("s.1.1")).await;
        assert_eq!(
            completion.error.as_ref().map(|error| error.kind),
            Some(want)
        );
        let told = serde_json::to_string(&completion).expect("serialises");
        assert!(
            !told.contains("sk-very") && told.contains("[redacted]"),
            "{told}"
        );
    }
    // A key that changed is used at once.
    std::fs::write(&path, "sk-second").expect("written");
    generate(&engine, &request("s.1.1")).await;
    let sent: Vec<Option<String>> = server
        .requests()
        .iter()
        .map(|request| request.header("authorization").map(str::to_owned))
        .collect();
    assert_eq!(sent[0].as_deref(), Some("Bearer sk-very-secret-1"));
    assert_eq!(sent[2].as_deref(), Some("Bearer sk-second"));
    assert_eq!(server.requests()[0].header("x-title"), Some("Teamster"));
    assert_eq!(server.requests()[2].header("x-extra"), Some("sk-second"));
    assert_eq!(
        server.requests()[0].header("content-type"),
        Some("application/json")
    );
}

/// Not even one that is none of ours: a proxy may put its own in, and a provider repeats it.
#[tokio::test]
async fn a_strangers_key_that_a_provider_repeats_is_never_told() {
    let said = "Incorrect API key provided: sk-proj-Qm7zX2pLr9. Find yours in the settings.";
    let server = ModelServer::start(vec![
        refusal(401, "invalid_api_key", said),
        Reply::stream().event(&json!({"error": {"message": said, "code": 400}})),
        Reply::status(403).body(said),
        Reply::stream().event(&json!({"choices": said})),
        Reply::says(said),
    ])
    .await;
    let engine = engine(&server);
    for _ in 0..4 {
        let (completion, deltas) = generate(&engine, &request("s.1.1")).await;
        let told = serde_json::to_string(&completion).expect("serialises");
        assert!(
            !told.contains("Qm7zX2pLr9") && told.contains("API key provided: [redacted]"),
            "{told}"
        );
        assert!(!format!("{deltas:?}").contains("Qm7zX2pLr9"));
    }
    // What the model says is the model's.
    let (completion, _) = generate(&engine, &request("s.1.1")).await;
    assert_eq!(text(&completion), said);
}

#[tokio::test]
async fn an_engine_without_retries_asks_once() {
    let server = ModelServer::start(vec![refusal(500, "", "x"), Reply::says("ok")]).await;
    let (completion, deltas) = generate(&engine(&server), &request("s.1.1")).await;
    assert_eq!(
        (completion.stop, server.count(), retries(&deltas).len()),
        (StopReason::Error, 1, 0)
    );
}
