//! Reads the types of `protocol` from their sources: names, documentation, fields, and what serde makes of them on the wire.

use crate::house::tree::files;

/// A type as it crosses the wire.
pub(super) struct Item {
    pub docs: String,
    pub is_enum: bool,
    /// The field that names the variant, for enums of objects.
    pub tag: Option<String>,
    /// Fields of a struct or variants of an enum.
    pub members: Vec<Member>,
}

/// A field, or a variant with its fields.
pub(super) struct Member {
    pub name: String,
    pub docs: String,
    /// The Rust type; of a variant, the type that it wraps.
    pub kind: String,
    pub is_optional: bool,
    pub members: Vec<Member>,
}

/// What stands before a declaration.
#[derive(Default)]
struct Before {
    docs: Vec<String>,
    attributes: String,
}

impl Before {
    /// Takes a line of documentation or of an attribute; false for anything else.
    fn takes(&mut self, line: &str) -> bool {
        let line = line.trim();
        if let Some(doc) = line.strip_prefix("///") {
            self.docs.push(doc.trim().to_owned());
            return true;
        }
        let open = |text: &str| text.matches(['(', '[']).count() > text.matches([')', ']']).count();
        if line.starts_with("#[") || open(&self.attributes) {
            self.attributes.push_str(line);
            return true;
        }
        false
    }

    fn docs(&self) -> String {
        // What only a reader of Rust would understand is said in words of the wire.
        self.docs
            .join(" ")
            .replace("[`crate::Fault`]", "fault's")
            .replace("`None`", "absent")
            .trim()
            .to_owned()
    }

    /// The value of `key = "..."` in the attributes.
    fn value(&self, key: &str) -> Option<String> {
        let (_, rest) = self.attributes.split_once(&format!("{key} = \""))?;
        Some(rest.split('"').next()?.to_owned())
    }

    fn is_optional(&self, kind: &str) -> bool {
        self.attributes.contains("serde(default") || kind.starts_with("Option<")
    }
}

/// Reads the type `name` of a source file.
pub(super) fn item(file: &str, name: &str) -> Item {
    let text = files()
        .get(file)
        .unwrap_or_else(|| panic!("{file} is there"));
    let mut lines = text.lines();
    let mut before = Before::default();
    let openings = [
        format!("pub struct {name} {{"),
        format!("pub enum {name} {{"),
    ];
    loop {
        let line = lines
            .next()
            .unwrap_or_else(|| panic!("{file} declares {name}"));
        if openings.iter().any(|opening| line == opening) {
            break;
        }
        if !before.takes(line) {
            before = Before::default();
        }
    }
    let is_enum = text.contains(&openings[1]);
    let body: Vec<&str> = lines.take_while(|line| *line != "}").collect();
    let case = before.value("rename_all").unwrap_or_default();
    // serde's own default of a whole container makes each field optional.
    let all_optional = before.attributes.contains("serde(default");
    let mut members = read(&body, 4, is_enum, &case);
    if all_optional {
        for member in &mut members {
            member.is_optional = true;
        }
    }
    Item {
        docs: before.docs(),
        is_enum,
        tag: before.value("tag"),
        members,
    }
}

/// Reads fields or variants that are indented by `depth`.
fn read(body: &[&str], depth: usize, is_enum: bool, case: &str) -> Vec<Member> {
    let mut members = Vec::new();
    let mut before = Before::default();
    let mut at = 0;
    while let Some(line) = body.get(at) {
        at += 1;
        let own = line.len() - line.trim_start().len() == depth;
        if line.trim().is_empty() || (own && before.takes(line)) {
            continue;
        }
        if !own {
            before.takes(line); // the rest of an attribute
            continue;
        }
        let declared = line.trim().trim_start_matches("pub ");
        let declared = declared.trim_end_matches(',');
        let member = if is_enum {
            let (name, rest) = declared
                .find([' ', '('])
                .map_or((declared, ""), |end| declared.split_at(end));
            let inner: Vec<&str> = if rest.trim() == "{" {
                let end = format!("{}}},", " ".repeat(depth));
                let length = body[at..].iter().position(|line| *line == end);
                let length = length.unwrap_or_else(|| panic!("{name} ends"));
                let inner = body[at..at + length].to_vec();
                at += length + 1;
                inner
            } else {
                Vec::new()
            };
            Member {
                name: before.value("rename").unwrap_or_else(|| cased(name, case)),
                docs: before.docs(),
                kind: rest.trim().trim_matches(['(', ')', '{']).trim().to_owned(),
                is_optional: false,
                members: read(&inner, depth + 4, false, ""),
            }
        } else {
            let (name, kind) = declared.split_once(": ").expect("a field");
            Member {
                name: before.value("rename").unwrap_or_else(|| name.to_owned()),
                docs: before.docs(),
                kind: kind.to_owned(),
                is_optional: before.is_optional(kind),
                members: Vec::new(),
            }
        };
        members.push(member);
        before = Before::default();
    }
    members
}

/// A variant's name as serde writes it.
fn cased(name: &str, case: &str) -> String {
    let separator = match case {
        "snake_case" => "_",
        "kebab-case" => "-",
        other => panic!("{name}: the case {other:?} is not known here"),
    };
    let mut text = String::new();
    for (index, letter) in name.chars().enumerate() {
        if letter.is_uppercase() && index > 0 {
            text.push_str(separator);
        }
        text.extend(letter.to_lowercase());
    }
    text
}

/// The constants of a file whose type begins with `kind`: name, value as written, documentation.
pub(super) fn constants(file: &str, kind: &str) -> Vec<(String, String, String)> {
    let text = files()
        .get(file)
        .unwrap_or_else(|| panic!("{file} is there"));
    let mut before = Before::default();
    let mut found = Vec::new();
    for line in text.lines() {
        if before.takes(line) {
            continue;
        }
        let declared = line.strip_prefix("pub const ");
        let declared = declared.and_then(|rest| rest.split_once(": "));
        if let Some((name, (of, value))) =
            declared.and_then(|(name, rest)| Some((name, rest.split_once(" = ")?)))
            && of.starts_with(kind)
        {
            let value = value.trim_end_matches(';').to_owned();
            found.push((name.to_owned(), value, before.docs()));
        }
        before = Before::default();
    }
    found
}
