//! Our router and our loop against a model server that others wrote (aimock): its plain answers and its faults.

use std::path::PathBuf;

use teamster_protocol::{
    Event, Message,
    event::EndReason,
    function::router::CompletionError,
    input::TurnOptions,
    message::{Content, ResultKind},
    usage::Usage,
};
use teamster_router::config::{Config as RouterConfig, Provider, Retry};
use teamster_testkit::{Process, fetched, wait};

use crate::scene::{LIMIT, Parts, Scene, outcomes, says, session};

/// A running aimock with the fixtures of this suite.
struct Aimock {
    process: Process,
    url: String,
    _dir: tempfile::TempDir,
}

impl Aimock {
    async fn start() -> Self {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/aimock");
        let node = fetched::node(&folder.join("node.txt")).await;
        let modules = fetched::node_modules(&folder, &node).await;
        let mut command = std::process::Command::new(&node);
        command
            .arg(modules.join("@copilotkit/aimock/dist/cli.js"))
            .args(["--port", "0", "--chunk-size", "5"])
            .arg("--fixtures")
            .arg(folder.join("fixtures.json"));
        let dir = tempfile::tempdir().expect("a folder");
        let process = Process::spawn(command, &dir.path().join("out"));
        let url = wait::some(LIMIT, "aimock says where it listens", || async {
            let output = process.output();
            let (_, rest) = output.split_once("listening on ")?;
            Some(rest.split_whitespace().next()?.to_owned())
        })
        .await;
        Self {
            process,
            url,
            _dir: dir,
        }
    }
}

/// What a message came to.
#[derive(Debug)]
struct Came {
    reason: EndReason,
    /// Texts that the model said and that are kept, in order; parts of cut answers included.
    texts: Vec<String>,
    results: Vec<ResultKind>,
    usage: Vec<Usage>,
    attempts: Vec<u32>,
    errors: Vec<CompletionError>,
}

/// A scene whose models are aimock's.
struct Bench {
    scene: Scene,
    aimock: Aimock,
}

impl Bench {
    async fn start() -> Self {
        let aimock = Aimock::start().await;
        let mut router = RouterConfig {
            idle_timeout_ms: 2_000,
            retry: Retry {
                base_ms: 10,
                cap_ms: 20,
                ..Retry::default()
            },
            ..RouterConfig::default()
        };
        let provider = Provider {
            base_url: Some(format!("{}/v1", aimock.url)),
            ..Provider::default()
        };
        router.providers.insert("mock".to_owned(), provider);
        let mut parts = Parts::new(|_| says("not asked"));
        "mock/some-model".clone_into(&mut parts.harness.default_model);
        parts.router = Some(teamster_router::worker(&router));
        Self {
            scene: Scene::start(parts).await,
            aimock,
        }
    }

    /// Sends a message to a session of its own and answers what it came to.
    async fn came(&self, message: &str) -> Came {
        self.came_of(message, "some-model").await
    }

    async fn came_of(&self, message: &str, model: &str) -> Came {
        let id = session(message);
        let options = TurnOptions {
            model: Some(format!("mock/{model}")),
            ..TurnOptions::default()
        };
        self.scene.send_options(&id, message, options).await;
        let reasons = self.scene.ended(&id, 1).await;
        let events = self.scene.events(&id).await;
        let mut came = Came {
            reason: reasons[0].clone(),
            texts: Vec::new(),
            results: outcomes(&events),
            usage: Vec::new(),
            attempts: Vec::new(),
            errors: Vec::new(),
        };
        for event in events {
            match event {
                Event::GenerationFinished {
                    message,
                    usage,
                    attempts,
                    ..
                } => {
                    came.texts.extend(message.as_ref().map(text));
                    came.usage.push(usage);
                    came.attempts.push(attempts);
                }
                Event::GenerationInterrupted {
                    partial,
                    error,
                    attempts,
                    ..
                } => {
                    came.texts.extend(partial.as_ref().map(text));
                    came.attempts.push(attempts);
                    came.errors.push(error);
                }
                _ => {}
            }
        }
        came
    }
}

fn text(message: &Message) -> String {
    let Message::Assistant { content, .. } = message else {
        panic!("a model's message: {message:?}");
    };
    let texts = content.iter().filter_map(|part| match part {
        Content::Text { text } => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

fn failed(came: &Came) -> &str {
    let EndReason::Failed { code, message } = &came.reason else {
        panic!("it should have failed: {came:?}");
    };
    assert!(!message.is_empty());
    code
}

/// STREAM-1: that server cuts text by UTF-16, so that a character comes in halves; calls and answers come out whole.
#[tokio::test(flavor = "multi_thread")]
async fn stream_1_a_foreign_server_that_cuts_characters_in_half_is_read_whole() {
    let bench = Bench::start().await;
    let plain = bench.came("plain").await;
    assert_eq!(plain.reason, EndReason::Completed);
    assert_eq!(plain.texts, ["Plain and whole: é你🦀."]);
    let tool = bench.came("crabs").await;
    assert_eq!(tool.results, [ResultKind::Ok]);
    let bodies = bench.scene.bodies.lock().expect("lock").clone();
    assert_eq!(bodies, [r#"{"path":"🦀é🦀🦀a🦀"}"#]);
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_calls_and_usage_of_a_foreign_server_are_read() {
    let bench = Bench::start().await;
    let plain = bench.came("plain").await;
    assert_eq!(plain.reason, EndReason::Completed);
    assert_eq!(plain.texts, ["Plain and whole: é你🦀."]);
    assert_eq!(plain.attempts, [1]);

    let usage = bench.came("usage").await;
    let want = Usage {
        input: 11,
        output: 7,
        ..Usage::default()
    };
    assert_eq!(usage.usage, [want], "as the server reports it");

    let tool = bench.came("tool").await;
    assert_eq!(tool.reason, EndReason::Completed);
    assert_eq!(tool.results, [ResultKind::Ok, ResultKind::Ok]);
    assert_eq!(tool.texts, ["I look.", "Both said so."]);
    let bodies = bench.scene.bodies.lock().expect("lock").clone();
    assert_eq!(bodies, [r#"{"path":"a"}"#, r#"{"path":"b"}"#]);

    let slow = bench.came("slow").await;
    assert_eq!(slow.texts, ["Slow but sure."]);
    let unknown = bench.came("nothing matches this").await;
    assert!(failed(&unknown).starts_with("model."), "{unknown:?}");
    assert_eq!(unknown.attempts, [1], "asking again would not help");
    assert!(bench.aimock.process.output().contains("listening"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_server_that_limits_is_asked_again_when_it_says() {
    let bench = Bench::start().await;
    let once = bench.came("limited once").await;
    assert_eq!(once.reason, EndReason::Completed);
    assert_eq!(
        (once.texts.as_slice(), once.attempts.as_slice()),
        (&["Now it works.".to_owned()][..], &[2][..])
    );

    let long = bench.came("limited for long").await;
    assert_eq!(failed(&long), "model.rate_limited");
    assert_eq!(long.attempts, [1], "nobody waits a day");

    for (message, code) in [("no credit", "model.quota"), ("wrong key", "model.auth")] {
        let came = bench.came(message).await;
        assert_eq!(failed(&came), code, "{came:?}");
        assert_eq!(came.attempts, [1], "{came:?}");
        assert!(came.errors[0].hint.is_some(), "{came:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_of_a_foreign_server_end_in_words_and_lose_nothing() {
    let bench = Bench::start().await;
    // A server that is only silent may still be at work on what it will charge for: it is not asked again.
    for (message, attempts) in [
        ("dropped", 3),
        ("malformed", 3),
        ("disconnected", 3),
        ("silent", 1),
    ] {
        let came = bench.came(message).await;
        assert_eq!(failed(&came), "model.transient", "{message}: {came:?}");
        assert_eq!(came.attempts, [attempts], "{message}: {came:?}");
        assert_eq!(came.texts, Vec::<String>::new(), "{message}");
    }
    let once = bench.came("cut once").await;
    assert_eq!(once.reason, EndReason::Completed, "{once:?}");
    assert_eq!(once.texts.len(), 2, "{once:?}");
    assert!(
        "This answer breaks off".starts_with(once.texts[0].trim_end()),
        "{once:?}"
    );
    assert_eq!(once.texts[1], "And this is the rest.");

    let always = bench.came_of("cut always", "cut-model").await;
    assert_eq!(failed(&always), "model.transient", "{always:?}");
    assert_eq!(always.errors.len(), 2, "resumed once: {always:?}");
}
