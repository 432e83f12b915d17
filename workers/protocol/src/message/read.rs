//! Reads messages in one pass: the fields of all roles into one flat form, then into the role that they belong to. What serde
//! derives for a tagged enum keeps a copy of every field before it looks at the tag, and messages are most of what is read.

use std::mem;

use serde::{Deserialize, Deserializer, de::Error};

use super::{Content, Message, ResultKind, WireCall};
use crate::id::{CallId, FunctionId, MessageId, Principal};

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Role {
    User,
    Assistant,
    FunctionResult,
    Custom,
    Notice,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FlatMessage {
    role: Role,
    id: Option<MessageId>,
    from: Option<Principal>,
    text: Option<String>,
    content: Option<Vec<Content>>,
    partial: Option<bool>,
    call: Option<CallId>,
    function: Option<FunctionId>,
    outcome: Option<ResultKind>,
    kind: Option<String>,
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut flat = FlatMessage::deserialize(deserializer)?;
        let message = match flat.role {
            Role::User => Self::User {
                id: take(&mut flat.id, "id")?,
                from: take(&mut flat.from, "from")?,
                text: take(&mut flat.text, "text")?,
            },
            Role::Assistant => Self::Assistant {
                id: take(&mut flat.id, "id")?,
                content: take(&mut flat.content, "content")?,
                partial: mem::take(&mut flat.partial).unwrap_or_default(),
            },
            Role::FunctionResult => Self::FunctionResult {
                call: take(&mut flat.call, "call")?,
                function: mem::take(&mut flat.function),
                text: take(&mut flat.text, "text")?,
                outcome: take(&mut flat.outcome, "outcome")?,
            },
            Role::Custom => Self::Custom {
                id: take(&mut flat.id, "id")?,
                from: take(&mut flat.from, "from")?,
                kind: take(&mut flat.kind, "kind")?,
                text: take(&mut flat.text, "text")?,
            },
            Role::Notice => Self::Notice {
                id: take(&mut flat.id, "id")?,
                text: take(&mut flat.text, "text")?,
            },
        };
        let FlatMessage {
            role: _,
            id,
            from,
            text,
            content,
            partial,
            call,
            function,
            outcome,
            kind,
        } = flat;
        foreign(&[
            ("id", id.is_some()),
            ("from", from.is_some()),
            ("text", text.is_some()),
            ("content", content.is_some()),
            ("partial", partial.is_some()),
            ("call", call.is_some()),
            ("function", function.is_some()),
            ("outcome", outcome.is_some()),
            ("kind", kind.is_some()),
        ])?;
        Ok(message)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Part {
    Text,
    Thinking,
    Call,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FlatContent {
    r#type: Part,
    text: Option<String>,
    signature: Option<String>,
    call: Option<CallId>,
    name: Option<String>,
    arguments: Option<String>,
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut flat = FlatContent::deserialize(deserializer)?;
        let content = match flat.r#type {
            Part::Text => Self::Text {
                text: take(&mut flat.text, "text")?,
            },
            Part::Thinking => Self::Thinking {
                text: take(&mut flat.text, "text")?,
                signature: mem::take(&mut flat.signature),
            },
            Part::Call => Self::Call(WireCall {
                call: take(&mut flat.call, "call")?,
                name: take(&mut flat.name, "name")?,
                arguments: take(&mut flat.arguments, "arguments")?,
            }),
        };
        let FlatContent {
            r#type: _,
            text,
            signature,
            call,
            name,
            arguments,
        } = flat;
        foreign(&[
            ("text", text.is_some()),
            ("signature", signature.is_some()),
            ("call", call.is_some()),
            ("name", name.is_some()),
            ("arguments", arguments.is_some()),
        ])?;
        Ok(content)
    }
}

fn take<T, E: Error>(field: &mut Option<T>, name: &'static str) -> Result<T, E> {
    mem::take(field).ok_or_else(|| E::missing_field(name))
}

/// Refuses what was not taken: a field of another role.
fn foreign<E: Error>(left: &[(&'static str, bool)]) -> Result<(), E> {
    match left.iter().find(|(_, is_left)| *is_left) {
        Some((name, _)) => Err(E::custom(format_args!(
            "the field `{name}` does not belong here"
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn messages() -> Vec<serde_json::Value> {
        vec![
            json!({"role": "user", "id": "msg_1", "from": "owner", "text": "hi \"there\""}),
            json!({"role": "assistant", "id": "msg_2", "content": []}),
            json!({"role": "assistant", "id": "msg_2", "partial": true, "content": [
                {"type": "text", "text": "so"},
                {"type": "thinking", "text": "hm"},
                {"type": "thinking", "text": "hm", "signature": "s"},
                {"type": "call", "call": "call_1", "name": "fs__read", "arguments": "{"},
            ]}),
            json!({"role": "function_result", "call": "call_1", "text": "x", "outcome": "ok"}),
            json!({"role": "function_result", "call": "call_1", "function": "fs::read", "text": "x", "outcome": "error"}),
            json!({"role": "custom", "id": "msg_3", "from": "owner", "kind": "note", "text": "x"}),
            json!({"role": "notice", "id": "msg_4", "text": "x"}),
        ]
    }

    #[test]
    fn what_was_written_is_read() {
        for value in messages() {
            let text = value.to_string();
            let message: Message = serde_json::from_str(&text).expect(&text);
            assert_eq!(serde_json::to_value(&message).expect("encodes"), value);
            let from_value: Message = serde_json::from_value(value).expect("the same from a tree");
            assert_eq!(from_value, message);
        }
    }

    #[test]
    fn a_message_without_a_field_it_needs_or_with_one_of_another_role_is_refused() {
        let names = [
            "id", "from", "text", "content", "partial", "call", "function", "outcome", "kind",
        ];
        let valid = json!({
            "id": "msg_9", "from": "owner", "text": "x", "content": [], "partial": true, "call": "call_9",
            "function": "fs::read", "outcome": "ok", "kind": "note",
        });
        for value in messages() {
            for name in names {
                let mut changed = value.clone();
                let was_there = changed.as_object_mut().expect("an object").remove(name);
                if was_there.is_some() {
                    let is_needed = !matches!(name, "partial" | "function");
                    assert_eq!(
                        serde_json::from_value::<Message>(changed).is_err(),
                        is_needed,
                        "{value} without {name}"
                    );
                    continue;
                }
                changed[name] = valid[name].clone();
                let belongs = match value["role"].as_str() {
                    Some("assistant") => name == "partial",
                    Some("function_result") => name == "function",
                    _ => false,
                };
                assert_eq!(
                    serde_json::from_value::<Message>(changed).is_ok(),
                    belongs,
                    "{value} with {name}"
                );
            }
        }
    }

    #[test]
    fn a_part_with_a_field_of_another_kind_is_refused_by_name() {
        for (text, named) in [
            (r#"{"type":"text","text":"x","name":"y"}"#, "`name`"),
            (r#"{"type":"text"}"#, "`text`"),
            (
                r#"{"type":"call","call":"call_1","name":"x"}"#,
                "`arguments`",
            ),
            (r#"{"type":"image","text":"x"}"#, "`image`"),
            (r#"{"type":"text","text":"x","more":1}"#, "`more`"),
            (r#"{"text":"x"}"#, "`type`"),
        ] {
            let error = serde_json::from_str::<Content>(text).expect_err(text);
            assert!(error.to_string().contains(named), "{text}: {error}");
        }
    }
}
