//! How a conversation is written: the page of a terminal, or plain lines elsewhere.

use super::page::{Ink, Page};
use crate::{
    cli::{
        output::{Closed, Output},
        status::Status,
    },
    client::session::Turn,
};

/// Where the conversation appears.
pub(super) struct Screen {
    out: Output,
    page: Page,
    status: Status,
    /// Whether the row at the bottom is ours, so that a line can be typed while text streams.
    pub(super) is_edited: bool,
}

impl Screen {
    pub(super) fn new(out: &Output, is_edited: bool) -> Self {
        Self {
            out: out.clone(),
            page: Page::default(),
            status: Status::new(out),
            is_edited,
        }
    }

    /// Text of the assistant, as it streams.
    pub(super) fn text(&mut self, text: &str) -> Result<(), Closed> {
        self.status.clear();
        let inks = self.page.text(text);
        self.write(inks)
    }

    /// Ends an unfinished line of text.
    pub(super) fn end_line(&mut self) -> Result<(), Closed> {
        let inks = self.page.end_line();
        self.write(inks)
    }

    /// Words that stay, unless nothing but errors is wanted.
    pub(super) fn note(&mut self, text: &str) {
        if !self.out.is_quiet {
            self.say(text);
        }
    }

    /// Words that stay.
    pub(super) fn say(&mut self, text: &str) {
        self.status.clear();
        let inks = self.page.note(text);
        // Where standard output is closed, the next text tells.
        let _ = self.write(inks);
    }

    /// What stands at the bottom.
    pub(super) fn bottom(&mut self, text: &str, behind: usize, is_typing: bool) {
        let inks = self.page.bottom(text, behind, is_typing);
        let _ = self.write(inks);
    }

    /// A turn begins.
    pub(super) fn begin(&mut self) {
        self.status.begin();
    }

    /// Where the turn stands, where no row at the bottom says so.
    pub(super) fn progress(&mut self, turn: &Turn) {
        if !self.is_edited && !self.page.is_open() {
            self.status.show(turn);
        }
    }

    /// Asks without a row of its own, for a terminal whose lines are not edited here.
    pub(super) fn prompt(&mut self, text: &str) {
        if !self.is_edited && !self.out.is_quiet {
            self.status.clear();
            let inks = self.page.end_line();
            let _ = self.write(inks);
            self.out.raw(text);
        }
    }

    /// Takes the row at the bottom away for good.
    pub(super) fn leave(&mut self) {
        self.status.clear();
        let inks = self.page.leave();
        let _ = self.write(inks);
    }

    fn write(&self, inks: Vec<Ink>) -> Result<(), Closed> {
        for ink in inks {
            match ink {
                Ink::Out(text) => self.out.text(&text)?,
                Ink::Err(text) => self.out.raw(&text),
            }
        }
        Ok(())
    }
}
