//! What a person types, and what the commands of this program do.

use std::{fmt::Write as _, future::Future, time::Duration};

use teamster_core::display;
use teamster_protocol::{SessionId, function::session, limits, text};
use tokio::{
    signal::unix::{SignalKind, signal},
    time::Instant,
};

use super::{
    come_back,
    draft::Drafted,
    editor::Edit,
    here::Here,
    input::{Came, Input, Line},
    past,
    slash::{self, Slash},
    talk::{Awaited, Chat, SECOND_CHANCE, words},
};
use crate::{
    cli::{
        compose,
        exit::Exit,
        failure::Failure,
        sessions::ls,
        status::{counted, grouped, money},
    },
    client::{self, Error},
};

/// Sessions that `/sessions` shows.
const SESSIONS_SHOWN: u32 = 15;
/// How long the lines behind the end of a script are counted.
const REST_WAIT: Duration = Duration::from_millis(500);
/// How long a command waits for the mesh.
const PATIENCE: Duration = Duration::from_secs(20);

impl Chat<'_> {
    pub(super) async fn came(&mut self, came: Came) -> Result<Option<Exit>, Failure> {
        let keys = match came {
            Came::Line(line) => return self.line(line).await,
            Came::Keys(keys) => keys,
        };
        for key in keys {
            let left = match self.editor.key(key) {
                Edit::Line => None,
                Edit::Full => {
                    self.screen.say(&format!(
                        "what follows is left out: a message has at most {} bytes",
                        limits::MESSAGE_BYTES_MAX
                    ));
                    None
                }
                Edit::Short(left_out) => {
                    self.screen.say(&format!(
                        "not sent: {} at the end did not fit; Enter sends the message without, Ctrl-C clears it",
                        counted(left_out as u64, "character")
                    ));
                    None
                }
                Edit::End => self.line(Line::End).await?,
                Edit::Done(line) => {
                    self.echo(&line);
                    self.line(Line::Text(line)).await?
                }
            };
            if left.is_some() {
                return Ok(left);
            }
        }
        Ok(None)
    }

    /// What was typed stays on the screen.
    fn echo(&mut self, line: &str) {
        let before = if self.question.is_some() { "? " } else { "> " };
        let shown = display::terminal(line).replace('\n', "\n. ");
        self.screen.say(&format!("{before}{shown}"));
    }

    async fn line(&mut self, line: Line) -> Result<Option<Exit>, Failure> {
        self.lines_read += u64::from(!matches!(line, Line::End));
        let wrong = match line {
            Line::Text(line) => return self.typed(&line).await,
            Line::End if self.draft.is_open() => {
                let failure = Failure::usage(
                    "cli.open_message",
                    "the input ends within a message of several lines",
                )
                .hint("end it with \"\"\", or leave out the backslash before the last line end");
                // Nothing follows that could be left unread.
                if !self.is_person {
                    return Err(failure);
                }
                failure
            }
            Line::End if self.question.is_some() => {
                self.put_aside();
                return Ok(Some(Exit::Completed));
            }
            Line::End if self.is_person => return Ok(Some(Exit::Completed)),
            Line::End => return Ok(Some(self.last)),
            Line::TooLong => too_long(),
            Line::NotText => {
                Failure::usage("cli.stdin", "a line of standard input is not valid UTF-8")
                    .hint("write the lines as UTF-8 text")
            }
        };
        self.complain(wrong)
    }

    /// What a person is told, a script fails with: what follows was written for another answer. So it is said from where on
    /// nothing was read.
    fn complain(&mut self, mut failure: Failure) -> Result<Option<Exit>, Failure> {
        if !self.is_person {
            let line = self.lines_read;
            self.read_upto = Some(line);
            failure.message = format!(
                "line {line} of the input: {}; the lines behind it were not read",
                failure.message
            );
            return Err(failure);
        }
        self.draft.clear();
        self.screen.say(&words(&failure));
        self.prompt();
        Ok(None)
    }

    /// What ends a script leaves lines unread, which were meant for the session: it is said how many, and from where on.
    pub(super) async fn with_rest(&mut self, mut failure: Failure) -> Failure {
        let Input::Lines(lines) = &mut self.input else {
            return failure;
        };
        if self.is_person || self.read_upto.is_some() {
            return failure;
        }
        let (count, is_all) = lines.rest(REST_WAIT).await;
        let first = self.lines_read + 1;
        let words = match (count, is_all) {
            (0, true) => return failure,
            (0, false) => "what follows in the input was not sent".to_owned(),
            (1, true) => format!("1 further line of the input (line {first}) was not sent"),
            (count, true) => {
                format!("{count} further lines of the input (from line {first} on) were not sent")
            }
            (count, false) => format!(
                "at least {count} further lines of the input (from line {first} on) were not sent"
            ),
        };
        failure.message = format!("{}; {words}", failure.message);
        let then = format!("send the rest with: {}", come_back(&self.here.id));
        failure.hint = Some(match failure.advised().hint {
            Some(hint) => format!("{hint}; {then}"),
            None => then,
        });
        failure
    }

    async fn typed(&mut self, line: &str) -> Result<Option<Exit>, Failure> {
        self.interrupted_at = None;
        if !self.draft.is_open() {
            match slash::parse(line) {
                Some(Ok(command)) => {
                    let left = self.act(command).await;
                    return match left {
                        Ok(left) => {
                            if left.is_none() {
                                self.prompt();
                            }
                            Ok(left)
                        }
                        Err(failure) => self.complain(failure),
                    };
                }
                Some(Err(problem)) => {
                    let failure = Failure::usage("cli.command", display::terminal(&problem))
                        .hint("/help lists the commands; // at the beginning sends a slash");
                    return self.complain(failure);
                }
                None => {}
            }
        }
        if self.question.is_some() {
            return self.answer(line).await;
        }
        // What was pasted or typed as several lines is one message already.
        let drafted = if line.contains('\n') && !self.draft.is_open() {
            Drafted::Whole(line.to_owned())
        } else {
            self.draft.line(line)
        };
        match drafted {
            Drafted::More => Ok(None),
            Drafted::TooLong => self.complain(too_long()),
            Drafted::Whole(message) if message.trim().is_empty() => {
                self.prompt();
                Ok(None)
            }
            Drafted::Whole(message) => self.submit(slash::message(&message)),
        }
    }

    fn submit(&mut self, message: &str) -> Result<Option<Exit>, Failure> {
        let key = crate::cli::compose::Key {
            key: Some(client::fresh_key()),
        };
        let request = self.set.turn.request(
            Some(self.here.id.clone()),
            &key,
            message.to_owned(),
            self.set.created_with.clone(),
            self.here.is_new,
        );
        if !self.outgoing.push(request) {
            return self.refuse(message);
        }
        if !self.is_person {
            self.awaited = Some(Awaited::default());
        }
        Ok(None)
    }

    /// Too many wait. Each message that is not taken is named; what to do is said once.
    fn refuse(&mut self, message: &str) -> Result<Option<Exit>, Failure> {
        if self.is_person {
            self.name_unsent(message);
        }
        if !self.outgoing.is_first_refusal() {
            return Ok(None);
        }
        self.complain(
            Failure::new(
                Exit::TryAgain,
                "cli.too_many_waiting",
                format_args!("{} wait to be sent, and no more are taken", counted(self.outgoing.len() as u64, "message")),
            )
            .hint(
                "wait until they are sent, then press Up for those that were not; \"\"\" before and behind several lines makes \
                 one message of them",
            ),
        )
    }

    /// Names a message that does not reach the session.
    pub(super) fn name_unsent(&mut self, message: &str) {
        let shown = display::terminal(&text::cut(message, 200));
        self.screen.say(&format!("not sent: {shown}"));
    }

    pub(super) async fn interrupt(&mut self) -> Result<Option<Exit>, Failure> {
        if !self.is_person {
            return self.interrupt_script().await;
        }
        let is_second = self
            .interrupted_at
            .take()
            .is_some_and(|at| at.elapsed() < SECOND_CHANCE);
        if is_second && self.here.is_running() {
            self.stop().await;
            return Ok(None);
        }
        if is_second {
            return Ok(Some(Exit::Interrupted));
        }
        self.interrupted_at = Some(Instant::now());
        let had_draft = self.draft.is_open() || !self.editor.is_empty();
        self.draft.clear();
        self.editor.take();
        self.input.give_up();
        let unsent = self.outgoing.clear();
        for message in &unsent {
            self.name_unsent(message);
        }
        let within = SECOND_CHANCE.as_secs();
        if self.put_aside() {
            self.screen.say(&format!(
                "Ctrl-C once more within {within} s stops the turn"
            ));
        } else if self.here.is_running() {
            self.screen.say(&format!(
                "the turn goes on; Ctrl-C once more within {within} s stops it, Ctrl-D leaves it alone"
            ));
        } else if !had_draft && unsent.is_empty() {
            self.screen.say("Ctrl-D or /quit leaves");
        }
        self.prompt();
        Ok(None)
    }

    async fn interrupt_script(&mut self) -> Result<Option<Exit>, Failure> {
        if self.awaited.is_none() || self.stopped_at.is_some() {
            return Ok(Some(Exit::Interrupted));
        }
        if self.interrupted_at.replace(Instant::now()).is_none() {
            let session = display::terminal(&text::operand(self.here.id.as_str()));
            self.screen.say(&format!(
                "\nletting go; the turn goes on: teamster sessions tail {session}\nCtrl-C once more within {} s stops the turn",
                SECOND_CHANCE.as_secs()
            ));
            return Ok(None);
        }
        self.stopped_at = Some(Instant::now());
        self.stop().await;
        Ok(None)
    }

    async fn stop(&mut self) {
        self.screen.say("stopping the turn");
        let turn = self
            .here
            .session
            .turn
            .as_ref()
            .filter(|turn| turn.end.is_none());
        let turn = turn.and_then(|turn| turn.id.clone());
        let (client, id) = (self.client.clone(), self.here.id.clone());
        let stopped = self
            .patiently(async move { client.stop(&id, turn.as_ref()).await })
            .await;
        if let Err(failure) = stopped {
            self.screen.say(&words(&failure));
        }
    }

    /// Waits for the mesh, but not behind a person's back: Ctrl-C ends the wait.
    pub(super) async fn patiently<T>(
        &self,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Failure> {
        let interrupted = async {
            match signal(SignalKind::interrupt()) {
                Ok(mut signal) => drop(signal.recv().await),
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            result = request => result.map_err(Failure::from),
            () = interrupted => Err(Failure::new(Exit::Interrupted, "cli.interrupted", "you did not wait for the answer")),
            () = tokio::time::sleep(PATIENCE) => {
                Err(Failure::new(Exit::TryAgain, "mesh.timeout", "the mesh did not answer in time").hint("try again in a moment"))
            }
        }
    }

    async fn act(&mut self, command: Slash) -> Result<Option<Exit>, Failure> {
        match command {
            Slash::Help => self.screen.say(slash::HELP),
            Slash::Quit => {
                return Ok(Some(if self.is_person {
                    Exit::Completed
                } else {
                    self.last
                }));
            }
            Slash::Stop => self.stop().await,
            Slash::Status => self.status().await?,
            Slash::Approvals => self.ask_anew().await?,
            Slash::Model(Some(name)) => {
                let (client, asked) = (self.client.clone(), name.clone());
                let known = async move { Ok(compose::asked_for(client.model(&asked).await)) };
                self.patiently(known).await??;
                self.screen.say(&format!(
                    "model of the next turns: {}",
                    display::terminal(&name)
                ));
                self.set.turn.model = Some(name);
            }
            Slash::Model(None) => self.screen.say(&self.model_words()),
            Slash::Cost => self.screen.say(&self.cost_words()),
            Slash::Sessions => self.sessions().await?,
            Slash::New => {
                self.go(Here::fresh(SessionId::fresh(uuid::Uuid::now_v7())));
                self.screen
                    .say("a new session begins with your next message");
            }
            Slash::Fork(at) => self.fork(at).await?,
            Slash::Switch(id) => self.switch(id).await?,
            Slash::Title(title) => self.title(title).await?,
            Slash::History(messages) => {
                let (_, past) = Here::load(&self.client, self.here.id.clone()).await?;
                self.screen.say(past::shown(&past, messages).trim_end());
            }
        }
        Ok(None)
    }

    async fn status(&mut self) -> Result<(), Failure> {
        let (client, id) = (self.client.clone(), self.here.id.clone());
        let status = self
            .patiently(async move { client.status(&id).await })
            .await?;
        let mut text = format!(
            "session    {}\nstatus     {}\nworkspace  {}\nturns      {} in {} commits\n",
            display::terminal(status.session_id.as_str()),
            status.status,
            display::terminal(status.workspace.as_deref().unwrap_or("-")),
            status.turns,
            status.commits,
        );
        if let Some(turn) = &status.turn {
            let _ = writeln!(
                text,
                "turn       {}, step {}, model {}",
                turn.number,
                u64::from(turn.step) + 1,
                display::terminal(&turn.model)
            );
        }
        for call in &status.calls {
            let name = call
                .function
                .as_ref()
                .map_or("-", |function| function.as_str());
            let _ = writeln!(
                text,
                "call       {} {}",
                display::terminal(name),
                call.state
            );
        }
        for approval in &status.approvals {
            let _ = writeln!(text, "waits for  {approval}");
        }
        if status.queued > 0 {
            let _ = writeln!(text, "queued     {}", counted(status.queued, "message"));
        }
        self.screen.say(text.trim_end());
        Ok(())
    }

    /// Asks again about everything that waits.
    async fn ask_anew(&mut self) -> Result<(), Failure> {
        self.aside.clear();
        if self.here.pending().is_empty() {
            self.screen.say("nothing waits for a decision");
        }
        self.next_question().await.map(drop)
    }

    fn model_words(&self) -> String {
        let last = self
            .here
            .session
            .turn
            .as_ref()
            .and_then(|turn| turn.model.clone());
        match (&self.set.turn.model, last) {
            (Some(next), _) => format!("model of the next turns: {}", display::terminal(next)),
            (None, Some(last)) => format!("model of the session: {}", display::terminal(&last)),
            (None, None) => "the configured model; /model provider/name chooses another".to_owned(),
        }
    }

    fn cost_words(&self) -> String {
        let session = &self.here.session;
        let cost = money(session.cost, session.cost_is_partial);
        let cost = cost.unwrap_or_else(|| "nothing so far".to_owned());
        format!(
            "{} tokens in {}, {cost}",
            grouped(session.usage.total()),
            counted(session.turns, "turn")
        )
    }

    async fn sessions(&mut self) -> Result<(), Failure> {
        let request = session::ListRequest {
            limit: Some(SESSIONS_SHOWN),
            ..session::ListRequest::default()
        };
        let client = self.client.clone();
        let reply = self
            .patiently(async move { client.sessions(&request).await })
            .await?;
        let lines: Vec<String> = reply.sessions.iter().map(ls::line).collect();
        self.screen.say(&lines.join("\n"));
        Ok(())
    }

    async fn fork(&mut self, at: Option<u64>) -> Result<(), Failure> {
        let request = session::ForkRequest {
            session_id: self.here.id.clone(),
            at,
            new_session_id: Some(SessionId::fresh(uuid::Uuid::now_v7())),
            session: teamster_protocol::input::SessionOptions::default(),
        };
        let client = self.client.clone();
        let reply = self
            .patiently(async move { client.fork(&request).await })
            .await?;
        self.screen.say(&format!(
            "forked; {} stays as it is",
            display::terminal(self.here.id.as_str())
        ));
        self.switch(reply.session_id).await
    }

    async fn switch(&mut self, id: SessionId) -> Result<(), Failure> {
        let (here, past) = Here::load(&self.client, id).await?;
        if here.is_new {
            return Err(Error::NoSession(here.id.to_string()).into());
        }
        self.go(here);
        self.screen.say(&format!(
            "session {}",
            display::terminal(self.here.id.as_str())
        ));
        self.screen
            .say(past::shown(&past, slash::HISTORY).trim_end());
        self.next_question().await.map(drop)
    }

    fn go(&mut self, here: Here) {
        if self.here.is_running() {
            self.screen.note(&format!(
                "the turn of {} goes on",
                display::terminal(self.here.id.as_str())
            ));
        }
        self.question = None;
        self.aside.clear();
        self.here = here;
        self.model = None;
    }

    async fn title(&mut self, title: String) -> Result<(), Failure> {
        let request = session::SetMetaRequest {
            session_id: self.here.id.clone(),
            title: Some(title),
            metadata: std::collections::BTreeMap::new(),
        };
        let client = self.client.clone();
        self.patiently(async move { client.set_meta(&request).await })
            .await?;
        self.screen.say("named");
        Ok(())
    }
}

fn too_long() -> Failure {
    Failure::usage(
        "cli.message_too_long",
        format_args!(
            "the message has more than {} bytes, which is all that is taken",
            teamster_protocol::limits::MESSAGE_BYTES_MAX
        ),
    )
    .hint("put long material into a file of the workspace and name it in the message")
}
