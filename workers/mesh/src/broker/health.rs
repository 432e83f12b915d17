//! What a running server says about itself: whether it is ours, and whether its acknowledgements mean the disk.

use std::{path::Path, time::Duration};

use async_nats::ConnectOptions;
use serde::Deserialize;
use tokio::time::timeout;

use super::{binary, error::Error};
use crate::{credential, dial, permission};

/// How long one question may take, connecting included.
const ASK_LIMIT: Duration = Duration::from_secs(5);

/// Whether what the server has acknowledged survives a power loss.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Durability {
    /// Each write is flushed before it is acknowledged.
    Always,
    /// Writes are flushed this often; a power loss may lose what was acknowledged since.
    Delayed(Duration),
    /// The server has no `JetStream`.
    None,
    /// It could not be asked; the text says why.
    Unknown(String),
}

/// What the server answers, as far as it is looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Settings {
    version: String,
    host: String,
    port: u16,
    max_payload: usize,
    auth_required: bool,
    jetstream: JetStream,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct JetStream {
    config: Option<Store>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Store {
    #[serde(rename = "store_dir")]
    dir: String,
    /// Nanoseconds.
    sync_interval: u64,
    sync_always: bool,
}

impl Settings {
    /// Asks the server at `url` with the credentials of its system account.
    pub(crate) async fn ask(url: &str, system: &Path) -> Result<Self, Error> {
        #[derive(Deserialize)]
        struct Answer {
            data: Settings,
        }
        let failed = |error: Box<dyn std::error::Error + Send + Sync>| Error::Ask(error);
        let seed = credential::read(system)?
            .seed()
            .map_err(|error| failed(Box::new(error)))?;
        let addresses = dial::addresses(url).map_err(|error| failed(Box::new(error)))?;
        let question = async {
            let client = ConnectOptions::with_nkey(seed)
                .name("teamster-broker")
                .custom_inbox_prefix(format!("_INBOX.{}", permission::SYSTEM))
                .connection_timeout(ASK_LIMIT)
                .max_reconnects(1)
                .connect(addresses)
                .await
                .map_err(|error| failed(Box::new(error)))?;
            client
                .request(permission::SETTINGS, "".into())
                .await
                .map_err(|error| failed(Box::new(error)))
        };
        let message = timeout(ASK_LIMIT, question)
            .await
            .map_err(|error| failed(Box::new(error)))??;
        serde_json::from_slice::<Answer>(&message.payload)
            .map(|answer| answer.data)
            .map_err(|error| failed(Box::new(error)))
    }

    /// Whether acknowledgements mean the disk.
    pub(crate) fn durability(&self) -> Durability {
        match &self.jetstream.config {
            None => Durability::None,
            Some(store) if store.sync_always => Durability::Always,
            Some(store) => Durability::Delayed(Duration::from_nanos(store.sync_interval)),
        }
    }

    /// Whether it is the server of this store, new enough, closed to strangers and to other machines, and durable; else
    /// why not.
    pub(crate) fn check(&self, nats: &Path) -> Result<(), Error> {
        let unfit = |reason: String| Err(Error::Unfit { reason });
        let store = self
            .jetstream
            .config
            .as_ref()
            .map_or("", |store| store.dir.as_str());
        match self.durability() {
            Durability::Always => {}
            Durability::Delayed(every) => {
                return unfit(format!(
                    "it flushes writes every {every:?} instead of before each acknowledgement \
                     (sync_interval must be always)"
                ));
            }
            Durability::None => return unfit("JetStream is off".to_owned()),
            Durability::Unknown(why) => return unfit(why),
        }
        if Path::new(store) != nats.join("jetstream") {
            return unfit(format!("it stores in {store}"));
        }
        if binary::Version::parse(&self.version).is_none_or(|v| v < binary::VERSION_OLDEST) {
            return unfit(format!("its version is {}", self.version));
        }
        if self.host != "127.0.0.1" {
            return unfit(format!("it listens on {}", self.host));
        }
        if !self.auth_required {
            return unfit("it lets anybody in".to_owned());
        }
        Ok(())
    }
}

/// Whether what the server at `url` acknowledges survives a power loss. That needs credentials of its system account; for a
/// server that others run there often are none, and the answer is [`Durability::Unknown`].
pub async fn check_durability(url: &str, system: Option<&Path>) -> Durability {
    let Some(system) = system else {
        return Durability::Unknown("there are no credentials of its system account".to_owned());
    };
    match Settings::ask(url, system).await {
        Ok(settings) => settings.durability(),
        Err(error) => Durability::Unknown(match std::error::Error::source(&error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(change: impl FnOnce(&mut Settings, &mut Store)) -> Settings {
        let mut settings = Settings {
            version: "2.15.1".to_owned(),
            host: "127.0.0.1".to_owned(),
            port: 1,
            max_payload: 1,
            auth_required: true,
            jetstream: JetStream::default(),
        };
        let mut store = Store {
            dir: "/d/nats/jetstream".to_owned(),
            sync_interval: 120_000_000_000,
            sync_always: true,
        };
        change(&mut settings, &mut store);
        settings.jetstream.config = Some(store);
        settings
    }

    /// SEC-54: the start is refused when acknowledged data could be lost.
    #[test]
    fn sec_54_only_a_durable_server_of_ours_is_fit() {
        let nats = Path::new("/d/nats");
        settings(|_, _| {}).check(nats).expect("fit");
        let none = Settings::default();
        let rows = [
            (none, "JetStream is off"),
            (settings(|_, store| store.sync_always = false), "every 120s"),
            (
                settings(|_, store| store.dir = "/e/jetstream".to_owned()),
                "stores in /e",
            ),
            (
                settings(|all, _| all.version = "2.10.0".to_owned()),
                "version is 2.10.0",
            ),
            (
                settings(|all, _| all.host = "0.0.0.0".to_owned()),
                "listens on 0.0.0.0",
            ),
            (settings(|all, _| all.auth_required = false), "anybody"),
        ];
        for (settings, want) in rows {
            let error = settings.check(nats).expect_err(want).to_string();
            assert!(error.contains(want), "{error}");
        }
    }
}
