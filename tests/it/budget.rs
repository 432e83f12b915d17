//! Bounds that hold whatever a provider reports and whoever runs the turn.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use serde_json::json;
use teamster::harness;
use teamster_protocol::{
    Event,
    event::EndReason,
    function::router::Completion,
    input::TurnOptions,
    usage::{Budget, BudgetKind, NanoUsd, Usage},
};

use crate::scene::{Gate, Parts, Scene, calls, session};

/// A model that never comes to an end, and never makes the same call twice.
fn endless(number: u32) -> Completion {
    calls(&[("t::read", json!({ "n": number }))])
}

fn within(budget: Budget) -> TurnOptions {
    TurnOptions {
        max_output_tokens: Some(10),
        budget,
        ..TurnOptions::default()
    }
}

/// COST-2: tokens that nobody counted are estimated, and count against the bound like any others.
#[tokio::test(flavor = "multi_thread")]
async fn cost_2_estimated_tokens_meet_the_bound() {
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    let parts = Parts::new(move |_| Completion {
        usage: Usage {
            input: 60,
            output: 60,
            estimated: true,
            ..Usage::default()
        },
        ..endless(count.fetch_add(1, Ordering::SeqCst))
    });
    let scene = Scene::start(parts).await;
    let id = session("s");
    let budget = Budget {
        tokens: Some(130),
        ..Budget::default()
    };
    scene.send_options(&id, "go", within(budget)).await;
    let which = BudgetKind::Tokens;
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Budget { which }]);
    assert_eq!(asked.load(Ordering::SeqCst), 1, "the second is refused");
}

/// COST-3: a model that loops for ever at a cent a call, a bound below six cents, a restart in the middle: five calls in all.
#[tokio::test(flavor = "multi_thread")]
async fn cost_3_what_was_spent_before_a_restart_counts_after_it() {
    const CENT: u64 = 10_000_000;
    let gate = Gate::shut();
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    let mut parts = Parts::new(move |_| Completion {
        cost: Some(NanoUsd(CENT)),
        ..endless(count.fetch_add(1, Ordering::SeqCst))
    });
    // The third call is at work when its harness goes.
    parts.call_gate = Some(Arc::clone(&gate));
    let config = parts.harness.clone();
    let model = Arc::clone(&parts.model);
    parts.model = Arc::new(move |request| {
        let mut completion = model(request);
        if crate::scene::results(request).len() == 2 {
            completion.parts = calls(&[("t::slow", json!({}))]).parts;
        }
        completion
    });
    let mut scene = Scene::start(parts).await;
    let id = session("s");
    let budget = Budget {
        cost: Some(NanoUsd(5 * CENT - 1)),
        ..Budget::default()
    };
    scene.send_options(&id, "go", within(budget)).await;
    gate.reached(1).await;
    scene.drain("harness").await;
    gate.open();
    scene
        .serve(harness::worker(&config).expect("a harness"))
        .await;
    let which = BudgetKind::Cost;
    assert_eq!(scene.ended(&id, 1).await, [EndReason::Budget { which }]);
    assert_eq!(asked.load(Ordering::SeqCst), 5);
    let events = scene.events(&id).await;
    let exceeded = events.iter().find_map(|event| match event {
        Event::BudgetExceeded { limit, used, .. } => Some((*limit, *used)),
        _ => None,
    });
    assert_eq!(exceeded, Some((5 * CENT - 1, 5 * CENT)));
    let took_over = |event: &Event| matches!(event, Event::TookOver { .. });
    assert!(events.iter().any(took_over), "another owner went on");
}
