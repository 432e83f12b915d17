//! What must be read before an administrator's input can be taken: the end of the queue that goes with a deleted session, and the
//! stored messages that a fork begins with.

use teamster_core::turn::{Input, State, admin::read_base};
use teamster_mesh::Mesh;
use teamster_protocol::{
    BlobRef, Message,
    event::DropReason,
    input::{AdminAction, Control},
};

use super::{
    load,
    work::{GiveUp, Work},
};

/// An input that can be taken.
pub(super) struct Prepared {
    /// The input.
    pub(super) input: Input,
    /// The messages that its session begins with, where it is a fork.
    pub(super) base: Vec<Message>,
}

/// Reads what an input needs.
pub(super) async fn prepare(work: &Work<'_>, input: Input) -> Result<Prepared, GiveUp> {
    let plain = |input| Prepared {
        input,
        base: Vec::new(),
    };
    let Input::Control(Control::Admin(admin)) = &input else {
        return Ok(plain(input));
    };
    let mesh = &work.harness.mesh;
    match &admin.action {
        AdminAction::Delete => {
            let last = mesh.lanes().last_message(&work.session).await;
            let queued = last.map_err(|error| work.unreadable(&error))?;
            let admin = (**admin).clone();
            Ok(plain(Input::Deletion { admin, queued }))
        }
        AdminAction::Fork { fork } => match read(mesh, &fork.transcript, fork.messages).await {
            Ok(base) => Ok(Prepared { input, base }),
            Err(load::Error::Mesh(error)) => Err(work.unreadable(&error)),
            Err(error) => {
                tracing::error!(session = %work.session, code = "session.value_missing", %error, "a fork cannot begin");
                Ok(plain(Input::Refused {
                    id: admin.id.clone(),
                    why: DropReason::ValueMissing,
                }))
            }
        },
        AdminAction::Create { .. } | AdminAction::Append { .. } | AdminAction::SetMeta { .. } => {
            Ok(plain(input))
        }
    }
}

/// Supplies a loaded state with the stored messages that it begins with.
pub(super) async fn supply(mesh: &Mesh, state: &mut State) -> Result<(), load::Error> {
    let Some(base) = state.missing() else {
        return Ok(());
    };
    let messages = read(mesh, &base.value, base.messages).await?;
    state.supply(messages);
    Ok(())
}

async fn read(mesh: &Mesh, value: &BlobRef, count: u64) -> Result<Vec<Message>, load::Error> {
    let missing = |why: String| load::Error::ValueMissing {
        value: value.sha256,
        why,
    };
    let bytes = match mesh.blobs().get(value).await {
        Ok(bytes) => bytes.ok_or_else(|| missing("it is not there".to_owned()))?,
        Err(error @ teamster_mesh::Error::Malformed { .. }) => {
            return Err(missing(teamster_telemetry::chain(&error)));
        }
        Err(error) => return Err(error.into()),
    };
    read_base(&bytes, count).map_err(|error| missing(error.to_string()))
}
