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
