//! The help of all commands, compared with the file that people review.

use std::path::Path;

use super::place::{Place, code};

pub const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/help.txt");

/// The help of every command, as one text. `TEAMSTER_BLESS=1` writes it.
#[tokio::test]
async fn the_help_is_what_it_was() {
    let place = Place::new();
    let mut text = String::new();
    for command in [
        "",
        "demo",
        "run",
        "chat",
        "send",
        "stop",
        "sessions",
        "sessions ls",
        "sessions show",
        "sessions search",
        "sessions fork",
        "sessions rm",
        "sessions export",
        "sessions verify",
        "sessions rename",
        "sessions set-meta",
        "sessions tail",
        "sessions accept-loss",
        "events",
        "cost",
        "approvals",
        "approvals ls",
        "approvals show",
        "approvals approve",
        "approvals deny",
        "approvals history",
        "functions",
        "functions ls",
        "functions info",
        "functions call",
        "policy",
        "policy explain",
        "config",
        "config get",
        "config set",
        "config unset",
        "config apply",
        "config explain",
        "config history",
        "workers",
        "workers ls",
        "workers info",
        "workers grant",
        "workers revoke",
        "workers unbind",
        "up",
        "worker",
        "doctor",
        "completions",
        "man",
        "deploy",
        "deploy nats-accounts",
    ] {
        let mut arguments: Vec<&str> = command.split_whitespace().collect();
        arguments.push("--help");
        let output = place.run(&arguments).await;
        assert_eq!(code(&output), 0);
        let help = String::from_utf8(output.stdout).expect("text");
        text = format!("{text}$ teamster {}\n{help}\n", arguments.join(" "));
    }
    if std::env::var_os("TEAMSTER_BLESS").is_some() {
        std::fs::create_dir_all(Path::new(GOLDEN).parent().expect("a folder")).expect("made");
        std::fs::write(GOLDEN, &text).expect("written");
    }
    let golden = std::fs::read_to_string(GOLDEN).expect("tests/golden/help.txt");
    assert!(
        text == golden,
        "the help changed; look at it, then run this test with TEAMSTER_BLESS=1:\n{text}"
    );
}
