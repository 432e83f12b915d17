//! The root that a command sees: little of the host, read-only, and the workspace.

use std::{
    ffi::{OsStr, OsString},
    fs, io,
    os::unix::{
        ffi::{OsStrExt as _, OsStringExt as _},
        fs::{PermissionsExt as _, symlink},
    },
    path::{Component, Path, PathBuf},
};

use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sys::statvfs::{FsFlags, statvfs},
    unistd::{chdir, pivot_root, sethostname},
};
use teamster_protocol::limits;

use super::{
    HOME, WORKSPACE,
    failure::{At, Failure},
    frame::{Cover, Mask, Spec},
};
use crate::layer::Layer;

/// Where the host's root lies while the new one is built.
const OLD: &str = "/.host";
/// An empty file and an empty directory that nobody may open; they lie over what is hidden.
const HIDDEN: &str = "/.hidden";
/// Readable for a command if mounts alone decided. Landlock's rules leave it out, which a probe sees.
pub(super) const PROBE: &str = "/.probe";

/// Directories of the host that programs are made of.
const PROGRAMS: [&str; 7] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"];
/// What of the host's /etc programs need to start and to know time and certificates. No user, host or password of it.
const ETC: [&str; 14] = [
    "alternatives",
    "ca-certificates",
    "debian_version",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "magic",
    "mime.types",
    "os-release",
    "pki",
    "protocols",
    "ssl/certs",
    "ssl/openssl.cnf",
];
/// Bytes of a file of /etc that is copied instead of mounted.
const COPIED_BYTES_MAX: u64 = 256 * 1024;
/// Files of /etc that are the same for every command.
const WRITTEN: [(&str, &str); 5] = [
    (
        "etc/passwd",
        "root:x:0:0:root:/:/sbin/nologin\nagent:x:1000:1000:agent:/home/agent:/bin/sh\n",
    ),
    ("etc/group", "root:x:0:\nagent:x:1000:\n"),
    ("etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"),
    (
        "etc/nsswitch.conf",
        "passwd: files\ngroup: files\nhosts: files\n",
    ),
    ("etc/hostname", "sandbox\n"),
];
const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];

/// What a command may reach in its root.
pub(super) struct Layout {
    /// The workspace's place.
    pub(super) workspace: String,
    /// Paths that may be read and run.
    pub(super) readable: Vec<String>,
    /// Paths that may be changed too.
    pub(super) writable: Vec<String>,
}

impl Layout {
    fn new(spec: &Spec, workspace: String) -> Self {
        let mut readable: Vec<String> = PROGRAMS.iter().map(|name| format!("/{name}")).collect();
        readable.extend(["/etc", "/proc"].map(str::to_owned));
        readable.extend(spec.shown.iter().cloned());
        let mut writable: Vec<String> = DEVICES.iter().map(|name| format!("/dev/{name}")).collect();
        if spec.layers.contains(&Layer::MountNs) {
            writable.extend(["/tmp", HOME, "/dev/shm"].map(str::to_owned));
        }
        if spec.workspace.is_some() {
            writable.push(workspace.clone());
        }
        Self {
            workspace,
            readable,
            writable,
        }
    }
}

/// Makes the new root the root of this process, and says what is where. Without a mount namespace, which only tests leave
/// out, the host's root stays.
pub(super) fn build(spec: &Spec) -> Result<Layout, Failure> {
    if !spec.layers.contains(&Layer::MountNs) {
        return Ok(Layout::new(
            spec,
            spec.workspace.clone().unwrap_or_default(),
        ));
    }
    let at = |outcome: io::Result<()>, step: &str| outcome.at(Layer::MountNs, step);
    at(enter(), "begin a root")?;
    at(programs(spec), "show the host's programs")?;
    at(etc(), "fill /etc")?;
    at(devices(), "fill /dev")?;
    at(scratch(), "mount /tmp and the home")?;
    at(proc(), "mount /proc")?;
    at(workspace(spec), "bind the workspace")?;
    at(masks(&spec.masks), "protect files of the workspace")?;
    at(close(), "close the root")?;
    if spec.layers.contains(&Layer::UtsNs) {
        sethostname("sandbox").at(Layer::UtsNs, "set the host name")?;
    }
    at(files(spec), "lay out the files")?;
    Ok(Layout::new(spec, WORKSPACE.to_owned()))
}

/// An empty file system in memory as the root, the host's below it.
fn enter() -> io::Result<()> {
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    let base = ["/tmp", "/usr"]
        .into_iter()
        .find(|base| Path::new(base).is_dir())
        .ok_or(io::ErrorKind::NotFound)?;
    memory(base, "size=8m,nr_inodes=4096,mode=0755", MsFlags::empty())?;
    chdir(base)?;
    let old = OLD.trim_start_matches('/');
    fs::create_dir(old)?;
    pivot_root(".", old)?;
    chdir("/")?;
    Ok(())
}

fn memory(target: &str, options: &str, flags: MsFlags) -> io::Result<()> {
    let flags = flags | MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), target, Some("tmpfs"), flags, Some(options))?;
    Ok(())
}

fn bind(source: &Path, target: &Path) -> io::Result<()> {
    // What lies below a mount of the host cannot be left out by who has less rights than its owner.
    let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
    mount(Some(source), target, None::<&str>, flags, None::<&str>)?;
    Ok(())
}

fn host(path: &str) -> PathBuf {
    Path::new(OLD).join(path.trim_start_matches('/'))
}

/// Shows a path of the host at the same place. What is not there is left out, a link stays a link.
fn show(path: &str) -> io::Result<()> {
    let (source, target) = (host(path), Path::new("/").join(path));
    let Ok(meta) = source.symlink_metadata() else {
        return Ok(());
    };
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent)?;
    }
    if meta.is_symlink() {
        return symlink(fs::read_link(&source)?, &target);
    }
    if meta.is_dir() {
        fs::create_dir_all(&target)?;
    } else {
        fs::File::create(&target)?;
    }
    bind(&source, &target)
}

/// Copies a file of the host to the same place.
fn copy(path: &str) -> io::Result<()> {
    let target = Path::new("/").join(path);
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::copy(host(path), target).map(drop)
}

fn programs(spec: &Spec) -> io::Result<()> {
    for name in PROGRAMS {
        show(name)?;
    }
    for path in &spec.shown {
        show(path.trim_start_matches('/'))?;
    }
    Ok(())
}

fn etc() -> io::Result<()> {
    fs::create_dir_all("/etc")?;
    for name in ETC {
        let path = format!("etc/{name}");
        match fs::symlink_metadata(host(&path)) {
            // A copy of a small file is cheaper than a mount, which has to be made, closed and taken down.
            Ok(meta) if meta.is_file() && meta.len() <= COPIED_BYTES_MAX => copy(&path)?,
            _ => show(&path)?,
        }
    }
    for (path, content) in WRITTEN {
        fs::write(Path::new("/").join(path), content)?;
    }
    Ok(())
}

fn devices() -> io::Result<()> {
    fs::create_dir("/dev")?;
    for name in DEVICES {
        show(&format!("dev/{name}"))?;
    }
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ] {
        symlink(target, Path::new("/dev").join(name))?;
    }
    Ok(())
}

fn scratch() -> io::Result<()> {
    for (path, mode) in [("/tmp", "1777"), (HOME, "0755"), ("/dev/shm", "1777")] {
        fs::create_dir_all(path)?;
        let options = format!(
            "size={},nr_inodes={},mode={mode}",
            limits::EXEC_SCRATCH_BYTES,
            limits::EXEC_SCRATCH_FILES
        );
        memory(path, &options, MsFlags::empty())?;
    }
    Ok(())
}

/// Processes and nothing else: no settings, no memory, no kernel of the host.
fn proc() -> io::Result<()> {
    fs::create_dir("/proc")?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(
        Some("proc"),
        "/proc",
        Some("proc"),
        flags,
        Some("subset=pid"),
    )?;
    Ok(())
}

fn workspace(spec: &Spec) -> io::Result<()> {
    let Some(path) = &spec.workspace else {
        return Ok(());
    };
    fs::create_dir(WORKSPACE)?;
    bind(&host(path), Path::new(WORKSPACE))
}

/// Lays something unreadable over what is hidden, and gives the rest a mount of its own, read-only or only there to stay.
fn masks(masks: &[Mask]) -> io::Result<()> {
    let hidden = Path::new(HIDDEN);
    let (file, dir) = (hidden.join("file"), hidden.join("dir"));
    let nobody = || fs::Permissions::from_mode(0o000);
    fs::create_dir(hidden)?;
    fs::create_dir(&dir)?;
    fs::write(&file, "")?;
    fs::set_permissions(&file, nobody())?;
    fs::set_permissions(&dir, nobody())?;
    for mask in masks {
        let named = Path::new(WORKSPACE).join(OsStr::from_bytes(&mask.path));
        // A link is resolved as the command would. What it leads to outside the workspace is none of the workspace's.
        let target = match fs::canonicalize(&named) {
            Ok(target) if target.starts_with(WORKSPACE) && target != Path::new(WORKSPACE) => target,
            Ok(_) => continue,
            Err(_) if named.is_symlink() => continue,
            Err(error) => return Err(error),
        };
        match mask.cover {
            Cover::Hidden if target.is_dir() => bind(&dir, &target)?,
            Cover::Hidden => bind(&file, &target)?,
            Cover::ReadOnly => bind(&target, &target)?,
            Cover::Pinned => {
                // A place where something is mounted can be neither renamed nor removed.
                bind(&target, &target)?;
                continue;
            }
        }
        remount(&target, &[], MsFlags::MS_RDONLY)?;
    }
    Ok(())
}

/// Leaves the host behind, and takes from every mount what a command must not do with it.
fn close() -> io::Result<()> {
    fs::write(PROBE, "")?;
    umount2(OLD, MntFlags::MNT_DETACH)?;
    fs::remove_dir(OLD)?;
    let table = fs::read("/proc/self/mountinfo")?;
    for line in table.split(|byte| *byte == b'\n') {
        let Some((point, options)) = mount_of(line) else {
            continue;
        };
        if let Some(more) = taken_from(&point) {
            remount(&point, &options, more)?;
        }
    }
    Ok(())
}

/// What a mount loses, by its place; `None` for those that were mounted as they should be.
fn taken_from(point: &Path) -> Option<MsFlags> {
    let base = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    let mut names = point.components().filter_map(|part| match part {
        Component::Normal(name) => name.to_str(),
        _ => None,
    });
    match (names.next(), names.next()) {
        (Some("workspace"), _) => Some(base),
        (Some("dev"), Some(name)) if DEVICES.contains(&name) => {
            Some(MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC)
        }
        (Some("proc" | "tmp"), _) | (Some("dev"), Some("shm")) | (Some("home"), Some("agent")) => {
            None
        }
        _ => Some(base | MsFlags::MS_RDONLY),
    }
}

/// The place and the options of a line of the table of mounts.
fn mount_of(line: &[u8]) -> Option<(PathBuf, Vec<String>)> {
    let mut words = line.split(|byte| *byte == b' ').skip(4);
    let point = PathBuf::from(OsString::from_vec(unescape(words.next()?)));
    let options = String::from_utf8_lossy(words.next()?);
    Some((point, options.split(',').map(str::to_owned).collect()))
}

/// The table writes some bytes as three octal digits behind a backslash.
fn unescape(word: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, after)) = rest.split_first() {
        let octal = after
            .split_at_checked(3)
            .filter(|_| *first == b'\\')
            .and_then(|(digits, after)| {
                let byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()?;
                Some((byte, after))
            });
        let (byte, after) = octal.unwrap_or((*first, after));
        bytes.push(byte);
        rest = after;
    }
    bytes
}

/// Adds flags to a mount and keeps those that it has, which who has less rights than its owner must.
fn remount(point: &Path, options: &[String], more: MsFlags) -> io::Result<()> {
    let mut flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | more;
    let mut now = FsFlags::empty();
    if options.is_empty() {
        now = statvfs(point)?.flags();
    }
    for (word, of_file_system, flag) in [
        ("ro", FsFlags::ST_RDONLY, MsFlags::MS_RDONLY),
        ("nosuid", FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        ("nodev", FsFlags::ST_NODEV, MsFlags::MS_NODEV),
        ("noexec", FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
        ("noatime", FsFlags::ST_NOATIME, MsFlags::MS_NOATIME),
        ("nodiratime", FsFlags::ST_NODIRATIME, MsFlags::MS_NODIRATIME),
        ("relatime", FsFlags::ST_RELATIME, MsFlags::MS_RELATIME),
    ] {
        if now.contains(of_file_system) || options.iter().any(|option| option == word) {
            flags |= flag;
        }
    }
    let none = None::<&str>;
    match mount(none, point, none, flags, none) {
        // Something else was mounted over it, so no path leads there.
        Err(nix::errno::Errno::EINVAL | nix::errno::Errno::ENOENT) if !options.is_empty() => Ok(()),
        outcome => Ok(outcome?),
    }
}

/// Lays out the files of the call.
fn files(spec: &Spec) -> io::Result<()> {
    for (path, content) in &spec.files {
        let at = Path::new("/tmp").join(path);
        if let Some(parent) = at.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(at, content)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_mounts_is_read_with_its_escapes() {
        let line = br"36 35 98:0 /mnt1 /usr/a\040b\134c ro,noatime master:1 - ext3 /dev/root rw";
        let (point, options) = mount_of(line).expect("a mount");
        assert_eq!(point, Path::new(r"/usr/a b\c"));
        assert_eq!(options, ["ro", "noatime"]);
        assert_eq!(unescape(br"\04"), br"\04");
        assert!(mount_of(b"36 35 98:0 /mnt1").is_none());
    }

    #[test]
    fn only_scratch_and_the_workspace_may_be_written() {
        for (point, is_read_only) in [
            ("/", true),
            ("/usr", true),
            ("/usr/local/share", true),
            ("/etc/localtime", true),
            ("/opt", true),
            ("/homework", true),
            ("/home/other/tools", true),
            ("/workspace", false),
            ("/workspace/deep/mount", false),
            ("/dev/null", false),
        ] {
            let flags = taken_from(Path::new(point)).expect("a change");
            assert_eq!(flags.contains(MsFlags::MS_RDONLY), is_read_only, "{point}");
            assert!(flags.contains(MsFlags::MS_NOSUID), "{point}");
        }
        for point in ["/tmp", "/home/agent", "/dev/shm", "/proc"] {
            assert_eq!(taken_from(Path::new(point)), None, "{point}");
        }
    }
}
