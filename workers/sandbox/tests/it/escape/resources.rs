//! Bounds: processes, memory, disk.

use teamster_protocol::limits;

use super::*;

/// Both with control groups and by the limits of a process alone.
async fn cells(who: Who) -> Vec<(Cell, bool)> {
    let mut cells = Vec::new();
    for control_groups in [true, false] {
        let config = Config {
            control_groups,
            ..config()
        };
        cells.push((Cell::with(who, "", config).await, control_groups));
    }
    cells
}

fn has_groups(reply: &Value) -> bool {
    let held = reply["layers"]["held"].as_array().expect("a list");
    held.iter().any(|layer| layer == "cgroup")
}

#[tokio::test(flavor = "multi_thread")]
async fn sec_50_a_fork_bomb_ends_with_its_deadline() {
    for who in Who::all() {
        for (cell, _) in cells(who).await {
            let mark = format!("500.{}", std::process::id());
            let line = format!("f() {{ sleep {mark} & f | f & }}; f; sleep {mark}");
            let reply = cell
                .bench
                .ask(json!({"argv": ["sh", "-c", line], "limits": {"wall_ms": 1500, "processes": 24}}))
                .await;
            if !has_groups(&reply) && who == Who::Root {
                // The kernel counts the processes of every user but the host's root.
                eprintln!("NOT BOUND: processes of root without control groups; the deadline is");
            } else {
                // By the group or by the process limit, whichever is met first.
                let is_held = reply["limits_hit"] == json!(["processes"]);
                assert!(is_held || said(&reply).contains("fork"), "{reply}");
            }
            cell.bench.nothing_is_left(&mark).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sec_50_memory_is_bounded() {
    const BOUND: u64 = 64 * 1024 * 1024;
    for who in Who::all() {
        for (cell, _) in cells(who).await {
            let bounds = json!({"memory_bytes": BOUND, "wall_ms": 20_000});
            // One process beyond the bound.
            let reply = cell
                .bench
                .ask(json!({"argv": ["tail", "/dev/zero"], "limits": bounds}))
                .await;
            let is_held = reply["status"] == json!({"kind": "limit", "which": "memory_bytes"})
                || said(&reply).contains("memory exhausted");
            assert!(is_held, "{reply}");
            // Many, each within it: only a control group sees them together.
            let Some(one) = perl("my $x = 'a' x (24 << 20); print length $x") else {
                return;
            };
            let code = one["argv"][2].as_str().expect("code").replace('$', "\\$");
            let line = format!(
                "for i in 1 2 3 4 5 6; do perl -e \"{code}; select undef, undef, undef, 2\" & done; wait"
            );
            let reply = cell
                .bench
                .ask(json!({"argv": ["sh", "-c", line], "limits": bounds}))
                .await;
            assert_eq!(reply["status"]["kind"], "exited", "{reply}");
            if has_groups(&reply) {
                assert_eq!(reply["limits_hit"], json!(["memory_bytes"]), "{reply}");
            } else {
                eprintln!("NOT BOUND: memory of all processes together without control groups");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sec_50_disks_are_not_filled() {
    for who in Who::all() {
        let cell = Cell::new(who).await;
        let big = cell.bench.work.path().join("big");
        let ask = |argv: Value| {
            cell.bench
                .ask(json!({"argv": argv, "limits": {"file_bytes": 1_000_000}}))
        };
        let reply = ask(json!([
            "dd",
            "if=/dev/zero",
            "of=big",
            "bs=64k",
            "count=100"
        ]))
        .await;
        assert_eq!(
            reply["status"],
            json!({"kind": "limit", "which": "file_bytes"}),
            "{reply}"
        );
        assert!(std::fs::metadata(&big).expect("a file").len() <= 1_000_000);
        let reply = ask(json!(["truncate", "-s", "100G", "sparse"])).await;
        assert_ne!(
            reply["status"],
            json!({"kind": "exited", "code": 0}),
            "{reply}"
        );
        for scratch in ["/tmp", "/home/agent", "/dev/shm"] {
            let bytes = limits::EXEC_SCRATCH_BYTES + 1_000_000;
            let reply = cell
                .bench
                .ask(json!({
                    "argv": ["sh", "-c", format!("head -c {bytes} /dev/zero > {scratch}/x")],
                    "limits": {"file_bytes": 2 * limits::EXEC_SCRATCH_BYTES},
                }))
                .await;
            assert!(
                said(&reply).contains("No space left on device"),
                "{scratch}: {reply}"
            );
        }
        let reply = cell
            .bench
            .sh("i=0; while [ $i -lt 70000 ]; do : > /tmp/$i || exit 9; i=$((i+1)); done")
            .await;
        assert_ne!(
            reply["status"],
            json!({"kind": "exited", "code": 0}),
            "{reply}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sec_50_processor_time_is_bounded() {
    for who in Who::all() {
        let cell = Cell::new(who).await;
        for line in ["while :; do :; done", "trap '' XCPU; while :; do :; done"] {
            let reply = cell
                .bench
                .ask(json!({"argv": ["sh", "-c", line], "limits": {"cpu_ms": 1000}}))
                .await;
            assert_eq!(
                reply["status"],
                json!({"kind": "limit", "which": "cpu_ms"}),
                "{line}: {reply}"
            );
        }
    }
}
