//! The form of an exported session: lines of JSON that hold its stored commits byte for byte, with their digests. Pure.
//!
//! The first line says whose commits follow and how many. A stored commit is JSON, so it stands in its line as it is stored;
//! what is none stands there in hexadecimal digits. Values that commits name by digest follow. Invariant: what is written
//! here is verified without anything but the file.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::{json, value::RawValue};
use teamster_protocol::{BlobRef, Commit, Digest, Event, SessionId};

/// Version of the form.
const VERSION: u32 = 1;

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Header {
    #[serde(rename = "type")]
    kind: String,
    v: u32,
    /// Whose commits follow.
    pub(super) session: SessionId,
    /// How many.
    pub(super) commits: u64,
    /// SHA-256 of the last one's stored bytes.
    pub(super) last_sha256: Digest,
    /// When they were read, in milliseconds since 1970.
    pub(super) exported_at_ms: u64,
    /// What was wrong with the log then: what is missing at its end does not show in what is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) damage: Option<String>,
}

impl Header {
    /// The first line of an export of these stored commits.
    pub(super) fn new(
        session: &SessionId,
        commits: u64,
        last: &[u8],
        now_ms: u64,
        damage: Option<String>,
    ) -> Self {
        Self {
            kind: "session".to_owned(),
            v: VERSION,
            session: session.clone(),
            commits,
            last_sha256: Digest::of(last),
            exported_at_ms: now_ms,
            damage,
        }
    }
}

/// A line behind the first.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: String,
    sha256: Digest,
    #[serde(default)]
    seq: Option<u64>,
    #[serde(default, borrow)]
    commit: Option<&'a RawValue>,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    hex: Option<String>,
}

/// The line of a stored commit.
pub(super) fn commit_line(seq: u64, bytes: &[u8]) -> String {
    let sha256 = Digest::of(bytes);
    match embedded(bytes) {
        Some(text) => {
            format!(r#"{{"type":"commit","seq":{seq},"sha256":"{sha256}","commit":{text}}}"#)
        }
        None => {
            json!({ "type": "commit", "seq": seq, "sha256": sha256, "hex": hex(bytes) }).to_string()
        }
    }
}

/// The line of a stored value.
pub(super) fn blob_line(bytes: &[u8]) -> String {
    let sha256 = Digest::of(bytes);
    match std::str::from_utf8(bytes) {
        Ok(text) => json!({ "type": "blob", "sha256": sha256, "text": text }).to_string(),
        Err(_) => json!({ "type": "blob", "sha256": sha256, "hex": hex(bytes) }).to_string(),
    }
}

/// The text of bytes that can stand in a line as they are.
fn embedded(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    let raw: &RawValue = serde_json::from_str(text).ok()?;
    (raw.get() == text && !text.contains(['\n', '\r'])).then_some(text)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let digits = text.as_bytes().chunks(2);
    digits
        .map(|pair| {
            std::str::from_utf8(pair)
                .ok()
                .and_then(|pair| u8::from_str_radix(pair, 16).ok())
        })
        .collect()
}

/// The values that a commit names.
pub(super) fn blobs(commit: &Commit) -> Vec<BlobRef> {
    commit.events.iter().flat_map(BlobRef::named_by).collect()
}

/// What a file that is whole holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Summary {
    /// The session.
    pub(super) session: SessionId,
    /// Commits.
    pub(super) commits: u64,
    /// The first commit's number: above 1 where older ones were purged with a deleted session.
    pub(super) first: u64,
    /// The last commit's number.
    pub(super) last: u64,
    /// SHA-256 of the last commit's stored bytes.
    pub(super) last_sha256: Digest,
    /// Losses that an operator accepted.
    pub(super) losses: u64,
    /// Values beside the commits.
    pub(super) blobs: u64,
}

/// What is wrong with a file, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem(pub(super) String);

/// Checks a file line by line.
pub(super) struct Verifier {
    header: Header,
    seq: u64,
    /// Number and digest of the last stored commit that could be read, digest of the last stored bytes.
    n: u64,
    before: Option<Digest>,
    first: Option<u64>,
    /// Whether a deletion was met.
    is_deleted: bool,
    commits: u64,
    losses: u64,
    blobs: u64,
    /// What does not follow and whose loss nobody accepted yet.
    broken: Option<String>,
}

impl Verifier {
    /// Begins with the first line.
    pub(super) fn begin(line: &str) -> Result<Self, Problem> {
        let header: Header = serde_json::from_str(line).map_err(|error| {
            Problem(format!("line 1 is not the beginning of an export: {error}"))
        })?;
        if header.kind != "session" || header.v != VERSION {
            return Err(Problem(format!(
                "line 1 names the form {:?} of version {}; this build reads \"session\" of version {VERSION}",
                header.kind, header.v
            )));
        }
        Ok(Self {
            header,
            seq: 0,
            n: 0,
            before: None,
            first: None,
            is_deleted: false,
            commits: 0,
            losses: 0,
            blobs: 0,
            broken: None,
        })
    }

    /// Takes a further line; `number` counts from 1.
    pub(super) fn line(&mut self, number: u64, line: &str) -> Result<(), Problem> {
        let problem = |what: &str| Err(Problem(format!("line {number}: {what}")));
        let line: Line<'_> = match serde_json::from_str(line) {
            Ok(line) => line,
            Err(error) => return problem(&format!("cannot be read: {error}")),
        };
        let bytes = match (&line.commit, &line.text, &line.hex) {
            (Some(raw), None, None) => raw.get().as_bytes().to_vec(),
            (None, Some(text), None) => text.clone().into_bytes(),
            (None, None, Some(hex)) => match unhex(hex) {
                Some(bytes) => bytes,
                None => return problem("the field \"hex\" holds other than hexadecimal digits"),
            },
            _ => return problem("it must hold one of \"commit\", \"text\" and \"hex\""),
        };
        if Digest::of(&bytes) != line.sha256 {
            return problem("its bytes are not those that its digest names");
        }
        match (line.kind.as_str(), line.seq) {
            ("blob", _) => self.blobs += 1,
            ("commit", Some(seq)) if seq > self.seq => {
                self.seq = seq;
                self.commit(number, &bytes);
            }
            ("commit", _) => {
                return problem("its sequence does not follow that of the line before");
            }
            _ => return problem("it is neither a commit nor a value"),
        }
        Ok(())
    }

    fn commit(&mut self, number: u64, bytes: &[u8]) {
        self.commits += 1;
        let before = self.before.replace(Digest::of(bytes));
        let commit = match Commit::decode(bytes) {
            Ok(commit) => commit,
            Err(error) => {
                let what = format!("line {number}: {error}");
                self.broken.get_or_insert(what);
                return;
            }
        };
        let is_accepted = matches!(commit.events.first(), Some(Event::LossAccepted { .. }));
        let follows = match before {
            // Where a deleted session's log begins, the commits before are gone.
            None => commit.n > 1 || commit.prev == Digest::ZERO,
            Some(before) => commit.prev == before && (is_accepted || commit.n == self.n + 1),
        };
        self.first.get_or_insert(commit.n);
        let is_deletion = |event: &Event| matches!(event, Event::SessionDeleted { .. });
        self.is_deleted |= commit.events.iter().any(is_deletion);
        self.n = commit.n;
        if commit.session != self.header.session {
            let what = format!(
                "line {number}: the commit belongs to the session {}",
                commit.session
            );
            self.broken.get_or_insert(what);
        } else if !follows {
            let what = format!(
                "line {number}: commit {} does not follow the one before",
                commit.n
            );
            self.broken.get_or_insert(what);
        } else if is_accepted {
            self.losses += 1;
            self.broken = None;
        }
    }

    /// The file ends.
    pub(super) fn end(self) -> Result<Summary, Problem> {
        if let Some(broken) = self.broken {
            return Err(Problem(broken));
        }
        if let Some(damage) = self.header.damage {
            return Err(Problem(format!(
                "the log was damaged when it was exported: {damage}"
            )));
        }
        if self.commits != self.header.commits {
            return Err(Problem(format!(
                "it holds {} of {} commits",
                self.commits, self.header.commits
            )));
        }
        let first = self.first.unwrap_or(0);
        if first > 1 && !self.is_deleted && self.losses == 0 {
            return Err(Problem(format!(
                "it begins with commit {first}, and neither a deletion nor an accepted loss says what became of those before"
            )));
        }
        let last = self.before.unwrap_or(Digest::ZERO);
        if last != self.header.last_sha256 {
            return Err(Problem(
                "the last commit is another one than its first line names".to_owned(),
            ));
        }
        Ok(Summary {
            session: self.header.session,
            commits: self.commits,
            first,
            last: self.n,
            last_sha256: last,
            losses: self.losses,
            blobs: self.blobs,
        })
    }
}

#[cfg(test)]
mod tests;
