//! What must hold of a session at rest, whatever was killed while it ran. Pure: evidence in, complaints out.

mod calls;
mod inputs;
mod log;

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
    found
}

/// All events with the number of their commit.
pub fn events(evidence: &Evidence) -> impl Iterator<Item = (u64, &Event)> {
    evidence
        .commits
        .iter()
        .flat_map(|commit| commit.events.iter().map(move |event| (commit.n, event)))
}
