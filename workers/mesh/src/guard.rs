//! A look at what a message is about to replace.
//!
//! In a stream that keeps so many messages of a subject, storing one removes the oldest. The server (2.15.1 at least) does not get over
//! an oldest one whose stored bytes are damaged: it holds the lock of the whole stream and tries for ever, or takes no message of
//! any subject any more. So nothing is stored over what cannot be read: one damaged snapshot, head or value must not stop those of all
//! others.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use crate::wire::{Failure, Get, Wire};

/// Subjects that are remembered as looked at.
const KNOWN_MAX: usize = 4096;

/// The subjects that one connection has looked at since it was last lost: stored bytes come to harm while the server is down.
#[derive(Default)]
pub(crate) struct Looked(Mutex<(u64, BTreeSet<String>)>);

impl Looked {
    fn knows(&self, losses: u64, subject: &str) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.0 == losses && known.1.contains(subject)
    }

    fn note(&self, losses: u64, subject: &str) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.0 != losses || known.1.len() >= KNOWN_MAX {
            *known = (losses, BTreeSet::new());
        }
        known.1.insert(subject.to_owned());
    }
}

/// The same as [`replaceable`], once a subject and life of the connection: for what is stored again and again.
pub(crate) async fn replaceable_once(
    wire: &Wire,
    stream: &str,
    subject: &str,
) -> Result<(), Failure> {
    let losses = wire.link.borrow().losses;
    if wire.looked.knows(losses, subject) {
        return Ok(());
    }
    replaceable(wire, stream, subject).await?;
    wire.looked.note(losses, subject);
    Ok(())
}

/// [`Failure::Unreadable`] where the server holds a message of the subject that it cannot read.
pub(crate) async fn replaceable(wire: &Wire, stream: &str, subject: &str) -> Result<(), Failure> {
    // Others may store and remove meanwhile: only what is missing twice is missing.
    match missing(wire, stream, subject).await? {
        (_, 0) => Ok(()),
        _ => match missing(wire, stream, subject).await? {
            (_, 0) => Ok(()),
            (stored, _) => Err(Failure::Unreadable { stored }),
        },
    }
}

/// How many messages of a subject the server holds, and how many of them it cannot hand out.
pub(crate) async fn missing(
    wire: &Wire,
    stream: &str,
    subject: &str,
) -> Result<(u64, u64), Failure> {
    let count = async || {
        let counts = wire.subjects(stream, subject, 1).await?;
        Ok::<u64, Failure>(counts.values().sum())
    };
    let before = count().await?;
    if before == 0 {
        return Ok((0, 0));
    }
    let (mut readable, mut from) = (0_u64, 1);
    loop {
        let get = Get {
            seq: Some(from),
            next_by_subj: Some(subject),
            ..Get::default()
        };
        let Some(message) = wire.get(stream, &get).await? else {
            break;
        };
        readable += 1;
        from = message.seq.saturating_add(1);
    }
    let stored = before.min(count().await?);
    Ok((stored, stored.saturating_sub(readable)))
}
