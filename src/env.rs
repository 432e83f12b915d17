//! The environment variables of the command line, in one list.
//!
//! Two more belong to their owners: `TEAMSTER_NATS_SERVER` names the server's executable
//! ([`teamster_mesh::broker::binary::ENV_SERVER`]), `TEAMSTER_LOG` chooses the lines of the log (the crate `telemetry`, which
//! also reads the standard variables of OpenTelemetry, `OTEL_...`).
//!
//! Never: values. Each is read where it is used; keys of providers are references that the router resolves.

/// The data directory. The flag `--data` is stronger.
pub const DATA: &str = "TEAMSTER_DATA";
/// Address of an existing NATS server, comma-separated for a cluster. The flag `--nats` is stronger.
pub const NATS: &str = "TEAMSTER_NATS";
/// Credentials for that server: a directory of `<worker>.creds`, or one file. The flag `--creds` is stronger.
pub const CREDS: &str = "TEAMSTER_CREDS";
/// The model for turns that name none, `provider/model`. Stronger than the configuration file, weaker than `--model`.
pub const MODEL: &str = "TEAMSTER_MODEL";
/// Where `up` and `worker` write their log: `file` (the data directory, the default) or `stderr`.
pub const LOG_TO: &str = "TEAMSTER_LOG_TO";
/// Set to anything: no colours and no cursor movement.
pub const NO_COLOR: &str = "NO_COLOR";
/// Base of the default data directory, by the XDG rules.
pub const XDG_DATA_HOME: &str = "XDG_DATA_HOME";
/// The user's home directory; `.local/share` under it stands in for [`XDG_DATA_HOME`].
pub const HOME: &str = "HOME";
/// The editor for `e` at an approval.
pub const VISUAL: &str = "VISUAL";
/// The editor for `e` at an approval, where [`VISUAL`] is not set.
pub const EDITOR: &str = "EDITOR";
/// `dumb` means no cursor movement.
pub const TERM: &str = "TERM";

/// Variables in which people keep keys of model providers, with the provider that the key belongs to. Only whether one is
/// set is ever looked at, for a hint; nothing is sent to a provider that was not chosen.
pub const PROVIDER_KEYS: [(&str, &str); 4] = [
    ("OPENAI_API_KEY", "openai"),
    ("OPENROUTER_API_KEY", "openrouter"),
    ("ANTHROPIC_API_KEY", "anthropic"),
    ("GEMINI_API_KEY", "gemini"),
];
