//! What a running mesh tells that is easily kept quiet: what waits, what is not bounded, which policy is in force.

use teamster_testkit::wait;

use super::place::{LIMIT, Place, code, document, finding, written_to};

pub(super) async fn a_message_behind_an_approval_shows_as_queued(place: &Place) {
    let show = ["sessions", "show", "keyed", "--json"];
    assert_eq!(document(&place.run(&show).await)["queued"], 0);
    assert_eq!(code(&place.run(&["send", "keyed", "and then?"]).await), 0);
    let shown = document(&place.run(&show).await);
    assert_eq!(
        (&shown["queued"], &shown["status"]),
        (&1.into(), &"waiting".into())
    );
}

pub(super) async fn a_bound_on_money_without_a_price_is_told(place: &Place) {
    for (model, told) in [("ollama/nobody-priced-this", 1), ("scripted/guided", 0)] {
        let arguments = [
            "send",
            "money",
            "hi",
            "--model",
            model,
            "--max-cost-usd",
            "1",
            "--json",
        ];
        let output = place.run(&arguments).await;
        assert_eq!(code(&output), 0);
        let warnings = document(&output)["warnings"].clone();
        assert_eq!(
            warnings.as_array().map(Vec::len),
            Some(told),
            "{model}: {warnings}"
        );
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(words.contains("bounds nothing"), told == 1, "{words}");
    }
}

pub(super) async fn a_policy_that_comes_later_is_in_force_and_a_bad_one_is_told(place: &Place) {
    let path = place.data().join("policy.yaml");
    let explain = [
        "policy",
        "explain",
        "fs::write",
        "{\"path\":\"x\"}",
        "--json",
    ];
    for (text, effect, note) in [
        (
            Some("{version: 1, layers: [{name: workspace}], defaults: {write: deny}}"),
            "deny",
            None,
        ),
        (Some("version: 1\nlayer: []\n"), "deny", Some("line 2")),
        (None, "ask", Some("is gone")),
    ] {
        match text {
            Some(text) => std::fs::write(&path, text).expect("written"),
            None => std::fs::remove_file(&path).expect("removed"),
        }
        wait::until(LIMIT, "the gate has seen the policy file", || async {
            let reply = document(&place.run(&explain).await);
            let told = reply["note"].as_str();
            reply["judgement"]["effect"] == effect
                && match note {
                    Some(note) => told.is_some_and(|told| told.contains(note)),
                    None => told.is_none(),
                }
        })
        .await;
        let live = finding(
            &document(&place.run(&["doctor", "--json"]).await),
            "policy-live",
        );
        assert_eq!(
            live["state"],
            if note.is_some() { "failed" } else { "ok" },
            "{live}"
        );
    }
}

pub(super) async fn a_full_device_fails_a_run(place: &Place) {
    for form in [
        ["--approvals", "deny"].as_slice(),
        &["--approvals", "deny", "--json"],
    ] {
        let arguments = [&["run", "hello"], form].concat();
        let full = std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .expect("a device");
        let output = written_to(place, &arguments, full).await;
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!([1, 4].contains(&code(&output)), "{words}");
        assert!(words.contains("cannot write to standard output"), "{words}");
    }
}
