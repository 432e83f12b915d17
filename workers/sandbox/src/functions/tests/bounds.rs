//! Answers that stay small, whatever lies in the workspace.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

use teamster_protocol::Digest;

use super::*;

fn read(job: &Job, request: &serde_json::Value) -> serde_json::Value {
    call_read(job, request).expect("a page")
}

/// Reads a file page by page; the pages and how they were asked for must give the file.
fn pages(job: &Job, path: &str, is_by_byte: bool) -> (String, usize) {
    let mut joined = String::new();
    let mut request = serde_json::json!({"path": path});
    if is_by_byte {
        request["offset_byte"] = 0.into();
    }
    for count in 1..200 {
        let page = read(job, &request);
        joined.push_str(page["content"].as_str().expect("text"));
        if page["truncated"] == false {
            return (joined, count);
        }
        let by_line = page["next_line"].as_u64().filter(|_| !is_by_byte);
        request = match by_line {
            Some(line) => serde_json::json!({"path": path, "offset_line": line}),
            None => serde_json::json!({"path": path, "offset_byte": page["next_byte"]}),
        };
    }
    panic!("{path} has no end");
}

#[test]
fn uni_1_a_long_text_is_paged_between_characters() {
    let space = Space::new();
    let lines: String = (0..3000).fold(String::new(), |text, n| {
        text + &format!("{n} é中👍 \"quoted\"\tand more\n")
    });
    let texts = [
        ("one-line.txt", "中".repeat(40_000)),
        ("lines.txt", lines),
        ("control.txt", "\u{1}\u{2}\u{3}".repeat(20_000)),
        ("no-end.txt", "a\nb".to_owned()),
        ("crlf.txt", "a\r\nb\r\n".repeat(9_000)),
    ];
    let job = space.job();
    for (name, text) in texts {
        space.put(name, &text);
        for is_by_byte in [false, true] {
            let (joined, count) = pages(&job, name, is_by_byte);
            assert!(joined == text, "{name} after {count} pages");
            assert!(count > 1 || text.len() < 100, "{name}");
        }
    }
}

#[test]
fn a_page_says_where_it_is() {
    let space = Space::new();
    space.put("a.txt", "one\ntwo\nthree");
    let job = space.job();
    let page = read(
        &job,
        &serde_json::json!({"path": "a.txt", "offset_line": 2, "limit_lines": 1}),
    );
    let want = serde_json::json!({
        "kind": "text", "path": "a.txt", "bytes": 13, "content": "two\n", "first_line": 2, "lines": 1, "total_lines": 3,
        "sha256": Digest::of("one\ntwo\nthree"), "truncated": true, "next_line": 3, "next_byte": 8,
    });
    assert_eq!(page, want);
    let page = read(
        &job,
        &serde_json::json!({"path": "a.txt", "offset_line": 9}),
    );
    assert_eq!(
        (&page["content"], &page["truncated"], &page["lines"]),
        (&"".into(), &false.into(), &0.into())
    );
    assert!(page["note"].as_str().expect("a note").contains("3 lines"));
    let page = read(
        &job,
        &serde_json::json!({"path": "a.txt", "offset_byte": 8}),
    );
    assert_eq!(
        (&page["content"], &page["truncated"]),
        (&"three".into(), &false.into())
    );
    let page = read(
        &job,
        &serde_json::json!({"path": "a.txt", "offset_byte": 99}),
    );
    assert_eq!(
        (&page["content"], &page["truncated"]),
        (&"".into(), &false.into())
    );
    for bad in [
        serde_json::json!({"path": "a.txt", "offset_line": 0}),
        serde_json::json!({"path": "a.txt", "limit_lines": 0}),
        serde_json::json!({"path": "a.txt", "offset_line": 1, "offset_byte": 1}),
    ] {
        assert_eq!(
            code(call_read(&job, &bad).expect_err("wrong")),
            "fs.bad_request"
        );
    }
}

#[test]
fn what_is_no_plain_text_is_said() {
    let space = Space::new();
    space.put("empty", "");
    space.put("binary", b"\x7fELF\0\0\0LOOT");
    space.put("utf16", b"\xff\xfea\0b\0");
    space.put("latin", b"caf\xe9 LOOT\n");
    let job = space.job();
    for (path, kind, note) in [
        ("empty", "text", "empty"),
        ("binary", "binary", "binary"),
        ("utf16", "binary", "UTF-16"),
        ("latin", "text", "U+FFFD"),
    ] {
        let reply = read(&job, &serde_json::json!({"path": path}));
        assert_eq!(reply["kind"], kind, "{path}");
        assert!(
            reply["note"].as_str().expect("a note").contains(note),
            "{path}"
        );
        assert!(!reply.to_string().contains("ELF"));
    }
    let found = call_grep(&job, &serde_json::json!({"pattern": "LOOT"})).expect("a search");
    assert_eq!(texts(&found, "matches", "text"), ["caf\u{fffd} LOOT"]);
    let summary = found["summary"].as_str().expect("a summary");
    assert!(
        summary.contains("2 binary not searched") && summary.contains("complete"),
        "{summary}"
    );
}

#[test]
fn sec_40_a_very_large_file_is_bounded_and_says_so() {
    let space = Space::new();
    // Text at the beginning, and a hole of a terabyte behind it.
    space.put("huge.log", "line LOOT\n".repeat(10_000));
    let file = std::fs::File::options()
        .write(true)
        .open(space.work("huge.log"))
        .expect("a file");
    file.set_len(1 << 40).expect("a sparse file");
    let job = space.job();
    let page = read(&job, &serde_json::json!({"path": "huge.log"}));
    assert_eq!(
        (&page["kind"], &page["truncated"]),
        (&"text".into(), &true.into())
    );
    assert!(
        page.get("sha256").is_none()
            && page["note"].as_str().expect("a note").contains("too large")
    );
    let page = read(
        &job,
        &serde_json::json!({"path": "huge.log", "offset_line": 5000, "limit_lines": 1}),
    );
    assert_eq!(
        (&page["content"], &page["next_line"]),
        (&"line LOOT\n".into(), &5001.into())
    );
    let page = read(
        &job,
        &serde_json::json!({"path": "huge.log", "offset_line": 1_000_000}),
    );
    assert_eq!(page["kind"], "too_large");
    assert!(
        page["note"]
            .as_str()
            .expect("a note")
            .contains("offset_byte")
    );
    let found = call_grep(&job, &serde_json::json!({"pattern": "LOOT"})).expect("a search");
    assert_eq!(found["matches"], serde_json::json!([]));
    assert!(
        found["summary"]
            .as_str()
            .expect("a summary")
            .contains("1 larger than 8 MiB not searched")
    );
}

#[test]
fn many_files_are_paged_completely_and_in_order() {
    let space = Space::new();
    let mut want: Vec<String> = (0..3000)
        .map(|n| format!("many/{:02}/ü file {n} \"q\".txt", n % 7))
        .collect();
    for path in &want {
        space.put(path, "x");
    }
    want.sort();
    let job = space.job();
    for (call, rest, list) in [
        (
            call_find as Call,
            r#"{"glob": "*.txt", "max": 1000}"#,
            "paths",
        ),
        (call_list, r#"{"depth": 8, "max": 1000}"#, "entries"),
    ] {
        let mut request: serde_json::Value = serde_json::from_str(rest).expect("JSON");
        let mut found = Vec::new();
        let mut pages = 0;
        loop {
            let reply = call(&job, &request).expect("a page");
            pages += 1;
            found.extend(
                reply[list]
                    .as_array()
                    .expect("a list")
                    .iter()
                    .filter_map(|item| {
                        let path = item
                            .as_str()
                            .or_else(|| item["path"].as_str())
                            .expect("a path");
                        path.contains("file").then(|| path.to_owned())
                    }),
            );
            if reply["truncated"] == false {
                assert!(
                    reply["summary"]
                        .as_str()
                        .expect("a summary")
                        .contains("complete")
                );
                break;
            }
            request["after"] = reply["next"].clone();
        }
        assert!(
            found == want && pages > 3,
            "{list}: {} in {pages} pages",
            found.len()
        );
    }
}

#[test]
fn a_search_shows_lines_with_their_place_and_what_is_around() {
    let space = Space::new();
    space.put("b.txt", "one\r\ntwo hit\r\nthree\r\nfour hit\r\n");
    space.put("a/c.md", "HIT");
    let job = space.job();
    let found =
        call_grep(&job, &serde_json::json!({"pattern": "hit$", "context": 1})).expect("a search");
    let want = serde_json::json!([
        {"path": "b.txt", "line": 2, "text": "two hit", "before": ["one"], "after": ["three"]},
        {"path": "b.txt", "line": 4, "text": "four hit", "before": ["three"]},
    ]);
    assert_eq!(found["matches"], want);
    let found = call_grep(
        &job,
        &serde_json::json!({"pattern": "hit", "ignore_case": true, "glob": "*.md"}),
    )
    .expect("a search");
    assert_eq!(texts(&found, "matches", "path"), ["a/c.md"]);
    let found = on_path(&job, call_grep, r#"{"pattern": "four"}"#, "b.txt").expect("a search");
    assert_eq!(found["matches"][0]["line"], 4);
    let found =
        call_grep(&job, &serde_json::json!({"pattern": "hit", "max": 1})).expect("a search");
    assert_eq!(
        (
            found["matches"].as_array().map(Vec::len),
            &found["truncated"]
        ),
        (Some(1), &true.into())
    );
    let fault =
        Fault::from(call_grep(&job, &serde_json::json!({"pattern": "f("})).expect_err("wrong"));
    assert_eq!(fault.code, "fs.bad_pattern");
    assert!(fault.message.contains("backslash"), "{}", fault.message);
}

#[test]
fn sec_40_a_search_of_hostile_lines_stays_within_its_bound() {
    let space = Space::new();
    space.put(
        "long.txt",
        format!("{}hit{}\n", "中".repeat(9_000), "\u{1}".repeat(90_000)),
    );
    space.put("many.txt", "\u{1}hit\u{2}\n".repeat(50_000));
    let job = space.job();
    for context in [0, 10] {
        let request = serde_json::json!({"pattern": "hit", "context": context, "max": 1000});
        let found = call_grep(&job, &request).expect("a search");
        let matches = texts(&found, "matches", "text");
        assert!(
            matches.len() > 20 && found["truncated"] == true,
            "{}",
            matches.len()
        );
        assert!(matches[0].contains("hit") && matches[0].len() <= limits::FS_LINE_BYTES_MAX);
    }
    let worst = serde_json::json!({"pattern": ".", "context": 10, "path": "long.txt"});
    assert_eq!(
        call_grep(&job, &worst).expect("a search")["matches"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
}

#[test]
fn empty_answers_say_that_they_are_final() {
    let space = Space::new();
    std::fs::create_dir(space.work("empty")).expect("a directory");
    let job = space.job();
    for (call, rest) in [
        (call_list as Call, "{}"),
        (call_find, r#"{"glob": "*"}"#),
        (call_grep, r#"{"pattern": "x"}"#),
    ] {
        let reply = on_path(&job, call, rest, "empty").expect("an answer");
        let summary = reply["summary"].as_str().expect("a summary");
        assert!(
            summary.starts_with("0 ") && summary.ends_with("complete"),
            "{summary}"
        );
    }
}

#[test]
fn a_search_out_of_time_says_so_and_a_cancelled_one_ends() {
    let space = Space::new();
    space.put("a.txt", "x\n".repeat(10_000));
    for (name, call, rest) in &ALL[..4] {
        let mut job = space.job();
        job.stop.until = Instant::now();
        match on_path(
            &job,
            *call,
            rest,
            if *name == "fs::read" { "a.txt" } else { "." },
        ) {
            Ok(reply) => assert!(
                reply["summary"]
                    .as_str()
                    .expect("a summary")
                    .contains("INCOMPLETE"),
                "{name}"
            ),
            Err(error) => assert_eq!((*name, code(error).as_str()), ("fs::read", "fs.timeout")),
        }
        let job = space.job();
        job.stop.cancel.cancel();
        let path = if *name == "fs::read" { "a.txt" } else { "." };
        let error = on_path(&job, *call, rest, path).expect_err(name);
        assert_eq!(code(error), "fs.cancelled", "{name}");
    }
    let job = space.job();
    job.stop.cancel.cancel();
    let error = on_path(&job, call_grep, r#"{"pattern": "y"}"#, "a.txt").expect_err("one file");
    assert_eq!(code(error), "fs.cancelled");
}

#[test]
fn a_tree_without_a_floor_is_cut_and_named() {
    let space = Space::new();
    space.put(
        &format!("{}end.txt", "d/".repeat(limits::FS_DEPTH_MAX + 3)),
        "x",
    );
    let job = space.job();
    let found = call_find(&job, &serde_json::json!({"glob": "end.txt"})).expect("a search");
    assert_eq!(found["paths"], serde_json::json!([]));
    assert!(
        found["summary"]
            .as_str()
            .expect("a summary")
            .contains("INCOMPLETE")
    );
    let below = "d/".repeat(10);
    let found = on_path(&job, call_find, r#"{"glob": "end.txt"}"#, &below).expect("a search");
    assert_eq!(found["paths"].as_array().map(Vec::len), Some(1));
}

#[test]
fn uni_1_names_of_every_script_are_kept_and_broken_ones_counted() {
    let space = Space::new();
    for name in ["文件.md", "naïve café.txt", "👍🏽.log", "a\u{202e}b"] {
        space.put(name, "LOOT\n");
    }
    std::fs::write(
        space.work("").join(OsStr::from_bytes(b"broken\xff")),
        "LOOT\n",
    )
    .expect("a file");
    std::fs::write(space.work("").join("line\nbreak"), "LOOT\n").expect("a file");
    let job = space.job();
    let listed = call_list(&job, &serde_json::json!({})).expect("a listing");
    let paths = texts(&listed, "entries", "path");
    assert_eq!(paths.len(), 4);
    for path in &paths {
        let page = read(&job, &serde_json::json!({"path": path}));
        assert_eq!(page["content"], "LOOT\n", "{path}");
    }
    let found = call_grep(&job, &serde_json::json!({"pattern": "LOOT"})).expect("a search");
    assert_eq!(texts(&found, "matches", "path"), paths);
    for reply in [listed, found] {
        assert!(
            reply["summary"]
                .as_str()
                .expect("a summary")
                .contains("2 with unusable names")
        );
    }
}
