//! What `sessions show` says of a deleted session: what its tombstone keeps, and that nothing else is left.

use std::fmt::Write as _;

use serde_json::{Value, json};
use teamster_core::display;
use teamster_protocol::{
    Commit, Event, Principal, SessionId,
    event::ApprovalDigest,
    text,
    usage::{NanoUsd, Spent, Usage},
};

use crate::cli::{
    show,
    status::{counted, grouped, money},
};

/// The deletion that a log ends with.
pub(super) struct Tombstone<'a> {
    by: &'a Principal,
    at_ms: u64,
    commits: u64,
    turns: u64,
    approvals: &'a [ApprovalDigest],
    spent: &'a [Spent],
}

/// The deletion of a session that nothing has created anew since.
pub(super) fn tombstone(commits: &[(u64, Commit)]) -> Option<Tombstone<'_>> {
    let (_, last) = commits.last()?;
    if last.head.phase != teamster_protocol::Phase::Deleted {
        return None;
    }
    // Behind it may lie commits that only drop what came late.
    commits.iter().rev().find_map(|(_, commit)| {
        let Some(Event::SessionDeleted {
            by,
            turns,
            approvals,
            spent,
            ..
        }) = commit.events.last()
        else {
            return None;
        };
        Some(Tombstone {
            by,
            at_ms: commit.at_ms,
            commits: commit.n,
            turns: *turns,
            approvals,
            spent,
        })
    })
}

impl Tombstone<'_> {
    fn total(&self) -> (Usage, NanoUsd, u64) {
        let start = (Usage::default(), NanoUsd::default(), 0);
        self.spent
            .iter()
            .fold(start, |(mut usage, cost, unpriced), one| {
                usage.add(&one.usage);
                (usage, cost.plus(one.cost), unpriced + one.unpriced)
            })
    }
}

/// For people.
pub(super) fn buried(id: &SessionId, tombstone: &Tombstone<'_>, queued: u64) -> String {
    let (usage, cost, unpriced) = tombstone.total();
    let cost = money(Some(cost), unpriced > 0).unwrap_or_default();
    let name = display::terminal(id.as_str());
    let mut text = format!(
        "session    {name}\nstatus     deleted\ndeleted    {} by {}\nturns      {} in {} commits\ntokens     {}\ncost       {cost}\n",
        show::moment(tombstone.at_ms),
        tombstone.by,
        tombstone.turns,
        tombstone.commits,
        grouped(usage.total()),
    );
    if !tombstone.approvals.is_empty() {
        let asked = counted(tombstone.approvals.len() as u64, "request");
        let session = display::terminal(&text::shell(id.as_str()));
        let _ = writeln!(
            text,
            "approvals  {asked} (teamster approvals history --session={session})"
        );
    }
    if queued > 0 {
        let _ = writeln!(
            text,
            "queued     {} accepted, which begin it anew",
            counted(queued, "message")
        );
    }
    text.push_str("\nIts messages, calls and results are erased.\n");
    text
}

/// For programs: the fields of a session that is there, and when and by whom it was deleted.
pub(super) fn buried_document(id: &SessionId, tombstone: &Tombstone<'_>, queued: u64) -> Value {
    let (usage, cost, unpriced) = tombstone.total();
    json!({
        "v": 1,
        "session": id,
        "status": "deleted",
        "deleted_at_ms": tombstone.at_ms,
        "deleted_by": tombstone.by,
        "commits": tombstone.commits,
        "turns": tombstone.turns,
        "queued": queued,
        "usage": usage,
        "cost_usd": (unpriced == 0).then(|| cost.as_usd()),
        "approvals": [],
        "decided": tombstone.approvals,
        "spent": tombstone.spent,
        "transcript": [],
    })
}
