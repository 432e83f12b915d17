//! The policy in force: at the hook, explained, and after its file has changed.

use std::path::Path;

use teamster_approval_gate::{Config, worker};
use teamster_protocol::{
    FunctionId, TurnId,
    function::approval::{ExplainReply, ExplainRequest},
    hook::{Call, OnError, Point, Request, Stage, Verdict},
    policy::{Effect, Judgement},
};
use teamster_testkit::wait;

use crate::rig::{LIMIT, Rig, arguments, call, contract, session};

async fn judged(rig: &Rig, turn: &str, path: &str) -> Verdict {
    let contract = contract();
    let request = Request {
        point: Point::PreTrigger,
        session: session("one"),
        turn: TurnId::parse(turn).expect("a turn"),
        step: 0,
        workspace: Some("/w".to_owned()),
        generate: None,
        generated: None,
        call: Some(Call {
            id: call(1),
            function: contract.id.clone(),
            arguments: arguments(&serde_json::json!({ "path": path }).to_string()),
            contract,
            approved: None,
        }),
        result: None,
    };
    rig.call("approval::gate", None, &request)
        .await
        .expect("a verdict")
}

async fn explained(rig: &Rig, function: &str, path: &str) -> Result<Judgement, String> {
    let request = ExplainRequest {
        function: FunctionId::parse(function).expect("an id"),
        arguments: arguments(&serde_json::json!({ "path": path }).to_string()),
        workspace: Some("/w".to_owned()),
    };
    rig.call::<_, ExplainReply>("approval::explain", Some("owner"), &request)
        .await
        .map(|reply| reply.judgement)
        .map_err(|fault| fault.code)
}

/// HOOK-1: the gate is bound so that its absence denies.
#[tokio::test(flavor = "multi_thread")]
async fn hook_1_the_gate_judges_before_each_call_and_fails_closed() {
    let mut rig = Rig::start(&Config::default()).await;
    let registry = rig.mesh.registry().await.expect("a registry");
    let is_bound = |catalog: &teamster_mesh::registry::Catalog| {
        catalog.hooks_at(Point::PreTrigger).any(|binding| {
            binding.function.as_str() == "approval::gate"
                && binding.stage == Stage::Judge
                && binding.on_error() == OnError::FailClosed
                && binding.functions.is_empty()
        })
    };
    assert!(is_bound(&*registry.wait(LIMIT, is_bound).await));
    rig.stop_gate().await;
    assert!(
        is_bound(&registry.catalog()),
        "the binding outlives the gate"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_explains_is_what_enforces() {
    let rig = Rig::start(&Config::default()).await;
    for (path, effect, layer) in [
        ("a.txt", Effect::Ask, "workspace"),
        ("x/.env", Effect::Deny, "secrets"),
    ] {
        let explained = explained(&rig, "fs::write", path).await.expect("explained");
        assert_eq!(
            (explained.effect, explained.layer.as_str()),
            (effect, layer),
            "{path}"
        );
        let enforced = match judged(&rig, "trn_1", path).await {
            Verdict::Hold { judgement } => Some(judgement),
            Verdict::Deny { judgement, .. } | Verdict::Continue { judgement, .. } => judgement,
        };
        assert_eq!(enforced, Some(explained));
    }
    let code = explained(&rig, "no::such", "a")
        .await
        .expect_err("nobody serves it");
    assert_eq!(code, "approval.unknown_function");
}

async fn note(rig: &Rig) -> Option<String> {
    let request = ExplainRequest {
        function: contract().id,
        arguments: arguments("{}"),
        workspace: None,
    };
    rig.call::<_, ExplainReply>("approval::explain", Some("owner"), &request)
        .await
        .expect("explained")
        .note
}

fn write(path: &Path, text: &str) {
    // Beside it first, so that a reader never meets half a file.
    let next = path.with_extension("next");
    std::fs::write(&next, text).expect("written");
    std::fs::rename(next, path).expect("renamed");
}

/// A changed file is in force without a restart. Another change follows one that cannot be used.
#[tokio::test(flavor = "multi_thread")]
async fn a_changed_policy_is_in_force_without_a_restart() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("policy.yaml");
    let config = Config {
        policy_file: Some(path.clone()),
    };
    let rig = Rig::start(&config).await;
    assert!(matches!(
        judged(&rig, "trn_0", "a.txt").await,
        Verdict::Hold { .. }
    ));
    write(&path, "{version: 1, layers: [{name: workspace}]}");
    wait::until(
        LIMIT,
        "a file that came after the start is in force",
        || async {
            explained(&rig, "fs::write", "a.txt")
                .await
                .map(|judgement| judgement.effect)
                == Ok(Effect::Allow)
        },
    )
    .await;
    assert!(matches!(
        judged(&rig, "trn_1", "a.txt").await,
        Verdict::Continue { .. }
    ));
    for (text, effect) in [
        (
            "{version: 1, layers: [{name: mine, rules: [{effect: deny, function: 'fs::*'}]}]}",
            Effect::Deny,
        ),
        (
            "{version: 1, layers: [{name: workspace}], defaults: {write: ask}}",
            Effect::Ask,
        ),
    ] {
        write(&path, text);
        wait::until(LIMIT, "the changed policy is in force", || async {
            explained(&rig, "fs::write", "a.txt")
                .await
                .expect("explained")
                .effect
                == effect
        })
        .await;
        write(&path, "version: 1\nlayer: []\n");
        wait::until(
            LIMIT,
            "the explanation names the file that cannot be used",
            || async {
                let note = note(&rig).await.unwrap_or_default();
                note.contains("policy.yaml") && note.contains("line 2")
            },
        )
        .await;
    }
    let Verdict::Hold { .. } = judged(&rig, "trn_1", "a.txt").await else {
        panic!("a change that tightens reaches a running turn");
    };
    assert!(
        worker(&config).is_err(),
        "no gate starts with a policy that cannot be used"
    );
}
