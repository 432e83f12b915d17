//! A client's side of the NATS protocol, cut into operations: enough of it to know what is published where.

/// The longest line of an operation; a server's own limit is 4 KiB, a CONNECT with a signature is longer.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// The longest payload.
const PAYLOAD_BYTES_MAX: usize = 64 * 1024 * 1024;

/// One operation with all its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// What the client sent, line ends and payload included.
    pub bytes: Vec<u8>,
    /// The subject, if it is a publish.
    pub subject: Option<String>,
}

/// Bytes that are no client's operations.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no operation of a NATS client: {0}")]
pub struct Malformed(String);

/// Collects bytes in pieces of any size and gives whole operations back.
#[derive(Debug, Default)]
pub struct Framer {
    pending: Vec<u8>,
}

impl Framer {
    /// Adds bytes as they come.
    pub fn push(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// The next whole operation; `None` until more bytes come.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, Malformed> {
        let Some(end) = self.pending.windows(2).position(|pair| pair == b"\r\n") else {
            if self.pending.len() > LINE_BYTES_MAX {
                return Err(Malformed("a line without an end".to_owned()));
            }
            return Ok(None);
        };
        let line = String::from_utf8_lossy(self.pending.get(..end).unwrap_or_default());
        let (subject, payload) = read_line(&line)?;
        // The payload has a line end of its own.
        let whole = end + 2 + payload.map_or(0, |payload| payload + 2);
        if self.pending.len() < whole {
            return Ok(None);
        }
        let rest = self.pending.split_off(whole);
        let bytes = std::mem::replace(&mut self.pending, rest);
        Ok(Some(Frame { bytes, subject }))
    }
}

/// The subject and the payload's length of a publish; neither for any other operation.
fn read_line(line: &str) -> Result<(Option<String>, Option<usize>), Malformed> {
    let mut words = line.split_ascii_whitespace();
    let verb = words.next().unwrap_or_default().to_ascii_uppercase();
    if verb != "PUB" && verb != "HPUB" {
        return Ok((None, None));
    }
    let bad = || Malformed(line.chars().take(100).collect());
    let subject = words.next().ok_or_else(bad)?;
    // `PUB subject [reply] bytes`, `HPUB subject [reply] header-bytes all-bytes`: the last number counts.
    let bytes: usize = words
        .last()
        .and_then(|word| word.parse().ok())
        .ok_or_else(bad)?;
    if bytes > PAYLOAD_BYTES_MAX {
        return Err(bad());
    }
    Ok((Some(subject.to_owned()), Some(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &[u8] =
        b"CONNECT {\"verbose\":false}\r\nPING\r\nPUB log.05.s 5\r\nPUB x\r\nSUB a 1\r\n\
        HPUB log.06.s _INBOX.h.1 12 17\r\nNATS/1.0\r\n\r\nhello\r\npub gen.a 0\r\n\r\nPONG\r\n";

    fn frames(piece: usize) -> Vec<Frame> {
        let mut framer = Framer::default();
        let mut whole = Vec::new();
        for bytes in STREAM.chunks(piece) {
            framer.push(bytes);
            while let Some(frame) = framer.next_frame().expect("well-formed") {
                whole.push(frame);
            }
        }
        assert!(framer.pending.is_empty());
        whole
    }

    #[test]
    fn operations_are_the_same_however_the_bytes_arrive() {
        let whole = frames(STREAM.len());
        let subjects: Vec<Option<&str>> = whole.iter().map(|f| f.subject.as_deref()).collect();
        assert_eq!(
            subjects,
            [
                None,
                None,
                Some("log.05.s"),
                None,
                Some("log.06.s"),
                Some("gen.a"),
                None
            ]
        );
        for piece in 1..STREAM.len() {
            assert_eq!(frames(piece), whole, "pieces of {piece}");
        }
        let bytes: Vec<u8> = whole.into_iter().flat_map(|frame| frame.bytes).collect();
        assert_eq!(bytes, STREAM);
    }

    #[test]
    fn what_is_no_operation_is_refused() {
        for bad in [
            "PUB\r\n",
            "PUB a\r\n",
            "PUB a b\r\n",
            "HPUB a 1 99999999999\r\n",
        ] {
            let mut framer = Framer::default();
            framer.push(bad.as_bytes());
            assert!(framer.next_frame().is_err(), "{bad}");
        }
        let mut framer = Framer::default();
        framer.push(&vec![b'x'; LINE_BYTES_MAX + 1]);
        assert!(framer.next_frame().is_err());
    }
}
