//! `sessions show`: one session's state and transcript.

use std::fmt::Write as _;

use serde_json::{Value, json};
use teamster_core::{display, turn::admin::is_tombstone};
use teamster_protocol::{
    CallId, Commit, Event, FunctionId, SessionId,
    event::EndReason,
    message::{Content, Message},
    text,
    usage::NanoUsd,
};

use super::{
    Show,
    buried::{buried, buried_document, tombstone},
    standing::{self, Standing},
    words::{end_words, event_words},
};
use crate::{
    cli::{
        exit::Exit,
        failure::Failure,
        output::{Format, Output},
        show,
        status::{counted, grouped, money},
    },
    client::{Client, History, session::Session},
};

/// An entry of a transcript.
enum Entry {
    Message(Message),
    Result {
        call: CallId,
        /// What it meant, if that could be said.
        function: Option<FunctionId>,
        outcome: String,
        text: String,
    },
    End(EndReason),
}

pub(super) async fn run(out: &Output, client: &Client, options: &Show) -> Result<Exit, Failure> {
    let id = &options.session;
    // What waits is counted first: a message that is taken in between shows twice rather than nowhere.
    let queued = client.queued(id).await?;
    let History { commits, damage } = client.history(id).await?;
    let mut session = Session::default();
    let mut entries: Vec<Entry> = Vec::new();
    for (_, commit) in &commits {
        session.open(commit);
        for event in &commit.events {
            session.event(id, commit.at_ms, event);
            entries.extend(entry(&session, event));
        }
        // How a session ended that had the name before is not of this one.
        if is_tombstone(commit) {
            entries.clear();
        }
    }
    let inherited = client.inherited(&commits).await;
    entries.splice(0..0, inherited.into_iter().map(of_message));
    let standing = match &damage {
        Some(why) => {
            out.note(&damaged(id, why));
            Standing::DAMAGED
        }
        None => standing::of(client, &session).await?,
    };
    if options.events || out.format == Format::JsonLines {
        return events(out, standing, &commits, options);
    }
    if let Some(tombstone) = tombstone(&commits) {
        if out.is_text() {
            out.text(&buried(id, &tombstone, queued))?;
        } else {
            out.document(&buried_document(id, &tombstone, queued))?;
        }
        return Ok(Exit::Completed);
    }
    let shown = last(&entries, options.last);
    if out.is_text() {
        out.text(&header(id, &session, standing, queued))?;
        for entry in shown {
            out.text(&words(entry))?;
        }
    } else {
        let mut document = document(id, &session, standing, queued, shown);
        if let (Some(why), Some(object)) = (&damage, document.as_object_mut()) {
            object.insert("damage".to_owned(), json!(why));
        }
        out.document(&document)?;
    }
    Ok(Exit::Completed)
}

/// What is to be said of a damaged log, and what to do.
fn damaged(id: &SessionId, why: &str) -> String {
    let session = text::operand(id.as_str());
    format!(
        "the log of {} is damaged: {}. What can be read is shown. {}: teamster sessions accept-loss {session} (says how much that \
         gives up, and does it with --yes)",
        display::terminal(id.as_str()),
        display::terminal(why),
        "Restore the broker's data from a copy, or go on without the rest",
    )
}

/// The last ones of a list, or all.
fn last<T>(all: &[T], wanted: Option<usize>) -> &[T] {
    let skipped = wanted.map_or(0, |wanted| all.len().saturating_sub(wanted));
    all.get(skipped..).unwrap_or_default()
}

/// The session's events, as `tail` shows them.
fn events(
    out: &Output,
    standing: Standing,
    commits: &[(u64, Commit)],
    options: &Show,
) -> Result<Exit, Failure> {
    let all: Vec<(u64, &Commit, &Event)> = commits
        .iter()
        .flat_map(|(seq, commit)| commit.events.iter().map(move |event| (*seq, commit, event)))
        .collect();
    let shown = last(&all, options.last);
    let line =
        |(seq, commit, event): &(u64, &Commit, &Event)| super::event_line(*seq, commit, event);
    match out.format {
        Format::Json => {
            let events: Vec<Value> = shown.iter().map(line).collect();
            out.document(&json!({
                "v": 1, "session": options.session, "status": standing.word, "events": events,
            }))?;
        }
        Format::JsonLines => {
            for one in shown {
                out.document(&line(one))?;
            }
        }
        Format::Text => {
            for (_, commit, event) in shown {
                out.line(&event_row(commit, event))?;
            }
        }
    }
    Ok(Exit::Completed)
}

/// An event as a line for people: when, in which commit, what.
pub(super) fn event_row(commit: &Commit, event: &Event) -> String {
    format!(
        "{} {:>4}  {}",
        show::moment(commit.at_ms),
        commit.n,
        event_words(event)
    )
}

/// A message that was taken over, as an entry.
fn of_message(message: Message) -> Entry {
    match message {
        Message::FunctionResult {
            call,
            function,
            text,
            outcome,
        } => Entry::Result {
            call,
            function,
            outcome: show::word(&outcome),
            text,
        },
        message => Entry::Message(message),
    }
}

fn entry(session: &Session, event: &Event) -> Option<Entry> {
    match event {
        Event::MessageAdded { message, .. } => Some(of_message(message.clone())),
        Event::GenerationFinished {
            message: Some(message),
            ..
        }
        | Event::GenerationInterrupted {
            partial: Some(message),
            ..
        } => Some(Entry::Message(message.clone())),
        Event::CallFinished {
            call,
            outcome,
            text,
            ..
        }
        | Event::CallRefused {
            call,
            outcome,
            text,
            ..
        } => Some(Entry::Result {
            call: call.clone(),
            function: session.function_of(call).cloned(),
            outcome: show::word(outcome),
            text: text.clone(),
        }),
        Event::TurnEnded { reason, .. } => Some(Entry::End(reason.clone())),
        _ => None,
    }
}

fn header(id: &SessionId, session: &Session, standing: Standing, queued: u64) -> String {
    let cost = money(session.cost, session.cost_is_partial);
    let cost = cost.unwrap_or_else(|| "nothing so far".to_owned());
    let mut text = format!(
        "session    {}\nstatus     {}\nworkspace  {}\nbegan      {}\nused       {}\nturns      {} in {} commits\ntokens     {}\ncost       {cost}\n",
        display::terminal(id.as_str()),
        standing.words(),
        display::terminal(session.workspace.as_deref().unwrap_or("-")),
        show::moment_or_none(session.created_at_ms),
        show::moment_or_none(session.updated_at_ms),
        session.turns,
        session.commits,
        grouped(session.usage.total()),
    );
    if queued > 0 {
        let _ = writeln!(
            text,
            "queued     {} accepted, not yet taken up",
            counted(queued, "message")
        );
    }
    if let Some(turn) = &session.turn {
        for approval in turn.pending.keys() {
            let approval = text::operand(approval.as_str());
            let _ = writeln!(
                text,
                "waits for  {approval} (teamster approvals show {approval})"
            );
        }
    }
    text
}

fn words(entry: &Entry) -> String {
    match entry {
        Entry::Message(Message::Assistant {
            content, partial, ..
        }) => {
            let mut text = String::from("\nassistant:\n");
            for part in content {
                match part {
                    Content::Text { text: said } => {
                        text.push_str(&display::terminal(said));
                        text.push('\n');
                    }
                    Content::Thinking { .. } => {}
                    Content::Call(call) => {
                        let (name, arguments) = (
                            display::terminal(&call.name),
                            display::ascii(&call.arguments),
                        );
                        let _ = writeln!(text, "  -> {name} {arguments}");
                    }
                }
            }
            if *partial {
                text.push_str("  (cut off)\n");
            }
            text
        }
        Entry::Message(message) => {
            let who = match message {
                Message::User { from, .. } => from.to_string(),
                _ => "notice".to_owned(),
            };
            format!(
                "\n{who}:\n{}\n",
                display::terminal(&crate::client::session::visible(message))
            )
        }
        Entry::Result {
            call,
            function,
            outcome,
            text,
        } => {
            let shown = teamster_protocol::text::cut(text, 2000);
            let name = function
                .as_ref()
                .map_or_else(|| call.to_string(), ToString::to_string);
            let mut text = format!("  <- {name}: {outcome}\n");
            for line in display::terminal(&shown).lines() {
                let _ = writeln!(text, "     {line}");
            }
            text
        }
        Entry::End(reason) => format!("\n-- turn ended: {} --\n", end_words(reason)),
    }
}

fn document(
    id: &SessionId,
    session: &Session,
    standing: Standing,
    queued: u64,
    entries: &[Entry],
) -> Value {
    let transcript: Vec<Value> = entries
        .iter()
        .map(|entry| match entry {
            Entry::Message(message) => serde_json::to_value(message).unwrap_or_default(),
            Entry::Result {
                call,
                function,
                outcome,
                text,
            } => json!({ "role": "function_result", "call": call, "function": function, "outcome": outcome, "text": text }),
            Entry::End(reason) => json!({ "role": "end", "reason": reason }),
        })
        .collect();
    let pending: Vec<_> = session
        .turn
        .iter()
        .flat_map(|turn| turn.pending.keys())
        .collect();
    json!({
        "v": 1,
        "session": id,
        "status": standing.word,
        "title": session.title,
        "workspace": session.workspace,
        "commits": session.commits,
        "turns": session.turns,
        "queued": queued,
        "created_at_ms": session.created_at_ms,
        "updated_at_ms": session.updated_at_ms,
        "usage": session.usage,
        "cost_usd": session.cost.filter(|_| !session.cost_is_partial).map(NanoUsd::as_usd),
        "approvals": pending,
        "transcript": transcript,
    })
}
