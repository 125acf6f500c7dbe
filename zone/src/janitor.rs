//! Removes what containers leave on the host, and doesn't give up.
//!
//! Everything of a container is named by its id, so one routine undoes every stage of a bring-up,
//! also one that was cut off, and may be repeated until it has done all.

use std::{fs, io, sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use sandboxo_crashpoint::{Point, crashpoint};
use sandboxo_tasks::Stop;
use tokio::sync::{mpsc, oneshot, watch};

use crate::{
    cgroup::Cgroups,
    config::Layout,
    disk,
    fault::gone,
    keeper::Keeper,
    network::{Lease, LeaseRecord, Network},
    places, runsc,
    slot::ContainerId,
};

const FIRST_RETRY: Duration = Duration::from_millis(50);
const LAST_RETRY: Duration = Duration::from_secs(10);
/// Failures before it is said aloud: a busy mount frees itself within moments.
const QUIET: u32 = 5;

/// One container's remains.
pub(crate) struct Remains {
    pub(crate) container: ContainerId,
    pub(crate) network: Option<NetworkRemains>,
}

pub(crate) enum NetworkRemains {
    Lease(Box<Lease>),
    /// Of an earlier process.
    Record(LeaseRecord),
}

/// A cheap handle.
#[derive(Clone)]
pub(crate) struct Janitor {
    /// Unbounded: it is written from destructors, and each container comes once.
    queue: mpsc::UnboundedSender<Order>,
    /// How many are not removed yet.
    pending: watch::Sender<usize>,
    stop: Stop,
}

struct Order {
    remains: Remains,
    done: oneshot::Sender<()>,
    counted: Counted,
}

/// One of the pending, for as long as it lives.
struct Counted(watch::Sender<usize>);

impl Counted {
    fn new(pending: &watch::Sender<usize>) -> Self {
        pending.send_modify(|count| *count += 1);
        Self(pending.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

pub(crate) struct Queue(mpsc::UnboundedReceiver<Order>);

impl Janitor {
    pub(crate) fn new(stop: Stop) -> (Self, Queue) {
        let (queue, receiver) = mpsc::unbounded_channel();
        let pending = watch::Sender::new(0);
        (Self { queue, pending, stop }, Queue(receiver))
    }

    /// Resolves once nothing of it is left; need not be awaited. While the process stops nothing
    /// is removed any more: the next one decides.
    pub(crate) fn remove(&self, remains: Remains) -> oneshot::Receiver<()> {
        let (done, waiter) = oneshot::channel();
        if self.stop.is_cancelled() {
            return waiter;
        }
        let order = Order { remains, done, counted: Counted::new(&self.pending) };
        if self.queue.send(order).is_err() {
            // It has stopped; the next start finds what is left.
        }
        waiter
    }

    /// Resolves once there is nothing to remove, or after a while.
    pub(crate) async fn settle(&self, patience: Duration) {
        let mut pending = self.pending.subscribe();
        let settled = pending.wait_for(|count| *count == 0);
        if tokio::time::timeout(patience, settled).await.is_err() {
            tracing::debug!("the janitor is still at work");
        }
    }
}

/// What the work needs.
pub(crate) struct Tools {
    pub(crate) layout: Layout,
    pub(crate) cgroups: Cgroups,
    pub(crate) network: Network,
    pub(crate) keeper: Keeper,
}

pub(crate) async fn run(mut queue: Queue, tools: Arc<Tools>, stop: Stop) {
    let mut work = FuturesUnordered::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            Some(()) = work.next() => {}
            Some(order) = queue.0.recv() => work.push(finish(&tools, order)),
        }
    }
}

async fn finish(tools: &Tools, order: Order) {
    let Order { mut remains, done, counted } = order;
    let (mut pause, mut tries) = (FIRST_RETRY, 0_u32);
    while let Err(error) = remove(tools, &mut remains).await {
        tries += 1;
        if tries == QUIET {
            tracing::warn!(
                container = %remains.container,
                error = &error as &dyn std::error::Error,
                "a container's remains can't be removed yet"
            );
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LAST_RETRY);
    }
    drop(counted);
    if done.send(()).is_err() { /* nobody waits for it */ }
}

#[derive(Debug, thiserror::Error)]
#[error("{doing}")]
struct RemoveError {
    doing: &'static str,
    source: io::Error,
}

fn at(doing: &'static str) -> impl Fn(io::Error) -> RemoveError {
    move |source| RemoveError { doing, source }
}

async fn remove(tools: &Tools, remains: &mut Remains) -> Result<(), RemoveError> {
    let container = remains.container;
    let group = tools.cgroups.group(&container.to_string());
    group.kill_all().await.map_err(at("end the processes"))?;
    crashpoint(Point::RemoveProcesses);
    // A keeper that can't be asked is being replaced, and tells the next zone what it holds.
    if let Err(error) = tools.keeper.release(&container.to_string()).await {
        tracing::debug!(%container, error = &error as &dyn std::error::Error, "release");
    }
    match remains.network.take() {
        None => {}
        Some(NetworkRemains::Lease(lease)) => lease.release().await,
        Some(NetworkRemains::Record(record)) => match tools.network.adopt(record).await {
            Ok(lease) => lease.release().await,
            // Nothing of it is there, or the sweep at the end of a start takes it.
            Err(error) => {
                tracing::debug!(%container, error = &error as &dyn std::error::Error, "network");
            }
        },
    }
    crashpoint(Point::RemoveNetwork);
    let (layout, root) = (tools.layout.clone(), tools.layout.runsc_root());
    blocking(move || {
        runsc::forget(&root, container).map_err(at("remove runsc's files"))?;
        crashpoint(Point::RemoveRunsc);
        let paths = layout.slot(container);
        places::clear(&paths).map_err(at("detach its volumes"))?;
        crashpoint(Point::RemoveVolumes);
        disk::release(&paths.mount).map_err(at("unmount the disk"))?;
        crashpoint(Point::RemoveDisk);
        group.remove().map_err(at("remove the cgroup"))?;
        crashpoint(Point::RemoveGroup);
        gone(fs::remove_dir_all(paths.folder)).map_err(at("remove the slot"))?;
        crashpoint(Point::RemoveSlot);
        Ok(())
    })
    .await
}

async fn blocking(
    work: impl FnOnce() -> Result<(), RemoveError> + Send + 'static,
) -> Result<(), RemoveError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|panicked| Err(at("remove a container")(io::Error::other(panicked))))
}
