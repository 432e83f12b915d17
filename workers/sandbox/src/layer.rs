//! The layers that a command runs behind, by name.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One layer of isolation.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// A user namespace of its own, and a second one inside of which there is no third.
    UserNs,
    /// A process namespace of its own, which ends as one.
    PidNs,
    /// A root of its own, with what programs need of the host, read-only.
    MountNs,
    /// A network namespace without any interface that is up.
    NetNs,
    /// Namespaces of its own for System V IPC and POSIX queues.
    IpcNs,
    /// A host name of its own.
    UtsNs,
    /// A view of control groups that begins at its own.
    CgroupNs,
    /// Landlock rules, which hold for every path whatever is mounted where.
    Landlock,
    /// A filter of system calls.
    Seccomp,
    /// A control group that bounds memory and processes of the whole tree.
    Cgroup,
}

impl Layer {
    /// All of them, in the order in which they are put up.
    pub const ALL: [Self; 10] = [
        Self::Cgroup,
        Self::UserNs,
        Self::PidNs,
        Self::MountNs,
        Self::IpcNs,
        Self::UtsNs,
        Self::CgroupNs,
        Self::NetNs,
        Self::Landlock,
        Self::Seccomp,
    ];

    /// The layers without which no command runs unless the configuration says otherwise.
    pub const MINIMUM: [Self; 6] = [
        Self::UserNs,
        Self::PidNs,
        Self::MountNs,
        Self::NetNs,
        Self::Landlock,
        Self::Seccomp,
    ];

    /// The layers without which no command runs whatever the configuration says: how a command ends, and what it sees, rest
    /// on them.
    pub const ALWAYS: [Self; 3] = [Self::UserNs, Self::PidNs, Self::MountNs];

    /// The name in configuration and answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::UserNs => "user_ns",
            Self::PidNs => "pid_ns",
            Self::MountNs => "mount_ns",
            Self::NetNs => "net_ns",
            Self::IpcNs => "ipc_ns",
            Self::UtsNs => "uts_ns",
            Self::CgroupNs => "cgroup_ns",
            Self::Landlock => "landlock",
            Self::Seccomp => "seccomp",
            Self::Cgroup => "cgroup",
        }
    }

    /// The layer of a name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|layer| layer.name() == name)
    }

    /// What to do on a host where it is missing.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::UserNs => {
                "allow user namespaces: sysctl user.max_user_namespaces above 0, on Ubuntu \
                 kernel.apparmor_restrict_unprivileged_userns=0, in a container a seccomp profile that permits unshare"
            }
            Self::PidNs | Self::IpcNs | Self::UtsNs | Self::CgroupNs => {
                "use a kernel with all namespaces, and in a container a seccomp profile that permits unshare"
            }
            Self::MountNs => {
                "permit mounts inside user namespaces; in a container, run it with an unmasked /proc \
                 (systempaths=unconfined) or run the sandbox worker on the host"
            }
            Self::NetNs => {
                "use a kernel with network namespaces (sysctl user.max_net_namespaces above 0)"
            }
            Self::Landlock => {
                "use Linux 6.2 or newer with Landlock switched on (lsm=landlock,... on the kernel's command line)"
            }
            Self::Seccomp => {
                "use a kernel with seccomp filters (CONFIG_SECCOMP_FILTER) on x86-64 or aarch64"
            }
            Self::Cgroup => {
                "let the worker make control groups below its own: run it in a systemd unit with Delegate=yes, or as root"
            }
        }
    }
}

/// How a layer stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Level {
    /// The layer.
    pub name: Layer,
    /// Whether it holds.
    pub holds: bool,
    /// How far it goes, or why it does not hold.
    pub level: String,
}

impl Level {
    /// A layer that holds.
    pub(crate) fn holds(name: Layer, level: impl Into<String>) -> Self {
        Self {
            name,
            holds: true,
            level: level.into(),
        }
    }

    /// A layer that does not.
    pub(crate) fn missing(name: Layer, why: impl Into<String>) -> Self {
        Self {
            name,
            holds: false,
            level: why.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_has_one_name_everywhere() {
        for layer in Layer::ALL {
            let json = serde_json::to_value(layer).expect("a name");
            assert_eq!(json, layer.name());
            assert_eq!(Layer::parse(layer.name()), Some(layer));
            assert!(!layer.remedy().is_empty());
        }
        assert_eq!(Layer::parse("selinux"), None);
    }
}
