//! `sandbox::exec`: a command in the workspace, isolated.

use teamster_mesh::{Ctx, Function};
use teamster_protocol::{Class, Contract, limits};

use crate::{
    exec::{Executor, Reply, Request},
    functions::contract as contract_of,
};

/// The contract of `sandbox::exec`. What a command does cannot be known, so it is never repeated, and policy asks unless told
/// otherwise.
pub(crate) fn contract() -> Contract {
    let mut contract = contract_of::<Request, Reply>(
        "sandbox::exec",
        Class::Exec,
        "Runs a program in the workspace (at /workspace), isolated: no network, a private /tmp and home, secret files hidden, \
         .git read-only. Nothing outlives the call but what it wrote to the workspace.",
    );
    contract.target = None;
    let longest = limits::EXEC_WALL_MAX + limits::EXEC_TERM_GRACE + 10 * limits::EXEC_ANSWER_GRACE;
    contract.timeout_ms = u64::try_from(longest.as_millis()).ok();
    contract
}

/// The function.
pub(crate) fn function(executor: Executor) -> Function {
    Function::new(contract(), move |ctx: Ctx, request: Request| {
        let executor = executor.clone();
        async move { executor.run(ctx, request).await }
    })
}
