//! `teamster approvals`: see and decide what waits for a person.

mod damage;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;
use teamster_core::display;
use teamster_protocol::{
    ApprovalId, Arguments, Digest, SessionId,
    function::{
        approval::{GetReply, ResolveRequest},
        session::{ApprovalEntry, ApprovalsRequest},
    },
    input::Decision,
    text,
};

use super::{
    Global,
    ask::{self, Answer, Lines},
    exit::Exit,
    failure::Failure,
    output::{Format, Output},
    reach::{self, Absent},
    show,
};
use crate::client::Client;

/// See and decide what waits for a person.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// What waits, oldest first
    Ls(Ls),
    /// One request, whole, and what became of it
    Show(Show),
    /// Let a call run, exactly as shown, once
    Approve(Approve),
    /// Refuse a call
    Deny(Deny),
    /// What was decided, newest first
    History(History),
}

/// Reads an approval's id.
fn approval(text: &str) -> Result<ApprovalId, String> {
    ApprovalId::parse(text).map_err(|_| {
        "an approval's id is `apr_` and what follows it; `teamster approvals ls` lists what waits".to_owned()
    })
}

/// What waits, oldest first.
#[derive(Debug, Args)]
pub(super) struct Ls {
    /// Only this session's
    #[arg(long, value_name = "ID")]
    session: Option<SessionId>,
}

/// One request.
#[derive(Debug, Args)]
pub(super) struct Show {
    /// The request
    #[arg(value_name = "APPROVAL", value_parser = approval)]
    approval: ApprovalId,
}

/// Let a call run. Without --digest the whole call is shown and you are asked.
#[derive(Debug, Args)]
pub(super) struct Approve {
    /// The request
    #[arg(value_name = "APPROVAL", value_parser = approval)]
    approval: ApprovalId,
    /// SHA-256 of the argument bytes that you have seen; another call than that is not approved
    #[arg(long, value_name = "SHA256", value_parser = show::digest)]
    digest: Option<Digest>,
    /// Do not ask: approve what is shown now
    #[arg(long, conflicts_with = "digest")]
    yes: bool,
    /// Run the call with the arguments in this file instead; the policy judges them again
    #[arg(long, value_name = "FILE")]
    edit: Option<PathBuf>,
}

/// Refuse a call.
#[derive(Debug, Args)]
pub(super) struct Deny {
    /// The request
    #[arg(value_name = "APPROVAL", value_parser = approval)]
    approval: ApprovalId,
    /// Why; the model reads it
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// What was decided.
#[derive(Debug, Args)]
pub(super) struct History {
    /// Only this session's
    #[arg(long, value_name = "ID")]
    session: Option<SessionId>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500))]
    limit: u32,
}

pub(super) async fn run(global: &Global, out: &Output, command: Command) -> Result<Exit, Failure> {
    // A file that cannot be used is a wrong command line, whether or not a mesh runs.
    let edited = match &command {
        Command::Approve(Approve {
            edit: Some(path), ..
        }) => Some(read_arguments(path)?),
        _ => None,
    };
    let client = reach::client(global, out, Absent::Resume).await?;
    match command {
        Command::Ls(options) => list(out, &client, &options).await,
        Command::Show(options) => {
            let reply = damage::find(&client, &options.approval).await?;
            if out.is_text() {
                out.text(&show::get(&reply, show::now_ms()))?;
            } else {
                out.document(&show::versioned(&reply))?;
            }
            if let Err(failure) = damage::check(&client, &reply).await {
                out.note(&format!(
                    "warning: nobody takes up a decision now: {failure}"
                ));
            }
            Ok(Exit::Completed)
        }
        Command::Approve(options) => approve(out, &client, options, edited).await,
        Command::Deny(options) => {
            let reply = damage::find(&client, &options.approval).await?;
            damage::check(&client, &reply).await?;
            let decision = Decision::Deny {
                reason: options.reason,
            };
            resolve(out, &client, &reply, reply.request.digest, decision).await
        }
        Command::History(options) => history(out, &client, options).await,
    }
}

/// An empty list of a session that was never there would look like an answer. One whose log cannot be read is there.
async fn must_be(client: &Client, session: Option<&SessionId>) -> Result<(), Failure> {
    match session {
        Some(session) if matches!(client.mesh().log().tail(session).await, Ok(None)) => {
            Err(crate::client::Error::NoSession(session.to_string()).into())
        }
        _ => Ok(()),
    }
}

async fn list(out: &Output, client: &Client, options: &Ls) -> Result<Exit, Failure> {
    must_be(client, options.session.as_ref()).await?;
    // The form of `show` and of `history`: a request, and what became of it once something has.
    let session = options.session.as_ref();
    let reply = client.pending(session).await?;
    let damaged = damage::logs(client, session, reply.damaged).await;
    let pending: Vec<GetReply> = reply
        .pending
        .into_iter()
        .map(|request| GetReply {
            request,
            resolution: None,
        })
        .collect();
    match out.format {
        Format::Json => out.document(&json!({
            "v": 1, "pending": pending, "damaged": damaged,
        }))?,
        Format::JsonLines => {
            for one in &pending {
                out.document(one)?;
            }
        }
        Format::Text => {
            if pending.is_empty() {
                out.note("nothing waits for a decision");
            }
            for one in pending.iter().map(|one| &one.request) {
                out.line(&format!(
                    "{}  {}  {}  expires {}  session {}",
                    one.approval_id,
                    one.function,
                    show::about(one),
                    show::in_words(one.expires_at_ms.saturating_sub(show::now_ms()) / 1000),
                    display::ascii(one.session_id.as_str()),
                ))?;
            }
        }
    }
    damage::warn(out, &damaged);
    Ok(Exit::Completed)
}

async fn history(out: &Output, client: &Client, options: History) -> Result<Exit, Failure> {
    must_be(client, options.session.as_ref()).await?;
    let request = ApprovalsRequest {
        session_id: options.session,
        limit: Some(options.limit),
    };
    let reply = client.approvals(&request).await?;
    match out.format {
        Format::Json => out.document(&show::versioned(&reply))?,
        Format::JsonLines => {
            for one in &reply.entries {
                out.document(one)?;
            }
        }
        Format::Text => {
            for one in &reply.entries {
                out.line(&past(one))?;
            }
            if reply.entries.is_empty() {
                out.note("nobody was asked yet");
            }
        }
    }
    Ok(Exit::Completed)
}

/// A request and what became of it, as a line.
fn past(entry: &ApprovalEntry) -> String {
    match entry {
        ApprovalEntry::Whole(reply) => format!(
            "{}  {}  {}  sha256 {}  {}",
            show::moment(reply.request.requested_at_ms),
            reply.request.approval_id,
            reply.request.function,
            reply.request.digest.short(),
            reply
                .resolution
                .as_ref()
                .map_or_else(|| "waiting".to_owned(), show::resolution),
        ),
        ApprovalEntry::Digest {
            approval_id,
            function,
            digest,
            settled,
            ..
        } => format!(
            "(session deleted)     {approval_id}  {function}  sha256 {}  {}",
            digest.short(),
            settled
                .as_ref()
                .map_or_else(|| "the session was deleted first".to_owned(), show::settled),
        ),
    }
}

async fn approve(
    out: &Output,
    client: &Client,
    options: Approve,
    edited: Option<Arguments>,
) -> Result<Exit, Failure> {
    let reply = damage::find(client, &options.approval).await?;
    refuse_dead(&reply)?;
    damage::check(client, &reply).await?;
    let decision = match edited {
        Some(arguments) => Decision::Edit { arguments },
        None => Decision::Approve,
    };
    if let Some(digest) = options.digest {
        return resolve(out, client, &reply, digest, decision).await;
    }
    out.say(&show::pending(&reply.request, show::now_ms()));
    if let Decision::Edit { arguments } = &decision {
        out.say(&format!(
            "to be run instead:\n{}",
            show::arguments(arguments)
        ));
    }
    if options.yes {
        return resolve(out, client, &reply, reply.request.digest, decision).await;
    }
    if !out.can_ask() {
        let (approval, digest) = (options.approval.as_str(), reply.request.digest);
        let approval = text::operand(approval);
        return Err(Failure::usage(
            "approval.digest_needed",
            "without a terminal an approval needs the digest of what you have seen",
        )
        .hint(format_args!(
            "teamster approvals approve --digest {digest} {approval}"
        )));
    }
    let decision = decide(out, &reply, decision).await?;
    resolve(out, client, &reply, reply.request.digest, decision).await
}

/// Asks until the answer is clear.
async fn decide(out: &Output, reply: &GetReply, mut wanted: Decision) -> Result<Decision, Failure> {
    let mut lines = Lines::new();
    loop {
        out.raw(ask::QUESTION);
        lines.want();
        let Some(line) = lines.next().await else {
            return Err(Failure::new(
                Exit::Waiting,
                "approval.pending",
                "nothing was decided; the call still waits",
            ));
        };
        match ask::read(&line) {
            Answer::Decided(Decision::Approve) => return Ok(wanted),
            Answer::Decided(decision) => return Ok(decision),
            Answer::Edit => {
                if let Some(arguments) = ask::edit(out, &reply.request.arguments)? {
                    out.say(&format!(
                        "to be run instead:\n{}",
                        show::arguments(&arguments)
                    ));
                    wanted = Decision::Edit { arguments };
                }
            }
            Answer::Details => out.say(&show::details(&reply.request.arguments)),
            Answer::Unclear => out.say(ask::UNCLEAR),
        }
    }
}

fn read_arguments(path: &std::path::Path) -> Result<Arguments, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::usage(
            "approval.arguments",
            format_args!("cannot read {}: {error}", path.display()),
        )
        .hint("name a file that holds the edited arguments, as one JSON object")
    })?;
    let text = text.strip_suffix('\n').unwrap_or(&text).to_owned();
    Arguments::parse(text).map_err(|error| {
        Failure::usage(
            "approval.arguments",
            format_args!("{}: {error}", path.display()),
        )
        .hint(
            "correct the file and decide again: one JSON object, no key twice; nothing was decided",
        )
    })
}

/// APPR-1: an answer to a dead request says why it is dead.
fn refuse_dead(reply: &GetReply) -> Result<(), Failure> {
    let session = text::operand(reply.request.session_id.as_str());
    match &reply.resolution {
        None => Ok(()),
        Some(resolution) => Err(Failure::new(
            Exit::Failed,
            "approval.not_pending",
            format_args!(
                "{} does not wait any longer: {}",
                reply.request.approval_id,
                show::resolution(resolution)
            ),
        )
        .hint(format_args!(
            "teamster send {session} \"please try again\" asks the model to propose it anew"
        ))),
    }
}

async fn resolve(
    out: &Output,
    client: &Client,
    reply: &GetReply,
    digest: Digest,
    decision: Decision,
) -> Result<Exit, Failure> {
    refuse_dead(reply)?;
    let request = ResolveRequest {
        approval_id: reply.request.approval_id.clone(),
        digest,
        decision,
        channel: "cli".to_owned(),
    };
    let answer = client.resolve(&request).await?;
    if !answer.won {
        return Err(Failure::new(
            Exit::Failed,
            "approval.not_pending",
            format_args!("too late: {}", show::resolution(&answer.resolution)),
        ));
    }
    if out.is_text() {
        out.line(&format!(
            "{} {}",
            request.approval_id,
            show::resolution(&answer.resolution)
        ))?;
        let session = text::operand(reply.request.session_id.as_str());
        out.note(&display::terminal(&format!(
            "follow it with: teamster sessions tail {session}"
        )));
    } else {
        out.document(&show::versioned(&answer))?;
    }
    Ok(Exit::Completed)
}
