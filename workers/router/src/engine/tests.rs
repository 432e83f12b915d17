//! Generations without a mesh: attempts, sums, stops, and providers that cannot be used.

use std::sync::Arc;

use serde_json::json;
use teamster_protocol::{Message, MessageId, Principal, RequestId, function::router::Part};

use teamster_protocol::usage::Usage;

use super::*;
use crate::{chunk::Chunk, project::Body, provider::End};

fn request(model: &str) -> ChatRequest {
    ChatRequest {
        request_id: RequestId::parse("s.1.1").expect("valid"),
        session_id: None,
        model: model.to_owned(),
        system_prompt: None,
        messages: vec![Arc::new(Message::User {
            id: MessageId::parse("msg_1").expect("valid"),
            from: Principal::parse("owner").expect("valid"),
            text: "hi".to_owned(),
        })],
        tools: Vec::new(),
        max_output_tokens: None,
        is_first: false,
    }
}

fn config(yaml: &str) -> Config {
    serde_yaml::from_str(yaml).expect("valid")
}

async fn generate(config: &Config, model: &str, stop: &Stop) -> (Completion, Vec<DeltaKind>) {
    let mut deltas = Vec::new();
    let completion = Engine::new(config)
        .generate(&request(model), stop, &mut deltas)
        .await;
    (completion, deltas)
}

#[tokio::test]
async fn an_unknown_model_is_an_answer_with_a_hint() {
    for model in ["", "gpt", "nobody/gpt", "scripted/nothing", "openai/"] {
        let (completion, deltas) = generate(&Config::default(), model, &Stop::default()).await;
        let error = completion.error.expect("an error");
        assert_eq!(
            (completion.stop, error.kind, completion.attempts),
            (StopReason::Error, ErrorKind::NotConfigured, 0),
            "{model}"
        );
        assert!(
            error
                .hint
                .is_some_and(|hint| hint.contains("openrouter") || hint.contains("guided")),
            "{model}"
        );
        assert_eq!(deltas, [DeltaKind::Done]);
        assert_eq!(completion.cost, None);
    }
}

#[tokio::test]
async fn a_missing_key_names_its_variable_and_nothing_is_sent() {
    let config = config(
        "providers: {x: {base_url: 'https://x.test/v1', key: 'env:TEAMSTER_TEST_NO_SUCH_KEY'}}",
    );
    let (completion, deltas) = generate(&config, "x/some/model", &Stop::default()).await;
    let error = completion.error.expect("an error");
    assert_eq!((error.kind, completion.attempts), (ErrorKind::Auth, 0));
    assert!(
        error
            .hint
            .is_some_and(|hint| hint.contains("TEAMSTER_TEST_NO_SUCH_KEY"))
    );
    assert_eq!(deltas, [DeltaKind::Done]);
}

#[tokio::test]
async fn a_broken_provider_is_quarantined_with_its_reason() {
    let config = config(
        "providers: {bad: {base_url: 'ftp://x'}, s: {kind: scripted, scripts: {x: /nowhere.yaml}}}",
    );
    for (model, reason) in [("bad/m", "base_url"), ("s/x", "/nowhere.yaml")] {
        let (completion, _) = generate(&config, model, &Stop::default()).await;
        let error = completion.error.expect("an error");
        assert_eq!(error.kind, ErrorKind::NotConfigured);
        assert!(error.message.contains(reason), "{}", error.message);
    }
    let (completion, _) = generate(&config, "scripted/guided", &Stop::default()).await;
    assert_eq!(completion.stop, StopReason::Call);
}

#[tokio::test]
async fn the_scripted_provider_answers_without_a_key_and_costs_nothing() {
    let (completion, deltas) = generate(
        &config("default_model: scripted/guided"),
        "",
        &Stop::default(),
    )
    .await;
    assert_eq!(completion.model, "scripted/guided");
    assert_eq!(
        (completion.stop, completion.attempts, completion.cost),
        (StopReason::Call, 1, Some(NanoUsd(0)))
    );
    assert!(completion.usage.estimated && completion.usage.output > 10);
    let said: String = deltas
        .iter()
        .filter_map(|delta| match delta {
            DeltaKind::Text { text } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(completion.parts.first(), Some(&Part::Text { text: said }));
    assert_eq!(deltas.last(), Some(&DeltaKind::Done));
    let engine = Engine::new(&Config::default());
    assert!(engine.model("scripted/guided").expect("known").scripted);
    assert!(!engine.model("ollama/llama3:8b").expect("any name").scripted);
}

#[tokio::test]
async fn a_stop_ends_with_what_was_said() {
    for (is_abort, want) in [(true, StopReason::Aborted), (false, StopReason::Incomplete)] {
        let stop = Stop::default();
        if is_abort {
            stop.abort.cancel();
        } else {
            stop.leave.cancel();
        }
        let (completion, _) = generate(&Config::default(), "scripted/guided", &stop).await;
        assert_eq!(completion.stop, want);
        assert_eq!(completion.error.is_some(), !is_abort);
    }
}

#[test]
fn the_catalogue_merges_table_and_configuration() {
    let price = "{input: 1, cache_read: 1, cache_write: 1, output: 2, as_of: '2026-01-01'}";
    let yaml = format!(
        "providers: {{openai: {{models: {{gpt-5-mini: {{price: {price}}}}}}}, ollama: {{models: {{'qwen3:8b': {{context_window: 40960}}}}}}}}"
    );
    let engine = Engine::new(&config(&yaml));
    let mini = engine.model("openai/gpt-5-mini").expect("known");
    assert_eq!(
        mini.price.map(|price| price.as_of).as_deref(),
        Some("2026-01-01")
    );
    assert_eq!(mini.context_window, Some(400_000));
    let local = engine.models(Some("ollama"));
    assert_eq!(local.len(), 1);
    assert_eq!(
        (local[0].id.as_str(), local[0].price.as_ref()),
        ("ollama/qwen3:8b", None)
    );
    let nested = engine
        .model("openrouter/anthropic/claude-sonnet-4.5")
        .expect("known");
    assert!(
        nested
            .price
            .is_some_and(|price| price.cache_write > price.input)
    );
    assert!(engine.models(None).len() > 10 && engine.models(Some("nobody")).is_empty());
}

fn progress(chunks: &[serde_json::Value]) -> Progress {
    let mut progress = Progress {
        is_sent: true,
        ..Progress::default()
    };
    for chunk in chunks {
        progress.accumulator.push(Chunk::of("", chunk));
    }
    progress
}

/// RETRY-2, STREAM-6: what is visible decides whether a failure may be tried again.
#[test]
fn retry_2_nothing_is_tried_again_after_something_was_visible() {
    let text = json!({"choices": [{"delta": {"content": "Hel"}}]});
    let overloaded = json!({"error": {"type": "overloaded_error", "message": "busy"}});
    let ended = || Outcome::Ended(End::Stream);
    let judge = |outcome, chunks: &[serde_json::Value]| judge(outcome, &progress(chunks), "p", "m");
    let kind = |verdict| match verdict {
        Verdict::Failed(failure) => ("again", failure.error.kind),
        Verdict::Over(StopReason::Error, Some(error)) => ("error", error.kind),
        Verdict::Over(StopReason::Incomplete, Some(error)) => ("incomplete", error.kind),
        other @ Verdict::Over(..) => panic!("{other:?}"),
    };
    assert_eq!(
        kind(judge(ended(), std::slice::from_ref(&overloaded))),
        ("again", ErrorKind::Transient)
    );
    assert_eq!(
        kind(judge(ended(), &[text.clone(), overloaded])),
        ("error", ErrorKind::Transient)
    );
    assert_eq!(kind(judge(ended(), &[])), ("again", ErrorKind::Transient));
    assert_eq!(
        kind(judge(ended(), std::slice::from_ref(&text))),
        ("incomplete", ErrorKind::Transient)
    );
    assert_eq!(
        kind(judge(Outcome::TimedOut, &[])),
        ("incomplete", ErrorKind::Transient)
    );
    assert_eq!(
        kind(judge(Outcome::Left, &[text])),
        ("incomplete", ErrorKind::Transient)
    );
}

#[test]
fn what_was_paid_twice_is_in_the_sum() {
    let body = Body {
        json: vec![b' '; 41],
        tools: Vec::new(),
        left_out: Vec::new(),
    };
    let price = free().price.map(|price| Price {
        input: NanoUsd(10),
        output: NanoUsd(100),
        ..price
    });
    let mut ledger = Ledger::new("p/m".to_owned());
    // A refused request costs nothing; a stream that broke is estimated; one that was never sent does not count.
    ledger.enter(
        &body,
        &Progress {
            is_sent: true,
            is_refused: true,
            ..Progress::default()
        },
        price.as_ref(),
    );
    ledger.enter(&body, &Progress::default(), price.as_ref());
    ledger.enter(
        &body,
        &progress(&[json!({"choices": [{"delta": {"content": "12345"}}]})]),
        price.as_ref(),
    );
    ledger.enter(
        &body,
        &progress(&[json!({"usage": {"prompt_tokens": 7, "completion_tokens": 1}})]),
        price.as_ref(),
    );
    let sum = ledger.completion(StopReason::End, Vec::new(), None);
    assert_eq!(sum.attempts, 3);
    assert_eq!(
        sum.usage,
        Usage {
            input: 14 + 7,
            output: 2 + 1,
            estimated: true,
            ..Usage::default()
        }
    );
    assert_eq!(sum.cost, Some(NanoUsd(21 * 10 + 3 * 100)));
    let mut unpriced = Ledger::new("p/m".to_owned());
    unpriced.enter(&body, &progress(&[]), None);
    assert_eq!(
        unpriced.completion(StopReason::End, Vec::new(), None).cost,
        None
    );
}
