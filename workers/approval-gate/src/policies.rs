//! The policy in force: read from its file, read again when that comes, changes or goes, kept when the change is bad.
//!
//! Where there is no file the compiled-in policy is in force alone. What keeps a file from being in force is remembered, so
//! that whoever asks the gate is told.
//!
//! A change that tightens reaches a running turn at its next call; a change that loosens reaches the turns that begin after
//! it. So the gate remembers which policy a turn met first and judges by the stricter of that and the current one. What it
//! remembers is lost with the process; then the current policy alone counts.

use std::{
    collections::{HashMap, VecDeque},
    io::Read as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use arc_swap::{ArcSwap, ArcSwapOption};
use teamster_core::policy::{self, Policy};
use teamster_mesh::config::{Live, Problem, Take, parse};
use teamster_protocol::{Arguments, Contract, TurnId, limits, policy::Judgement};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{Config, Error};

/// The policy in force and those that running turns began with.
pub(crate) struct Policies {
    config: Live<Config>,
    /// The file that was configured at the start.
    home: Option<PathBuf>,
    current: ArcSwap<Policy>,
    note: ArcSwapOption<Note>,
    pins: Mutex<Pins>,
    /// Rung when another section is in force.
    changed: Notify,
}

/// Why the policy in force is not what stands in its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Note {
    /// In words.
    pub(crate) text: String,
    /// Whether the file is gone, so that the compiled-in policy is in force; else the last good one is.
    pub(crate) is_gone: bool,
}

/// The gate's section as a host may replace it: one that names a policy file is taken only where that can be used here, so that
/// whoever sets it is told.
pub(crate) struct Section(pub(crate) Arc<crate::Gate>);

impl Take for Section {
    fn take(&self, section: &serde_json::Value) -> Result<(), Problem> {
        let policies = &self.0.policies;
        let wanted: Config = parse(section)?;
        policies.check(&wanted)?;
        policies.config.take(section)?;
        policies.changed.notify_one();
        Ok(())
    }

    fn in_force(&self) -> serde_json::Value {
        self.0.policies.config.in_force()
    }

    fn cold(&self) -> &'static [&'static str] {
        self.0.policies.config.cold()
    }
}

/// What was in force before a file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    /// No file.
    Nothing,
    /// The same file.
    This,
    /// Another file, or the compiled-in policy by the configuration's own word.
    Another,
}

impl Before {
    /// What counts as before when another file is configured. The file of the start need not have been there, so it need not
    /// be there when it is configured again.
    fn after_change(is_home: bool) -> Self {
        if is_home {
            Self::Nothing
        } else {
            Self::Another
        }
    }
}

#[derive(Default)]
struct Pins {
    by_turn: HashMap<TurnId, Arc<Policy>>,
    order: VecDeque<TurnId>,
}

impl Policies {
    /// Reads the policy of the file that the configuration names. A file that is not there yet is waited for.
    pub(crate) fn load(config: Live<Config>) -> Result<Self, Error> {
        let home = config.load().policy_file.clone();
        let in_file = match &home {
            Some(path) => read(path)?,
            None => None,
        };
        let policy = match in_file {
            Some(policy) => policy,
            None => compiled_in()?,
        };
        Ok(Self {
            config,
            home,
            current: ArcSwap::from_pointee(policy),
            note: ArcSwapOption::empty(),
            pins: Mutex::default(),
            changed: Notify::new(),
        })
    }

    /// Whether the policy file of another section can be used. The file of the start need not be there; every other one must be,
    /// or a slip in its name would take rules away.
    fn check(&self, wanted: &Config) -> Result<(), Problem> {
        let Some(path) = &wanted.policy_file else {
            return Ok(());
        };
        if self.config.load().policy_file.as_ref() == Some(path) {
            return Ok(());
        }
        let problem = match read(path) {
            Ok(Some(_)) => return Ok(()),
            Ok(None) if self.home.as_ref() == Some(path) => return Ok(()),
            Ok(None) => format!(
                "there is no policy file {} on the machine of the gate",
                path.display()
            ),
            Err(error) => teamster_telemetry::chain(&error),
        };
        Err(Problem::of("policy_file", problem))
    }

    /// Judges by the current policy.
    pub(crate) fn judge(
        &self,
        contract: &Contract,
        arguments: &Arguments,
        workspace: Option<&str>,
    ) -> Judgement {
        policy::judge(&self.current.load(), contract, arguments, workspace)
    }

    /// Judges a call of a turn by the stricter of the current policy and the one that the turn met first.
    pub(crate) fn judge_in(
        &self,
        turn: &TurnId,
        contract: &Contract,
        arguments: &Arguments,
        workspace: Option<&str>,
    ) -> Judgement {
        let now = self.judge(contract, arguments, workspace);
        let first = self.pin(turn);
        if first.digest() == now.policy {
            return now;
        }
        policy::stricter(policy::judge(&first, contract, arguments, workspace), now)
    }

    /// Why the policy in force is not what stands in the file now; `None` where it is.
    pub(crate) fn note(&self) -> Option<Note> {
        self.note.load().as_deref().cloned()
    }

    fn pin(&self, turn: &TurnId) -> Arc<Policy> {
        let mut pins = self.pins.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(policy) = pins.by_turn.get(turn) {
            return Arc::clone(policy);
        }
        if pins.order.len() >= limits::POLICY_PINS_MAX
            && let Some(oldest) = pins.order.pop_front()
        {
            pins.by_turn.remove(&oldest);
        }
        let policy = self.current.load_full();
        pins.order.push_back(turn.clone());
        pins.by_turn.insert(turn.clone(), Arc::clone(&policy));
        policy
    }

    /// Reads the file again whenever it comes, changes or goes, and whenever another one is configured, until cancelled. A
    /// revision that cannot be used is reported once and changes nothing.
    pub(crate) async fn watch(&self, cancel: &CancellationToken) {
        let mut file = self.home.clone();
        // Nothing is known of what was read at the start, so the first look reads once more.
        let mut seen = None;
        let mut before = Before::Nothing;
        loop {
            let configured = self.config.load().policy_file.clone();
            if configured != file {
                file = configured;
                (seen, before) = (None, Before::after_change(file == self.home));
            }
            let now = match &file {
                Some(path) => stamp(path).await,
                None => None,
            };
            if seen != Some(now) {
                self.reload(file.as_deref(), before).await;
                seen = Some(now);
                before = match (now, before) {
                    (Some(_), _) => Before::This,
                    // It is still to come.
                    (None, Before::Another) => Before::Another,
                    (None, _) => Before::Nothing,
                };
            }
            tokio::select! {
                () = cancel.cancelled() => return,
                () = self.changed.notified() => {}
                () = tokio::time::sleep(limits::POLICY_POLL_EVERY) => {}
            }
        }
    }

    /// Reads the file again. Without a file the compiled-in policy is in force; but one that takes the place of another must be
    /// there, or a slip in its name would take rules away.
    async fn reload(&self, file: Option<&Path>, before: Before) {
        let owned = file.map(Path::to_owned);
        let read = tokio::task::spawn_blocking(move || -> Result<_, Error> {
            let Some(path) = owned else {
                return Ok((compiled_in()?, true));
            };
            Ok(match read(&path)? {
                Some(policy) => (policy, true),
                None if before == Before::Another => {
                    return Err(Error::Read {
                        path,
                        source: std::io::ErrorKind::NotFound.into(),
                    });
                }
                None => (compiled_in()?, false),
            })
        });
        let trouble = match read.await {
            Ok(Ok((policy, is_there))) => {
                return self.take(policy, file, is_there, before == Before::This);
            }
            Ok(Err(error)) => teamster_telemetry::chain(&error),
            Err(error) => format!("the policy could not be read again: {error}"),
        };
        tracing::error!(error = %trouble, "the changed policy cannot be used; the last good one stays in force");
        self.note.store(Some(Arc::new(Note {
            text: format!("{trouble}; the last good policy stays in force"),
            is_gone: false,
        })));
    }

    fn take(&self, policy: Policy, file: Option<&Path>, is_there: bool, was_there: bool) {
        if is_there {
            self.note.store(None);
        } else if was_there {
            let path = file.unwrap_or(Path::new("")).display();
            tracing::warn!(file = %path, "the policy file is gone; the compiled-in policy is in force");
            self.note.store(Some(Arc::new(Note {
                text: format!("the policy file {path} is gone; the compiled-in policy is in force"),
                is_gone: true,
            })));
        } else {
            self.note.store(None);
        }
        if policy.digest() != self.current.load().digest() {
            tracing::info!(policy = %policy.digest().short(), "the policy has changed");
            self.current.store(Arc::new(policy));
        }
    }
}

/// When the file was changed last, and its length; `None` while it is not there.
async fn stamp(path: &Path) -> Option<(SystemTime, u64)> {
    let metadata = tokio::fs::metadata(path).await.ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

fn compiled_in() -> Result<Policy, Error> {
    Policy::compiled_in().map_err(Error::CompiledIn)
}

/// Reads the policy of a file; `None` where there is no file.
pub(crate) fn read(path: &Path) -> Result<Option<Policy>, Error> {
    let failed = |source| Error::Read {
        path: path.to_owned(),
        source,
    };
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        // A pipe would be waited for without an end.
        Ok(found) if !found.is_file() => {
            return Err(failed(std::io::Error::other("it is no regular file")));
        }
        _ => {}
    }
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut text = String::new();
    // One byte more than allowed, so that a longer file is seen to be longer.
    file.take(limits::YAML_BYTES_MAX as u64 + 1)
        .read_to_string(&mut text)
        .map_err(failed)?;
    Policy::layered(&text)
        .map(Some)
        .map_err(|source| Error::Form {
            path: path.to_owned(),
            source,
        })
}

#[cfg(test)]
mod tests {
    use teamster_protocol::{
        FunctionId,
        contract::{Class, Visibility},
        policy::Effect,
    };

    use teamster_mesh::config::Take as _;
    use teamster_testkit::wait;

    use super::*;

    fn policies(text: &str) -> Policies {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text).expect("written");
        Policies::load(config(file.path())).expect("valid policy")
    }

    fn config(file: &Path) -> Live<Config> {
        Live::new(Config {
            policy_file: Some(file.to_owned()),
        })
    }

    fn contract(class: Class) -> Contract {
        let id = FunctionId::parse("box::run").expect("valid");
        let mut contract = Contract::new::<(), ()>(id, "Runs.");
        contract.class = class;
        contract.visibility = Visibility::Agent;
        contract
    }

    /// SEC-22: a change that tightens reaches a running turn, one that loosens does not.
    #[test]
    fn sec_22_a_running_turn_takes_the_stricter_policy() {
        let (old, new) = (
            TurnId::parse("trn_old").expect("valid"),
            TurnId::parse("trn_new").expect("valid"),
        );
        let policies = policies("{version: 1, defaults: {exec: ask, write: allow}}");
        let effect = |turn: &TurnId, class| {
            policies
                .judge_in(turn, &contract(class), &Arguments::empty(), None)
                .effect
        };
        assert_eq!(
            (effect(&old, Class::Exec), effect(&old, Class::Write)),
            (Effect::Ask, Effect::Allow)
        );
        let changed = Policy::layered("{version: 1, defaults: {exec: allow, write: deny}}")
            .expect("valid policy");
        policies.current.store(Arc::new(changed));
        assert_eq!(
            (effect(&old, Class::Exec), effect(&old, Class::Write)),
            (Effect::Ask, Effect::Deny)
        );
        assert_eq!(
            (effect(&new, Class::Exec), effect(&new, Class::Write)),
            (Effect::Allow, Effect::Deny)
        );
    }

    #[tokio::test]
    async fn a_bad_revision_changes_nothing_and_a_file_that_goes_leaves_the_compiled_in_policy() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("policy.yaml");
        let policies = Policies::load(config(&path)).expect("no file yet");
        for (text, effect, note) in [
            (None, Effect::Ask, None),
            (
                Some("{version: 1, defaults: {exec: deny}}"),
                Effect::Deny,
                None,
            ),
            (
                Some("version: 1\nlayer: []\n"),
                Effect::Deny,
                Some("line 2"),
            ),
            (
                Some("{version: 1, defaults: {exec: allow}}"),
                Effect::Allow,
                None,
            ),
            (
                Some(""),
                Effect::Allow,
                Some("the last good policy stays in force"),
            ),
            (
                None,
                Effect::Ask,
                Some("is gone; the compiled-in policy is in force"),
            ),
            (
                Some("{version: 1, defaults: {exec: deny}}"),
                Effect::Deny,
                None,
            ),
        ] {
            let was_there = path.exists();
            match text {
                Some(text) => std::fs::write(&path, text).expect("written"),
                None if was_there => std::fs::remove_file(&path).expect("removed"),
                None => {}
            }
            let before = if was_there {
                Before::This
            } else {
                Before::Nothing
            };
            policies.reload(Some(&path), before).await;
            let judgement = policies.judge(&contract(Class::Exec), &Arguments::empty(), None);
            assert_eq!(judgement.effect, effect, "{text:?}");
            match (policies.note(), note) {
                (None, None) => {}
                (Some(said), Some(note)) => {
                    assert!(
                        said.text.contains(note) && said.text.contains("policy.yaml"),
                        "{said:?}"
                    );
                    assert_eq!(said.is_gone, text.is_none(), "{said:?}");
                }
                (said, note) => panic!("{text:?}: {said:?} instead of {note:?}"),
            }
        }
    }

    #[tokio::test]
    async fn conf_1_another_file_must_be_there_before_it_counts() {
        let dir = tempfile::tempdir().expect("a folder");
        let (one, two) = (dir.path().join("one.yaml"), dir.path().join("two.yaml"));
        std::fs::write(&one, "{version: 1, defaults: {exec: deny}}").expect("written");
        let policies = Policies::load(config(&one)).expect("valid");
        let effect = || {
            policies
                .judge(&contract(Class::Exec), &Arguments::empty(), None)
                .effect
        };
        policies.reload(Some(&two), Before::Another).await;
        assert_eq!(effect(), Effect::Deny, "the last good policy");
        let note = policies.note().expect("a note");
        assert!(note.text.contains("two.yaml"), "{note:?}");
        std::fs::write(&two, "{version: 1, defaults: {exec: allow}}").expect("written");
        policies.reload(Some(&two), Before::Another).await;
        assert_eq!((effect(), policies.note()), (Effect::Allow, None));
        policies.reload(None, Before::Another).await;
        assert_eq!((effect(), policies.note()), (Effect::Ask, None));
    }

    #[tokio::test]
    async fn conf_1_the_file_of_the_start_need_not_be_there_when_it_is_configured_again() {
        let dir = tempfile::tempdir().expect("a folder");
        let (home, strict) = (
            dir.path().join("policy.yaml"),
            dir.path().join("strict.yaml"),
        );
        std::fs::write(&strict, "{version: 1, defaults: {exec: deny}}").expect("written");
        let live = config(&home);
        let policies = Policies::load(live.clone()).expect("no file yet");
        let cancel = CancellationToken::new();
        let effect = || {
            policies
                .judge(&contract(Class::Exec), &Arguments::empty(), None)
                .effect
        };
        let steps = async {
            for (file, wanted, has_note) in [
                (&strict, Effect::Deny, false),
                (&dir.path().join("nothing.yaml"), Effect::Deny, true),
                (&home, Effect::Ask, false),
            ] {
                let section = serde_json::json!({ "policy_file": file });
                live.take(&section).expect("valid");
                wait::until(
                    limits::POLICY_POLL_EVERY * 20,
                    "the policy is taken",
                    || async { effect() == wanted && policies.note().is_some() == has_note },
                )
                .await;
            }
            cancel.cancel();
        };
        tokio::join!(policies.watch(&cancel), steps);
    }

    /// CONF-1: a file that cannot be used is refused to whoever sets it, and nothing changes; the file of the start need not be there.
    #[test]
    fn conf_1_a_policy_file_that_cannot_be_used_is_not_taken() {
        let dir = tempfile::tempdir().expect("a folder");
        let home = dir.path().join("policy.yaml");
        let at = |name: &str| dir.path().join(name);
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).expect("a socket");
        std::fs::write(at("bad.yaml"), "version: 1\nlayer: []\n").expect("written");
        std::fs::write(at("good.yaml"), "version: 1").expect("written");
        let live = config(&home);
        let section = Section(Arc::new(crate::Gate {
            policies: Policies::load(live.clone()).expect("no file yet"),
            inbox: crate::Inbox::default(),
            burst: Mutex::default(),
        }));
        for (name, problem) in [
            ("good.yaml", None),
            ("nothing.yaml", Some("there is no policy file")),
            ("bad.yaml", Some("line 2")),
            ("socket", Some("no regular file")),
            (".", Some("no regular file")),
            ("policy.yaml", None),
        ] {
            let before = live.load().policy_file.clone();
            let taken = section.take(&serde_json::json!({ "policy_file": at(name) }));
            match (taken, problem) {
                (Ok(()), None) => assert_eq!(live.load().policy_file, Some(at(name))),
                (Err(said), Some(problem)) => {
                    assert!(said.to_string().contains(problem), "{name}: {said}");
                    assert_eq!(said.key.as_deref(), Some("policy_file"));
                    assert_eq!(live.load().policy_file, before);
                }
                (taken, _) => panic!("{name}: {taken:?}"),
            }
        }
    }

    #[test]
    fn the_turns_that_are_remembered_are_bounded() {
        let policies = policies("version: 1");
        for n in 0..limits::POLICY_PINS_MAX + 10 {
            policies.pin(&TurnId::parse(format!("trn_{n}")).expect("valid"));
        }
        let pins = policies.pins.lock().expect("not poisoned");
        assert_eq!(
            (pins.by_turn.len(), pins.order.len()),
            (limits::POLICY_PINS_MAX, limits::POLICY_PINS_MAX)
        );
    }

    #[test]
    fn a_policy_that_cannot_be_used_is_no_policy() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("policy.yaml");
        assert!(matches!(
            Policies::load(config(dir.path())),
            Err(Error::Read { .. })
        ));
        std::fs::write(&path, "version: 1\nlayer: []\n").expect("written");
        let Err(error) = Policies::load(config(&path)) else {
            panic!("a wrong file was taken");
        };
        let text = teamster_telemetry::chain(&error);
        assert!(
            text.contains("line 2") && text.contains("did you mean `layers`?"),
            "{text}"
        );
        std::fs::write(&path, "x".repeat(limits::YAML_BYTES_MAX + 1)).expect("written");
        assert!(matches!(
            Policies::load(config(&path)),
            Err(Error::Form { .. })
        ));
    }
}
