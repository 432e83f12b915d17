//! Trying from inside whether each layer holds. What is not refused does not hold, whatever was asked of the kernel before.

use std::{fs, io, path::Path};

use nix::{
    errno::Errno,
    sched::{CloneFlags, unshare},
    sys::signal::kill,
    unistd::{Pid, getpid, getsid},
};

use super::root;
use crate::layer::{Layer, Level};

/// The levels of `layers`, by trial. `landlock` is the level that was applied.
pub(super) fn look(layers: &[Layer], landlock: Option<u8>) -> Vec<Level> {
    Layer::ALL
        .into_iter()
        .filter(|layer| *layer != Layer::Cgroup)
        .map(|layer| {
            if !layers.contains(&layer) {
                return Level::missing(layer, "left out");
            }
            match holds(layer, landlock) {
                Ok(level) => Level::holds(layer, level),
                Err(why) => Level::missing(layer, why),
            }
        })
        .collect()
}

fn holds(layer: Layer, landlock: Option<u8>) -> Result<String, String> {
    match layer {
        Layer::UserNs => user(),
        Layer::PidNs => processes(),
        Layer::MountNs => mounts(),
        Layer::NetNs => network(),
        Layer::Landlock => rules(landlock),
        Layer::Seccomp => filter(),
        Layer::UtsNs => host_name(),
        // A view of its own begins at its root.
        Layer::CgroupNs => groups(),
        Layer::IpcNs => Ok("own".to_owned()),
        Layer::Cgroup => Err("is not looked at from inside".to_owned()),
    }
}

fn text(path: &str) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))
}

/// One user, not the host's root, and no further namespace.
fn user() -> Result<String, String> {
    let map = text("/proc/self/uid_map")?;
    let words: Vec<&str> = map.split_whitespace().collect();
    if words.first() != Some(&"1000") || words.last() != Some(&"1") {
        return Err("more than one user is mapped".to_owned());
    }
    match unshare(CloneFlags::CLONE_NEWUSER) {
        Ok(()) => Err("a further user namespace can be made".to_owned()),
        Err(_) => Ok("two, no third".to_owned()),
    }
}

/// Only this process and process 1 are there.
fn processes() -> Result<String, String> {
    let listed: Vec<i32> = fs::read_dir("/proc")
        .map_err(|error| format!("/proc: {error}"))?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    let own = getpid().as_raw();
    if listed.iter().any(|pid| ![1, own].contains(pid)) || !listed.contains(&own) {
        return Err("other processes are listed".to_owned());
    }
    // The parent's parent lies outside, and nobody in here may end process 1.
    let session = getsid(Some(Pid::from_raw(1))).map_err(|errno| errno.desc().to_owned())?;
    match (session.as_raw(), kill(Pid::from_raw(1), None)) {
        (0 | 1, _) => Ok("own".to_owned()),
        _ => Err("the session of another namespace is seen".to_owned()),
    }
}

/// The root is ours and closed, and nothing of the host is mounted to be written.
fn mounts() -> Result<String, String> {
    match fs::write("/probe", "") {
        Err(error) if is(&error, Errno::EROFS) || is(&error, Errno::EACCES) => {}
        Err(error) => return Err(format!("writing the root: {error}")),
        Ok(()) => return Err("the root can be written".to_owned()),
    }
    for path in ["/var", "/sys", "/run", "/boot", "/proc/sys", "/proc/kcore"] {
        if Path::new(path).exists() {
            return Err(format!("{path} is there"));
        }
    }
    let table = text("/proc/self/mountinfo")?;
    let writable = |line: &&str| {
        let mut words = line.split(' ').skip(4);
        let (point, options) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        options.split(',').any(|option| option == "rw")
            && !["/workspace", "/dev/", "/tmp", "/home/agent", "/proc"]
                .iter()
                .any(|place| point.starts_with(place))
    };
    match table.lines().find(writable) {
        Some(line) => Err(format!("can be written: {line}")),
        None => Ok("private root, read-only".to_owned()),
    }
}

/// No interface but one that is down.
fn network() -> Result<String, String> {
    let table = text("/proc/self/net/dev")?;
    let foreign = table
        .lines()
        .skip(2)
        .filter_map(|line| line.split_once(':'))
        .any(|(name, _)| name.trim() != "lo");
    let routes = text("/proc/self/net/route")?.lines().count();
    if foreign || routes > 1 {
        return Err("interfaces or routes of the host are there".to_owned());
    }
    Ok("none".to_owned())
}

/// A file that mounts and modes would let this process read.
fn rules(level: Option<u8>) -> Result<String, String> {
    let Some(level) = level else {
        return Err("was not applied".to_owned());
    };
    match fs::File::open(root::PROBE) {
        Err(error) if is(&error, Errno::EACCES) => Ok(format!("ABI {level}")),
        Err(error) => Err(format!("a path without a rule: {error}")),
        Ok(_) => Err("a path without a rule can be read".to_owned()),
    }
}

fn filter() -> Result<String, String> {
    let status = text("/proc/self/status")?;
    let has = |line: &str| status.lines().any(|found| found == line);
    if !has("Seccomp:\t2") || !has("NoNewPrivs:\t1") {
        return Err("no filter is in force".to_owned());
    }
    match std::net::UdpSocket::bind("127.0.0.1:0") {
        Err(error) if is(&error, Errno::EPERM) => Ok("filter".to_owned()),
        Err(error) => Err(format!("a socket: {error}")),
        Ok(_) => Err("a socket can be made".to_owned()),
    }
}

fn groups() -> Result<String, String> {
    let own = text("/proc/self/cgroup")?;
    if own.lines().all(|line| line.ends_with(":/")) {
        Ok("own".to_owned())
    } else {
        Err("control groups of the host are named".to_owned())
    }
}

fn host_name() -> Result<String, String> {
    match nix::unistd::gethostname() {
        Ok(name) if name == "sandbox" => Ok("own".to_owned()),
        Ok(_) => Err("the host's name is seen".to_owned()),
        Err(errno) => Err(errno.desc().to_owned()),
    }
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno as i32)
}
