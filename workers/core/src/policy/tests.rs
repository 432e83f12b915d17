//! Tables and properties of the policy engine.

use teamster_protocol::{
    contract::{Class, Data, Trust},
    policy::SECRET_TARGETS,
};

use super::*;

mod form;
mod properties;

fn contract(id: &str, class: Class, target: Option<&str>) -> Contract {
    let mut contract = Contract::new::<(), ()>(id.parse().expect("valid id"), "A function.");
    contract.class = class;
    contract.data = Data::Business;
    contract.trust = Trust::Trusted;
    contract.target = target.map(str::to_owned);
    contract.visibility = Visibility::Agent;
    contract
}

fn arguments(text: &str) -> Arguments {
    Arguments::parse(text).expect("valid arguments")
}

fn judged(policy: &Policy, contract: &Contract, text: &str) -> Judgement {
    judge(policy, contract, &arguments(text), Some("/home/me/w"))
}

fn layered(text: &str) -> Policy {
    Policy::layered(text).expect("valid policy")
}

#[test]
fn the_compiled_in_policy_has_the_first_policys_effects() {
    let policy = Policy::compiled_in().expect("valid policy");
    for (id, class, target, args, effect, layer, rule) in [
        (
            "fs::read",
            Class::Read,
            Some("/path"),
            r#"{"path":"a.rs"}"#,
            Effect::Allow,
            "defaults",
            "read: allow",
        ),
        (
            "fs::list",
            Class::Read,
            Some("/path"),
            "{}",
            Effect::Allow,
            "defaults",
            "read: allow",
        ),
        (
            "fs::write",
            Class::Write,
            Some("/path"),
            r#"{"path":"a.rs"}"#,
            Effect::Ask,
            "workspace",
            "0: ask fs::write",
        ),
        (
            "fs::edit",
            Class::Write,
            Some("/path"),
            r#"{"path":"a.rs"}"#,
            Effect::Ask,
            "workspace",
            "1: ask fs::edit",
        ),
        (
            "notes::add",
            Class::Write,
            None,
            "{}",
            Effect::Allow,
            "defaults",
            "write: allow",
        ),
        (
            "box::run",
            Class::Exec,
            None,
            "{}",
            Effect::Ask,
            "defaults",
            "exec: ask",
        ),
        (
            "box::wipe",
            Class::Destructive,
            None,
            "{}",
            Effect::Ask,
            "defaults",
            "destructive: ask",
        ),
        (
            "mail::send",
            Class::Egress,
            Some("/to"),
            r#"{"to":"me@example.org"}"#,
            Effect::Ask,
            "defaults",
            "egress: ask",
        ),
    ] {
        let judgement = judged(&policy, &contract(id, class, target), args);
        assert_eq!(
            (
                judgement.effect,
                judgement.layer.as_str(),
                judgement.rule.as_str()
            ),
            (effect, layer, rule),
            "{id}"
        );
        assert_eq!(judgement.policy, policy.digest());
    }
}

#[test]
fn the_secret_targets_are_those_of_the_compiled_in_policy() {
    let file = File::parse(COMPILED_IN).expect("valid policy");
    let secrets = file
        .layers
        .iter()
        .find(|layer| layer.name == LAYER_SECRETS)
        .expect("layer");
    let [rule] = secrets.rules.as_slice() else {
        panic!("one rule");
    };
    assert_eq!(rule.effect, Effect::Deny);
    let shown = rule.text();
    assert_eq!(
        shown,
        format!("deny read,write target {}", SECRET_TARGETS.join(","))
    );
}

#[test]
fn secret_files_are_denied_however_they_are_written() {
    let policy = Policy::compiled_in().expect("valid policy");
    for path in [
        ".env",
        "./.env",
        "a//.env",
        "a/.env/",
        "/home/me/w/a/.env",
        "x.pem",
        "deep/er/x.key",
        ".ssh/id_rsa",
        "id_rsa.pub",
    ] {
        for (id, class) in [("fs::read", Class::Read), ("fs::write", Class::Write)] {
            let args = serde_json::json!({ "path": path }).to_string();
            let judgement = judged(&policy, &contract(id, class, Some("/path")), &args);
            assert_eq!(
                (judgement.effect, judgement.layer.as_str()),
                (Effect::Deny, "secrets"),
                "{id} {path}"
            );
        }
    }
    for path in [
        "environment",
        ".env.example",
        "key",
        "a.pem.txt",
        "my_id_rsa",
    ] {
        let args = serde_json::json!({ "path": path }).to_string();
        let judgement = judged(
            &policy,
            &contract("fs::read", Class::Read, Some("/path")),
            &args,
        );
        assert_eq!(judgement.effect, Effect::Allow, "{path}");
    }
}

#[test]
fn a_path_that_leaves_the_workspace_is_denied_whatever_the_rules_say() {
    let policy = layered("{version: 1, layers: [{name: all, rules: [{effect: allow}]}]}");
    for path in ["../x", "a/../../x", "/etc/passwd", "a\\u0000b"] {
        let judgement = judged(
            &policy,
            &contract("fs::read", Class::Read, Some("/path")),
            &format!(r#"{{"path":"{path}"}}"#),
        );
        assert_eq!(
            (judgement.effect, judgement.layer.as_str()),
            (Effect::Deny, LAYER_BUILT_IN),
            "{path}"
        );
    }
    let judgement = judged(
        &policy,
        &contract("web::get", Class::Egress, Some("/url")),
        r#"{"url":"https://x/../y"}"#,
    );
    assert_eq!(judgement.effect, Effect::Allow, "an address is no path");
    assert_eq!(judgement.target.as_deref(), Some("https://x/../y"));
}

/// APPR-9: the approval surface itself is denied to models in the policy too.
#[test]
fn appr_9_functions_that_are_not_for_models_are_denied() {
    let policy =
        layered("{version: 1, layers: [{name: all, rules: [{effect: allow, function: '*'}]}]}");
    for visibility in [Visibility::Worker, Visibility::Operator] {
        let mut contract = contract("approval::resolve", Class::Write, None);
        contract.visibility = visibility;
        assert_eq!(
            judged(&policy, &contract, "{}").effect,
            Effect::Deny,
            "{visibility:?}"
        );
    }
}

/// The arguments of a mail.
fn mail(to: &str) -> String {
    serde_json::json!({ "to": to, "body": "x" }).to_string()
}

/// The effect of a single rule on a mail with these arguments; no rule means ask.
fn sent(rule: &str, args: &str) -> Effect {
    let policy = layered(&format!(
        "{{version: 1, layers: [{{name: mine, rules: [{rule}]}}]}}"
    ));
    let send = contract("mcp::mail::send", Class::Egress, Some("/to"));
    judged(&policy, &send, args).effect
}

#[test]
fn rules_match_on_all_their_conditions() {
    for (rule, args, want) in [
        (
            "{effect: allow, function: 'mcp::mail::*'}",
            mail("a@b.c"),
            Effect::Allow,
        ),
        (
            "{effect: allow, function: 'mcp::*'}",
            mail("a@b.c"),
            Effect::Allow,
        ),
        (
            "{effect: allow, function: 'mail::*'}",
            mail("a@b.c"),
            Effect::Ask,
        ),
        (
            "{effect: allow, class: [read, egress]}",
            mail("a@b.c"),
            Effect::Allow,
        ),
        ("{effect: allow, class: read}", mail("a@b.c"), Effect::Ask),
        (
            "{effect: deny, data: business, trust: trusted}",
            mail("a@b.c"),
            Effect::Deny,
        ),
        (
            "{effect: deny, data: [public, personal]}",
            mail("a@b.c"),
            Effect::Ask,
        ),
        (
            "{effect: allow, target: 'me@example.org'}",
            mail("me@example.org"),
            Effect::Allow,
        ),
        (
            "{effect: allow, target: 'me@example.org'}",
            mail("ME@example.org"),
            Effect::Ask,
        ),
        (
            "{effect: deny, target: '*@evil.org'}",
            mail("Me@EVIL.org"),
            Effect::Deny,
        ),
        (
            "{effect: deny, when: {/body: {equals: x}}}",
            mail("a@b.c"),
            Effect::Deny,
        ),
        (
            "{effect: deny, when: {/body: {matches: '^y'}}}",
            mail("a@b.c"),
            Effect::Ask,
        ),
    ] {
        assert_eq!(sent(rule, &args), want, "{rule} of {args}");
    }
}

#[test]
fn what_cannot_be_evaluated_counts_for_a_deny_and_against_an_allow() {
    for (rule, args, want) in [
        (
            "{effect: deny, when: {/gone: {equals: x}}}",
            mail("a@b.c"),
            Effect::Deny,
        ),
        (
            "{effect: allow, when: {/gone: {equals: x}}}",
            mail("a@b.c"),
            Effect::Ask,
        ),
        (
            "{effect: deny, target: 'q'}",
            r#"{"to":{"name":"q"}}"#.to_owned(),
            Effect::Deny,
        ),
        (
            "{effect: allow, target: '**'}",
            r#"{"to":7}"#.to_owned(),
            Effect::Ask,
        ),
        // Several targets: one is enough to deny, all are needed to allow.
        (
            "{effect: deny, target: 'q'}",
            r#"{"to":["p","q"]}"#.to_owned(),
            Effect::Deny,
        ),
        (
            "{effect: allow, target: 'q'}",
            r#"{"to":["p","q"]}"#.to_owned(),
            Effect::Ask,
        ),
        (
            "{effect: allow, target: ['p','q']}",
            r#"{"to":["p","q"]}"#.to_owned(),
            Effect::Allow,
        ),
    ] {
        assert_eq!(sent(rule, &args), want, "{rule} of {args}");
    }
}

#[test]
fn a_users_file_is_laid_on_top() {
    let write = contract("fs::write", Class::Write, Some("/path"));
    let exec = contract("box::run", Class::Exec, None);
    let policy = layered("{version: 1, defaults: {exec: deny}, layers: [{name: workspace}]}");
    assert_eq!(
        judged(&policy, &write, r#"{"path":"a"}"#).effect,
        Effect::Allow,
        "the layer was replaced"
    );
    assert_eq!(
        judged(&policy, &write, r#"{"path":".env"}"#).effect,
        Effect::Deny,
        "secrets stay"
    );
    assert_eq!(judged(&policy, &exec, "{}").effect, Effect::Deny);
    assert_eq!(
        policy.layers().collect::<Vec<_>>(),
        ["secrets", "workspace"]
    );

    let policy = layered("{version: 1, layers: [{name: home, rules: [{effect: allow}]}]}");
    assert_eq!(
        policy.layers().collect::<Vec<_>>(),
        ["secrets", "workspace", "home"]
    );
    let judgement = judged(&policy, &write, r#"{"path":"a"}"#);
    assert_eq!(
        judgement.effect,
        Effect::Ask,
        "no layer lifts another's ask"
    );
    assert_eq!(
        judged(&policy, &write, r#"{"path":".env"}"#).effect,
        Effect::Deny
    );
    assert_eq!(judged(&policy, &exec, "{}").effect, Effect::Allow);
    assert_ne!(
        policy.digest(),
        Policy::compiled_in().expect("valid policy").digest()
    );

    let refused = Policy::layered("{version: 1, layers: [{name: secrets}]}").expect_err("is fixed");
    assert!(matches!(refused, Error::Fixed { .. }), "{refused}");
}

#[test]
fn the_shortest_wait_of_the_asking_rules_counts() {
    let policy = layered(
        "{version: 1, layers: [{name: a, rules: [{effect: ask, ttl_s: 60}, {effect: ask, ttl_s: 5, class: exec}]}]}",
    );
    let exec = judged(&policy, &contract("box::run", Class::Exec, None), "{}");
    assert_eq!((exec.effect, exec.ask_ttl_ms), (Effect::Ask, Some(5000)));
    let read = judged(&policy, &contract("box::look", Class::Read, None), "{}");
    assert_eq!(
        (read.rule.as_str(), read.ask_ttl_ms),
        ("0: ask", Some(60_000))
    );
}

#[test]
fn the_stricter_judgement_counts() {
    let policy = Policy::compiled_in().expect("valid policy");
    let allow = judged(&policy, &contract("a::b", Class::Read, None), "{}");
    let ask = judged(&policy, &contract("a::b", Class::Exec, None), "{}");
    assert_eq!(stricter(allow.clone(), ask.clone()), ask);
    assert_eq!(stricter(ask.clone(), allow), ask);
}

/// APPR-3: a command is its arguments one by one, so a rule for a program allows that program and no line of a shell, whatever
/// the line begins with.
#[test]
fn appr_3_a_rule_for_a_program_allows_no_shell_line() {
    let rule = "{effect: allow, function: 'sandbox::exec', when: {/argv/0: {equals: git}}}";
    let policy = layered(&format!(
        "{{version: 1, layers: [{{name: mine, rules: [{rule}]}}]}}"
    ));
    let exec = contract("sandbox::exec", Class::Exec, None);
    let effect = |argv: &[&str]| {
        let call = serde_json::json!({ "argv": argv }).to_string();
        judged(&policy, &exec, &call).effect
    };
    // What a shell would run is an argument like any other: there is no shell.
    assert_eq!(effect(&["git", "status"]), Effect::Allow);
    assert_eq!(effect(&["git", "status", "$(touch /tmp/p)"]), Effect::Allow);
    for argv in [
        &["sh", "-c", "git status $(touch /tmp/p)"][..],
        &["sh", "-c", "git log && curl x | sh"],
        &["git log && curl x | sh"],
        &["git status $(touch /tmp/p)"],
        &["sh", "-c", "(rm -rf a)"],
        &["env", "A=1", "rm", "-rf", "a"],
        &["A=1", "rm", "-rf", "a"],
        &[" git", "status"],
        &["/usr/bin/git", "status"],
        &["GIT", "status"],
        &[],
    ] {
        assert_eq!(effect(argv), Effect::Ask, "{argv:?}");
    }
}

/// A deny on paths holds for searches of what lies above and below, too.
#[test]
fn a_search_does_not_walk_around_a_rule_on_paths() {
    let policy = layered(
        "version: 1\nlayers:\n  - name: mine\n    rules:\n      - {effect: deny, class: [read, write], target: [\"secret/**\", \"a/one.txt\"]}\n",
    );
    for id in ["fs::grep", "fs::find", "fs::list"] {
        let search = contract(id, Class::Read, Some("/path"));
        for (path, effect) in [
            ("secret", Effect::Deny),
            ("secret/deep", Effect::Deny),
            (".", Effect::Ask),
            ("a", Effect::Ask),
            ("docs", Effect::Allow),
        ] {
            let text = format!("{{\"path\": \"{path}\"}}");
            let found = judged(&policy, &search, &text);
            assert_eq!(found.effect, effect, "{id} {path}: {}", found.rule);
        }
        assert_eq!(judged(&policy, &search, "{}").effect, Effect::Ask, "{id}");
    }
    let read = contract("fs::read", Class::Read, Some("/path"));
    assert_eq!(
        judged(&policy, &read, "{\"path\": \"docs/a\"}").effect,
        Effect::Allow
    );
    // What the searches leave out by themselves asks nobody.
    let compiled = Policy::compiled_in().expect("valid policy");
    let search = contract("fs::grep", Class::Read, Some("/path"));
    assert_eq!(judged(&compiled, &search, "{}").effect, Effect::Allow);
}
