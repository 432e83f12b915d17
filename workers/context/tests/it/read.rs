//! `context::read`.

use teamster_context::Config;
use teamster_protocol::{fault::FaultClass, function::context::ReadRequest, limits};

use crate::rig::{LIMIT, Rig, Writer, call, session};

fn request(n: u64) -> ReadRequest {
    ReadRequest {
        call: call(n),
        offset: 0,
        length: None,
    }
}

/// CTX-5: small results come from the log, large ones from what was stored; pages join to the whole without loss.
#[tokio::test(flavor = "multi_thread")]
async fn ctx_5_results_are_read_whole_page_by_page() {
    let rig = Rig::start(&Config::default()).await;
    let mut writer = Writer::new(&rig, "s", "go").await;
    let lines: Vec<String> = (0..9000).map(|line| format!("{line} 中文 🦀")).collect();
    let large = lines.join("\n");
    assert!(large.len() > 4 * limits::RESULT_BYTES_MAX);
    writer.step(1, "the id is 8842").await;
    writer.step(2, &large).await;
    assert_eq!(
        rig.read_whole(&session("s"), 1).await,
        ("the id is 8842".to_owned(), 1)
    );
    let (text, pages) = rig.read_whole(&session("s"), 2).await;
    assert!(text == large, "{} of {} bytes", text.len(), large.len());
    assert!(pages > 8, "{pages}");
    let part = ReadRequest {
        offset: 5,
        length: Some(7),
        ..request(1)
    };
    let reply = rig.read(&session("s"), &part).await.expect("a page");
    assert_eq!(
        (reply.text.as_str(), reply.bytes, reply.next),
        ("d is 88", 14, Some(12))
    );
    // What is new is read too.
    writer.step(3, "later").await;
    assert_eq!(rig.read_whole(&session("s"), 3).await.0, "later");
}

/// CTX-5: a session reads its own results and no other's; without a session there is nothing to read.
#[tokio::test(flavor = "multi_thread")]
async fn ctx_5_a_session_never_sees_another_ones_results() {
    let rig = Rig::start(&Config::default()).await;
    let mut writer = Writer::new(&rig, "a", "go").await;
    writer.step(1, "secret of a").await;
    Writer::new(&rig, "b", "go").await;
    let fault = rig
        .read(&session("b"), &request(1))
        .await
        .expect_err("not b's");
    assert_eq!(
        (fault.code.as_str(), fault.class),
        ("context.no_result", FaultClass::Gone)
    );
    let fault = rig
        .read(&session("c"), &request(1))
        .await
        .expect_err("no session");
    assert_eq!(fault.code, "context.no_session");
    let nobody: Result<serde_json::Value, _> =
        rig.call("context::read", None, &request(1), LIMIT).await;
    assert_eq!(nobody.expect_err("nobody").code, "context.no_caller");
}
