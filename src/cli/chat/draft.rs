//! Lines that become messages: one line is one, unless it goes on with a backslash or begins a block of `"""`. Pure.

use teamster_protocol::limits;

/// What marks the beginning and the end of a block.
const FENCE: &str = "\"\"\"";

/// What a line did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Drafted {
    /// More lines belong to it.
    More,
    /// The message is complete.
    Whole(String),
    /// It is longer than a session takes; it is thrown away.
    TooLong,
}

/// Lines of a message that is not complete.
#[derive(Debug, Default)]
pub(super) struct Draft {
    text: String,
    is_open: bool,
    is_block: bool,
}

impl Draft {
    /// Whether a message has begun and not ended.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Throws away what has begun.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Takes a line.
    pub(super) fn line(&mut self, line: &str) -> Drafted {
        if !self.is_open
            && let Some(rest) = line.trim_start().strip_prefix(FENCE)
        {
            self.is_open = true;
            self.is_block = true;
            if rest.trim().is_empty() {
                return Drafted::More;
            }
            return self.within(rest);
        }
        if self.is_block {
            return self.within(line);
        }
        let slashes = line
            .chars()
            .rev()
            .take_while(|character| *character == '\\')
            .count();
        match line.strip_suffix('\\') {
            Some(begun) if slashes % 2 == 1 => self.add(begun, Drafted::More),
            _ => self.add(line, Drafted::Whole(String::new())),
        }
    }

    fn within(&mut self, line: &str) -> Drafted {
        match line.trim_end().strip_suffix(FENCE) {
            Some("") if self.text.is_empty() => self.add("", Drafted::Whole(String::new())),
            Some("") => {
                // The fence stands alone: the line before it is the last.
                self.text.pop();
                self.whole()
            }
            Some(last) => self.add(last, Drafted::Whole(String::new())),
            None => self.add(line, Drafted::More),
        }
    }

    fn add(&mut self, line: &str, then: Drafted) -> Drafted {
        if self.text.len() + line.len() + 1 > limits::MESSAGE_BYTES_MAX {
            self.clear();
            return Drafted::TooLong;
        }
        self.is_open = true;
        self.text.push_str(line);
        if then == Drafted::More {
            self.text.push('\n');
            return then;
        }
        self.whole()
    }

    fn whole(&mut self) -> Drafted {
        Drafted::Whole(std::mem::take(self).text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_messages() {
        for (lines, want) in [
            (&["hello"][..], "hello"),
            (&["one\\", "two\\", "three"], "one\ntwo\nthree"),
            (&["a path C:\\\\"], "a path C:\\\\"),
            (&["\"\"\"", "one", "", "two \\", "\"\"\""], "one\n\ntwo \\"),
            (&["\"\"\"one", "two\"\"\""], "one\ntwo"),
            (&["\"\"\"alone\"\"\""], "alone"),
            (&["\"\"\"", "\"\"\""], ""),
            (&["he said \"\"\"x"], "he said \"\"\"x"),
        ] {
            let mut draft = Draft::default();
            let mut last = Drafted::More;
            for (place, line) in lines.iter().enumerate() {
                assert_eq!(last, Drafted::More, "{lines:?}");
                assert_eq!(draft.is_open(), place > 0, "{lines:?}");
                last = draft.line(line);
            }
            assert_eq!(last, Drafted::Whole(want.to_owned()), "{lines:?}");
            assert!(!draft.is_open());
        }
    }

    #[test]
    fn a_message_has_a_bound() {
        let mut draft = Draft::default();
        let half = format!("{}\\", "x".repeat(limits::MESSAGE_BYTES_MAX / 2));
        assert_eq!(draft.line(&half), Drafted::More);
        assert_eq!(draft.line(&half), Drafted::TooLong);
        assert!(!draft.is_open());
    }
}
