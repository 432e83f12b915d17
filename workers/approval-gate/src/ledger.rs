//! What one session's log says about its requests for a person's decision: a fold, and nothing else.

use std::collections::BTreeMap;

use teamster_protocol::{
    ApprovalId, Commit, Event, SessionId, TurnId,
    function::approval::{GetReply, Pending, Resolution},
};

/// The requests of one session and what became of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger {
    workspace: Option<String>,
    turn: Option<TurnId>,
    entries: BTreeMap<ApprovalId, GetReply>,
}

impl Ledger {
    /// Takes in the session's next commit.
    pub(crate) fn apply(&mut self, session: &SessionId, commit: &Commit) {
        for event in &commit.events {
            self.take(session, commit.at_ms, event);
        }
    }

    fn take(&mut self, session: &SessionId, at_ms: u64, event: &Event) {
        match event {
            Event::SessionCreated { workspace, .. } => self.workspace.clone_from(workspace),
            // What was asked in the part that was given up is asked no more.
            Event::LossAccepted { .. } => {
                for entry in self.entries.values_mut() {
                    entry
                        .resolution
                        .get_or_insert(Resolution::Withdrawn { at_ms });
                }
            }
            Event::TurnStarted { turn, .. } => self.turn = Some(turn.clone()),
            Event::TurnEnded { .. } => self.turn = None,
            Event::ApprovalRequested { .. } => {
                // Where the beginning of its turn cannot be read, the call is decided all the same.
                let turn = self.turn.clone().unwrap_or_else(TurnId::unknown);
                if let Some(request) = Pending::of(event, session, &turn, at_ms) {
                    let approval = request.approval_id.clone();
                    self.entries.entry(approval).or_insert(GetReply {
                        request,
                        resolution: None,
                    });
                }
            }
            Event::ApprovalResolved { .. } | Event::ApprovalExpired { .. } => {
                if let Some((approval, resolution)) = Resolution::of(event, at_ms) {
                    self.resolve(approval, resolution);
                }
            }
            Event::CallFinished { call, outcome, .. }
            | Event::CallRefused { call, outcome, .. } => {
                for entry in self.entries.values_mut() {
                    if let Some(Resolution::Decided { outcome: known, .. }) = &mut entry.resolution
                        && entry.request.call_id == *call
                    {
                        *known = Some(*outcome);
                    }
                }
            }
            _ => {}
        }
    }

    /// The first resolution is the one that counts.
    fn resolve(&mut self, approval: &ApprovalId, resolution: Resolution) {
        if let Some(entry) = self.entries.get_mut(approval)
            && entry.resolution.is_none()
        {
            entry.resolution = Some(resolution);
        }
    }

    /// One request.
    pub(crate) fn get(&self, approval: &ApprovalId) -> Option<&GetReply> {
        self.entries.get(approval)
    }

    /// The requests that wait.
    pub(crate) fn open(&self) -> impl Iterator<Item = &Pending> {
        self.entries
            .values()
            .filter(|entry| entry.resolution.is_none())
            .map(|entry| &entry.request)
    }

    /// The session's workspace.
    pub(crate) fn workspace(&self) -> Option<&str> {
        self.workspace.as_deref()
    }

    /// Bytes of arguments that it holds.
    pub(crate) fn bytes(&self) -> usize {
        self.entries
            .values()
            .map(|entry| entry.request.arguments.as_str().len())
            .sum()
    }

    /// Forgets all but the newest `kept` requests that are no longer open.
    pub(crate) fn forget_resolved(&mut self, kept: usize) {
        let resolved: Vec<ApprovalId> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.resolution.is_some())
            .map(|(id, _)| id.clone())
            .collect();
        for id in resolved.iter().rev().skip(kept) {
            self.entries.remove(id);
        }
    }
}

#[cfg(test)]
mod tests;
