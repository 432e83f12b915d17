//! A commit: what one action of the turn machine yields, stored as one message of a session's log.

use serde::{Deserialize, Serialize};

use crate::{
    digest::Digest,
    event::Event,
    id::{ApprovalId, Incarnation, MessageId, SessionId},
};

/// Version of the commit format that this build writes.
pub const VERSION: u32 = 1;
/// The oldest version that this build reads.
pub const VERSION_OLDEST: u32 = 1;

/// One message of a session's log. All events of a step travel in it together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Commit {
    /// Format version.
    pub v: u32,
    /// The session that the commit belongs to.
    pub session: SessionId,
    /// Number of the commit in its session, from 1.
    pub n: u64,
    /// SHA-256 of the stored bytes of commit `n - 1`; zero for the first.
    pub prev: Digest,
    /// When the commit was made, in milliseconds since 1970.
    pub at_ms: u64,
    /// What a loader must do next.
    pub head: Head,
    /// The inputs that this commit consumes, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub consumed: Vec<Consumed>,
    /// What happened.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
    /// What must be published because of this commit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outbox: Vec<Outbox>,
}

/// Why a stored payload cannot be taken as a commit.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The bytes are not a commit of a known form.
    #[error("the payload is no commit that this build can read")]
    Parse(#[source] serde_json::Error),
    /// The format is newer, or older than the readers keep.
    #[error("the commit has format version {0}; this build reads {VERSION_OLDEST} to {VERSION}")]
    Version(u32),
}

impl Commit {
    /// The bytes to store.
    pub fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }

    /// Reads stored bytes. A version or an event that this build does not know is an error, never skipped.
    pub fn decode(bytes: &[u8]) -> Result<Self, ReadError> {
        #[derive(Deserialize)]
        struct Version {
            v: u32,
        }
        let Version { v } = serde_json::from_slice(bytes).map_err(ReadError::Parse)?;
        if !(VERSION_OLDEST..=VERSION).contains(&v) {
            return Err(ReadError::Version(v));
        }
        serde_json::from_slice(bytes).map_err(ReadError::Parse)
    }
}

/// The last commit's head alone tells a loader what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// Who moves next.
    pub phase: Phase,
    /// The harness that wrote the commit.
    pub owner: Incarnation,
    /// The doorbell that the owner holds as its lease.
    pub bell: Bell,
    /// The commit by which the owner claimed the session.
    pub epoch: u64,
    /// Takeovers of the running turn so far.
    pub attempt: u32,
    /// How far each lane is consumed.
    pub cursor: Cursor,
    /// When a parked session must be looked at again, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<u64>,
}

/// Who moves a session next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Nobody: the session waits for an input.
    Idle,
    /// The owner.
    Active,
    /// A control input: a person's decision or a timer.
    Parked,
    /// Nobody: there is no session, because it was deleted or because no input has created it yet. A newer input may.
    Deleted,
}

/// One of the two queues of a session. Each is consumed in the order of its stream's sequences, and a mark in one says
/// nothing about the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lane {
    /// User messages, in TURNS.
    In,
    /// Control inputs and kicks, in CONTROL.
    Ctl,
}

/// A doorbell: a message of TURNS or CONTROL by its stream sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bell {
    /// The stream.
    pub lane: Lane,
    /// The stream sequence.
    pub seq: u64,
}

/// One high-water mark a lane: the sequence of the last input consumed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cursor {
    /// In TURNS.
    #[serde(rename = "in")]
    pub input: u64,
    /// In CONTROL.
    pub ctl: u64,
}

impl Cursor {
    /// The mark of one lane.
    pub fn of(&self, lane: Lane) -> u64 {
        match lane {
            Lane::In => self.input,
            Lane::Ctl => self.ctl,
        }
    }

    /// Moves the mark of one lane forward; a smaller sequence changes nothing.
    pub fn advance(&mut self, lane: Lane, seq: u64) {
        let mark = match lane {
            Lane::In => &mut self.input,
            Lane::Ctl => &mut self.ctl,
        };
        *mark = (*mark).max(seq);
    }
}

/// An input that a commit consumed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Consumed {
    /// Its lane.
    pub lane: Lane,
    /// Its stream sequence.
    pub seq: u64,
    /// Its id: what makes a repeated publish of the same input recognisable after the broker's window.
    pub id: MessageId,
}

/// What must be published because of a commit: afterwards, with a deterministic id, and again by the next owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Outbox {
    /// Set the timer that ends an approval's wait.
    Timer {
        /// The approval, which also names the timer.
        approval: ApprovalId,
        /// When it fires, in milliseconds since 1970.
        at_ms: u64,
    },
    /// Remove the timer of an approval that was decided. A timer that fires all the same is a no-op.
    CancelTimer {
        /// The approval.
        approval: ApprovalId,
    },
    /// Remove what is left of a deleted session: its timers, what its queue held, its snapshot, its log before the tombstone.
    CleanUp,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A commit of version 1 as it was first stored.
    const GOLDEN: &str = concat!(
        r#"{"v":1,"session":"chat/1","n":1,"#,
        r#""prev":"0000000000000000000000000000000000000000000000000000000000000000","at_ms":1700000000000,"#,
        r#""head":{"phase":"active","owner":"h1","bell":{"lane":"in","seq":7},"epoch":1,"attempt":0,"#,
        r#""cursor":{"in":7,"ctl":0}},"#,
        r#""consumed":[{"lane":"in","seq":7,"id":"msg_00000000000000000000000000000001"}],"#,
        r#""events":[{"type":"session_created","by":"owner"},"#,
        r#"{"type":"message_added","message":{"role":"user","id":"msg_00000000000000000000000000000001","#,
        r#""from":"owner","text":"hi"}}]}"#,
    );

    #[test]
    fn sec_59_an_old_commit_is_read_and_written_as_it_was() {
        let commit = Commit::decode(GOLDEN.as_bytes()).expect("version 1 is read for ever");
        assert_eq!(commit.head.phase, Phase::Active);
        assert_eq!(commit.events.len(), 2);
        let bytes = commit.encode().expect("encodes");
        assert_eq!(String::from_utf8(bytes).expect("UTF-8"), GOLDEN);
    }

    /// SEC-59: what this build does not know stops it; nothing is skipped.
    #[test]
    fn sec_59_what_is_unknown_is_refused_and_not_skipped() {
        let read = |from: &str, to: &str| {
            let text = GOLDEN.replace(from, to);
            assert_ne!(text, GOLDEN, "{from} stands in the commit");
            Commit::decode(text.as_bytes())
        };
        for (from, to) in [
            ("session_created", "session_dreamt"),
            (r#""by":"owner""#, r#""by":"owner","mood":"good""#),
            (r#""phase":"active""#, r#""phase":"asleep""#),
            (r#""attempt":0"#, r#""attempt":0,"colour":1"#),
            (r#""n":1"#, r#""n":1,"colour":1"#),
        ] {
            assert!(
                matches!(read(from, to), Err(ReadError::Parse(_))),
                "{from} -> {to}"
            );
        }
        for v in [0, VERSION + 1] {
            assert!(
                matches!(read(r#""v":1"#, &format!("\"v\":{v}")), Err(ReadError::Version(found)) if found == v)
            );
        }
    }

    #[test]
    fn a_cursor_never_moves_back_and_lanes_are_apart() {
        let mut cursor = Cursor::default();
        cursor.advance(Lane::In, 5);
        cursor.advance(Lane::In, 3);
        cursor.advance(Lane::Ctl, 2);
        assert_eq!((cursor.of(Lane::In), cursor.of(Lane::Ctl)), (5, 2));
    }
}
