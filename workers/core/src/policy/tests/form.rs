//! What a policy file may look like.

use std::fmt::Write as _;

use super::*;

/// SEC-21: a file with anything wrong in it is refused as a whole, with its place.
#[test]
fn sec_21_a_file_with_anything_wrong_is_refused_with_its_place() {
    for (text, want) in [
        ("", "missing field `version`"),
        ("version: 2", "line 1"),
        (
            "version: 1\nlayers:\n  - name: a\n    rules:\n      - efect: ask\n",
            "did you mean `effect`?",
        ),
        (
            "version: 1\nlayers:\n  - name: a\n    rules:\n      - effect: ask\n        class: wriet\n",
            "did you mean `write`?",
        ),
        (
            "version: 1\nlayers:\n  - name: a\n    rules:\n      - effect: no\n",
            "line 5",
        ),
        ("version: 1\ncallers: {}\n", "not known yet"),
        (
            "version: 1\nlayers:\n  - name: a\n    rules:\n      - {effect: deny, taint: untrusted}\n",
            "not known yet",
        ),
        ("version: 1\nversion: 1\n", "duplicate field"),
        (
            "version: 1\ndefaults: {read: allow, read: deny}\n",
            "duplicate field",
        ),
        ("version: 1\n\tdefaults: {}\n", "line 2"),
        ("version: 1\n---\nversion: 1\n", "more than one document"),
        ("version: 1\nlayers: [{name: a}, {name: a}]", "two layers"),
        ("version: 1\nlayers: [{name: defaults}]", "reserved"),
        ("version: 1\nlayers: [{name: 'a b'}]", "letters"),
        (
            "version: 1\nlayers: [{name: a, rules: [{effect: deny, ttl_s: 5}]}]",
            "ttl_s",
        ),
        (
            "version: 1\nlayers: [{name: a, rules: [{effect: ask, ttl_s: 0}]}]",
            "ttl_s",
        ),
        (
            "version: 1\nlayers: [{name: a, rules: [{effect: ask, target: []}]}]",
            "empty list",
        ),
        (
            "version: 1\nlayers: [{name: a, rules: [{effect: ask, target: '[']}]",
            "glob",
        ),
        (
            "version: 1\nlayers: [{name: a, rules: [{effect: ask, function: '{'}]}]",
            "cannot be used",
        ),
        (
            "version: 1\nlayers: [{name: a, rules: [{effect: ask, when: {x: {equals: 1}}}]}]",
            "JSON pointer",
        ),
    ] {
        let error = Policy::layered(text).expect_err(text).to_string();
        assert!(
            error.contains(want),
            "{text:?} gives {error:?}, without {want:?}"
        );
    }
    let many = format!(
        "version: 1\nlayers: [{{name: a, rules: [{}]}}]",
        "{effect: ask},".repeat(1025)
    );
    assert_eq!(
        Policy::layered(&many).expect_err("too many"),
        Error::TooManyRules
    );
    let long = format!("version: 1\n#{}", "x".repeat(limits::YAML_BYTES_MAX));
    assert_eq!(
        Policy::layered(&long).expect_err("too long"),
        Error::TooLong
    );
}

/// SEC-21: a document that multiplies itself by its anchors is refused in bounded time.
#[test]
fn sec_21_an_anchor_bomb_is_refused() {
    let mut bomb = "version: 1\nlayers:\n  - &a0 {name: x, rules: [{effect: ask}]}\n".to_owned();
    for n in 1..40 {
        let refs = vec![format!("*a{}", n - 1); 10].join(", ");
        let _ = writeln!(bomb, "  - &a{n} [{refs}]");
    }
    assert!(Policy::layered(&bomb).is_err());
}

#[test]
fn an_error_names_line_and_column() {
    let error =
        Policy::layered("version: 1\nlayers:\n  - name: a\n    rules:\n      - effect: alow\n")
            .expect_err("bad word");
    assert_eq!(
        error.to_string(),
        "line 5, column 17: layers[0].rules[0].effect: unknown variant `alow`, expected one of `allow`, `ask`, `deny` \
         (did you mean `allow`?)"
    );
}

/// CONF-1: whatever stands in the place of a value of another kind, the mistake names the line, the key and what was expected, in words
/// that are no names of types.
#[test]
fn conf_1_a_wrong_type_in_a_policy_names_its_place_and_what_was_expected() {
    let rule = |condition: &str| {
        format!(
            "version: 1\nlayers:\n  - name: a\n    rules:\n      - effect: ask\n        {condition}\n"
        )
    };
    let texts = [
        ("5".to_owned(), "expected a mapping"),
        ("version: x".to_owned(), "version: "),
        ("version: 1\nlayers: 5".to_owned(), "layers: "),
        ("version: 1\nlayers: [5]".to_owned(), "layers[0]: "),
        (
            "version: 1\nlayers: [{name: {}}]".to_owned(),
            "layers[0].name: ",
        ),
        (
            "version: 1\nlayers: [{name: a, rules: 3}]".to_owned(),
            "layers[0].rules: ",
        ),
        (
            "version: 1\nlayers: [{name: a, rules: [3]}]".to_owned(),
            "layers[0].rules[0]: ",
        ),
        ("version: 1\ndefaults: 5".to_owned(), "defaults: "),
        (
            "version: 1\ndefaults: {read: [1]}".to_owned(),
            "defaults.read: ",
        ),
        (rule("function: [x]"), "rules[0].function: "),
        (rule("class: 5"), "rules[0].class: "),
        (rule("class: [5]"), "rules[0].class[0]: "),
        (rule("data: {}"), "rules[0].data: "),
        (rule("trust: 1.5"), "rules[0].trust: "),
        (rule("target: {a: 1}"), "rules[0].target: "),
        (rule("when: 5"), "rules[0].when: "),
        (rule("when: {/a: [[1]]}"), "rules[0].when./a: "),
        (rule("ttl_s: x"), "rules[0].ttl_s: "),
        (rule("ttl_s: -1"), "rules[0].ttl_s: "),
    ];
    for (text, says) in texts {
        let error = super::super::file::File::parse(&text).expect_err(&text);
        let told = error.to_string();
        assert!(told.starts_with("line "), "{text}: {told}");
        assert!(told.contains(says), "{text}: {told}");
        assert!(told.contains("expected "), "{text}: {told}");
        for name in ["struct ", "u64", "u32", "a sequence", "enum"] {
            assert!(!told.contains(name), "{text}: {told}");
        }
    }
}
