//! The server of a test comes up, dies, comes back where it was, and holds still.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use teamster_testkit::{Nats, nats::Options};

/// Asks the server over one raw connection; `None` when nothing comes back in time.
fn greeting(address: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    let limit = Some(Duration::from_millis(300));
    stream.set_read_timeout(limit).expect("a limit");
    stream.write_all(b"PING\r\n").ok()?;
    let mut first = [0; 4096];
    let bytes = stream.read(&mut first).ok()?;
    Some(String::from_utf8_lossy(first.get(..bytes)?).into_owned())
}

#[tokio::test]
async fn a_server_keeps_its_port_and_store_over_a_kill() {
    let mut nats = Nats::start_with(Options { always: true }).await;
    let (url, pid) = (nats.url(), nats.pid());
    let hello = greeting(&nats.address()).expect("a greeting");
    assert!(
        hello.starts_with("INFO ") && hello.contains("\"jetstream\":true"),
        "{hello}"
    );
    nats.kill().await;
    assert_eq!(greeting(&nats.address()), None);
    nats.restart().await;
    assert_eq!(nats.url(), url);
    assert_ne!(nats.pid(), pid);
    assert!(greeting(&nats.address()).is_some());
    assert!(nats.store().is_dir());
}

#[tokio::test]
async fn a_paused_server_is_silent_until_it_is_resumed() {
    let nats = Nats::start().await;
    nats.pause();
    assert_eq!(greeting(&nats.address()), None);
    nats.resume();
    assert!(greeting(&nats.address()).is_some());
}
