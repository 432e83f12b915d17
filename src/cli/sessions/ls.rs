//! `sessions ls`: one line a session, from the projection.

use std::collections::BTreeMap;

use clap::Args;
use serde_json::{Value, json};
use teamster_core::display;
use teamster_protocol::{
    function::session::{ListReply, ListRequest, SessionInfo},
    limits, text,
    usage::NanoUsd,
};

use super::standing::{self, INTERRUPTED, RUNNING};
use crate::{
    cli::{
        exit::Exit,
        failure::Failure,
        output::{Format, Output},
        show,
        status::{counted, grouped},
    },
    client::Client,
};

/// Bytes of a title or of what was said last in a line.
const NAME_BYTES_MAX: usize = 80;

/// All sessions, the last used first.
#[derive(Debug, Args)]
pub(in crate::cli) struct Ls {
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    /// Only those that are so now
    #[arg(long, value_name = "STATUS", value_parser = ["idle", "running", "interrupted", "awaiting_approval", "damaged"])]
    status: Option<String>,
    /// Only those whose metadata says so; repeat for more
    #[arg(long, value_name = "KEY=VALUE", value_parser = super::meta::pair)]
    meta: Vec<(String, String)>,
    /// Go on behind an earlier list: its `next`
    #[arg(long, value_name = "PLACE")]
    after: Option<String>,
}

pub(super) async fn run(out: &Output, client: &Client, options: Ls) -> Result<Exit, Failure> {
    let listed = list(client, &options).await?;
    match out.format {
        Format::Json => {
            let rows: Vec<Value> = listed.sessions.iter().map(row).collect();
            out.document(&json!({ "v": 1, "sessions": rows, "next": listed.next }))?;
        }
        Format::JsonLines => {
            for session in &listed.sessions {
                out.document(&row(session))?;
            }
        }
        Format::Text => {
            for session in &listed.sessions {
                out.line(&line(session))?;
            }
            remarks(out, &listed, &options);
        }
    }
    Ok(Exit::Completed)
}

/// Asks until there are as many as wanted, or no more.
async fn list(client: &Client, options: &Ls) -> Result<ListReply, Failure> {
    let metadata: BTreeMap<String, String> = options.meta.iter().cloned().collect();
    let mut listed = ListReply {
        sessions: Vec::new(),
        next: options.after.clone(),
    };
    loop {
        let wanted = usize::try_from(options.limit).unwrap_or(usize::MAX);
        let left = u32::try_from(wanted.saturating_sub(listed.sessions.len()))
            .unwrap_or(limits::SESSIONS_LISTED_MAX);
        let request = ListRequest {
            status: options.status.as_deref().map(in_the_log),
            metadata: metadata.clone(),
            limit: Some(left.min(limits::SESSIONS_LISTED_MAX)),
            after: listed.next.take(),
        };
        let mut reply = client.sessions(&request).await?;
        let is_empty = reply.sessions.is_empty();
        standing::correct(client, &mut reply.sessions).await?;
        reply.sessions.retain(|session| {
            let wanted = options.status.as_deref();
            wanted.is_none_or(|wanted| session.status == wanted)
        });
        listed.sessions.extend(reply.sessions);
        listed.next = reply.next;
        if listed.next.is_none() || is_empty || listed.sessions.len() >= wanted {
            return Ok(listed);
        }
    }
}

/// The status as logs tell it: they do not know which processes live.
fn in_the_log(status: &str) -> String {
    match status {
        INTERRUPTED => RUNNING.to_owned(),
        other => other.to_owned(),
    }
}

/// What there is to say beside the list.
fn remarks(out: &Output, listed: &ListReply, options: &Ls) {
    if let Some(next) = &listed.next {
        out.note(&format!(
            "there are more: --limit, or --after {}",
            display::terminal(next)
        ));
    }
    if let Some(damaged) = listed
        .sessions
        .iter()
        .find(|session| session.status == "damaged")
    {
        out.note(&format!(
            "the log of {} is damaged: restore the broker's data from a copy, or go on without what is missing: \
             teamster sessions accept-loss ID --yes",
            display::terminal(damaged.session_id.as_str())
        ));
    }
    let is_filtered =
        options.status.is_some() || !options.meta.is_empty() || options.after.is_some();
    if listed.sessions.is_empty() && is_filtered {
        out.note("no session is so");
    } else if listed.sessions.is_empty() {
        out.note("there is no session yet: teamster run \"what is in this directory?\"");
    }
}

/// A session as a line.
pub(in crate::cli) fn line(session: &SessionInfo) -> String {
    let name = session.title.as_ref().or(session.preview.as_ref());
    let first = name
        .and_then(|name| name.lines().next())
        .unwrap_or_default();
    format!(
        "{}  {:<11} {:<20}  {:>9}  {:>9} tokens  {}",
        display::terminal(session.session_id.as_str()),
        short(&session.status),
        show::moment_or_none(session.updated_at_ms),
        counted(session.turns, "turn"),
        grouped(session.usage.total()),
        display::terminal(&shortened(first)),
    )
}

/// The beginning of a text, on one line of a list.
fn shortened(text: &str) -> String {
    let head = text::head(text, NAME_BYTES_MAX);
    if head.len() == text.len() {
        text.to_owned()
    } else {
        format!("{head}…")
    }
}

/// A status that fits into a column.
fn short(status: &str) -> String {
    match status {
        "awaiting_approval" => "waiting".to_owned(),
        other => display::terminal(other),
    }
}

fn row(session: &SessionInfo) -> Value {
    let mut row = serde_json::to_value(session).unwrap_or_default();
    if let Some(object) = row.as_object_mut() {
        // The names that every document of the command line has.
        object.insert("session".to_owned(), json!(session.session_id));
        object.insert(
            "cost_usd".to_owned(),
            json!((!session.cost_is_partial).then(|| NanoUsd::as_usd(session.cost))),
        );
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    /// DUR-7: of a session of which nothing can be read no date is made up.
    #[test]
    fn dur_7_a_session_without_a_known_date_shows_none() {
        let session: SessionInfo = serde_json::from_value(json!({
            "session_id": "s", "status": "damaged", "created_at_ms": 0, "updated_at_ms": 0, "commits": 0, "turns": 0,
            "messages": 0, "approvals": 0, "usage": {}, "cost": 0, "cost_is_partial": false,
        }))
        .expect("a session");
        let line = line(&session);
        assert!(line.starts_with("s  damaged     -      "), "{line}");
        assert!(!line.contains("1970"), "{line}");
    }

    /// UNI-1: a title of any script is cut between characters.
    #[test]
    fn uni_1_a_title_of_pictures_is_cut_between_characters() {
        assert_eq!(shortened("short"), "short");
        for text in [
            "😀".repeat(40),
            "中".repeat(60),
            format!("a{}", "é".repeat(80)),
        ] {
            let shown = shortened(&text);
            assert!(
                shown.ends_with('…') && shown.len() <= NAME_BYTES_MAX + '…'.len_utf8(),
                "{shown}"
            );
            assert!(text.starts_with(shown.trim_end_matches('…')));
        }
    }
}
