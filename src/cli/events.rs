//! `teamster events`: what happened in all sessions, by sequence, for whoever was away.

use std::collections::{HashSet, VecDeque};

use clap::Args;
use serde_json::{Value, json};
use teamster_core::display;
use teamster_mesh::notice::{Hole, Reading, Told, Wanted, Window};
use teamster_protocol::{
    SessionId,
    notice::{Notice, NoticeId, NoticeKind},
};
use tokio::signal::unix::{SignalKind, signal};

use super::{
    Global,
    exit::Exit,
    failure::Failure,
    output::{Closed, Format, Output},
    reach::{self, Absent},
    sessions::event_words,
    show,
};

/// Notices whose repetition is recognised.
const REMEMBERED_MAX: usize = 10_000;
/// Notices of one document.
const GATHERED_MAX: usize = 10_000;

/// Show what happened in all sessions, by sequence, and on as it happens.
///
/// Each line begins with its sequence: `--after SEQ` goes on behind it, so that whoever was away gets each event once. What
/// is older than a week is not kept here; where something is missing, `resync` says so, and `sessions tail` shows the whole. A
/// SEQ beyond the end is of events that began anew: `resync` says it, and all that are kept follow. What is kept and cannot be
/// read is named as `unreadable`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Only this session's
    #[arg(long, value_name = "ID")]
    session: Option<SessionId>,
    /// Only of this kind; repeat for more
    #[arg(long, value_name = "KIND", value_parser = kind)]
    kind: Vec<NoticeKind>,
    /// Only what stands behind this sequence. Default: everything that is kept
    #[arg(long, value_name = "SEQ")]
    after: Option<u64>,
    /// Go on until interrupted
    #[arg(long, short)]
    follow: bool,
}

fn kind(text: &str) -> Result<NoticeKind, String> {
    NoticeKind::parse(text).ok_or_else(|| {
        let all: Vec<&str> = NoticeKind::ALL.iter().map(|kind| kind.as_str()).collect();
        format!("the kinds are {}", all.join(", "))
    })
}

pub(super) async fn run(global: &Global, out: &Output, options: Options) -> Result<Exit, Failure> {
    if options.follow && out.format == Format::Json {
        return Err(Failure::usage(
            "cli.usage",
            "--follow has no end, so it cannot be one document",
        )
        .hint("use --jsonl"));
    }
    let client = reach::client(global, out, Absent::Resume).await?;
    // Of a deleted session its tombstone is left. Who follows may wait for one that begins later.
    if let (Some(session), false) = (&options.session, options.follow)
        && client.mesh().log().tail(session).await?.is_none()
    {
        return Err(crate::client::Error::NoSession(session.to_string()).into());
    }
    let notices = client.mesh().notices();
    let window = notices.window().await?;
    let after = options.after.unwrap_or(0);
    let mut teller = Teller::new(out, after.min(window.last));
    teller.end = window.last;
    if options.after.is_some_and(|after| window.has_missed(after)) {
        teller.resync(after, window.first, end_before(window, after))?;
    }
    // Ahead of a stream that began anew there is nothing: everything that is kept comes after the resync.
    let begin = if after > window.last { 0 } else { after };
    let wanted = Wanted {
        session: options.session,
        kinds: options.kind,
    };
    // What cannot be read may be of any session and kind, so that only who reads all of them meets it on the way.
    if !wanted.is_all() {
        for hole in notices.holes(begin, window.last).await?.listed {
            teller.hole(hole, true)?;
        }
    }
    let mut reading = notices.follow(&wanted, begin).await?;
    let exit = read(&mut teller, &mut reading, options.follow).await?;
    if out.format == Format::Json {
        teller.document()?;
    }
    Ok(exit)
}

/// The end of the events, where it lies before the place that a consumer knows.
fn end_before(window: Window, after: u64) -> Option<u64> {
    (after > window.last).then_some(window.last)
}

async fn read(
    teller: &mut Teller<'_>,
    reading: &mut Reading,
    follows: bool,
) -> Result<Exit, Failure> {
    let mut interrupts = signal(SignalKind::interrupt()).map_err(|error| {
        Failure::new(
            Exit::Failed,
            "cli.signal",
            format_args!("cannot wait for signals: {error}"),
        )
    })?;
    loop {
        let told = tokio::select! {
            biased;
            _ = interrupts.recv() => return Ok(Exit::Interrupted),
            told = reading.next() => told,
        };
        match told {
            None => return Err(crate::client::Error::Closed.into()),
            Some(Told::Notice { seq, kind, notice }) => {
                teller.notice(seq, kind, &notice)?;
                if teller.is_full() {
                    return Ok(Exit::Completed);
                }
            }
            Some(Told::Unreadable { seq, message }) => teller.unreadable(seq, &message)?,
            Some(Told::Hole(hole)) => teller.hole(hole, false)?,
            // The first reading is compared with what is kept; later ones may find the stream made anew.
            Some(Told::Jumped { wanted, begun }) if teller.has_told => {
                let end = (begun < wanted).then(|| begun.saturating_sub(1));
                teller.resync(wanted.saturating_sub(1), begun, end)?;
            }
            Some(Told::CaughtUp) if !follows => return Ok(Exit::Completed),
            Some(Told::CaughtUp | Told::Jumped { .. }) => {}
            Some(Told::Interrupted(error)) if !follows => return Err(error.into()),
            Some(Told::Interrupted(_)) => teller.interrupted(),
        }
    }
}

/// Tells each event once.
struct Teller<'a> {
    out: &'a Output,
    known: HashSet<NoticeId>,
    order: VecDeque<NoticeId>,
    /// What `--json` prints as one document at the end.
    gathered: Vec<Value>,
    /// What could not be read, for the same document.
    unreadable: Vec<Value>,
    /// Whether something is missing that is not kept any more.
    has_missed: bool,
    /// The last sequence that was told.
    last: u64,
    /// The last sequence that there was at the beginning.
    end: u64,
    is_interrupted: bool,
    /// Whether something was told at all.
    has_told: bool,
}

impl<'a> Teller<'a> {
    fn new(out: &'a Output, after: u64) -> Self {
        Self {
            out,
            known: HashSet::new(),
            order: VecDeque::new(),
            gathered: Vec::new(),
            unreadable: Vec::new(),
            has_missed: false,
            last: after,
            end: after,
            is_interrupted: false,
            has_told: false,
        }
    }

    /// Whether one document holds as much as it may.
    fn is_full(&self) -> bool {
        self.gathered.len() >= GATHERED_MAX
    }

    /// What stood behind `after` is not there: too old, or, with `end`, beyond the end.
    fn resync(&mut self, after: u64, first: u64, end: Option<u64>) -> Result<(), Closed> {
        self.has_missed = true;
        if self.out.format == Format::JsonLines {
            let mut line = json!({ "type": "resync", "after": after, "first": first });
            if let (Some(end), Some(object)) = (end, line.as_object_mut()) {
                object.insert("end".to_owned(), end.into());
            }
            self.out.document(&line)?;
        }
        self.out.note(&match end {
            None => format!(
                "resync: what stood behind {after} is not kept any more; it goes on at {first}, and `teamster sessions show ID` \
                 tells how a session stands"
            ),
            Some(end) => format!(
                "resync: {after} lies beyond the end, which is {end} now: either the events began anew, so that all that are kept \
                 follow, or the number is a slip: `--after {end} --follow` shows what comes from now on"
            ),
        });
        Ok(())
    }

    /// Events that are stored and cannot be read; `is_any`: whether they are of what is asked for is not known.
    fn hole(&mut self, hole: Hole, is_any: bool) -> Result<(), Closed> {
        self.lost(json!({ "from": hole.from, "to": hole.to, "count": hole.count() }))?;
        let what = match hole.count() {
            1 => format!("the event {hole} is stored and cannot be read: its"),
            n => format!("the {n} events {hole} are stored and cannot be read: their"),
        };
        let whose = if is_any {
            "; of which session and kind is not known"
        } else {
            ""
        };
        self.out.note(&format!(
            "unreadable: {what} bytes are damaged{whose}. `teamster sessions show ID` tells how a session stands"
        ));
        Ok(())
    }

    /// An event of a form that this build does not read.
    fn unreadable(&mut self, seq: u64, message: &str) -> Result<(), Closed> {
        self.lost(json!({ "from": seq, "to": seq, "count": 1, "message": message }))?;
        self.out.note(&format!(
            "unreadable: the event {seq} cannot be read: {}",
            display::terminal(message)
        ));
        Ok(())
    }

    fn lost(&mut self, mut range: Value) -> Result<(), Closed> {
        match self.out.format {
            Format::Json if self.unreadable.len() < GATHERED_MAX => self.unreadable.push(range),
            Format::Json | Format::Text => {}
            Format::JsonLines => {
                if let Some(object) = range.as_object_mut() {
                    object.insert("type".to_owned(), "unreadable".into());
                }
                self.out.document(&range)?;
            }
        }
        Ok(())
    }

    /// Whether a notice is new; it is remembered from then on.
    fn is_new(&mut self, id: NoticeId) -> bool {
        if !self.known.insert(id.clone()) {
            return false;
        }
        self.order.push_back(id);
        if self.order.len() > REMEMBERED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        true
    }

    fn notice(&mut self, seq: u64, kind: NoticeKind, notice: &Notice) -> Result<(), Closed> {
        self.is_interrupted = false;
        self.has_told = true;
        self.last = seq;
        if !self.is_new(notice.id()) {
            return Ok(());
        }
        match self.out.format {
            Format::Json => self.gathered.push(document(seq, kind, notice)),
            Format::JsonLines => self.out.document(&document(seq, kind, notice))?,
            Format::Text => self.out.line(&format!(
                "{seq:>6}  {}  {:<17} {}  {}",
                show::moment(notice.at_ms),
                kind.as_str(),
                display::terminal(notice.session.as_str()),
                event_words(&notice.event),
            ))?,
        }
        Ok(())
    }

    fn interrupted(&mut self) {
        if !std::mem::replace(&mut self.is_interrupted, true) {
            self.out.note("the mesh does not answer; still trying");
        }
    }

    fn document(&self) -> Result<(), Closed> {
        self.out.document(&json!({
            "v": 1,
            "resync": self.has_missed,
            "last": self.last,
            "end": self.end.max(self.last),
            "unreadable": self.unreadable,
            "events": self.gathered,
        }))
    }
}

/// A notice with its sequence, its kind and its id.
fn document(seq: u64, kind: NoticeKind, notice: &Notice) -> Value {
    json!({
        "seq": seq,
        "kind": kind,
        "id": notice.id().to_string(),
        "session": notice.session,
        "n": notice.n,
        "i": notice.i,
        "at_ms": notice.at_ms,
        "event": notice.event,
    })
}

#[cfg(test)]
mod tests {
    use teamster_protocol::{Event, Principal};

    use super::*;

    fn notice(n: u64) -> Notice {
        Notice {
            session: SessionId::parse("s").expect("valid"),
            n,
            i: 0,
            at_ms: 1,
            event: Event::MetaChanged {
                by: Principal::parse("owner").expect("valid"),
                title: None,
                metadata: std::collections::BTreeMap::new(),
            },
        }
    }

    /// WEB-1: an event that stands there twice is told once, and the place to go on from is behind both.
    #[test]
    fn web_1_a_repeated_event_is_told_once() {
        let out = Output::new(Format::Json, true, true);
        let mut teller = Teller::new(&out, 3);
        for (seq, n) in [(4, 1), (5, 2), (6, 1), (7, 3), (8, 3)] {
            let told = teller.notice(seq, NoticeKind::SessionDeleted, &notice(n));
            told.expect("gathered");
        }
        let seqs: Vec<u64> = teller
            .gathered
            .iter()
            .filter_map(|one| one["seq"].as_u64())
            .collect();
        assert_eq!((seqs, teller.last), (vec![4, 5, 7], 8));
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        let out = Output::new(Format::Json, true, true);
        let mut teller = Teller::new(&out, 0);
        for n in 0..REMEMBERED_MAX as u64 + 5 {
            assert!(teller.is_new(notice(n).id()));
        }
        assert_eq!(
            (teller.known.len(), teller.order.len()),
            (REMEMBERED_MAX, REMEMBERED_MAX)
        );
    }

    #[test]
    fn kinds_are_named() {
        assert_eq!(kind("turn-completed"), Ok(NoticeKind::TurnCompleted));
        assert!(
            kind("turn")
                .expect_err("unknown")
                .contains("approval-pending")
        );
    }
}
