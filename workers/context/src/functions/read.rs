//! `context::read`: the whole result of an earlier call of the own session, page by page.

use std::sync::{Arc, Mutex, PoisonError};

use teamster_core::{context::Window, turn::State};
use teamster_mesh::{Ctx, Function};
use teamster_protocol::{
    BlobRef, CallId, Class, Contract, Fault, Message, Visibility,
    function::context::{ReadReply, ReadRequest},
    id::ParseError,
    limits,
};

use crate::{Context, error, page::page};

/// Bytes of a reply's JSON besides the text.
const FORM_BYTES: usize = 128;

/// The function.
pub(crate) fn function(context: &Arc<Context>) -> Result<Function, ParseError> {
    let contract = Contract::of_house::<ReadRequest, ReadReply>(
        "context::read",
        "Reads the whole result of an earlier call of this conversation: one that was cut or left out. Results name their call \
         and the offset to go on with.",
        Class::Read,
        Visibility::Agent,
    )?;
    let context = Arc::clone(context);
    Ok(Function::new(contract, move |ctx, request| {
        let context = Arc::clone(&context);
        async move { read(&context, &ctx, &request).await }
    }))
}

async fn read(context: &Context, ctx: &Ctx, request: &ReadRequest) -> Result<ReadReply, Fault> {
    let session = ctx.session.as_ref().ok_or_else(error::no_caller)?;
    let until = super::until(ctx);
    let held = context.sessions.at(&ctx.mesh, session, None, until).await?;
    let state = held.state();
    let model = state.options.model.clone().unwrap_or_default();
    let output = state.options.max_output_tokens.unwrap_or_default();
    let found = find(state, &request.call);
    context.sessions.keep(held);
    let text: Arc<str> = match found.ok_or_else(|| error::no_result(&request.call))? {
        Found::Here(text) => text.into(),
        Found::Stored(blob) => context.values.get(ctx, &request.call, &blob).await?,
    };
    let window = context.windows.of(&ctx.mesh, &model, output).await;
    Ok(reply(&text, request, window))
}

/// Where a whole result stands.
enum Found {
    Here(String),
    Stored(BlobRef),
}

fn find(state: &State, wanted: &CallId) -> Option<Found> {
    let text = state
        .transcript
        .iter()
        .rev()
        .find_map(|message| match message.as_ref() {
            Message::FunctionResult { call, text, .. } if call == wanted => Some(text),
            _ => None,
        })?;
    Some(match state.stored.get(wanted) {
        Some(blob) => Found::Stored(*blob),
        None => Found::Here(text.clone()),
    })
}

/// One page: as much as was asked for, as long as the window of the model that asks takes it whole.
fn reply(text: &str, request: &ReadRequest, window: Window) -> ReadReply {
    let length = request
        .length
        .unwrap_or(limits::CONTEXT_PAGE_BYTES)
        .min(limits::RESULT_BYTES_MAX as u64);
    let json_max = window.result_bytes_max().saturating_sub(FORM_BYTES);
    let page = page(text, request.offset, length, json_max);
    ReadReply {
        text: page.text.to_owned(),
        bytes: text.len() as u64,
        next: page.next,
    }
}

/// The stored value that was read last: pages of one value are read one after another.
#[derive(Default)]
pub(crate) struct Values(Mutex<Option<(BlobRef, Arc<str>)>>);

impl Values {
    async fn get(&self, ctx: &Ctx, call: &CallId, blob: &BlobRef) -> Result<Arc<str>, Fault> {
        let last = self.last().clone();
        if let Some((known, text)) = last
            && known == *blob
        {
            return Ok(text);
        }
        let bytes = ctx
            .mesh
            .blobs()
            .get(blob)
            .await?
            .ok_or_else(|| error::value_lost(call))?;
        let text: Arc<str> = String::from_utf8_lossy(&bytes).into();
        *self.last() = Some((*blob, Arc::clone(&text)));
        Ok(text)
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Option<(BlobRef, Arc<str>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// UNI-1: the pages of a result join to it, and each fits into the model's cap as JSON.
        #[test]
        fn uni_1_pages_of_a_result_join_to_it(
            parts in prop::collection::vec(prop_oneof![Just("a"), Just("中🦀"), Just("\u{1}\"\n"), Just("\\")], 0..900),
            length in prop::option::of(0_u64..5000),
            tokens in 0_u64..40_000,
        ) {
            let text = parts.concat();
            let window = Window::assumed(tokens, 1024);
            let call = CallId::parse("call_1").expect("valid");
            let (mut joined, mut offset) = (String::new(), 0);
            loop {
                let request = ReadRequest { call: call.clone(), offset, length };
                let reply = reply(&text, &request, window);
                let json = serde_json::to_string(&reply).expect("JSON");
                prop_assert!(json.len() <= window.result_bytes_max());
                joined.push_str(&reply.text);
                prop_assert_eq!(reply.bytes, text.len() as u64);
                match reply.next {
                    Some(next) => {
                        prop_assert!(next > offset);
                        offset = next;
                    }
                    None => break,
                }
            }
            prop_assert_eq!(joined, text);
        }
    }
}
