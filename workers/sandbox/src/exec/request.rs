//! What a command is asked for, and what is answered.

use std::{collections::BTreeMap, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use teamster_protocol::limits;

use super::{
    Error,
    group::{Bounds, Hit},
};
use crate::{
    layer::{Layer, Level},
    path::RelPath,
    stage::frame::{self, End, Mask, Spec},
};

/// What to run.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    /// The program and its arguments, one by one: no shell reads them. For a shell line write `["sh", "-c", "..."]`.
    #[schemars(length(min = 1))]
    pub(crate) argv: Vec<String>,
    /// Standard input. Default: none.
    #[serde(default)]
    pub(crate) stdin: Option<String>,
    /// Files for this command alone, laid into `/tmp`: `{"path": "a.py", ...}` is `/tmp/a.py`.
    #[serde(default)]
    pub(crate) files: Vec<FileGiven>,
    /// The working directory, relative to the workspace. Default: the workspace, which lies at `/workspace`.
    #[serde(default)]
    pub(crate) cwd: Option<String>,
    /// Environment variables besides the fixed few (PATH, HOME, LANG, TMPDIR ...).
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    /// Bounds; what is left out has its default.
    #[serde(default)]
    pub(crate) limits: LimitsAsked,
    /// The network: there is none.
    #[serde(default)]
    pub(crate) network: Network,
}

/// A file for one command.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileGiven {
    /// Its path below `/tmp`.
    pub(crate) path: String,
    /// Its content.
    pub(crate) content: String,
}

/// What a command may reach of the network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Network {
    /// Nothing.
    #[default]
    None,
}

/// Bounds that are asked for. Above the most that is allowed, or below the least, the request is refused.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LimitsAsked {
    /// Time in milliseconds. Default 60000, at most 600000.
    #[serde(default)]
    pub(crate) wall_ms: Option<u64>,
    /// Processor time of each process in milliseconds, rounded up to seconds. Default 60000.
    #[serde(default)]
    pub(crate) cpu_ms: Option<u64>,
    /// Memory in bytes. Default 1 GiB.
    #[serde(default)]
    pub(crate) memory_bytes: Option<u64>,
    /// Processes and threads. Default 128.
    #[serde(default)]
    pub(crate) processes: Option<u64>,
    /// Bytes of one file that it writes. Default 256 MiB.
    #[serde(default)]
    pub(crate) file_bytes: Option<u64>,
    /// Bytes of output in the answer; more is read and counted, and only its beginning and end are kept. Default and most:
    /// 24576.
    #[serde(default)]
    pub(crate) output_bytes: Option<u64>,
}

/// How it went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Reply {
    /// How the command ended.
    pub(crate) status: Status,
    /// Standard output.
    pub(crate) stdout: Stream,
    /// Standard error.
    pub(crate) stderr: Stream,
    /// How long it took.
    pub(crate) duration_ms: u64,
    /// Bounds that were met without ending the command: a process was killed for memory, or could not be started.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) limits_hit: Vec<String>,
    /// The layers that it ran behind.
    pub(crate) layers: Layers,
}

/// Which layers held. By name alone: a model reads each answer; `sandbox::info` says how far each goes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Layers {
    /// Those that held.
    held: Vec<Layer>,
    /// Those that this host does not have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing: Vec<Layer>,
}

impl FromIterator<Level> for Layers {
    fn from_iter<I: IntoIterator<Item = Level>>(levels: I) -> Self {
        let (held, missing): (Vec<Level>, Vec<Level>) =
            levels.into_iter().partition(|level| level.holds);
        let names = |levels: Vec<Level>| levels.into_iter().map(|level| level.name).collect();
        Self {
            held: names(held),
            missing: names(missing),
        }
    }
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Status {
    /// By itself.
    Exited {
        /// Its exit code.
        code: i32,
    },
    /// By a signal.
    Signaled {
        /// Its number.
        signal: i32,
        /// Its name.
        name: String,
    },
    /// Its time was over, and every process of it was ended.
    TimedOut,
    /// It went beyond a bound.
    Limit {
        /// Which one.
        which: &'static str,
    },
    /// It is not there or cannot be run; nothing happened.
    NotStarted {
        /// Why.
        reason: String,
    },
}

/// One stream of output.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Stream {
    /// Its text; unreadable bytes are replaced, control characters are shown as pictures.
    pub(crate) text: String,
    /// Bytes that were written.
    pub(crate) bytes: u64,
    /// Bytes that are missing in the text, where it says so.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) left_out: u64,
    /// Whether it is no text.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) binary: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// A request that can be met.
#[derive(Debug)]
pub(super) struct Order {
    /// The working directory below the workspace.
    pub(super) cwd: RelPath,
    /// How long it may run.
    pub(super) wall: Duration,
    request: Request,
    limits: frame::Limits,
    bounds: Bound,
}

/// Bounds that the worker itself keeps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound {
    /// Those of the control group.
    pub(super) group: Bounds,
    /// Bytes of output in the answer.
    pub(super) output_bytes: usize,
}

impl Request {
    /// Refuses what cannot be meant or is too much.
    pub(super) fn check(self) -> Result<Order, Error> {
        let refuse = |text: String| Err(Error::Request(text));
        if self.argv.is_empty() {
            return refuse(
                "argv is empty: name a program, for example [\"ls\", \"-l\"]".to_owned(),
            );
        }
        let bytes: usize = self.argv.iter().map(String::len).sum();
        if self.argv.len() > limits::EXEC_ARGS_MAX || bytes > limits::EXEC_ARGS_BYTES_MAX {
            return refuse(format!(
                "argv is too long: at most {} arguments of {} bytes together; put long input into `stdin` or `files`",
                limits::EXEC_ARGS_MAX,
                limits::EXEC_ARGS_BYTES_MAX
            ));
        }
        let env_bytes: usize = self
            .env
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        if self.env.len() > limits::EXEC_ENV_MAX || env_bytes > limits::EXEC_ENV_BYTES_MAX {
            return refuse(format!(
                "env is too large: at most {} variables of {} bytes together",
                limits::EXEC_ENV_MAX,
                limits::EXEC_ENV_BYTES_MAX
            ));
        }
        let is_name = |name: &str| {
            name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        };
        if let Some(name) = self.env.keys().find(|name| !is_name(name)) {
            return refuse(format!("env: {name:?} is no name of a variable"));
        }
        let has_nul = self
            .argv
            .iter()
            .chain(self.env.values())
            .any(|text| text.contains('\0'));
        if has_nul {
            return refuse(
                "argv and env cannot hold a NUL character; `stdin` and `files` can".to_owned(),
            );
        }
        let stdin = self.stdin.as_ref().map_or(0, String::len);
        if stdin > limits::EXEC_STDIN_BYTES_MAX {
            return refuse(format!(
                "stdin has more than {} bytes",
                limits::EXEC_STDIN_BYTES_MAX
            ));
        }
        let file_bytes: usize = self.files.iter().map(|file| file.content.len()).sum();
        if self.files.len() > limits::EXEC_FILES_MAX || file_bytes > limits::EXEC_FILES_BYTES_MAX {
            return refuse(format!(
                "files are too much: at most {} of {} bytes together",
                limits::EXEC_FILES_MAX,
                limits::EXEC_FILES_BYTES_MAX
            ));
        }
        for file in &self.files {
            if RelPath::parse(&file.path)?.is_root() {
                return refuse("files: `.` is no file".to_owned());
            }
        }
        let cwd = self
            .cwd
            .as_deref()
            .map_or(Ok(RelPath::root()), RelPath::parse)?;
        match self.network {
            // The only choice, and what every command gets.
            Network::None => {}
        }
        let (limits, wall, bounds) = self.limits.check()?;
        Ok(Order {
            cwd,
            wall,
            request: self,
            limits,
            bounds,
        })
    }
}

impl LimitsAsked {
    fn check(self) -> Result<(frame::Limits, Duration, Bound), Error> {
        let within = |name: &str, asked: Option<u64>, default: u64, range: (u64, u64)| {
            let (least, most) = range;
            match asked.unwrap_or(default) {
                value if (least..=most).contains(&value) => Ok(value),
                value => Err(Error::Request(format!(
                    "limits.{name} is {value}; it must lie between {least} and {most}"
                ))),
            }
        };
        let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let most = ms(limits::EXEC_WALL_MAX);
        let output = limits::EXEC_OUTPUT_BYTES_MAX as u64;
        let wall_ms = within("wall_ms", self.wall_ms, ms(limits::EXEC_WALL), (1, most))?;
        let cpu_ms = within("cpu_ms", self.cpu_ms, ms(limits::EXEC_CPU), (1, most))?;
        let memory_bytes = within(
            "memory_bytes",
            self.memory_bytes,
            limits::EXEC_MEMORY_BYTES,
            limits::EXEC_MEMORY_RANGE,
        )?;
        let processes = within(
            "processes",
            self.processes,
            limits::EXEC_PROCESSES,
            (1, limits::EXEC_PROCESSES_MAX),
        )?;
        let file_bytes = within(
            "file_bytes",
            self.file_bytes,
            limits::EXEC_FILE_BYTES,
            (0, limits::EXEC_FILE_BYTES_MAX),
        )?;
        let output_bytes = within("output_bytes", self.output_bytes, output, (0, output))?;
        let output_bytes = usize::try_from(output_bytes).unwrap_or(usize::MAX);
        let limits = frame::Limits {
            wall_ms,
            cpu_seconds: cpu_ms.div_ceil(1000),
            memory_bytes,
            processes,
            file_bytes,
            kept_bytes: output_bytes,
        };
        let bounds = Bound {
            group: Bounds {
                memory_bytes,
                processes,
            },
            output_bytes,
        };
        Ok((limits, Duration::from_millis(wall_ms), bounds))
    }
}

impl Order {
    /// What the stages are told, and what the worker keeps to itself.
    pub(super) fn into_spec(
        self,
        layers: &[Layer],
        workspace: &str,
        masks: Vec<Mask>,
        shown: &[String],
        wall: Duration,
    ) -> (Spec, Bound) {
        let spec = Spec {
            layers: layers.to_vec(),
            workspace: Some(workspace.to_owned()),
            cwd: self.cwd.as_str().to_owned(),
            masks,
            shown: shown.to_vec(),
            files: self
                .request
                .files
                .into_iter()
                .map(|file| (file.path, file.content))
                .collect(),
            stdin: self.request.stdin.unwrap_or_default(),
            argv: self.request.argv,
            env: self.request.env.into_iter().collect(),
            limits: frame::Limits {
                wall_ms: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX),
                ..self.limits
            },
        };
        (spec, self.bounds)
    }
}

/// What an end means, with the bounds that the control group saw.
pub(super) fn status(end: End, hit: Hit) -> Status {
    match end {
        End::Exited(code) => Status::Exited { code },
        End::Signaled(9) if hit.memory => Status::Limit {
            which: "memory_bytes",
        },
        End::Signaled(signal) => Status::Signaled {
            signal,
            name: nix::sys::signal::Signal::try_from(signal)
                .map_or_else(|_| "unknown".to_owned(), |signal| signal.to_string()),
        },
        End::CpuLimit => Status::Limit { which: "cpu_ms" },
        End::FileLimit => Status::Limit {
            which: "file_bytes",
        },
        End::NotStarted(reason) => Status::NotStarted { reason },
        End::TimedOut | End::Cancelled => Status::TimedOut,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str) -> Result<Order, String> {
        let request: Request = serde_json::from_str(json).map_err(|error| error.to_string())?;
        request.check().map_err(|error| error.to_string())
    }

    #[test]
    fn what_cannot_be_meant_is_refused_by_name() {
        for (bad, why) in [
            ("{}", "argv"),
            (r#"{"argv": []}"#, "argv is empty"),
            (r#"{"argv": ["a\u0000b"]}"#, "NUL"),
            (r#"{"argv": ["a"], "cwd": "../x"}"#, ".."),
            (r#"{"argv": ["a"], "cwd": "/etc"}"#, "relative"),
            (r#"{"argv": ["a"], "env": {"A=B": "c"}}"#, "A=B"),
            (r#"{"argv": ["a"], "env": {"": "c"}}"#, "no name"),
            (
                r#"{"argv": ["a"], "files": [{"path": "../x", "content": ""}]}"#,
                "..",
            ),
            (
                r#"{"argv": ["a"], "files": [{"path": ".", "content": ""}]}"#,
                "no file",
            ),
            (r#"{"argv": ["a"], "limits": {"wall_ms": 0}}"#, "wall_ms"),
            (
                r#"{"argv": ["a"], "limits": {"wall_ms": 600001}}"#,
                "wall_ms",
            ),
            (
                r#"{"argv": ["a"], "limits": {"memory_bytes": 1}}"#,
                "memory_bytes",
            ),
            (
                r#"{"argv": ["a"], "limits": {"processes": 100000}}"#,
                "processes",
            ),
            (
                r#"{"argv": ["a"], "limits": {"output_bytes": 24577}}"#,
                "output_bytes",
            ),
            (r#"{"argv": ["a"], "limits": {"wall": 1}}"#, "unknown field"),
            (r#"{"argv": ["a"], "network": "host"}"#, "unknown variant"),
            (r#"{"argv": ["a"], "workspace": "/"}"#, "unknown field"),
        ] {
            let error = check(bad).expect_err(bad);
            assert!(error.contains(why), "{bad}: {error}");
        }
    }

    #[test]
    fn what_is_left_out_has_its_default() {
        let order = check(r#"{"argv": ["a"]}"#).expect("valid");
        assert_eq!(order.wall, limits::EXEC_WALL);
        assert_eq!(order.limits.processes, limits::EXEC_PROCESSES);
        assert!(order.cwd.is_root());
        let order = check(
            r#"{"argv": ["a"], "cwd": "./x//y", "limits": {"cpu_ms": 1001}, "network": "none"}"#,
        );
        let order = order.expect("valid");
        assert_eq!((order.cwd.as_str(), order.limits.cpu_seconds), ("x/y", 2));
    }

    #[test]
    fn a_kill_for_memory_is_told_from_any_other() {
        let hit = Hit {
            memory: true,
            processes: false,
        };
        assert_eq!(
            status(End::Signaled(9), hit),
            Status::Limit {
                which: "memory_bytes"
            }
        );
        let name = "SIGKILL".to_owned();
        assert_eq!(
            status(End::Signaled(9), Hit::default()),
            Status::Signaled { signal: 9, name }
        );
        assert_eq!(status(End::Exited(3), hit), Status::Exited { code: 3 });
    }
}
