//! How what the assistant says is written: as it streams on a terminal, as deltas in lines, as the log has it elsewhere.

use std::time::Duration;

use serde_json::json;
use teamster_core::display;

use super::Follower;
use crate::{
    cli::output::{Closed, Format},
    client::stream::Piece,
};

impl Follower<'_> {
    /// Writes pieces of text. On a terminal what streams is written at once; elsewhere only what the log says counts.
    pub(super) fn write(&mut self, pieces: &[Piece], is_streaming: bool) -> Result<(), Closed> {
        for piece in pieces {
            if let Piece::Retry {
                attempt,
                wait_ms,
                reason,
            } = piece
            {
                self.status.note(&format!(
                    "the provider failed ({}); attempt {attempt} in {:.1} s",
                    display::terminal(reason),
                    Duration::from_millis(*wait_ms).as_secs_f64()
                ));
            }
            match self.out.format {
                Format::JsonLines => {
                    if let (Piece::Text(text), true) = (piece, is_streaming) {
                        self.out
                            .document(&json!({ "type": "delta", "text": text }))?;
                    }
                }
                Format::Text if self.out.is_live() => {
                    self.status.clear();
                    match piece {
                        Piece::Text(text) => self.out.text(&display::terminal(text))?,
                        Piece::Again => {
                            self.out.text("\n")?;
                            self.out.note("(what stands above was cut off; the answer again, from its beginning)");
                        }
                        Piece::End => self.out.text("\n")?,
                        Piece::Retry { .. } => {}
                    }
                }
                Format::Text | Format::Json => {}
            }
        }
        if !is_streaming && self.out.is_text() && !self.out.is_live() {
            self.write_last(pieces)?;
        }
        Ok(())
    }

    /// Where standard output is no terminal: the message that was just committed, whole.
    fn write_last(&self, pieces: &[Piece]) -> Result<(), Closed> {
        let said = self
            .session
            .turn
            .as_ref()
            .and_then(|turn| turn.texts.last());
        match said {
            Some(text) if pieces.contains(&Piece::End) => self.out.line(&display::terminal(text)),
            _ => Ok(()),
        }
    }
}
