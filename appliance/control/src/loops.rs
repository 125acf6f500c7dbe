//! What is done now and then. Each pass reads the world again.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use sandboxo_model::{PhaseKind, decide::expiry};
use sandboxo_spool::Owner;
use sandboxo_store::StoreError;
use sandboxo_tasks::every;
use sandboxo_zone_protocol::Timestamp;
use tokio::{sync::Notify, time::timeout};

use crate::{
    context::Context, driver::Message, index::Live, notices::gather, templates::keep_images,
};

/// Samples are due every five seconds, and the first within two of the start.
const TICK: Duration = Duration::from_secs(1);
const TEND: Duration = Duration::from_mins(1);
const COLLECT: Duration = Duration::from_mins(10);
/// How many measurements are asked for at once, and how long one may take.
const MEASURE_AT_ONCE: usize = 16;
const MEASURE_BUDGET: Duration = Duration::from_secs(2);
/// Rows collected with one write.
const COLLECT_BATCH: usize = 256;

pub(crate) fn start(context: &Arc<Context>) {
    spawn(context, "expire", TICK, expire);
    spawn(context, "sample", TICK, sample);
    spawn(context, "collect", COLLECT, collect);
    spawn(context, "tend the spool", TEND, tend);
    spawn(context, "images", COLLECT, keep_images);
    spawn(context, "leftovers", COLLECT, leftovers);
    spawn(context, "builds", COLLECT, collect_builds);
}

fn spawn<F>(
    context: &Arc<Context>,
    name: &'static str,
    period: Duration,
    pass: fn(Arc<Context>) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let own = Arc::clone(context);
    context.tasks.spawn_critical(name, |stop| async move {
        every(period, &Notify::new(), stop, || pass(Arc::clone(&own))).await;
    });
}

/// Ends what its zone should have ended.
pub(crate) async fn expire(context: Arc<Context>) {
    let records = context.index.records();
    for id in expiry::overdue(records.iter().map(AsRef::as_ref), context.now()) {
        // A full mailbox: the next pass asks again.
        if let Some(live) = context.index.get(id)
            && live.mailbox.try_send(Message::Overdue).is_err()
        {
            tracing::debug!(sandbox.id = %id, "a driver is busy, its sandbox expires later");
        }
    }
}

pub(crate) async fn sample(context: Arc<Context>) {
    let now = context.now();
    let due = context.index.all().into_iter().filter(|live| {
        live.record().phase.kind() == PhaseKind::Running && live.samples.lock().is_due(now)
    });
    let due: Vec<Arc<Live>> = due.collect();
    futures_util::stream::iter(due)
        .for_each_concurrent(MEASURE_AT_ONCE, |live| {
            let context = &context;
            async move {
                match timeout(MEASURE_BUDGET, context.zone.measure(live.id)).await {
                    Ok(Ok(sample)) => {
                        live.samples.lock().push(sample);
                        let owner = Owner { team: live.record().team, sandbox: live.id };
                        context.spool.sample(owner, &sample);
                    }
                    Ok(Err(error)) => tracing::debug!(
                        sandbox.id = %live.id,
                        error = &error as &dyn std::error::Error,
                        "no measurement"
                    ),
                    Err(_elapsed) => {
                        tracing::debug!(sandbox.id = %live.id, "no measurement in time");
                    }
                }
                gather(context, &live, MEASURE_BUDGET).await;
            }
        })
        .await;
}

pub(crate) async fn tend(context: Arc<Context>) {
    context.spool.tend(context.now()).await;
}

/// Compares records and zone where the zone may keep what nothing starts from.
pub(crate) async fn leftovers(context: Arc<Context>) {
    if context.checkpoints.take_leftover() {
        context.nudge_zone.notify_one();
    }
}

/// Forgets the dead, and keys whose repeats are no longer recognized.
pub(crate) async fn collect(context: Arc<Context>) {
    let now = context.now();
    let before = Timestamp::checked_sub(now, context.config.keep_dead).unwrap_or(Timestamp::MIN);
    loop {
        let collected = context.store.write(move |tx| {
            let ended = tx.collect_ended(before, COLLECT_BATCH)?;
            let keys = tx.collect_idempotency(now, COLLECT_BATCH)?;
            Ok::<_, StoreError>(ended.max(keys))
        });
        match collected.await {
            Ok(COLLECT_BATCH) => {}
            Ok(_) => return,
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "can't collect the dead");
                return;
            }
        }
    }
}

/// Layers and uploads that nothing has used for long, and builds that nobody looks at any more.
pub(crate) async fn collect_builds(context: Arc<Context>) {
    if let Err(error) = context.collect_layers().await {
        tracing::warn!(error = &error as &dyn std::error::Error, "can't collect layers");
    }
    if let Err(error) = context.collect_builds().await {
        tracing::warn!(error = &error as &dyn std::error::Error, "can't collect builds");
    }
    if let Err(error) = context.sweep_uploads().await {
        tracing::warn!(error = &error as &dyn std::error::Error, "can't collect uploads");
    }
}
