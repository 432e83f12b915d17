//! Whether the server's counts of a stream agree.
//!
//! Where the head of a stored record is damaged, the server (2.15.1 at least) takes its counts by subject from its index and that of all
//! messages from what it could read. Then it does not hand out what it stores from that time on, and takes the last of a subject for
//! one that is not there: nothing that it says of the stream can be relied on, until it has read the stream anew without its index.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::plan;
use crate::{
    Error, Mesh,
    wire::{Failure, Wire, code},
};

/// How often a stream that others write to is counted again.
const TRIES: u32 = 4;

#[derive(Deserialize)]
struct Info {
    state: State,
    #[serde(default)]
    total: usize,
}

#[derive(Deserialize)]
struct State {
    messages: u64,
    #[serde(default)]
    subjects: Option<BTreeMap<String, u64>>,
}

/// Whether a stream holds as many messages as its subjects have in all.
pub(crate) async fn agree(wire: &Wire, stream: &str) -> Result<bool, Failure> {
    for _ in 0..TRIES {
        if agree_once(wire, stream).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn agree_once(wire: &Wire, stream: &str) -> Result<bool, Failure> {
    let (mut counted, mut offset) = (0_u64, 0);
    loop {
        let body = serde_json::json!({"subjects_filter": ">", "offset": offset});
        let info: Info = wire.api(&format!("STREAM.INFO.{stream}"), &body).await?;
        let page = info.state.subjects.unwrap_or_default();
        offset += page.len();
        counted += page.values().sum::<u64>();
        if page.is_empty() || offset >= info.total {
            return Ok(counted == info.state.messages);
        }
    }
}

/// The streams that hold what nothing else does and whose counts do not agree.
pub async fn contradictory(mesh: &Mesh) -> Result<Vec<String>, Error> {
    let mut found = Vec::new();
    for stream in plan::lasting() {
        match agree(mesh.wire(), &stream).await {
            Ok(true) => {}
            Ok(false) => found.push(stream),
            Err(failure) if failure.number() == Some(code::STREAM_NOT_FOUND) => {}
            Err(failure) => return Err(failure.during(format!("counting stream {stream}"))),
        }
    }
    Ok(found)
}

/// The streams that hold what cannot be made anew.
pub fn lasting() -> Vec<String> {
    plan::lasting()
}

/// Those of `streams` that the server does not have.
pub async fn absent(mesh: &Mesh, streams: &[String]) -> Result<Vec<String>, Error> {
    let mut absent = Vec::new();
    for stream in streams {
        let info = format!("STREAM.INFO.{stream}");
        let found = mesh
            .wire()
            .api::<serde::de::IgnoredAny>(&info, &serde_json::Value::Null);
        match found.await {
            Ok(_) => {}
            Err(failure) if failure.number() == Some(code::STREAM_NOT_FOUND) => {
                absent.push(stream.clone());
            }
            Err(failure) => return Err(failure.during(format!("looking for stream {stream}"))),
        }
    }
    Ok(absent)
}
