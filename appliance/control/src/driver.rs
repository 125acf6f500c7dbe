//! One task per live sandbox. It alone moves the record from phase to phase: requests, what the
//! zone says and what reconcile wants meet in its queue.
//!
//! An *intent* (a kill, a timeout, rules) is written down before the zone is asked. A *fact* (it
//! started, it ended) is published first and then written until that succeeds: if the process dies
//! in between, the zone tells the fact again.

mod delivery;
mod end;
mod message;
mod pause;
mod reconcile;
mod resume;

use std::{
    collections::VecDeque,
    future::Future,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use sandboxo_crashpoint::{Point, crashpoint};
use sandboxo_model::{
    DeathReason, LogEntry, NetworkAsked, Phase, PhaseKind, SandboxRecord,
    decide::{expiry::Refusals, story},
    lifecycle::Event,
    rules,
};
use sandboxo_spool::Owner;
use sandboxo_store::StoreError;
use sandboxo_tasks::Stop;
use sandboxo_zone_protocol::{CheckpointId, EndReason, NetworkPolicy, Timestamp, ZoneError};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep_until, timeout},
};

use crate::{checkpoints::Hold, context::Context, index::Live, sandboxes::Birth};

pub(crate) use delivery::Delivered;
use message::Mailbox;
pub(crate) use message::{Message, SendError, send};
pub(crate) use pause::{Unpaused, ask};
pub(crate) use resume::{By, Unresumed, Wish};

pub(crate) struct Driver {
    context: Arc<Context>,
    live: Arc<Live>,
    mailbox: Mailbox,
    delivery: Flight<Delivered>,
    kill: Flight<()>,
    pausing: pause::Pausing,
    resuming: resume::Resuming,
    /// What can be judged only when a pause or a resume has come to its end.
    deferred: VecDeque<Message>,
    /// Pauses of it after its time that the zone has refused.
    refusals: Option<Refusals>,
    /// Nothing starts from them any more; to be discarded once that is written down.
    stale: Vec<CheckpointId>,
    /// The last that it went on from: late echoes of those pauses mean nothing.
    left: VecDeque<CheckpointId>,
    /// The zone enforces the record's rules. Not known of one that was running before this
    /// process, and not so when the zone failed to take them.
    rules_in_force: bool,
    unwritten: Option<Unwritten>,
}

/// Something that is being asked of the zone.
type Flight<T> = Option<Pin<Box<dyn Future<Output = T> + Send>>>;

/// A record that is published and could not be written yet.
struct Unwritten {
    again: Instant,
    pause: Duration,
}

const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause between two tries.
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// More than may wait at the front door at once.
const MAX_DEFERRED: usize = 1024;
/// An event is not later than so many pauses.
const ECHOES: usize = 16;

impl Driver {
    /// Takes over a sandbox that the store has. What to do about it is reconcile's to say, except
    /// for a kill that was not confirmed.
    pub(crate) fn take_over(context: &Arc<Context>, record: Arc<SandboxRecord>) {
        let driver = Self::new(context, record);
        driver.context.index.insert(Arc::clone(&driver.live));
        driver.spawn();
    }

    /// Commits a new sandbox, and delivers it: where the record alone decides, at the same time.
    /// Nobody is answered before it is committed.
    pub(crate) fn begin(
        context: &Arc<Context>,
        record: Arc<SandboxRecord>,
        birth: Birth,
        reply: oneshot::Sender<Result<Arc<Live>, crate::CreateError>>,
    ) {
        let mut driver = Self::new(context, Arc::clone(&record));
        drop(context.tasks.spawn("sandbox", |stop| async move {
            driver.rules_in_force = true;
            let ahead = birth.is_certain();
            // Whoever deletes a volume looks there.
            let is_seen = ahead || !record.spec.volumes.is_empty();
            if is_seen {
                // A zone that is compared with the records meanwhile has it for a reason.
                driver.context.index.insert(Arc::clone(&driver.live));
            }
            if ahead {
                driver.deliver();
            }
            let (committed, delivered) = driver.commit(birth, &record).await;
            let hold = match committed {
                Ok(hold) => hold,
                Err(error) => {
                    if reply.send(Err(error)).is_err() { /* the caller has left */ }
                    if ahead {
                        tokio::select! {
                            biased;
                            () = stop.cancelled() => {}
                            () = driver.take_back() => {}
                        }
                    } else if is_seen {
                        driver.context.index.remove(&driver.live);
                    }
                    return;
                }
            };
            crashpoint(Point::CreateCommitted);
            if !is_seen {
                driver.context.index.insert(Arc::clone(&driver.live));
            }
            if !ahead {
                driver.deliver();
            }
            drop(hold);
            driver.log(story::created(&record));
            if reply.send(Ok(Arc::clone(&driver.live))).is_err() { /* the create goes on */ }
            if let Some(delivered) = delivered {
                driver.delivered(delivered).await;
            }
            driver.run(stop).await;
        }));
    }

    /// And what the zone has answered by then, if it was asked.
    async fn commit(
        &mut self,
        birth: Birth,
        record: &Arc<SandboxRecord>,
    ) -> (Result<Option<Hold>, crate::CreateError>, Option<Delivered>) {
        let context = Arc::clone(&self.context);
        let mut commit = pin!(birth.commit(&context, record));
        let mut answer = None;
        loop {
            tokio::select! {
                biased;
                committed = &mut commit => return (committed, answer),
                delivered = wait(&mut self.delivery) => {
                    self.delivery = None;
                    answer = Some(delivered);
                }
                Some(message) = self.mailbox.recv(), if self.deferred.len() < MAX_DEFERRED => {
                    self.deferred.push_back(message);
                }
            }
        }
    }

    /// What dies with this process is an orphan to the next one's comparison.
    async fn take_back(mut self) {
        self.delivery = None;
        self.context.index.remove(&self.live);
        drop(self.mailbox);
        end::kill(&self.context, self.live.id).await;
        end::acknowledge(&self.context, self.live.id).await;
    }

    fn new(context: &Arc<Context>, record: Arc<SandboxRecord>) -> Self {
        let (sender, mailbox) = Mailbox::new(context);
        Self {
            context: Arc::clone(context),
            live: Live::new(record, sender),
            mailbox,
            delivery: None,
            kill: None,
            pausing: pause::Pausing::default(),
            resuming: resume::Resuming::default(),
            deferred: VecDeque::new(),
            refusals: None,
            stale: Vec::new(),
            left: VecDeque::new(),
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
            self.settle().await;
            let record = self.live.record();
            match record.phase {
                Phase::Dead { .. } if self.unwritten.is_none() => break,
                Phase::Killing { .. } if self.kill.is_none() => self.kill(),
                Phase::Starting { .. }
                | Phase::Running { .. }
                | Phase::Pausing { .. }
                | Phase::Paused { .. }
                | Phase::Resuming { .. }
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
                    self.fact(Event::KillConfirmed { at }).await;
                }
                delivered = wait(&mut self.delivery) => self.delivered(delivered).await,
                paused = wait(&mut self.pausing.flight) => self.pause_answered(paused).await,
                () = wait(&mut self.resuming.withdrawal) => self.withdrawn().await,
                () = until(self.unwritten.as_ref()) => self.write_again().await,
                () = resume::all_left(&mut self.resuming.waiting) => self.goes_on_for_nobody(),
                message = self.mailbox.recv() => match message {
                    Some(message) => self.handle(message).await,
                    // The entry in the index holds a sender.
                    None => return,
                },
            }
        }
        self.bury().await;
    }

    /// Answers those whose pause or resume has come to its end, and turns to what waited for it.
    async fn settle(&mut self) {
        loop {
            self.answer_pausers();
            self.answer_resumers().await;
            self.discard_stale();
            let next = match self.deferred.front() {
                Some(message) => !self.in_flight() || self.joins(message),
                None => false,
            };
            if !next {
                return;
            }
            if let Some(message) = self.deferred.pop_front() {
                self.handle(message).await;
            }
        }
    }

    /// It asks for what is under way.
    fn joins(&self, message: &Message) -> bool {
        match (message, self.live.record().phase.kind()) {
            (Message::Pause { .. }, PhaseKind::Pausing) => true,
            (Message::Resume { .. }, PhaseKind::Resuming) => self.resuming.withdrawal.is_none(),
            _ => false,
        }
    }

    /// What is asked now would be judged by a phase that is about to change.
    fn in_flight(&self) -> bool {
        let kind = self.live.record().phase.kind();
        matches!(kind, PhaseKind::Pausing | PhaseKind::Resuming)
            || kind == PhaseKind::Paused && self.resuming.withdrawal.is_some()
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
                let done = self.set_network(*network, internet, *policy).await;
                message::answer(reply, done);
            }
            Message::Pause { kept, reply } => self.pause_asked(kept, reply).await,
            Message::Resume { wish, reply } => self.resume_asked(wish, reply).await,
            Message::Overdue => self.expire().await,
            Message::Ended(ended) => self.ended(&ended).await,
            Message::Paused(paused) => self.zone_paused(paused.checkpoint).await,
            Message::Reconcile(planned) => self.reconcile(planned).await,
            Message::Agreed => {
                if !self.rules_in_force {
                    self.apply_network().await;
                }
            }
        }
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
        self.set_expiry(asked).await
    }

    async fn set_expiry(
        &mut self,
        asked: Timestamp,
    ) -> Result<Option<Arc<SandboxRecord>>, StoreError> {
        let record = self.intent(Event::TimeoutSet { expires_at: asked }).await?;
        self.refusals = None;
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

    async fn tell_deadline(&mut self, deadline: Timestamp) -> Result<(), ZoneError> {
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
            rules: network.rules,
            egress_proxy: network.egress_proxy,
            https_ports: asked.https_ports,
            dns_servers: network.dns_servers,
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

    fn publish(&mut self, before: &SandboxRecord, record: &Arc<SandboxRecord>) {
        let (had, has) = (before.phase.checkpoint(), record.phase.checkpoint());
        let goes_on = matches!(record.phase, Phase::Running { .. } | Phase::Paused { .. });
        if let Some(left) = had.filter(|_| had != has && goes_on) {
            self.stale.push(left);
            self.left.push_back(left);
            if self.left.len() > ECHOES {
                self.left.pop_front();
            }
        }
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
    async fn bury(mut self) {
        self.context.index.remove(&self.live);
        // A pause that was overtaken by the end.
        for message in self.mailbox.close() {
            if let Message::Paused(paused) = message {
                self.stale.push(paused.checkpoint.id);
            }
        }
        self.discard_stale();
        // Those that wait for the end see this.
        drop(self.mailbox);
        end::acknowledge(&self.context, self.live.id).await;
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
async fn wait<T>(flight: &mut Flight<T>) -> T {
    match flight {
        Some(flight) => flight.await,
        None => std::future::pending().await,
    }
}
