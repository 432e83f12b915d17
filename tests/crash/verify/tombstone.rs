//! Deletions: nothing of what was before is left, in the log or outside of it.

use teamster_mesh::snap::Snapshot;
use teamster_protocol::{Commit, Event, Phase, commit::Outbox};

use crate::evidence::Evidence;

/// Whether a commit deletes its session.
pub fn is_one(commit: &Commit) -> bool {
    matches!(commit.events.last(), Some(Event::SessionDeleted { .. }))
}

/// A tombstone is the first commit of its log, says that it must be cleaned up behind, and keeps no content.
pub fn erased(evidence: &Evidence, found: &mut Vec<String>) {
    for (index, commit) in evidence.commits.iter().enumerate() {
        let n = commit.n;
        if !is_one(commit) {
            let has_one = commit
                .events
                .iter()
                .any(|event| matches!(event, Event::SessionDeleted { .. }));
            if has_one {
                found.push(format!("commit {n} goes on behind its deletion"));
            }
            continue;
        }
        if index > 0 {
            found.push(format!("{index} commits lie before the tombstone {n}"));
        }
        if commit.head.phase != Phase::Deleted || !commit.outbox.contains(&Outbox::CleanUp) {
            found.push(format!(
                "commit {n} deletes the session and leaves it as it was"
            ));
        }
        let keeps = commit.events.iter().any(|event| {
            matches!(
                event,
                Event::MessageAdded { .. }
                    | Event::GenerationFinished { .. }
                    | Event::CallAllowed { .. }
            )
        });
        if keeps {
            found.push(format!("the tombstone {n} keeps what was said or called"));
        }
    }
    let Some(first) = evidence.commits.first().filter(|first| is_one(first)) else {
        return;
    };
    let is_old = |snapshot: &&Snapshot| snapshot.mark.n < first.n;
    if let Some(snapshot) = evidence.snapshot.as_ref().filter(is_old) {
        found.push(format!(
            "the kept state is of commit {}, before the deletion",
            snapshot.mark.n
        ));
    }
    if !evidence.timers.is_empty() {
        found.push(format!("timers are left: {:?}", evidence.timers));
    }
}
