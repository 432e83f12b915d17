//! What in a chunk has another type than the wire gives it. Pure.
//!
//! Owns: the line between what servers say in their own way, which is read, and what nobody can mean, which would be lost
//! without a word. Absent and `null` are never a misfit; neither is a shape that [`crate::chunk`] understands.
//!
//! Never: reading a chunk; values that bring nothing to the answer, such as usage. What was found is told whole: whoever shows
//! it takes the secrets out first and cuts it then.

use serde_json::Value;

/// The first misfit of a chunk: the field, what was found, what belongs there.
pub(crate) fn find(chunk: &Value) -> Option<String> {
    let choices = match chunk.get("choices") {
        None | Some(Value::Null) => return None,
        Some(Value::Array(choices)) => choices,
        Some(other) => return Some(told("choices", other, "a list")),
    };
    choices.iter().enumerate().find_map(|(place, choice)| {
        let place = format!("choices[{place}]");
        match choice {
            Value::Null => None,
            Value::Object(_) if is_other(choice) => None,
            Value::Object(_) => of_choice(&place, choice),
            other => Some(told(&place, other, "an object")),
        }
    })
}

/// An event that is no JSON object.
pub(crate) fn event(data: &str) -> String {
    format!("an event is no JSON object but `{data}`")
}

/// Whether it is a further answer, of which nothing is read.
fn is_other(choice: &Value) -> bool {
    !matches!(choice.get("index").and_then(Value::as_u64), None | Some(0))
}

fn of_choice(place: &str, choice: &Value) -> Option<String> {
    let misfit = object(place, choice, "delta")
        .or_else(|| object(place, choice, "message"))
        .or_else(|| word(place, choice, "finish_reason"))
        .or_else(|| texts(place, choice, "text"));
    if misfit.is_some() {
        return misfit;
    }
    ["delta", "message"].iter().find_map(|key| {
        let delta = choice.get(key).filter(|delta| delta.is_object())?;
        of_delta(&format!("{place}.{key}"), delta)
    })
}

fn of_delta(place: &str, delta: &Value) -> Option<String> {
    let texts = ["content", "refusal"];
    let misfit = texts.iter().find_map(|key| self::texts(place, delta, key));
    if misfit.is_some() {
        return misfit;
    }
    let calls = match delta.get("tool_calls") {
        None | Some(Value::Null) => return None,
        Some(Value::Array(calls)) => calls,
        Some(other) => return Some(told(&format!("{place}.tool_calls"), other, "a list")),
    };
    calls.iter().enumerate().find_map(|(number, call)| {
        let place = format!("{place}.tool_calls[{number}]");
        match call {
            Value::Null => None,
            Value::Object(_) => of_call(&place, call),
            other => Some(told(&place, other, "an object")),
        }
    })
}

fn of_call(place: &str, call: &Value) -> Option<String> {
    let index = match call.get("index") {
        None | Some(Value::Null | Value::Number(_)) => None,
        Some(Value::String(index)) if index.is_empty() || index.parse::<u64>().is_ok() => None,
        Some(other) => Some(told(&format!("{place}.index"), other, "a number")),
    };
    let id = || match call.get("id") {
        None | Some(Value::Null | Value::String(_) | Value::Number(_)) => None,
        Some(other) => Some(told(&format!("{place}.id"), other, "a text")),
    };
    index
        .or_else(id)
        .or_else(|| object(place, call, "function"))
        .or_else(|| match call.get("function") {
            Some(function) => of_function(&format!("{place}.function"), function),
            None => of_function(place, call),
        })
}

fn of_function(place: &str, function: &Value) -> Option<String> {
    word(place, function, "name").or_else(|| match function.get("arguments") {
        None | Some(Value::Null | Value::String(_) | Value::Object(_)) => None,
        // An empty object, from where lists and objects are written alike.
        Some(Value::Array(list)) if list.is_empty() => None,
        Some(other) => Some(told(
            &format!("{place}.arguments"),
            other,
            "a text or an object",
        )),
    })
}

fn object(place: &str, value: &Value, key: &str) -> Option<String> {
    match value.get(key) {
        None | Some(Value::Null | Value::Object(_)) => None,
        Some(other) => Some(told(&format!("{place}.{key}"), other, "an object")),
    }
}

fn word(place: &str, value: &Value, key: &str) -> Option<String> {
    match value.get(key) {
        None | Some(Value::Null | Value::String(_)) => None,
        Some(other) => Some(told(&format!("{place}.{key}"), other, "a text")),
    }
}

/// Text, or a list of parts of which some are text.
fn texts(place: &str, value: &Value, key: &str) -> Option<String> {
    let parts = match value.get(key) {
        None | Some(Value::Null | Value::String(_)) => return None,
        Some(Value::Array(parts)) => parts,
        Some(other) => return Some(told(&format!("{place}.{key}"), other, "a text")),
    };
    parts.iter().enumerate().find_map(|(number, part)| {
        let place = format!("{place}.{key}[{number}]");
        match part {
            Value::Null | Value::String(_) => None,
            Value::Object(_) => word(&place, part, "text"),
            other => Some(told(&place, other, "a text or an object")),
        }
    })
}

fn told(place: &str, found: &Value, wanted: &str) -> String {
    let found = match found {
        Value::Null => "null".to_owned(),
        Value::Bool(found) => format!("`{found}`"),
        Value::Number(found) => format!("the number {found}"),
        Value::String(found) => format!("the text \"{found}\""),
        Value::Array(found) => format!("a list of {}", found.len()),
        Value::Object(found) if found.is_empty() => "an empty object".to_owned(),
        Value::Object(found) => {
            let keys: Vec<&str> = found.keys().map(String::as_str).collect();
            format!("an object with the keys {}", keys.join(", "))
        }
    };
    format!("`{place}` must be {wanted}, and is {found}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn delta(delta: &Value) -> Value {
        json!({"choices": [{"index": 0, "delta": delta}]})
    }

    #[test]
    fn a_wrong_type_is_named_with_its_place() {
        let call = |call: &Value| delta(&json!({"tool_calls": [call]}));
        for (chunk, want) in [
            (
                json!({"choices": {"delta": {}}}),
                "`choices` must be a list, and is an object with the keys delta",
            ),
            (
                json!({"choices": "x"}),
                "`choices` must be a list, and is the text \"x\"",
            ),
            (
                json!({"choices": [7]}),
                "`choices[0]` must be an object, and is the number 7",
            ),
            (
                delta(&json!("hello")),
                "`choices[0].delta` must be an object, and is the text \"hello\"",
            ),
            (
                json!({"choices": [{"message": [1, 2]}]}),
                "`choices[0].message` must be an object, and is a list of 2",
            ),
            (
                json!({"choices": [{"delta": {}, "finish_reason": true}]}),
                "`choices[0].finish_reason` must be a text, and is `true`",
            ),
            (
                json!({"choices": [{"text": 1}]}),
                "`choices[0].text` must be a text, and is the number 1",
            ),
            (
                delta(&json!({"content": 42})),
                "`choices[0].delta.content` must be a text, and is the number 42",
            ),
            (
                delta(&json!({"content": {}})),
                "`choices[0].delta.content` must be a text, and is an empty object",
            ),
            (
                delta(&json!({"content": ["a", {"text": 1}]})),
                "`choices[0].delta.content[1].text` must be a text, and is the number 1",
            ),
            (
                delta(&json!({"tool_calls": {"index": 0}})),
                "`choices[0].delta.tool_calls` must be a list, and is an object with the keys index",
            ),
            (
                call(&json!("f")),
                "`choices[0].delta.tool_calls[0]` must be an object, and is the text \"f\"",
            ),
            (
                call(&json!({"index": "first"})),
                "`choices[0].delta.tool_calls[0].index` must be a number, and is the text \"first\"",
            ),
            (
                call(&json!({"id": ["a"]})),
                "`choices[0].delta.tool_calls[0].id` must be a text, and is a list of 1",
            ),
            (
                call(&json!({"function": "f"})),
                "`choices[0].delta.tool_calls[0].function` must be an object, and is the text \"f\"",
            ),
            (
                call(&json!({"function": {"name": 1}})),
                "`choices[0].delta.tool_calls[0].function.name` must be a text, and is the number 1",
            ),
            (
                call(&json!({"function": {"name": "f", "arguments": 1}})),
                "`choices[0].delta.tool_calls[0].function.arguments` must be a text or an object, and is the number 1",
            ),
        ] {
            assert_eq!(find(&chunk).as_deref(), Some(want), "{chunk}");
        }
    }

    #[test]
    fn what_servers_leave_out_or_say_in_their_own_way_is_no_misfit() {
        for chunk in [
            json!({}),
            json!({"choices": null}),
            json!({"choices": []}),
            json!({"choices": [], "usage": "none"}),
            json!({"choices": [null]}),
            json!({"choices": [{}]}),
            json!({"choices": [{"index": "0", "finish_reason": "stop"}]}),
            json!({"choices": [{"delta": null, "finish_reason": null}]}),
            json!({"choices": [{"index": 1, "delta": "of another answer"}]}),
            json!({"choices": [{"text": "a"}]}),
            delta(&json!({})),
            delta(&json!({"role": "assistant"})),
            delta(&json!({"content": null, "refusal": null, "tool_calls": null})),
            delta(
                &json!({"content": [{"type": "text", "text": "a"}, "b", {"type": "thinking", "thinking": []}]}),
            ),
            delta(&json!({"content": "", "reasoning": {"effort": 1}, "audio": []})),
            delta(&json!({"tool_calls": []})),
            delta(
                &json!({"tool_calls": [{"index": "1", "id": 7, "function": {"name": "f", "arguments": {"a": 1}}}]}),
            ),
            delta(
                &json!({"tool_calls": [{"index": 0, "id": null, "function": {"name": null, "arguments": null}}]}),
            ),
            delta(&json!({"tool_calls": [{"index": null, "function": {"arguments": []}}]})),
            delta(&json!({"tool_calls": [{"name": "f", "arguments": "{}"}]})),
            delta(&json!({"tool_calls": [{"function": null}]})),
        ] {
            assert_eq!(find(&chunk), None, "{chunk}");
        }
    }
}
