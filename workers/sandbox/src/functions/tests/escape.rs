//! Ways out of the workspace, all closed.

use std::{
    os::unix::fs::symlink,
    sync::atomic::{AtomicBool, Ordering},
};

use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, RenameFlags, renameat2},
    sys::stat::Mode,
};

use super::*;
use crate::path::RelPath;

#[test]
fn sec_12_paths_that_lead_out_are_refused_by_every_function() {
    let space = Space::new();
    space.put("a/b.txt", "x\n");
    let loot = space.outside("loot.txt");
    for (name, call, rest) in ALL {
        for path in [
            "..",
            "../outside/loot.txt",
            "a/../../outside/loot.txt",
            "/etc/passwd",
            "/",
            loot.to_str().expect("text"),
            "",
        ] {
            let error = on_path(&space.job(), call, rest, path).expect_err(name);
            assert_eq!(code(error), "fs.bad_path", "{name} {path}");
        }
    }
    space.assert_outside_is_whole();
}

#[test]
fn sec_48_links_are_followed_by_no_function() {
    let space = Space::new();
    space.put("inside/real.txt", "LOOT inside\n");
    for (target, link) in [
        ("../outside/loot.txt", "file"),
        ("../outside", "dir"),
        ("../outside/new.txt", "dangling"),
        ("inside", "within"),
        ("/proc/self/root", "magic"),
        ("/proc/self/cwd", "cwd"),
    ] {
        symlink(target, space.work(link)).expect("a link");
    }
    let job = space.job();
    for (name, call, rest) in ALL {
        for path in [
            "file",
            "dir",
            "dir/loot.txt",
            "dir/new.txt",
            "dangling",
            "within",
            "within/real.txt",
            "magic",
            "magic/etc/hostname",
            "cwd/Cargo.toml",
        ] {
            let error = on_path(&job, call, rest, path).expect_err(name);
            assert_eq!(code(error), "fs.link", "{name} {path}");
        }
    }
    let deep = r#"{"content": "x", "create_dirs": true}"#;
    for path in [
        "dir/new/deep.txt",
        "within/new/deep.txt",
        "dangling/deep.txt",
    ] {
        let error = on_path(&job, call_write, deep, path).expect_err(path);
        assert!(
            ["fs.link", "fs.not_a_directory"].contains(&code(error).as_str()),
            "{path}"
        );
    }
    space.assert_outside_is_whole();
    assert_eq!(space.get("inside/real.txt"), "LOOT inside\n");
}

#[test]
fn sec_48_searches_name_links_and_pass_them_by() {
    let space = Space::new();
    space.put("inside/real.txt", "LOOT inside\n");
    symlink("../outside", space.work("dir")).expect("a link");
    symlink("../outside/loot.txt", space.work("file")).expect("a link");
    let job = space.job();
    let found = call_grep(&job, &serde_json::json!({"pattern": "LOOT"})).expect("a search");
    assert_eq!(texts(&found, "matches", "path"), ["inside/real.txt"]);
    let found = call_find(&job, &serde_json::json!({"glob": "**"})).expect("a search");
    assert_eq!(
        found["paths"],
        serde_json::json!(["dir", "file", "inside/", "inside/real.txt"])
    );
    let listed = call_list(&job, &serde_json::json!({"depth": 8})).expect("a listing");
    assert_eq!(
        texts(&listed, "entries", "kind"),
        ["symlink", "symlink", "directory", "file"]
    );
}

#[test]
fn pipes_and_sockets_are_refused_without_waiting() {
    let space = Space::new();
    nix::unistd::mkfifo(&space.work("pipe"), Mode::from_bits_truncate(0o600)).expect("a pipe");
    let _socket = std::os::unix::net::UnixListener::bind(space.work("socket")).expect("a socket");
    space.put("text.txt", "LOOT\n");
    let job = space.job();
    for (name, call, rest) in ALL {
        let want = if ["fs::list", "fs::find"].contains(&name) {
            "fs.not_a_directory"
        } else {
            "fs.not_regular"
        };
        for path in ["pipe", "socket"] {
            let error = on_path(&job, call, rest, path).expect_err(name);
            assert_eq!(code(error), want, "{name} {path}");
        }
    }
    let found = call_grep(&job, &serde_json::json!({"pattern": "LOOT"})).expect("a search");
    assert_eq!(texts(&found, "matches", "path"), ["text.txt"]);
    let listed = call_list(&job, &serde_json::json!({})).expect("a listing");
    assert_eq!(
        texts(&listed, "entries", "kind"),
        ["other", "other", "file"]
    );
}

/// Says that the test is over.
struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Another process swaps a directory for a link to the outside, again and again: at no moment does a function get there.
#[test]
fn sec_48_a_directory_swapped_for_a_link_is_never_followed() {
    let space = Space::new();
    space.put("spot/loot.txt", "mine\n");
    symlink("../outside", space.work("link")).expect("a link");
    let (spot, link) = (space.work("spot"), space.work("link"));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                renameat2(
                    AT_FDCWD,
                    &spot,
                    AT_FDCWD,
                    &link,
                    RenameFlags::RENAME_EXCHANGE,
                )
                .expect("a swap");
            }
        });
        // The other thread ends with this one, also when an assertion here fails.
        let _over = OnDrop(&is_over);
        let job = space.job();
        let (mut reached, mut refused, mut rounds) = (0, 0, 0);
        while rounds < 20_000 && (rounds < 300 || reached == 0 || refused == 0) {
            rounds += 1;
            match on_path(&job, call_read, "{}", "spot/loot.txt") {
                Ok(reply) => {
                    assert_eq!(reply["content"], "mine\n");
                    reached += 1;
                }
                Err(_) => refused += 1,
            }
            let found = call_grep(&job, &serde_json::json!({"pattern": "LOOT"})).expect("a search");
            assert_eq!(found["matches"], serde_json::json!([]));
            let content = format!(r#"{{"content": "written {rounds}", "create_dirs": true}}"#);
            let _ = on_path(&job, call_write, &content, "spot/new.txt");
        }
        assert!(reached > 0 && refused > 0, "{reached} and {refused}");
    });
    space.assert_outside_is_whole();
}

#[test]
fn the_operator_may_name_the_workspace_through_a_link_and_nothing_less() {
    let space = Space::new();
    space.put("a.txt", "x\n");
    symlink("work", space.dir.path().join("alias")).expect("a link");
    let job = job_in(&space.dir.path().join("alias"));
    assert!(on_path(&job, call_read, "{}", "a.txt").is_ok());
    for bad in ["", "work", "/nowhere/at/all", "/proc/self/exe"] {
        let error = Root::open(bad).expect_err(bad);
        assert_eq!(code(error), "fs.workspace_gone", "{bad}");
    }
}

/// Without the kernel's help nothing is opened, and the message says what is missing.
#[test]
fn a_kernel_without_openat2_is_named() {
    let path = RelPath::parse("a").expect("valid");
    let fault = Fault::from(Error::system("open", &path, Errno::ENOSYS));
    assert_eq!(fault.code, "fs.kernel");
    assert!(fault.message.contains("openat2") && fault.hint.is_some());
}

#[test]
fn sec_48_a_hard_link_keeps_its_content_elsewhere() {
    let space = Space::new();
    std::fs::hard_link(space.outside("loot.txt"), space.work("shared.txt")).expect("a hard link");
    let job = space.job();
    on_path(
        &job,
        call_edit,
        r#"{"old": "LOOT", "new": "x"}"#,
        "shared.txt",
    )
    .expect("an edit");
    assert_eq!(space.get("shared.txt"), "x\n");
    space.assert_outside_is_whole();
}
