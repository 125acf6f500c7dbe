//! The only wrapper of `tokio::spawn`.

use std::{future::Future, time::Duration};

use tokio::task::JoinHandle;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Told to stop: `cancelled().await` resolves then.
pub type Stop = CancellationToken;

/// Handed to whatever starts background work.
#[derive(Clone, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: Stop,
}

impl Tasks {
    pub fn new() -> Self {
        Self::default()
    }

    /// A task that ends while nobody asked it to takes the process down: a half-alive appliance
    /// is worse than a restarted one.
    pub fn spawn_critical<F>(&self, name: &'static str, task: impl FnOnce(Stop) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let stop = self.stop.clone();
        let task = task(stop.child_token());
        self.start(async move {
            // Dropped on return and on panic alike.
            let _stop_all = stop.clone().drop_guard();
            task.await;
            if !stop.is_cancelled() {
                tracing::error!(name, "critical task ended early");
            }
        });
    }

    /// A task whose end concerns its owner only. Shutdown tells it and waits for it.
    pub fn spawn<F>(&self, name: &'static str, task: impl FnOnce(Stop) -> F) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let task = task(self.stop.child_token());
        self.start(async move {
            let named = Ended { name };
            task.await;
            drop(named);
        })
    }

    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Tells every task to stop, and waits for all of them or for the grace. `false`: some were
    /// still running.
    pub async fn shut_down(&self, grace: Duration) -> bool {
        self.stop.cancel();
        self.tracker.close();
        tokio::time::timeout(grace, self.tracker.wait()).await.is_ok()
    }

    #[expect(clippy::disallowed_methods, reason = "the tracker counts it")]
    fn start<F>(&self, task: F) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        tokio::spawn(self.tracker.track_future(task))
    }
}

struct Ended {
    name: &'static str,
}

impl Drop for Ended {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(name = self.name, "task panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_critical_task_that_ends_stops_the_rest() {
        let tasks = Tasks::new();
        tasks.spawn_critical("short", |_stop| async {});
        tasks.stop().cancelled().await;
        assert!(tasks.shut_down(Duration::from_secs(1)).await);
    }

    #[tokio::test(start_paused = true)]
    async fn shutdown_reports_who_stays() {
        let tasks = Tasks::new();
        tasks.spawn("deaf", |_stop| std::future::pending());
        assert!(!tasks.shut_down(Duration::from_secs(1)).await);
    }

    #[tokio::test(start_paused = true)]
    async fn an_ordinary_task_may_end() {
        let tasks = Tasks::new();
        tasks.spawn("short", |_stop| async {}).await.unwrap();
        assert!(!tasks.stop().is_cancelled());
    }
}
