//! A worker in another language, over plain NATS: it is listed, judged, called, stopped and lost like any other.

use std::{collections::BTreeSet, path::PathBuf, process::Command};

use serde_json::json;
use teamster_mesh::connection::Call;
use teamster_protocol::{
    Event, Fault, Principal, SessionId,
    event::EndReason,
    function::router::ChatRequest,
    input::Decision,
    message::ResultKind,
    notice::{Notice, NoticeKind},
    subject,
};
use teamster_testkit::{Process, fetched, wait};

use super::example::{allow, is_listed};
use crate::scene::{LIMIT, Parts, Scene, calls, id, outcomes, results, says, session};

/// The folder of the examples in Python.
pub(super) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("examples/python")
}

/// A script of that folder, with what it needs in its path.
pub(super) async fn script(name: &str, url: &str) -> Command {
    let packages = fetched::python_packages(&folder().join("requirements.txt")).await;
    let mut command = Command::new("python3");
    command
        .arg("-B")
        .arg(folder().join(name))
        .env("PYTHONPATH", packages)
        .env("PYTHONUNBUFFERED", "1")
        .env("TEAMSTER_NATS", url)
        .env_remove("TEAMSTER_CREDS");
    command
}

/// What it serves.
const FUNCTIONS: [&str; 4] = [
    "weather::alarm",
    "weather::calibrate",
    "weather::compare",
    "weather::current",
];

/// The worker of the example in a process of its own.
struct Weather {
    process: Process,
    dir: tempfile::TempDir,
}

impl Weather {
    async fn start(scene: &Scene) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let process = Self::spawn(scene, &dir).await;
        let weather = Self { process, dir };
        is_listed(scene, "weather", &FUNCTIONS).await;
        weather
    }

    async fn spawn(scene: &Scene, dir: &tempfile::TempDir) -> Process {
        let mut command = script("weather.py", &scene.nats.url()).await;
        command.env("WEATHER_JOURNAL", dir.path().join("journal"));
        Process::spawn(command, &dir.path().join("out"))
    }

    /// The calls of `weather::calibrate` that took effect.
    fn effects(&self) -> Vec<String> {
        let journal = std::fs::read_to_string(self.dir.path().join("journal")).unwrap_or_default();
        journal.lines().map(str::to_owned).collect()
    }

    async fn took_effect(&self) {
        wait::until(LIMIT, "the call has begun", || async {
            !self.effects().is_empty()
        })
        .await;
    }
}

async fn start(
    model: impl Fn(&ChatRequest) -> teamster_protocol::function::router::Completion
    + Send
    + Sync
    + 'static,
) -> (Scene, Weather) {
    let scene = Scene::start(Parts::new(model)).await;
    let weather = Weather::start(&scene).await;
    (scene, weather)
}

fn calibrates_once(
    seconds: f64,
) -> impl Fn(&ChatRequest) -> teamster_protocol::function::router::Completion {
    move |request| {
        if results(request).is_empty() {
            calls(&[(
                "weather::calibrate",
                json!({"city": "Oslo", "seconds": seconds}),
            )])
        } else {
            says("done")
        }
    }
}

async fn ask(scene: &Scene, id: &SessionId) {
    scene.send_options(id, "go", allow(&["weather::*"])).await;
}

/// What the contracts say decides: reading runs, what leaves asks, what a rule denies does not run.
#[tokio::test(flavor = "multi_thread")]
async fn a_python_worker_is_listed_and_judged_by_its_contracts() {
    let policy = tempfile::NamedTempFile::new().expect("a file");
    let rules = "version: 1\nlayers:\n  - name: house\n    rules:\n      - { effect: deny, function: \"weather::calibrate\" }\n";
    std::fs::write(policy.path(), rules).expect("a policy");
    let mut parts = Parts::new(|request| match results(request).as_slice() {
        [] => calls(&[("weather::current", json!({"city": "Lisbon"}))]),
        [_] => calls(&[("weather::current", json!({"city": "Atlantis"}))]),
        [_, _] => calls(&[("weather::alarm", json!({"city": "Oslo"}))]),
        [_, _, _] => calls(&[("weather::alarm", json!({"city": "Pune"}))]),
        [_, _, _, _] => calls(&[("weather::calibrate", json!({"city": "Oslo"}))]),
        _ => says("done"),
    });
    parts.gate.policy_file = Some(policy.path().to_owned());
    let scene = Scene::start(parts).await;
    let weather = Weather::start(&scene).await;
    let id = session("s");
    ask(&scene, &id).await;
    for decision in [Decision::Approve, Decision::Deny { reason: None }] {
        let pending = scene.pending().await;
        assert_eq!(pending.function.as_str(), "weather::alarm");
        scene.resolve(&pending, decision).await.expect("decided");
        wait::until(LIMIT, "the request is gone", || async {
            let status = scene.status(&id).await;
            !status.approvals.contains(&pending.approval_id)
        })
        .await;
    }
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
    assert_eq!(
        outcomes(&scene.events(&id).await),
        [
            ResultKind::Ok,
            ResultKind::Error,
            ResultKind::Ok,
            ResultKind::DeniedByOwner,
            ResultKind::DeniedByPolicy
        ]
    );
    assert_eq!(weather.effects(), Vec::<String>::new());
    let requests = scene.requests.lock().expect("lock").clone();
    let read = results(requests.last().expect("requests"));
    assert!(read[0].contains("24"), "{read:?}");
    assert!(
        read[1].contains("weather.unknown_city") && read[1].contains("known are"),
        "{read:?}"
    );
}

/// DUR-8: the worker dies in mid-call. The call may not be repeated: its outcome is unknown, and stays so when it is back.
#[tokio::test(flavor = "multi_thread")]
async fn dur_8_a_python_worker_killed_in_mid_call_leaves_an_unknown_outcome() {
    let (scene, mut weather) = start(calibrates_once(600.0)).await;
    let id = session("s");
    ask(&scene, &id).await;
    weather.took_effect().await;
    weather.process.kill();
    weather.process.ended(LIMIT).await;
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
    assert_eq!(
        outcomes(&scene.events(&id).await),
        [ResultKind::OutcomeUnknown]
    );
    weather.process = Weather::spawn(&scene, &weather.dir).await;
    wait::until(LIMIT, "it serves again", || async {
        weather.process.output().matches("serves").count() == 2
    })
    .await;
    assert_eq!(weather.effects().len(), 1, "nobody repeated it");
}

/// A call that lasts longer than a silent callee is given lives on its signs of life.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_call_of_a_python_worker_lives_on_its_signs() {
    let (scene, weather) = start(calibrates_once(5.0)).await;
    let id = session("s");
    ask(&scene, &id).await;
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Completed]);
    assert_eq!(outcomes(&scene.events(&id).await), [ResultKind::Ok]);
    assert_eq!(weather.effects().len(), 1);
}

/// A stop ends the call where it runs; who asks later hears so.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_reaches_the_call_of_a_python_worker() {
    let (scene, weather) = start(calibrates_once(600.0)).await;
    let session_id = session("s");
    ask(&scene, &session_id).await;
    weather.took_effect().await;
    let _: teamster_protocol::function::harness::StopReply = scene
        .operate("harness::stop", &json!({"session_id": session_id}))
        .await
        .expect("stopped");
    let reasons = scene.ended(&session_id, 1).await;
    assert!(matches!(reasons[0], EndReason::Cancelled { .. }));
    let events = scene.events(&session_id).await;
    let call = events
        .iter()
        .find_map(|event| match event {
            Event::CallStarted { call } => Some(call.clone()),
            _ => None,
        })
        .expect("it was started");
    let function = id("weather::calibrate");
    let known = scene
        .operator
        .call_outcome(&function, call.as_str(), LIMIT)
        .await
        .expect("an answer");
    let fault = known.expect("it is remembered").expect_err("it was ended");
    assert_eq!(fault.code, "mesh.cancelled");
}

/// The rules of a call hold in another language too: once by its id, never after its time, one id for one function.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_id_is_served_once_by_a_python_worker() {
    let (scene, weather) = start(|_| says("done")).await;
    let call = |function: &str, body: serde_json::Value| Call {
        call: Some("call_1".to_owned()),
        timeout: LIMIT,
        ..Call::new(id(function), body.to_string())
    };
    let calibrate = || call("weather::calibrate", json!({"city": "Oslo", "seconds": 1}));
    let (one, other) = tokio::join!(
        scene.operator.call(calibrate()),
        scene.operator.call(calibrate())
    );
    let again = scene.operator.call(calibrate()).await;
    for answer in [&one, &other, &again] {
        let body = answer.as_ref().expect("an answer");
        assert_eq!(&body[..], br#"{"calibrated": "Oslo"}"#);
    }
    assert_eq!(weather.effects(), ["Oslo call_1"]);

    let code = |answer: Result<bytes::Bytes, Fault>| answer.expect_err("refused").code;
    let foreign = call("weather::current", json!({"city": "Oslo"}));
    assert_eq!(
        code(scene.operator.call(foreign).await),
        "mesh.call_id_reused"
    );
    let mut late = call("weather::calibrate", json!({"city": "Pune"}));
    late.call = Some("call_2".to_owned());
    late.not_after_ms = Some(1);
    assert_eq!(code(scene.operator.call(late).await), "mesh.too_late");
    let mut no_object = call("weather::current", json!([]));
    no_object.call = None;
    assert_eq!(
        code(scene.operator.call(no_object).await),
        "mesh.bad_request"
    );
    let mut broken = call("weather::compare", json!({"one": "Oslo"}));
    broken.call = None;
    assert_eq!(code(scene.operator.call(broken).await), "mesh.panic");
    let mut short = call("weather::calibrate", json!({"city": "Pune", "seconds": 60}));
    short.call = None;
    short.timeout = std::time::Duration::from_millis(1500);
    assert_eq!(code(scene.operator.call(short).await), "mesh.timeout");
}

/// What a Python worker says of the span of a call.
#[derive(Debug)]
pub(super) struct Traced {
    pub(super) function: String,
    pub(super) call: String,
    pub(super) trace: String,
    pub(super) span: String,
    pub(super) parent: String,
}

/// The spans of all calls that a worker has said something of.
pub(super) fn traced(output: &str) -> Vec<Traced> {
    let field = |words: &[&str], name: &str| {
        let found = words.iter().find_map(|word| word.strip_prefix(name));
        found.unwrap_or_default().to_owned()
    };
    output
        .lines()
        .filter(|line| line.contains(" trace="))
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            Traced {
                function: words[0].to_owned(),
                call: words[1].to_owned(),
                trace: field(&words, "trace="),
                span: field(&words, "span="),
                parent: field(&words, "parent="),
            }
        })
        .collect()
}

/// OBS-1: what it calls in turn belongs to the same trace and stands below the call that it was asked by.
#[tokio::test(flavor = "multi_thread")]
async fn obs_1_a_python_worker_passes_the_trace_on() {
    let (scene, weather) = start(|_| says("done")).await;
    let body = json!({"one": "Oslo", "other": "Pune"}).to_string();
    let cause = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let call = Call {
        trace: Some(cause.to_owned()),
        ..Call::new(id("weather::compare"), body)
    };
    let reply = scene.operator.call(call).await.expect("an answer");
    assert_eq!(&reply[..], br#"{"warmer": "Pune"}"#);
    let spans = traced(&weather.process.output());
    let [compare, one, other] = spans.as_slice() else {
        panic!("three calls: {spans:?}")
    };
    assert_eq!(compare.parent, "b7ad6b7169203331");
    for below in [one, other] {
        assert_eq!(below.function, "weather::current");
        assert_eq!(below.parent, compare.span, "{spans:?}");
    }
    assert!(
        spans
            .iter()
            .all(|span| span.trace == "0af7651916cd43dd8448eb211c80319c"),
        "{spans:?}"
    );
    let ids: BTreeSet<&str> = spans.iter().map(|span| span.span.as_str()).collect();
    assert_eq!(ids.len(), 3, "each call has a span of its own");
}

/// A worker that is told to end takes its registration along.
#[tokio::test(flavor = "multi_thread")]
async fn a_python_worker_that_ends_is_not_listed_any_more() {
    let (scene, mut weather) = start(|_| says("done")).await;
    weather.process.terminate();
    assert!(weather.process.ended(LIMIT).await.success());
    is_listed(&scene, "weather", &[]).await;
}

/// A consumer that was away goes on behind what it had dealt with, and takes a notice that comes twice for one.
#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_in_python_goes_on_where_it_was() {
    let scene = Scene::start(Parts::new(|_| says("done"))).await;
    for n in [1, 2, 2, 3] {
        let notice = Notice {
            session: session("chat/42"),
            n,
            i: 0,
            at_ms: 1,
            event: Event::SessionDeleted {
                by: Principal::parse("owner").expect("valid"),
                turns: 1,
                queued: 0,
                approvals: Vec::new(),
                keys: Vec::new(),
                spent: Vec::new(),
            },
        };
        let subject = subject::notice(NoticeKind::SessionDeleted, &notice.session);
        let body = serde_json::to_vec(&notice).expect("encodes");
        let stored = scene.operator.request(subject, body.into(), LIMIT).await;
        stored.expect("stored");
    }
    let line = |seq: u64| format!("{seq} session_deleted chat/42");
    let url = scene.nats.url();
    assert_eq!(follow(&url, 0).await, [line(1), line(2), line(4)]);
    assert_eq!(follow(&url, 2).await, [line(3), line(4)]);
    assert_eq!(follow(&url, 4).await, Vec::<String>::new());
}

/// What the consumer of the example says of the notices behind a sequence.
async fn follow(url: &str, after: u64) -> Vec<String> {
    let mut command = script("follow.py", url).await;
    command.arg(after.to_string()).arg("evt.>");
    let output = command.output().expect("python3 runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().map(str::to_owned).collect()
}

/// Tokens and partitions are the same in both languages.
#[tokio::test]
async fn tokens_and_partitions_are_the_same_in_python() {
    let texts = [
        "",
        "a",
        "foobar",
        "ses_1",
        "chat/42",
        "Ünïcode chat",
        "a=b",
        "=41",
        "\u{1F980}.x",
    ];
    let program = "import json,sys,teamster_worker as w\n\
                   print(json.dumps([[w.token(t), w.partition(t), w.untoken(w.token(t))] for t in json.loads(sys.argv[1])]))";
    let mut command = script("weather.py", "").await;
    let packages = command
        .get_envs()
        .find_map(|(name, value)| (name == "PYTHONPATH").then(|| value.map(PathBuf::from))?)
        .expect("packages");
    command = Command::new("python3");
    command
        .args(["-B", "-c", program])
        .arg(json!(texts).to_string())
        .env(
            "PYTHONPATH",
            std::env::join_paths([folder(), packages]).expect("paths"),
        );
    let output = command.output().expect("python3 runs");
    let said: Vec<(String, String, String)> = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    let want = texts.map(|text| {
        let token = subject::token(text);
        let partition = format!("{:02}", subject::partition(&token));
        (token, partition, text.to_owned())
    });
    assert_eq!(said, want);
}
