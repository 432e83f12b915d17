//! The filter of system calls: what a command has no use for and an attacker has.

use std::collections::BTreeMap;

use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, apply_filter, sock_filter,
};

use super::failure::Failure;
use crate::layer::Layer;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Refused whatever the arguments are, with *operation not permitted*.
const REFUSED: &[i64] = &[
    // The network, and the sockets of other programs that lie in the workspace. Pairs stay.
    libc::SYS_socket,
    // A second way into the kernel, past this filter.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Parts of the kernel with a history.
    libc::SYS_bpf,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_userfaultfd,
    libc::SYS_perf_event_open,
    libc::SYS_fanotify_init,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_lookup_dcookie,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_vmsplice,
    // Namespaces and mounts.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    // The machine.
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_nfsservctl,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
];

/// The same on one architecture only.
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[i64] = &[
    libc::SYS_ioperm,
    libc::SYS_iopl,
    libc::SYS_modify_ldt,
    libc::SYS_uselib,
    libc::SYS_ustat,
    libc::SYS_sysfs,
    libc::SYS__sysctl,
    // Pages that the process writes to while it is stopped at a fault.
    libc::SYS_remap_file_pages,
];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[i64] = &[];

/// Answered as if the kernel did not know them, because their arguments lie in memory where no filter can look; programs
/// fall back to what can be looked at.
const UNKNOWN: &[i64] = &[libc::SYS_clone3, libc::SYS_openat2];

/// Numbers that newer kernels gave to calls of the kinds above: `quotactl_fd`, `statmount`, `listmount`, `open_tree_attr`,
/// `file_setattr`. They are the same on all architectures.
const REFUSED_NEWER: &[i64] = &[443, 457, 458, 467, 469];

/// The first number of the second table of system calls of x86-64 (x32), which a filter by number would not see.
const X32: u32 = 0x4000_0000;

/// Personalities that change no protection: Linux itself, the question, and without randomised addresses.
const PERSONALITIES: [u64; 3] = [0, 0xffff_ffff, 0x0004_0000];

/// Requests to a terminal that type into it, reach its screen, or change how it is driven: `TIOCSTI`, `TIOCLINUX`,
/// `TIOCSETD`.
const TERMINAL: [u64; 3] = [0x5412, 0x541c, 0x5423];

/// Locks this process and what it becomes in. A call of another architecture ends the process.
pub(super) fn apply() -> Result<(), Failure> {
    for program in programs()? {
        apply_filter(&program).map_err(failure)?;
    }
    Ok(())
}

fn failure(error: impl std::fmt::Display) -> Failure {
    Failure {
        layer: Some(Layer::Seccomp),
        step: "filter system calls".to_owned(),
        why: error.to_string(),
    }
}

/// The filters: what is unknown first, then what is refused.
fn programs() -> Result<[BpfProgram; 2], Failure> {
    let unknown: Rules = UNKNOWN.iter().map(|call| (*call, Vec::new())).collect();
    Ok([
        program(unknown, libc::ENOSYS).map_err(failure)?,
        program(refused().map_err(failure)?, libc::EPERM).map_err(failure)?,
    ])
}

fn program(rules: Rules, errno: i32) -> Result<BpfProgram, Error> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(errno.unsigned_abs()),
        arch,
    )?;
    let compiled = BpfProgram::try_from(filter)?;
    // A jump is relative, so what stands in front moves nothing. Number of the call; at or above x32: no such call.
    let mut program = vec![
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, X32),
        instruction(
            libc::BPF_RET | libc::BPF_K,
            0,
            0,
            SeccompAction::Errno(libc::ENOSYS.unsigned_abs()).into(),
        ),
    ];
    program.extend(compiled);
    Ok(program)
}

fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
    let code = u16::try_from(code).unwrap_or_default();
    sock_filter { code, jt, jf, k }
}

fn refused() -> Result<Rules, Error> {
    let mut rules: Rules = REFUSED
        .iter()
        .chain(REFUSED_HERE)
        .chain(REFUSED_NEWER)
        .map(|call| (*call, Vec::new()))
        .collect();
    // Namespaces by the old call of fork; the new one is unknown.
    let namespaces = [
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWCGROUP,
    ];
    let by_clone = namespaces
        .into_iter()
        .map(|flag| bits(0, u64::from(flag.unsigned_abs())))
        .collect::<Result<_, _>>()?;
    rules.insert(libc::SYS_clone, by_clone);
    // Typing into a terminal as if its user had.
    let terminal = TERMINAL
        .into_iter()
        .map(|request| rule(vec![SeccompCondition::new(1, Len::Dword, Op::Eq, request)?]))
        .collect::<Result<_, _>>()?;
    rules.insert(libc::SYS_ioctl, terminal);
    let personality = PERSONALITIES
        .into_iter()
        .map(|value| Ok(SeccompCondition::new(0, Len::Dword, Op::Ne, value)?))
        .collect::<Result<Vec<_>, Error>>()?;
    rules.insert(libc::SYS_personality, vec![rule(personality)?]);
    let unix = u64::from(libc::AF_UNIX.unsigned_abs());
    let foreign = SeccompCondition::new(0, Len::Dword, Op::Ne, unix)?;
    rules.insert(libc::SYS_socketpair, vec![rule(vec![foreign])?]);
    modes(&mut rules)?;
    Ok(rules)
}

/// No file that runs as its owner, and no device, may be made in a workspace that the host goes on to use.
fn modes(rules: &mut Rules) -> Result<(), Error> {
    let set_id = |argument: u8| -> Result<Vec<SeccompRule>, Error> {
        Ok(vec![
            bits(argument, u64::from(libc::S_ISUID))?,
            bits(argument, u64::from(libc::S_ISGID))?,
        ])
    };
    let nodes = |argument: u8| -> Result<Vec<SeccompRule>, Error> {
        let mut all = set_id(argument)?;
        for kind in [libc::S_IFCHR, libc::S_IFBLK] {
            let op = Op::MaskedEq(u64::from(libc::S_IFMT));
            let condition = SeccompCondition::new(argument, Len::Dword, op, u64::from(kind))?;
            all.push(rule(vec![condition])?);
        }
        Ok(all)
    };
    rules.insert(libc::SYS_fchmod, set_id(1)?);
    rules.insert(libc::SYS_fchmodat, set_id(2)?);
    rules.insert(libc::SYS_fchmodat2, set_id(2)?);
    rules.insert(libc::SYS_mkdirat, set_id(2)?);
    rules.insert(libc::SYS_mknodat, nodes(2)?);
    // The mode of an open counts only where it creates.
    let create = |flags: u8, mode: u8| -> Result<Vec<SeccompRule>, Error> {
        [libc::S_ISUID, libc::S_ISGID]
            .into_iter()
            .map(|bit| {
                rule(vec![
                    masked(flags, u64::from(libc::O_CREAT.unsigned_abs()))?,
                    masked(mode, u64::from(bit))?,
                ])
            })
            .collect()
    };
    rules.insert(libc::SYS_openat, create(2, 3)?);
    #[cfg(target_arch = "x86_64")]
    {
        rules.insert(libc::SYS_chmod, set_id(1)?);
        rules.insert(libc::SYS_creat, set_id(1)?);
        rules.insert(libc::SYS_mkdir, set_id(1)?);
        rules.insert(libc::SYS_mknod, nodes(1)?);
        rules.insert(libc::SYS_open, create(1, 2)?);
    }
    Ok(())
}

fn rule(conditions: Vec<SeccompCondition>) -> Result<SeccompRule, Error> {
    Ok(SeccompRule::new(conditions)?)
}

/// All of `bits` are set in an argument.
fn bits(argument: u8, bits: u64) -> Result<SeccompRule, Error> {
    rule(vec![masked(argument, bits)?])
}

fn masked(argument: u8, bits: u64) -> Result<SeccompCondition, Error> {
    Ok(SeccompCondition::new(
        argument,
        Len::Qword,
        Op::MaskedEq(bits),
        bits,
    )?)
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Filter(#[from] seccompiler::BackendError),
}
