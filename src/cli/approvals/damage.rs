//! What is said where requests for a decision may stand in logs that cannot be read: nobody is to take them for absent.

use teamster_core::display;
use teamster_protocol::{
    ApprovalId, SessionId,
    function::{
        approval::{DamagedLog, GetReply},
        session::ListRequest,
    },
    text,
};

use crate::{
    cli::{before, exit::Exit, failure::Failure, output::Output},
    client::{Client, Error},
};

/// Sessions with damaged logs that are looked at.
const LISTED_MAX: u32 = 100;

/// What is answered where a request is not found.
const MISSING: [&str; 2] = ["approval.not_found", "session.log_damaged"];

/// The sessions of whose logs not everything can be read, of one session or of all: as the gate knows them, and the session worker.
pub(super) async fn logs(
    client: &Client,
    session: Option<&SessionId>,
    mut known: Vec<DamagedLog>,
) -> Vec<DamagedLog> {
    let found: Vec<DamagedLog> = match session {
        Some(session) => of_session(client, session).await.into_iter().collect(),
        None => listed(client).await,
    };
    for one in found {
        if !known.iter().any(|seen| seen.session_id == one.session_id) {
            known.push(one);
        }
    }
    known
}

async fn of_session(client: &Client, session: &SessionId) -> Option<DamagedLog> {
    let message = client.history(session).await.ok()?.damage?;
    Some(DamagedLog {
        session_id: session.clone(),
        message,
    })
}

/// Without a session worker nobody knows more than the gate.
async fn listed(client: &Client) -> Vec<DamagedLog> {
    let request = ListRequest {
        status: Some("damaged".to_owned()),
        limit: Some(LISTED_MAX),
        ..ListRequest::default()
    };
    let Ok(listed) = client.sessions(&request).await else {
        return Vec::new();
    };
    let of = |session_id| DamagedLog {
        session_id,
        message: "its log does not fold, or its end cannot be read".to_owned(),
    };
    let sessions = listed.sessions.into_iter();
    sessions.map(|session| of(session.session_id)).collect()
}

/// Says which sessions may wait for a decision that is not shown.
pub(super) fn warn(out: &Output, damaged: &[DamagedLog]) {
    for one in damaged {
        let session = text::operand(one.session_id.as_str());
        out.note(&display::terminal(&format!(
            "warning: the log of session {} is damaged, so that what it waits for may be missing here: {}\n  next: `teamster sessions \
             show {session}` shows what can be read; `teamster sessions accept-loss {session}` says what is given up",
            one.session_id, one.message
        )));
    }
}

/// A request by its id. One that is not found may stand in a log that cannot be read.
pub(super) async fn find(client: &Client, approval: &ApprovalId) -> Result<GetReply, Failure> {
    let fault = match client.approval(approval).await {
        Err(Error::Fault(fault)) if MISSING.contains(&fault.code.as_str()) => fault,
        found => return Ok(found?),
    };
    // The gate names what it knows; that may not be all.
    let known = client.pending(None).await.map(|reply| reply.damaged);
    let damaged = logs(client, None, known.unwrap_or_default()).await;
    let Some(first) = damaged.first() else {
        return Err(fault.into());
    };
    let names: Vec<&str> = damaged.iter().map(|one| one.session_id.as_str()).collect();
    let session = text::operand(first.session_id.as_str());
    Err(Failure::new(
        Exit::Failed,
        "session.log_damaged",
        format_args!(
            "{approval} is in no log that can be read; it may have been asked in one that is damaged: {}",
            names.join(", ")
        ),
    )
    .hint(format_args!(
        "`teamster sessions show {session}` shows what can be read; `teamster sessions accept-loss {session}` says what is given up, \
         what waits for a decision included"
    )))
}

/// Refuses a decision that nobody would take up, because the log of its session is damaged.
pub(super) async fn check(client: &Client, reply: &GetReply) -> Result<(), Failure> {
    if reply.resolution.is_some() {
        return Ok(());
    }
    before::is_running(client, &reply.request.session_id).await
}
