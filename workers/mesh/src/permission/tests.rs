//! The table of rights, subject by subject.

use teamster_protocol::{
    FunctionId, Principal, RequestId, SessionId,
    id::{Incarnation, WorkerName},
    subject,
};

use super::*;

fn session() -> SessionId {
    SessionId::parse("chat/1").expect("valid")
}

fn may(user: &str) -> Permissions {
    of(user).expect("a user")
}

/// Who of all users may publish to a subject.
fn publishers(subject: &str) -> Vec<&'static str> {
    users()
        .filter(|user| may(user).may_publish(subject))
        .collect()
}

/// Who of all users may subscribe to a subject.
fn subscribers(subject: &str) -> Vec<&'static str> {
    users()
        .filter(|user| may(user).may_subscribe(subject))
        .collect()
}

/// SEC-31: the table of the design, subject by subject.
#[test]
fn sec_31_each_subject_has_its_publishers_and_no_others() {
    let s = session();
    let request = RequestId::of(&s, 1, 0);
    let ctl = |kind| subject::turn_ctl(&s, kind);
    let resolve = FunctionId::parse("approval::resolve").expect("valid");
    let owner = subject::operator(OWNER, &resolve);
    let other = subject::operator("mallory", &resolve);
    let rows: Vec<(String, &[&str])> = vec![
        (ctl(ControlKind::Decide), &["approval-gate"]),
        (ctl(ControlKind::Result), &["harness"]),
        (ctl(ControlKind::Timer), &["harness"]),
        (ctl(ControlKind::Stop), &["harness", "operator"]),
        (subject::turn_in(&s), &["harness", "operator"]),
        (subject::turn_kick(&s), &["harness"]),
        (subject::turn_timer(&s, "apr_1"), &["harness"]),
        (subject::log(&s), &["harness"]),
        (subject::snap(&s), &["harness"]),
        (subject::live(&s), &["router"]),
        (subject::generation(&request), &["router"]),
        (
            subject::generation_run(&request),
            &["harness", "router", "operator"],
        ),
        (subject::function(&resolve), &["harness", "operator"]),
        (owner, &["operator"]),
        (other, &[]),
        ("_INBOX.router.1".to_owned(), &["harness", "router"]),
        ("$JS.API.STREAM.DELETE.LOG_0".to_owned(), &[]),
        ("$JS.API.STREAM.PURGE.LOG_0".to_owned(), &[]),
        ("$JS.API.STREAM.MSG.DELETE.LOG_0".to_owned(), &["harness"]),
        ("$JS.API.STREAM.MSG.DELETE.BLOBS".to_owned(), &["session"]),
        ("$JS.API.STREAM.PURGE.BLOBS".to_owned(), &[]),
        ("$JS.API.STREAM.MSG.DELETE.EVENTS".to_owned(), &["session"]),
        ("$JS.API.STREAM.PURGE.EVENTS".to_owned(), &[]),
        ("$JS.API.STREAM.CREATE.LOG_0".to_owned(), &["topology"]),
        ("$JS.API.STREAM.UPDATE.LOG_0".to_owned(), &["topology"]),
        ("$JS.API.STREAM.RESTORE.LOG_0".to_owned(), &[]),
        ("$JS.ACK.TURNS.bell.1.2.3.4.5".to_owned(), &["harness"]),
        (
            "$JS.API.CONSUMER.MSG.NEXT.TURNS.bell".to_owned(),
            &["harness"],
        ),
        ("$JS.API.CONSUMER.DELETE.TURNS.bell".to_owned(), &[]),
        ("$JS.API.CONSUMER.CREATE.CONTROL.spy".to_owned(), &[]),
        ("$SYS.REQ.SERVER.PING.VARZ".to_owned(), &[]),
        ("$KV.config.router".to_owned(), &["operator"]),
        ("$JS.API.DIRECT.GET.KV_config".to_owned(), &[]),
        ("$JS.API.CONSUMER.CREATE.KV_config".to_owned(), &[]),
    ];
    for (subject, want) in rows {
        assert_eq!(publishers(&subject), want, "{subject}");
    }
}

/// SEC-31: what a worker writes into a stream, no right of its own can make the server send on as it is.
#[test]
fn sec_31_a_writer_of_free_content_cannot_have_it_sent_on() {
    for (user, stream) in [
        ("router", "GENERATIONS"),
        ("router", REGISTRY),
        ("sandbox", REGISTRY),
    ] {
        for api in ["DIRECT.GET", "CONSUMER.CREATE", "CONSUMER.MSG.NEXT"] {
            for rest in ["", ".x", ".x.y"] {
                let subject = format!("$JS.API.{api}.{stream}{rest}");
                assert!(!may(user).may_publish(&subject), "{user} {subject}");
            }
        }
    }
}

/// Whether some subject fits two patterns.
fn intersects(one: &str, other: &str) -> bool {
    let (mut one, mut other) = (one.split('.'), other.split('.'));
    loop {
        match (one.next(), other.next()) {
            (None, None) | (Some(">"), Some(_)) | (Some(_), Some(">")) => return true,
            (Some(a), Some(b)) if a == b || a == "*" || b == "*" => {}
            _ => return false,
        }
    }
}

#[test]
fn patterns_intersect_where_a_subject_fits_both() {
    for (one, other, want) in [
        ("gen.>", "gen.run.>", true),
        ("gen.*.*.*", "gen.run.>", true),
        ("gen.*.*.*", "gen.run.*.*.*", false),
        ("a.*", "*.b", true),
        ("a.b", "a.c", false),
        ("a.>", "a", false),
        (">", "a", true),
        ("a.*.c", "a.>", true),
        ("a", "a.b", false),
    ] {
        assert_eq!(intersects(one, other), want, "{one} {other}");
        assert_eq!(intersects(other, one), want, "{other} {one}");
    }
}

/// SEC-31: who may answer cannot send itself a message, whose reply subject the server would open to it.
#[test]
fn sec_31_who_may_answer_cannot_ask_itself() {
    for user in users() {
        let rights = may(user);
        if rights.answers.is_none() {
            continue;
        }
        for publish in &rights.publish {
            for subscribe in &rights.subscribe {
                assert!(
                    !intersects(publish, subscribe),
                    "{user}: {publish} {subscribe}"
                );
            }
        }
    }
    assert_eq!(may("harness").answers, None);
}

/// SEC-31: nor can a worker from outside, not through its own functions either: it calls these in its own process.
#[test]
fn sec_31_a_granted_worker_cannot_ask_itself() {
    let name = WorkerName::parse("weather").expect("valid");
    let rights = of_outside(&name, ["weather", "tide"]);
    assert!(rights.answers.is_some());
    for publish in &rights.publish {
        for subscribe in &rights.subscribe {
            assert!(!intersects(publish, subscribe), "{publish} {subscribe}");
        }
    }
    for own in ["fn.weather.current", "op.owner.tide.x", "call.tide.c"] {
        assert!(!rights.may_publish(own) && rights.may_subscribe(own));
    }
}

#[test]
fn each_worker_serves_its_own_namespaces_alone() {
    for (function, want) in [
        ("harness::send", "harness"),
        ("engine::functions::list", "harness"),
        ("router::chat", "router"),
        ("approval::gate", "approval-gate"),
        ("approval-gate::x", "approval-gate"),
        ("fs::read", "sandbox"),
        ("sandbox::exec", "sandbox"),
    ] {
        let id = FunctionId::parse(function).expect("valid");
        let principal = Principal::parse(OWNER).expect("valid");
        assert_eq!(owner_of(id.namespace()), Some(want));
        assert_eq!(subscribers(&subject::function(&id)), [want], "{function}");
        assert_eq!(
            subscribers(&subject::operator(principal.as_str(), &id)),
            [want]
        );
        assert_eq!(
            subscribers(&subject::call(id.namespace(), "call_1")),
            [want]
        );
    }
    assert_eq!(
        subscribers(&subject::function(
            &FunctionId::parse("x::y").expect("valid")
        )),
        [""; 0]
    );
}

#[test]
fn sec_31_nobody_reads_the_inbox_of_another() {
    for user in users() {
        assert_eq!(subscribers(&format!("_INBOX.{user}.abc")), [user]);
        assert_eq!(subscribers(&format!("_INBOX.{user}.>")), [user]);
    }
    for all in [
        ">",
        "*.>",
        "_INBOX.>",
        "_INBOX.*.x",
        "op.>",
        "fn.>",
        "turn.>",
        "log.>",
        "gen.>",
    ] {
        assert_eq!(subscribers(all), [""; 0], "{all}");
    }
}

#[test]
fn ownership_is_asked_and_answered_between_harnesses() {
    let incarnation = Incarnation::parse("i1").expect("valid");
    let own = subject::own(&incarnation);
    assert_eq!(
        (publishers(&own), subscribers(&own)),
        (vec!["harness"], vec!["harness"])
    );
    let beat = subject::own_beat(&incarnation);
    assert_eq!(subscribers(&beat), ["harness", "operator"]);
}

#[test]
fn each_worker_registers_itself_alone() {
    for user in users() {
        WorkerName::parse(user).expect("a user is named like a worker");
        let serves = ROLES
            .iter()
            .any(|role| role.name == user && !role.namespaces.is_empty());
        let want: &[&str] = if serves { &[user] } else { &[] };
        assert_eq!(publishers(&format!("$KV.registry.worker.{user}.i1")), want);
        let hooks = publishers(&format!("$KV.registry.hooks.{user}"));
        assert!(hooks.contains(&OPERATOR) && hooks.iter().all(|u| *u == user || *u == OPERATOR));
        let answers = may(user).answers.is_some() || may(user).may_publish("_INBOX.operator.1");
        assert_eq!(answers, serves);
    }
}

#[test]
fn patterns_cover_what_they_should() {
    for (pattern, subject, want) in [
        ("a.*", "a.b", true),
        ("a.*", "a", false),
        ("a.*", "a.b.c", false),
        ("a.>", "a.b.c", true),
        ("a.>", "a", false),
        ("a.*", "a.>", false),
        ("a.*", "a.*", true),
        ("a.b", "a.*", false),
        ("a.>", "a.*", true),
        ("a.>", "a.>", true),
        ("a.>", ">", false),
    ] {
        assert_eq!(matches(pattern, subject), want, "{pattern} {subject}");
    }
}
