//! On which line of a YAML file a key stands. Pure.
//!
//! It reads indentation and keys, not YAML: enough to show a person where to look, and right for files in block style.

/// The line of the key at `path`, from 1, or of the nearest key above it that is found.
pub(super) fn line_of(text: &str, path: &[String]) -> Option<usize> {
    let mut open: Vec<(usize, &str)> = Vec::new();
    let mut best: Option<(usize, usize)> = None;
    for (number, line) in text.lines().enumerate() {
        let Some((indent, key, rest)) = entry(line) else {
            continue;
        };
        while open.last().is_some_and(|(above, _)| *above >= indent) {
            open.pop();
        }
        open.push((indent, key));
        let mut depth = common(&open, path);
        // Only a whole chain counts: a key of the same name elsewhere is another key.
        if depth == open.len() {
            // What stands in braces on the same line.
            depth += flow(rest, path.get(depth..).unwrap_or_default());
            if best.is_none_or(|(deepest, _)| depth > deepest) {
                best = Some((depth, number + 1));
            }
        }
    }
    best.map(|(_, line)| line)
}

/// Indentation, key and what follows of a line that begins with a key.
fn entry(line: &str) -> Option<(usize, &str, &str)> {
    let body = line.trim_start_matches(' ');
    if body.starts_with(['#', '-', '{', '[']) {
        return None;
    }
    let (key, rest) = body.split_once(':')?;
    if !(rest.is_empty() || rest.starts_with([' ', '\t', '\r'])) {
        return None;
    }
    Some((line.len() - body.len(), bare(key), rest))
}

fn bare(key: &str) -> &str {
    key.trim().trim_matches(['"', '\''])
}

fn common(open: &[(usize, &str)], path: &[String]) -> usize {
    open.iter()
        .zip(path)
        .take_while(|((_, key), segment)| key == segment)
        .count()
}

/// How many of the segments follow each other as keys in `rest`.
fn flow(rest: &str, path: &[String]) -> usize {
    let mut rest = rest;
    let mut depth = 0;
    for segment in path {
        let Some((_, after)) = rest
            .split_once(&format!("{segment}:"))
            .or_else(|| rest.split_once(&format!("\"{segment}\":")))
        else {
            break;
        };
        rest = after;
        depth += 1;
    }
    depth
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_by_its_chain() {
        let text = "# comment: x\nmesh:\n  replicas: 1\n\nharness: # the loop\n  default_model: a/b\n  \"max_calls\": 3\nrouter:\n  \
                    providers:\n    mine: { base_url: \"https://x\", models: {m: {context_window: 4}} }\n    other:\n      base_url: y\n";
        for (path, line) in [
            ("mesh.replicas", Some(3)),
            ("harness", Some(5)),
            ("harness.default_model", Some(6)),
            ("harness.max_calls", Some(7)),
            ("harness.absent", Some(5)),
            ("router.providers.mine.base_url", Some(10)),
            ("router.providers.mine.models.m.context_window", Some(10)),
            ("router.providers.other.base_url", Some(12)),
            ("sandbox.protected", None),
        ] {
            let path: Vec<String> = path.split('.').map(str::to_owned).collect();
            assert_eq!(line_of(text, &path), line, "{path:?}");
        }
    }
}
