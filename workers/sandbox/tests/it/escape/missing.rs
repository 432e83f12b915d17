//! Hosts that lack a layer: nothing runs, and the layer is named.

use nix::libc;
use teamster_protocol::FaultClass;

use super::*;

/// The fault of a command on a host like this, which must be one.
async fn refused(cell: &Cell) -> teamster_protocol::Fault {
    let request = json!({"argv": ["touch", "ran"]});
    let fault = cell
        .bench
        .house
        .call("sandbox::exec", Some(cell.bench.work.path()), request)
        .await
        .expect_err("refused");
    assert!(!cell.bench.work.path().join("ran").exists());
    let info = cell
        .bench
        .house
        .call("sandbox::info", None, json!({}))
        .await
        .expect("an answer");
    assert_eq!(info["runs_commands"], false, "{info}");
    fault
}

fn minimum(layers: &[Layer]) -> Minimum {
    Minimum::try_from(layers.to_vec()).expect("valid")
}

/// SEC-51: the kernel does not know a call that a layer needs.
#[tokio::test(flavor = "multi_thread")]
async fn sec_51_a_kernel_without_a_layer_runs_nothing_and_the_layer_is_named() {
    for who in Who::all() {
        for (call, layer, advice) in [
            (libc::SYS_unshare, "user_ns", "user.max_user_namespaces"),
            (libc::SYS_landlock_create_ruleset, "landlock", "Landlock"),
            (libc::SYS_pivot_root, "mount_ns", "mounts"),
        ] {
            let cell = Cell::with(who, &format!("--deny {call}"), config()).await;
            let fault = refused(&cell).await;
            assert_eq!(
                (fault.code.as_str(), fault.class),
                ("sandbox.layer_missing", FaultClass::Denied)
            );
            assert!(fault.message.contains(layer), "{fault:?}");
            assert!(fault.hint.expect("a hint").contains(advice));
        }
    }
}

/// SBX-3: a layer that the policy demands and that does not hold refuses; one that it does not demand is run without, and
/// said.
#[tokio::test(flavor = "multi_thread")]
async fn sbx_3_a_layer_below_the_minimum_refuses_and_is_never_left_out_in_silence() {
    let all: Vec<Layer> = Layer::MINIMUM.to_vec();
    for layer in [Layer::NetNs, Layer::Seccomp, Layer::Landlock] {
        let words = format!("--without {}", layer.name());
        let demanding = Config {
            minimum: minimum(&all),
            ..config()
        };
        let outside = tempfile::tempdir().expect("a directory");
        let helper = script(outside.path(), Who::all()[0], &words);
        let bench = Bench::new(Config {
            helper: Some(helper.clone()),
            ..demanding
        })
        .await;
        let request = json!({"argv": ["touch", "ran"]});
        let call = bench
            .house
            .call("sandbox::exec", Some(bench.work.path()), request.clone());
        let fault = call.await.expect_err("refused");
        assert_eq!(fault.code, "sandbox.layer_missing");
        assert!(fault.message.contains(layer.name()), "{fault:?}");
        assert!(!bench.work.path().join("ran").exists());
        let rest: Vec<Layer> = all
            .iter()
            .copied()
            .filter(|other| *other != layer)
            .collect();
        let content = Bench::new(Config {
            helper: Some(helper),
            minimum: minimum(&rest),
            ..config()
        })
        .await;
        let reply = content.ask(request).await;
        assert_eq!(
            reply["status"],
            json!({"kind": "exited", "code": 0}),
            "{reply}"
        );
        let missing = reply["layers"]["missing"].as_array().expect("a list");
        assert!(missing.contains(&json!(layer.name())), "{reply}");
    }
}

/// A layer that holds when it is tried and fails later refuses that call, and the next one is tried anew.
#[tokio::test(flavor = "multi_thread")]
async fn a_helper_that_is_none_runs_nothing() {
    for helper in ["/bin/true", "/bin/cat", "/no/such/helper"] {
        let bench = Bench::new(Config {
            helper: Some(helper.into()),
            ..config()
        })
        .await;
        let request = json!({"argv": ["touch", "ran"]});
        let call = bench
            .house
            .call("sandbox::exec", Some(bench.work.path()), request);
        let fault = call.await.expect_err("refused");
        assert_eq!(fault.code, "sandbox.layer_missing", "{helper}: {fault:?}");
        assert!(!bench.work.path().join("ran").exists());
    }
}
