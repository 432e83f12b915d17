//! `sandbox::info`: which layers commands run behind here.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use teamster_mesh::{Ctx, Function};
use teamster_protocol::{Class, Contract, Data, Fault, Trust};

use crate::{exec::Executor, functions::contract as contract_of, layer::Level};

/// No arguments.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {}

/// What holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Reply {
    /// Whether commands run here.
    pub(crate) runs_commands: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// Each layer, by trial.
    pub(crate) layers: Vec<Level>,
}

/// The contract of `sandbox::info`.
pub(crate) fn contract() -> Contract {
    let mut contract = contract_of::<Request, Reply>(
        "sandbox::info",
        Class::Read,
        "Says whether commands run on this host, and which layers of isolation hold, by trial.",
    );
    contract.target = None;
    contract.data = Data::Public;
    contract.trust = Trust::Trusted;
    contract
}

/// The function.
pub(crate) fn function(executor: Executor) -> Function {
    Function::new(contract(), move |_: Ctx, Request {}: Request| {
        let executor = executor.clone();
        async move {
            let look = tokio::task::spawn_blocking(move || executor.levels());
            let (layers, missing) = look.await.map_err(|_| {
                Fault::internal("sandbox.internal", "the probe did not come to its end")
            })?;
            Ok(Reply {
                runs_commands: missing.is_none(),
                reason: missing,
                layers,
            })
        }
    })
}
