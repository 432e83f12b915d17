//! Questions about one session and about all: what was committed before they were asked is in the answer.

use teamster_protocol::{
    Message, Phase,
    function::session::{
        GetRequest, ListReply, ListRequest, MessagesReply, MessagesRequest, SessionInfo,
        StatusReply,
    },
};

use crate::rig::{Rig, Writer, answered, began, created, ended, said, session};

/// A turn of two messages.
pub(crate) async fn turn(writer: &mut Writer, number: u64, question: &str, answer: &str) {
    writer
        .commit(Phase::Active, vec![said(question), began(number)])
        .await;
    let n = writer.n;
    writer
        .commit(
            Phase::Idle,
            vec![answered(n, answer, "test/m", 10, Some(5)), ended(number)],
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_committed_before_a_question_is_in_its_answer() {
    let rig = Rig::start().await;
    let mut one = begun(&rig, "one").await;
    for number in 1..=10 {
        turn(&mut one, number, "ask", &format!("answer {number}")).await;
        let info: SessionInfo = rig
            .ask(
                "session::get",
                &GetRequest {
                    session_id: session("one"),
                },
            )
            .await
            .expect("it is there");
        assert_eq!((info.turns, info.commits), (number, 1 + 2 * number));
        assert_eq!(info.messages, 2 * number);
        assert_eq!(info.preview, Some(format!("answer {number}")));
        assert_eq!((info.usage.output, info.cost.0), (10 * number, 5 * number));
    }
    let part: MessagesReply = rig
        .ask(
            "session::messages",
            &MessagesRequest {
                session_id: session("one"),
                skip: 18,
                limit: None,
            },
        )
        .await
        .expect("a transcript");
    assert_eq!(part.total, 20);
    let [question, answer] = part.messages.as_slice() else {
        panic!("the last two: {part:?}");
    };
    assert!(matches!(&question.message, Message::User { text, .. } if text == "ask"));
    assert_eq!((question.n, answer.n), (20, 21));
    let gone = rig
        .ask::<_, SessionInfo>(
            "session::get",
            &GetRequest {
                session_id: session("two"),
            },
        )
        .await
        .expect_err("nobody made it");
    assert_eq!(gone.code, "session.not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_goes_on_where_it_was_and_holds_each_session_once() {
    let rig = Rig::start().await;
    for index in 0..7 {
        let mut writer = Writer::new(&rig.mesh, &format!("s{index}"));
        writer.commit(Phase::Idle, vec![created("x")]).await;
    }
    let mut names = Vec::new();
    let mut after = None;
    loop {
        let request = ListRequest {
            limit: Some(3),
            after,
            ..ListRequest::default()
        };
        let reply: ListReply = rig.ask("session::list", &request).await.expect("a list");
        assert!(reply.sessions.len() <= 3);
        names.extend(
            reply
                .sessions
                .into_iter()
                .map(|one| one.session_id.to_string()),
        );
        after = reply.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(names, ["s6", "s5", "s4", "s3", "s2", "s1", "s0"]);
    let status: StatusReply = rig
        .ask("session::status", &serde_json::json!({}))
        .await
        .expect("a status");
    assert_eq!((status.sessions, status.commits, status.behind), (7, 7, 0));
}

/// DUR-6: a long session costs as much for each turn as a short one: what is stored is what is new.
#[tokio::test(flavor = "multi_thread")]
async fn dur_6_the_projection_grows_with_what_is_new() {
    let rig = Rig::start().await;
    let mut one = begun(&rig, "one").await;
    let answer = "an answer of some length ".repeat(80);
    let mut sizes = Vec::new();
    for part in 0..3 {
        for number in 1..=50 {
            turn(&mut one, 50 * part + number, "ask", &answer).await;
        }
        let status: StatusReply = rig
            .ask("session::status", &serde_json::json!({}))
            .await
            .expect("a status");
        // Asked only once it holds everything.
        let _: ListReply = rig
            .ask("session::list", &ListRequest::default())
            .await
            .expect("a list");
        let again: StatusReply = rig
            .ask("session::status", &serde_json::json!({}))
            .await
            .expect("a status");
        assert!(again.file_bytes >= status.file_bytes);
        sizes.push(again.file_bytes);
    }
    let (second, third) = (sizes[1] - sizes[0], sizes[2] - sizes[1]);
    let new = 50 * answer.len() as u64;
    assert!(third < 2 * second.max(new), "{sizes:?}");
    assert!(third < 4 * new, "{third} bytes for {new} new ones");
}

/// A session that was created.
async fn begun(rig: &Rig, name: &str) -> Writer {
    let mut writer = Writer::new(&rig.mesh, name);
    writer.commit(Phase::Idle, vec![created("First")]).await;
    writer
}
