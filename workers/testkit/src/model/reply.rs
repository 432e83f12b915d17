//! Replies: what a model server sends, piece by piece.

use std::{io::Write as _, sync::Arc};

use serde_json::{Value, json};

use super::Gate;

/// One reply. Built from left to right; each call of a builder adds one piece, which is one HTTP chunk.
#[derive(Debug, Clone)]
pub struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    is_chunked: bool,
    pub(super) steps: Vec<Step>,
    pub(super) end: End,
}

#[derive(Debug, Clone)]
pub(super) enum Step {
    Piece(Vec<u8>),
    Gate(Gate),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Whole,
    Cut,
    Hang,
}

impl Reply {
    /// A stream of events with status 200.
    pub fn stream() -> Self {
        Self::status(200).chunked("text/event-stream")
    }

    /// A reply with a status and an empty body.
    pub fn status(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            is_chunked: false,
            steps: Vec::new(),
            end: End::Whole,
        }
    }

    /// A whole answer: one text, usage, and the terminal signals.
    pub fn says(text: &str) -> Self {
        Self::stream().text(text).finish("stop").usage(10, 5).done()
    }

    /// A whole answer: one call, usage, and the terminal signals.
    pub fn calls(name: &str, arguments: &Value) -> Self {
        Self::stream()
            .call(0, "call_0", name, &arguments.to_string())
            .finish("tool_calls")
            .usage(10, 5)
            .done()
    }

    /// Sends the body in chunks of this content type.
    pub fn chunked(mut self, content_type: &str) -> Self {
        self.is_chunked = true;
        self.header("content-type", content_type)
    }

    /// Adds a header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds bytes as they are.
    pub fn raw(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.steps.push(Step::Piece(bytes.into()));
        self
    }

    /// Adds text to the body.
    pub fn body(self, text: &str) -> Self {
        self.raw(text.as_bytes())
    }

    /// Makes the body one JSON document.
    pub fn json(self, value: &Value) -> Self {
        self.header("content-type", "application/json")
            .body(&value.to_string())
    }

    /// Adds bytes, each of them as a piece of its own.
    pub fn byte_by_byte(mut self, bytes: &[u8]) -> Self {
        let pieces = bytes.iter().map(|byte| Step::Piece(vec![*byte]));
        self.steps.extend(pieces);
        self
    }

    /// Adds an event with JSON data.
    pub fn event(self, data: &Value) -> Self {
        self.body(&format!("data: {data}\n\n"))
    }

    /// Adds a delta of visible text.
    pub fn text(self, text: &str) -> Self {
        self.delta(&json!({"content": text}))
    }

    /// Adds a delta of a call.
    pub fn call(self, index: u64, id: &str, name: &str, arguments: &str) -> Self {
        let function = json!({"name": name, "arguments": arguments});
        self.delta(&json!({"tool_calls": [
            {"index": index, "id": id, "type": "function", "function": function}]}))
    }

    /// Adds any delta of the first choice.
    pub fn delta(self, delta: &Value) -> Self {
        self.event(&json!({"object": "chat.completion.chunk", "choices": [
            {"index": 0, "delta": delta, "finish_reason": null}]}))
    }

    /// Adds the finish reason.
    pub fn finish(self, reason: &str) -> Self {
        self.event(&json!({"object": "chat.completion.chunk", "choices": [
            {"index": 0, "delta": {}, "finish_reason": reason}]}))
    }

    /// Adds the counts of tokens.
    pub fn usage(self, prompt: u64, completion: u64) -> Self {
        let usage = json!({"prompt_tokens": prompt, "completion_tokens": completion,
            "total_tokens": prompt + completion});
        self.event(&json!({"object": "chat.completion.chunk", "choices": [], "usage": usage}))
    }

    /// Adds `[DONE]`.
    pub fn done(self) -> Self {
        self.body("data: [DONE]\n\n")
    }

    /// Holds what follows until the gate is open.
    pub fn gate(mut self, gate: &Gate) -> Self {
        self.steps.push(Step::Gate(gate.clone()));
        self
    }

    /// Ends by closing the connection, without the end of the body.
    pub fn cut(mut self) -> Self {
        self.end = End::Cut;
        self
    }

    /// Never ends: stays silent until the client goes away.
    pub fn hang(mut self) -> Self {
        self.end = End::Hang;
        self
    }

    /// The whole response as bytes, for [`super::Script::fast`]. Gates are left out.
    pub fn encode(&self) -> Arc<[u8]> {
        let mut bytes = self.head();
        for step in &self.steps {
            if let Step::Piece(piece) = step {
                self.frame(piece, &mut bytes);
            }
        }
        bytes.extend_from_slice(self.tail());
        bytes.into()
    }

    pub(super) fn head(&self) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {} Scripted\r\n", self.status).into_bytes();
        for (name, value) in &self.headers {
            push(&mut head, format_args!("{name}: {value}\r\n"));
        }
        if self.is_chunked {
            push(
                &mut head,
                format_args!("transfer-encoding: chunked\r\n\r\n"),
            );
        } else {
            let pieces = self.steps.iter().map(|step| match step {
                Step::Piece(piece) => piece.len(),
                Step::Gate(_) => 0,
            });
            let length: usize = pieces.sum();
            push(&mut head, format_args!("content-length: {length}\r\n\r\n"));
        }
        head
    }

    pub(super) fn frame(&self, piece: &[u8], into: &mut Vec<u8>) {
        // An empty chunk would end the body.
        if self.is_chunked && !piece.is_empty() {
            push(into, format_args!("{:x}\r\n", piece.len()));
            into.extend_from_slice(piece);
            into.extend_from_slice(b"\r\n");
        } else {
            into.extend_from_slice(piece);
        }
    }

    pub(super) fn tail(&self) -> &'static [u8] {
        if self.is_chunked { b"0\r\n\r\n" } else { b"" }
    }
}

fn push(bytes: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    bytes
        .write_fmt(text)
        .expect("a vector takes what is written");
}
