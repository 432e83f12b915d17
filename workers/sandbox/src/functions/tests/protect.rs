//! What stays closed inside the workspace.

use super::*;

const SECRET_FILES: [&str; 6] = [
    ".env",
    "app/.env",
    "app/.ENV",
    "tls/server.pem",
    ".ssh/id_rsa.pub",
    "vault.key/notes.txt",
];

fn space_with_secrets() -> Space {
    let space = Space::new();
    for path in SECRET_FILES {
        space.put(path, "TOKEN=hidden\n");
    }
    space.put("app/main.rs", "let token = env(\"TOKEN\");\n");
    space
}

#[test]
fn sec_60_protected_files_are_closed_to_every_function() {
    let space = space_with_secrets();
    let job = space.job();
    for (name, call, rest) in ALL {
        for path in SECRET_FILES
            .iter()
            .chain(&["vault.key", "./app//.env", "new.pem", "new/.env"])
        {
            let error = on_path(&job, call, rest, path).expect_err(name);
            assert_eq!(code(error), "fs.protected", "{name} {path}");
        }
    }
    for path in SECRET_FILES {
        assert_eq!(space.get(path), "TOKEN=hidden\n");
    }
}

#[test]
fn sec_60_searches_neither_show_nor_name_protected_files() {
    let space = space_with_secrets();
    let job = space.job();
    let replies = [
        call_grep(&job, &serde_json::json!({"pattern": "hidden|TOKEN"})).expect("a search"),
        call_grep(
            &job,
            &serde_json::json!({"pattern": "hidden|TOKEN", "glob": ".env"}),
        )
        .expect("a search"),
        call_find(&job, &serde_json::json!({"glob": "**"})).expect("a search"),
        call_find(&job, &serde_json::json!({"glob": ".env"})).expect("a search"),
        call_list(&job, &serde_json::json!({"depth": 8})).expect("a listing"),
    ];
    for reply in &replies {
        let text = reply.to_string();
        for secret in ["hidden", ".env\"", ".ENV", "server.pem", "id_rsa", "vault"] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
        let summary = reply["summary"].as_str().expect("a summary");
        assert!(summary.contains("6 protected left out"), "{summary}");
    }
    assert_eq!(texts(&replies[0], "matches", "path"), ["app/main.rs"]);
    let fault = Fault::from(on_path(&job, call_read, "{}", "APP/main.rs").expect_err("missing"));
    assert!(!fault.message.contains(".env"), "{}", fault.message);
}

#[test]
fn more_globs_hide_more() {
    let space = Space::new();
    space.put("private/plan.md", "WORD\n");
    space.put("public/plan.md", "WORD\n");
    let mut job = space.job();
    job.protected = Arc::new(Protected::new(vec!["private/**".to_owned()]).expect("valid"));
    let found = call_grep(&job, &serde_json::json!({"pattern": "WORD"})).expect("a search");
    assert_eq!(texts(&found, "matches", "path"), ["public/plan.md"]);
    let error = on_path(&job, call_read, "{}", "private/plan.md").expect_err("closed");
    assert_eq!(code(error), "fs.protected");
}

#[test]
fn git_is_searched_only_when_named_and_never_written() {
    let space = Space::new();
    space.put(".git/config", "WORD\n");
    space.put("sub/.git", "gitdir: WORD\n");
    space.put("a.txt", "WORD\n");
    let job = space.job();
    let grep = |path: &str| {
        let found = on_path(&job, call_grep, r#"{"pattern": "WORD"}"#, path).expect("a search");
        texts(&found, "matches", "path")
    };
    assert_eq!(grep("."), ["a.txt", "sub/.git"]);
    assert_eq!(grep(".git"), [".git/config"]);
    for path in [
        ".git/config",
        ".git/hooks/post-commit",
        "sub/.git",
        ".GIT/config",
    ] {
        for (name, call, rest) in &ALL[4..] {
            let error = on_path(&job, *call, rest, path).expect_err(name);
            assert_eq!(code(error), "fs.git", "{name} {path}");
        }
    }
    on_path(
        &job,
        call_write,
        r#"{"content": "x", "create_dirs": true}"#,
        ".github/ci.yml",
    )
    .expect("not git's");
}

/// No message tells where on the host the workspace lies.
#[test]
fn faults_name_paths_as_the_model_does() {
    let space = Space::new();
    space.put("a.txt", "x\n");
    space.put("dir/b.txt", "x\n");
    std::os::unix::fs::symlink("a.txt", space.work("link")).expect("a link");
    let host = space.dir.path().to_str().expect("text").to_owned();
    let mut seen = 0;
    for (_, call, rest) in ALL {
        for path in [
            "missing",
            "dir",
            "a.txt",
            "a.txt/below",
            "link",
            "..",
            ".env",
            "missing/new",
            ".git/x",
            ".",
        ] {
            if let Err(error) = on_path(&space.job(), call, rest, path) {
                let fault = Fault::from(error);
                assert!(!fault.message.contains(&host), "{}", fault.message);
                assert!(fault.code.starts_with("fs."), "{}", fault.code);
                seen += 1;
            }
        }
    }
    assert!(seen > 30);
    for path in [space.work("gone"), "relative".into()] {
        let fault = Fault::from(Root::open(path.to_str().expect("text")).expect_err("gone"));
        assert!(!format!("{fault:?}").contains(&host), "{fault:?}");
    }
}

#[test]
fn a_name_in_another_case_is_suggested() {
    let space = Space::new();
    space.put("Docs/Notes.md", "x\n");
    let job = space.job();
    for (path, near) in [("Docs/notes.md", "Docs/Notes.md"), ("docs", "Docs")] {
        let fault = Fault::from(on_path(&job, call_read, "{}", path).expect_err("missing"));
        assert_eq!(fault.code, "fs.not_found");
        assert!(fault.message.contains(near), "{}", fault.message);
    }
}
