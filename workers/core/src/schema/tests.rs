//! What fits and what does not, and that nothing that fits is refused.

use proptest::prelude::*;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use teamster_protocol::FunctionId;

use super::*;

fn of(schema: Value, arguments: &str) -> Option<String> {
    let id = FunctionId::parse("t::f").expect("an id");
    let mut contract = Contract::new::<(), ()>(id, "");
    contract.request = schema.try_into().expect("a schema");
    let arguments = Arguments::parse(arguments).expect("an object");
    violation(&contract, &arguments).map(|found| found.to_string())
}

#[test]
fn what_the_schema_excludes_is_told_with_its_place() {
    let file = json!({
        "type": "object",
        "required": ["path"],
        "properties": {
            "path": {"type": "string", "minLength": 1, "maxLength": 8},
            "limit": {"type": ["integer", "null"], "minimum": 1, "maximum": 10},
            "mode": {"enum": ["a", "b"]},
            "kind": {"const": 7},
            "argv": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string"}},
            "env": {"type": "object", "additionalProperties": {"type": "string"}},
            "inner": {"$ref": "#/$defs/Inner"},
            "either": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/Inner"}]},
        },
        "additionalProperties": false,
        "$defs": {"Inner": {"type": "object", "required": ["x"], "properties": {"x": {"type": "boolean"}}}},
    });
    for (arguments, says) in [
        (r#"{"path":"a"}"#, None),
        (r#"{"path":"a","limit":null,"mode":"b","kind":7.0}"#, None),
        (
            r#"{"path":"a","limit":3.0,"argv":["x"],"env":{"A":"b"}}"#,
            None,
        ),
        (
            r#"{"path":"a","either":"s","inner":{"x":true,"y":1}}"#,
            None,
        ),
        (r#"{"path":"äöüäöüäö"}"#, None),
        ("{}", Some(r#""path" is missing"#)),
        (r#"{"path":1}"#, Some("/path: must be string, is 1")),
        (
            r#"{"path":""}"#,
            Some("/path: has 0 characters; at least 1"),
        ),
        (
            r#"{"path":"123456789"}"#,
            Some("/path: has 9 characters; at most 8"),
        ),
        (
            r#"{"path":"a","limit":"9"}"#,
            Some(r#"/limit: must be integer or null, is "9""#),
        ),
        (
            r#"{"path":"a","limit":1.5}"#,
            Some("/limit: must be integer or null, is 1.5"),
        ),
        (
            r#"{"path":"a","limit":0}"#,
            Some("/limit: must be at least 1, is 0"),
        ),
        (
            r#"{"path":"a","limit":11}"#,
            Some("/limit: must be at most 10, is 11"),
        ),
        (
            r#"{"path":"a","mode":"c"}"#,
            Some(r#"/mode: must be one of "a", "b", is "c""#),
        ),
        (r#"{"path":"a","kind":8}"#, Some("/kind: must be 7, is 8")),
        (
            r#"{"path":"a","argv":[]}"#,
            Some("/argv: has 0 items; at least 1"),
        ),
        (
            r#"{"path":"a","argv":["x",{}]}"#,
            Some("/argv/1: must be string, is an object"),
        ),
        (
            r#"{"path":"a","env":{"A/B":1}}"#,
            Some("/env/A~1B: must be string, is 1"),
        ),
        (
            r#"{"path":"a","inner":{}}"#,
            Some(r#"/inner: "x" is missing"#),
        ),
        (
            r#"{"path":"a","either":{"x":1}}"#,
            Some("/either/x: must be boolean, is 1"),
        ),
        (
            r#"{"path":"a","content":"b"}"#,
            Some(r#"there is no "content"; there are: "#),
        ),
    ] {
        match (of(file.clone(), arguments), says) {
            (None, None) => {}
            (Some(found), Some(says)) => assert!(found.starts_with(says), "{arguments}: {found}"),
            (found, _) => panic!("{arguments}: {found:?}"),
        }
    }
}

#[test]
fn a_schema_that_says_nothing_to_be_read_refuses_nothing() {
    let endless = json!({"$ref": "#"});
    let mut wide = json!({"anyOf": [{"$ref": "#"}, {"$ref": "#"}, {"$ref": "#"}]});
    wide["required"] = json!(["a"]);
    for schema in [
        json!(true),
        json!({}),
        json!({"type": "null"}),
        json!({"type": 7, "properties": 1, "required": "x", "enum": 3, "items": []}),
        json!({"type": "thing"}),
        json!({"$ref": "https://elsewhere.test/x"}),
        json!({"$ref": "#/$defs/Nobody"}),
        json!({"properties": {"a": {"pattern": "^b$", "format": "uuid"}}}),
        json!({"patternProperties": {"^a$": {}}, "additionalProperties": false}),
        endless,
    ] {
        assert_eq!(of(schema.clone(), r#"{"a":"x"}"#), None, "{schema}");
    }
    assert_eq!(of(wide, r#"{"a":1}"#), None, "it ends");
    let deep = format!("{}1{}", "{\"a\":".repeat(100), "}".repeat(100));
    let nested = json!({"properties": {"a": {"$ref": "#"}}});
    assert_eq!(of(nested, &deep), None);
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only read")]
struct Sample {
    name: String,
    #[serde(default)]
    count: Option<u32>,
    #[serde(default)]
    list: Vec<Kind>,
    #[serde(default)]
    map: std::collections::BTreeMap<String, i64>,
    #[serde(default)]
    choice: Option<Choice>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Kind {
    One,
    Two,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(dead_code, reason = "only read")]
enum Choice {
    Text { text: String },
    Number { number: f64 },
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        (-3_i64..9).prop_map(Value::from),
        (-2.0_f64..2.0).prop_map(Value::from),
        "(one|two|text|number|x)".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("(type|text|number|a)", inner, 0..3)
                .prop_map(|map| map.into_iter().collect()),
        ]
    })
}

proptest! {
    /// Whatever the function's own type takes passes; so nobody is refused a call that would have run.
    #[test]
    fn what_a_function_takes_is_never_refused(
        fields in prop::collection::btree_map("(name|count|list|map|choice|other)", any_value(), 0..6)
    ) {
        let text = Value::from(fields.into_iter().collect::<Map<_, _>>()).to_string();
        // A derived type reads a list in the place of a mapping, which no schema says and no model means.
        let of_list = |name: &str| text.contains(&format!("\"{name}\":["));
        prop_assume!(!of_list("choice"));
        let contract = Contract::new::<Sample, ()>(FunctionId::parse("t::f").expect("an id"), "");
        let arguments = Arguments::parse(text.as_str()).expect("an object");
        let is_taken = arguments.read::<Sample>().is_ok();
        let found = violation(&contract, &arguments);
        prop_assert!(!(is_taken && found.is_some()), "{text}: {found:?}");
    }
}
