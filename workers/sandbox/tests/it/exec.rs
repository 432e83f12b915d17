//! Commands over the mesh: what they answer, how they end, and that nothing of them is left.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use teamster_mesh::connection::Call;
use teamster_protocol::{FaultClass, FunctionId, limits};
use teamster_sandbox::Config;
use teamster_testkit::wait;

use crate::house::House;

/// How long anything may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);

pub(crate) fn config() -> Config {
    Config {
        helper: Some(PathBuf::from(env!("CARGO_BIN_EXE_teamster-sandbox-stage"))),
        ..Config::default()
    }
}

/// A house and a workspace.
pub(crate) struct Bench {
    pub(crate) house: House,
    pub(crate) work: tempfile::TempDir,
}

impl Bench {
    pub(crate) async fn new(config: Config) -> Self {
        Self {
            house: House::new(config).await,
            work: tempfile::tempdir().expect("a workspace"),
        }
    }

    /// The answer to a request, which must be one.
    pub(crate) async fn ask(&self, request: Value) -> Value {
        let text = request.to_string();
        self.house
            .call("sandbox::exec", Some(self.work.path()), request)
            .await
            .unwrap_or_else(|fault| panic!("{fault:?} for {text}"))
    }

    /// The answer to a shell line.
    pub(crate) async fn sh(&self, line: &str) -> Value {
        self.ask(json!({"argv": ["sh", "-c", line]})).await
    }

    /// What a shell line prints.
    pub(crate) async fn prints(&self, line: &str) -> String {
        let reply = self.sh(line).await;
        reply["stdout"]["text"].as_str().expect("text").to_owned()
    }

    /// Processes of the host whose command line holds `mark`.
    pub(crate) fn processes(mark: &str) -> Vec<String> {
        std::fs::read_dir("/proc")
            .expect("processes")
            .filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok())
            .map(|line| String::from_utf8_lossy(&line).into_owned())
            .filter(|line| line.contains(mark) && !line.contains("tests::"))
            .collect()
    }

    pub(crate) async fn nothing_is_left(&self, mark: &str) {
        wait::until(LIMIT, "every process is gone", || async {
            Self::processes(mark).is_empty()
        })
        .await;
        assert!(
            !self.work.path().join(".git").exists(),
            "no placeholder is left"
        );
        // Other tests of this process have groups of their own; whatever is there now comes to its end.
        let groups = groups(Path::new("/sys/fs/cgroup"), 0);
        wait::until(LIMIT, "every control group is gone", || async {
            !groups.iter().any(|group| group.exists())
        })
        .await;
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        assert!(!mounts.contains(" /workspace "), "{mounts}");
    }
}

/// Control groups that this process made for commands, below `dir`.
fn groups(dir: &Path, depth: usize) -> Vec<PathBuf> {
    let own = format!("teamster-exec-{}-", std::process::id());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if depth > 5 || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if entry.file_name().to_string_lossy().starts_with(&own) {
            found.push(path);
        } else {
            found.extend(groups(&path, depth + 1));
        }
    }
    found
}

fn exited(code: i32) -> Value {
    json!({"kind": "exited", "code": code})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_runs_in_the_workspace_and_says_how_it_ended() {
    let bench = Bench::new(config()).await;
    std::fs::create_dir(bench.work.path().join("sub")).expect("a directory");
    let reply = bench
        .ask(json!({
            "argv": ["sh", "-c", "cat; pwd; echo $GREETING > out.txt; cat /tmp/a/b.txt; echo oops >&2; exit 3"],
            "stdin": "input\n",
            "cwd": "sub",
            "env": {"GREETING": "hello"},
            "files": [{"path": "a/b.txt", "content": "laid out\n"}],
        }))
        .await;
    assert_eq!(reply["status"], exited(3), "{reply}");
    assert_eq!(reply["stdout"]["text"], "input\n/workspace/sub\nlaid out\n");
    assert_eq!(reply["stderr"]["text"], "oops\n");
    let written = std::fs::read_to_string(bench.work.path().join("sub/out.txt"));
    assert_eq!(written.expect("written"), "hello\n");
    let held = reply["layers"]["held"].as_array().expect("a list");
    let names: Vec<&str> = held.iter().filter_map(|layer| layer.as_str()).collect();
    for layer in [
        "user_ns", "pid_ns", "mount_ns", "net_ns", "landlock", "seccomp",
    ] {
        assert!(names.contains(&layer), "{layer} in {names:?}");
    }
    let info = bench
        .house
        .call("sandbox::info", None, json!({}))
        .await
        .expect("an answer");
    assert_eq!(info["runs_commands"], true, "{info}");
    assert_eq!(info["layers"].as_array().expect("a list").len(), 10);
    // Signals are as a program expects them, so that it can wait for its children.
    let signals = bench
        .prints("sleep 0.1 & wait; grep -E 'Sig(Blk|Ign)' /proc/self/status")
        .await;
    for line in signals.lines() {
        let (_, bits) = line.split_once('\t').expect("two columns");
        let bits = u64::from_str_radix(bits, 16).expect("bits");
        // Those above 31 are the C library's own.
        assert_eq!(bits & 0x7fff_ffff, 0, "{signals}");
    }
    // No shell reads the arguments.
    let reply = bench
        .ask(json!({"argv": ["printf", "%s.", "$HOME", "a b", "*"]}))
        .await;
    assert_eq!(reply["stdout"]["text"], "$HOME.a b.*.");
    let reply = bench.sh("kill -SEGV $$").await;
    assert_eq!(reply["status"]["name"], "SIGSEGV", "{reply}");
    bench.house.serving.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_started_is_said() {
    let bench = Bench::new(config()).await;
    std::fs::write(bench.work.path().join("plain"), "x").expect("a file");
    for (argv, why) in [
        (json!(["no-such-program"]), "is not there"),
        (json!(["./plain"]), "may not be run"),
        (json!(["/workspace"]), "is a directory"),
        (json!([""]), "is a directory"),
    ] {
        let reply = bench.ask(json!({"argv": argv})).await;
        assert_eq!(reply["status"]["kind"], "not_started", "{reply}");
        let reason = reply["status"]["reason"].as_str().expect("a reason");
        assert!(reason.contains(why), "{reason}");
    }
    for (request, code) in [
        (json!({"argv": []}), "sandbox.bad_request"),
        (json!({"argv": ["true"], "cwd": "gone"}), "fs.not_found"),
        (json!({"argv": ["true"], "cwd": "../.."}), "fs.bad_path"),
        (
            json!({"argv": ["true"], "network": "host"}),
            "mesh.bad_request",
        ),
    ] {
        let fault = bench
            .house
            .call("sandbox::exec", Some(bench.work.path()), request)
            .await
            .expect_err("refused");
        assert_eq!(fault.code, code, "{}", fault.message);
    }
    let call = bench
        .house
        .call("sandbox::exec", None, json!({"argv": ["true"]}));
    assert_eq!(
        call.await.expect_err("no workspace").code,
        "fs.no_workspace"
    );
    bench.house.serving.drain().await;
}

/// SBX-1: grandchildren, a trap, and a daemon that left the session all end with the deadline, and the answer does not wait.
#[tokio::test(flavor = "multi_thread")]
async fn sbx_1_the_deadline_ends_the_whole_tree_and_the_answer_is_there() {
    let bench = Bench::new(config()).await;
    bench.sh("true").await;
    for (mark, line) in [
        ("300.01", "echo begun; sleep 300.01 & sleep 300.01"),
        (
            "300.02",
            "trap '' TERM INT HUP; echo begun; sleep 300.02 & while :; do sleep 300.02; done",
        ),
        (
            "300.03",
            "(setsid setsid sh -c 'sleep 300.03 & sleep 300.03' &) ; echo begun; sleep 300.03",
        ),
        ("300.04", "echo begun; kill -STOP $$; sleep 300.04"),
    ] {
        let began = Instant::now();
        let reply = bench
            .ask(json!({"argv": ["sh", "-c", line], "limits": {"wall_ms": 1000}}))
            .await;
        assert_eq!(
            reply["status"],
            json!({"kind": "timed_out"}),
            "{line}: {reply}"
        );
        assert_eq!(reply["stdout"]["text"], "begun\n", "{line}");
        let most = Duration::from_secs(1) + limits::EXEC_TERM_GRACE + limits::EXEC_ANSWER_GRACE;
        let took = Duration::from_millis(reply["duration_ms"].as_u64().expect("a number"));
        assert!(took < most, "{line}: {took:?}");
        eprintln!("{line}: {:?}", began.elapsed());
        bench.nothing_is_left(mark).await;
    }
    bench.house.serving.drain().await;
}

/// SBX-1: what a command leaves behind ends with it, although it holds the pipes.
#[tokio::test(flavor = "multi_thread")]
async fn sbx_1_what_a_command_leaves_behind_ends_with_it() {
    let bench = Bench::new(config()).await;
    let reply = bench
        .sh("(setsid sh -c 'trap \"\" HUP TERM; sleep 301.01' &) ; echo done")
        .await;
    assert_eq!(
        (&reply["status"], &reply["stdout"]["text"]),
        (&exited(0), &json!("done\n"))
    );
    bench.nothing_is_left("301.01").await;
    bench.house.serving.drain().await;
}

/// A call that is cancelled, and a worker that drains, take the command with them.
#[tokio::test(flavor = "multi_thread")]
async fn sbx_1_a_cancelled_call_leaves_nothing() {
    let bench = Arc::new(Bench::new(config()).await);
    bench.sh("true").await;
    let mut call = Call::new(
        FunctionId::parse("sandbox::exec").expect("an id"),
        json!({"argv": ["sh", "-c", "trap '' TERM; touch begun; sleep 302.01 & sleep 302.01"]})
            .to_string(),
    );
    call.workspace = Some(bench.work.path().to_str().expect("text").to_owned());
    call.call = Some("call_cancelled".to_owned());
    call.timeout = LIMIT;
    let task = {
        let bench = Arc::clone(&bench);
        tokio::task::spawn(async move { bench.house.caller.call(call).await })
    };
    let begun = bench.work.path().join("begun");
    wait::until(LIMIT, "the command runs", || async { begun.exists() }).await;
    let function = FunctionId::parse("sandbox::exec").expect("an id");
    bench
        .house
        .caller
        .cancel_call(&function, "call_cancelled")
        .await;
    let fault = task.await.expect("no panic").expect_err("cancelled");
    assert_eq!(
        (fault.code.as_str(), fault.class),
        ("sandbox.cancelled", FaultClass::Busy)
    );
    bench.nothing_is_left("302.01").await;
}

/// A worker that goes away in mid-command takes the command with it, and so does the end of a stage.
#[tokio::test(flavor = "multi_thread")]
async fn sbx_1_a_worker_or_a_stage_that_ends_leaves_nothing() {
    for is_worker in [true, false] {
        let mark = if is_worker { "303.01" } else { "303.02" };
        let Bench { house, work } = Bench::new(config()).await;
        let line = format!("touch begun; setsid sleep {mark} & sleep {mark}");
        let mut call = Call::new(
            FunctionId::parse("sandbox::exec").expect("an id"),
            json!({"argv": ["sh", "-c", line]}).to_string(),
        );
        call.workspace = Some(work.path().to_str().expect("text").to_owned());
        call.timeout = LIMIT;
        let House {
            caller, serving, ..
        } = house;
        let task = tokio::task::spawn(async move { caller.call(call).await });
        let begun = work.path().join("begun");
        wait::until(LIMIT, "the command runs", || async { begun.exists() }).await;
        if is_worker {
            drop(serving);
            task.abort();
        } else {
            let outer = stage_of(mark).expect("a stage");
            let pid = nix::unistd::Pid::from_raw(outer);
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("killed");
            let fault = task.await.expect("no panic").expect_err("no answer");
            assert_eq!(fault.code, "sandbox.stage_failed");
            drop(serving);
        }
        wait::until(LIMIT, "every process is gone", || async {
            Bench::processes(mark).is_empty() && !work.path().join(".git").exists()
        })
        .await;
    }
}

/// The stage that this process started for the command whose line holds `mark`: other tests of this process have theirs.
fn stage_of(mark: &str) -> Option<i32> {
    let parent = |pid: i32| -> Option<i32> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        line.trim().parse().ok()
    };
    let own = i32::try_from(std::process::id()).expect("a number");
    let marked = std::fs::read_dir("/proc").expect("processes").flatten();
    marked
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(mark)
        })
        .find_map(|mut pid| {
            while let Some(above) = parent(pid).filter(|above| *above > 0) {
                if above == own {
                    return Some(pid);
                }
                pid = above;
            }
            None
        })
}

/// What the operator shows is there and cannot be changed.
#[tokio::test(flavor = "multi_thread")]
async fn further_paths_of_the_host_are_shown_read_only() {
    let tools = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let path = tools.path().to_str().expect("text").to_owned();
    std::fs::write(tools.path().join("tool"), "#!/bin/sh\necho tool\n").expect("a file");
    for closed in [tools.path().to_owned(), tools.path().join("tool")] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(closed, mode).expect("permissions");
    }
    let bench = Bench::new(Config {
        shown: teamster_sandbox::Shown::try_from(vec![path.clone(), "/no/such/path".to_owned()])
            .expect("valid"),
        ..config()
    })
    .await;
    assert_eq!(bench.prints(&format!("{path}/tool")).await, "tool\n");
    let reply = bench
        .sh(&format!("echo x > {path}/new; echo x >> {path}/tool"))
        .await;
    let said = reply["stderr"]["text"].as_str().expect("text");
    assert_eq!(said.matches("Read-only file system").count(), 2, "{said}");
    assert_eq!(bench.prints("ls -A /var/tmp").await.lines().count(), 1);
    bench.house.serving.drain().await;
}

/// SBX-2: binary output, a flood, and silence about neither.
#[tokio::test(flavor = "multi_thread")]
async fn sbx_2_any_output_is_taken_counted_and_bounded() {
    let bench = Bench::new(config()).await;
    let reply = bench.sh("head -c 50000000 /dev/urandom").await;
    assert_eq!(reply["status"], exited(0), "{}", reply["status"]);
    assert_eq!(
        (&reply["stdout"]["bytes"], &reply["stdout"]["binary"]),
        (&json!(50_000_000), &json!(true))
    );
    assert!(
        reply["stdout"]["text"]
            .as_str()
            .expect("text")
            .contains("bytes left out]")
    );
    let reply = bench.sh(r"printf 'a\000b\377'").await;
    assert_eq!(reply["stdout"]["text"], "a\u{2400}b\u{fffd}");
    let reply = bench
        .ask(json!({"argv": ["yes"], "limits": {"wall_ms": 3000}}))
        .await;
    assert_eq!(reply["status"], json!({"kind": "timed_out"}));
    assert!(reply["stdout"]["bytes"].as_u64().expect("a number") > 1_000_000);
    let reply = bench.sh("seq 1 100000; echo end; seq 1 100000 >&2").await;
    let text = reply["stdout"]["text"].as_str().expect("text");
    assert!(
        text.starts_with("1\n2\n") && text.ends_with("\nend\n"),
        "{text}"
    );
    // A reader that never reads, and input that nobody wants.
    let stdin = "x".repeat(limits::EXEC_STDIN_BYTES_MAX);
    let reply = bench.ask(json!({"argv": ["true"], "stdin": stdin})).await;
    assert_eq!(reply["status"], exited(0));
    let reply = bench
        .ask(json!({"argv": ["wc", "-c"], "stdin": stdin}))
        .await;
    assert_eq!(reply["stdout"]["text"], format!("{}\n", stdin.len()));
    bench.house.serving.drain().await;
}

/// SBX-2: what a flood costs is bounded in the worker, whatever its length.
#[tokio::test(flavor = "multi_thread")]
async fn sbx_2_a_flood_does_not_grow_the_worker() {
    let bench = Bench::new(config()).await;
    bench.sh("true").await;
    let before = resident_bytes();
    let reply = bench
        .sh("head -c 400000000 /dev/zero; head -c 400000000 /dev/zero >&2")
        .await;
    assert_eq!(reply["stderr"]["bytes"], 400_000_000);
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 20_000_000, "{grown} bytes");
    bench.house.serving.drain().await;
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: u64 = line
        .expect("a line")
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .expect("a number");
    kib * 1024
}

/// Commands beyond those that run at once wait for their turn, and all are answered.
#[tokio::test(flavor = "multi_thread")]
async fn many_commands_at_once_are_all_answered() {
    let bench = Arc::new(Bench::new(config()).await);
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..12 {
        let bench = Arc::clone(&bench);
        calls.spawn(async move {
            bench
                .prints(&format!("echo {number} > {number}; cat {number}"))
                .await
        });
    }
    let mut said: Vec<u32> = calls
        .join_all()
        .await
        .iter()
        .map(|text| text.trim().parse().expect("a number"))
        .collect();
    said.sort_unstable();
    assert_eq!(said, (0..12).collect::<Vec<_>>());
    bench.nothing_is_left("no process has this mark").await;
}

/// A placeholder that the user put something into is the user's.
#[tokio::test(flavor = "multi_thread")]
async fn a_repository_that_appears_meanwhile_stays() {
    let bench = Bench::new(config()).await;
    let git: &Path = &bench.work.path().join(".git");
    let call = bench.sh("touch begun; until [ -e go ]; do sleep 0.02; done");
    let user = async {
        let begun = bench.work.path().join("begun");
        wait::until(LIMIT, "the command runs", || async { begun.exists() }).await;
        std::fs::write(git.join("config"), "mine").expect("the user's file");
        std::fs::write(bench.work.path().join("go"), "").expect("a file");
    };
    let (reply, ()) = tokio::join!(call, user);
    assert_eq!(reply["status"], exited(0));
    assert_eq!(
        std::fs::read_to_string(git.join("config")).expect("a file"),
        "mine"
    );
    bench.house.serving.drain().await;
}
