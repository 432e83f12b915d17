//! The workspace: what a command must not see or change in it.

use super::*;

const EACCES: &str = "Permission denied";
const READ_ONLY: &str = "Read-only file system";
const BUSY: &str = "Device or resource busy";

/// A workspace with secrets and a repository.
async fn furnished(who: Who) -> Cell {
    let cell = Cell::new(who).await;
    let work = cell.bench.work.path();
    for dir in [
        ".git/hooks",
        "app/.ssh",
        "deep/a/b",
        "vault.key",
        "home/.aws",
    ] {
        fs::create_dir_all(work.join(dir)).expect("a directory");
    }
    for (path, text) in [
        (".env", "LOOT"),
        ("app/.env.local", "LOOT"),
        ("app/.ssh/id_rsa", "LOOT"),
        ("deep/a/b/server.pem", "LOOT"),
        ("vault.key/notes", "LOOT"),
        ("home/.aws/credentials", "LOOT"),
        (".git/config", "[core]\n"),
        ("readme.md", "plain"),
    ] {
        fs::write(work.join(path), text).expect("a file");
        open(&work.join(path));
    }
    std::os::unix::fs::symlink("app/.env.local", work.join("linked")).expect("a link");
    let walk = [
        "",
        ".git",
        ".git/hooks",
        "app",
        "app/.ssh",
        "deep",
        "deep/a",
        "deep/a/b",
        "vault.key",
        "home",
        "home/.aws",
    ];
    for dir in walk {
        open(&work.join(dir));
    }
    cell
}

#[tokio::test(flavor = "multi_thread")]
async fn sec_60_secret_files_of_the_workspace_are_hidden() {
    for who in Who::all() {
        let cell = furnished(who).await;
        for (line, why) in [
            ("cat .env", EACCES),
            ("cat app/.env.local", EACCES),
            ("cat linked", EACCES),
            ("cat app/.ssh/id_rsa", EACCES),
            ("cat deep/a/b/server.pem", EACCES),
            ("cat vault.key/notes", EACCES),
            ("chmod 644 .env; cat .env", EACCES),
            ("chmod 644 .env", READ_ONLY),
            ("mv .env other; cat other", BUSY),
            ("rm -f .env; cat .env", BUSY),
            ("ln .env other; cat other", "Invalid cross-device link"),
            ("cp .env other; cat other", EACCES),
            ("mv deep away; cat away/a/b/server.pem", EACCES),
            ("cat home/.aws/credentials", EACCES),
            ("mv home/.aws home/notes; cat home/notes/*", BUSY),
            ("mv home/.aws/credentials notes; cat notes", EACCES),
            ("rm -rf home/.aws; ls home/.aws", BUSY),
            ("mv home moved; cat moved/.aws/credentials", EACCES),
            ("mv moved/.aws notes; cat notes/*", BUSY),
            ("echo x > .env", READ_ONLY),
            ("find . -type f -exec cat {} +", EACCES),
            ("grep -r LOO[T] .", EACCES),
            ("tar cf /tmp/x.tar . ; grep -a LOO[T] /tmp/x.tar", EACCES),
        ] {
            let said = cell.attempt(line).await;
            assert!(said.contains(why), "{who:?} {line}: {said}");
        }
        let plain = cell.attempt("cat readme.md || cat readme.md").await;
        assert_eq!(plain, "plain");
        let kept = fs::read_to_string(cell.bench.work.path().join(".env"));
        assert_eq!(kept.expect("the secret"), "LOOT");
    }
}

/// What git would run as the user cannot be put where git looks.
#[tokio::test(flavor = "multi_thread")]
async fn a_repository_can_be_read_and_not_be_changed() {
    for who in Who::all() {
        let cell = furnished(who).await;
        for (line, why) in [
            (
                "echo x > .git/hooks/post-checkout && echo ESCAPED",
                READ_ONLY,
            ),
            ("echo x >> .git/config && echo ESCAPED", READ_ONLY),
            ("rm -rf .git && echo ESCAPED", READ_ONLY),
            ("mv .git gone && echo ESCAPED", BUSY),
        ] {
            let said = cell.attempt(line).await;
            assert!(said.contains(why), "{who:?} {line}: {said}");
        }
        assert_eq!(cell.attempt("cat .git/config").await, "[core]\n");
    }
}

/// A directory that is not there yet is protected too: a command makes no repository for the user's git.
#[tokio::test(flavor = "multi_thread")]
async fn a_repository_cannot_be_begun() {
    for who in Who::all() {
        let cell = Cell::new(who).await;
        for line in [
            "mkdir -p .git/hooks && echo ESCAPED",
            "echo x > .git/config && echo ESCAPED",
            "rmdir .git && echo ESCAPED",
            "mv .git x && echo ESCAPED",
            "echo x > .GIT/config && echo ESCAPED",
        ] {
            cell.attempt(line).await;
        }
        cell.bench.nothing_is_left("no process has this mark").await;
    }
}

/// SEC-48: a link that a command made is a link for the file functions too, and they follow none.
#[tokio::test(flavor = "multi_thread")]
async fn sec_48_a_link_made_inside_is_not_followed_outside() {
    for who in Who::all() {
        let cell = Cell::new(who).await;
        let secret = cell.secret();
        cell.attempt(&format!(
            "ln -s {secret} link; ln -s {} dir",
            cell.outside.path().display()
        ))
        .await;
        let at = Some(cell.bench.work.path());
        for (id, request) in [
            ("fs::read", json!({"path": "link"})),
            ("fs::read", json!({"path": "dir/secret.txt"})),
            ("fs::write", json!({"path": "link", "content": "x"})),
            ("fs::write", json!({"path": "dir/new", "content": "x"})),
            ("sandbox::exec", json!({"argv": ["true"], "cwd": "dir"})),
        ] {
            let fault = cell
                .bench
                .house
                .call(id, at, request)
                .await
                .expect_err("refused");
            assert_eq!(fault.code, "fs.link", "{id}");
        }
        assert_eq!(fs::read_to_string(&secret).expect("a file"), "LOOT-FILE\n");
    }
}

/// The workspace is the session's: another directory of the host is not reached by its own path either.
#[tokio::test(flavor = "multi_thread")]
async fn the_workspaces_place_on_the_host_is_not_known_inside() {
    for who in Who::all() {
        let cell = Cell::new(who).await;
        let place = cell.bench.work.path().display().to_string();
        let said = cell
            .attempt(&format!("ls {place} && echo ESCAPED; pwd"))
            .await;
        assert!(
            said.contains("No such file or directory") && said.contains("/workspace\n"),
            "{said}"
        );
    }
}

/// Names that tables of mounts and programs write otherwise, in the workspace's own path too.
#[tokio::test(flavor = "multi_thread")]
async fn sec_60_a_secret_is_hidden_whatever_its_name_is() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};
    let bench = Bench::new(config()).await;
    let work = bench.work.path().join("a b\\c\u{e9}");
    fs::create_dir(&work).expect("a directory");
    let names: [&[u8]; 6] = [
        b".env",
        b"sp ace.pem",
        b"new\nline.pem",
        b"back\\040slash.pem",
        b"bad\xff.pem",
        "\u{4e2d}\u{6587}.key".as_bytes(),
    ];
    for name in names {
        fs::write(work.join(OsStr::from_bytes(name)), "LOOT").expect("a file");
    }
    fs::write(work.join("plain"), "plain").expect("a file");
    let reply = bench
        .house
        .call(
            "sandbox::exec",
            Some(&work),
            json!({"argv": ["sh", "-c", "for f in .env *; do cat \"$f\"; done"]}),
        )
        .await
        .expect("an answer");
    assert_eq!(reply["stdout"]["text"], "plain", "{reply}");
    let denied = reply["stderr"]["text"].as_str().expect("text");
    assert_eq!(denied.matches(EACCES).count(), names.len(), "{denied}");
}

/// What cannot be looked at cannot be hidden, so nothing runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_that_is_too_deep_is_refused() {
    let bench = Bench::new(config()).await;
    let mut deep = bench.work.path().to_owned();
    for _ in 0..201 {
        deep.push("d");
    }
    fs::create_dir_all(&deep).expect("directories");
    let request = json!({"argv": ["touch", "ran"]});
    let call = bench
        .house
        .call("sandbox::exec", Some(bench.work.path()), request);
    assert_eq!(
        call.await.expect_err("refused").code,
        "sandbox.workspace_too_large"
    );
    assert!(!bench.work.path().join("ran").exists());
}
