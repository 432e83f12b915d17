//! The functions that the worker serves, and what they have in common.

mod edit;
mod exec;
mod find;
mod found;
mod grep;
mod info;
mod list;
mod read;
mod write;

#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};
use teamster_mesh::{Ctx, Function, Worker, config::Live};
use teamster_protocol::{
    Class, Contract, Data, FunctionId, Trust, Visibility, id::WorkerName, limits,
};

use crate::{
    config::Config,
    error::Error,
    exec::Executor,
    path::RelPath,
    pool::{Job, Pool},
};

/// The worker `sandbox` with its functions.
///
/// # Panics
///
/// Never: the names and ids are constants, which a test parses.
#[expect(clippy::expect_used, reason = "see Panics")]
pub fn worker(config: Config) -> Worker {
    let live = Live::new(config);
    let executor = Executor::new(live.clone());
    let pool = Pool::new(live.clone());
    Worker::new(
        WorkerName::parse("sandbox").expect("a valid name"),
        "Reads, searches, writes and edits files inside the session's workspace, and runs commands in it, isolated.",
    )
    .config(&live)
    .function(function(&pool, read::contract(), read::read))
    .function(function(&pool, list::contract(), list::list))
    .function(function(&pool, find::contract(), find::find))
    .function(function(&pool, grep::contract(), grep::grep))
    .function(function(&pool, write::contract(), write::write))
    .function(function(&pool, edit::contract(), edit::edit))
    .function(info::function(executor.clone()))
    .function(exec::function(executor))
}

/// A function whose work blocks.
fn function<Request, Reply>(
    pool: &Pool,
    contract: Contract,
    work: fn(&Job, &Request) -> Result<Reply, Error>,
) -> Function
where
    Request: DeserializeOwned + JsonSchema + Send + 'static,
    Reply: Serialize + JsonSchema + Send + 'static,
{
    let pool = pool.clone();
    Function::new(contract, move |ctx: Ctx, request: Request| {
        let pool = pool.clone();
        async move { pool.run(ctx, move |job| work(job, &request)).await }
    })
}

/// What the contracts of all functions share.
///
/// Labels: nobody has said what lies in a workspace, so its data counts as personal, and what comes back as untrusted (a
/// cloned repository or a saved mail is written by others). A manifest for a known workspace may loosen that later.
#[expect(
    clippy::expect_used,
    reason = "the ids are constants, which a test parses"
)]
fn contract<Request: JsonSchema, Reply: JsonSchema>(
    id: &str,
    class: Class,
    description: &str,
) -> Contract {
    let mut contract =
        Contract::new::<Request, Reply>(FunctionId::parse(id).expect("a valid id"), description);
    contract.class = class;
    contract.data = Data::Personal;
    contract.trust = Trust::Untrusted;
    contract.target = Some("/path".to_owned());
    contract.timeout_ms = u64::try_from(limits::FS_TIMEOUT.as_millis()).ok();
    contract.visibility = Visibility::Agent;
    contract
}

/// The path that a request names, if it may be opened at all.
fn open_path(job: &Job, text: &str) -> Result<RelPath, Error> {
    let path = RelPath::parse(text)?;
    if job.protected.holds(&path) {
        return Err(Error::Closed {
            path: path.as_str().to_owned(),
        });
    }
    Ok(path)
}

/// The path that a request names, if it may be written.
fn written_path(job: &Job, text: &str) -> Result<RelPath, Error> {
    let path = open_path(job, text)?;
    if path.is_in_git() {
        return Err(Error::Git {
            path: path.as_str().to_owned(),
        });
    }
    Ok(path)
}

/// `error`, with a name that differs in letter case only where nothing has the wanted one.
fn with_near_name(job: &Job, path: &RelPath, error: Error) -> Error {
    let Error::NotFound { path: text, .. } = error else {
        return error;
    };
    let near = path.split().and_then(|(parent, name)| {
        let mut dir = job.root.dir(&parent).ok()?;
        let wanted = name.to_lowercase();
        dir.iter()
            .take(limits::FS_ITEMS_MAX)
            .filter_map(Result::ok)
            .filter_map(|entry| {
                entry
                    .file_name()
                    .to_str()
                    .map(|name| parent.join(name))
                    .ok()
            })
            .find(|found| {
                let is_near = found
                    .split()
                    .is_some_and(|(_, name)| name.to_lowercase() == wanted);
                is_near && !job.protected.holds(found)
            })
    });
    Error::NotFound {
        path: text,
        near: near.map(|near| near.as_str().to_owned()),
    }
}

/// The number of items that a request asks for.
fn items_max(asked: Option<u32>, default: usize) -> usize {
    asked
        .map_or(default, |asked| {
            usize::try_from(asked).unwrap_or(usize::MAX)
        })
        .clamp(1, limits::FS_ITEMS_MAX)
}
