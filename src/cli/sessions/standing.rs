//! How a session stands: what its log says, and whether the process that ran it lives.

use std::collections::BTreeSet;

use teamster_protocol::{Phase, function::session::SessionInfo, id::Incarnation};

use crate::{
    cli::failure::Failure,
    client::{Client, session::Session},
};

/// A turn runs, and the process that runs it lives.
pub(super) const RUNNING: &str = "running";
/// A turn has begun, and the process that ran it is gone.
pub(super) const INTERRUPTED: &str = "interrupted";

/// How one session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Standing {
    /// In one word.
    pub(super) word: &'static str,
    /// For people, where the word does not say everything.
    pub(super) remark: Option<&'static str>,
}

impl Standing {
    /// The log is damaged: nobody can say how the session stands.
    pub(super) const DAMAGED: Self = Self {
        word: "damaged",
        remark: None,
    };

    /// In words.
    pub(super) fn words(self) -> String {
        match self.remark {
            Some(remark) => format!("{}; {remark}", self.word),
            None => self.word.to_owned(),
        }
    }
}

/// How a session stands, by its last commit and by the processes that live.
pub(super) async fn of(client: &Client, session: &Session) -> Result<Standing, Failure> {
    let wanted: BTreeSet<Incarnation> = session
        .owner
        .iter()
        .filter(|_| session.phase == Some(Phase::Active))
        .cloned()
        .collect();
    let heard = client.living(&wanted).await?;
    Ok(judge(session.phase, session.owner.as_ref(), &heard))
}

fn judge(
    phase: Option<Phase>,
    owner: Option<&Incarnation>,
    heard: &BTreeSet<Incarnation>,
) -> Standing {
    let (word, remark) = match phase {
        Some(Phase::Active) if owner.is_none_or(|owner| heard.contains(owner)) => (RUNNING, None),
        Some(Phase::Active) if heard.is_empty() => {
            (INTERRUPTED, Some("goes on when a harness starts"))
        }
        Some(Phase::Active) => (INTERRUPTED, Some("another harness takes it over")),
        Some(Phase::Parked) => ("waiting", None),
        Some(Phase::Deleted) => ("deleted", None),
        Some(Phase::Idle) | None => ("idle", None),
    };
    Standing { word, remark }
}

/// Says of listed sessions which of those that the log calls running are interrupted.
pub(super) async fn correct(client: &Client, sessions: &mut [SessionInfo]) -> Result<(), Failure> {
    let wanted = sessions
        .iter()
        .filter_map(|session| session.owner.clone())
        .collect();
    let heard = client.living(&wanted).await?;
    for session in sessions {
        if let Some(owner) = &session.owner
            && !heard.contains(owner)
        {
            INTERRUPTED.clone_into(&mut session.status);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_runs_only_where_its_owner_lives() {
        let process = |name: &str| Incarnation::parse(name).expect("valid");
        let owner = process("a");
        let nobody = BTreeSet::new();
        let (own, other) = (
            BTreeSet::from([process("a"), process("b")]),
            BTreeSet::from([process("b")]),
        );
        for (phase, heard, want) in [
            (Phase::Active, &own, "running"),
            (
                Phase::Active,
                &nobody,
                "interrupted; goes on when a harness starts",
            ),
            (
                Phase::Active,
                &other,
                "interrupted; another harness takes it over",
            ),
            (Phase::Idle, &nobody, "idle"),
            (Phase::Parked, &nobody, "waiting"),
            (Phase::Deleted, &nobody, "deleted"),
        ] {
            let standing = judge(Some(phase), Some(&owner), heard);
            assert_eq!(standing.words(), want);
        }
    }
}
