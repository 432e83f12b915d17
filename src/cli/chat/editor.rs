//! The line that is being typed: a text, a cursor, lines typed before. Pure.

use std::collections::VecDeque;

use teamster_core::display;
use teamster_protocol::limits;

use super::key::Key;

/// Lines that Up brings back.
const REMEMBERED_MAX: usize = 200;
/// Columns of the line that are shown; a longer one moves under them.
const COLUMNS: usize = 64;

/// What a key did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Edit {
    /// Nothing, or the line changed.
    Line,
    /// The line is complete.
    Done(String),
    /// The line would be complete, but so many characters at its end did not fit and are not in it.
    Short(usize),
    /// The input ends.
    End,
    /// No more fits: the first character that is left out. Further ones only count.
    Full,
}

/// The line that is being typed.
#[derive(Debug, Default)]
pub(super) struct Editor {
    text: Vec<char>,
    at: usize,
    bytes: usize,
    /// Characters that did not fit since the line began.
    left_out: usize,
    before: VecDeque<String>,
    /// Which of the lines before is shown, and what was typed when Up was pressed.
    shown: Option<(usize, Vec<char>)>,
}

impl Editor {
    /// Whether nothing is typed.
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Takes what is typed away.
    pub(super) fn take(&mut self) -> String {
        let text = self.text.drain(..).collect();
        self.at = 0;
        self.bytes = 0;
        self.left_out = 0;
        self.shown = None;
        text
    }

    /// Puts a text in place of what is typed.
    pub(super) fn put(&mut self, text: &str) {
        self.set(text.chars().collect());
    }

    fn set(&mut self, text: Vec<char>) {
        self.bytes = text.iter().map(|character| character.len_utf8()).sum();
        self.at = text.len();
        self.left_out = 0;
        self.text = text;
    }

    /// Takes a key.
    pub(super) fn key(&mut self, key: Key) -> Edit {
        match key {
            Key::Char(character) => return self.insert(character),
            Key::Newline => return self.insert('\n'),
            Key::Enter if self.left_out > 0 => {
                return Edit::Short(std::mem::take(&mut self.left_out));
            }
            Key::Enter => {
                let line = self.take();
                self.remember(&line);
                return Edit::Done(line);
            }
            Key::Eof if self.is_empty() => return Edit::End,
            Key::Backspace => self.remove(self.at.saturating_sub(1)..self.at),
            Key::Delete | Key::Eof => self.remove(self.at..self.at + 1),
            Key::Word => self.remove(self.word()..self.at),
            Key::Before => self.remove(0..self.at),
            Key::Behind => self.remove(self.at..self.text.len()),
            Key::Left => self.at = self.at.saturating_sub(1),
            Key::Right => self.at = (self.at + 1).min(self.text.len()),
            Key::Home => self.at = 0,
            Key::End => self.at = self.text.len(),
            Key::Up => self.earlier(),
            Key::Down => self.later(),
            Key::Redraw => {}
        }
        Edit::Line
    }

    fn insert(&mut self, character: char) -> Edit {
        if self.bytes + character.len_utf8() > limits::MESSAGE_BYTES_MAX {
            self.left_out += 1;
            return if self.left_out == 1 {
                Edit::Full
            } else {
                Edit::Line
            };
        }
        self.bytes += character.len_utf8();
        self.text.insert(self.at, character);
        self.at += 1;
        Edit::Line
    }

    fn remove(&mut self, range: std::ops::Range<usize>) {
        let range = range.start..range.end.min(self.text.len());
        if range.is_empty() {
            return;
        }
        self.at = range.start;
        self.bytes -= self.text.drain(range).map(char::len_utf8).sum::<usize>();
    }

    /// Where the word before the cursor begins.
    fn word(&self) -> usize {
        let before = self.text.get(..self.at).unwrap_or_default();
        let is_gap = |character: &char| character.is_whitespace();
        let end = before
            .iter()
            .rposition(|character| !is_gap(character))
            .map_or(0, |last| last + 1);
        before
            .get(..end)
            .unwrap_or_default()
            .iter()
            .rposition(is_gap)
            .map_or(0, |gap| gap + 1)
    }

    fn remember(&mut self, line: &str) {
        if line.trim().is_empty() || self.before.back().is_some_and(|last| last == line) {
            return;
        }
        if self.before.len() == REMEMBERED_MAX {
            self.before.pop_front();
        }
        self.before.push_back(line.to_owned());
    }

    fn earlier(&mut self) {
        let (place, typed) = match self.shown.take() {
            Some((place, typed)) => (place.saturating_sub(1), typed),
            None if self.before.is_empty() => return,
            None => (self.before.len() - 1, self.text.clone()),
        };
        if let Some(line) = self.before.get(place) {
            let line = line.chars().collect();
            self.set(line);
        }
        self.shown = Some((place, typed));
    }

    fn later(&mut self) {
        let Some((place, typed)) = self.shown.take() else {
            return;
        };
        match self.before.get(place + 1) {
            Some(line) => {
                let line = line.chars().collect();
                self.set(line);
                self.shown = Some((place + 1, typed));
            }
            None => self.set(typed),
        }
    }

    /// What of the line is shown, on one row, and how many columns the cursor stands before its end.
    pub(super) fn view(&self) -> (String, usize) {
        let cells: Vec<(String, usize)> =
            self.text.iter().map(|character| cell(*character)).collect();
        let mut width = 0;
        let mut from = self.at.min(cells.len());
        while let Some((_, columns)) = from.checked_sub(1).and_then(|place| cells.get(place)) {
            if width + columns > COLUMNS * 3 / 4 {
                break;
            }
            width += columns;
            from -= 1;
        }
        let mut shown = String::new();
        if from > 0 {
            shown.push('…');
        }
        let mut behind = 0;
        for (place, (text, columns)) in cells.iter().enumerate().skip(from) {
            if place >= self.at {
                if width + behind + columns > COLUMNS {
                    break;
                }
                behind += columns;
            }
            shown.push_str(text);
        }
        (shown, behind)
    }
}

/// How a character is shown, and how many columns that takes.
fn cell(character: char) -> (String, usize) {
    match character {
        '\n' => ("⏎".to_owned(), 1),
        '\t' => (" ".to_owned(), 1),
        character => {
            let text = display::terminal(character.encode_utf8(&mut [0; 4]));
            let columns = text.chars().map(columns).sum();
            (text, columns)
        }
    }
}

/// The columns of a visible character: what combines has none, ideographs and pictures have two.
fn columns(character: char) -> usize {
    match character {
        '\u{300}'..='\u{36f}' | '\u{200d}' | '\u{fe00}'..='\u{fe0f}' | '\u{20d0}'..='\u{20ff}' => 0,
        '\u{1100}'..='\u{115f}'
        | '\u{2e80}'..='\u{a4cf}'
        | '\u{ac00}'..='\u{d7a3}'
        | '\u{f900}'..='\u{faff}'
        | '\u{fe30}'..='\u{fe6f}'
        | '\u{ff00}'..='\u{ff60}'
        | '\u{ffe0}'..='\u{ffe6}'
        | '\u{1f300}'..='\u{1faff}'
        | '\u{20000}'..='\u{3fffd}' => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn typed(editor: &mut Editor, text: &str) {
        for character in text.chars() {
            editor.key(Key::Char(character));
        }
    }

    #[test]
    fn a_line_is_edited() {
        let mut editor = Editor::default();
        typed(&mut editor, "one two");
        for (key, want) in [
            (Key::Word, "one "),
            (Key::Backspace, "one"),
            (Key::Home, "one"),
            (Key::Delete, "ne"),
            (Key::Behind, ""),
        ] {
            assert_eq!(editor.key(key), Edit::Line);
            assert_eq!(editor.text.iter().collect::<String>(), want, "{key:?}");
        }
        assert_eq!(editor.key(Key::Eof), Edit::End);
    }

    #[test]
    fn lines_come_back_and_what_was_typed_is_kept() {
        let mut editor = Editor::default();
        for line in ["first", "second"] {
            typed(&mut editor, line);
            assert_eq!(editor.key(Key::Enter), Edit::Done(line.to_owned()));
        }
        typed(&mut editor, "third");
        for (key, want) in [
            (Key::Up, "second"),
            (Key::Up, "first"),
            (Key::Up, "first"),
            (Key::Down, "second"),
            (Key::Down, "third"),
            (Key::Down, "third"),
        ] {
            editor.key(key);
            assert_eq!(editor.text.iter().collect::<String>(), want, "{key:?}");
        }
    }

    #[test]
    fn a_line_has_a_bound() {
        let mut editor = Editor::default();
        editor.put(&"x".repeat(limits::MESSAGE_BYTES_MAX - 1));
        assert_eq!(editor.key(Key::Char('é')), Edit::Full);
        assert_eq!(editor.key(Key::Char('e')), Edit::Line);
        // Said once, however much more is pasted; and what is short is not sent before that is said.
        assert_eq!(editor.key(Key::Char('e')), Edit::Line);
        assert_eq!(editor.key(Key::Newline), Edit::Line);
        assert_eq!(editor.key(Key::Enter), Edit::Short(3));
        let Edit::Done(line) = editor.key(Key::Enter) else {
            panic!("a line");
        };
        assert_eq!(line.len(), limits::MESSAGE_BYTES_MAX);
        typed(&mut editor, "next");
        assert_eq!(editor.key(Key::Enter), Edit::Done("next".to_owned()));
    }

    proptest! {
        /// UNI-1: whatever is typed, what is shown is one row that drives no terminal, and the bytes are counted right.
        #[test]
        fn uni_1_a_row_holds_whatever_is_typed(keys in proptest::collection::vec(
            prop_oneof![
                any::<char>().prop_map(Key::Char),
                Just(Key::Newline), Just(Key::Left), Just(Key::Right), Just(Key::Backspace), Just(Key::Delete),
                Just(Key::Word), Just(Key::Home), Just(Key::End), Just(Key::Up), Just(Key::Down),
            ], 0..200)
        ) {
            let mut editor = Editor::default();
            for key in keys {
                editor.key(key);
                let bytes: usize = editor.text.iter().map(|character| character.len_utf8()).sum();
                prop_assert_eq!(bytes, editor.bytes);
                let (shown, behind) = editor.view();
                prop_assert!(!shown.contains(char::is_control), "{shown:?}");
                prop_assert!(behind <= COLUMNS);
                prop_assert!(shown.chars().map(columns).sum::<usize>() <= COLUMNS + 16, "{shown:?}");
            }
        }
    }
}
