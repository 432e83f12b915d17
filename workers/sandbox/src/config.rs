//! What of the worker is configuration.

use std::path::{Component, Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use teamster_mesh::config::{Problem, Section};

use crate::{layer::Layer, protected::Protected};

/// The section `sandbox` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Globs of files that no file function opens or names, and that commands do not see. It should hold every target glob
    /// that the policy puts behind a deny or an ask for reading, so that a search does not show what a read would have asked
    /// about. Default: the globs of the policy's layer `secrets`.
    pub protected: Protected,
    /// Layers of isolation without which no command runs. Default: all namespaces that hide something, Landlock, seccomp.
    pub minimum: Minimum,
    /// Paths of the host that commands see read-only besides /usr, for example a tool chain below /opt.
    pub shown: Shown,
    /// Whether control groups are made for commands where the worker may make them. Without them bounds of memory and
    /// processes hold for each process and user, not for a command as a whole. Default: yes.
    pub control_groups: bool,
    /// The executable that runs the stages of a command. Default: this one, which must then call
    /// [`crate::stage::main`] before anything else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub helper: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            protected: Protected::default(),
            minimum: Minimum::default(),
            shown: Shown::default(),
            control_groups: true,
            helper: None,
        }
    }
}

/// Layers without which no command runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Vec<Layer>", into = "Vec<Layer>")]
#[schemars(with = "Vec<Layer>")]
pub struct Minimum(Vec<Layer>);

impl Minimum {
    /// The layers.
    pub fn layers(&self) -> &[Layer] {
        &self.0
    }
}

impl Default for Minimum {
    fn default() -> Self {
        Self(Layer::MINIMUM.to_vec())
    }
}

impl From<Minimum> for Vec<Layer> {
    fn from(minimum: Minimum) -> Self {
        minimum.0
    }
}

impl TryFrom<Vec<Layer>> for Minimum {
    type Error = String;

    fn try_from(layers: Vec<Layer>) -> Result<Self, String> {
        match Layer::ALWAYS.iter().find(|layer| !layers.contains(layer)) {
            None => Ok(Self(layers)),
            Some(layer) => Err(format!(
                "sandbox.minimum must name {}: without it no command runs",
                layer.name()
            )),
        }
    }
}

/// Paths of the host that commands see.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
#[schemars(with = "Vec<String>")]
pub struct Shown(Vec<String>);

impl Shown {
    /// The paths.
    pub(crate) fn paths(&self) -> &[String] {
        &self.0
    }
}

impl From<Shown> for Vec<String> {
    fn from(shown: Shown) -> Self {
        shown.0
    }
}

/// Places of the command's own root, which nothing of the host may take.
const OWN: [&str; 6] = ["proc", "sys", "dev", "tmp", "workspace", "run"];

impl TryFrom<Vec<String>> for Shown {
    type Error = String;

    fn try_from(paths: Vec<String>) -> Result<Self, String> {
        for text in &paths {
            let mut parts = Path::new(text).components();
            let first = match (parts.next(), parts.next()) {
                (Some(Component::RootDir), Some(Component::Normal(first))) => first.to_str(),
                _ => None,
            };
            let is_plain = parts.all(|part| matches!(part, Component::Normal(_)));
            if !is_plain || first.is_none_or(|first| OWN.contains(&first)) {
                return Err(format!(
                    "sandbox.shown: {text:?} cannot be shown to commands; name an absolute path such as /opt, outside of /{}",
                    OWN.join(", /")
                ));
            }
        }
        Ok(Self(paths))
    }
}

impl Section for Config {
    // What decides over the host's own protection is not for the whole mesh to set.
    const LOCAL: &'static [&'static str] = &["helper", "shown", "minimum", "control_groups"];

    // Globs, layers and paths are checked where they are read, and what is wrong is not read.
    fn check(&self) -> Result<(), Problem> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_that_would_weaken_what_everything_rests_on_is_refused() {
        let parse = serde_json::from_str::<Config>;
        assert_eq!(parse("{}").expect("valid"), Config::default());
        let config = parse(
            r#"{"minimum": ["user_ns", "pid_ns", "mount_ns", "cgroup"], "shown": ["/opt/tools"]}"#,
        );
        let config = config.expect("valid");
        assert!(config.minimum.layers().contains(&Layer::Cgroup));
        assert_eq!(config.shown.paths(), ["/opt/tools"]);
        for (bad, why) in [
            (r#"{"minimum": ["landlock", "seccomp"]}"#, "user_ns"),
            (r#"{"minimum": ["user_ns", "pid_ns"]}"#, "mount_ns"),
            (r#"{"minimum": ["selinux"]}"#, "unknown variant"),
            (r#"{"shown": ["/"]}"#, "cannot be shown"),
            (r#"{"shown": ["opt"]}"#, "cannot be shown"),
            (r#"{"shown": ["/opt/../etc"]}"#, "cannot be shown"),
            (r#"{"shown": ["/proc/1"]}"#, "cannot be shown"),
            (r#"{"shown": [""]}"#, "cannot be shown"),
        ] {
            let error = parse(bad).expect_err(bad).to_string();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }
}
