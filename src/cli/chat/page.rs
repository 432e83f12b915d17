//! What stands on the terminal: text that streams, words in between, and one row at the bottom that is replaced in place.
//! Pure: it says what to write, and writes nothing.
//!
//! Invariants: the row at the bottom never stands within a text; while somebody types there, text that streams is held
//! back until a whole line of it can be put above; nothing that was said is lost or said twice.

/// Takes the bottom row away.
const CLEAR: &str = "\r\x1b[K";

/// What to write, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ink {
    /// To standard output.
    Out(String),
    /// To standard error.
    Err(String),
}

/// The terminal as far as it matters.
#[derive(Debug, Default)]
pub(super) struct Page {
    /// Whether a text stands unfinished on its row.
    is_open: bool,
    /// Whether the bottom row is drawn.
    is_drawn: bool,
    /// Whether somebody types at the bottom row.
    is_typing: bool,
    /// What belongs at the bottom, and how many columns the cursor stands before its end.
    bottom: Option<(String, usize)>,
    /// Text that waits until nobody types.
    held: String,
}

impl Page {
    /// Whether a text has begun and its line has not ended.
    pub(super) fn is_open(&self) -> bool {
        self.is_open || !self.held.is_empty()
    }

    /// What shall stand at the bottom from now on.
    pub(super) fn bottom(&mut self, text: &str, behind: usize, is_typing: bool) -> Vec<Ink> {
        let wanted = Some((text.to_owned(), behind));
        let is_same = self.bottom == wanted && self.is_typing == is_typing;
        if is_same && (self.is_drawn || self.is_open) {
            return Vec::new();
        }
        let mut inks = self.clear();
        self.bottom = wanted;
        self.is_typing = is_typing;
        if is_typing && std::mem::take(&mut self.is_open) {
            inks.push(Ink::Out("\n".to_owned()));
        }
        if !is_typing {
            inks.extend(self.release());
        }
        inks.extend(self.draw());
        inks
    }

    /// Text of the assistant, as it comes.
    pub(super) fn text(&mut self, text: &str) -> Vec<Ink> {
        self.held.push_str(text);
        if !self.is_typing {
            let mut inks = self.clear();
            inks.extend(self.release());
            inks.extend(self.draw());
            return inks;
        }
        let Some((whole, rest)) = self.held.rsplit_once('\n') else {
            return Vec::new();
        };
        let (whole, rest) = (format!("{whole}\n"), rest.to_owned());
        let mut inks = self.clear();
        inks.push(Ink::Out(whole));
        self.held = rest;
        inks.extend(self.draw());
        inks
    }

    /// Ends the line of a text, if one is unfinished.
    pub(super) fn end_line(&mut self) -> Vec<Ink> {
        if self.is_open() {
            self.text("\n")
        } else {
            Vec::new()
        }
    }

    /// Words that stay, on rows of their own.
    pub(super) fn note(&mut self, text: &str) -> Vec<Ink> {
        let mut inks = self.end_line();
        inks.extend(self.clear());
        inks.push(Ink::Err(format!("{text}\n")));
        inks.extend(self.draw());
        inks
    }

    /// Takes the bottom row away for good.
    pub(super) fn leave(&mut self) -> Vec<Ink> {
        self.is_typing = false;
        self.bottom = None;
        let mut inks = self.clear();
        inks.extend(self.release());
        inks.extend(self.end_line());
        inks
    }

    fn release(&mut self) -> Option<Ink> {
        if self.held.is_empty() {
            return None;
        }
        let text = std::mem::take(&mut self.held);
        self.is_open = !text.ends_with('\n');
        Some(Ink::Out(text))
    }

    fn clear(&mut self) -> Vec<Ink> {
        if std::mem::take(&mut self.is_drawn) {
            vec![Ink::Err(CLEAR.to_owned())]
        } else {
            Vec::new()
        }
    }

    fn draw(&mut self) -> Option<Ink> {
        let (text, behind) = self.bottom.as_ref().filter(|_| !self.is_open)?;
        self.is_drawn = true;
        // A row that is too long must not go on in the next one: it could not be taken away.
        let mut row = format!("\x1b[?7l{text}\x1b[?7h");
        if *behind > 0 {
            row = format!("{row}\x1b[{behind}D");
        }
        Some(Ink::Err(row))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The rows that a terminal shows.
    #[derive(Default)]
    struct Terminal {
        rows: Vec<String>,
        row: String,
    }

    impl Terminal {
        fn take(&mut self, inks: Vec<Ink>) {
            for ink in inks {
                let (Ink::Out(text) | Ink::Err(text)) = ink;
                let text = text.replace("\x1b[?7l", "").replace("\x1b[?7h", "");
                let mut rest = text.as_str();
                while !rest.is_empty() {
                    if let Some(after) = rest.strip_prefix(CLEAR) {
                        self.row.clear();
                        rest = after;
                        continue;
                    }
                    let first = rest.chars().next().expect("not empty");
                    rest = rest.get(first.len_utf8()..).expect("a character");
                    match first {
                        '\n' => self.rows.push(std::mem::take(&mut self.row)),
                        '\x1b' => rest = rest.split_once('D').expect("a move").1,
                        other => self.row.push(other),
                    }
                }
            }
        }

        fn all(&self) -> String {
            let mut text = self.rows.join("\n");
            text.push('\n');
            text.push_str(&self.row);
            text
        }
    }

    #[test]
    fn what_streams_does_not_tear_the_line_that_is_typed() {
        let mut page = Page::default();
        let mut terminal = Terminal::default();
        terminal.take(page.bottom("> ", 0, false));
        assert_eq!(terminal.row, "> ");
        terminal.take(page.text("one two"));
        assert_eq!(terminal.row, "one two", "the prompt gives way");
        terminal.take(page.bottom("> a", 0, true));
        assert_eq!(
            (terminal.rows.clone(), terminal.row.as_str()),
            (vec!["one two".to_owned()], "> a")
        );
        terminal.take(page.text(" three"));
        assert_eq!(terminal.row, "> a", "held back");
        terminal.take(page.text(" four\nfive"));
        assert_eq!(
            terminal.rows.last().map(String::as_str),
            Some(" three four")
        );
        assert_eq!(terminal.row, "> a");
        terminal.take(page.note("a note"));
        assert_eq!(terminal.rows[2..], ["five".to_owned(), "a note".to_owned()]);
        terminal.take(page.bottom("> ", 0, false));
        terminal.take(page.text("six"));
        terminal.take(page.leave());
        assert_eq!(
            (
                terminal.rows.last().map(String::as_str),
                terminal.row.as_str()
            ),
            (Some("six"), "")
        );
    }

    proptest! {
        /// Whatever is typed in between: the text stands there whole and in order, and so does the bottom row.
        #[test]
        fn nothing_is_lost_or_said_twice(steps in proptest::collection::vec((0_u8..5, "[a-e\n]{0,4}"), 0..40)) {
            let mut page = Page::default();
            let mut terminal = Terminal::default();
            let mut said = String::new();
            for (kind, text) in steps {
                match kind {
                    0 | 1 => {
                        said.push_str(&text);
                        terminal.take(page.text(&text));
                    }
                    2 => terminal.take(page.bottom("#>", 0, false)),
                    3 => {
                        terminal.take(page.bottom("#>x", 1, true));
                        prop_assert_eq!(terminal.row.as_str(), "#>x");
                    }
                    _ => terminal.take(page.note("!")),
                }
            }
            terminal.take(page.leave());
            let shown: String = terminal.all().replace(['\n', '!'], "");
            prop_assert_eq!(shown, said.replace('\n', ""));
        }
    }
}
