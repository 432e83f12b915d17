//! Whether anybody needs the workers of this process: calls that run, and when the last one ended.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use teamster_mesh::{Worker, function::Handler};

/// Calls to the functions of this process's workers.
#[derive(Debug)]
pub struct Activity {
    began: Instant,
    running: AtomicUsize,
    last_ms: AtomicU64,
}

impl Default for Activity {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            running: AtomicUsize::new(0),
            last_ms: AtomicU64::new(0),
        }
    }
}

/// Counts one running call, also where its future is dropped.
struct Running(Arc<Activity>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.touch();
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Activity {
    /// The same worker, whose calls are counted here.
    pub fn observe(self: &Arc<Self>, mut worker: Worker) -> Worker {
        for function in &mut worker.functions {
            let inner = Arc::clone(&function.handler);
            let activity = Arc::clone(self);
            let observed: Handler = Arc::new(move |ctx, body| {
                activity.running.fetch_add(1, Ordering::SeqCst);
                let running = Running(Arc::clone(&activity));
                let call = inner(ctx, body);
                Box::pin(async move {
                    let result = call.await;
                    drop(running);
                    result
                })
            });
            function.handler = observed;
        }
        worker
    }

    /// Something else happened that shows that the process is needed.
    pub fn touch(&self) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.fetch_max(now, Ordering::SeqCst);
    }

    /// How long no call has run; zero while one runs.
    pub fn idle_for(&self) -> Duration {
        if self.running.load(Ordering::SeqCst) > 0 {
            return Duration::ZERO;
        }
        let last = Duration::from_millis(self.last_ms.load(Ordering::SeqCst));
        self.began.elapsed().saturating_sub(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_call_is_never_idle_and_a_dropped_one_ends() {
        let activity = Arc::new(Activity {
            began: Instant::now()
                .checked_sub(Duration::from_secs(100))
                .expect("the machine is older"),
            ..Activity::default()
        });
        assert!(activity.idle_for() >= Duration::from_secs(100));
        activity.running.fetch_add(1, Ordering::SeqCst);
        let running = Running(Arc::clone(&activity));
        assert_eq!(activity.idle_for(), Duration::ZERO);
        drop(running);
        assert!(
            activity.idle_for() < Duration::from_secs(50),
            "its end was the last sign of life"
        );
    }
}
