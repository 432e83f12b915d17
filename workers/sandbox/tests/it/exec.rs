//! Commands over the mesh.

use std::path::PathBuf;

use serde_json::json;
use teamster_sandbox::Config;

use crate::house::House;

fn config() -> Config {
    Config {
        helper: Some(PathBuf::from(env!("CARGO_BIN_EXE_teamster-sandbox-stage"))),
        ..Config::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn smoke() {
    let house = House::new(config()).await;
    let work = tempfile::tempdir().expect("a workspace");
    for argv in [
        vec!["sh", "-c", "id; pwd; ls -la / /workspace /etc /dev; env; cat /proc/self/status | grep -E 'Cap|Sec|NoNew'; cat /proc/self/mountinfo; ls -l /proc/self/fd; ps; hostname; echo hi > a; ls -l; ulimit -a"],
        vec!["nope"],
    ] {
        let reply = house.call("sandbox::exec", Some(work.path()), json!({"argv": argv})).await;
        match reply {
            Ok(reply) => println!("{}\n{}\n{:#}", reply["stdout"]["text"].as_str().unwrap(), reply["stderr"]["text"].as_str().unwrap(), reply),
            Err(fault) => println!("{fault:?}"),
        }
    }
    house.serving.drain().await;
}
