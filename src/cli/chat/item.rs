//! What the session's log and its live deltas bring, and what became of a message that was sent.

use std::time::Duration;

use serde_json::json;
use teamster_core::display;
use teamster_protocol::{
    Commit, Event, FaultClass, Lane,
    event::DropReason,
    function::harness::{SendReply, SendState},
};
use tokio::time::Instant;

use super::talk::{Chat, words};
use crate::{
    cli::{
        exit::Exit,
        failure::Failure,
        output::{Closed, Format},
        reach::{self, Absent},
        sessions::event_line,
        show, status,
    },
    client::{Error, Item, session::Happening, stream::Piece},
    env, host,
};

/// How long a script goes on trying to send a message.
const SEND_MAX: Duration = Duration::from_mins(1);

impl Chat<'_> {
    pub(super) async fn item(
        &mut self,
        item: Result<Item, Error>,
    ) -> Result<Option<Exit>, Failure> {
        if matches!(item, Ok(Item::Commit { .. } | Item::Delta(_))) {
            self.keeper.heard();
        }
        match item {
            Ok(Item::Commit { seq, commit }) => {
                self.is_lost = false;
                self.commit(seq, &commit)?;
                self.next_question().await
            }
            Ok(Item::Delta(delta)) => {
                if let Some(piece) = self.here.stream.delta(&delta) {
                    self.pieces(&[piece], true)?;
                }
                Ok(None)
            }
            Ok(Item::Damaged(error)) if self.is_person => {
                self.screen.say(&words(&Failure::from(*error)));
                self.screen
                    .say("no turn runs here until the loss is accepted: teamster sessions accept-loss ID --yes");
                Ok(None)
            }
            Ok(Item::Damaged(error)) => Err((*error).into()),
            Ok(Item::Interrupted) => {
                if !std::mem::replace(&mut self.is_lost, true) {
                    self.screen.note("the mesh does not answer; still trying");
                }
                Ok(None)
            }
            Err(error) if self.is_person && is_lost(&error) => {
                self.here.deafen();
                self.screen
                    .note("the mesh is gone; your next message starts it again, and nothing that was stored is lost");
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn commit(&mut self, seq: u64, commit: &Commit) -> Result<(), Failure> {
        self.here.seq = seq;
        self.here.session.open(commit);
        for event in &commit.events {
            if let Some(failure) = self.dropped(event) {
                return Err(failure);
            }
            let happening = self.here.session.event(&self.here.id, commit.at_ms, event);
            if self.set.out.format == Format::JsonLines {
                self.set.out.document(&event_line(seq, commit, event))?;
            }
            if let Some(happening) = happening {
                self.happening(happening)?;
            }
            if matches!(event, Event::SessionDeleted { .. }) {
                self.screen
                    .note("the session was deleted; a new message begins it anew");
            }
        }
        Ok(())
    }

    /// The awaited message itself was refused by the session.
    fn dropped(&self, event: &Event) -> Option<Failure> {
        let (_, mine) = self.awaited.as_ref()?.sent.as_ref()?;
        match event {
            Event::InputDropped {
                lane: Lane::In,
                seq,
                why: DropReason::Malformed { message },
            } if seq == mine => Some(Failure::new(
                Exit::Failed,
                "session.input_dropped",
                format_args!("the session could not take the message: {message}"),
            )),
            _ => None,
        }
    }

    fn happening(&mut self, happening: Happening) -> Result<(), Closed> {
        match happening {
            Happening::Began => self.began(),
            Happening::Generating(request) => {
                let pieces = self.here.stream.started(&request);
                self.pieces(&pieces, true)?;
            }
            Happening::Said { request, text } => {
                let pieces = self.here.stream.said(&request, &text);
                self.pieces(&pieces, false)?;
            }
            Happening::Ran { function, outcome } => {
                if self.is_person || outcome.is_error() {
                    let name = function
                        .map_or_else(|| "a call".to_owned(), |function| function.to_string());
                    self.screen.note(&format!(
                        "  {}: {}",
                        display::terminal(&name),
                        show::word(&outcome)
                    ));
                }
            }
            Happening::TookOver(attempt) => self.screen.note(&format!(
                "another harness goes on with the turn (attempt {attempt})"
            )),
            // What is asked is shown when the whole commit is taken.
            Happening::Running(_) | Happening::Asked(_) => {}
            Happening::Answered { approval, how } => {
                self.withdraw(&approval);
                self.screen.note(&format!("{approval}: {how}"));
            }
            Happening::Ended(reason) => {
                self.withdraw_all();
                self.screen.end_line()?;
                self.ended(reason);
            }
        }
        Ok(())
    }

    fn began(&mut self) {
        self.here.since = Instant::now();
        self.screen.begin();
        let model = self
            .here
            .session
            .turn
            .as_ref()
            .and_then(|turn| turn.model.clone());
        if model.is_none() || model == self.model {
            return;
        }
        self.model.clone_from(&model);
        let model = model.unwrap_or_default();
        self.screen
            .note(&format!("model {}", status::label(&model)));
        let key = env::PROVIDER_KEYS
            .iter()
            .find(|(name, _)| status::is_scripted(&model) && std::env::var_os(name).is_some());
        if let Some((name, provider)) = key {
            self.screen.note(&format!(
                "{name} is set: `/model {provider}/MODEL` would use it; nothing is sent unless you choose it"
            ));
        }
    }

    /// Writes what the assistant says: as it streams on a terminal, in deltas as lines, from the log elsewhere.
    fn pieces(&mut self, pieces: &[Piece], is_streaming: bool) -> Result<(), Closed> {
        for piece in pieces {
            if let Piece::Retry {
                attempt,
                wait_ms,
                reason,
            } = piece
            {
                self.screen.note(&format!(
                    "the provider failed ({}); attempt {attempt} in {:.1} s",
                    display::terminal(reason),
                    Duration::from_millis(*wait_ms).as_secs_f64()
                ));
            }
            match (self.set.out.format, piece) {
                (Format::JsonLines, Piece::Text(text)) if is_streaming => {
                    self.set
                        .out
                        .document(&json!({ "type": "delta", "text": text }))?;
                }
                (Format::Text, piece) if self.set.out.is_live() => {
                    match piece {
                        Piece::Text(text) => self.screen.text(&display::terminal(text))?,
                        Piece::Again => {
                            self.screen.end_line()?;
                            self.screen.note("(what stands above was cut off; the answer again, from its beginning)");
                        }
                        Piece::End => self.screen.end_line()?,
                        Piece::Retry { .. } => {}
                    }
                }
                (Format::Text, Piece::End) if !is_streaming => {
                    let said = self
                        .here
                        .session
                        .turn
                        .as_ref()
                        .and_then(|turn| turn.texts.last());
                    let said = said.map(|text| display::terminal(text));
                    self.screen
                        .text(&format!("{}\n", said.unwrap_or_default()))?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// What became of the first message on its way.
    pub(super) async fn sent(
        &mut self,
        result: Result<SendReply, Error>,
    ) -> Result<Option<Exit>, Failure> {
        let reply = match result {
            Ok(reply) => reply,
            Err(error) => return self.not_sent(error).await,
        };
        self.outgoing.settle();
        if std::mem::take(&mut self.here.is_new) {
            self.screen.note(&format!(
                "session {}",
                display::terminal(self.here.id.as_str())
            ));
        }
        if self.here.is_deaf() {
            self.here.listen(&self.client);
        }
        if self.is_person && reply.state == SendState::Merged && !self.here.is_waiting() {
            self.screen
                .note("  (joins the running turn at its next step)");
        }
        if self.is_person && self.here.is_waiting() {
            self.screen
                .note("  (waits until the approval is decided: /approvals)");
        }
        if let Some(awaited) = &mut self.awaited {
            awaited.sent = Some((reply.message_id, reply.seq));
            self.settle();
        }
        Ok(None)
    }

    async fn not_sent(&mut self, error: Error) -> Result<Option<Exit>, Failure> {
        let is_passing = is_lost(&error)
            || matches!(&error, Error::Fault(fault) if fault.class == FaultClass::Busy);
        let failure = Failure::from(error);
        let tried = self.outgoing.again();
        if is_passing && (self.is_person || tried < SEND_MAX) {
            if tried == Duration::ZERO {
                self.screen
                    .note(&format!("not sent yet, still trying: {failure}"));
            }
            return self.reach_again().await.map(|()| None);
        }
        let Some(request) = self.outgoing.settle().filter(|_| self.is_person) else {
            return Err(failure);
        };
        self.screen.say(&words(&failure));
        if self.editor.is_empty() {
            self.editor.put(&request.message);
        }
        Ok(None)
    }

    /// Whether the mesh of this machine is gone altogether, server and all.
    fn is_gone(&self) -> bool {
        let data = self.keeper.data();
        data.is_some_and(|data| !host::embedded::is_held(data) && !reach::was_killed(data))
    }

    /// A message is on its way and nobody is there any more who could answer: that is not waited out.
    pub(super) async fn keep_reachable(&mut self) -> Result<(), Failure> {
        if self.outgoing.is_empty() {
            return Ok(());
        }
        self.reach_again().await
    }

    /// Connects anew where the mesh that this process started is gone altogether.
    async fn reach_again(&mut self) -> Result<(), Failure> {
        if !self.is_gone() {
            return Ok(());
        }
        self.screen
            .note("no mesh runs any more; starting it in the background");
        match reach::client(self.set.global, self.set.out, Absent::Start).await {
            Ok(client) => {
                self.client = client;
                self.outgoing.restart();
                if !self.here.is_new {
                    self.here.listen(&self.client);
                }
                Ok(())
            }
            Err(failure) if self.is_person => {
                self.screen.say(&words(&failure));
                Ok(())
            }
            Err(failure) => Err(failure),
        }
    }
}

/// Whether the mesh, not the request, is the trouble.
fn is_lost(error: &Error) -> bool {
    match error {
        Error::Mesh(_) | Error::Lost { .. } | Error::Closed => true,
        Error::Fault(fault) => matches!(
            fault.code.as_str(),
            "mesh.timeout" | "mesh.no_responders" | "mesh.callee_lost" | "mesh.unavailable"
        ),
        _ => false,
    }
}
