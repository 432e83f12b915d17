//! One message that answers a call, and how it is read and written.

use async_nats::{HeaderMap, HeaderValue, Message, StatusCode};
use bytes::Bytes;
use teamster_protocol::{Fault, header};

/// `Nats-Service-Error` of plain NATS micro services.
const SERVICE_ERROR: &str = "Nats-Service-Error";
/// `Nats-Service-Error-Code` of plain NATS micro services.
const SERVICE_ERROR_CODE: &str = "Nats-Service-Error-Code";

/// What an answering message says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The callee is still at work.
    Running,
    /// The final word.
    Final(Result<Bytes, Fault>),
    /// The callee knows of no such call.
    Unknown,
    /// Nobody listens on the subject.
    Nobody,
}

impl Reply {
    /// Reads a message. Workers that know nothing of us answer with a plain body or with a service error.
    pub(crate) fn read(message: Message) -> Self {
        if message.status == Some(StatusCode::NO_RESPONDERS) {
            return Self::Nobody;
        }
        let Some(headers) = &message.headers else {
            return Self::Final(Ok(message.payload));
        };
        match headers.get(header::STATUS).map(HeaderValue::as_str) {
            Some(header::STATUS_RUNNING) => Self::Running,
            Some(header::STATUS_UNKNOWN) => Self::Unknown,
            Some(header::STATUS_FAULT) => Self::Final(Err(read_fault(&message.payload))),
            Some(other) => Self::Final(Err(Fault::internal(
                "mesh.bad_status",
                format_args!(
                    "the worker's answer has the status {:?}, which is none",
                    one_line(other)
                ),
            ))),
            None => match headers.get(SERVICE_ERROR) {
                Some(text) => Self::Final(Err(Fault::internal("mesh.service_error", text))),
                None => Self::Final(Ok(message.payload)),
            },
        }
    }

    /// The headers and the body that say it. A fault also carries the headers of a service error, for plain NATS tools.
    pub(crate) fn write(self) -> (Option<HeaderMap>, Bytes) {
        let status = |status: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::STATUS, status);
            headers
        };
        match self {
            Self::Running => (Some(status(header::STATUS_RUNNING)), Bytes::new()),
            Self::Unknown | Self::Nobody => (Some(status(header::STATUS_UNKNOWN)), Bytes::new()),
            Self::Final(Ok(body)) => (None, body),
            Self::Final(Err(fault)) => {
                let mut headers = status(header::STATUS_FAULT);
                headers.insert(SERVICE_ERROR_CODE, "500");
                headers.insert(SERVICE_ERROR, one_line(&fault.code).as_str());
                let body = serde_json::to_vec(&fault).unwrap_or_default();
                (Some(headers), body.into())
            }
        }
    }
}

fn read_fault(body: &[u8]) -> Fault {
    serde_json::from_slice(body).unwrap_or_else(|error| {
        Fault::internal(
            "mesh.bad_fault",
            format_args!("the callee failed, and its fault cannot be read: {error}"),
        )
    })
}

/// A header's value ends with its line.
pub(crate) fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(headers: Option<HeaderMap>, payload: Bytes) -> Message {
        Message {
            subject: "i".into(),
            reply: None,
            payload,
            headers,
            status: None,
            description: None,
            length: 0,
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for reply in [
            Reply::Running,
            Reply::Unknown,
            Reply::Final(Ok(Bytes::from_static(b"{\"a\":1}"))),
            Reply::Final(Ok(Bytes::new())),
            Reply::Final(Err(Fault::busy("x.y", "two\nlines").hint("h"))),
        ] {
            let (headers, body) = reply.clone().write();
            assert_eq!(Reply::read(message(headers, body)), reply);
        }
    }

    #[test]
    fn plain_workers_are_understood() {
        assert_eq!(
            Reply::read(message(None, Bytes::from_static(b"x"))),
            Reply::Final(Ok(Bytes::from_static(b"x")))
        );
        let mut headers = HeaderMap::new();
        headers.insert(SERVICE_ERROR, "broken");
        let Reply::Final(Err(fault)) = Reply::read(message(Some(headers), Bytes::new())) else {
            panic!("a service error is a fault");
        };
        assert_eq!(fault.code, "mesh.service_error");
        let mut headers = HeaderMap::new();
        headers.insert(header::STATUS, "banana");
        let Reply::Final(Err(fault)) =
            Reply::read(message(Some(headers), Bytes::from_static(b"{}")))
        else {
            panic!("nobody knows what it says");
        };
        assert_eq!(fault.code, "mesh.bad_status");
        let mut headers = HeaderMap::new();
        headers.insert(header::STATUS, header::STATUS_FAULT);
        let Reply::Final(Err(fault)) =
            Reply::read(message(Some(headers), Bytes::from_static(b"?")))
        else {
            panic!("a fault stays a fault");
        };
        assert_eq!(fault.code, "mesh.bad_fault");
    }
}
