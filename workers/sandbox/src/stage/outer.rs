//! The first stage: enters the namespaces, starts the second as their process 1, and waits.

use std::{fs, io, process::ExitCode};

use nix::{
    sched::{CloneFlags, unshare},
    sys::{prctl, signal::Signal},
    unistd::{getegid, geteuid, setgroups, setsid},
};

use super::{
    Entry,
    failure::{At, Failure},
    fds, frame,
};
use crate::layer::Layer;

/// Where the number of user namespaces is bounded. Written from inside, it bounds what is made inside.
const USER_NAMESPACES: &str = "/proc/sys/user/max_user_namespaces";

/// Runs the stage; what fails is reported on standard output.
pub(super) fn run(entry: &Entry) -> ExitCode {
    match start(entry) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let _ = frame::write(&mut io::stdout(), &frame::Report::Failed(failure));
            ExitCode::FAILURE
        }
    }
}

fn start(entry: &Entry) -> Result<(), Failure> {
    fds::close_all_but(None).step("close inherited descriptors")?;
    let told: frame::Outer = frame::read(&mut Unbuffered).step("read instructions")?;
    let layers = entry.kept(&told.layers, told.is_probe);
    setsid().step("leave the worker's session")?;
    if geteuid().is_root() {
        // Only the host's root may; for anybody else the groups stay, and count for nothing inside.
        let _ = setgroups(&[]);
    }
    enter(&layers)?;
    // After the change of identity, which clears it.
    prctl::set_pdeathsig(Signal::SIGKILL).step("end with the worker")?;
    let mut init = super::next(entry, &["init"])
        .spawn()
        .at(Layer::PidNs, "start process 1")?;
    init.wait().step("wait for process 1")?;
    Ok(())
}

/// Enters the namespaces of `layers`, one after another so that the missing one is known.
fn enter(layers: &[Layer]) -> Result<(), Failure> {
    let (user, group) = (geteuid(), getegid());
    for layer in [
        Layer::UserNs,
        Layer::PidNs,
        Layer::MountNs,
        Layer::IpcNs,
        Layer::UtsNs,
        Layer::CgroupNs,
        Layer::NetNs,
    ] {
        if !layers.contains(&layer) {
            continue;
        }
        unshare(flag(layer)).at(layer, "enter a namespace")?;
        if layer == Layer::UserNs {
            map("0", &user.to_string(), &group.to_string())?;
        }
    }
    Ok(())
}

fn flag(layer: Layer) -> CloneFlags {
    match layer {
        Layer::UserNs => CloneFlags::CLONE_NEWUSER,
        Layer::PidNs => CloneFlags::CLONE_NEWPID,
        Layer::MountNs => CloneFlags::CLONE_NEWNS,
        Layer::IpcNs => CloneFlags::CLONE_NEWIPC,
        Layer::UtsNs => CloneFlags::CLONE_NEWUTS,
        Layer::CgroupNs => CloneFlags::CLONE_NEWCGROUP,
        Layer::NetNs => CloneFlags::CLONE_NEWNET,
        Layer::Landlock | Layer::Seccomp | Layer::Cgroup => CloneFlags::empty(),
    }
}

/// Maps one user and one group of the namespace around into the one that was just entered.
pub(super) fn map(inside: &str, user: &str, group: &str) -> Result<(), Failure> {
    for (file, line) in [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("{inside} {user} 1")),
        ("/proc/self/gid_map", format!("{inside} {group} 1")),
    ] {
        fs::write(file, line).at(Layer::UserNs, "map the user")?;
    }
    Ok(())
}

/// Permits one more user namespace below this one, which the command's own is, and none in it. Where /proc is read-only the
/// filter of system calls alone refuses them.
pub(super) fn bound_user_namespaces() {
    let _ = fs::write(USER_NAMESPACES, "1");
}

/// Standard input without a buffer: what follows the first frame is for the next stage.
struct Unbuffered;

impl io::Read for Unbuffered {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(nix::unistd::read(io::stdin(), buffer)?)
    }
}
