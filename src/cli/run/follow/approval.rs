//! What the followed turn asks a person, and how the answer reaches it.

use teamster_protocol::{
    Digest,
    function::approval::{Pending, ResolveRequest},
    input::Decision,
};

use super::{Approvals, Follower, Outcome};
use crate::cli::{
    ask::{self, Answer, Lines},
    failure::Failure,
    show,
};

impl Follower<'_> {
    pub(super) async fn asked(&mut self, pending: Pending) -> Result<Option<Outcome>, Failure> {
        // The log is read from its beginning: what was decided since then is told by what follows.
        let known = self.client.approval(&pending.approval_id).await;
        if known.is_ok_and(|reply| reply.resolution.is_some()) {
            return Ok(None);
        }
        match self.approvals {
            Approvals::Fail => Ok(Some(Outcome::Waiting(pending.approval_id))),
            Approvals::Wait => {
                self.status.note(&format!(
                    "waiting for a decision: teamster approvals approve {} (or deny)",
                    pending.approval_id
                ));
                Ok(None)
            }
            Approvals::Deny => {
                self.has_denied = true;
                let reason = "nobody was there to be asked".to_owned();
                self.decide(
                    &pending,
                    pending.digest,
                    Decision::Deny {
                        reason: Some(reason),
                    },
                )
                .await?;
                Ok(None)
            }
            Approvals::Ask => {
                self.ask(pending);
                Ok(None)
            }
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
            return Ok(Some(Outcome::Waiting(question.approval_id)));
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
            Answer::Unclear => self.ask_again(question),
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
        if !reply.won {
            self.status.note(&format!(
                "too late: {}",
                show::resolution(&reply.resolution)
            ));
        }
        Ok(())
    }
}
