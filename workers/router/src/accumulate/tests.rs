//! What chunks of one attempt come to, however they are cut and mixed.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn accumulate(chunks: &[serde_json::Value]) -> Accumulator {
    let mut accumulator = Accumulator::default();
    for chunk in chunks {
        accumulator.push(Chunk::of("", chunk));
    }
    accumulator
}

fn delta(delta: &serde_json::Value) -> serde_json::Value {
    json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn finish(reason: &str) -> serde_json::Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn calls(chunks: &[serde_json::Value]) -> Vec<(String, String)> {
    accumulate(chunks)
        .into_parts(StopReason::Call)
        .into_iter()
        .filter_map(|part| match part {
            Part::Call { name, arguments } => Some((name, arguments)),
            Part::Text { .. } | Part::Thinking { .. } => None,
        })
        .collect()
}

fn call(
    index: Option<u64>,
    id: Option<&str>,
    name: Option<&str>,
    arguments: &str,
) -> serde_json::Value {
    let mut call = json!({"function": {"arguments": arguments}});
    if let Some(index) = index {
        call["index"] = json!(index);
    }
    if let Some(id) = id {
        call["id"] = json!(id);
    }
    if let Some(name) = name {
        call["function"]["name"] = json!(name);
    }
    delta(&json!({"tool_calls": [call]}))
}

fn two() -> Vec<(String, String)> {
    vec![
        ("f".to_owned(), "{\"a\":1}".to_owned()),
        ("g".to_owned(), "{\"b\":2}".to_owned()),
    ]
}

#[test]
fn stream_4_two_calls_at_index_zero_stay_apart() {
    let whole = |index, one, two| {
        [
            call(index, one, Some("f"), "{\"a\":1}"),
            call(index, two, Some("g"), "{\"b\":2}"),
        ]
    };
    assert_eq!(calls(&whole(Some(0), Some("a"), Some("b"))), two());
    assert_eq!(calls(&whole(None, Some("a"), Some("b"))), two());
    // A server that gives neither ids nor places still sends whole calls.
    assert_eq!(calls(&whole(Some(0), None, None)), two());
    assert_eq!(calls(&whole(None, None, None)), two());
}

#[test]
fn stream_4_pieces_continue_their_own_call() {
    // As OpenAI sends them: the id once, then the place alone, interleaved.
    assert_eq!(
        calls(&[
            call(Some(0), Some("a"), Some("f"), ""),
            call(Some(1), Some("b"), Some("g"), "{\"b\""),
            call(Some(0), None, None, "{\"a\":1}"),
            call(Some(1), None, None, ":2}"),
        ]),
        two()
    );
    // Two calls at place 0, in pieces.
    assert_eq!(
        calls(&[
            call(Some(0), Some("a"), Some("f"), "{\"a\""),
            call(Some(0), None, None, ":1}"),
            call(Some(0), Some("b"), Some("g"), ""),
            call(Some(0), None, None, "{\"b\":2}"),
        ]),
        two()
    );
    // Without a place: the last open call goes on.
    assert_eq!(
        calls(&[
            call(None, Some("a"), Some("f"), "{\"a\""),
            call(None, None, None, ":1}"),
            call(None, Some("b"), Some("g"), "{\"b\":"),
            call(None, Some("b"), None, "2}"),
        ]),
        two()
    );
    // The name and the id in every piece.
    assert_eq!(
        calls(&[
            call(Some(0), Some("a"), Some("f"), ""),
            call(Some(0), Some("a"), Some("f"), "{\"a\""),
            call(Some(0), Some("a"), Some("f"), ":1}"),
            call(Some(1), Some("b"), Some("g"), "{\"b\":2}"),
        ]),
        two()
    );
}

#[test]
fn stream_4_an_empty_object_before_the_arguments_is_a_placeholder() {
    assert_eq!(
        calls(&[
            call(Some(0), Some("a"), Some("f"), "{}"),
            call(Some(0), None, None, "{\"a\""),
            call(Some(0), None, None, ":1}"),
            call(Some(1), Some("b"), Some("g"), "{\"b\":2}"),
        ]),
        two()
    );
}

#[test]
fn hist_3_one_id_twice_in_one_answer_is_two_calls() {
    assert_eq!(
        calls(&[
            call(Some(0), Some("call_0"), Some("f"), "{\"a\":1}"),
            call(Some(1), Some("call_0"), Some("g"), "{\"b\":2}")
        ]),
        two()
    );
}

#[test]
fn stream_2_an_end_without_terminal_signal_is_a_cut() {
    let text = delta(&json!({"role": "assistant", "content": "Hel"}));
    let accumulator = accumulate(&[text.clone(), delta(&json!({"content": "lo"}))]);
    assert_eq!(accumulator.ending(), Ending::Cut);
    assert_eq!(
        accumulator.into_parts(StopReason::Incomplete),
        [Part::Text {
            text: "Hello".to_owned()
        }]
    );
    let mut done = accumulate(&[text]);
    done.done();
    assert_eq!(done.ending(), Ending::Stop(StopReason::End));
    assert_eq!(accumulate(&[]).ending(), Ending::Cut);
}

#[test]
fn stream_2_a_cut_call_never_comes_out() {
    let chunks = [
        delta(&json!({"content": "I read."})),
        call(Some(0), Some("a"), Some("f"), "{\"p\":"),
    ];
    let mut accumulator = accumulate(&chunks);
    accumulator.done();
    assert_eq!(accumulator.ending(), Ending::Cut);
    for stop in [
        StopReason::Incomplete,
        StopReason::Error,
        StopReason::Aborted,
        StopReason::Refused,
    ] {
        assert_eq!(
            accumulate(&chunks).into_parts(stop),
            [Part::Text {
                text: "I read.".to_owned()
            }]
        );
    }
}

#[test]
fn stream_5_length_inside_arguments_stops_as_length_and_keeps_usage() {
    let mut tail = finish("length");
    tail["usage"] = json!({"prompt_tokens": 3, "completion_tokens": 4});
    let accumulator = accumulate(&[call(Some(0), Some("a"), Some("f"), "{\"p\":"), tail]);
    assert_eq!(accumulator.ending(), Ending::Stop(StopReason::Length));
    assert_eq!(accumulator.usage().map(|usage| usage.total()), Some(7));
    assert_eq!(
        accumulator.into_parts(StopReason::Length),
        [Part::Call {
            name: "f".to_owned(),
            arguments: "{\"p\":".to_owned()
        }]
    );
}

#[test]
fn stream_5_each_reason_has_its_ending() {
    let text = delta(&json!({"content": "x"}));
    let whole = call(Some(0), Some("a"), Some("f"), "{}");
    let open = call(Some(0), Some("a"), Some("f"), "{");
    for (first, reason, want) in [
        (&text, "stop", Ending::Stop(StopReason::End)),
        (&whole, "stop", Ending::Stop(StopReason::Call)),
        (&text, "tool_calls", Ending::Stop(StopReason::End)),
        (&whole, "tool_calls", Ending::Stop(StopReason::Call)),
        // Malformed arguments under a terminal signal are the model's fault: it is told.
        (&open, "tool_calls", Ending::Stop(StopReason::Call)),
        (&text, "content_filter", Ending::Stop(StopReason::Refused)),
        (&text, "pause_turn", Ending::Paused),
        (&text, "novelty", Ending::Stop(StopReason::End)),
        (&whole, "novelty", Ending::Stop(StopReason::Call)),
        (&open, "novelty", Ending::Cut),
    ] {
        assert_eq!(
            accumulate(&[first.clone(), finish(reason)]).ending(),
            want,
            "{reason}"
        );
    }
    let refusal = accumulate(&[delta(&json!({"refusal": "I cannot"})), finish("stop")]);
    assert_eq!(refusal.ending(), Ending::Stop(StopReason::Refused));
}

#[test]
fn stream_6_an_error_after_text_is_a_failure_that_keeps_the_text() {
    let accumulator = accumulate(&[
        delta(&json!({"content": "Hel"})),
        json!({"error": {"code": 502, "message": "x"}, "choices": []}),
    ]);
    assert!(accumulator.is_over());
    let Ending::Failed(error) = accumulator.ending() else {
        panic!("a failure");
    };
    assert_eq!((error.status, error.message.as_str()), (Some(502), "x"));
    assert_eq!(accumulator.into_parts(StopReason::Error).len(), 1);
    assert!(matches!(
        accumulate(&[finish("error")]).ending(),
        Ending::Failed(_)
    ));
}

#[test]
fn stream_3_usage_is_taken_from_any_chunk() {
    let first = json!({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 0}});
    let last = json!({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}});
    let zeros = json!({"choices": [], "usage": {"prompt_tokens": 0, "completion_tokens": 0}});
    let usage =
        |chunks: &[serde_json::Value]| accumulate(chunks).usage().map(|usage| usage.total());
    assert_eq!(
        usage(&[first.clone(), finish("stop"), last.clone()]),
        Some(7)
    );
    assert_eq!(
        usage(&[first, delta(&json!({"content": "x"})), last, zeros.clone()]),
        Some(7)
    );
    assert_eq!(usage(&[zeros]), None);
}

#[test]
fn what_cannot_be_read_ends_the_answer_unless_it_was_whole() {
    let odd = delta(&json!({"content": 7}));
    let told = "`choices[0].delta.content` must be a text, and is the number 7";
    let malformed = Ending::Malformed(told.to_owned());
    let accumulator = accumulate(&[delta(&json!({"content": "Hel"})), odd.clone()]);
    assert!(accumulator.is_over());
    assert_eq!(accumulator.ending(), malformed);
    assert_eq!(accumulator.into_parts(StopReason::Incomplete).len(), 1);
    let last = json!({"choices": [{"delta": {"content": 7}, "finish_reason": "stop"}]});
    assert_eq!(accumulate(&[last]).ending(), malformed);
    let text = delta(&json!({"content": "x"}));
    let whole = accumulate(&[text, finish("stop"), odd.clone()]);
    assert_eq!(whole.ending(), Ending::Stop(StopReason::End));
    // An error says more.
    let error = json!({"error": {"message": "x"}, "choices": {}});
    assert!(matches!(accumulate(&[error]).ending(), Ending::Failed(_)));
}

#[test]
fn an_event_of_another_form_counts_where_nothing_was_said() {
    let mut empty = accumulate(&[finish("stop")]);
    empty.stray("a page".to_owned());
    assert_eq!(empty.ending(), Ending::Malformed("a page".to_owned()));
    let mut said = accumulate(&[delta(&json!({"content": "x"})), finish("stop")]);
    said.stray("a page".to_owned());
    assert_eq!(said.ending(), Ending::Stop(StopReason::End));
}

#[test]
fn hist_4_endless_arguments_are_cut_as_length() {
    let mut accumulator = accumulate(&[call(Some(0), Some("a"), Some("f"), "")]);
    let piece = "{".repeat(64 * 1024);
    for _ in 0..80 {
        accumulator.push(Chunk::of("", &call(Some(0), None, None, &piece)));
    }
    assert!(accumulator.is_over());
    assert_eq!(accumulator.ending(), Ending::Stop(StopReason::Length));
    assert!(accumulator.bytes() <= limits::COMPLETION_BYTES_MAX);
}

#[test]
fn hist_7_nothing_empty_comes_out() {
    let accumulator = accumulate(&[
        delta(&json!({"role": "assistant", "content": "", "reasoning": ""})),
        delta(&json!({"content": null, "tool_calls": [{"index": 0}]})),
        finish("stop"),
    ]);
    assert!(!accumulator.is_visible());
    assert_eq!(accumulator.ending(), Ending::Stop(StopReason::End));
    assert_eq!(accumulator.into_parts(StopReason::End), []);
}

proptest! {
    /// The deltas say what the parts say.
    #[test]
    fn deltas_and_parts_tell_the_same(texts in prop::collection::vec((any::<bool>(), "[a-z ]{0,4}"), 0..20)) {
        let mut accumulator = Accumulator::default();
        let mut seen = (String::new(), String::new());
        for (is_thinking, text) in &texts {
            let key = if *is_thinking { "reasoning" } else { "content" };
            for delta in accumulator.push(Chunk::of("", &delta(&json!({key: text})))) {
                match delta {
                    DeltaKind::Text { text } => seen.0.push_str(&text),
                    DeltaKind::Thinking { text } => seen.1.push_str(&text),
                    other => prop_assert!(false, "{other:?}"),
                }
            }
        }
        let mut said = (String::new(), String::new());
        for part in accumulator.into_parts(StopReason::End) {
            match part {
                Part::Text { text } => { prop_assert!(!text.is_empty()); said.0.push_str(&text); }
                Part::Thinking { text, .. } => { prop_assert!(!text.is_empty()); said.1.push_str(&text); }
                Part::Call { .. } => prop_assert!(false, "a call"),
            }
        }
        prop_assert_eq!(seen, said);
    }

    /// Whatever comes, the bound holds and nothing panics.
    #[test]
    fn the_bound_holds(pieces in prop::collection::vec((prop::option::of(0_u64..2), prop::option::of("[ab]{0,1}"), prop::option::of("f{0,2}"), 0_usize..90_000), 0..24)) {
        let mut accumulator = Accumulator::default();
        for (index, id, name, length) in pieces {
            accumulator.push(Chunk::of("", &call(index, id.as_deref(), name.as_deref(), &"{".repeat(length))));
        }
        prop_assert!(accumulator.bytes() <= limits::COMPLETION_BYTES_MAX);
        let said: usize = accumulator.into_parts(StopReason::Call).iter().map(|part| match part {
            Part::Call { name, arguments } => name.len() + arguments.len(),
            Part::Text { text } | Part::Thinking { text, .. } => text.len(),
        }).sum();
        prop_assert!(said <= limits::COMPLETION_BYTES_MAX);
    }
}
