//! Full-text search.

use teamster_protocol::{
    Phase,
    function::session::{Hit, SearchReply, SearchRequest},
};

use crate::{
    ask::turn,
    rig::{Rig, Writer, began, created, finished, proposed, said, session},
};

async fn find(rig: &Rig, query: &str) -> Vec<Hit> {
    let request = SearchRequest {
        query: query.to_owned(),
        session_id: None,
        limit: None,
    };
    let reply: SearchReply = rig
        .ask("session::search", &request)
        .await
        .unwrap_or_else(|fault| panic!("{query}: {fault}"));
    reply.hits
}

async fn library(rig: &Rig) {
    let mut one = Writer::new(&rig.mesh, "one");
    one.commit(Phase::Idle, vec![created("Foxes")]).await;
    turn(
        &mut one,
        1,
        "The quick brown fox",
        "jumps over the lazy dog",
    )
    .await;
    turn(&mut one, 2, "Über-Größe und Café", "東京タワーは高い").await;
    let mut two = Writer::new(&rig.mesh, "two");
    two.commit(
        Phase::Active,
        vec![created("Code"), said("call fs::read(a->b) 100%"), began(1)],
    )
    .await;
    two.commit(Phase::Active, proposed(2, 1)).await;
    two.commit(Phase::Active, vec![finished(1, "written to brown.txt")])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn words_are_found_in_messages_answers_and_results() {
    let rig = Rig::start().await;
    library(&rig).await;
    for (query, want) in [
        ("fox", vec![("one", 2, "user")]),
        ("LAZY dog", vec![("one", 3, "assistant")]),
        ("quick dog", vec![]),
        (r#""brown fox""#, vec![("one", 2, "user")]),
        (r#""fox brown""#, vec![]),
        ("jum*", vec![("one", 3, "assistant")]),
        ("jum", vec![]),
        ("grosse", vec![]),
        ("uber cafe", vec![("one", 4, "user")]),
        ("CAFÉ größe", vec![("one", 4, "user")]),
        ("cafe\u{301}", vec![("one", 4, "user")]),
        ("タワー", vec![("one", 5, "assistant")]),
        ("京 高い", vec![("one", 5, "assistant")]),
        ("->", vec![("two", 1, "user")]),
        (r#""a->b""#, vec![("two", 1, "user")]),
        (r#""a-->b""#, vec![]),
        ("0%", vec![]),
        ("100%", vec![("two", 1, "user")]),
        ("brown.txt", vec![("two", 3, "function_result")]),
    ] {
        let found: Vec<(String, u64, String)> = find(&rig, query)
            .await
            .into_iter()
            .map(|hit| (hit.session_id.to_string(), hit.n, hit.role))
            .collect();
        let want: Vec<(String, u64, String)> = want
            .into_iter()
            .map(|(session, n, role)| (session.to_owned(), n, role.to_owned()))
            .collect();
        assert_eq!(found, want, "{query}");
    }
    let hits = find(&rig, "brown").await;
    assert_eq!(hits.len(), 2);
    assert!(hits.iter().all(|hit| hit.snippet.contains("⟦brown⟧")));
    assert_eq!(find(&rig, "高い").await[0].snippet, "東京タワーは⟦高い⟧");
}

/// What a person types is never read as syntax of the index.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_typed_is_no_syntax() {
    let rig = Rig::start().await;
    library(&rig).await;
    for query in [
        "text:fox",
        "fox OR dog",
        "fox NOT dog",
        "NEAR(fox dog)",
        "^fox",
        "fox + dog",
        "{text} : fox",
        "-fox",
        "*",
        "* fox",
        "fox**",
        "'; DROP TABLE session; --",
        "fox AND",
        "(",
        ")",
        "a\u{0}b",
        "%",
        "_",
        "\\",
        "\\%",
        "\u{fffd}\u{202e}",
        "ﬁ Ⓐ",
    ] {
        // Found or not, but never an error.
        let hits = find(&rig, query).await;
        assert!(hits.len() <= 8, "{query}");
    }
    assert!(find(&rig, "fox OR dog").await.is_empty());
    assert_eq!(find(&rig, "fox").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_can_be_bound_to_a_session_and_says_what_it_does_not_understand() {
    let rig = Rig::start().await;
    library(&rig).await;
    let request = |query: &str, name: &str| SearchRequest {
        query: query.to_owned(),
        session_id: Some(session(name)),
        limit: Some(0),
    };
    let reply: SearchReply = rig
        .ask("session::search", &request("brown", "two"))
        .await
        .expect("hits");
    assert_eq!(reply.hits.len(), 1);
    assert_eq!(reply.hits[0].title.as_deref(), Some("Code"));
    for (query, name, code) in [
        ("brown", "nobody", "session.not_found"),
        ("", "two", "session.bad_query"),
        (r#"say "hi"#, "two", "session.bad_query"),
    ] {
        let fault = rig
            .ask::<_, SearchReply>("session::search", &request(query, name))
            .await
            .expect_err("refused");
        assert_eq!(fault.code, code, "{fault}");
    }
}
