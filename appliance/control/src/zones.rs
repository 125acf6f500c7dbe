//! The zone's side of the story: its hello is compared with the records, its events go to the
//! drivers, and a stream that closed is opened again.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use parking_lot::Mutex;
use sandboxo_crashpoint::{Point, crashpoint};
use sandboxo_model::{
    Phase, PhaseKind, SandboxRecord, ZoneRecord,
    decide::reconcile::{self, KillWhy, Plan, Step},
};
use sandboxo_store::StoreError;
use sandboxo_tasks::Stop;
use sandboxo_zone_protocol::{
    Capacity, CheckpointId, SandboxId, Timestamp, ZoneError, ZoneEvent, ZoneInfo, ZoneReport,
};
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};

use crate::{
    context::Context,
    driver::{Driver, Message},
    index::Live,
};

/// What an operator sees of zones.
#[derive(Clone)]
pub struct Zones {
    pub(crate) context: Arc<Context>,
    pub(crate) link: Arc<Mutex<Link>>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ZoneStatus {
    pub info: ZoneInfo,
    /// Its event stream is open.
    pub ready: bool,
    pub boot_id: Option<String>,
    /// As last told, and when that was.
    pub capacity: Option<(Capacity, Timestamp)>,
}

#[derive(Debug, Default)]
pub(crate) struct Link {
    pub(crate) record: Option<ZoneRecord>,
    ready: bool,
    capacity: Option<(Capacity, Timestamp)>,
}

impl Link {
    pub(crate) fn of(record: ZoneRecord) -> Self {
        Self { record: Some(record), ..Self::default() }
    }
}

/// Between two tries to reach a zone.
const AGAIN: Duration = Duration::from_secs(1);
/// How long a driver may be busy with something else.
const TELL_BUDGET: Duration = Duration::from_secs(1);
/// How many sandboxes without a record are killed at once.
const KILL_AT_ONCE: usize = 8;

impl Zones {
    pub fn list(&self) -> Vec<ZoneStatus> {
        let link = self.link.lock();
        vec![ZoneStatus {
            info: self.context.zone.info(),
            ready: link.ready,
            boot_id: link.record.as_ref().and_then(|record| record.boot_id.clone()),
            capacity: link.capacity,
        }]
    }

    /// Subscribes, and brings records and zone together. Returns once what is dead or expired is
    /// recorded so, or has had the zone's budget to be.
    pub(crate) async fn hello(&self) -> Result<mpsc::Receiver<ZoneEvent>, ZoneError> {
        let context = &self.context;
        self.replace_drivers();
        // Before the zone is asked: see `decide::reconcile`. A create names what it starts from before
        // a snapshot can be gone.
        let snapshots = context.accounts.checkpoints();
        let records = context.index.records();
        let subscribed = timeout(context.config.zone_budget, async {
            let mut events = context.zone.subscribe().await?;
            match events.recv().await {
                Some(ZoneEvent::Hello(report)) => Ok((events, report)),
                Some(
                    ZoneEvent::Ping(_) | ZoneEvent::SandboxEnded(_) | ZoneEvent::SandboxPaused(_),
                )
                | None => Err(ZoneError::Unavailable),
            }
        });
        let (events, report) = subscribed.await.unwrap_or(Err(ZoneError::Unavailable))?;
        self.reconcile(&records, &snapshots, report).await;
        self.link.lock().ready = true;
        Ok(events)
    }

    async fn reconcile(
        &self,
        records: &[Arc<SandboxRecord>],
        snapshots: &BTreeSet<CheckpointId>,
        report: ZoneReport,
    ) {
        let context = &self.context;
        let known = self.link.lock().record.clone();
        let known_boot = known.as_ref().and_then(|record| record.boot_id.as_deref());
        let all = records.iter().map(AsRef::as_ref);
        let plan = reconcile::plan(all, snapshots, &report, known_boot, context.now());
        if report.checkpoints.iter().any(|it| !it.is_pause && !snapshots.contains(&it.id)) {
            // Too young to tell, or what copies still start from.
            context.checkpoints.has_leftovers();
        }
        if plan.steps.is_empty() {
            tracing::debug!("zone and records agree");
        } else {
            tracing::info!(%plan, "zone and records differ");
        }
        if !self.carry_out(&plan, &report).await {
            tracing::warn!("not everything could be reconciled, comparing again");
            context.nudge_zone.notify_one();
        }
        crashpoint(Point::Reconciled);
        self.link.lock().capacity = Some((report.capacity, context.now()));
        if let Some(known) = known
            && known.boot_id.as_deref() != Some(&report.boot_id)
        {
            self.remember_boot(ZoneRecord { boot_id: Some(report.boot_id), ..known }).await;
        }
    }

    /// `false`: a driver was too busy to listen.
    async fn carry_out(&self, plan: &Plan, report: &ZoneReport) -> bool {
        let context = &self.context;
        let mut ending = Vec::new();
        let mut acknowledged = Vec::new();
        let mut unwanted = Vec::new();
        let mut orphans = Vec::new();
        let mut all_told = true;
        for step in &plan.steps {
            tracing::debug!(%step, "reconcile");
            let live = context.index.get(step.id());
            match (step, live) {
                (
                    Step::Bury { .. }
                    | Step::GiveUp { .. }
                    | Step::Kill { why: KillWhy::Wanted | KillWhy::Expired, .. }
                    | Step::Paused { .. },
                    Some(live),
                ) => {
                    all_told &= tell(&live, Message::Reconcile(*step)).await;
                    ending.push(live);
                }
                (
                    Step::Deliver { .. }
                    | Step::Adopt { .. }
                    | Step::SetDeadline { .. }
                    | Step::Pause { .. }
                    | Step::Kill { why: KillWhy::Paused, .. }
                    | Step::Acknowledge { .. }
                    | Step::Discard { .. },
                    Some(live),
                ) => all_told &= tell(&live, Message::Reconcile(*step)).await,
                (Step::Kill { .. }, None) => unwanted.push(step.id()),
                (Step::Acknowledge { .. } | Step::Bury { .. }, None) => {
                    acknowledged.push(step.id());
                }
                (Step::Discard { checkpoint, .. }, None) => orphans.push(*checkpoint),
                (Step::Paused { checkpoint, .. }, None) => orphans.push(checkpoint.id),
                // Nobody drives it any more, or a record came into being behind the snapshot.
                (
                    Step::Deliver { .. }
                    | Step::GiveUp { .. }
                    | Step::Adopt { .. }
                    | Step::SetDeadline { .. }
                    | Step::Pause { .. },
                    None,
                )
                | (Step::Kill { why: KillWhy::NoRecord, .. }, Some(_)) => {}
            }
        }
        for sandbox in &report.sandboxes {
            if let Some(live) = context.index.get(sandbox.id) {
                all_told &= tell(&live, Message::Agreed).await;
            }
        }
        futures_util::stream::iter(unwanted)
            .for_each_concurrent(KILL_AT_ONCE, |id| self.kill_unwanted(id))
            .await;
        self.acknowledge(acknowledged).await;
        futures_util::stream::iter(orphans)
            .for_each_concurrent(KILL_AT_ONCE, |orphan| context.discard(orphan, None))
            .await;
        let ended = async {
            for live in ending {
                live.until(|record| {
                    matches!(record.phase.kind(), PhaseKind::Dead | PhaseKind::Paused)
                })
                .await;
            }
        };
        if timeout(context.config.zone_budget, ended).await.is_err() {
            tracing::warn!("the ends of some sandboxes are not recorded yet");
        }
        all_told
    }

    async fn kill_unwanted(&self, id: SandboxId) {
        let killed = timeout(self.context.config.zone_budget, self.context.zone.kill(id)).await;
        match killed.unwrap_or(Err(ZoneError::Unavailable)) {
            Ok(()) | Err(ZoneError::NotFound) => self.acknowledge(vec![id]).await,
            // The next hello has it again.
            Err(error @ (ZoneError::Unavailable | ZoneError::Internal(_))) => tracing::warn!(
                sandbox.id = %id,
                error = &error as &dyn std::error::Error,
                "can't kill a sandbox without a record"
            ),
        }
    }

    async fn acknowledge(&self, ended: Vec<SandboxId>) {
        if ended.is_empty() {
            return;
        }
        let told = timeout(self.context.config.zone_budget, self.context.zone.acknowledge(ended));
        if let Err(error) = told.await.unwrap_or(Err(ZoneError::Unavailable)) {
            tracing::debug!(error = &error as &dyn std::error::Error, "acknowledgement not taken");
        }
    }

    async fn remember_boot(&self, record: ZoneRecord) {
        let written = record.clone();
        let write = self.context.store.write(move |tx| {
            tx.put(&written);
            Ok::<_, StoreError>(())
        });
        match write.await {
            Ok(()) => self.link.lock().record = Some(record),
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "can't record the zone's boot id"
            ),
        }
    }

    /// A sandbox whose driver panicked gets another.
    fn replace_drivers(&self) {
        for live in self.context.index.all() {
            let record = live.record();
            if live.mailbox.is_closed() && !matches!(record.phase, Phase::Dead { .. }) {
                Driver::take_over(&self.context, record);
            }
        }
    }

    /// `events`: from the hello at the start, if there was one.
    pub(crate) async fn follow(self, mut events: Option<mpsc::Receiver<ZoneEvent>>, stop: Stop) {
        loop {
            if let Some(events) = events.take() {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = self.handle(events) => {}
                    () = self.context.nudge_zone.notified() => {}
                }
                self.link.lock().ready = false;
            }
            tokio::select! {
                () = stop.cancelled() => return,
                hello = self.hello() => match hello {
                    Ok(again) => events = Some(again),
                    Err(error) => {
                        tracing::warn!(
                            error = &error as &dyn std::error::Error,
                            "the zone does not answer, asking again"
                        );
                        sleep(AGAIN).await;
                    }
                },
            }
        }
    }

    /// Until the stream closes.
    async fn handle(&self, mut events: mpsc::Receiver<ZoneEvent>) {
        while let Some(event) = events.recv().await {
            match event {
                ZoneEvent::Ping(capacity) => {
                    self.link.lock().capacity = Some((capacity, self.context.now()));
                }
                ZoneEvent::SandboxEnded(ended) => {
                    let id = ended.id;
                    match self.context.index.get(id) {
                        // The hello of a new subscription tells it again.
                        Some(live) if !tell(&live, Message::Ended(ended)).await => return,
                        Some(_) => {}
                        None => self.acknowledge(vec![id]).await,
                    }
                }
                ZoneEvent::SandboxPaused(paused) => match self.context.index.get(paused.id) {
                    Some(live) if !tell(&live, Message::Paused(paused)).await => return,
                    Some(live) if !matches!(live.record().phase, Phase::Dead { .. }) => {}
                    // It was killed over its pause.
                    Some(_) | None => self.context.discard(paused.checkpoint.id, None).await,
                },
                // A second hello is a new start, seen with older records: subscribe again.
                ZoneEvent::Hello(_) => return,
            }
        }
    }
}

/// `false`: its driver does not listen. One that has ended needs to hear nothing.
async fn tell(live: &Live, message: Message) -> bool {
    timeout(TELL_BUDGET, live.mailbox.send(message)).await.is_ok()
}
