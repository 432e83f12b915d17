//! What lies in deploy/ is fit for this build: the server takes the configurations with the accounts that we make, and nobody
//! keeps a list of rights by hand.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use teamster_protocol::limits;
use teamster_testkit::nats;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(folder().join(path)).expect(path)
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

fn accounts(data: &Path) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_teamster"))
        .args(["deploy", "nats-accounts", "--quiet", "--data"])
        .arg(data)
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{}", text(&output));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The servers' configurations with the accounts that the product makes.
#[tokio::test]
async fn a_server_takes_the_configurations_with_our_accounts() {
    let root = tempfile::tempdir().expect("a folder");
    let data = root.path().join("data");
    let made = accounts(&data);
    assert_eq!(accounts(&data), made, "keys are made once");
    for worker in teamster::host::WORKERS {
        assert!(
            made.contains(&format!("# {worker}\n")),
            "{worker} is a user"
        );
        assert!(data.join(format!("credentials/{worker}.creds")).exists());
    }
    let mut words = made.split(|c: char| !c.is_ascii_alphanumeric());
    assert!(
        !words.any(|word| word.len() == 58 && word.starts_with('S')),
        "no seed is printed"
    );
    std::fs::write(root.path().join("accounts.conf"), made).expect("written");
    for name in ["single.conf", "cluster.conf"] {
        let config = read(&format!("nats/{name}"));
        for line in [
            format!("max_payload: {}\n", limits::PAYLOAD_BYTES_MAX),
            "sync_interval: always\n".to_owned(),
            "include accounts.conf\n".to_owned(),
        ] {
            assert!(config.contains(&line), "{name}: {line}");
        }
        for list in ["nkey", "publish", "subscribe"] {
            assert!(!config.contains(list), "{name} holds rights: {list}");
        }
        std::fs::write(root.path().join(name), config).expect("written");
        let route = |port| format!("nats-route://route:secret@127.0.0.1:{port}");
        let output = Command::new(nats::server().await)
            .arg("-t")
            .arg("-c")
            .arg(root.path().join(name))
            .env("NATS_LISTEN", "127.0.0.1:0")
            .env("NATS_STORE", root.path().join("store"))
            .env("NATS_NAME", "a")
            .env("NATS_CLUSTER_LISTEN", "127.0.0.1:0")
            .env("NATS_CLUSTER_PASSWORD", "secret")
            .env("NATS_ROUTE_A", route(1))
            .env("NATS_ROUTE_B", route(2))
            .env("NATS_ROUTE_C", route(3))
            .output()
            .expect("nats-server runs");
        assert!(output.status.success(), "{name}: {}", text(&output));
    }
}

#[test]
fn each_worker_has_its_place_in_the_files() {
    let compose = read("container/compose.yaml");
    for worker in teamster::host::WORKERS {
        assert!(
            compose.contains(&format!("command: [worker, {worker},")),
            "{worker}"
        );
    }
    let unit = read("systemd/teamster-worker@.service");
    for worker in teamster::host::WORKERS {
        assert!(unit.contains(worker), "{worker}");
    }
}

/// Where systemd is there, it takes the units.
#[test]
fn the_units_are_valid() {
    let Ok(version) = Command::new("systemd-analyze").arg("--version").output() else {
        eprintln!("not run: there is no systemd-analyze");
        return;
    };
    assert!(version.status.success());
    let root = tempfile::tempdir().expect("a folder");
    let place = |name: &str, text: &str| {
        let path = root.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        // What is started need not be installed here.
        std::fs::write(&path, text.replace("/usr/local/bin/teamster", "/bin/true"))
            .expect("written");
        path
    };
    let mut units = vec![place("teamster.service", &read("systemd/teamster.service"))];
    let template = read("systemd/teamster-worker@.service");
    for worker in teamster::host::WORKERS {
        let unit = format!("teamster-worker@{worker}.service");
        for entry in std::fs::read_dir(folder().join(format!("systemd/{unit}.d")))
            .into_iter()
            .flatten()
            .flatten()
        {
            let part = std::fs::read_to_string(entry.path()).expect("a drop-in");
            let name = entry.file_name().into_string().expect("UTF-8");
            place(&format!("{unit}.d/{name}"), &part);
        }
        units.push(place(&unit, &template));
    }
    for unit in units {
        let output = Command::new("systemd-analyze")
            .arg("verify")
            .arg(&unit)
            .output()
            .expect("it runs");
        let said = text(&output);
        let name = unit
            .file_name()
            .and_then(|name| name.to_str())
            .expect("a name");
        assert!(
            output.status.success() && !said.contains(name),
            "{name}: {said}"
        );
    }
}
