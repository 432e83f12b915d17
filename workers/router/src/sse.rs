//! Server-sent events, incremental over bytes.
//!
//! Owns: finding lines and events in a byte stream that arrives in pieces of any size. Where the pieces end never changes
//! what comes out; text is decoded only once an event is whole, so only bytes that are truly invalid become U+FFFD.
//!
//! Never: what an event means, or reading from a socket.

/// Bytes of one line or of one event's data. A completion is at most 256 KiB and JSON may escape each byte as six.
pub const EVENT_BYTES_MAX: usize = 2 * 1024 * 1024;

const BOM: &[u8] = b"\xEF\xBB\xBF";

/// One event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Event {
    /// The event's type; empty where the stream names none.
    pub kind: String,
    /// The data lines, joined by line feeds.
    pub data: String,
    /// The last id that the stream named up to this event.
    pub id: String,
}

/// A line or an event exceeds [`EVENT_BYTES_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a line or an event of the stream exceeds {EVENT_BYTES_MAX} bytes")]
pub struct TooLarge;

/// The decoder of one stream.
#[derive(Debug, Default)]
pub struct Decoder {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    kind: Vec<u8>,
    id: Vec<u8>,
    is_past_first_line: bool,
    is_after_cr: bool,
}

impl Decoder {
    /// Takes the next piece of the stream and adds the events that it completes to `events`.
    pub fn push(&mut self, mut piece: &[u8], events: &mut Vec<Event>) -> Result<(), TooLarge> {
        while let Some(first) = piece.first() {
            if std::mem::take(&mut self.is_after_cr) && *first == b'\n' {
                piece = piece.get(1..).unwrap_or_default();
                continue;
            }
            let end = piece.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let (head, rest) = piece.split_at(end.unwrap_or(piece.len()));
            if self.line.len() + head.len() > EVENT_BYTES_MAX {
                return Err(TooLarge);
            }
            self.line.extend_from_slice(head);
            let Some((terminator, rest)) = rest.split_first() else {
                return Ok(());
            };
            self.is_after_cr = *terminator == b'\r';
            piece = rest;
            self.end_line(events)?;
        }
        Ok(())
    }

    /// Ends the stream. Servers forget the last blank line, so an event that it lacks still counts; whether its data was
    /// cut shows when the data is read.
    pub fn finish(&mut self, events: &mut Vec<Event>) -> Result<(), TooLarge> {
        if !self.line.is_empty() {
            self.end_line(events)?;
        }
        self.dispatch(events);
        Ok(())
    }

    fn end_line(&mut self, events: &mut Vec<Event>) -> Result<(), TooLarge> {
        let line = std::mem::take(&mut self.line);
        let mut text = line.as_slice();
        if !std::mem::replace(&mut self.is_past_first_line, true) {
            text = text.strip_prefix(BOM).unwrap_or(text);
        }
        if text.is_empty() {
            self.dispatch(events);
        } else {
            self.field(text)?;
        }
        // The buffer is used again: a stream has many short lines.
        self.line = line;
        self.line.clear();
        Ok(())
    }

    fn field(&mut self, line: &[u8]) -> Result<(), TooLarge> {
        let colon = line.iter().position(|byte| *byte == b':');
        let (name, value) = line.split_at(colon.unwrap_or(line.len()));
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => {
                if self.data.len() + value.len() + 1 > EVENT_BYTES_MAX {
                    return Err(TooLarge);
                }
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
            }
            b"event" => value.clone_into(&mut self.kind),
            b"id" if !value.contains(&0) => value.clone_into(&mut self.id),
            // Comments (an empty name), `retry` and what a later standard adds.
            _ => {}
        }
        Ok(())
    }

    fn dispatch(&mut self, events: &mut Vec<Event>) {
        if std::mem::take(&mut self.has_data) {
            events.push(Event {
                kind: String::from_utf8_lossy(&self.kind).into_owned(),
                data: String::from_utf8_lossy(&self.data).into_owned(),
                id: String::from_utf8_lossy(&self.id).into_owned(),
            });
        }
        self.data.clear();
        self.kind.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<Event>, TooLarge> {
        let mut decoder = Decoder::default();
        let mut events = Vec::new();
        for piece in pieces {
            decoder.push(piece, &mut events)?;
        }
        decoder.finish(&mut events)?;
        Ok(events)
    }

    fn data(text: &str) -> Vec<String> {
        decode([text.as_bytes()])
            .expect("small")
            .into_iter()
            .map(|event| event.data)
            .collect()
    }

    /// STREAM-7: comments, blank lines, unknown fields and foreign line ends do not disturb.
    #[test]
    fn stream_7_the_forms_of_the_standard_are_read() {
        for (text, want) in [
            ("data: a\n\ndata: b\n\n", vec!["a", "b"]),
            ("data: a\r\n\r\ndata: b\r\r", vec!["a", "b"]),
            (
                ": PROCESSING\n: PROCESSING\n: PROCESSING\n\n\n\ndata:a\n\n",
                vec!["a"],
            ),
            ("\u{feff}data: a\n\n", vec!["a"]),
            ("data: one\ndata: two\ndata\n\n", vec!["one\ntwo\n"]),
            ("data: one\r\ndata: two\r\n\r\n", vec!["one\ntwo"]),
            ("data: one\rdata: two\r\r", vec!["one\ntwo"]),
            ("data:\n\n", vec![""]),
            (
                "event: ping\n\nretry: 3\nfoo: bar\n\ndata: a\n\n",
                vec!["a"],
            ),
            ("data:  two spaces\n\n", vec![" two spaces"]),
            (
                "data: no blank line at the end",
                vec!["no blank line at the end"],
            ),
            ("", vec![]),
            ("\n\n\n", vec![]),
        ] {
            assert_eq!(data(text), want, "{text:?}");
        }
    }

    #[test]
    fn an_event_carries_its_type_and_the_last_id() {
        let events = decode([
            b"id: 7\nevent: error\ndata: x\n\ndata: y\n\nid: a\0b\ndata: z\n\n".as_slice(),
        ])
        .expect("small");
        let seen: Vec<_> = events
            .iter()
            .map(|event| (event.kind.as_str(), event.data.as_str(), event.id.as_str()))
            .collect();
        assert_eq!(seen, [("error", "x", "7"), ("", "y", "7"), ("", "z", "7")]);
    }

    #[test]
    fn a_line_or_an_event_without_end_is_refused() {
        let piece = vec![b'x'; 64 * 1024];
        assert_eq!(
            decode(std::iter::repeat_n(piece.as_slice(), 64)),
            Err(TooLarge)
        );
        let line = [b"data: ".as_slice(), &piece, b"\n"].concat();
        assert_eq!(
            decode(std::iter::repeat_n(line.as_slice(), 64)),
            Err(TooLarge)
        );
    }

    /// STREAM-1: only bytes that are truly invalid are replaced.
    #[test]
    fn stream_1_invalid_bytes_are_replaced_and_valid_ones_kept() {
        let bytes = [b"data: \xC3\xA9\xFF".as_slice(), "你🦀\n\n".as_bytes()].concat();
        let pieces: Vec<&[u8]> = bytes.chunks(1).collect();
        let events = decode(pieces).expect("small");
        assert_eq!(events[0].data, "é\u{fffd}你🦀");
    }

    fn stream() -> impl Strategy<Value = Vec<u8>> {
        let line = prop_oneof![
            "(data|event|id|retry|:|foo)?(: ?)?[a-cé你🦀]{0,6}".prop_map(String::into_bytes),
            prop::collection::vec(any::<u8>(), 0..8),
            Just(b"data: {\"a\":1}".to_vec()),
            Just(BOM.to_vec()),
        ];
        let end = prop_oneof![
            Just("\n"),
            Just("\r\n"),
            Just("\r"),
            Just("\n\n"),
            Just("\r\n\r\n"),
            Just("")
        ];
        prop::collection::vec((line, end), 0..12).prop_map(|lines| {
            lines
                .into_iter()
                .flat_map(|(line, end)| [line, end.as_bytes().to_vec()].concat())
                .collect()
        })
    }

    proptest! {
        /// STREAM-1: where the network cuts never changes what comes out.
        #[test]
        fn stream_1_any_split_equals_the_whole(bytes in stream(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6)) {
            let whole = decode([bytes.as_slice()]).expect("small");
            prop_assert_eq!(&decode(bytes.chunks(1)).expect("small"), &whole);
            let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            places.extend([0, bytes.len()]);
            places.sort_unstable();
            let pieces = places.windows(2).map(|pair| &bytes[pair[0]..pair[1]]);
            prop_assert_eq!(&decode(pieces).expect("small"), &whole);
        }

        #[test]
        fn random_bytes_never_panic_and_never_grow(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
            let events = decode(bytes.chunks(7)).expect("small");
            // A replacement mark has three bytes where the stream had one; each event repeats the last id.
            let longest = bytes.len() * 3;
            prop_assert!(events.iter().all(|event| event.data.len() <= longest && event.kind.len() <= longest));
            prop_assert!(events.len() <= bytes.len());
        }
    }
}
