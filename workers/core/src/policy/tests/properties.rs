//! Properties that hold for every stack of rules.

use proptest::prelude::*;

use super::*;

/// A rule of a policy file that is made at random.
fn any_rule() -> impl Strategy<Value = String> {
    let effect = prop_oneof!["allow", "ask", "deny"];
    let condition = prop_oneof![
        Just(String::new()),
        Just(", class: [read, write]".to_owned()),
        Just(", class: egress".to_owned()),
        Just(", data: business".to_owned()),
        Just(", trust: untrusted".to_owned()),
        Just(", function: 'fs::*'".to_owned()),
        Just(", function: 'mail::send'".to_owned()),
        Just(", target: ['src/**', 'me@*']".to_owned()),
        Just(", when: {/n: {equals: 1}}".to_owned()),
        Just(", when: {/path: {matches: 'a'}}".to_owned()),
    ];
    (effect, condition).prop_map(|(effect, condition)| format!("{{effect: {effect}{condition}}}"))
}

fn any_call() -> impl Strategy<Value = (Contract, String)> {
    let ids = prop_oneof![
        Just("fs::read"),
        Just("fs::write"),
        Just("mail::send"),
        Just("notes::add")
    ];
    let class = prop_oneof![
        Just(Class::Read),
        Just(Class::Write),
        Just(Class::Exec),
        Just(Class::Destructive),
        Just(Class::Egress)
    ];
    let target = prop_oneof![Just(None), Just(Some("/path")), Just(Some("/to"))];
    let args = prop_oneof![
        Just("{}"),
        Just(r#"{"path":"src/a.rs","n":1}"#),
        Just(r#"{"path":"../x","n":2}"#),
        Just(r#"{"path":".env"}"#),
        Just(r#"{"to":"me@example.org","n":1}"#),
        Just(r#"{"to":["a","b"]}"#),
    ];
    (ids, class, target, args)
        .prop_map(|(id, class, target, args)| (contract(id, class, target), args.to_owned()))
}

fn stack(layers: &[Vec<String>]) -> Policy {
    let layers: Vec<String> = layers
        .iter()
        .enumerate()
        .map(|(n, rules)| format!("{{name: l{n}, rules: [{}]}}", rules.join(", ")))
        .collect();
    layered(&format!("{{version: 1, layers: [{}]}}", layers.join(", ")))
}

proptest! {
    #[test]
    fn the_order_of_layers_and_rules_does_not_matter(
        layers in prop::collection::vec(prop::collection::vec(any_rule(), 0..4), 0..4),
        (contract, args) in any_call(),
    ) {
        let mut turned = layers.clone();
        turned.reverse();
        for rules in &mut turned {
            rules.reverse();
        }
        let one = judged(&stack(&layers), &contract, &args);
        let two = judged(&stack(&turned), &contract, &args);
        prop_assert_eq!((one.effect, one.ask_ttl_ms), (two.effect, two.ask_ttl_ms));
    }

    #[test]
    fn a_further_deny_or_ask_never_loosens(
        layers in prop::collection::vec(prop::collection::vec(any_rule(), 0..4), 0..3),
        (contract, args) in any_call(),
        rule in any_rule().prop_filter("tightens", |rule| rule.contains("deny")),
    ) {
        let before = judged(&stack(&layers), &contract, &args);
        let mut more = layers;
        more.push(vec![rule]);
        let after = judged(&stack(&more), &contract, &args);
        prop_assert!(after.effect >= before.effect, "{:?} became {:?}", before, after);
    }

    #[test]
    fn a_deny_wins_over_anything(
        layers in prop::collection::vec(prop::collection::vec(any_rule(), 0..4), 0..3),
        (contract, args) in any_call(),
        at in 0_usize..4,
    ) {
        let mut more = layers;
        more.insert(at.min(more.len()), vec!["{effect: deny}".to_owned()]);
        prop_assert_eq!(judged(&stack(&more), &contract, &args).effect, Effect::Deny);
    }

    #[test]
    fn the_judgement_is_the_same_each_time((contract, args) in any_call(), rule in any_rule()) {
        let policy = stack(&[vec![rule]]);
        prop_assert_eq!(judged(&policy, &contract, &args), judged(&policy, &contract, &args));
    }

    #[test]
    fn any_text_is_a_policy_or_an_error(text in ".{0,200}") {
        let _ = Policy::layered(&text);
    }
}
