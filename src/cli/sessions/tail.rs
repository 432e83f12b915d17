//! `sessions tail`: a session's events as they come, with what is being said in between.

use std::time::Duration;

use serde_json::json;
use teamster_core::display;
use teamster_protocol::{Commit, Event, Phase, SessionId, text};
use tokio::signal::unix::{SignalKind, signal};

use super::{Tail, event_line, transcript::event_row};
use crate::{
    cli::{
        exit::Exit,
        failure::Failure,
        output::{Closed, Format, Output},
    },
    client::{
        Client, Item,
        session::{Happening, Session},
        stream::{Piece, Stream},
    },
};

/// How long nothing may come before what stands in the log counts as all of it.
const SETTLED: Duration = Duration::from_millis(700);

struct Tailer<'a> {
    out: &'a Output,
    id: SessionId,
    session: Session,
    stream: Stream,
    after: u64,
    is_in_text: bool,
    /// What `--json` prints as one document at the end.
    gathered: Vec<serde_json::Value>,
}

pub(super) async fn run(out: &Output, client: &Client, options: &Tail) -> Result<Exit, Failure> {
    if options.follow && out.format == Format::Json {
        return Err(Failure::usage(
            "cli.usage",
            "--follow has no end, so it cannot be one document",
        )
        .hint("use --jsonl"));
    }
    let commits = client.commits(&options.session).await?;
    let last = commits.last().map_or(0, |(seq, _)| *seq);
    let mut tailer = Tailer {
        out,
        id: options.session.clone(),
        session: Session::default(),
        stream: Stream::default(),
        after: options.after.unwrap_or_else(|| before_last_turn(&commits)),
        is_in_text: false,
        gathered: Vec::new(),
    };
    let mut phase = Phase::Idle;
    for (seq, commit) in &commits {
        tailer.commit(*seq, commit)?;
        phase = commit.head.phase;
    }
    let newest = commits.last().map_or(0, |(_, commit)| commit.n);
    if let Some(after) = options.after.filter(|after| *after > newest) {
        let session = display::terminal(options.session.as_str());
        out.note(&format!(
            "the log of {session} ends at commit {newest}: nothing stands behind {after} yet"
        ));
    }
    let mut watch = client.watch(&options.session, last);
    let mut interrupts = signal(SignalKind::interrupt()).map_err(|error| {
        Failure::new(
            Exit::Failed,
            "cli.signal",
            format_args!("cannot wait for signals: {error}"),
        )
    })?;
    loop {
        let ends = !options.follow && phase != Phase::Active;
        let settled = async {
            if ends {
                tokio::time::sleep(SETTLED).await;
            } else {
                std::future::pending::<()>().await;
            }
        };
        let item = tokio::select! {
            biased;
            _ = interrupts.recv() => return Ok(Exit::Interrupted),
            item = watch.next() => item?,
            () = settled => break,
        };
        match item {
            Item::Commit { seq, commit } => {
                tailer.commit(seq, &commit)?;
                phase = commit.head.phase;
            }
            Item::Delta(delta) => {
                if let Some(piece) = tailer.stream.delta(&delta) {
                    tailer.pieces(&[piece])?;
                }
            }
            Item::Damaged(error) if options.follow => {
                let session = display::terminal(&text::operand(options.session.as_str()));
                out.note(&format!(
                    "{}; what comes is shown when an operator has accepted the loss: teamster sessions accept-loss --yes \
                     {session}",
                    Failure::from(*error)
                ));
            }
            Item::Damaged(error) => return Err((*error).into()),
            Item::Interrupted => out.note("the mesh does not answer; still trying"),
        }
    }
    if out.format == Format::Json {
        let status = super::standing::of(client, &tailer.session).await?.word;
        out.document(
            &json!({ "v": 1, "session": tailer.id, "status": status, "events": tailer.gathered }),
        )?;
    }
    Ok(tailer.end())
}

/// The number of the commit before the one that began the last turn.
fn before_last_turn(commits: &[(u64, Commit)]) -> u64 {
    commits
        .iter()
        .rev()
        .find(|(_, commit)| {
            commit
                .events
                .iter()
                .any(|event| matches!(event, Event::TurnStarted { .. }))
        })
        .map_or(0, |(_, commit)| commit.n.saturating_sub(1))
}

impl Tailer<'_> {
    fn commit(&mut self, seq: u64, commit: &Commit) -> Result<(), Closed> {
        self.session.open(commit);
        for event in &commit.events {
            let happening = self.session.event(&self.id, commit.at_ms, event);
            if commit.n <= self.after {
                continue;
            }
            let pieces = match &happening {
                Some(Happening::Generating(request)) => self.stream.started(request),
                Some(Happening::Said { request, text }) => {
                    self.break_text()?;
                    drop(self.stream.said(request, text));
                    Vec::new()
                }
                _ => Vec::new(),
            };
            match self.out.format {
                Format::Json => self.gathered.push(event_line(seq, commit, event)),
                Format::JsonLines => self.out.document(&event_line(seq, commit, event))?,
                Format::Text => {
                    self.break_text()?;
                    let line = event_row(commit, event);
                    self.out.line(&line)?;
                }
            }
            self.pieces(&pieces)?;
        }
        Ok(())
    }

    fn pieces(&mut self, pieces: &[Piece]) -> Result<(), Closed> {
        for piece in pieces {
            let Piece::Text(text) = piece else { continue };
            match self.out.format {
                Format::JsonLines => self
                    .out
                    .document(&json!({ "type": "delta", "text": text }))?,
                Format::Text if self.out.is_live() => {
                    self.is_in_text = !text.ends_with('\n');
                    self.out.text(&display::terminal(text))?;
                }
                Format::Text | Format::Json => {}
            }
        }
        Ok(())
    }

    fn break_text(&mut self) -> Result<(), Closed> {
        if std::mem::take(&mut self.is_in_text) {
            self.out.text("\n")?;
        }
        Ok(())
    }

    /// The code of the last turn's end, or that it waits.
    fn end(&self) -> Exit {
        match &self.session.turn {
            Some(turn) if !turn.pending.is_empty() => {
                for approval in turn.pending.keys() {
                    let approval = text::operand(approval.as_str());
                    self.out.note(&format!(
                        "waits for a decision: teamster approvals approve {approval} (or deny)"
                    ));
                }
                Exit::Waiting
            }
            Some(turn) => turn
                .end
                .as_ref()
                .map_or(Exit::Completed, |reason| Exit::of_end(reason, turn.trouble)),
            None => Exit::Completed,
        }
    }
}
