//! Calls as their callers see them: answers, faults, silence, loss, late starts.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use futures::StreamExt as _;
use teamster_mesh::connection::Call;
use teamster_protocol::{Fault, FaultClass, Principal, limits};
use teamster_testkit::wait::within;

use crate::fixture::{LIMIT, Reply, call, function, join, mesh, open, served, session, text};

async fn fails(mesh: &teamster_mesh::Mesh, call: Call) -> Fault {
    within(LIMIT, "a fault", mesh.call(call))
        .await
        .expect_err("a fault")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_answered_with_what_its_function_says() {
    let (nats, mesh) = mesh().await;
    let worker = join(&nats, "echo").await;
    let _serving = served(
        &worker,
        "echo",
        vec![
            open("echo::say", |ctx, request| async move {
                Ok(Reply {
                    text: format!(
                        "{} {:?} {:?} {:?} {:?}",
                        request.text,
                        ctx.call,
                        ctx.session.map(|session| session.to_string()),
                        ctx.workspace,
                        ctx.principal,
                    ),
                })
            }),
            open("echo::fail", |_, _| async move {
                Err(Fault::denied("echo.no", "not\nthat")
                    .hint("ask")
                    .retry_after_ms(5))
            }),
        ],
    )
    .await;
    let mut full = call("echo::say", "hi");
    full.call = Some("call_1".to_owned());
    full.session = Some(session("a b"));
    full.workspace = Some("/w/ö".to_owned());
    assert_eq!(
        text(&mesh.call(full).await.expect("answered")),
        "hi Some(\"call_1\") Some(\"a b\") Some(\"/w/ö\") None"
    );
    assert_eq!(
        text(
            &mesh
                .call(call("echo::say", "bare"))
                .await
                .expect("answered")
        ),
        "bare None None None None"
    );
    // An empty body is the empty object.
    mesh.call(Call::new(function("echo::say"), Bytes::new()))
        .await
        .expect("answered");
    assert_eq!(
        fails(&mesh, call("echo::fail", "")).await,
        Fault::denied("echo.no", "not\nthat")
            .hint("ask")
            .retry_after_ms(5)
    );
    let bad = fails(&mesh, Call::new(function("echo::say"), "{\"text\":7}")).await;
    assert_eq!(
        (bad.code.as_str(), bad.class),
        ("mesh.bad_request", FaultClass::Caller)
    );
    assert!(bad.message.contains("echo::say"), "{bad}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operators_function_knows_its_principal() {
    let (_nats, mesh) = mesh().await;
    let mut function = open("desk::who", |ctx, _| async move {
        let text = ctx
            .principal
            .map_or_else(String::new, |who| who.to_string());
        Ok(Reply { text })
    });
    Arc::make_mut(&mut function.contract).visibility = teamster_protocol::Visibility::Operator;
    let _serving = served(&mesh, "desk", vec![function]).await;
    let mut as_owner = call("desk::who", "");
    as_owner.principal = Principal::parse("owner").ok();
    assert_eq!(text(&mesh.call(as_owner).await.expect("answered")), "owner");
    let fault = fails(&mesh, call("desk::who", "")).await;
    assert_eq!(fault.code, "mesh.no_responders");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_there_is_known_at_once() {
    let (_nats, mesh) = mesh().await;
    let began = Instant::now();
    let mut nobody = call("no::body", "");
    nobody.timeout = Duration::from_mins(10);
    let fault = fails(&mesh, nobody).await;
    assert_eq!(
        (fault.code.as_str(), fault.class),
        ("mesh.no_responders", FaultClass::Gone)
    );
    assert!(began.elapsed() < LIMIT);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_worker_without_signs_of_life_has_until_the_timeout() {
    let (nats, mesh) = mesh().await;
    let plain = async_nats::connect(nats.url()).await.expect("connected");
    let mut requests = plain.subscribe("fn.plain.echo").await.expect("subscribed");
    let mut silent = plain
        .subscribe("fn.plain.silent")
        .await
        .expect("subscribed");
    plain.flush().await.expect("flushed");
    mesh.flush().await.expect("flushed");
    tokio::spawn(async move {
        let mut asked = Vec::new();
        loop {
            tokio::select! {
                Some(request) = requests.next() => {
                    let reply = request.reply.expect("a reply subject");
                    plain.publish(reply, request.payload).await.expect("sent");
                }
                Some(request) = silent.next() => asked.push(request),
                else => return,
            }
        }
    });
    assert_eq!(
        text(&mesh.call(call("plain::echo", "x")).await.expect("answered")),
        "x"
    );
    let mut short = call("plain::silent", "");
    short.timeout = Duration::from_millis(300);
    let fault = fails(&mesh, short).await;
    assert_eq!(
        (fault.code.as_str(), fault.class),
        ("mesh.timeout", FaultClass::Busy)
    );
}

/// A call that takes longer than a callee may be silent: its signs of life keep it alive.
#[tokio::test(flavor = "multi_thread")]
async fn signs_of_life_carry_a_call_beyond_the_silence_limit() {
    let (_nats, mesh) = mesh().await;
    let slow = open("slow::work", |_, request| async move {
        teamster_testkit::wait::work(limits::CALL_SILENCE_MAX + Duration::from_millis(1500)).await;
        Ok(Reply { text: request.text })
    });
    let blocking = open("slow::block", |_, request| async move {
        // A handler that holds its thread, as one does that computes.
        let (_sender, never) = std::sync::mpsc::sync_channel::<()>(1);
        let _ = never.recv_timeout(limits::CALL_SILENCE_MAX + Duration::from_millis(1500));
        Ok(Reply { text: request.text })
    });
    let _serving = served(&mesh, "slow", vec![slow, blocking]).await;
    let (one, two) = tokio::join!(
        mesh.call(call("slow::work", "done")),
        mesh.call(call("slow::block", "done")),
    );
    assert_eq!(text(&one.expect("answered")), "done");
    assert_eq!(text(&two.expect("answered")), "done");
}

/// A callee that dies in the middle of a call is noticed by its silence.
#[tokio::test(flavor = "multi_thread")]
async fn a_callee_that_dies_in_the_middle_is_lost() {
    let (nats, mesh) = mesh().await;
    let dying = async_nats::connect(nats.url()).await.expect("connected");
    let mut requests = dying.subscribe("fn.dying.work").await.expect("subscribed");
    dying.flush().await.expect("flushed");
    mesh.flush().await.expect("flushed");
    tokio::spawn(async move {
        let request = requests.next().await.expect("a request");
        let mut headers = async_nats::HeaderMap::new();
        headers.insert("Teamster-Status", "running");
        let reply = request.reply.expect("a reply subject");
        dying
            .publish_with_headers(reply, headers, Bytes::new())
            .await
            .expect("sent");
        dying.flush().await.expect("flushed");
        // … and never again.
        std::future::pending::<()>().await;
    });
    let began = Instant::now();
    let fault = fails(&mesh, call("dying::work", "")).await;
    assert_eq!(
        (fault.code.as_str(), fault.class),
        ("mesh.callee_lost", FaultClass::Gone)
    );
    assert!(began.elapsed() >= limits::CALL_SILENCE_MAX);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_beyond_its_contracts_time_is_ended() {
    let (_nats, mesh) = mesh().await;
    let (told, mut cancelled) = tokio::sync::watch::channel(false);
    let mut function = open("slow::work", move |ctx, _| {
        let told = told.clone();
        async move {
            ctx.cancel.cancelled().await;
            told.send_replace(true);
            Ok(Reply {
                text: String::new(),
            })
        }
    });
    Arc::make_mut(&mut function.contract).timeout_ms = Some(200);
    let _serving = served(&mesh, "slow", vec![function]).await;
    let fault = fails(&mesh, call("slow::work", "")).await;
    assert_eq!(fault.code, "mesh.timeout");
    within(LIMIT, "the handler is told", cancelled.wait_for(|is| *is))
        .await
        .expect("told");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_comes_too_late_is_not_begun() {
    let (_nats, mesh) = mesh().await;
    let ran = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let count = std::sync::Arc::clone(&ran);
    let function = open("late::work", move |_, _| {
        count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        async move {
            Ok(Reply {
                text: String::new(),
            })
        }
    });
    let _serving = served(&mesh, "late", vec![function]).await;
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970");
    let now = u64::try_from(now.as_millis()).expect("fits");
    for (id, not_after_ms, is_begun) in [
        (None, now - 1000, false),
        (Some("c1"), now - 1000, false),
        (Some("c2"), now + 600_000, true),
        // The answer to a call that was begun in time is given again at any time.
        (Some("c2"), now - 1000, true),
    ] {
        let mut late = call("late::work", "");
        late.call = id.map(str::to_owned);
        late.not_after_ms = Some(not_after_ms);
        match mesh.call(late).await {
            Ok(_) => assert!(is_begun, "{id:?}"),
            Err(fault) => {
                assert!(!is_begun, "{id:?} {fault}");
                assert_eq!(
                    (fault.code.as_str(), fault.class),
                    ("mesh.too_late", FaultClass::Gone)
                );
            }
        }
    }
    assert_eq!(ran.load(std::sync::atomic::Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_large_is_a_fault_on_either_side() {
    let (_nats, mesh) = mesh().await;
    let function = open("big::reply", |_, _| async move {
        Ok(Reply {
            text: "x".repeat(limits::PAYLOAD_BYTES_MAX),
        })
    });
    let _serving = served(&mesh, "big", vec![function]).await;
    let fault = fails(&mesh, call("big::reply", "")).await;
    assert_eq!(
        (fault.code.as_str(), fault.class),
        ("mesh.reply_too_large", FaultClass::Internal)
    );
    let body = vec![b' '; limits::PAYLOAD_BYTES_MAX + 1];
    let fault = fails(&mesh, Call::new(function_id(), body)).await;
    assert_eq!(
        (fault.code.as_str(), fault.class),
        ("mesh.too_large", FaultClass::Caller)
    );
}

fn function_id() -> teamster_protocol::FunctionId {
    function("big::reply")
}

/// The connection breaks while a call runs: the answer is lost with it, the caller hears of it in bounded time, and the outcome
/// can be had.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_across_a_restart_of_the_broker_has_an_outcome() {
    let (mut nats, mesh) = mesh().await;
    let worker = join(&nats, "slow").await;
    let (started, mut has_started) = tokio::sync::watch::channel(false);
    let release = std::sync::Arc::new(tokio::sync::Notify::new());
    let hold = std::sync::Arc::clone(&release);
    let function_to_serve = open("slow::work", move |_, _| {
        let (started, hold) = (started.clone(), std::sync::Arc::clone(&hold));
        async move {
            started.send_replace(true);
            hold.notified().await;
            Ok(Reply {
                text: "done".to_owned(),
            })
        }
    });
    let _serving = served(&worker, "slow", vec![function_to_serve]).await;
    let mut work = call("slow::work", "");
    work.call = Some("c1".to_owned());
    let calling = tokio::spawn({
        let mesh = mesh.clone();
        async move { mesh.call(work).await }
    });
    within(LIMIT, "the call runs", has_started.wait_for(|is| *is))
        .await
        .expect("started");
    nats.kill().await;
    release.notify_one();
    nats.restart().await;
    // Either the answer was sent after the connection stood again, or its loss is noticed.
    match within(LIMIT, "the caller hears", calling)
        .await
        .expect("ran")
    {
        Ok(reply) => assert_eq!(text(&reply), "done"),
        Err(fault) => assert_eq!(fault.code, "mesh.callee_lost"),
    }
    let outcome = mesh
        .call_outcome(&function("slow::work"), "c1", LIMIT)
        .await
        .expect("asked")
        .expect("known");
    assert_eq!(text(&outcome.expect("a reply")), "done");
}

/// The connection breaks before a call has shown any life, and its answer is lost with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_answer_is_lost_is_noticed_and_its_outcome_is_found() {
    let (nats, direct) = mesh().await;
    let (proxy, mesh) = crate::fixture::behind(&nats, "harness").await;
    let function_to_serve = open("quick::work", |_, request| async move {
        Ok(Reply { text: request.text })
    });
    let _serving = served(&direct, "quick", vec![function_to_serve]).await;
    let hold = proxy.hold_answer("fn.quick.", 1);
    let mut work = call("quick::work", "x");
    work.call = Some("c1".to_owned());
    let calling = tokio::spawn({
        let mesh = mesh.clone();
        async move { mesh.call(work).await }
    });
    hold.reached(LIMIT).await;
    teamster_testkit::wait::until(LIMIT, "the call has ended", || async {
        let asked = direct
            .call_outcome(&function("quick::work"), "c1", LIMIT)
            .await;
        asked.expect("asked").is_some()
    })
    .await;
    hold.cut();
    let fault = within(LIMIT, "the caller hears", calling)
        .await
        .expect("ran");
    assert_eq!(fault.expect_err("a fault").code, "mesh.callee_lost");
    let outcome = mesh
        .call_outcome(&function("quick::work"), "c1", LIMIT)
        .await;
    let reply = outcome.expect("asked").expect("known").expect("a reply");
    assert_eq!(text(&reply), "x");
}
