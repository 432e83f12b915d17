//! A collector of spans: OTLP over HTTP with protobuf, on a thread of its own. Or one that takes everything and never
//! answers.
//!
//! Owns: the listener and what came. Never: an opinion about it.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{AnyValue, KeyValue, any_value::Value},
    trace::v1::{Span as Wire, status::StatusCode},
};
use prost::Message as _;

/// Bytes that one request may have.
const BODY_MAX: usize = 16 * 1024 * 1024;

/// How a span ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It does not say.
    Unset,
    /// Well.
    Ok,
    /// Badly.
    Error,
}

/// A span as it came.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// 32 hexadecimal digits.
    pub trace_id: String,
    /// 16 hexadecimal digits.
    pub span_id: String,
    /// 16 hexadecimal digits; empty at the top of a trace.
    pub parent: String,
    /// Its name.
    pub name: String,
    /// Nanoseconds since 1970.
    pub start: u64,
    /// Nanoseconds since 1970.
    pub end: u64,
    /// How it ended.
    pub status: Status,
    /// Its attributes as texts.
    pub attributes: BTreeMap<String, String>,
    /// Ids of the spans that it links to.
    pub links: Vec<String>,
    /// Attributes of who sent it, as texts.
    pub resource: BTreeMap<String, String>,
}

/// A running collector. Its thread ends with the process.
#[derive(Clone)]
pub struct Collector {
    address: SocketAddr,
    came: Arc<Mutex<Came>>,
}

#[derive(Default)]
struct Came {
    spans: Vec<Span>,
    /// Request heads, and the raw bodies.
    heads: Vec<String>,
    bodies: Vec<Vec<u8>>,
}

impl Collector {
    /// Starts a collector on a free port of the loopback interface.
    ///
    /// # Panics
    /// When no port can be had.
    pub fn start() -> Self {
        Self::listen(serve)
    }

    /// Starts one that takes connections and requests and never answers.
    ///
    /// # Panics
    /// When no port can be had.
    pub fn silent() -> Self {
        Self::listen(|mut stream, came| {
            let mut buffer = [0; 4096];
            while let Ok(count) = stream.read(&mut buffer) {
                if count == 0 {
                    return;
                }
                lock(came)
                    .bodies
                    .push(buffer.get(..count).unwrap_or_default().to_vec());
            }
        })
    }

    fn listen(serve: fn(TcpStream, &Mutex<Came>)) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let address = listener.local_addr().expect("the port");
        let came = Arc::new(Mutex::new(Came::default()));
        let shared = Arc::clone(&came);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let came = Arc::clone(&shared);
                std::thread::spawn(move || serve(stream, &came));
            }
        });
        Self { address, came }
    }

    /// What to put into `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The spans so far.
    pub fn spans(&self) -> Vec<Span> {
        lock(&self.came).spans.clone()
    }

    /// The heads of all requests so far: request line and headers.
    pub fn heads(&self) -> Vec<String> {
        lock(&self.came).heads.clone()
    }

    /// The bytes of all bodies so far.
    pub fn bytes(&self) -> Vec<u8> {
        lock(&self.came).bodies.concat()
    }
}

fn lock(came: &Mutex<Came>) -> MutexGuard<'_, Came> {
    came.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves one connection until it is closed.
fn serve(stream: TcpStream, came: &Mutex<Came>) {
    let Ok(mut answers) = stream.try_clone() else {
        return;
    };
    let mut requests = BufReader::new(stream);
    while let Some((head, body)) = request(&mut requests) {
        let is_traces = head.starts_with("POST /v1/traces");
        {
            let mut came = lock(came);
            if is_traces {
                let request =
                    ExportTraceServiceRequest::decode(body.as_slice()).expect("OTLP spans");
                came.spans.extend(spans(request));
            }
            came.heads.push(head);
            came.bodies.push(body);
        }
        // An empty message is the answer that all was taken.
        let answer =
            b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";
        if answers.write_all(answer).is_err() {
            return;
        }
    }
}

fn request(from: &mut BufReader<TcpStream>) -> Option<(String, Vec<u8>)> {
    let mut head = String::new();
    loop {
        let before = head.len();
        if from.read_line(&mut head).ok()? == 0 {
            return None;
        }
        if head.get(before..)?.trim().is_empty() {
            break;
        }
    }
    let length = head
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse::<usize>().ok())?;
    let mut body = vec![0; length.min(BODY_MAX)];
    from.read_exact(&mut body).ok()?;
    Some((head, body))
}

fn spans(request: ExportTraceServiceRequest) -> Vec<Span> {
    let mut spans = Vec::new();
    for group in request.resource_spans {
        let resource = texts(
            &group
                .resource
                .map(|found| found.attributes)
                .unwrap_or_default(),
        );
        for scope in group.scope_spans {
            let wires = scope.spans.into_iter();
            spans.extend(wires.map(|wire| span(wire, resource.clone())));
        }
    }
    spans
}

fn span(wire: Wire, resource: BTreeMap<String, String>) -> Span {
    let code = wire.status.map(|status| status.code());
    Span {
        trace_id: hex(&wire.trace_id),
        span_id: hex(&wire.span_id),
        parent: hex(&wire.parent_span_id),
        name: wire.name,
        start: wire.start_time_unix_nano,
        end: wire.end_time_unix_nano,
        status: match code {
            Some(StatusCode::Ok) => Status::Ok,
            Some(StatusCode::Error) => Status::Error,
            Some(StatusCode::Unset) | None => Status::Unset,
        },
        attributes: texts(&wire.attributes),
        links: wire.links.iter().map(|link| hex(&link.span_id)).collect(),
        resource,
    }
}

fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    attributes
        .iter()
        .map(|pair| (pair.key.clone(), text(pair.value.as_ref())))
        .collect()
}

fn text(value: Option<&AnyValue>) -> String {
    match value.and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::DoubleValue(number)) => number.to_string(),
        Some(Value::BoolValue(is_true)) => is_true.to_string(),
        Some(Value::ArrayValue(list)) => {
            let texts: Vec<String> = list.values.iter().map(|value| text(Some(value))).collect();
            texts.join(",")
        }
        _ => String::new(),
    }
}

fn hex(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from_digit(u32::from(half), 16).unwrap_or_default();
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}
