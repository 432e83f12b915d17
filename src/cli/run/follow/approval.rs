//! What the followed turn asks a person, and how the answer reaches it.

use teamster_protocol::{
    Digest, Phase,
    function::approval::{Pending, ResolveRequest},
    input::Decision,
    text,
};

use super::{Approvals, Follower, Outcome};
use crate::cli::{
    ask::{self, Answer, Lines},
    failure::Failure,
    show,
};
use crate::client::session::Turn;

impl Follower<'_> {
    /// Does what the options say about what waits for a person. It may be the turn of another message that waits: this one
    /// stands behind it until somebody decides, so that it is asked about all the same.
    pub(super) async fn settle(&mut self) -> Result<Option<Outcome>, Failure> {
        let turn = self.session.turn.as_ref();
        let waiting: Vec<Pending> = turn
            .filter(|turn| turn.end.is_none())
            .into_iter()
            .flat_map(Turn::waiting)
            .filter(|pending| !self.aside.contains(&pending.approval_id))
            .cloned()
            .collect();
        // Only a turn that goes no further without a person is left, so that all it waits for is named.
        let is_parked = self.session.phase == Some(Phase::Parked);
        let is_due = is_parked || (self.has_begun && self.approvals != Approvals::Fail);
        if waiting.is_empty() && is_parked && self.session.has_gap() && self.question.is_none() {
            return self.unseen().await;
        }
        if waiting.is_empty() || self.question.is_some() || !is_due || !self.is_present().await {
            return Ok(None);
        }
        match self.approvals {
            Approvals::Fail => {
                let waiting = waiting.into_iter().map(|pending| pending.approval_id);
                return Ok(Some(Outcome::Waiting(waiting.collect())));
            }
            Approvals::Wait => {
                for pending in waiting {
                    let approval = text::operand(pending.approval_id.as_str());
                    self.status.note(&format!(
                        "waiting for a decision: teamster approvals approve {approval} (or deny)"
                    ));
                    self.aside.insert(pending.approval_id);
                }
            }
            Approvals::Deny => {
                for pending in waiting {
                    self.has_denied = true;
                    let reason = Some("nobody was there to be asked".to_owned());
                    self.decide(&pending, pending.digest, Decision::Deny { reason })
                        .await?;
                }
            }
            Approvals::Ask => {
                if let Some(oldest) = waiting.into_iter().next() {
                    self.ask(oldest);
                }
            }
        }
        Ok(None)
    }

    /// A person must decide what the log does not show, because a part of it is lost. Who waits for decisions made elsewhere goes on
    /// waiting; nobody is asked here about what cannot be shown.
    async fn unseen(&self) -> Result<Option<Outcome>, Failure> {
        let Ok(now) = self.client.status(&self.id).await else {
            return Ok(None);
        };
        let is_present = now.commits == self.session.commits && !now.approvals.is_empty();
        let is_waited_for = self.approvals == Approvals::Wait;
        Ok((is_present && !is_waited_for).then_some(Outcome::Waiting(now.approvals)))
    }

    /// Whether the session stands where the log was read to. The log is read from its beginning: what was decided since then
    /// is told by what follows.
    async fn is_present(&self) -> bool {
        match self.client.status(&self.id).await {
            Ok(now) => now.commits == self.session.commits && !now.approvals.is_empty(),
            // Nobody says how it stands now; of its own turn the log is believed.
            Err(_) => self.has_begun,
        }
    }

    fn ask(&mut self, pending: Pending) {
        self.status.clear();
        self.out
            .say(&format!("\n{}", show::pending(&pending, show::now_ms())));
        self.out.raw(ask::QUESTION);
        self.question = Some(pending);
        self.lines.get_or_insert_with(Lines::new).want();
    }

    pub(super) async fn answer(
        &mut self,
        line: Option<String>,
    ) -> Result<Option<Outcome>, Failure> {
        let Some(question) = self.question.take() else {
            return Ok(None); // decided elsewhere while somebody typed
        };
        let Some(line) = line else {
            let turn = self.session.turn.iter();
            let waiting = turn
                .flat_map(Turn::waiting)
                .map(|pending| pending.approval_id.clone());
            return Ok(Some(Outcome::Waiting(waiting.collect())));
        };
        match ask::read(&line) {
            Answer::Decided(decision) => {
                self.decide(&question, question.digest, decision).await?;
            }
            Answer::Edit => {
                match tokio::task::block_in_place(|| ask::edit(self.out, &question.arguments))? {
                    Some(arguments) => {
                        self.decide(&question, question.digest, Decision::Edit { arguments })
                            .await?;
                    }
                    None => self.ask(question),
                }
            }
            Answer::Details => {
                self.out.say(&show::details(&question.arguments));
                self.ask_again(question);
            }
            Answer::Unclear => {
                self.out.say(ask::UNCLEAR);
                self.ask_again(question);
            }
        }
        Ok(None)
    }

    fn ask_again(&mut self, question: Pending) {
        self.out.raw(ask::QUESTION);
        self.question = Some(question);
        if let Some(lines) = &mut self.lines {
            lines.want();
        }
    }

    async fn decide(
        &mut self,
        pending: &Pending,
        digest: Digest,
        decision: Decision,
    ) -> Result<(), Failure> {
        let request = ResolveRequest {
            approval_id: pending.approval_id.clone(),
            digest,
            decision,
            channel: "cli".to_owned(),
        };
        let reply = self.client.resolve(&request).await?;
        self.aside.insert(request.approval_id);
        if !reply.won {
            self.status.note(&format!(
                "too late: {}",
                show::resolution(&reply.resolution)
            ));
        }
        Ok(())
    }
}
