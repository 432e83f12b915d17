//! A count of effects that no crash can lose: one line an effect, flushed before the effect counts as done.

use std::{
    collections::BTreeMap,
    fs::File,
    io::Write as _,
    path::{Path, PathBuf},
};

/// A file of effects. Any number of processes may append to it and read it.
#[derive(Debug, Clone)]
pub struct Counter {
    path: PathBuf,
}

impl Counter {
    /// The counter in a file, which need not exist yet.
    pub fn at(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
        }
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Counts one effect of `id` and returns when the disk has it.
    ///
    /// # Panics
    /// When the file cannot be written, or `id` holds a line end.
    pub fn record(&self, id: &str) {
        assert!(!id.contains('\n'), "an id is one line: {id:?}");
        let mut file = File::options()
            .create(true)
            .append(true)
            .open(&self.path)
            .expect("the counter opens");
        // One write: lines of several processes do not mix.
        let line = format!("{id}\n");
        file.write_all(line.as_bytes())
            .expect("the counter takes a line");
        file.sync_all().expect("the counter is flushed");
    }

    /// All effects in the order in which they were counted. A line that was cut by a crash is no effect.
    ///
    /// # Panics
    /// When the file exists but cannot be read.
    pub fn effects(&self) -> Vec<String> {
        let text = match std::fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => panic!("the counter cannot be read: {error}"),
        };
        text.split_inclusive('\n')
            .filter_map(|line| line.strip_suffix('\n'))
            .map(str::to_owned)
            .collect()
    }

    /// How often each id was counted.
    ///
    /// # Panics
    /// As [`Counter::effects`].
    pub fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for id in self.effects() {
            *counts.entry(id).or_default() += 1;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_are_counted_by_id_and_a_cut_line_is_none() {
        let dir = tempfile::tempdir().expect("a folder");
        let counter = Counter::at(&dir.path().join("effects"));
        assert!(counter.effects().is_empty());
        for id in ["call_1", "call_2", "call_1"] {
            Counter::at(counter.path()).record(id);
        }
        let mut file = File::options()
            .append(true)
            .open(counter.path())
            .expect("open");
        file.write_all(b"call_3").expect("written");
        assert_eq!(counter.effects(), ["call_1", "call_2", "call_1"]);
        let counts: Vec<(String, usize)> = counter.counts().into_iter().collect();
        assert_eq!(counts, [("call_1".to_owned(), 2), ("call_2".to_owned(), 1)]);
    }
}
