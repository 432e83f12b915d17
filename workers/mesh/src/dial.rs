//! Making a connection: addresses, credentials, reconnection, and the watch over how the link stands.

use std::{path::Path, sync::Arc, time::Duration};

use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event, ServerAddr};
use teamster_protocol::id::{Incarnation, WorkerName};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout_at},
};

use crate::{
    Connect, Error,
    denial::Denials,
    pause::Pauses,
    wire::{Link, deadline},
};

/// Silence after which the server is asked whether it lives; two unanswered questions end the connection.
const PING_EVERY: Duration = Duration::from_secs(2);
/// How long one attempt may take.
const ATTEMPT: Duration = Duration::from_secs(5);
/// Pause before the second attempt.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// The longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Messages of one subscription that wait to be taken; more are lost and reported.
const SUBSCRIPTION_MESSAGES: usize = 65_536;
/// Messages that wait to be written.
const OUTGOING_MESSAGES: usize = 8192;

/// Connects within `patience`. A refused login and an address that cannot be read fail at once; an unreachable server is
/// tried again until the time is over.
pub(crate) async fn dial(
    options: &Connect,
    worker: &WorkerName,
    incarnation: &Incarnation,
    denials: &Arc<Denials>,
    patience: Duration,
) -> Result<(Client, watch::Receiver<Link>), Error> {
    let failed = |source: Box<dyn std::error::Error + Send + Sync>| Error::Connect {
        url: without_password(&options.url),
        source,
    };
    let locked_out = |source: Box<dyn std::error::Error + Send + Sync>| Error::Credentials {
        url: without_password(&options.url),
        source,
    };
    let addresses = addresses(&options.url).map_err(|error| Error::Address {
        url: without_password(&options.url),
        source: Box::new(error),
    })?;
    let deadline = deadline(patience);
    let (sender, link) = watch::channel(Link::default());
    let mut pauses = Pauses::new(PAUSE_MIN, PAUSE_MAX);
    loop {
        let prepared = prepare(options, worker, incarnation, denials, sender.clone())
            .map_err(|error| locked_out(Box::new(error)))?;
        let attempt_deadline = deadline.max(Instant::now() + Duration::from_millis(500));
        let attempt = prepared.connect(addresses.clone());
        let error = match timeout_at(attempt_deadline, attempt).await {
            Ok(Ok(client)) => {
                sender.send_if_modified(|link| !std::mem::replace(&mut link.is_up, true));
                return Ok((client, link));
            }
            Ok(Err(error)) => error,
            Err(elapsed) => return Err(failed(Box::new(elapsed))),
        };
        if matches!(
            error.kind(),
            ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation
        ) {
            return Err(locked_out(Box::new(error)));
        }
        let is_final = matches!(
            error.kind(),
            ConnectErrorKind::ServerParse | ConnectErrorKind::Tls
        );
        let pause = pauses.next();
        if is_final || Instant::now() + pause >= deadline {
            return Err(failed(Box::new(error)));
        }
        tracing::debug!(%error, "the server cannot be reached yet");
        sleep(pause).await;
    }
}

fn prepare(
    options: &Connect,
    worker: &WorkerName,
    incarnation: &Incarnation,
    denials: &Arc<Denials>,
    link: watch::Sender<Link>,
) -> std::io::Result<ConnectOptions> {
    let base = match &options.credentials {
        None => ConnectOptions::new(),
        Some(path) => credentials(path, worker)?,
    };
    let (name, denials) = (worker.clone(), Arc::clone(denials));
    Ok(base
        .name(format!("teamster-{worker}-{incarnation}"))
        .custom_inbox_prefix(inbox(worker))
        .ping_interval(PING_EVERY)
        .connection_timeout(ATTEMPT)
        .subscription_capacity(SUBSCRIPTION_MESSAGES)
        .client_capacity(OUTGOING_MESSAGES)
        .max_reconnects(None)
        .reconnect_delay_callback(pause_before)
        .event_callback(move |event| {
            observe(&name, &event, &denials, &link);
            std::future::ready(())
        }))
}

/// What the subjects of a worker's inboxes begin with.
pub(crate) fn inbox(worker: &WorkerName) -> String {
    format!("_INBOX.{worker}")
}

fn observe(worker: &WorkerName, event: &Event, denials: &Denials, link: &watch::Sender<Link>) {
    match event {
        Event::Connected => {
            denials.forget();
            link.send_modify(|link| link.is_up = true);
            tracing::debug!(%worker, "connected to the broker");
        }
        Event::Disconnected => {
            link.send_modify(|link| {
                link.is_up = false;
                link.losses += 1;
            });
            tracing::warn!(%worker, "the connection to the broker broke; connecting again");
        }
        Event::SlowConsumer(subscription) => {
            tracing::error!(%worker, subscription, "messages were lost: a subscription is not read fast enough");
        }
        Event::ServerError(error) => {
            tracing::warn!(%worker, %error, "the broker reports an error");
            if let Some(denials) = denials.take(&error.to_string()) {
                link.send_modify(|link| link.denials = denials);
            }
        }
        Event::ClientError(error) => {
            tracing::debug!(%worker, %error, "connection attempt failed");
        }
        Event::LameDuckMode | Event::Draining | Event::Closed => {
            tracing::info!(%worker, %event, "the connection changes");
        }
    }
}

/// What the client waits before an attempt, counted from 1 since the last success: nothing before the first.
fn pause_before(attempt: usize) -> Duration {
    let mut pauses = Pauses::new(PAUSE_MIN, PAUSE_MAX);
    // The longest pause is reached long before.
    (1..attempt.min(16))
        .map(|_| pauses.next())
        .last()
        .unwrap_or_default()
}

/// The credentials of `worker`: `<path>/<worker>.creds` in a directory, else the file itself. A file with a token block is a
/// user of an operator's account; one with nothing but a seed is a user that the server's configuration lists by its key.
fn credentials(path: &Path, worker: &WorkerName) -> std::io::Result<ConnectOptions> {
    let file = if path.is_dir() {
        path.join(format!("{worker}.creds"))
    } else {
        path.to_owned()
    };
    let text = std::fs::read_to_string(&file).map_err(|error| {
        std::io::Error::new(
            error.kind(),
            format!("cannot read the credentials {}: {error}", file.display()),
        )
    })?;
    if text.contains("USER JWT") {
        return ConnectOptions::with_credentials(&text);
    }
    seed(&text)
        .map(|seed| ConnectOptions::with_nkey(seed.to_owned()))
        .ok_or_else(|| {
            std::io::Error::new(
                std::io::ErrorKind::InvalidData,
                format!("{} holds no user's seed", file.display()),
            )
        })
}

/// The line that is a user's seed.
fn seed(text: &str) -> Option<&str> {
    text.lines().map(str::trim).find(|line| {
        line.starts_with("SU")
            && line.len() == 58
            && line.bytes().all(|b| b.is_ascii_alphanumeric())
    })
}

/// `connect("a,b")` of the client would read the comma as part of a port.
pub(crate) fn addresses(url: &str) -> std::io::Result<Vec<ServerAddr>> {
    url.split(',')
        .map(str::trim)
        .filter(|one| !one.is_empty())
        .map(str::parse)
        .collect::<Result<Vec<ServerAddr>, _>>()
        .and_then(|all| {
            if all.is_empty() {
                Err(std::io::Error::new(
                    std::io::ErrorKind::InvalidInput,
                    "no server address is given",
                ))
            } else {
                Ok(all)
            }
        })
}

/// The addresses without what stands before an `@`.
fn without_password(url: &str) -> String {
    url.split(',')
        .map(|one| match one.rsplit_once('@') {
            Some((before, host)) => {
                let scheme = before.split_once("://").map_or("", |(scheme, _)| scheme);
                format!(
                    "{scheme}{}{host}",
                    if scheme.is_empty() { "" } else { "://" }
                )
            }
            None => one.to_owned(),
        })
        .collect::<Vec<_>>()
        .join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_one_by_one() {
        let read = addresses("nats://a:1, b:2").expect("two addresses");
        assert_eq!(
            read.iter().map(ServerAddr::port).collect::<Vec<_>>(),
            [1, 2]
        );
        assert!(addresses(" , ").is_err());
        assert!(addresses("nats://a:port").is_err());
    }

    #[test]
    fn passwords_are_not_shown() {
        for (url, want) in [
            ("nats://me:secret@host:1,b:2", "nats://host:1,b:2"),
            ("me:secret@host", "host"),
            ("nats://host", "nats://host"),
        ] {
            assert_eq!(without_password(url), want);
        }
    }

    #[test]
    fn a_seed_is_found_with_and_without_its_frame() {
        let line = format!("SU{}", "A".repeat(56));
        for text in [
            line.clone(),
            format!("-----BEGIN USER NKEY SEED-----\n{line}\n------END USER NKEY SEED------\n"),
        ] {
            assert_eq!(seed(&text), Some(line.as_str()));
        }
        assert_eq!(seed("SUB"), None);
    }

    #[test]
    fn pauses_grow_and_are_bounded() {
        assert_eq!(pause_before(1), Duration::ZERO);
        for attempt in 2..200 {
            let pause = pause_before(attempt);
            assert!(
                pause >= Duration::from_millis(25) && pause <= PAUSE_MAX,
                "{attempt}"
            );
        }
    }
}
