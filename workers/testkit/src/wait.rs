//! Bounded, level-triggered waits: a condition is looked at until it holds, or the test fails and says which it was.

use std::{future::Future, time::Duration};

use tokio::time::{Instant, sleep};

/// How often a condition is looked at.
const EVERY: Duration = Duration::from_millis(5);

/// Waits until `holds` answers true.
///
/// # Panics
/// When it still answers false after `limit`; the message is `description`.
pub async fn until<F, Fut>(limit: Duration, description: &str, mut holds: F)
where
    F: FnMut() -> Fut,
    Fut: Future<Output = bool>,
{
    some(limit, description, || {
        let held = holds();
        async move { held.await.then_some(()) }
    })
    .await;
}

/// Waits until `look` finds something, and answers it.
///
/// # Panics
/// When it has found nothing after `limit`; the message is `description`.
pub async fn some<T, F, Fut>(limit: Duration, description: &str, mut look: F) -> T
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Option<T>>,
{
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(
            Instant::now() < deadline,
            "not within {limit:?}: {description}"
        );
        sleep(EVERY).await;
    }
}

/// Awaits a future for at most `limit`.
///
/// # Panics
/// When it is not ready then; the message is `description`.
pub async fn within<T>(limit: Duration, description: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(limit, future)
        .await
        .unwrap_or_else(|_| panic!("not within {limit:?}: {description}"))
}

/// Takes as long as a function under test is meant to work. For the body of such a function only: a test itself waits for
/// a state.
pub async fn work(duration: Duration) {
    sleep(duration).await;
}
