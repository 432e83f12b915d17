//! What worker and stages say to each other: lengths, then JSON, then bytes as they are.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::failure::Failure;
use crate::layer::{Layer, Level};

/// Bytes of one frame: what a call may carry, as JSON.
const FRAME_BYTES_MAX: usize = 32 * 1024 * 1024;

/// What `outer` is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Outer {
    /// The layers to put up.
    pub(crate) layers: Vec<Layer>,
    /// Whether nothing is to be run.
    pub(crate) is_probe: bool,
}

/// What `init` is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Spec {
    /// The layers to put up.
    pub(crate) layers: Vec<Layer>,
    /// The workspace on the host, without links in it; none for a probe.
    pub(crate) workspace: Option<String>,
    /// The working directory below the workspace; empty for the workspace itself.
    pub(crate) cwd: String,
    /// What is hidden or read-only in the workspace.
    pub(crate) masks: Vec<Mask>,
    /// Further paths of the host that are shown read-only, at the same place.
    pub(crate) shown: Vec<String>,
    /// Files to lay into `/tmp`.
    pub(crate) files: Vec<(String, String)>,
    /// Standard input.
    pub(crate) stdin: String,
    /// What to run; nothing for a probe.
    pub(crate) argv: Vec<String>,
    /// The environment beyond the fixed part.
    pub(crate) env: Vec<(String, String)>,
    /// The bounds.
    pub(crate) limits: Limits,
}

/// What is done about a file or directory of the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mask {
    /// Its path below the workspace, byte for byte.
    pub(crate) path: Vec<u8>,
    /// What is done.
    pub(crate) cover: Cover,
}

/// What becomes of a file or directory of the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Cover {
    /// Nothing of it is seen.
    Hidden,
    /// It is seen, and cannot be changed.
    ReadOnly,
    /// It stays where it is under its name: what is below it is hidden by that name.
    Pinned,
}

/// The bounds of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Limits {
    /// How long it may run.
    pub(crate) wall_ms: u64,
    /// Processor seconds of each process.
    pub(crate) cpu_seconds: u64,
    /// Bytes of private memory of each process; what bounds all together is the control group.
    pub(crate) memory_bytes: u64,
    /// Processes and threads.
    pub(crate) processes: u64,
    /// Bytes of one file.
    pub(crate) file_bytes: u64,
    /// Bytes of output that are kept of each stream.
    pub(crate) kept_bytes: usize,
}

/// What `inner` is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Inner {
    /// The layers to put up.
    pub(crate) layers: Vec<Layer>,
    /// Paths that may be read and run.
    pub(crate) readable: Vec<String>,
    /// Paths that may be changed too.
    pub(crate) writable: Vec<String>,
    /// The working directory.
    pub(crate) cwd: String,
    /// What to run; nothing for a probe.
    pub(crate) argv: Vec<String>,
    /// The whole environment.
    pub(crate) env: Vec<(String, String)>,
    /// The bounds.
    pub(crate) limits: Limits,
}

/// What `inner` says instead of becoming the command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Said {
    /// It could not lock itself in.
    Failed(Failure),
    /// The command is not there or cannot be run.
    NotStarted(String),
    /// It was a probe.
    Probed(Vec<Level>),
}

/// What comes back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Report {
    /// A stage could not do its part; nothing ran.
    Failed(Failure),
    /// The layers of a probe.
    Probed(Vec<Level>),
    /// A command ran. The kept bytes follow: stdout's head and tail, stderr's head and tail.
    Ended {
        /// How it ended.
        end: End,
        /// How long it took.
        duration_ms: u64,
        /// Standard output.
        stdout: Kept,
        /// Standard error.
        stderr: Kept,
    },
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum End {
    /// It was not there or could not be run.
    NotStarted(String),
    /// By itself.
    Exited(i32),
    /// By a signal.
    Signaled(i32),
    /// Its time was over.
    TimedOut,
    /// It used its processor time.
    CpuLimit,
    /// It wrote a file beyond its bound.
    FileLimit,
    /// The worker said so, or is gone.
    Cancelled,
}

/// How much of a stream there was and is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kept {
    /// Bytes kept of its beginning.
    pub(crate) head: usize,
    /// Bytes kept of its end.
    pub(crate) tail: usize,
    /// Bytes of all of it.
    pub(crate) total: u64,
}

/// Bytes of a frame that holds `value`.
pub(crate) fn encode(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let json = serde_json::to_vec(value)?;
    let length = u32::try_from(json.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut frame = length.to_le_bytes().to_vec();
    frame.extend_from_slice(&json);
    Ok(frame)
}

/// Writes a frame.
pub(super) fn write(to: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    to.write_all(&encode(value)?)
}

/// Reads one frame and not a byte more.
pub(super) fn read<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<T> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
    if length > FRAME_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut json = vec![0; length];
    from.read_exact(&mut json)?;
    Ok(serde_json::from_slice(&json)?)
}

/// The frame at the beginning of `bytes`, and what follows it; `None` while it is not whole.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<Option<(T, &[u8])>> {
    let Some((length, rest)) = bytes.split_first_chunk::<4>() else {
        return Ok(None);
    };
    let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
    if length > FRAME_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    match rest.split_at_checked(length) {
        None => Ok(None),
        Some((json, rest)) => Ok(Some((serde_json::from_slice(json)?, rest))),
    }
}
