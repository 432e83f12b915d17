//! What must hold of a session at rest, whatever was killed while it ran. Pure: evidence in, complaints out.
//!
//! Of a session that was deleted the log begins with its tombstone. What that says of the turn which it ended is about commits
//! that are gone, and not looked at.

mod calls;
mod inputs;
mod log;
mod tombstone;

use teamster_protocol::Event;

use crate::evidence::Evidence;

/// Everything that is wrong, in words.
pub fn check(evidence: &Evidence) -> Vec<String> {
    let mut found = Vec::new();
    log::chain(evidence, &mut found);
    log::owners(evidence, &mut found);
    log::turns(evidence, &mut found);
    log::head(evidence, &mut found);
    inputs::consumed_once(evidence, &mut found);
    inputs::answered(evidence, &mut found);
    calls::settled(evidence, &mut found);
    calls::effects(evidence, &mut found);
    calls::approvals(evidence, &mut found);
    inputs::joined(evidence, &mut found);
    tombstone::erased(evidence, &mut found);
    found
}

/// All events with the number of their commit.
pub fn events(evidence: &Evidence) -> impl Iterator<Item = (u64, &Event)> {
    evidence.commits.iter().flat_map(|commit| {
        let is_tombstone = tombstone::is_one(commit);
        let said = commit
            .events
            .iter()
            .filter(move |event| !is_tombstone || matches!(event, Event::SessionDeleted { .. }));
        said.map(move |event| (commit.n, event))
    })
}
