//! What is in force after each change of a layer, without a mesh.

use bytes::Bytes;
use serde_json::json;
use teamster_mesh::config::Live;

use super::*;
use crate::{config::Config, harness};

struct Rig {
    desk: Desk,
    live: Live<harness::Config>,
    sender: watch::Sender<OwnLayers>,
}

impl Rig {
    fn new() -> Self {
        let config = Config::compiled_in().expect("valid");
        let live = Live::new(config.harness.clone());
        let (sender, own) = channel(Reading::fixed(config));
        let desk = Desk::new(
            section::named("harness").expect("there"),
            Arc::new(live.clone()),
            own,
        );
        Self { desk, live, sender }
    }

    fn set(&self, revision: u64, body: Option<&str>) {
        self.desk.live(Some(&Entry {
            revision,
            body: body.map(|text| Bytes::copy_from_slice(text.as_bytes())),
            at: "2026-01-01T00:00:00Z".to_owned(),
            by: None,
        }));
    }

    fn file(&self, text: &str) {
        let config = Config::over_default(std::path::Path::new("config.yaml"), text);
        self.sender.send_replace(OwnLayers {
            reading: Arc::new(Reading::fixed(config.expect("valid by itself"))),
            refusals: VecDeque::new(),
        });
        self.desk.file();
    }

    /// Turns, calls, and what was refused.
    fn now(&self) -> (u32, Option<u32>, Vec<String>) {
        let config = self.live.load();
        let refused = self.desk.status().refusals.into_iter();
        (
            config.default_max_turns,
            config.max_calls,
            refused.map(|refusal| refusal.problem).collect(),
        )
    }
}

#[test]
fn conf_1_the_last_good_layer_stays_in_force_whatever_comes() {
    let rig = Rig::new();
    rig.desk.live(None);
    assert_eq!(rig.now(), (16, None, vec![]));
    rig.set(1, Some(r#"{"default_max_turns": 32}"#));
    assert_eq!(rig.now(), (32, None, vec![]));
    for (revision, bad, says) in [
        (2, "{", "it is no JSON"),
        (3, "[]", "it is no JSON object"),
        (4, r#"{"default_max_turns": -1}"#, "default_max_turns: "),
        (5, r#"{"max_turns": 3}"#, "max_turns: unknown field"),
        (
            6,
            r#"{"default_max_turns": 0}"#,
            "default_max_turns: must be 1 or more",
        ),
    ] {
        rig.set(revision, Some(bad));
        let (turns, _, refused) = rig.now();
        assert_eq!(turns, 32, "{bad}");
        assert!(refused.last().expect(bad).contains(says), "{refused:?}");
        assert_eq!(rig.desk.status().seen, Some(revision));
    }
    assert_eq!(rig.now().2.len(), 5, "each of them is shown");
    // A new file counts under the last good live values.
    rig.file("harness: {max_calls: 7, default_max_turns: 2}");
    let (turns, calls, refused) = rig.now();
    assert_eq!(
        (turns, calls, refused.len()),
        (32, Some(7), 5),
        "tried again and refused for the same reason: no news; {refused:?}"
    );
    rig.set(7, Some(r#"{"max_calls": 9}"#));
    assert_eq!(rig.now(), (2, Some(9), vec![]), "and all errors are over");
    rig.set(8, None);
    assert_eq!(rig.now(), (2, Some(7), vec![]), "back to the file");
    rig.set(
        9,
        Some(&format!(
            "{{\"default_model\": \"a/{}\"}}",
            "x".repeat(70_000)
        )),
    );
    assert!(rig.now().2[0].contains("bytes"), "{:?}", rig.now());
}

#[test]
fn what_counts_from_the_next_start_is_said() {
    let rig = Rig::new();
    rig.desk.live(None);
    assert_eq!(rig.desk.status().after_restart, Vec::<String>::new());
    rig.set(1, Some(r#"{"sessions": 3}"#));
    let status = rig.desk.status();
    assert_eq!(status.after_restart, ["harness.sessions"]);
    let find = |key: &str| status.values.iter().find(|value| value.key == key).cloned();
    let sessions = find("harness.sessions").expect("shown");
    assert_eq!((sessions.value, sessions.hot), (json!(3), false));
    assert!(matches!(sessions.layer, Layer::Live(revision) if revision.revision == 1));
}

/// CONF-1: what was refused for want of something is taken once that is there, and is told once meanwhile.
#[test]
fn conf_1_a_change_that_could_not_be_taken_is_tried_again() {
    struct Picky {
        live: Live<harness::Config>,
        has: std::sync::atomic::AtomicBool,
    }
    impl Take for Picky {
        fn take(&self, section: &Value) -> Result<(), teamster_mesh::config::Problem> {
            if self.has.load(std::sync::atomic::Ordering::SeqCst) {
                return self.live.take(section);
            }
            Err(teamster_mesh::config::Problem::of("max_calls", "not here"))
        }
        fn in_force(&self) -> Value {
            self.live.in_force()
        }
        fn cold(&self) -> &'static [&'static str] {
            self.live.cold()
        }
    }
    let mut rig = Rig::new();
    let picky = Arc::new(Picky {
        live: rig.live.clone(),
        has: std::sync::atomic::AtomicBool::new(false),
    });
    let taker: Arc<dyn Take> = Arc::<Picky>::clone(&picky);
    let own = rig.sender.subscribe();
    rig.desk = Desk::new(section::named("harness").expect("there"), taker, own);
    rig.set(1, Some(r#"{"max_calls": 9}"#));
    let at_ms = rig.desk.told().refusals[0].at_ms;
    for _ in 0..3 {
        assert!(rig.desk.is_waiting());
        rig.desk.again();
        let told = rig.desk.told();
        assert_eq!((told.seen, told.refusals.len()), (Some(1), 1), "{told:?}");
        assert_eq!(told.refusals[0].at_ms, at_ms, "it is no news");
        assert_eq!(rig.now().1, None);
    }
    picky.has.store(true, std::sync::atomic::Ordering::SeqCst);
    rig.desk.again();
    assert_eq!(rig.now(), (16, Some(9), vec![]));
    assert!(!rig.desk.is_waiting());
}

#[test]
fn refusals_are_bounded() {
    let rig = Rig::new();
    for revision in 1..100 {
        rig.set(revision, Some("["));
    }
    assert_eq!(rig.now().2.len(), limits::CONFIG_REFUSALS_MAX);
}

/// CONF-2: whatever an editor or an orchestrator does to put another content under the name of the file is seen.
#[tokio::test]
async fn conf_2_a_file_is_seen_to_change_however_it_is_replaced() {
    let dir = tempfile::tempdir().expect("a folder");
    let source = Source {
        data: dir.path().to_owned(),
        model: None,
    };
    let file = source.file();
    let write = |path: &std::path::Path, turns: u32| {
        std::fs::write(path, format!("harness: {{default_max_turns: {turns}}}")).expect("written");
    };
    let mut seen = Digest::ZERO;
    assert!(
        look(&source, &mut seen).await.is_none(),
        "no file is no change"
    );
    write(&file, 1);
    assert_eq!(
        look(&source, &mut seen)
            .await
            .expect("changed")
            .expect("good"),
        1
    );
    assert!(look(&source, &mut seen).await.is_none());
    let scratch = dir.path().join("new.yaml");
    write(&scratch, 2);
    std::fs::rename(&scratch, &file).expect("renamed");
    assert_eq!(
        look(&source, &mut seen)
            .await
            .expect("changed")
            .expect("good"),
        2
    );
    let (one, two) = (dir.path().join("1"), dir.path().join("2"));
    for (folder, turns) in [(&one, 3), (&two, 4)] {
        std::fs::create_dir(folder).expect("made");
        write(&folder.join("config.yaml"), turns);
    }
    let link = dir.path().join("current");
    std::os::unix::fs::symlink(&one, &link).expect("linked");
    std::fs::remove_file(&file).expect("removed");
    std::os::unix::fs::symlink(link.join("config.yaml"), &file).expect("linked");
    assert_eq!(
        look(&source, &mut seen)
            .await
            .expect("changed")
            .expect("good"),
        3
    );
    let swapped = dir.path().join("swap");
    std::os::unix::fs::symlink(&two, &swapped).expect("linked");
    std::fs::rename(&swapped, &link).expect("swapped");
    assert_eq!(
        look(&source, &mut seen)
            .await
            .expect("changed")
            .expect("good"),
        4
    );
    std::fs::write(two.join("config.yaml"), "harness: {default_max_turns: [").expect("written");
    assert!(look(&source, &mut seen).await.expect("changed").is_err());
    assert!(look(&source, &mut seen).await.is_none(), "told once");
    std::fs::remove_file(&file).expect("removed");
    assert_eq!(
        look(&source, &mut seen)
            .await
            .expect("changed")
            .expect("good"),
        16,
        "compiled in"
    );
}

/// The turns of a file that has changed since the last look.
async fn look(source: &Source, seen: &mut Digest) -> Option<Result<u32, crate::config::Error>> {
    let (stamp, read) = settled(source, *seen).await?;
    *seen = stamp;
    Some(read.map(|reading| reading.config.harness.default_max_turns))
}
