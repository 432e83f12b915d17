//! The body of an answer, in pieces of any size, as chunks.
//!
//! Owns: telling a stream of events from a JSON document, which servers send that ignore the wish for a stream. Where the
//! pieces end never changes what comes out.
//!
//! Never: what a chunk means.

use serde_json::Value;

use crate::{
    chunk::Chunk,
    misfit,
    sse::{Decoder, EVENT_BYTES_MAX, Event, TooLarge},
};

/// What a piece of a body completes.
#[derive(Debug, PartialEq)]
pub(super) enum Piece {
    /// A chunk.
    Chunk(Box<Chunk>),
    /// The `[DONE]` of a stream.
    Done,
    /// An event that is no JSON object, described.
    Stray(String),
}

impl Piece {
    /// What is left out of an answer where an event that began as an object cannot be read: the rest does not say what was in it.
    fn broken(data: &str) -> Self {
        Self::Chunk(Box::new(Chunk {
            misfit: Some(misfit::event(data)),
            ..Chunk::default()
        }))
    }
}

/// The reader of one body.
#[derive(Debug)]
pub(super) enum Reader {
    /// Only white space came so far.
    Blank(Vec<u8>),
    Events(Decoder),
    Document(Vec<u8>),
}

impl Default for Reader {
    fn default() -> Self {
        Self::Blank(Vec::new())
    }
}

impl Reader {
    /// Takes the next piece.
    pub(super) fn push(&mut self, piece: &[u8]) -> Result<Vec<Piece>, TooLarge> {
        match self {
            Self::Events(decoder) => {
                let mut events = Vec::new();
                decoder.push(piece, &mut events)?;
                return Ok(pieces(events, Piece::broken));
            }
            Self::Blank(bytes) | Self::Document(bytes) => {
                if bytes.len() + piece.len() > EVENT_BYTES_MAX {
                    return Err(TooLarge);
                }
                bytes.extend_from_slice(piece);
            }
        }
        let Self::Blank(bytes) = self else {
            return Ok(Vec::new());
        };
        // No event begins with a brace.
        match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
            None => Ok(Vec::new()),
            Some(b'{' | b'[') => {
                *self = Self::Document(std::mem::take(bytes));
                Ok(Vec::new())
            }
            Some(_) => {
                let bytes = std::mem::take(bytes);
                *self = Self::Events(Decoder::default());
                self.push(&bytes)
            }
        }
    }

    /// Ends the body.
    pub(super) fn finish(self) -> Result<Vec<Piece>, TooLarge> {
        match self {
            Self::Blank(_) => Ok(Vec::new()),
            Self::Events(mut decoder) => {
                let mut events = Vec::new();
                decoder.finish(&mut events)?;
                // What was not ended by its sender was cut, which the missing end of the answer tells.
                Ok(pieces(events, |data| Piece::Stray(misfit::event(data))))
            }
            Self::Document(bytes) => {
                // Also one document a line. What is cut is no JSON and leaves the answer without an end.
                let values = serde_json::Deserializer::from_slice(&bytes).into_iter::<Value>();
                let chunk = |value: Value| Piece::Chunk(Box::new(Chunk::of("", &value)));
                Ok(values.map_while(Result::ok).map(chunk).collect())
            }
        }
    }
}

fn pieces(events: Vec<Event>, broken: impl Fn(&str) -> Piece) -> Vec<Piece> {
    let piece = |event: Event| match event.data.trim() {
        "" => None,
        "[DONE]" => Some(Piece::Done),
        data => Some(match Chunk::read(&event.kind, data) {
            Some(chunk) => Piece::Chunk(Box::new(chunk)),
            None if data.starts_with('{') => broken(data),
            None => Piece::Stray(misfit::event(data)),
        }),
    };
    events.into_iter().filter_map(piece).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Vec<Piece> {
        let mut reader = Reader::default();
        let mut all = Vec::new();
        for part in parts {
            all.extend(reader.push(part).expect("small"));
        }
        all.extend(reader.finish().expect("small"));
        all
    }

    fn text(text: &str) -> Piece {
        Piece::Chunk(Box::new(Chunk {
            text: text.to_owned(),
            ..Chunk::default()
        }))
    }

    fn broken(data: &str) -> Piece {
        Piece::Chunk(Box::new(Chunk {
            misfit: Some(format!("an event is no JSON object but `{data}`")),
            ..Chunk::default()
        }))
    }

    fn stray(data: &str) -> Piece {
        Piece::Stray(format!("an event is no JSON object but `{data}`"))
    }

    #[test]
    fn streams_documents_and_lines_are_told_apart() {
        let delta = r#"{"choices":[{"delta":{"content":"a"}}]}"#;
        for (body, want) in [
            (
                format!("data: {delta}\n\ndata: [DONE]\n\n"),
                vec![text("a"), Piece::Done],
            ),
            (format!("\n\n: hi\n\ndata: {delta}"), vec![text("a")]),
            (format!("\n {delta}\n{delta}\n"), vec![text("a"), text("a")]),
            (
                "data: {\"choices\":[{\n\n".to_owned(),
                vec![broken("{\"choices\":[{")],
            ),
            (
                format!("data: {delta}\n\ndata: {{\"cho\n\ndata: {delta}\n\n"),
                vec![text("a"), broken("{\"cho"), text("a")],
            ),
            // The connection ended within it.
            (
                "data: {\"choices\":[{".to_owned(),
                vec![stray("{\"choices\":[{")],
            ),
            (
                "data: [1]\n\ndata: null\n\ndata:\n\n".to_owned(),
                vec![stray("[1]"), stray("null")],
            ),
            (" \n".to_owned(), vec![]),
            ("<html>".to_owned(), vec![]),
        ] {
            assert_eq!(read([body.as_bytes()]), want, "{body}");
        }
    }

    #[test]
    fn a_document_without_end_is_refused() {
        let mut reader = Reader::default();
        let piece = vec![b'{'; 256 * 1024];
        assert!((0..9).any(|_| reader.push(&piece).is_err()));
    }

    proptest! {
        #[test]
        fn stream_1_any_split_of_a_body_equals_the_whole(body in "[ \n{\\[]{0,3}(data: )?\\{\"choices\":\\[\\{\"delta\":\\{\"content\":\"[aé🦀]{0,3}\"\\}\\}\\]\\}(\n\n(data: \\[DONE\\]\n\n)?)?", size in 1_usize..6) {
            prop_assert_eq!(read(body.as_bytes().chunks(size)), read([body.as_bytes()]));
        }
    }
}
