//! Links between the pages of the repository.

use std::path::Path;

use super::tree::{assert_none, files, root};

#[test]
fn every_link_of_a_page_leads_to_something() {
    let mut places = Vec::new();
    let pages = files()
        .iter()
        .filter(|(name, _)| Path::new(name).extension().is_some_and(|end| end == "md"));
    for (name, text) in pages {
        let folder = root().join(name).parent().expect("a folder").to_owned();
        for (index, line) in text.lines().enumerate() {
            for target in line
                .split("](")
                .skip(1)
                .filter_map(|rest| rest.split(')').next())
            {
                let path = target.split('#').next().unwrap_or_default();
                let is_outside = path.contains("://") || path.starts_with("mailto:");
                if !is_outside && !path.is_empty() && !folder.join(path).exists() {
                    places.push(format!("{name}:{} {target}", index + 1));
                }
            }
        }
    }
    assert_none("links lead to files", &places);
}
