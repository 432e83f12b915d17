//! The tracked files of the repository and the packages of the workspace, read once.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

use serde_json::Value;

/// The folder of the workspace.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Tracked files that are text, by their path in the repository, with `/` between folders.
pub fn files() -> &'static BTreeMap<String, String> {
    static FILES: LazyLock<BTreeMap<String, String>> = LazyLock::new(|| {
        let listed = output(Command::new("git").args(["ls-files", "-z"]));
        let files: BTreeMap<_, _> = listed
            .split('\0')
            .filter_map(|name| {
                let text = std::fs::read_to_string(root().join(name)).ok()?;
                Some((name.to_owned(), text))
            })
            .collect();
        assert!(
            files.contains_key("Cargo.toml"),
            "git lists the tracked files"
        );
        files
    });
    &FILES
}

/// Tracked Rust files.
pub fn sources() -> impl Iterator<Item = (&'static str, &'static str)> {
    files()
        .iter()
        .filter(|(name, _)| Path::new(name).extension().is_some_and(|end| end == "rs"))
        .map(|(name, text)| (name.as_str(), text.as_str()))
}

/// The packages of the workspace as cargo describes them.
pub fn packages() -> &'static [Value] {
    static PACKAGES: LazyLock<Vec<Value>> = LazyLock::new(|| {
        let metadata = output(Command::new(env!("CARGO")).args([
            "metadata",
            "--offline",
            "--no-deps",
            "--format-version=1",
        ]));
        let mut metadata: Value = serde_json::from_str(&metadata).expect("metadata is JSON");
        let packages = metadata["packages"].take();
        serde_json::from_value(packages).expect("a list of packages")
    });
    &PACKAGES
}

/// A text field of a JSON object.
pub fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// The path of `file` in the repository.
pub fn relative(file: &str) -> String {
    let path = PathBuf::from(file);
    let path = path.strip_prefix(root()).unwrap_or(&path);
    path.to_string_lossy().replace('\\', "/")
}

/// What is code of a source text: comments are cut, line by line, and lines keep their numbers.
pub fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| {
        let code = match line.find("//") {
            // `://` is an address in a string.
            Some(at) if !line[..at].ends_with(':') => &line[..at],
            _ => line,
        };
        (index + 1, code)
    })
}

/// Whether `line` of `name` is test code. By our habit the tests of a file stand at its end.
pub fn is_test(name: &str, text: &str, line: usize) -> bool {
    let is_test_file = name.starts_with("tests/")
        || name.contains("/tests/")
        || name.starts_with("benches/")
        || name.contains("/benches/")
        || name.ends_with("/tests.rs")
        || name.starts_with("workers/testkit/");
    is_test_file
        || text
            .lines()
            .take(line)
            .any(|line| line.trim() == "#[cfg(test)]")
}

/// Fails with all places at once.
pub fn assert_none(rule: &str, places: &[String]) {
    assert!(places.is_empty(), "{rule}:\n  {}", places.join("\n  "));
}

fn output(command: &mut Command) -> String {
    let output = command
        .current_dir(root())
        .output()
        .unwrap_or_else(|error| panic!("{command:?} must run: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("UTF-8")
}
