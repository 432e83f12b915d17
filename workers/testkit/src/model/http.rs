//! Requests of HTTP/1.1, as far as an HTTP client of this house sends them.

use serde_json::Value;
use tokio::{io::AsyncReadExt as _, net::TcpStream};

/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a request's body.
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A request to a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Its number on this server, from 0.
    pub number: usize,
    /// Method and path, for example `POST /v1/chat/completions`.
    pub line: String,
    /// The headers; names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Request {
    /// The value of a header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(header, _)| header == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// When it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("the request's body is JSON")
    }

    /// How many results stand behind the last message of the user, which is how far an exchange has come.
    pub fn results(&self) -> usize {
        let body = self.json();
        let messages = body.get("messages").and_then(Value::as_array);
        let roles = messages.into_iter().flatten().rev();
        roles
            .filter_map(|message| message.get("role").and_then(Value::as_str))
            .take_while(|role| *role != "user")
            .filter(|role| *role == "tool")
            .count()
    }

    /// Whether a result stands behind the last message of the user, found without reading the JSON: for measurements.
    /// Inside of a text the quotes are escaped, so that no text looks like a role.
    pub fn is_after_result(&self) -> bool {
        let last = |role: &[u8]| {
            let mut windows = self.body.windows(role.len());
            windows.rposition(|window| window == role)
        };
        last(b"\"role\":\"tool\"") > last(b"\"role\":\"user\"")
    }

    /// The text of the last message of the user.
    pub fn last_user_text(&self) -> String {
        let body = self.json();
        let messages = body.get("messages").and_then(Value::as_array);
        let user = messages
            .into_iter()
            .flatten()
            .rev()
            .find(|message| message.get("role").and_then(Value::as_str) == Some("user"));
        let text = user.and_then(|message| message.get("content"));
        text.and_then(Value::as_str).unwrap_or_default().to_owned()
    }
}

/// One connection of a client.
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            buffer: Vec::with_capacity(16 * 1024),
        }
    }

    /// The next request; `None` when the client has closed or sent what is no request.
    pub(super) async fn next_request(&mut self) -> Option<Request> {
        let head_bytes = loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                break end;
            }
            if self.buffer.len() > HEAD_BYTES_MAX {
                return None;
            }
            self.fill().await?;
        };
        let head = String::from_utf8_lossy(self.buffer.get(..head_bytes)?).into_owned();
        self.buffer.drain(..head_bytes + 4);
        let mut lines = head.split("\r\n");
        let line = lines.next()?.trim_end_matches(" HTTP/1.1").to_owned();
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let mut request = Request {
            number: 0,
            line,
            headers,
            body: Vec::new(),
        };
        let length: usize = request
            .header("content-length")
            .map_or(Some(0), |value| value.parse().ok())?;
        if length > BODY_BYTES_MAX {
            return None;
        }
        while self.buffer.len() < length {
            self.fill().await?;
        }
        request.body = self.buffer.drain(..length).collect();
        Some(request)
    }

    async fn fill(&mut self) -> Option<()> {
        match self.stream.read_buf(&mut self.buffer).await {
            Ok(count) if count > 0 => Some(()),
            Ok(_) | Err(_) => None,
        }
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}
