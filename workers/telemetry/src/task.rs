//! The one place that spawns tasks. A task has a name, and its panic reaches the log even if nobody joins it.

use std::{
    any::Any,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::pin,
};

use tokio::task::JoinHandle;

/// Spawns `future` on the current runtime under `name`, a constant that says what the task does. A panic is logged with
/// that name and then reaches whoever joins the task.
///
/// Dropping the handle does not end the task: give it a cancellation token or a channel whose closing ends it.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the place that all others are sent to"
)]
pub fn spawn<F>(name: &'static str, future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    tokio::spawn(named(name, future))
}

async fn named<F: Future>(name: &'static str, future: F) -> F::Output {
    let mut future = pin!(future);
    let ended = poll_fn(|context| {
        // A future that panicked is never polled again: the panic goes on below.
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => std::task::Poll::Ready(Err(panic)),
        }
    })
    .await;
    match ended {
        Ok(output) => output,
        Err(panic) => {
            tracing::error!(
                task = name,
                panic = text_of(panic.as_ref()),
                "a task panicked"
            );
            resume_unwind(panic)
        }
    }
}

/// The text that a panic was raised with.
pub fn text_of(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_output_of_a_task_reaches_its_handle() {
        let task = spawn("sum", async { 1 + 1 });
        assert_eq!(task.await.expect("the task ends"), 2);
    }

    #[tokio::test]
    async fn a_panic_reaches_whoever_joins_the_task() {
        let task = spawn("bad", async {
            assert!(!std::hint::black_box(true), "broken {}", "invariant");
        });
        let panic = task.await.expect_err("the task panicked").into_panic();
        assert_eq!(text_of(panic.as_ref()), "broken invariant");
    }
}
