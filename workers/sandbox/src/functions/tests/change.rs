//! Writing and editing.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use teamster_protocol::Digest;

use super::*;
use crate::{path::RelPath, store::Place};

fn write(job: &Job, request: &serde_json::Value) -> Result<serde_json::Value, Error> {
    call_write(job, request)
}

fn edit(job: &Job, request: &serde_json::Value) -> Result<serde_json::Value, Error> {
    call_edit(job, request)
}

/// The names in the workspace, hidden ones too.
fn names(space: &Space) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(space.work(""))
        .expect("a directory")
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("text")
        })
        .collect();
    names.sort();
    names
}

#[test]
fn a_file_is_written_whole_and_nothing_else_is_left() {
    let space = Space::new();
    let job = space.job();
    let reply = write(
        &job,
        &serde_json::json!({"path": "./a.txt", "content": "é\n"}),
    )
    .expect("written");
    let want = serde_json::json!({
        "path": "a.txt", "bytes": 3, "sha256": Digest::of("é\n"), "created": true, "changed": true,
    });
    assert_eq!(reply, want);
    let reply = write(&job, &serde_json::json!({"path": "a.txt", "content": ""})).expect("written");
    assert_eq!(
        (&reply["created"], &reply["changed"]),
        (&false.into(), &true.into())
    );
    assert_eq!(
        (space.get("a.txt"), names(&space)),
        (String::new(), vec!["a.txt".to_owned()])
    );
}

#[test]
fn a_repeated_write_changes_nothing_more() {
    let space = Space::new();
    space.put("a.txt", "old\n");
    let job = space.job();
    let request = serde_json::json!({"path": "a.txt", "content": "new\n", "expected_sha256": Digest::of("old\n")});
    let first = write(&job, &request).expect("written");
    assert_eq!(first["changed"], true);
    let inode = std::fs::metadata(space.work("a.txt"))
        .expect("a file")
        .ino();
    let second = write(&job, &request).expect("repeated");
    assert_eq!(
        (&second["changed"], &second["sha256"]),
        (&false.into(), &first["sha256"])
    );
    assert_eq!(
        std::fs::metadata(space.work("a.txt"))
            .expect("a file")
            .ino(),
        inode
    );
}

#[test]
fn a_change_of_somebody_else_is_not_overwritten() {
    let space = Space::new();
    space.put("a.txt", "theirs\n");
    let job = space.job();
    let seen = Digest::of("old\n");
    for (path, result) in [
        (
            "a.txt",
            write(
                &job,
                &serde_json::json!({"path": "a.txt", "content": "mine\n", "expected_sha256": seen}),
            ),
        ),
        (
            "a.txt",
            edit(
                &job,
                &serde_json::json!({"path": "a.txt", "old": "theirs", "new": "x", "expected_sha256": seen}),
            ),
        ),
        (
            "gone.txt",
            write(
                &job,
                &serde_json::json!({"path": "gone.txt", "content": "mine\n", "expected_sha256": seen}),
            ),
        ),
    ] {
        assert_eq!(code(result.expect_err(path)), "fs.changed");
    }
    assert_eq!(
        (space.get("a.txt"), names(&space).len()),
        ("theirs\n".to_owned(), 1)
    );
}

#[test]
fn permissions_stay_and_special_bits_do_not() {
    let space = Space::new();
    let job = space.job();
    for (mode, want) in [
        (0o640, 0o640),
        (0o755, 0o755),
        (0o4755, 0o755),
        (0o600, 0o600),
    ] {
        space.put("a.sh", "old");
        std::fs::set_permissions(space.work("a.sh"), std::fs::Permissions::from_mode(mode))
            .expect("a mode");
        write(
            &job,
            &serde_json::json!({"path": "a.sh", "content": format!("new {mode}")}),
        )
        .expect("written");
        let found = std::fs::metadata(space.work("a.sh"))
            .expect("a file")
            .mode()
            & 0o7777;
        assert_eq!(found, want, "{mode:o}");
    }
    std::fs::set_permissions(space.work("a.sh"), std::fs::Permissions::from_mode(0o444))
        .expect("a mode");
    let error =
        write(&job, &serde_json::json!({"path": "a.sh", "content": "no"})).expect_err("read-only");
    assert_eq!(code(error), "fs.read_only");
}

#[test]
fn directories_are_made_only_when_asked() {
    let space = Space::new();
    space.put("file", "x");
    space.put("dir/x", "x");
    let job = space.job();
    for (path, makes, want) in [
        ("a/b/c.txt", false, "fs.not_found"),
        ("file/c.txt", true, "fs.not_a_directory"),
        ("dir", false, "fs.is_directory"),
        (".", true, "fs.is_directory"),
        ("dir/.teamster-0.tmp", false, "fs.bad_path"),
    ] {
        let error = write(
            &job,
            &serde_json::json!({"path": path, "content": "x", "create_dirs": makes}),
        )
        .expect_err(path);
        assert_eq!(code(error), want, "{path}");
    }
    write(
        &job,
        &serde_json::json!({"path": "a/b/c.txt", "content": "x", "create_dirs": true}),
    )
    .expect("written");
    assert_eq!(space.get("a/b/c.txt"), "x");
    let missing = serde_json::json!({"path": "no/where/c.txt", "content": "x"});
    let fault = Fault::from(write(&job, &missing).expect_err("no directory"));
    assert!(
        fault
            .message
            .contains("\"no/where\" does not exist; set `create_dirs`"),
        "{}",
        fault.message
    );
}

#[test]
fn a_cancelled_or_late_change_leaves_nothing_behind() {
    let space = Space::new();
    space.put("a.txt", "old\n");
    let mut job = space.job();
    job.stop.cancel.cancel();
    let error = write(
        &job,
        &serde_json::json!({"path": "a.txt", "content": "new\n!"}),
    )
    .expect_err("cancelled");
    assert_eq!(code(error), "fs.cancelled");
    job = space.job();
    job.stop.until = Instant::now();
    let error = edit(
        &job,
        &serde_json::json!({"path": "a.txt", "old": "old", "new": "new"}),
    )
    .expect_err("late");
    assert_eq!(code(error), "fs.timeout");
    assert_eq!(
        (space.get("a.txt"), names(&space).len()),
        ("old\n".to_owned(), 1)
    );
}

#[test]
fn an_edit_says_what_it_did() {
    let space = Space::new();
    space.put("a.txt", "one\r\ntwo 中\r\ntwo\r\n");
    let job = space.job();
    let reply = edit(
        &job,
        &serde_json::json!({"path": "a.txt", "old": "two 中", "new": "2"}),
    )
    .expect("edited");
    let now = "one\r\n2\r\ntwo\r\n";
    let want = serde_json::json!({
        "path": "a.txt", "replacements": 1, "line": 2, "bytes": now.len(), "sha256": Digest::of(now),
    });
    assert_eq!((reply, space.get("a.txt")), (want, now.to_owned()));
    let all = serde_json::json!({"path": "a.txt", "old": "\r\n", "new": "\n", "replace_all": true});
    assert_eq!(edit(&job, &all).expect("edited")["replacements"], 3);
    assert_eq!(space.get("a.txt"), "one\n2\ntwo\n");
}

#[test]
fn an_edit_that_is_not_exact_changes_nothing() {
    let space = Space::new();
    space.put("a.txt", "one\none\n");
    space.put("latin", b"caf\xe9 one\n");
    space.put("binary", b"one\0");
    let job = space.job();
    for (path, old, new, want) in [
        ("a.txt", "one", "x", "fs.no_match"),
        ("a.txt", "absent", "x", "fs.no_match"),
        ("a.txt", "", "x", "fs.bad_request"),
        ("a.txt", "one", "one", "fs.bad_request"),
        ("latin", "one", "x", "fs.not_text"),
        ("binary", "one", "x", "fs.not_text"),
        ("missing", "one", "x", "fs.not_found"),
        (".", "one", "x", "fs.is_directory"),
    ] {
        let error = edit(
            &job,
            &serde_json::json!({"path": path, "old": old, "new": new}),
        )
        .expect_err(path);
        assert_eq!(code(error), want, "{path} {old:?}");
    }
    assert_eq!(space.get("a.txt"), "one\none\n");
}

#[test]
fn sec_40_files_that_are_or_would_become_too_large_are_refused() {
    let space = Space::new();
    let large = std::fs::File::create(space.work("large.txt")).expect("a file");
    large
        .set_len(limits::FS_WRITE_BYTES_MAX as u64 + 1)
        .expect("a size");
    space.put("grow.txt", "x".repeat(2000));
    let job = space.job();
    let error = edit(
        &job,
        &serde_json::json!({"path": "large.txt", "old": "x", "new": "y"}),
    )
    .expect_err("large");
    assert_eq!(code(error), "fs.too_large");
    let grow = serde_json::json!({"path": "grow.txt", "old": "x", "new": "y".repeat(10_000), "replace_all": true});
    assert_eq!(
        code(edit(&job, &grow).expect_err("growing")),
        "fs.too_large"
    );
    let content = "x".repeat(limits::FS_WRITE_BYTES_MAX + 1);
    let error = write(
        &job,
        &serde_json::json!({"path": "new.txt", "content": content}),
    )
    .expect_err("large");
    assert_eq!(code(error), "fs.too_large");
    assert_eq!(names(&space), ["grow.txt", "large.txt"]);
}

/// Another program writes between our look at a file and our replacing it.
#[test]
fn a_file_that_changes_under_a_write_is_left_alone() {
    let space = Space::new();
    space.put("a.txt", "old\n");
    let job = space.job();
    for (path, theirs) in [("a.txt", "theirs, longer\n"), ("new.txt", "theirs\n")] {
        let path = RelPath::parse(path).expect("valid");
        let place = Place::find(&job.root, &path, false).expect("a place");
        let old = place.state().expect("a state");
        space.put(path.as_str(), theirs);
        let error = place
            .put(b"mine\n", old.as_ref(), &job.stop)
            .expect_err("changed");
        assert_eq!(code(error), "fs.changed");
        assert_eq!(space.get(path.as_str()), theirs);
    }
    assert_eq!(names(&space), ["a.txt", "new.txt"]);
}

/// Edits of one file by calls at the same time follow one another.
#[test]
fn edits_of_one_file_at_the_same_time_are_all_kept() {
    let space = Space::new();
    let marks: Vec<String> = (0..24).map(|mark| format!("<{mark}>")).collect();
    space.put("a.txt", marks.join("\n"));
    std::thread::scope(|scope| {
        for mark in &marks {
            let space = &space;
            scope.spawn(move || {
                let new = format!("{mark} done");
                edit(
                    &space.job(),
                    &serde_json::json!({"path": "a.txt", "old": mark, "new": new}),
                )
                .expect("edited");
            });
        }
    });
    assert_eq!(space.get("a.txt").matches("done").count(), marks.len());
}

#[test]
fn what_a_killed_writer_left_is_not_shown() {
    let space = Space::new();
    space.put(".teamster-00ff.tmp", "WORD\n");
    space.put("a.txt", "WORD\n");
    let job = space.job();
    let listed = call_list(&job, &serde_json::json!({})).expect("a listing");
    assert_eq!(texts(&listed, "entries", "path"), ["a.txt"]);
    let found = call_grep(&job, &serde_json::json!({"pattern": "WORD"})).expect("a search");
    assert_eq!(texts(&found, "matches", "path"), ["a.txt"]);
}
