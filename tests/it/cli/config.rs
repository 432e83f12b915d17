//! `config`: what is in force and why, changed while the workers run, by file and in the mesh.

use std::time::Duration;

use serde_json::{Value, json};
use teamster_testkit::wait;

use super::{
    check_failure,
    place::{LIMIT, Place, code, document, finding},
};

impl Place {
    async fn json(&self, arguments: &[&str]) -> Value {
        let arguments = [arguments, &["--json"]].concat();
        let output = self.run(&arguments).await;
        assert_eq!(code(&output), 0, "{arguments:?}: {output:?}");
        document(&output)
    }

    async fn get(&self, key: &str) -> Value {
        self.json(&["config", "get", key]).await["value"].clone()
    }

    async fn until(&self, key: &str, want: Value) {
        wait::until(LIMIT, &format!("{key} is {want}"), || async {
            self.get(key).await == want
        })
        .await;
    }

    async fn refusals(&self) -> Vec<String> {
        let explained = self.json(&["config", "explain"]).await;
        let refusals = explained["refusals"].as_array().expect("a list").clone();
        let problems = refusals.iter().map(|refusal| refusal["problem"].as_str());
        problems
            .map(|text| text.expect("a text").to_owned())
            .collect()
    }

    fn config(&self, text: &str) {
        std::fs::create_dir_all(self.data()).expect("made");
        std::fs::write(self.data().join("config.yaml"), text).expect("written");
    }
}

/// CONF-1: half a file, then a file with a number that cannot be: the old values stay in force and both errors are visible,
/// in `explain` and in `doctor`; then a good one ends both.
#[tokio::test]
async fn conf_1_a_broken_file_changes_nothing_and_each_error_is_shown() {
    let place = Place::new();
    place.config("harness:\n  default_max_turns: 3\n");
    let mut up = place.up().await;
    assert_eq!(place.get("harness.default_max_turns").await, 3);
    place.config("harness:\n  default_max_turns: [4\n");
    wait::until(LIMIT, "the first error is visible", || async {
        place.refusals().await.len() == 1
    })
    .await;
    place.config("harness:\n  default_model: a/b\n  default_max_turns: -1\n");
    wait::until(LIMIT, "the second error is visible", || async {
        place.refusals().await.len() == 2
    })
    .await;
    let refusals = place.refusals().await;
    assert!(
        refusals
            .iter()
            .all(|problem| problem.contains("config.yaml, line ")),
        "{refusals:?}"
    );
    assert!(refusals[1].contains("-1"), "{refusals:?}");
    let shown = place.run(&["config", "explain"]).await;
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    for line in shown.lines().filter(|line| line.starts_with("NOT TAKEN")) {
        assert_eq!(line.matches(", line ").count(), 1, "{line}");
    }
    assert_eq!(place.get("harness.default_max_turns").await, 3);
    assert_eq!(place.get("harness.default_model").await, "scripted/guided");
    let doctor = place.run(&["doctor", "--json"]).await;
    let findings = document(&doctor)["findings"].clone();
    let live = findings.as_array().expect("a list").iter();
    let live: Vec<&Value> = live
        .filter(|finding| finding["check"] == "config-live")
        .collect();
    assert_eq!(live.len(), 1, "{findings}");
    assert_eq!(live[0]["state"], "failed");
    assert!(
        live[0]["detail"].as_str().expect("text").contains("-1"),
        "{findings}"
    );
    let log = std::fs::read_to_string(place.data().join("log/up.jsonl")).expect("a log");
    assert_eq!(
        log.matches("the changed configuration file cannot be used")
            .count(),
        2
    );

    let new = place.file("new.yaml");
    std::fs::write(&new, "harness:\n  default_max_turns: 5\n").expect("written");
    std::fs::rename(&new, place.data().join("config.yaml")).expect("renamed");
    place.until("harness.default_max_turns", json!(5)).await;
    assert_eq!(place.refusals().await, Vec::<String>::new());
    up.interrupt();
    up.ended(Duration::from_mins(1)).await;
}

/// A value is set, explained, bound to a revision, and taken away, while the workers run.
#[tokio::test]
async fn a_value_is_set_in_the_mesh_and_taken_by_the_workers_that_run() {
    let place = Place::new();
    place.config("harness:\n  max_calls: 9\nmesh:\n  replicas: 1\n");
    let mut up = place.up().await;
    let set = place
        .json(&["config", "set", "harness.max_calls", "4"])
        .await;
    assert_eq!(
        (&set["old"], &set["new"], &set["in_force"]),
        (&json!(9), &json!(4), &json!(true))
    );
    assert_eq!(place.get("harness.max_calls").await, 4);
    let layer = |explained: &Value, key: &str| {
        let values = explained["values"].as_array().expect("a list");
        let found = values.iter().find(|value| value["key"] == key).expect(key);
        (
            found["layer"].clone(),
            found["line"].clone(),
            found["hot"].clone(),
            found["by"].clone(),
        )
    };
    let explained = place.json(&["config", "explain"]).await;
    let (by_layer, _, hot, by) = layer(&explained, "harness.max_calls");
    assert_eq!((by_layer, hot), (json!("live"), json!(true)));
    assert!(by.is_string(), "who set it");
    assert_eq!(layer(&explained, "mesh.replicas").0, "file");
    assert_eq!(layer(&explained, "mesh.replicas").1, 4);
    assert_eq!(layer(&explained, "harness.default_model").0, "compiled_in");
    assert_eq!(layer(&explained, "harness.sessions").2, false);

    let revision = set["revision"].to_string();
    let bound = |value: &'static str, at: &str| {
        [
            "config",
            "set",
            "harness.max_calls",
            value,
            "--if-revision",
            at,
            "--json",
        ]
        .map(str::to_owned)
    };
    let late = bound("6", "0");
    let late: Vec<&str> = late.iter().map(String::as_str).collect();
    check_failure(&late, &place.run(&late).await, (75, "config.conflict"));
    let fresh = bound("6", &revision);
    let fresh: Vec<&str> = fresh.iter().map(String::as_str).collect();
    assert_eq!(document(&place.run(&fresh).await)["old"], 4);

    // The router takes prices and providers without a start.
    let provider =
        "{base_url: \"http://127.0.0.1:9/v1\", models: {\"m-4.1\": {context_window: 77}}}";
    place
        .json(&["config", "set", "router.providers.mine", provider])
        .await;
    let models = place
        .json(&[
            "functions",
            "call",
            "router::models::list",
            "{\"provider\":\"mine\"}",
        ])
        .await;
    assert!(models.to_string().contains("77"), "{models}");
    assert_eq!(
        place
            .get("router.providers.mine.models.\"m-4.1\".context_window")
            .await,
        77
    );

    let unset = place.json(&["config", "unset", "harness.max_calls"]).await;
    assert_eq!((&unset["old"], &unset["new"]), (&json!(6), &json!(9)));
    assert_eq!(place.get("harness.max_calls").await, 9);
    let history = place
        .json(&["config", "history", "harness.max_calls"])
        .await;
    let values: Vec<&Value> = history["revisions"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| &one["value"])
        .collect();
    assert_eq!(values, [&Value::Null, &json!(6), &json!(4)]);
    let shown = place.run(&["config", "explain", "harness.max_calls"]).await;
    let shown = String::from_utf8(shown.stdout).expect("text");
    assert!(shown.contains("config.yaml, line 2"), "{shown}");
    up.interrupt();
    up.ended(Duration::from_mins(1)).await;
}

/// CONF-1: a policy file that the gate cannot use where it runs is refused by `set` itself, is shown as not taken, and counts as
/// soon as it can be used; what others remember is said.
#[tokio::test]
async fn conf_1_a_set_that_the_workers_refuse_is_told() {
    let place = Place::new();
    let mut up = place.up().await;
    let file = place.file("strict.yaml");
    let path = file.to_str().expect("text");
    let set = ["config", "set", "approval-gate.policy_file", path, "--json"];
    for (text, says) in [
        (None, "there is no policy file"),
        (Some("version: 1\nlayer: []\n"), "line 2"),
    ] {
        if let Some(text) = text {
            std::fs::write(&file, text).expect("written");
        }
        let output = place.run(&set).await;
        check_failure(&set, &output, (1, "config.not_taken"));
        let said = document(&output).to_string();
        assert!(
            said.contains(says) && said.contains("config unset approval-gate.policy_file"),
            "{said}"
        );
        let refusals = place.refusals().await;
        assert!(
            refusals.last().is_some_and(|last| last.contains(says)),
            "{refusals:?}"
        );
        let shown = place.run(&["config", "explain", "approval-gate"]).await;
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        assert!(
            shown.contains("NOT TAKEN") && shown.contains(says),
            "{shown}"
        );
        let doctor = document(&place.run(&["doctor", "--json"]).await);
        assert_eq!(finding(&doctor, "config-live")["state"], "failed");
        assert_eq!(finding(&doctor, "policy-live")["state"], "ok");
    }
    let explain = ["policy", "explain", "fs::read", "{\"path\":\"x\"}"];
    assert_eq!(
        place.json(&explain).await["judgement"]["effect"],
        "allow",
        "the last good policy"
    );
    // It is made good: nobody has to set it again.
    std::fs::write(&file, "{version: 1, defaults: {read: deny}}").expect("written");
    wait::until(LIMIT, "the good file is in force", || async {
        place.json(&explain).await["judgement"]["effect"] == "deny"
    })
    .await;
    assert_eq!(place.refusals().await, Vec::<String>::new());
    let again = place.json(&set[..4]).await;
    assert_eq!(again["in_force"], true, "{again}");
    let processes = again["processes"].as_array().expect("a list");
    assert_eq!(processes.len(), 1, "{again}");
    assert_eq!(processes[0]["state"], "taken", "{again}");
    // Taken back and removed in order: nothing is wrong.
    place
        .json(&["config", "unset", "approval-gate.policy_file"])
        .await;
    std::fs::remove_file(&file).expect("removed");
    wait::until(LIMIT, "the compiled-in policy is in force", || async {
        place.json(&explain).await["judgement"]["effect"] == "allow"
    })
    .await;
    let doctor = place.run(&["doctor", "--json"]).await;
    assert_eq!(code(&doctor), 0, "{doctor:?}");
    assert_eq!(finding(&document(&doctor), "policy-live")["state"], "ok");

    for (key, value, late) in [
        ("context.windows.\"a/b\"", "9000", 60),
        ("context.default_window", "9000", 60),
        (
            "router.providers.mine",
            "{base_url: \"http://127.0.0.1:9/v1\", models: {m: {context_window: 77}}}",
            120,
        ),
        ("router.retry.base_ms", "100", 0),
        ("harness.max_calls", "4", 0),
    ] {
        let output = place.run(&["config", "set", key, value, "--json"]).await;
        assert_eq!(document(&output)["late_seconds"], late, "{key}");
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(words.contains("is remembered"), late > 0, "{key}: {words}");
    }
    up.interrupt();
    up.ended(Duration::from_mins(1)).await;
}

/// What is set live and does not fit what runs is said by `set` and by `doctor`, each with the next step.
#[tokio::test]
async fn what_is_set_live_and_stops_every_turn_is_told() {
    let place = Place::new();
    let mut up = place.up().await;
    for (key, value, check, says, next) in [
        (
            "harness.default_model",
            "nobody/x",
            "model-live",
            "no provider called",
            "teamster config set harness.default_model PROVIDER/NAME",
        ),
        (
            "harness.default_model",
            "scripted/nothing",
            "model-live",
            "no script called",
            "teamster config set harness.default_model PROVIDER/NAME",
        ),
        (
            "harness.required_hooks",
            "[approval-gate, guard]",
            "hooks",
            "names guard, which is not there",
            "teamster worker guard",
        ),
    ] {
        let set = place.run(&["config", "set", key, value]).await;
        let words = String::from_utf8_lossy(&set.stderr).into_owned();
        assert!(
            code(&set) == 0 && words.contains(says) && words.contains(next),
            "{words}"
        );
        let doctor = place.run(&["doctor", "--json"]).await;
        let found = finding(&document(&doctor), check);
        assert_eq!((code(&doctor), &found["state"]), (1, &json!("failed")));
        assert!(
            found["detail"].as_str().expect("text").contains(says)
                && found["hint"].as_str().expect("text").contains(next),
            "{found}"
        );
        place.json(&["config", "unset", key]).await;
        let doctor = place.run(&["doctor", "--json"]).await;
        assert_eq!(code(&doctor), 0, "{doctor:?}");
    }
    // What the session worker cannot open, and what an operator cannot connect with.
    let projection = place.data().join("session.sqlite");
    // Not empty: the worker that runs would put a file in the place of an empty one. It makes a missing file anew at any moment, too.
    let full = place.data().join("full");
    std::fs::create_dir_all(full.join("mine")).expect("made");
    let is_placed = (0..1000).any(|_| {
        let _ = std::fs::remove_file(&projection);
        std::fs::rename(&full, &projection).is_ok()
    });
    assert!(is_placed);
    let operator = place.data().join("credentials/operator.creds");
    let kept = std::fs::read(&operator).expect("read");
    std::fs::remove_file(&operator).expect("removed");
    let doctor = place.run(&["doctor", "--json"]).await;
    for (check, says) in [
        ("projection", "session.sqlite: it is a directory"),
        ("credentials", "operator.creds"),
    ] {
        let found = finding(&document(&doctor), check);
        assert_eq!((code(&doctor), &found["state"]), (1, &json!("failed")));
        assert!(
            found["detail"].as_str().expect("text").contains(says),
            "{found}"
        );
        assert!(found["hint"].is_string(), "{found}");
    }
    std::fs::write(&operator, kept).expect("written");
    std::fs::set_permissions(
        &operator,
        std::os::unix::fs::PermissionsExt::from_mode(0o600),
    )
    .expect("closed");
    std::fs::remove_dir_all(&projection).expect("removed");
    wait::until(LIMIT, "the projection is made anew", || async {
        code(&place.run(&["doctor"]).await) == 0
    })
    .await;
    up.interrupt();
    up.ended(Duration::from_mins(1)).await;
}

/// CLI-1: what cannot be set is refused before anything is written, with the nearest key, and a secret is not repeated.
#[tokio::test]
async fn cli_1_what_cannot_be_set_is_refused_and_not_written() {
    let place = Place::new();
    let mut up = place.up().await;
    for (key, value, want, says) in [
        (
            "harness.default_max_turn",
            "3",
            (2, "config.refused"),
            "default_max_turns",
        ),
        (
            "harness.default_max_turns",
            "-1",
            (2, "config.refused"),
            "-1",
        ),
        (
            "harness.default_max_turns",
            "many",
            (2, "config.refused"),
            "many",
        ),
        (
            "harness.default_model",
            "gpt",
            (2, "config.refused"),
            "provider/name",
        ),
        ("harness.max_calls", "null", (2, "config.refused"), "unset"),
        ("harness", "{}", (2, "config.key"), "section"),
        ("harnes.x", "1", (2, "config.key"), "harness"),
        ("harness..x", "1", (2, "config.key"), "dots"),
        ("mesh.replicas", "3", (2, "config.not_live"), "config.yaml"),
        (
            "router.providers.openai.key",
            "sk-secret",
            (2, "config.refused"),
            "reference",
        ),
        (
            "router.providers.openai",
            "{key: sk-secret}",
            (2, "config.refused"),
            "reference",
        ),
        (
            "router.providers.openai",
            "sk-secret",
            (2, "config.refused"),
            "[value]",
        ),
        (
            "approval-gate.policy_file",
            "mine.yaml",
            (2, "config.refused"),
            "absolute",
        ),
    ] {
        let arguments = ["config", "set", key, value, "--json"];
        let output = place.run(&arguments).await;
        check_failure(&arguments, &output, want);
        let said = document(&output).to_string();
        assert!(said.contains(says), "{key}: {said}");
        let all = format!("{said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(!all.contains("sk-secret"), "{all}");
    }
    let unset = ["config", "unset", "harness.max_calls", "--json"];
    check_failure(&unset, &place.run(&unset).await, (1, "config.not_set"));
    for worker in ["harness", "router", "approval-gate"] {
        let history = place.json(&["config", "history", worker]).await;
        assert_eq!(history["revisions"], json!([]), "nothing was written");
    }
    for verb in ["get", "explain", "history"] {
        let absent = ["config", verb, "harness.colour", "--json"];
        check_failure(&absent, &place.run(&absent).await, (2, "config.key"));
    }
    // One that is there and was never set is no slip.
    let history = ["config", "history", "harness.max_calls"];
    let history = place.json(&history).await;
    assert_eq!(history["revisions"], json!([]));
    up.interrupt();
    up.ended(Duration::from_mins(1)).await;
}

/// CONF-1: a file is set as a whole or not at all, a repetition changes nothing, a dry run writes nothing, and the file that is
/// shipped is fit.
#[tokio::test]
async fn conf_1_a_file_is_applied_whole_or_not_at_all() {
    let place = Place::new();
    let mut up = place.up().await;
    let path = place.file("seed.yaml");
    let file = path.to_str().expect("text");
    let changed = |reply: &Value| -> Vec<(String, bool)> {
        let sections = reply["sections"].as_array().expect("a list").iter();
        sections
            .map(|one| {
                let name = one["section"].as_str().expect("a text");
                (name.to_owned(), one["changed"] == true)
            })
            .collect()
    };
    let both = |is_changed| {
        vec![
            ("context".to_owned(), is_changed),
            ("harness".to_owned(), is_changed),
        ]
    };
    // The second section is wrong: the first is not written either, and no secret is repeated.
    for (text, code, says) in [
        (
            "harness: {max_calls: 4}\ncontext: {default_window: 0}\n",
            "config.refused",
            "default_window",
        ),
        (
            "harness: {max_calls: 4}\nmesh: {replicas: 3}\n",
            "config.not_live",
            "mesh",
        ),
        (
            "harness: {max_calls: 4}\nhoneybee: {}\n",
            "config.key",
            "honeybee",
        ),
        (
            "harness: {max_calls: 4}\nsession: {file: /x}\n",
            "config.refused",
            "own machine",
        ),
        (
            "harness: {max_calls: 4}\nrouter: {providers: {openai: sk-secret-1}}\n",
            "config.refused",
            "router",
        ),
        (
            "harness: {max_calls: null}\n",
            "config.refused",
            "says nothing",
        ),
        ("- harness\n", "config.refused", "mapping"),
        ("harness: [\n", "config.refused", "nothing was written"),
    ] {
        std::fs::write(&path, text).expect("written");
        let apply = ["config", "apply", file, "--json"];
        let output = place.run(&apply).await;
        check_failure(&apply, &output, (2, code));
        let said = document(&output).to_string();
        assert!(said.contains(says) && !said.contains("sk-secret"), "{said}");
    }
    let history = place.json(&["config", "history", "harness"]).await;
    assert_eq!(history["revisions"], json!([]), "nothing was written");

    std::fs::write(
        &path,
        "harness: {max_calls: 4}\ncontext: {default_window: 9000}\n",
    )
    .expect("written");
    let dry = place.json(&["config", "apply", file, "--dry-run"]).await;
    assert_eq!((changed(&dry), &dry["dry_run"]), (both(true), &true.into()));
    assert_ne!(place.get("harness.max_calls").await, 4);
    let applied = place.json(&["config", "apply", file]).await;
    assert_eq!(changed(&applied), both(true));
    assert!(
        applied["sections"]
            .as_array()
            .expect("a list")
            .iter()
            .all(|one| one["in_force"] == true),
        "{applied}"
    );
    assert_eq!(place.get("harness.max_calls").await, 4);
    assert_eq!(place.get("context.default_window").await, 9000);
    let again = place.json(&["config", "apply", file]).await;
    assert_eq!(changed(&again), both(false));

    // The mesh holds what the file says of its sections and nothing else of them; others stay.
    std::fs::write(&path, "harness: {}\n").expect("written");
    place.json(&["config", "apply", file]).await;
    assert_ne!(place.get("harness.max_calls").await, 4);
    assert_eq!(place.get("context.default_window").await, 9000);
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/config/seed.yaml");
    let shipped = place.json(&["config", "apply", shipped]).await;
    assert_eq!(changed(&shipped).len(), 2, "{shipped}");
    up.interrupt();
    up.ended(Duration::from_mins(1)).await;
}

/// CONF-1: of two values of one key none is taken in silence, in no file that is read as YAML.
#[tokio::test]
async fn conf_1_a_key_that_stands_twice_is_refused_with_its_line() {
    let place = Place::new();
    let path = place.file("seed.yaml");
    let twice = "harness: {max_calls: 4}\nrouter:\n  providers:\n    a: {base_url: \"http://x\"}\n    a: {base_url: \"http://y\"}\n";
    for (text, says) in [
        (
            twice,
            "line 5: router.providers: the key \"a\" stands twice",
        ),
        (
            "harness: {max_calls: 4}\ncontext: {}\nharness: {}\n",
            "line 3: the key \"harness\" stands twice",
        ),
    ] {
        std::fs::write(&path, text).expect("written");
        let apply = ["config", "apply", path.to_str().expect("text"), "--json"];
        let output = place.run(&apply).await;
        check_failure(&apply, &output, (2, "config.refused"));
        let told = document(&output)["error"]["message"].clone();
        let told = told.as_str().expect("text");
        assert!(
            told.contains(says) && told.ends_with("nothing was written"),
            "{told}"
        );
    }
    place.config(twice);
    let get = ["config", "get", "--json"];
    let output = place.run(&get).await;
    check_failure(&get, &output, (2, "config.invalid"));
    let told = document(&output)["error"]["message"].to_string();
    assert!(
        told.contains("config.yaml, line 5: ") && told.contains("stands twice"),
        "{told}"
    );
    assert_eq!(told.matches("line 5").count(), 1, "{told}");
}

/// Without a mesh the files alone are explained, and what would not start is told.
#[tokio::test]
async fn without_a_mesh_the_files_are_explained() {
    let place = Place::new();
    place.config("harness:\n  max_calls: 9\n");
    assert_eq!(place.get("harness.max_calls").await, 9);
    let explained = place.json(&["config", "explain", "harness"]).await;
    assert_eq!(explained["silent"], json!(["harness"]));
    let set = ["config", "set", "harness.max_calls", "4", "--json"];
    check_failure(&set, &place.run(&set).await, (69, "mesh.not_running"));
    place.config("harness:\n  max_call: 9\n");
    let get = ["config", "get", "--json"];
    check_failure(&get, &place.run(&get).await, (2, "config.invalid"));
}

/// The shells themselves accept what they are given, and the manual is one page a command.
#[tokio::test]
async fn completions_and_manual_are_what_their_readers_take() {
    let place = Place::new();
    let output = place.run(&["completions", "bash"]).await;
    assert_eq!(code(&output), 0);
    let script = place.file("completion.bash");
    std::fs::write(&script, &output.stdout).expect("written");
    let checked = std::process::Command::new("bash")
        .arg("-n")
        .arg(&script)
        .status();
    assert!(checked.expect("bash runs").success());
    let unknown = ["completions", "tcsh9", "--json"];
    check_failure(&unknown, &place.run(&unknown).await, (2, "cli.usage"));
    let dir = place.file("man");
    let written = place
        .json(&["man", "-o", dir.to_str().expect("text")])
        .await;
    let files = written["files"].as_array().expect("a list");
    assert!(files.len() > 30, "{files:?}");
    let first = place.run(&["man"]).await;
    assert!(String::from_utf8_lossy(&first.stdout).contains(".TH teamster"));
}
