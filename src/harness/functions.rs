//! What the harness serves: one file a function.

mod accept_loss;
mod functions_info;
mod functions_list;
mod resolve;
mod send;
mod status;
mod stop;

use std::sync::Arc;

use teamster_core::turn::State;
use teamster_mesh::{Ctx, Function};
use teamster_protocol::{
    Class, Contract, Data, Fault, FunctionId, Principal, SessionId, Trust, Visibility,
    id::ParseError, text,
};

use super::{load, shared::Shared};

/// All functions.
pub(super) fn all(shared: &Arc<Shared>) -> Result<Vec<Function>, ParseError> {
    Ok(vec![
        send::function(shared)?,
        stop::function(shared)?,
        status::function(shared)?,
        resolve::function()?,
        accept_loss::function(shared)?,
        functions_list::function()?,
        functions_info::function()?,
    ])
}

/// The contract of an operator's function.
fn operator<Request, Reply>(
    id: &str,
    description: &str,
    class: Class,
) -> Result<Contract, ParseError>
where
    Request: schemars::JsonSchema,
    Reply: schemars::JsonSchema,
{
    Ok(Contract {
        trust: Trust::Trusted,
        timeout_ms: Some(30_000),
        ..Contract::of_house::<Request, Reply>(id, description, class, Visibility::Operator)?
    })
}

/// The contract of a function by which a model finds others.
fn discovery<Request, Reply>(id: &str, description: &str) -> Result<Contract, ParseError>
where
    Request: schemars::JsonSchema,
    Reply: schemars::JsonSchema,
{
    let mut contract = Contract::new::<Request, Reply>(FunctionId::parse(id)?, description);
    contract.class = Class::Read;
    contract.data = Data::Public;
    contract.trust = Trust::Trusted;
    contract.visibility = Visibility::Agent;
    contract.idempotent = true;
    contract.timeout_ms = Some(10_000);
    Ok(contract)
}

/// Who acts: the broker checked the subject that says so.
fn principal(ctx: &Ctx) -> Result<Principal, Fault> {
    ctx.principal.clone().ok_or_else(|| {
        Fault::denied("harness.no_principal", "this function is for operators")
            .hint("call it as an operator")
    })
}

/// A session as its log has it, without disturbing whoever runs it.
async fn read(ctx: &Ctx, shared: &Shared, session: &SessionId) -> Result<State, Fault> {
    let known = shared.cache.peek(session);
    load::load(&ctx.mesh, &shared.witnesses, session, known)
        .await
        .map_err(|error| fault_of(session, error))
}

/// Refuses a session of which nothing is known, or that was deleted, and for which no message waits either.
fn exists(state: &State, queued: u64) -> Result<(), Fault> {
    // A session whose beginning was lost has no origin, but it has messages.
    if state.exists() || !state.transcript.is_empty() || queued > 0 {
        return Ok(());
    }
    Err(Fault::gone(
        "session.not_found",
        format_args!("there is no session {}", state.session),
    )
    .hint("list them with `teamster sessions ls`"))
}

/// Why a session cannot be read, for whoever asked.
fn fault_of(session: &SessionId, error: load::Error) -> Fault {
    match error {
        load::Error::Mesh(error) => error.into(),
        load::Error::Damaged(what) => {
            let fault = Fault::internal(
                "session.log_damaged",
                format_args!("the log of {session} is damaged: {what}"),
            );
            let session = text::operand(session.as_str());
            fault.hint(format_args!(
                "nothing of this session runs. Restore the broker's data from a backup, or go on without what is missing: \
                 `teamster sessions accept-loss --yes {session}`"
            ))
        }
        error @ load::Error::ValueMissing { .. } => Fault::internal(
            "session.value_missing",
            format_args!("a value that {session} begins with is lost: {error}"),
        )
        .hint("nothing of this session runs. Restore the broker's data from a backup, or fork the source again."),
    }
}
