//! One task per live sandbox. It alone moves the record from phase to phase: requests, what the
//! zone says and what reconcile wants meet in its queue.
//!
//! An *intent* (a kill, a timeout, rules) is written down before the zone is asked. A *fact* (it
//! started, it ended) is published first and then written until that succeeds: if the process dies
//! in between, the zone tells the fact again.

mod delivery;
mod message;

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use sandboxo_crashpoint::{Point, crashpoint};
use sandboxo_model::{
    DeathReason, KillCause, LogEntry, NetworkAsked, Phase, SandboxRecord, StartFailure,
    decide::{
        expiry,
        reconcile::{BuryCause, KillWhy, Step},
        story,
    },
    lifecycle::Event,
    rules,
};
use sandboxo_spool::Owner;
use sandboxo_store::StoreError;
use sandboxo_tasks::Stop;
use sandboxo_zone_protocol::{EndReason, NetworkPolicy, ZoneError};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::{context::Context, index::Live, sandboxes::Birth};

pub(crate) use delivery::Delivered;
use message::Mailbox;
pub(crate) use message::{Message, SendError, send};

pub(crate) struct Driver {
    context: Arc<Context>,
    live: Arc<Live>,
    mailbox: Mailbox,
    delivery: Option<Pin<Box<dyn Future<Output = Delivered> + Send>>>,
    kill: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// The zone enforces the record's rules. Not known of one that was running before this
    /// process, and not so when the zone failed to take them.
    rules_in_force: bool,
    unwritten: Option<Unwritten>,
}

/// A record that is published and could not be written yet.
struct Unwritten {
    again: Instant,
    pause: Duration,
}

const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause between two tries.
const MAX_PAUSE: Duration = Duration::from_secs(30);

impl Driver {
    /// Takes over a sandbox that the store has. What to do about it is reconcile's to say, except
    /// for a kill that was not confirmed.
    pub(crate) fn resume(context: &Arc<Context>, record: Arc<SandboxRecord>) {
        let driver = Self::new(context, record);
        driver.context.index.insert(Arc::clone(&driver.live));
        driver.spawn();
    }

    /// Commits a new sandbox, and delivers it.
    pub(crate) fn begin(
        context: &Arc<Context>,
        record: Arc<SandboxRecord>,
        birth: Birth,
        reply: oneshot::Sender<Result<Arc<Live>, crate::CreateError>>,
    ) {
        let mut driver = Self::new(context, Arc::clone(&record));
        drop(context.tasks.spawn("sandbox", |stop| async move {
            match birth.commit(&driver.context, &record).await {
                Ok(()) => crashpoint(Point::CreateCommitted),
                Err(error) => {
                    if reply.send(Err(error)).is_err() { /* the caller has left */ }
                    return;
                }
            }
            driver.context.index.insert(Arc::clone(&driver.live));
            driver.log(story::created(&record));
            if reply.send(Ok(Arc::clone(&driver.live))).is_err() { /* the create goes on */ }
            driver.rules_in_force = true;
            driver.deliver();
            driver.run(stop).await;
        }));
    }

    fn new(context: &Arc<Context>, record: Arc<SandboxRecord>) -> Self {
        let (sender, mailbox) = Mailbox::new(context);
        Self {
            context: Arc::clone(context),
            live: Live::new(record, sender),
            mailbox,
            delivery: None,
            kill: None,
            rules_in_force: false,
            unwritten: None,
        }
    }

    fn spawn(self) {
        let tasks = self.context.tasks.clone();
        drop(tasks.spawn("sandbox", |stop| self.run(stop)));
    }

    async fn run(mut self, stop: Stop) {
        loop {
            let record = self.live.record();
            match record.phase {
                Phase::Dead { .. } if self.unwritten.is_none() => break,
                Phase::Killing { .. } if self.kill.is_none() => self.kill(),
                Phase::Starting { .. }
                | Phase::Running { .. }
                | Phase::Killing { .. }
                | Phase::Dead { .. } => {}
            }
            // What the zone answers comes before what is asked next: a kill behind a start sees
            // that it has started.
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = wait(&mut self.kill) => {
                    crashpoint(Point::KillConfirmed);
                    let at = self.context.now();
                    self.kill = None;
                    self.fact(Event::Ended { at, reason: EndReason::Killed }).await;
                }
                delivered = wait(&mut self.delivery) => self.delivered(delivered).await,
                () = until(self.unwritten.as_ref()) => self.write_again().await,
                message = self.mailbox.recv() => match message {
                    Some(message) => self.handle(message).await,
                    // The entry in the index holds a sender.
                    None => return,
                },
            }
        }
        self.bury().await;
    }

    async fn handle(&mut self, message: Message) {
        match message {
            Message::Kill { cause, reply } => {
                let done = self.kill_asked(cause).await;
                crashpoint(Point::KillRecorded);
                message::answer(reply, done.map(drop));
            }
            Message::SetTimeout { timeout, only_extend, reply } => {
                let done = self.set_timeout(timeout, only_extend).await;
                message::answer(reply, done);
            }
            Message::SetNetwork { network, internet, policy, reply } => {
                let done = self.set_network(network, internet, policy).await;
                message::answer(reply, done);
            }
            Message::Overdue => self.expire().await,
            Message::Ended(ended) => {
                self.fact(Event::Ended { at: ended.at, reason: ended.reason }).await;
            }
            Message::Reconcile(planned) => self.reconcile(planned).await,
            Message::Agreed => {
                if !self.rules_in_force {
                    self.apply_network().await;
                }
            }
        }
    }

    /// A plan may be older than what happened since, so each step is judged by the phase of now.
    async fn reconcile(&mut self, planned: Step) {
        let record = self.live.record();
        let at = self.context.now();
        match (planned, &record.phase) {
            (Step::Deliver { .. }, Phase::Starting { .. }) if self.delivery.is_none() => {
                self.rules_in_force = true;
                self.deliver();
            }
            (Step::GiveUp { .. }, Phase::Starting { .. }) if self.delivery.is_none() => {
                self.fact(Event::StartFailed { at, failure: StartFailure::TimedOut }).await;
            }
            (Step::Adopt { started_at, .. }, Phase::Starting { .. }) => {
                let expires_at = record.spec.deadline;
                self.fact(Event::Started { at: started_at, expires_at }).await;
            }
            (Step::SetDeadline { .. }, Phase::Running { expires_at, .. }) => {
                if let Err(error) = self.tell_deadline(*expires_at).await {
                    self.warn("the zone did not take a deadline", &error);
                }
            }
            (Step::Kill { why: KillWhy::Expired, .. }, _) => self.expire().await,
            (Step::Bury { at, cause: BuryCause::Told(reason), .. }, _) => {
                self.fact(Event::Ended { at, reason }).await;
            }
            (
                Step::Bury { at, cause: BuryCause::ZoneRestarted, .. },
                Phase::Running { .. } | Phase::Killing { .. },
            ) => {
                self.fact(Event::Ended { at, reason: EndReason::ZoneRestarted }).await;
            }
            (
                Step::Bury { at, cause: BuryCause::Missing, .. },
                Phase::Running { .. } | Phase::Killing { .. },
            ) => {
                self.fact(Event::Vanished { at }).await;
            }
            // Overtaken by events, or, for a kill that is wanted, under way.
            (
                Step::Deliver { .. }
                | Step::GiveUp { .. }
                | Step::Adopt { .. }
                | Step::SetDeadline { .. }
                | Step::Kill { .. }
                | Step::Bury { .. }
                | Step::Acknowledge { .. },
                _,
            ) => {}
        }
    }

    /// Says again by the clock of now that its time is over: it may have been extended since.
    async fn expire(&mut self) {
        let record = self.live.record();
        let at = self.context.now();
        let expires_at = match record.phase {
            Phase::Running { expires_at, .. } => expires_at,
            Phase::Starting { .. } => record.spec.deadline,
            Phase::Killing { .. } | Phase::Dead { .. } => return,
        };
        if at < expires_at {
            return;
        }
        if let Err(error) = self.kill_asked(KillCause::Expired).await {
            self.warn("can't record the end of an expired sandbox", &error);
        }
    }

    /// It makes room, so it goes on where a full disk takes no word of it: nobody is told that it
    /// is done before its end is written down, for which there is room by then.
    async fn kill_asked(
        &mut self,
        cause: KillCause,
    ) -> Result<Option<Arc<SandboxRecord>>, StoreError> {
        let before = self.live.record();
        let asked = Event::KillAsked { at: self.context.now(), cause };
        let Ok(phase) = before.phase.clone().apply(asked) else { return Ok(None) };
        let record = SandboxRecord { phase, ..(*before).clone() };
        match self.record(&before, record.clone()).await {
            Err(StoreError::DiskFull) => {
                let record = Arc::new(record);
                self.publish(&before, &record);
                self.write_later(FIRST_PAUSE, &StoreError::DiskFull);
                Ok(Some(record))
            }
            recorded => recorded.map(Some),
        }
    }

    fn deliver(&mut self) {
        let record = self.live.record();
        if let Phase::Starting { give_up_at } = record.phase {
            let planned = self.context.config.create_budget;
            let budget = expiry::left(give_up_at, self.context.now(), planned);
            let context = Arc::clone(&self.context);
            self.delivery = Some(Box::pin(delivery::deliver(context, record, budget)));
        }
    }

    async fn delivered(&mut self, delivered: Delivered) {
        self.delivery = None;
        crashpoint(Point::CreateDelivered);
        let at = self.context.now();
        let event = match delivered {
            Delivered::Started(started) => {
                let expires_at = self.live.record().spec.deadline;
                Event::Started { at: started.at, expires_at }
            }
            Delivered::Refused(failure) => Event::StartFailed { at, failure },
            Delivered::Killed => Event::Ended { at, reason: EndReason::Killed },
            Delivered::Unknown(failure) => Event::StartAbandoned { at, failure },
        };
        self.fact(event).await;
    }

    /// Until the zone confirms that it is gone.
    fn kill(&mut self) {
        let context = Arc::clone(&self.context);
        let id = self.live.id;
        self.kill = Some(Box::pin(async move {
            let mut pause = Duration::from_millis(250);
            loop {
                let killed = timeout(context.config.zone_budget, context.zone.kill(id)).await;
                let error = match killed {
                    Ok(Ok(()) | Err(ZoneError::NotFound)) => return,
                    Ok(Err(error)) => error,
                    Err(_elapsed) => ZoneError::Unavailable,
                };
                tracing::warn!(
                    sandbox.id = %id,
                    error = &error as &dyn std::error::Error,
                    "the zone has not confirmed a kill, asking again"
                );
                sleep(pause).await;
                pause = (pause * 2).min(MAX_PAUSE);
            }
        }));
    }

    async fn set_timeout(
        &mut self,
        timeout: Duration,
        only_extend: bool,
    ) -> Result<Option<Arc<SandboxRecord>>, StoreError> {
        let record = self.live.record();
        let now = self.context.now();
        let Some(before) = record.usable_until(now) else { return Ok(None) };
        let asked = rules::after(now, timeout);
        if only_extend && asked <= before {
            return Ok(Some(record));
        }
        let record = self.intent(Event::TimeoutSet { expires_at: asked }).await?;
        crashpoint(Point::TimeoutRecorded);
        // A zone that does not take it now is told again when it says hello.
        match self.tell_deadline(asked).await {
            Ok(()) | Err(ZoneError::NotFound) => {}
            Err(error @ (ZoneError::Unavailable | ZoneError::Internal(_))) => {
                self.warn("the zone did not take a deadline", &error);
            }
        }
        Ok(record)
    }

    async fn tell_deadline(
        &mut self,
        deadline: sandboxo_zone_protocol::Timestamp,
    ) -> Result<(), ZoneError> {
        let told = self.context.zone.set_deadline(self.live.id, deadline);
        timeout(self.context.config.zone_budget, told).await.unwrap_or(Err(ZoneError::Unavailable))
    }

    async fn set_network(
        &mut self,
        network: NetworkAsked,
        internet: Option<bool>,
        policy: NetworkPolicy,
    ) -> Result<Option<message::NetworkSet>, StoreError> {
        let before = self.live.record();
        if before.usable_until(self.context.now()).is_none() {
            return Ok(None);
        }
        let mut record = (*before).clone();
        let asked = record.network.take().unwrap_or_default();
        record.network = Some(NetworkAsked {
            allow_out: network.allow_out,
            deny_out: network.deny_out,
            allow_public_traffic: asked.allow_public_traffic,
            mask_request_host: asked.mask_request_host,
        });
        record.internet = internet;
        record.spec.network = policy;
        let record = self.record(&before, record).await?;
        let in_force = self.apply_network().await;
        Ok(Some(message::NetworkSet { record, in_force }))
    }

    async fn apply_network(&mut self) -> bool {
        let record = self.live.record();
        if !matches!(record.phase, Phase::Running { .. }) {
            return true;
        }
        let told = self.context.zone.set_network(record.id, record.spec.network.clone());
        let told = timeout(self.context.config.zone_budget, told).await;
        self.rules_in_force = match told.unwrap_or(Err(ZoneError::Unavailable)) {
            Ok(()) | Err(ZoneError::NotFound) => true,
            Err(error @ (ZoneError::Unavailable | ZoneError::Internal(_))) => {
                self.warn("the zone did not take egress rules", &error);
                false
            }
        };
        self.rules_in_force
    }

    /// `None`: the phase does not allow it.
    async fn intent(&mut self, event: Event) -> Result<Option<Arc<SandboxRecord>>, StoreError> {
        let before = self.live.record();
        let Ok(phase) = before.phase.clone().apply(event) else { return Ok(None) };
        let record = SandboxRecord { phase, ..(*before).clone() };
        self.record(&before, record).await.map(Some)
    }

    /// Writes, then publishes.
    async fn record(
        &mut self,
        before: &Arc<SandboxRecord>,
        record: SandboxRecord,
    ) -> Result<Arc<SandboxRecord>, StoreError> {
        if record == **before {
            return Ok(Arc::clone(before));
        }
        let record = Arc::new(record);
        self.write(&record).await?;
        self.publish(before, &record);
        Ok(record)
    }

    /// Publishes, then writes, again and again if need be; what is asked meanwhile is done.
    async fn fact(&mut self, event: Event) {
        let before = self.live.record();
        let phase = match before.phase.clone().apply(event) {
            Ok(phase) if phase == before.phase => return,
            Ok(phase) => phase,
            Err(illegal) => {
                // Late news, such as the answer to a create that was given up.
                tracing::debug!(sandbox.id = %before.id, %illegal, "nothing moves");
                return;
            }
        };
        let record = Arc::new(SandboxRecord { phase, ..(*before).clone() });
        self.publish(&before, &record);
        crashpoint(Point::CreatePublished);
        match self.write(&record).await {
            Ok(()) => crashpoint(Point::CreateRecorded),
            Err(error) => self.write_later(FIRST_PAUSE, &error),
        }
    }

    fn write_later(&mut self, pause: Duration, error: &StoreError) {
        self.warn("can't record what happened to a sandbox, trying again", error);
        self.unwritten = Some(Unwritten { again: Instant::now() + pause, pause });
    }

    async fn write_again(&mut self) {
        let Some(Unwritten { pause, .. }) = self.unwritten else { return };
        let record = self.live.record();
        if let Err(error) = self.write(&record).await {
            self.write_later((pause * 2).min(MAX_PAUSE), &error);
        }
    }

    async fn write(&mut self, record: &Arc<SandboxRecord>) -> Result<(), StoreError> {
        let record = Arc::clone(record);
        let write = self.context.store.write(move |tx| {
            tx.put_sandbox(&record);
            Ok::<_, StoreError>(())
        });
        write.await?;
        // The whole record, so also what could not be written before.
        self.unwritten = None;
        Ok(())
    }

    fn publish(&self, before: &SandboxRecord, record: &Arc<SandboxRecord>) {
        let (from, to) = (before.phase.kind(), record.phase.kind());
        if let Phase::Dead { reason, .. } = &record.phase {
            let expected =
                matches!(reason, DeathReason::Ended(EndReason::Killed | EndReason::TimedOut));
            if expected {
                tracing::info!(sandbox.id = %record.id, phase.from = %from, %reason, "sandbox ended");
            } else {
                tracing::warn!(sandbox.id = %record.id, phase.from = %from, %reason, "sandbox died");
            }
        } else if from != to {
            tracing::info!(sandbox.id = %record.id, phase.from = %from, phase.to = %to, "sandbox moved");
        }
        if let Some(told) = story::changed(before, record, self.context.now()) {
            self.log(told);
        }
        self.live.publish(Arc::clone(record));
    }

    /// For its owner.
    fn log(&self, entry: LogEntry) {
        let owner = Owner { team: self.live.record().team, sandbox: self.live.id };
        self.context.spool.log(owner, entry);
    }

    /// Nothing more will happen to it, and the end is on disk.
    async fn bury(self) {
        self.context.index.remove(&self.live);
        // Those that wait for the end see this.
        drop(self.mailbox);
        let told = self.context.zone.acknowledge(vec![self.live.id]);
        match timeout(self.context.config.zone_budget, told).await {
            Ok(Ok(())) => {}
            // The zone mentions it in its next hello.
            Ok(Err(_)) | Err(_) => {
                tracing::debug!(sandbox.id = %self.live.id, "the zone did not take an acknowledgement");
            }
        }
    }

    fn warn(&self, what: &'static str, error: &(dyn std::error::Error + 'static)) {
        tracing::warn!(sandbox.id = %self.live.id, error, "{what}");
    }
}

async fn until(unwritten: Option<&Unwritten>) {
    match unwritten {
        Some(unwritten) => sleep_until(unwritten.again).await,
        None => std::future::pending().await,
    }
}

/// Never, if there is nothing to wait for.
async fn wait<T>(future: &mut Option<Pin<Box<dyn Future<Output = T> + Send>>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}
