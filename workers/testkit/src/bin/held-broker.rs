//! Holds a data directory and its broker until it is killed: what `up` is to the broker, for tests that kill it.

use std::{io::Write as _, path::Path, process::ExitCode};

use teamster_mesh::broker::{Broker, DataDir, Options};

#[tokio::main]
async fn main() -> ExitCode {
    let Some(data) = std::env::args().nth(1) else {
        return ExitCode::from(64);
    };
    match hold(Path::new(&data)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

/// Says where the broker is and whether it was adopted, then waits to be killed.
async fn hold(data: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let data = DataDir::open(data)?;
    let _lock = data.lock()?;
    let broker = Broker::start(&data, Options::default()).await?;
    let pid = broker.pid().unwrap_or_default();
    writeln!(
        std::io::stdout(),
        "ready {} {pid} adopted={}",
        broker.url(),
        broker.was_adopted()
    )?;
    std::future::pending().await
}
