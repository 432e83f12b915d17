//! Costs: what the log says, added up to the last billionth.

use teamster_core::turn::{fold::Fold, state::State};
use teamster_protocol::{
    Phase,
    function::session::{CostBy, CostReply, CostRequest, CostSum, GetRequest, SessionInfo},
};

use crate::rig::{
    Rig, Writer, answered, began, created, deleted_with, ended, interrupted, said, session,
};

/// 2026-11-30T23:30:00Z.
const EVENING_MS: u64 = 1_796_081_400_000;
const HOUR_MS: u64 = 3_600_000;

/// Two sessions, over midnight: priced, unpriced and interrupted generations.
async fn spend(rig: &Rig) {
    let mut one = Writer::new(&rig.mesh, "one");
    one.at_ms = Some(EVENING_MS);
    one.commit(Phase::Active, vec![created("a"), said("x"), began(1)])
        .await;
    one.commit(Phase::Active, vec![answered(2, "y", "p/a", 10, Some(1))])
        .await;
    one.commit(Phase::Active, vec![interrupted(3, 3, Some(7))])
        .await;
    one.at_ms = Some(EVENING_MS + HOUR_MS);
    one.commit(
        Phase::Idle,
        vec![answered(4, "z", "p/b", 20, None), ended(1)],
    )
    .await;
    let mut two = Writer::new(&rig.mesh, "two");
    two.at_ms = Some(EVENING_MS + HOUR_MS);
    two.commit(Phase::Active, vec![created("b"), said("x"), began(1)])
        .await;
    two.commit(
        Phase::Idle,
        vec![answered(2, "y", "p/a", 5, Some(1_000_000_007)), ended(1)],
    )
    .await;
}

async fn cost(rig: &Rig, request: &CostRequest) -> CostReply {
    rig.ask("session::cost", request).await.expect("a sum")
}

fn by(by: &[CostBy], utc_offset_minutes: i32) -> CostRequest {
    CostRequest {
        by: by.to_vec(),
        utc_offset_minutes,
        ..CostRequest::default()
    }
}

fn add(rows: impl Iterator<Item = CostSum>) -> CostSum {
    rows.fold(CostSum::default(), |mut sum, one| {
        sum.generations += one.generations;
        sum.attempts += one.attempts;
        sum.usage.add(&one.usage);
        sum.cost = sum.cost.plus(one.cost);
        sum.unpriced += one.unpriced;
        sum
    })
}

/// OBS-2: whatever costs are grouped by, the parts add up to the total, interrupted and unpriced generations included.
#[tokio::test(flavor = "multi_thread")]
async fn obs_2_the_parts_add_up_to_the_total() {
    use CostBy::{Day, Model, Session};
    let rig = Rig::start().await;
    spend(&rig).await;
    let total = cost(&rig, &by(&[], 0)).await.total;
    assert_eq!(
        (total.generations, total.attempts, total.unpriced),
        (4, 5, 1)
    );
    assert_eq!((total.usage.output, total.cost.0), (38, 1_000_000_015));
    for (groups, rows) in [
        (vec![], 1),
        (vec![Session], 2),
        (vec![Model], 3),
        (vec![Day], 2),
        (vec![Model, Day], 4),
        (vec![Day, Session, Model], 4),
    ] {
        let reply = cost(&rig, &by(&groups, 0)).await;
        assert_eq!(reply.rows.len(), rows, "{groups:?}: {:?}", reply.rows);
        assert_eq!(reply.total, total);
        assert_eq!(add(reply.rows.iter().map(|row| row.sum)), total);
    }
    let models: Vec<_> = cost(&rig, &by(&[Model], 0))
        .await
        .rows
        .into_iter()
        .map(|row| (row.model.expect("a model"), row.sum.cost.0))
        .collect();
    // An interrupted generation counts for the model that was asked.
    let want = [("p/a", 1_000_000_008), ("p/b", 0), ("test/asked", 7)];
    assert_eq!(models, want.map(|(model, cost)| (model.to_owned(), cost)));
    for name in ["one", "two"] {
        let request = CostRequest {
            session_id: Some(session(name)),
            ..CostRequest::default()
        };
        let sum = cost(&rig, &request).await.total;
        let info: SessionInfo = rig
            .ask(
                "session::get",
                &GetRequest {
                    session_id: session(name),
                },
            )
            .await
            .expect("it is there");
        assert_eq!((sum.usage, sum.cost), (info.usage, info.cost));
        assert_eq!(sum.unpriced > 0, info.cost_is_partial);
    }
}

/// OBS-2: what a session spent is spent also when it is deleted: by model, by day of any clock, in sum, in the file and in one
/// that is built anew from a log of which only the tombstone is left; by session it shows as deleted.
#[tokio::test(flavor = "multi_thread")]
async fn obs_2_what_a_deleted_session_spent_stays_spent() {
    use CostBy::{Day, Model, Session};
    let mut rig = Rig::start().await;
    spend(&rig).await;
    let mut gone = Writer::new(&rig.mesh, "gone");
    gone.at_ms = Some(EVENING_MS);
    let events = vec![created("c"), said("x"), began(1)];
    gone.commit(Phase::Active, events).await;
    let answer = answered(2, "y", "p/a", 11, Some(1000));
    gone.commit(Phase::Idle, vec![answer, ended(1)]).await;
    let questions = [
        vec![],
        vec![Model],
        vec![Day],
        vec![Day, Model],
        vec![Session, Model],
    ];
    let mut before = Vec::new();
    for (groups, offset) in questions.iter().zip([0, 45, 45, -120, 0]) {
        before.push(cost(&rig, &by(groups, offset)).await);
    }
    let state = folded(&rig, &gone).await;
    let tombstone = deleted_with(1, state.spent.rows().to_vec());
    gone.commit(Phase::Deleted, vec![tombstone]).await;
    for is_new in [false, true] {
        if is_new {
            let log = rig.mesh.log();
            let erased = log.erase_before(&gone.session, gone.seq).await;
            assert_eq!(erased.expect("erased"), 2);
            rig.stop_worker().await;
            std::fs::remove_file(rig.file()).expect("the file was there");
            rig.start_worker().await;
        }
        for ((groups, offset), mut want) in questions
            .iter()
            .zip([0, 45, 45, -120, 0])
            .zip(before.clone())
        {
            for row in &mut want.rows {
                row.deleted = row.session_id == Some(session("gone"));
            }
            let found = cost(&rig, &by(groups, offset)).await;
            assert_eq!(found, want, "{groups:?}, built anew: {is_new}");
        }
        let own = CostRequest {
            session_id: Some(session("gone")),
            ..CostRequest::default()
        };
        assert_eq!(cost(&rig, &own).await.total.cost.0, 1000);
    }
}

/// The state that a session's log folds to.
async fn folded(rig: &Rig, writer: &Writer) -> State {
    let log = rig.mesh.log();
    let mut fold = Fold::new(State::new(writer.session.clone()));
    for stored in log
        .read(&writer.session, 0, writer.seq)
        .await
        .expect("read")
    {
        fold.take(&stored.body, stored.seq);
    }
    fold.finish().expect("sound")
}

/// OBS-2: a day is one of the asker's calendar.
#[tokio::test(flavor = "multi_thread")]
async fn obs_2_a_day_begins_where_the_asker_lives() {
    let rig = Rig::start().await;
    spend(&rig).await;
    let mut seen = Vec::new();
    for offset in [0, 60, -120] {
        let reply = cost(&rig, &by(&[CostBy::Day], offset)).await;
        let days: Vec<_> = reply
            .rows
            .into_iter()
            .map(|row| (row.day.expect("a day"), row.sum.generations))
            .collect();
        seen.push(days);
    }
    let day = |text: &str, count: u64| (text.to_owned(), count);
    assert_eq!(
        seen,
        [
            vec![day("2026-11-30", 2), day("2026-12-01", 2)],
            vec![day("2026-12-01", 4)],
            vec![day("2026-11-30", 4)],
        ]
    );
    for (since, until, want) in [
        (Some(EVENING_MS + 1), None, 2),
        (None, Some(EVENING_MS + HOUR_MS), 2),
        (Some(0), Some(u64::MAX), 4),
        (Some(u64::MAX), None, 0),
    ] {
        let request = CostRequest {
            since_ms: since,
            until_ms: until,
            ..CostRequest::default()
        };
        assert_eq!(cost(&rig, &request).await.total.generations, want);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_about_costs_that_makes_no_sense_is_refused() {
    let rig = Rig::start().await;
    for request in [
        by(&[CostBy::Day, CostBy::Model, CostBy::Day], 0),
        by(&[], 24 * 60),
        by(&[], i32::MIN + 1),
    ] {
        let fault = rig
            .ask::<_, CostReply>("session::cost", &request)
            .await
            .expect_err("refused");
        assert_eq!(fault.code, "session.bad_request");
    }
    let request = CostRequest {
        session_id: Some(session("nobody")),
        ..CostRequest::default()
    };
    let fault = rig
        .ask::<_, CostReply>("session::cost", &request)
        .await
        .expect_err("refused");
    assert_eq!(fault.code, "session.not_found");
}

/// Figures beyond all reason neither break a sum nor turn negative.
#[tokio::test(flavor = "multi_thread")]
async fn absurd_figures_are_added_up_all_the_same() {
    let rig = Rig::start().await;
    let mut one = Writer::new(&rig.mesh, "one");
    one.commit(Phase::Active, vec![created("a"), said("x"), began(1)])
        .await;
    for n in 2..6 {
        let absurd = answered(n, "y", "p/a", u64::MAX, Some(u64::MAX));
        one.commit(Phase::Active, vec![absurd]).await;
    }
    let total = cost(&rig, &CostRequest::default()).await.total;
    assert_eq!(total.usage.output, u64::MAX);
    assert!(total.cost.0 >= u64::MAX / 2);
}
