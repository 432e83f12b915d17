//! What is read from a wire: every split, every cut, every error inside of a stream.

use std::time::{Duration, Instant};

use serde_json::json;
use teamster_protocol::{
    function::router::{DeltaKind, ErrorKind, Part},
    limits,
    message::StopReason,
};
use teamster_router::engine::Stop;
use teamster_testkit::{
    ModelServer,
    model::{Gate, Reply, Script},
    wait,
};

use crate::{
    dialect::{self, Dialect},
    support::{LIMIT, calls, engine, generate, patient, request, text},
};

/// How long a server may be silent in the test of silence.
const SILENCE: Duration = Duration::from_millis(1500);

/// A server that answers the n-th request with `reply(n)`.
async fn numbered(reply: impl Fn(usize) -> Reply + Send + Sync + 'static) -> ModelServer {
    ModelServer::start(Script::answer(move |request| reply(request.number))).await
}

#[tokio::test]
async fn stream_1_every_dialect_is_read_byte_by_byte() {
    for dialect in dialect::all() {
        let stream = dialect.stream.clone();
        let server = numbered(move |number| match number {
            0 => Reply::stream().body(&stream),
            _ => Reply::stream().byte_by_byte(stream.as_bytes()),
        })
        .await;
        let engine = engine(&server);
        for how in ["at once", "byte by byte"] {
            let (completion, deltas) = generate(&engine, &request("s.1.1")).await;
            dialect.assert_whole(&completion, how);
            let shown: String = deltas
                .iter()
                .filter_map(|delta| match delta {
                    DeltaKind::Text { text } => Some(text.as_str()),
                    _ => None,
                })
                .collect();
            assert_eq!(shown, text(&completion), "{}, {how}", dialect.name);
        }
    }
}

#[tokio::test]
async fn stream_1_every_split_of_every_dialect_gives_the_same() {
    for dialect in dialect::all() {
        let bytes = dialect.stream.clone().into_bytes();
        let stream = bytes.clone();
        let server = numbered(move |at| {
            let (head, tail) = stream.split_at(at.min(stream.len()));
            Reply::stream().raw(head).raw(tail)
        })
        .await;
        let engine = engine(&server);
        for at in 0..bytes.len() {
            let (completion, _) = generate(&engine, &request("s.1.1")).await;
            dialect.assert_whole(&completion, &format!("split at {at}"));
        }
        assert!(server.connections() <= 2, "connections are used again");
    }
}

/// What may come out of a stream that was cut at some place.
fn assert_part(
    dialect: &Dialect,
    completion: &teamster_protocol::function::router::Completion,
    at: usize,
) {
    let name = dialect.name;
    if completion.stop == dialect.stop {
        assert_eq!(completion.parts, dialect.parts, "{name}, cut at {at}");
        return;
    }
    let error = completion.error.as_ref().expect("an error");
    assert_eq!(error.kind, ErrorKind::Transient, "{name}, cut at {at}");
    assert!(
        calls(completion).is_empty(),
        "{name}, cut at {at}: a call came out"
    );
    let want = if completion.parts.is_empty() {
        // Either nothing was said, or only a call, which does not come out.
        [StopReason::Error, StopReason::Incomplete].contains(&completion.stop)
    } else {
        completion.stop == StopReason::Incomplete
    };
    assert!(want, "{name}, cut at {at}: {:?}", completion.stop);
    for (part, whole) in completion.parts.iter().zip(&dialect.parts) {
        let is_head = match (part, whole) {
            (Part::Text { text }, Part::Text { text: whole })
            | (Part::Thinking { text, .. }, Part::Thinking { text: whole, .. }) => {
                whole.starts_with(text.as_str())
            }
            _ => false,
        };
        assert!(is_head, "{name}, cut at {at}: {part:?}");
    }
}

#[tokio::test]
async fn stream_2_every_cut_of_every_dialect_is_incomplete_or_whole() {
    for dialect in dialect::all() {
        let bytes = dialect.stream.clone().into_bytes();
        let stream = bytes.clone();
        let server = numbered(move |at| {
            let reply = Reply::stream().raw(stream.get(..at).unwrap_or_default());
            // The connection breaks, or the body ends as if it were whole.
            if at % 2 == 0 { reply.cut() } else { reply }
        })
        .await;
        let engine = engine(&server);
        for at in 0..bytes.len() {
            let (completion, _) = generate(&engine, &request("s.1.1")).await;
            assert_part(&dialect, &completion, at);
        }
    }
}

#[tokio::test]
async fn stream_2_a_cut_after_text_keeps_it_and_is_not_tried_again() {
    let server = numbered(|_| {
        Reply::stream()
            .delta(&json!({"role": "assistant", "content": ""}))
            .text("one ")
            .text("two ")
            .text("three")
            .cut()
    })
    .await;
    let (completion, _) = generate(&patient(&server), &request("s.1.1")).await;
    assert_eq!(
        (completion.stop, text(&completion).as_str()),
        (StopReason::Incomplete, "one two three")
    );
    assert_eq!(
        completion.error.map(|error| error.kind),
        Some(ErrorKind::Transient)
    );
    assert_eq!((completion.attempts, server.count()), (1, 1));
    assert!(
        completion.usage.estimated && completion.usage.output > 0 && completion.usage.input > 0
    );
}

#[tokio::test]
async fn stream_3_chunks_without_choices_do_not_disturb_and_their_usage_counts() {
    let server = numbered(|_| {
        Reply::stream()
            .event(&json!({"choices": [], "prompt_filter_results": [{"prompt_index": 0}]}))
            .text("ok")
            .finish("stop")
            .usage(5, 2)
    })
    .await;
    let (completion, _) = generate(&engine(&server), &request("s.1.1")).await;
    assert_eq!(
        (completion.stop, text(&completion).as_str()),
        (StopReason::End, "ok")
    );
    assert_eq!(
        (completion.usage.total(), completion.usage.estimated),
        (7, false)
    );
}

/// COST-2: a stream that ends well and reports nothing, or zeros, is charged by what went over the wire, and says so.
#[tokio::test]
async fn cost_2_a_stream_without_usage_is_charged_by_an_estimate() {
    let server = numbered(|number| {
        let reply = Reply::stream().text(&"word ".repeat(100)).finish("stop");
        if number == 0 {
            reply.done()
        } else {
            reply.usage(0, 0).done()
        }
    })
    .await;
    let engine = engine(&server);
    for _ in 0..2 {
        let (completion, _) = generate(&engine, &request("s.1.1")).await;
        assert_eq!(completion.stop, StopReason::End);
        let usage = completion.usage;
        assert!(usage.estimated && usage.input > 0, "{usage:?}");
        assert!(usage.output >= 100, "a word is a token: {usage:?}");
    }
}

#[tokio::test]
async fn stream_4_two_calls_at_index_zero_or_none_stay_apart_on_the_wire() {
    let server = numbered(|number| {
        let call = |id: &str, path: &str| {
            let mut call = json!({"id": id, "type": "function", "function": {"name": "fs__read", "arguments": format!("{{\"path\":\"{path}\"}}")}});
            if number == 0 {
                call["index"] = json!(0);
            }
            json!({"tool_calls": [call]})
        };
        Reply::stream().delta(&call("a", "1")).delta(&call("b", "2")).finish("tool_calls").done()
    })
    .await;
    let engine = engine(&server);
    for _ in 0..2 {
        let (completion, deltas) = generate(&engine, &request("s.1.1")).await;
        assert_eq!(
            calls(&completion),
            [
                ("fs__read", "{\"path\":\"1\"}"),
                ("fs__read", "{\"path\":\"2\"}")
            ]
        );
        let begun = deltas
            .iter()
            .filter(|delta| matches!(delta, DeltaKind::Call { .. }))
            .count();
        assert_eq!(begun, 2);
    }
}

#[tokio::test]
async fn stream_5_an_answer_over_the_bound_is_cut_as_length() {
    let server = numbered(|_| {
        let piece = "x".repeat(32 * 1024);
        (0..20)
            .fold(Reply::stream(), |reply, _| reply.text(&piece))
            .finish("stop")
            .done()
    })
    .await;
    let (completion, _) = generate(&engine(&server), &request("s.1.1")).await;
    assert_eq!(completion.stop, StopReason::Length);
    assert_eq!(text(&completion).len(), limits::COMPLETION_BYTES_MAX);
    assert!(completion.usage.estimated);
}

#[tokio::test]
async fn stream_6_an_error_inside_of_every_dialect_ends_it_with_its_text() {
    let error =
        "data: {\"error\":{\"code\":502,\"message\":\"upstream broke\"},\"choices\":[]}\n\n";
    for dialect in dialect::all() {
        let stream = dialect.stream.clone();
        let ends: Vec<usize> = stream
            .match_indices("\n\n")
            .map(|(at, end)| at + end.len())
            .collect();
        let places = ends.clone();
        let server = numbered(move |number| {
            let head = stream.get(..places[number]).unwrap_or_default();
            Reply::stream().body(head).body(error)
        })
        .await;
        let engine = engine(&server);
        for at in ends {
            let head = dialect.stream.get(..at).unwrap_or_default();
            let (completion, _) = generate(&engine, &request("s.1.1")).await;
            if head.contains("[DONE]") {
                dialect.assert_whole(&completion, "an error after the end");
                continue;
            }
            let error = completion.error.as_ref().expect("an error");
            assert_eq!(
                (completion.stop, error.kind),
                (StopReason::Error, ErrorKind::Transient),
                "{}",
                dialect.name
            );
            assert!(
                error.message.contains("upstream broke"),
                "{}",
                error.message
            );
            assert!(
                calls(&completion).is_empty(),
                "{}: a call came out of a failed answer",
                dialect.name
            );
        }
    }
}

#[tokio::test]
async fn wrong_types_in_a_stream_are_told_with_their_place() {
    let call = |call: serde_json::Value| json!({"choices": [{"delta": {"tool_calls": [call]}}]});
    let events = [
        (
            json!({"choices": {"0": {"delta": {"content": "x"}}}}),
            "`choices` must be a list, and is an object with the keys 0",
        ),
        (
            json!({"choices": [{"delta": "hello"}]}),
            "`choices[0].delta` must be an object, and is the text \"hello\"",
        ),
        (
            json!({"choices": [{"delta": {"content": 42}}]}),
            "`choices[0].delta.content` must be a text, and is the number 42",
        ),
        (
            call(
                json!({"index": "first", "id": "a", "function": {"name": "f", "arguments": "{}"}}),
            ),
            "`choices[0].delta.tool_calls[0].index` must be a number, and is the text \"first\"",
        ),
        (json!([1, 2]), "an event is no JSON object but `[1,2]`"),
    ];
    let sent: Vec<_> = events.iter().map(|(event, _)| event.clone()).collect();
    let server = numbered(move |number| {
        let event = &sent[number % sent.len()];
        Reply::stream().event(event).finish("stop").done()
    })
    .await;
    let engine = engine(&server);
    for (event, want) in &events {
        let (completion, _) = generate(&engine, &request("s.1.1")).await;
        let error = completion.error.as_ref().expect("an error");
        assert_eq!(
            (completion.stop, error.kind),
            (StopReason::Error, ErrorKind::Transient),
            "{event}"
        );
        assert!(
            error.message.contains("cannot be read") && error.message.contains(want),
            "{event}: {}",
            error.message
        );
        assert!(error.hint.is_some(), "{event}");
    }
}

#[tokio::test]
async fn stream_7_comments_are_signs_of_life() {
    let gates: Vec<Gate> = (0..4).map(|_| Gate::new()).collect();
    let held = gates.clone();
    let server = numbered(move |number| {
        let stream = Reply::stream();
        if number > 0 {
            return stream.hang();
        }
        let stream = held.iter().fold(stream, |reply, gate| {
            reply.gate(gate).body(": PROCESSING\n\n")
        });
        stream.text("ok").finish("stop").done()
    })
    .await;
    let config = crate::support::config(
        &server,
        &format!("idle_timeout_ms: {}", SILENCE.as_millis()),
    );
    let engine = teamster_router::Engine::new(&config);
    let (asked, stop, mut deltas) = (request("s.1.1"), Stop::default(), Vec::new());
    let generated = engine.generate(&asked, &stop, &mut deltas);
    let opened = async {
        for gate in &gates {
            gate.reached(LIMIT).await;
            // Each silence is shorter than the limit, all of them together are longer.
            let began = Instant::now();
            wait::until(LIMIT, "a third of the limit is over", || async {
                began.elapsed() >= SILENCE / 3
            })
            .await;
            gate.open();
        }
    };
    let (completion, ()) = tokio::join!(generated, opened);
    assert_eq!(
        (completion.stop, text(&completion).as_str()),
        (StopReason::End, "ok")
    );

    // Silence is the end, and is not tried again.
    let (completion, _) = generate(&engine, &request("s.1.2")).await;
    let error = completion.error.expect("an error");
    assert_eq!(
        (completion.stop, error.kind, server.count()),
        (StopReason::Error, ErrorKind::Transient, 2)
    );
    assert!(error.message.contains("silent"), "{}", error.message);
}

#[tokio::test]
async fn an_answer_without_a_stream_is_taken_too() {
    let server = numbered(|number| {
        let message = json!({"role": "assistant", "content": "hi", "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "fs__list", "arguments": "{}"}}]});
        let answer = json!({"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 2}});
        match number {
            0 => Reply::status(200).json(&answer),
            1 => Reply::status(200).chunked("text/event-stream").byte_by_byte(answer.to_string().as_bytes()),
            2 => Reply::status(200).json(&json!({"error": {"message": "no such model", "code": 404}})),
            _ => Reply::status(200).chunked("application/json").body("{\"choices\":[{\"mess"),
        }
    })
    .await;
    let engine = engine(&server);
    for _ in 0..2 {
        let (completion, _) = generate(&engine, &request("s.1.1")).await;
        assert_eq!(
            (completion.stop, completion.usage.total()),
            (StopReason::Call, 5)
        );
        assert_eq!(
            (text(&completion).as_str(), calls(&completion).len()),
            ("hi", 1)
        );
    }
    for want in [ErrorKind::Rejected, ErrorKind::Transient] {
        let (completion, _) = generate(&engine, &request("s.1.1")).await;
        assert_eq!(completion.error.map(|error| error.kind), Some(want));
    }
}

#[tokio::test]
async fn a_server_that_keeps_the_stream_open_after_the_end_is_not_waited_for() {
    let gate = Gate::new();
    let held = gate.clone();
    let server = numbered(move |_| {
        Reply::stream()
            .text("ok")
            .finish("stop")
            .usage(1, 1)
            .done()
            .gate(&held)
    })
    .await;
    let (completion, _) = generate(&engine(&server), &request("s.1.1")).await;
    assert_eq!(
        (completion.stop, completion.usage.total()),
        (StopReason::End, 2)
    );
    assert!(!gate.is_reached() || server.left() <= 1);
}

#[tokio::test]
async fn silence_after_the_finish_reason_is_an_end_and_no_failure() {
    let gate = Gate::new();
    let held = gate.clone();
    let server =
        numbered(move |_| Reply::stream().text("ok").finish("stop").gate(&held).done()).await;
    let config = crate::support::config(&server, "idle_timeout_ms: 500");
    let engine = teamster_router::Engine::new(&config);
    let (completion, _) = generate(&engine, &request("s.1.1")).await;
    assert_eq!(
        (
            completion.stop,
            text(&completion).as_str(),
            completion.error
        ),
        (StopReason::End, "ok", None)
    );
    assert!(completion.usage.estimated && !gate.is_open());
}

#[tokio::test]
async fn an_abort_closes_the_connection_and_keeps_what_was_said() {
    let gate = Gate::new();
    let held = gate.clone();
    let server = numbered(move |_| {
        Reply::stream()
            .text("so far")
            .call(0, "a", "fs__read", "{\"p\"")
            .gate(&held)
            .finish("stop")
    })
    .await;
    let engine = engine(&server);
    let (asked, stop, mut deltas) = (request("s.1.1"), Stop::default(), Vec::new());
    let generated = engine.generate(&asked, &stop, &mut deltas);
    let aborted = async {
        gate.reached(LIMIT).await;
        wait::until(LIMIT, "the router has read", || async {
            server.count() == 1
        })
        .await;
        // The pieces are on their way; the abort may come before or after them.
        stop.abort.cancel();
    };
    let (completion, ()) = tokio::join!(generated, aborted);
    assert_eq!(
        (completion.stop, completion.error),
        (StopReason::Aborted, None)
    );
    assert!(
        completion
            .parts
            .iter()
            .all(|part| !matches!(part, Part::Call { .. }))
    );
    wait::until(LIMIT, "the connection is closed", || async {
        server.left() == 1
    })
    .await;
}
