//! Control groups: bounds of memory and processes for the whole tree of a command, where the worker may make groups.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use super::Error;

/// How the names of groups of ours begin; the worker's process id follows.
const PREFIX: &str = "teamster-exec-";
/// How long a group may take to become empty once its processes were killed.
const EMPTY_MAX: Duration = Duration::from_secs(2);
/// Processes of ours in a group besides those of the command: `outer` and `init`.
const STAGES: u64 = 2;

/// What a group bounds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Memory of all processes together, in bytes.
    pub(super) memory_bytes: u64,
    /// Processes and threads.
    pub(super) processes: u64,
}

/// Where groups are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Groups {
    /// One directory for each controller.
    V1 {
        /// The worker's own group of memory.
        memory: PathBuf,
        /// The worker's own group of processes.
        pids: PathBuf,
    },
    /// One directory for both.
    V2(PathBuf),
}

impl Groups {
    /// Where this process may make groups that bound something; found by making one.
    pub(super) fn detect() -> Option<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        candidates(&own, &mounts).into_iter().find(|groups| {
            groups.sweep();
            let bounds = Bounds {
                memory_bytes: 64 * 1024 * 1024,
                processes: 8,
            };
            groups.make(&bounds).is_ok()
        })
    }

    /// How far they go, in words.
    pub(super) fn level(&self) -> String {
        match self {
            Self::V1 { .. } => "v1: memory, pids".to_owned(),
            Self::V2(_) => "v2: memory, pids".to_owned(),
        }
    }

    fn parents(&self) -> Vec<&Path> {
        match self {
            Self::V1 { memory, pids } => vec![memory, pids],
            Self::V2(parent) => vec![parent],
        }
    }

    /// Removes groups of workers that were killed. One that is not empty stays: the kernel refuses.
    fn sweep(&self) {
        for parent in self.parents() {
            for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
                let name = entry.file_name();
                let owner = name
                    .to_str()
                    .and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
                if owner.is_some_and(|owner| !Path::new("/proc").join(owner).exists()) {
                    let _ = fs::remove_dir(entry.path());
                }
            }
        }
    }

    /// Makes a group with its bounds, or nothing.
    pub(super) fn make(&self, bounds: &Bounds) -> Result<Group, Error> {
        let mut group = Group {
            dirs: Vec::new(),
            is_v2: matches!(self, Self::V2(_)),
        };
        group
            .fill(self, &free_name(), bounds)
            .map_err(|error| Error::Stage(format!("a control group: {error}")))?;
        Ok(group)
    }
}

/// The group of one command. Dropping it kills what is in it and removes it.
#[derive(Debug)]
pub(super) struct Group {
    /// One directory for each controller: memory, then processes; with v2 one for both.
    dirs: Vec<PathBuf>,
    is_v2: bool,
}

/// Bounds that were met.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Hit {
    /// A process was killed for memory.
    pub(super) memory: bool,
    /// A process was not made.
    pub(super) processes: bool,
}

impl Hit {
    /// Their names.
    pub(super) fn names(self) -> Vec<String> {
        [(self.memory, "memory_bytes"), (self.processes, "processes")]
            .into_iter()
            .filter(|(hit, _)| *hit)
            .map(|(_, name)| name.to_owned())
            .collect()
    }
}

impl Group {
    fn fill(&mut self, groups: &Groups, name: &str, bounds: &Bounds) -> io::Result<()> {
        let memory = bounds.memory_bytes.to_string();
        let pids = bounds.processes.saturating_add(STAGES).to_string();
        for parent in groups.parents() {
            let dir = parent.join(name);
            fs::create_dir(&dir)?;
            self.dirs.push(dir);
        }
        if self.is_v2 {
            self.set(0, ("memory", "max"), &memory)?;
            self.set(0, ("pids", "max"), &pids)?;
            // Not every kernel accounts for swap.
            let _ = self.set(0, ("memory", "swap.max"), "0");
        } else {
            self.set(0, ("memory", "limit_in_bytes"), &memory)?;
            let _ = self.set(0, ("memory", "memsw.limit_in_bytes"), &memory);
            self.set(1, ("pids", "max"), &pids)?;
        }
        Ok(())
    }

    fn set(&self, dir: usize, file: (&str, &str), value: &str) -> io::Result<()> {
        let dir = self.dirs.get(dir).ok_or(io::ErrorKind::NotFound)?;
        // Opened, never made: a controller that is not there has no such file.
        io::Write::write_all(
            &mut fs::File::options().write(true).open(dir.join(name(file)))?,
            value.as_bytes(),
        )
    }

    /// Takes a process in, and with it all that it starts.
    pub(super) fn add(&self, pid: u32) -> io::Result<()> {
        (0..self.dirs.len())
            .try_for_each(|dir| self.set(dir, ("cgroup", "procs"), &pid.to_string()))
    }

    /// Which bounds were met.
    pub(super) fn hit(&self) -> Hit {
        let oom = if self.is_v2 { "events" } else { "oom_control" };
        let count = |dir: Option<&PathBuf>, file: (&str, &str), key: &str| {
            let text = fs::read_to_string(dir?.join(name(file))).ok()?;
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))?;
            line.trim().parse::<u64>().ok()
        };
        let is_hit = |count: Option<u64>| count.is_some_and(|count| count > 0);
        Hit {
            memory: is_hit(count(self.dirs.first(), ("memory", oom), "oom_kill")),
            processes: is_hit(count(self.dirs.last(), ("pids", "events"), "max")),
        }
    }

    /// Kills what is in it.
    fn kill(&self) {
        if self.is_v2 && self.set(0, ("cgroup", "kill"), "1").is_ok() {
            return;
        }
        for dir in &self.dirs {
            let listed =
                fs::read_to_string(dir.join(name(("cgroup", "procs")))).unwrap_or_default();
            for pid in listed.lines().filter_map(|line| line.parse().ok()) {
                let _ = nix::sys::signal::kill(
                    nix::unistd::Pid::from_raw(pid),
                    nix::sys::signal::Signal::SIGKILL,
                );
            }
        }
    }
}

/// A name that no other group has: the process id says whose it is, and one count serves all workers of a process.
fn free_name() -> String {
    static MADE: AtomicU64 = AtomicU64::new(0);
    format!(
        "{PREFIX}{}-{}",
        std::process::id(),
        MADE.fetch_add(1, Ordering::Relaxed)
    )
}

/// The name of a controller's file.
fn name((controller, file): (&str, &str)) -> String {
    format!("{controller}.{file}")
}

impl Drop for Group {
    fn drop(&mut self) {
        let until = Instant::now() + EMPTY_MAX;
        let mut pause = Duration::from_micros(200);
        loop {
            self.dirs.retain(|dir| {
                fs::remove_dir(dir).is_err_and(|error| error.kind() != io::ErrorKind::NotFound)
            });
            if self.dirs.is_empty() {
                return;
            }
            if Instant::now() >= until {
                tracing::warn!(dirs = ?self.dirs, "a control group is left behind");
                return;
            }
            self.kill();
            rest(pause);
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a command has a thread of its own, and the kernel tells nobody when a group is empty"
)]
fn rest(pause: Duration) {
    std::thread::sleep(pause);
}

/// Where groups may be made, by the kernel's lists of this process's groups and of mounts. A group that holds processes
/// cannot pass its controllers on (v2), so there the group around it is tried too.
fn candidates(own: &str, mounts: &str) -> Vec<Groups> {
    let dir = |controller: &str| {
        let path = own.lines().find_map(|line| {
            let mut words = line.splitn(3, ':').skip(1);
            let names = words.next()?;
            let path = words.next()?;
            let is_it = names.split(',').any(|name| name == controller);
            is_it.then_some(path)
        })?;
        mounts.lines().find_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            let mut before = before.split(' ').skip(3);
            let (root, point) = (before.next()?, before.next()?);
            let mut after = after.split(' ');
            let (kind, options) = (after.next()?, after.nth(1)?);
            let is_it = if controller.is_empty() {
                kind == "cgroup2"
            } else {
                kind == "cgroup" && options.split(',').any(|name| name == controller)
            };
            let below = path.strip_prefix(root.trim_end_matches('/'))?;
            is_it.then(|| Path::new(point).join(below.trim_start_matches('/')))
        })
    };
    let mut found = Vec::new();
    if let (Some(memory), Some(pids)) = (dir("memory"), dir("pids")) {
        found.push(Groups::V1 { memory, pids });
    }
    if let Some(unified) = dir("") {
        let around = unified.parent().map(Path::to_path_buf);
        found.push(Groups::V2(unified));
        found.extend(around.map(Groups::V2));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_looked_for_where_the_kernel_says() {
        let own = "9:name=systemd:/\n8:pids:/\n4:memory:/a/b\n0::/\n";
        let mounts = "1 0 0:1 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      2 0 0:2 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
                      3 0 0:3 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let found = candidates(own, mounts);
        assert_eq!(
            found.first(),
            Some(&Groups::V1 {
                memory: "/sys/fs/cgroup/memory/a/b".into(),
                pids: "/sys/fs/cgroup/pids".into(),
            })
        );
        let own = "0::/user.slice/app.scope\n";
        let mounts = "3 0 0:3 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(
            candidates(own, mounts),
            [
                Groups::V2("/sys/fs/cgroup/user.slice/app.scope".into()),
                Groups::V2("/sys/fs/cgroup/user.slice".into()),
            ]
        );
        assert_eq!(candidates("", ""), []);
    }
}
