//! The server's configuration file, generated whole at each start.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::Path,
};

use teamster_protocol::{Digest, limits};

use super::{data::DataDir, error::Error, grant::Grants};
use crate::permission::{self, Permissions};

/// The name of the account that all workers share.
const ACCOUNT: &str = "TEAMSTER";
/// Bytes of all streams on disk.
const STORE_BYTES_MAX: u64 = 64 << 30;
/// Bytes of all streams in memory.
const MEMORY_BYTES_MAX: u64 = 512 << 20;
/// Bytes of one log file of the server, and how many of them are kept.
const LOG_BYTES_MAX: u64 = 16 << 20;
const LOG_FILES_MAX: u32 = 4;
/// Connections, of workers and of clients.
const CONNECTIONS_MAX: u32 = 4096;
/// Seconds in which a client must log in; more than the default, for machines that are busy with tests or builds.
const LOGIN_SECONDS: u32 = 10;

/// What the configuration says, apart from the port.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// Everything but the address to listen on.
    text: String,
}

impl Config {
    /// The configuration of a data directory's server. `keys` are the public keys of the house's users, `grants` the workers
    /// from outside.
    pub(crate) fn new(
        data: &DataDir,
        keys: &BTreeMap<String, String>,
        grants: &Grants,
    ) -> Result<Self, Error> {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "ports_file_dir: {ports}\n\
             server_name: teamster\n\
             max_payload: {payload}\n\
             max_connections: {CONNECTIONS_MAX}\n\
             log_file: {log}\n\
             logfile_size_limit: {LOG_BYTES_MAX}\n\
             logfile_max_num: {LOG_FILES_MAX}\n\
             authorization {{ timeout: {LOGIN_SECONDS} }}\n\
             jetstream {{\n  \
               store_dir: {store}\n  \
               # An acknowledgement means that the disk has it.\n  \
               sync_interval: always\n  \
               max_file_store: {STORE_BYTES_MAX}\n  \
               max_memory_store: {MEMORY_BYTES_MAX}\n\
             }}\n",
            ports = quoted(&data.nats())?,
            payload = limits::PAYLOAD_BYTES_MAX,
            log = quoted(&data.log().join("nats-server.log"))?,
            store = quoted(&data.nats())?,
        );
        text.push_str(&accounts(keys, grants));
        Ok(Self { text })
    }

    /// The file's text. Without a port the server chooses a free one.
    pub(crate) fn render(&self, port: Option<u16>) -> String {
        let port = port.map_or("-1".to_owned(), |port| port.to_string());
        format!(
            "# Written anew by `teamster up` at each start.\nlisten: \"127.0.0.1:{port}\"\n{}",
            self.text
        )
    }

    /// Two servers with the same digest accept the same users with the same rights, and store in the same place in the
    /// same way.
    pub(crate) fn digest(&self) -> Digest {
        Digest::of(&self.text)
    }
}

/// Who may connect, and who may do what: the system's account and the one that all workers share.
pub(super) fn accounts(keys: &BTreeMap<String, String>, grants: &Grants) -> String {
    let mut text = "system_account: SYS\naccounts {\n  SYS {\n    users: [\n".to_owned();
    if let Some(key) = keys.get(permission::SYSTEM) {
        text.push_str(&user_block(permission::SYSTEM, key, &permission::system()));
    }
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "    ]\n  }}\n  {ACCOUNT} {{\n    jetstream: enabled\n    users: ["
    );
    for user in permission::users() {
        if let (Some(key), Some(rights)) = (keys.get(user), permission::of(user)) {
            text.push_str(&user_block(user, key, &rights));
        }
    }
    for (name, grant) in &grants.workers {
        text.push_str(&super::grant::block(name, grant));
    }
    text.push_str("    ]\n  }\n}\n");
    text
}

/// One user of the configuration. All that stands in it is ours or was read as a name or a key.
pub(super) fn user_block(user: &str, key: &str, rights: &Permissions) -> String {
    let list = |subjects: &BTreeSet<String>| {
        subjects.iter().fold(String::new(), |mut list, subject| {
            let _ = write!(list, "\n            \"{subject}\"");
            list
        })
    };
    let answers = rights.answers.map_or(String::new(), |(count, within)| {
        format!(
            "          allow_responses: {{ max: {count}, expires: \"{}s\" }}\n",
            within.as_secs()
        )
    });
    format!(
        "      # {user}\n      {{ nkey: {key}\n        permissions: {{\n          publish: {{ allow: [{}\n          ] }}\n          subscribe: {{ allow: [{}\n          ] }}\n{answers}        }}\n      }}\n",
        list(&rights.publish),
        list(&rights.subscribe),
    )
}

/// A path as a string of the configuration.
fn quoted(path: &Path) -> Result<String, Error> {
    match path.to_str() {
        Some(text) if !text.contains(char::is_control) => Ok(format!(
            "\"{}\"",
            text.replace('\\', "\\\\").replace('"', "\\\"")
        )),
        _ => Err(Error::Path {
            path: path.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(dir: &Path) -> Result<Config, Error> {
        let keys = permission::users()
            .chain([permission::SYSTEM])
            .map(|user| (user.to_owned(), format!("KEY_{user}")))
            .collect();
        Config::new(&DataDir::open(dir)?, &keys, &Grants::default())
    }

    #[test]
    fn the_server_listens_on_the_loopback_and_nothing_else() {
        let dir = tempfile::tempdir().expect("a folder");
        let text = config(dir.path()).expect("made").render(Some(4711));
        assert!(text.contains("\nlisten: \"127.0.0.1:4711\"\n"), "{text}");
        for word in [
            "http",
            "websocket",
            "mqtt",
            "leaf",
            "cluster",
            "gateway",
            "no_auth_user",
        ] {
            assert!(!text.contains(word), "{word}");
        }
        assert_eq!(text.matches("sync_interval: always").count(), 1);
        assert_eq!(
            text.matches("nkey: KEY_").count(),
            permission::users().count() + 1
        );
    }

    #[test]
    fn the_port_is_no_part_of_the_digest() {
        let dir = tempfile::tempdir().expect("a folder");
        let config = config(dir.path()).expect("made");
        assert_ne!(config.render(Some(1)), config.render(None));
        assert!(config.render(None).contains("127.0.0.1:-1"));
        assert_eq!(config.digest(), config.clone().digest());
    }

    #[test]
    fn a_path_with_quotes_is_escaped_and_one_with_a_line_end_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        let text = config(&dir.path().join("a\"b\\c d$e"))
            .expect("made")
            .render(None);
        assert!(text.contains("a\\\"b\\\\c d$e/nats\""), "{text}");
        assert!(matches!(
            config(&dir.path().join("a\nb")),
            Err(Error::Path { .. })
        ));
    }
}
