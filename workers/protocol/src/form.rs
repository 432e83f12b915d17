//! What a value should have been, in words for people: readers of JSON and YAML say it by a program's names of types.

/// A reader's message with words in the place of types: `invalid type: integer 5, expected struct Mesh` ends in `expected a mapping`.
pub fn words(message: &str) -> String {
    let message = found(message);
    let mut parts = message.split("expected ");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push_str("expected ");
        let end = part
            .find([',', ';', '(', '\n'])
            .or_else(|| part.find(" at line "))
            .unwrap_or(part.len());
        let (name, rest) = part.split_at(end);
        match of_type(name.trim_end()) {
            Some(words) => text.push_str(&words),
            None => text.push_str(name),
        }
        text.push_str(rest);
    }
    text
}

/// What was found, in the words of the languages that people write.
fn found(message: &str) -> String {
    [
        ("invalid type: sequence", "invalid type: a list"),
        ("invalid type: map", "invalid type: a mapping"),
        ("invalid type: unit value", "invalid type: nothing"),
        ("invalid type: null", "invalid type: nothing"),
    ]
    .iter()
    .fold(message.to_owned(), |text, (from, to)| {
        text.replace(from, to)
    })
}

fn of_type(name: &str) -> Option<String> {
    let up_to = |most: u64| Some(format!("a whole number from 0 to {most}"));
    let words = match name {
        "u8" => return up_to(u8::MAX.into()),
        "u16" => return up_to(u16::MAX.into()),
        "u32" => return up_to(u32::MAX.into()),
        "u64" | "usize" => "a whole number, 0 or more",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "path string" => "a path",
        "a boolean" => "true or false",
        "a sequence" | "sequence" => "a list",
        "a map" | "map" => "a mapping",
        _ if name.starts_with("struct ") => "a mapping",
        _ if name.starts_with("tuple struct ") => "a list",
        _ if name.starts_with("enum ") || name.contains(" variant of enum ") => "a word",
        _ => return None,
    };
    Some(words.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_of_a_type_is_left() {
        for (message, want) in [
            (
                "mesh: invalid type: integer `5`, expected struct Mesh",
                "mesh: invalid type: integer `5`, expected a mapping",
            ),
            (
                "invalid type: sequence, expected u32 at line 1 column 2",
                "invalid type: a list, expected a whole number from 0 to 4294967295 at line 1 column 2",
            ),
            (
                "invalid value: integer `-1`, expected usize",
                "invalid value: integer `-1`, expected a whole number, 0 or more",
            ),
            (
                "invalid type: map, expected path string",
                "invalid type: a mapping, expected a path",
            ),
            (
                "invalid type: string \"x\", expected a boolean",
                "invalid type: string \"x\", expected true or false",
            ),
            (
                "unknown field `x`, expected one of `a`, `b`",
                "unknown field `x`, expected one of `a`, `b`",
            ),
            ("missing field `version`", "missing field `version`"),
            (
                "invalid type: null, expected a sequence",
                "invalid type: nothing, expected a list",
            ),
        ] {
            assert_eq!(words(message), want);
        }
    }
}
