//! The layers, and what a mistake in the file says.

use std::path::Path;

use super::*;

fn over(text: &str) -> Result<Config, Error> {
    Config::over_default(Path::new("config.yaml"), text)
}

#[test]
fn the_compiled_in_layer_is_valid_and_an_empty_file_changes_nothing() {
    let base = format!("{:?}", Config::compiled_in().expect("valid"));
    for text in ["", "# nothing\n\n", "{}", "harness: ~\n"] {
        let config = over(text).expect(text);
        assert_eq!(format!("{config:?}"), base, "{text:?}");
    }
}

#[test]
fn a_value_of_the_file_is_stronger_and_leaves_its_neighbours() {
    let config = over("mesh:\n  replicas: 3\n").expect("valid");
    assert_eq!(config.mesh.replicas, 3);
}

#[test]
fn a_mistake_names_the_file_the_line_and_the_nearest_key() {
    let error = over("mesh:\n  replica: 3\n").expect_err("unknown key");
    assert!(
        error.to_string().starts_with("config.yaml, line "),
        "{error}"
    );
    assert_eq!(
        error.hint().as_deref(),
        Some("did you mean `replicas` instead of `replica`?")
    );
    let error = over("mesh: [1]\n").expect_err("wrong type");
    assert!(error.to_string().contains("line"), "{error}");
    assert!(over("mesh: {").is_err());
}

/// CONF-1: whatever stands in the place of a value of another kind, in whatever section, the mistake names the file, the line, the key and
/// what was expected, in words that are no names of types, and says what to do.
#[test]
fn conf_1_a_wrong_type_anywhere_names_file_key_and_what_was_expected() {
    let wrong = [
        serde_json::json!(5),
        serde_json::json!(-1),
        serde_json::json!(1.5),
        serde_json::json!(true),
        serde_json::json!("x y"),
        serde_json::json!([[1]]),
        serde_json::json!([5]),
        serde_json::json!({"x": {"y": 1}}),
    ];
    let tree: Value = layer::parse(Path::new("default.yaml"), DEFAULT).expect("valid");
    let config = Config::compiled_in().expect("valid");
    let mut keys: Vec<String> = Vec::new();
    for kind in &section::SECTIONS {
        for (path, _) in leaves(&kind.of(&config)) {
            let mut full = vec![kind.name.to_owned()];
            full.extend(path);
            keys.push(path::join(&full));
        }
    }
    keys.extend(leaves(&tree).iter().map(|(path, _)| path::join(path)));
    // Keys that are shown only when they are set, and those of mappings whose keys are anybody's.
    let more = "mesh mesh.replicas harness router router.default_model router.providers router.providers.m router.providers.m.kind \
                router.providers.m.base_url router.providers.m.key router.providers.m.headers router.providers.m.headers.x \
                router.providers.m.models router.providers.m.models.\"m-4.1\" \
                router.providers.m.models.\"m-4.1\".context_window router.providers.m.models.\"m-4.1\".max_output_tokens \
                router.providers.m.models.\"m-4.1\".price router.providers.m.retry router.providers.m.retry.base_ms \
                router.providers.m.output_limit router.providers.m.scripts router.providers.m.scripts.x router.retry approval-gate \
                approval-gate.policy_file context context.windows context.windows.\"a/b\" sandbox sandbox.protected sandbox.minimum \
                sandbox.shown sandbox.helper session session.file";
    keys.extend(more.split(' ').map(str::to_owned));
    keys.sort_unstable();
    keys.dedup();
    assert!(keys.len() > 50, "{keys:?}");
    let mut bad = Vec::new();
    for key in &keys {
        let path = path::parse(key).expect("a key");
        let mut refused = 0;
        for value in &wrong {
            let tree = path::set(Value::Null, &path, value.clone());
            let text = serde_yaml::to_string(&tree).expect("yaml");
            let Err(error) = over(&text) else { continue };
            refused += 1;
            let said = error.to_string();
            let is_placed = said.starts_with("config.yaml, line ") && error.line().is_some();
            // A name with a dot in it may stand there without its quotes.
            let is_named = said.replace('"', "").contains(&key.replace('"', ""));
            let is_told = [
                "expected ",
                "unknown ",
                "must ",
                "missing ",
                "cannot ",
                "glob",
                "env:",
            ]
            .iter()
            .any(|word| said.contains(word));
            let is_plain = ["struct", "u32", "u64", "usize", "a sequence", "enum"]
                .iter()
                .all(|name| !said.contains(name));
            if !(is_placed && is_named && is_told && is_plain && error.hint().is_some()) {
                bad.push(format!("{key}: {value}: {said}"));
            }
        }
        if refused < 3 {
            bad.push(format!("{key}: {refused} were refused"));
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn a_file_that_cannot_be_read_says_what_to_do() {
    let dir = tempfile::tempdir().expect("a directory");
    let source = Source {
        data: dir.path().to_owned(),
        model: None,
    };
    let hint = |says: &str| {
        let error = source.read().expect_err(says);
        let hint = error.hint().expect("a hint");
        assert!(hint.contains(says), "{hint}");
        assert!(error.to_string().contains("config.yaml"), "{error}");
    };
    std::fs::create_dir(source.file()).expect("made");
    hint("it is a directory");
    std::fs::remove_dir(source.file()).expect("removed");
    std::fs::write(source.file(), b"harness: {\xff: 1}").expect("written");
    hint("no UTF-8");
    std::fs::write(
        source.file(),
        vec![b'#'; teamster_protocol::limits::YAML_BYTES_MAX + 1],
    )
    .expect("written");
    hint("no configuration");
    std::fs::write(source.file(), "harness: {default_model: 5}").expect("written");
    hint("teamster doctor");
}
