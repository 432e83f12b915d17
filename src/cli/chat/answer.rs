//! What the turn asks a person, and how the answer reaches it.

use teamster_protocol::{
    ApprovalId,
    function::approval::{Pending, ResolveRequest},
    input::Decision,
    text,
};

use super::{
    input::Input,
    talk::{Chat, words},
};
use crate::cli::{
    ask::{self, Answer},
    exit::Exit,
    failure::Failure,
    output::Format,
    run::{Approvals, Outcome, document, verdict},
    show,
};

impl Chat<'_> {
    /// Asks about the oldest request that nobody has put aside, or does what the options say instead.
    pub(super) async fn next_question(&mut self) -> Result<Option<Exit>, Failure> {
        while self.question.is_none() {
            let next = self
                .here
                .pending()
                .into_iter()
                .find(|approval| !self.aside.contains(approval));
            let pending = next.and_then(|approval| {
                let turn = self.here.session.turn.as_ref()?;
                turn.pending.get(&approval).cloned()
            });
            let Some(pending) = pending else { break };
            match self.set.approvals {
                Approvals::Ask => self.ask(pending),
                Approvals::Fail => return self.cannot_ask().map(Some),
                Approvals::Wait => {
                    let approval = text::operand(pending.approval_id.as_str());
                    self.screen.note(&format!(
                        "waiting for a decision: teamster approvals approve {approval} (or deny)"
                    ));
                    self.aside.insert(pending.approval_id);
                }
                Approvals::Deny => {
                    self.aside.insert(pending.approval_id.clone());
                    self.has_denied = true;
                    let reason = Some("nobody was there to be asked".to_owned());
                    self.decide(&pending, Decision::Deny { reason }).await?;
                }
            }
        }
        Ok(None)
    }

    /// Nobody can be asked here: the turn is left waiting.
    fn cannot_ask(&mut self) -> Result<Exit, Failure> {
        let waiting = self.here.pending();
        let outcome = Outcome::Waiting(waiting.clone());
        let turn = self.here.session.turn.clone();
        let (exit, failure) = verdict(&self.here.id, turn.as_ref(), &outcome, false);
        self.reports.push(document(&self.here.id, turn.as_ref()));
        if self.set.out.format == Format::Text {
            for approval in &waiting {
                self.set.out.line(approval.as_str())?;
            }
        }
        match failure {
            Some(failure) => Err(failure),
            None => Ok(exit),
        }
    }

    fn ask(&mut self, pending: Pending) {
        Input::flush();
        let typed = self.editor.take();
        self.screen.say(&format!(
            "\n{}",
            show::pending(&pending, show::now_ms()).trim_end()
        ));
        self.question = Some((pending, typed));
        self.screen.prompt(ask::QUESTION);
    }

    /// The line that answers a question.
    pub(super) async fn answer(&mut self, line: &str) -> Result<Option<Exit>, Failure> {
        let Some((question, typed)) = self.question.take() else {
            return Ok(None);
        };
        let decision = match ask::read(line) {
            Answer::Decided(decision) => Some(decision),
            Answer::Edit => self.edit(&question),
            Answer::Details => {
                self.screen
                    .say(show::details(&question.arguments).trim_end());
                None
            }
            Answer::Unclear => {
                self.screen.say(ask::UNCLEAR);
                None
            }
        };
        let Some(decision) = decision else {
            self.question = Some((question, typed));
            self.screen.prompt(ask::QUESTION);
            return Ok(None);
        };
        self.aside.insert(question.approval_id.clone());
        if let Err(failure) = self.decide(&question, decision).await {
            self.aside.remove(&question.approval_id);
            self.screen.say(&words(&failure));
            self.screen.say("nothing is decided yet");
        }
        self.editor.put(&typed);
        self.next_question().await
    }

    /// Lets the person edit the arguments in an editor of their own.
    fn edit(&mut self, question: &Pending) -> Option<Decision> {
        self.screen.leave();
        self.input.lend();
        let edited = tokio::task::block_in_place(|| ask::edit(self.set.out, &question.arguments));
        self.input.take();
        match edited {
            Ok(arguments) => arguments.map(|arguments| Decision::Edit { arguments }),
            Err(failure) => {
                self.screen.say(&words(&failure));
                None
            }
        }
    }

    async fn decide(&mut self, pending: &Pending, decision: Decision) -> Result<(), Failure> {
        let request = ResolveRequest {
            approval_id: pending.approval_id.clone(),
            digest: pending.digest,
            decision,
            channel: "cli".to_owned(),
        };
        let client = self.client.clone();
        let reply = self
            .patiently(async move { client.resolve(&request).await })
            .await?;
        if !reply.won {
            self.screen.note(&format!(
                "too late: {}",
                show::resolution(&reply.resolution)
            ));
        }
        Ok(())
    }

    /// The question is put aside for now.
    pub(super) fn put_aside(&mut self) -> bool {
        let Some((question, typed)) = self.question.take() else {
            return false;
        };
        self.editor.put(&typed);
        self.screen.say(&format!(
            "{} is not decided; /approvals asks again",
            question.approval_id
        ));
        self.aside.insert(question.approval_id);
        true
    }

    /// A request is answered elsewhere or gone.
    pub(super) fn withdraw(&mut self, approval: &ApprovalId) {
        self.aside.remove(approval);
        if let Some((_, typed)) = self
            .question
            .take_if(|(question, _)| question.approval_id == *approval)
        {
            self.editor.put(&typed);
        }
    }

    /// The turn is over, and with it all its questions.
    pub(super) fn withdraw_all(&mut self) {
        self.aside.clear();
        if let Some((_, typed)) = self.question.take() {
            self.editor.put(&typed);
        }
    }
}
