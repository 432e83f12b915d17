//! A worker that tells the weather: what somebody outside of this repository writes with the `mesh` crate.
//!
//! ```sh
//! teamster up                                         # in one terminal
//! cargo run --example weather                         # in another one
//! teamster functions ls weather::
//! teamster run --allow 'weather::*' "is it warmer in Lisbon or in Oslo?"
//! ```
//!
//! `TEAMSTER_NATS` and `TEAMSTER_CREDS` say which mesh and as whom, as for every command. The same worker in Python stands in
//! `examples/python`; `docs/protocol.md` says what both of them speak.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use teamster_mesh::{Connect, Ctx, Function, Mesh, Worker, serve::serve};
use teamster_protocol::{
    Class, Contract, Data, Fault, FunctionId, Trust, Visibility,
    id::{ParseError, WorkerName},
};

/// Asks about a city.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CurrentRequest {
    /// Its name, for example `Lisbon`.
    city: String,
}

/// The weather of a city.
#[derive(Debug, Serialize, JsonSchema)]
struct CurrentReply {
    /// The temperature, in degrees Celsius.
    celsius: i32,
    /// The sky, in one word.
    sky: &'static str,
}

/// Answers, or says in a fault what the model can do about it.
async fn current(_: Ctx, request: CurrentRequest) -> Result<CurrentReply, Fault> {
    let (celsius, sky) = match request.city.as_str() {
        "Lisbon" => (24, "clear"),
        "Oslo" => (-3, "snow"),
        other => {
            let message = format!("there is no station in {other:?}");
            return Err(
                Fault::caller("weather.unknown_city", message).hint("known are Lisbon and Oslo")
            );
        }
    };
    Ok(CurrentReply { celsius, sky })
}

/// The worker: its functions with their contracts. What a contract leaves out counts as the strictest.
pub(crate) fn worker() -> Result<Worker, ParseError> {
    let mut contract = Contract::new::<CurrentRequest, CurrentReply>(
        FunctionId::parse("weather::current")?,
        "Tells temperature and sky of a city now.",
    );
    contract.class = Class::Read;
    contract.data = Data::Public;
    contract.trust = Trust::Trusted;
    contract.target = Some("/city".to_owned());
    contract.visibility = Visibility::Agent;
    Ok(Worker::new(
        WorkerName::parse("weather")?,
        "Tells the weather of two cities.",
    )
    .function(Function::new(contract, current)))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let connect = Connect {
        url: std::env::var("TEAMSTER_NATS").unwrap_or_else(|_| "nats://127.0.0.1:4222".to_owned()),
        credentials: std::env::var_os("TEAMSTER_CREDS").map(Into::into),
    };
    let mesh = Mesh::connect(&connect, WorkerName::parse("weather")?).await?;
    let serving = serve(mesh, worker()?).await?;
    tokio::signal::ctrl_c().await?;
    // Takes no new calls, lets running ones end, removes the registration.
    serving.drain().await;
    Ok(())
}
