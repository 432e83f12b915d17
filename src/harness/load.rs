//! A session's state from its log, with the snapshot as a shortcut, and with snapshot and second head as witnesses of what the log
//! must hold.

use teamster_core::turn::{
    Fold, State,
    fold::Damage,
    salvage::{Salvage, gaps},
    state::FOLD_VERSION,
};
use teamster_mesh::{
    Mesh,
    log::{Stored, Survey},
    snap::{Mark, Snapshot},
};
use teamster_protocol::{Commit, Digest, SessionId};

use super::witness::Witnesses;
use crate::witness::{self, Witness};

/// Why a session cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The broker could not be asked.
    #[error("the log could not be read")]
    Mesh(#[source] teamster_mesh::Error),
    /// The log is not what it was known to be: the session stops until an operator has looked.
    #[error("the log is damaged: {0}")]
    Damaged(String),
    /// A stored value that the session begins with is not there, or is not what the log says.
    #[error("the stored value {value} cannot be used: {why}", value = value.short())]
    ValueMissing {
        /// Its digest.
        value: Digest,
        /// What is wrong.
        why: String,
    },
}

impl From<teamster_mesh::Error> for Error {
    fn from(error: teamster_mesh::Error) -> Self {
        match error {
            // Not "there is none": who took it for that would begin the session anew on top of what is there.
            unreadable @ teamster_mesh::Error::Unreadable { .. } => {
                Self::Damaged(unreadable.to_string())
            }
            error => Self::Mesh(error),
        }
    }
}

impl From<Box<Damage>> for Error {
    fn from(damage: Box<Damage>) -> Self {
        Self::Damaged(damage.why)
    }
}

/// Reads what is new since `known`, or everything. What was known and is not there any more is remembered as a witness against
/// the log.
pub(super) async fn load(
    mesh: &Mesh,
    witnesses: &Witnesses,
    session: &SessionId,
    known: Option<State>,
) -> Result<State, Error> {
    // Boxed, both: states are large.
    match Box::pin(load_once(mesh, witnesses, session, known)).await {
        Err(Error::Damaged(why)) => {
            let why = Box::pin(located(mesh, session, why)).await;
            Err(Error::Damaged(why))
        }
        loaded => loaded,
    }
}

/// What is wrong, with what the server holds of the log and cannot read, and where.
async fn located(mesh: &Mesh, session: &SessionId, why: String) -> String {
    if let Ok(false) = mesh.log().is_counted(session).await {
        return format!(
            "{why}; the server contradicts itself about the stream that holds it: start it again before anything is decided"
        );
    }
    let Ok(survey) = mesh.log().survey(session).await else {
        return why;
    };
    if survey.unreadable == 0 || survey.is_end_unreadable {
        return why; // nothing to add, or said already
    }
    let gaps = gaps(session, &pieces(&survey));
    let place = if gaps.is_empty() {
        String::new()
    } else {
        format!(": {}", gaps.join(", "))
    };
    format!(
        "{why}; the server holds {} messages of it that it cannot read, because their stored bytes are damaged{place}",
        survey.unreadable
    )
}

fn pieces(survey: &Survey) -> Vec<(u64, &[u8])> {
    let commits = survey.commits.iter();
    commits.map(|one| (one.seq, &*one.body)).collect()
}

async fn load_once(
    mesh: &Mesh,
    witnesses: &Witnesses,
    session: &SessionId,
    known: Option<State>,
) -> Result<State, Error> {
    if let Some(state) = known {
        let witness = Witness::of(&state);
        let extended = match mesh.log().tail(session).await {
            Ok(tail) => extend(mesh, state, tail.as_ref()).await,
            Err(error) => Err(error.into()),
        };
        match extended {
            Err(Error::Damaged(_)) => witnesses.note(session, witness),
            other => return other,
        }
    }
    // Before the log: what it says was there then.
    let head = witness::head(mesh, session).await;
    let (tail_seq, snapshot) = tail_and_snapshot(mesh, session).await?;
    let state = begin(mesh, session, snapshot.as_ref(), tail_seq).await?;
    let mark = snapshot.as_ref().map(|found| Witness::from(&found.mark));
    let is_seen = |witness: &Witness| {
        [Some(Witness::of(&state)), mark]
            .into_iter()
            .flatten()
            .any(|seen| (seen.n, seen.seq, seen.hash) == (witness.n, witness.seq, witness.hash))
    };
    let remembered = witnesses.of(session);
    for witness in [head, remembered].into_iter().flatten() {
        if !is_seen(&witness) && !witness.is_overruled(&state) {
            check(mesh, session, &witness, tail_seq).await?;
        }
    }
    if remembered.is_some() {
        witnesses.forget(session);
    }
    Ok(state)
}

/// Where the log ends, and the snapshot, which is never taken to be newer than that.
async fn tail_and_snapshot(
    mesh: &Mesh,
    session: &SessionId,
) -> Result<(u64, Option<Snapshot>), Error> {
    let log = mesh.log();
    let seq = |tail: Option<Stored>| tail.map_or(0, |stored| stored.seq);
    let (tail, snapshot) = tokio::join!(log.tail(session), snapshot_of(mesh, session));
    let (tail_seq, snapshot) = (seq(tail?), snapshot?);
    if snapshot
        .as_ref()
        .is_some_and(|found| found.mark.seq > tail_seq)
    {
        // An owner may have moved between the two readings. A log that is shorter than its snapshot still is when it is read
        // after it.
        return Ok((seq(log.tail(session).await?), snapshot));
    }
    Ok((tail_seq, snapshot))
}

/// A known state and what came after it.
async fn extend(mesh: &Mesh, state: State, tail: Option<&Stored>) -> Result<State, Error> {
    let tail_seq = tail.map_or(0, |stored| stored.seq);
    if tail_seq < state.seq {
        return Err(lacks(&Witness::of(&state), tail_seq));
    }
    if let Some(tail) = tail
        && tail.seq == state.seq
    {
        return if Digest::of(&tail.body) == state.hash {
            Ok(state)
        } else {
            Err(replaced(state.n))
        };
    }
    let after = state.seq;
    fold_from(mesh, state, after, tail_seq).await
}

async fn fold_from(mesh: &Mesh, state: State, after: u64, upto: u64) -> Result<State, Error> {
    let session = state.session.clone();
    let mut fold = Fold::new(state);
    if after < upto {
        for stored in mesh.log().read(&session, after, upto).await? {
            fold.take(&stored.body, stored.seq);
        }
    }
    Ok(fold.finish()?)
}

async fn begin(
    mesh: &Mesh,
    session: &SessionId,
    snapshot: Option<&Snapshot>,
    tail_seq: u64,
) -> Result<State, Error> {
    let Some(Snapshot { mark, state }) = snapshot else {
        return fold_from(mesh, State::new(session.clone()), 0, tail_seq).await;
    };
    let witness = Witness::from(mark);
    if mark.seq > tail_seq {
        return Err(lacks(&witness, tail_seq));
    }
    let folded = state.as_ref().and_then(|bytes| read_snapshot(bytes, mark));
    let Some(folded) = folded else {
        return begin_behind(mesh, session, mark, None, tail_seq).await;
    };
    match begin_behind(mesh, session, mark, Some(folded), tail_seq).await {
        // The loss may have been accepted of what the snapshot holds: by another process, or before an owner had written it.
        Err(Error::Damaged(why)) => match begin_behind(mesh, session, mark, None, tail_seq).await {
            Err(Error::Damaged(_)) => Err(Error::Damaged(why)),
            begun => begun,
        },
        begun => begun,
    }
}

/// Folds behind what a snapshot holds, or everything; its commit must be there either way.
async fn begin_behind(
    mesh: &Mesh,
    session: &SessionId,
    mark: &Mark,
    folded: Option<State>,
    tail_seq: u64,
) -> Result<State, Error> {
    let after = if folded.is_some() {
        mark.seq.saturating_sub(1)
    } else {
        0
    };
    let is_folded = folded.is_some();
    let mut fold = Fold::new(folded.unwrap_or_else(|| State::new(session.clone())));
    let mut is_witnessed = false;
    for stored in mesh.log().read(session, after, tail_seq).await? {
        if stored.seq == mark.seq {
            if Digest::of(&stored.body) != mark.hash {
                return Err(replaced(mark.n));
            }
            is_witnessed = true;
            if is_folded {
                continue;
            }
        }
        fold.take(&stored.body, stored.seq);
    }
    let state = fold.finish()?;
    let witness = Witness::from(mark);
    if is_witnessed || witness.is_overruled(&state) {
        Ok(state)
    } else {
        Err(lacks(&witness, tail_seq))
    }
}

/// Whether the log holds what a witness saw.
async fn check(
    mesh: &Mesh,
    session: &SessionId,
    witness: &Witness,
    tail_seq: u64,
) -> Result<(), Error> {
    if witness.seq > tail_seq {
        return Err(lacks(witness, tail_seq));
    }
    match mesh.log().at(session, witness.seq).await? {
        Some(stored) if Digest::of(&stored.body) == witness.hash => Ok(()),
        Some(_) => Err(replaced(witness.n)),
        None => Err(lacks(witness, tail_seq)),
    }
}

/// The log does not hold what a witness saw.
fn lacks(witness: &Witness, tail_seq: u64) -> Error {
    Error::Damaged(witness.words(tail_seq))
}

fn replaced(n: u64) -> Error {
    Error::Damaged(witness::replaced(n))
}

/// What an examination found.
pub(super) struct Examined {
    /// What is wrong, and what can be taken over; `None`: nothing is wrong.
    pub(super) damage: Option<Damage>,
    /// What the log holds.
    pub(super) survey: Survey,
}

/// A session's whole log, read past every snapshot and past what the server cannot read: what is wrong with it, and what the next
/// commit must follow.
pub(super) async fn examine(
    mesh: &Mesh,
    witnesses: &Witnesses,
    session: &SessionId,
    known: Option<&State>,
) -> Result<Examined, Error> {
    let head = witness::head(mesh, session).await;
    let log = mesh.log();
    let (survey, snapshot) = tokio::join!(log.survey(session), snapshot_of(mesh, session));
    let (survey, snapshot) = (survey?, snapshot?);
    let mut seen: Vec<Witness> = Vec::new();
    seen.extend(head);
    seen.extend(snapshot.as_ref().map(|one| Witness::from(&one.mark)));
    seen.extend(known.map(Witness::of));
    seen.extend(witnesses.of(session));
    let mut fold = Fold::new(State::new(session.clone()));
    for stored in &survey.commits {
        fold.take(&stored.body, stored.seq);
    }
    let n_max = seen.iter().map(|witness| witness.n).max().unwrap_or(0);
    let mut damage = match fold.finish() {
        Err(mut damage) => {
            damage.n_max = damage.n_max.max(n_max);
            Some(*damage)
        }
        Ok(state) => {
            let end = survey
                .is_end_unreadable
                .then(|| unreadable_end(&survey, &state));
            let other = witness::missing(&seen, &pieces(&survey), &state);
            // Numbers that were used behind the end are known to nobody: each message may have been one.
            let unread = if survey.is_end_unreadable {
                survey.unreadable
            } else {
                0
            };
            end.or(other)
                .map(|why| Damage::of(state.clone(), n_max.max(state.n + unread), why))
        }
    };
    if let Some(damage) = &mut damage {
        let state = snapshot
            .as_ref()
            .and_then(|snapshot| trusted(snapshot, &survey));
        damage.salvage = salvage(damage, state.as_ref(), &survey);
    }
    Ok(Examined { damage, survey })
}

/// The snapshot. One that is none is one less: the log is read from its beginning.
async fn snapshot_of(
    mesh: &Mesh,
    session: &SessionId,
) -> Result<Option<Snapshot>, teamster_mesh::Error> {
    match mesh.snaps().get(session).await {
        Err(error @ teamster_mesh::Error::Malformed { .. }) => {
            tracing::warn!(%session, error = %teamster_telemetry::chain(&error), "a snapshot cannot be used");
            Ok(None)
        }
        snapshot => snapshot,
    }
}

fn unreadable_end(survey: &Survey, state: &State) -> String {
    format!(
        "it cannot be read behind commit {} (sequence {}): the server holds {} messages of it and cannot hand out {}",
        state.n,
        survey.last,
        survey.stored,
        survey.unreadable.max(1)
    )
}

/// The state of a snapshot whose commit lies in the log as it says, or cannot be read there.
fn trusted(snapshot: &Snapshot, survey: &Survey) -> Option<State> {
    let mark = &snapshot.mark;
    let at = survey.commits.iter().find(|stored| stored.seq == mark.seq);
    let is_other = match at {
        Some(stored) => Digest::of(&stored.body) != mark.hash,
        // Behind a log that ends before it lies what another history may have held.
        None => survey.unreadable == 0,
    };
    let bytes = snapshot.state.as_ref().filter(|_| !is_other)?;
    read_snapshot(bytes, mark)
}

fn salvage(damage: &Damage, snapshot: Option<&State>, survey: &Survey) -> Salvage {
    let kept = &damage.state;
    let behind: Vec<Commit> = survey
        .commits
        .iter()
        .filter(|stored| stored.seq > kept.seq)
        .filter_map(|stored| Commit::decode(&stored.body).ok())
        .filter(|commit| commit.session == kept.session)
        .collect();
    let mut salvage = Salvage::of(kept, snapshot, &behind, survey.unreadable > 0);
    let reached = snapshot.map(|state| state.n);
    salvage.bound(kept.n, reached, &behind, damage.n_max);
    salvage.loss.unreadable = survey.unreadable;
    salvage
}

/// A snapshot of another version of the fold is worth nothing; the log is folded anew.
fn read_snapshot(bytes: &[u8], mark: &Mark) -> Option<State> {
    let (version, state): (u32, State) = serde_json::from_slice(bytes).ok()?;
    let is_of_mark = state.n == mark.n && state.seq == mark.seq && state.hash == mark.hash;
    (version == FOLD_VERSION && is_of_mark).then_some(state)
}

/// The body of a snapshot.
pub(super) fn write_snapshot(state: &State) -> Option<Vec<u8>> {
    serde_json::to_vec(&(FOLD_VERSION, state)).ok()
}
