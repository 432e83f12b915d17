//! The functions on real directories.

mod bounds;
mod change;
mod contract;
mod escape;
mod protect;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use serde::Serialize;
use teamster_protocol::{Fault, limits};
use tokio_util::sync::CancellationToken;

use crate::{
    error::Error,
    functions::{edit, find, grep, list, read, write},
    pool::Job,
    protected::Protected,
    root::Root,
    stop::Stop,
};

/// A workspace, and a directory beside it that nothing may reach.
struct Space {
    dir: tempfile::TempDir,
}

impl Space {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("work")).expect("a workspace");
        std::fs::create_dir(dir.path().join("outside")).expect("an outside");
        std::fs::write(dir.path().join("outside/loot.txt"), "LOOT\n").expect("a file");
        Self { dir }
    }

    fn work(&self, path: &str) -> PathBuf {
        self.dir.path().join("work").join(path)
    }

    fn outside(&self, path: &str) -> PathBuf {
        self.dir.path().join("outside").join(path)
    }

    /// Puts a file into the workspace, with its directories.
    fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.work(path);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        std::fs::write(path, content).expect("a file");
    }

    fn get(&self, path: &str) -> String {
        std::fs::read_to_string(self.work(path)).expect("a text file")
    }

    fn job(&self) -> Job {
        job_in(&self.work(""))
    }

    /// Nothing outside was changed.
    fn assert_outside_is_whole(&self) {
        let names: Vec<_> = std::fs::read_dir(self.outside(""))
            .expect("a directory")
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        assert_eq!(names, ["loot.txt"]);
        let loot = std::fs::read_to_string(self.outside("loot.txt")).expect("a file");
        assert_eq!(loot, "LOOT\n");
    }
}

fn job_in(work: &Path) -> Job {
    Job {
        root: Root::open(work.to_str().expect("a text path")).expect("a workspace"),
        protected: Arc::new(Protected::default()),
        stop: Stop {
            cancel: CancellationToken::new(),
            until: Instant::now() + Duration::from_mins(10),
        },
    }
}

/// One of the functions, called with JSON as over the mesh; the answer as JSON.
type Call = fn(&Job, &serde_json::Value) -> Result<serde_json::Value, Error>;

/// All functions, each with what it needs beside a path.
const ALL: [(&str, Call, &str); 6] = [
    ("fs::read", call_read, "{}"),
    ("fs::list", call_list, "{}"),
    ("fs::find", call_find, r#"{"glob": "*"}"#),
    ("fs::grep", call_grep, r#"{"pattern": "LOOT|."}"#),
    ("fs::write", call_write, r#"{"content": "x"}"#),
    ("fs::edit", call_edit, r#"{"old": "LOOT", "new": "x"}"#),
];

macro_rules! calls {
    ($($name:ident = $module:ident :: $function:ident;)*) => {
        $(fn $name(job: &Job, request: &serde_json::Value) -> Result<serde_json::Value, Error> {
            let request: $module::Request = serde_json::from_value(request.clone()).expect("a request");
            $module::$function(job, &request).map(|reply| bounded(&reply))
        })*
    };
}

calls! {
    call_read = read::read;
    call_list = list::list;
    call_find = find::find;
    call_grep = grep::grep;
    call_write = write::write;
    call_edit = edit::edit;
}

/// Calls a function on a path.
fn on_path(job: &Job, call: Call, rest: &str, path: &str) -> Result<serde_json::Value, Error> {
    let mut request: serde_json::Value = serde_json::from_str(rest).expect("JSON");
    request["path"] = path.into();
    call(job, &request)
}

/// The reply as JSON, after the check that every answer must pass.
fn bounded(reply: &impl Serialize) -> serde_json::Value {
    let json = serde_json::to_vec(reply).expect("serialisable");
    assert!(
        json.len() <= limits::RESULT_BYTES_MAX,
        "{} bytes",
        json.len()
    );
    serde_json::from_slice(&json).expect("JSON")
}

fn code(error: Error) -> String {
    Fault::from(error).code
}

/// The strings at `field` of the objects in the list at `list`.
fn texts(reply: &serde_json::Value, list: &str, field: &str) -> Vec<String> {
    reply[list]
        .as_array()
        .expect("a list")
        .iter()
        .map(|item| item[field].as_str().expect("a text").to_owned())
        .collect()
}
