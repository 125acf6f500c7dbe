//! One task for each sandbox: nobody else changes it, and it decides when it ends.
//!
//! Requests, the deadline, the process's end and the channel's loss meet here. The order in which
//! they are looked at is that of the `select!`: who stops the zone leaves the sandbox as it is,
//! who kills it comes before anything that it may be doing.

mod freeze;
mod living;
mod pause;
mod volumes;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use sandboxo_channel::{Claim, ZoneEnd};
use sandboxo_crashpoint::{Point, crashpoint};
use sandboxo_tasks::Stop;
use sandboxo_zone_protocol::{
    Checkpoint, CreateError, EndReason, Ended, Kept, Measured, NetworkPolicy, OnDeadline, Origin,
    PauseError, Resources, SandboxId, SandboxSpec, Shape, Started, Timestamp, VolumeId, ZoneError,
    ZoneSandbox,
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::{
    bringup::{BringUpError, Connected, Restore, bring_back, bring_up},
    cgroup::Weight,
    checkpoint::{Description, UnderWay},
    events::Ledger,
    host::Host,
    pool::Pool,
    slot::ClaimRecord,
};

pub(crate) use freeze::{Freezer, InUse};
use living::Living;
use pause::{Failed, Overdue};
pub(crate) use volumes::let_go;

/// Requests that wait for one sandbox; a caller beyond waits for a place.
const INBOX: usize = 16;
/// How long a killed sandbox is waited for; after that the janitor goes on alone.
const GONE_WITHIN: Duration = Duration::from_secs(3);
/// The wall clock may be set; a deadline is compared with it at least this often.
const LOOK_AT_CLOCK: Duration = Duration::from_secs(10);
/// Between the loss of the channel and the news of the process's end.
const NEWS_OF_DEATH: Duration = Duration::from_millis(500);
/// A pool member may have died unseen.
const WARM_TRIES: u32 = 2;

/// What all sandboxes of the zone share.
pub(crate) struct Shared {
    pub(crate) host: Arc<Host>,
    pub(crate) ledger: Ledger,
    pub(crate) pool: Arc<Pool>,
    pub(crate) sandboxes: Mutex<BTreeMap<SandboxId, Handle>>,
}

/// How to reach a sandbox's task.
#[derive(Clone)]
pub(crate) struct Handle {
    pub(crate) resources: Resources,
    pub(crate) volumes: Arc<[VolumeId]>,
    inbox: mpsc::Sender<Command>,
    life: watch::Receiver<Life>,
    kill: Kill,
}

/// Told apart, since a zone that stops ends no sandbox.
#[derive(Clone)]
struct Kill {
    asked: Stop,
    /// That, or the zone stops.
    either: Stop,
}

impl Kill {
    fn ask(&self) {
        // In this order: who is woken by the second looks at the first.
        self.asked.cancel();
        self.either.cancel();
    }
}

#[derive(Clone)]
pub(crate) enum Life {
    Starting,
    Live { started: Started, end: ZoneEnd, freezer: Arc<Freezer> },
    Failed(Arc<CreateError>),
    Ended,
}

enum Command {
    SetDeadline(Timestamp, oneshot::Sender<Result<(), ZoneError>>),
    SetNetwork(NetworkPolicy, oneshot::Sender<Result<(), ZoneError>>),
    Measure(oneshot::Sender<Result<Measured, ZoneError>>),
    Pause(Kept, PauseReply),
    Snapshot(Kept, PauseReply),
}

type PauseReply = oneshot::Sender<Result<Checkpoint, PauseError>>;

/// Why a sandbox's task has nothing more to do.
enum Over {
    /// The zone stops, and the sandbox goes on.
    ZoneStops,
    Ended(EndReason, Option<PauseReply>),
    Paused(Box<Description>, Option<PauseReply>),
}

impl Handle {
    /// Once it is running, or has failed to.
    pub(crate) async fn started(&self) -> Result<Started, CreateError> {
        let mut life = self.life.clone();
        let life = life.wait_for(|life| !matches!(life, Life::Starting)).await;
        // Copied out: the guard is a lock.
        match life.map(|life| life.clone()) {
            Ok(Life::Live { started, .. }) => Ok(started),
            Ok(Life::Failed(error)) => Err(again(&error)),
            Ok(Life::Ended) => Err(CreateError::Killed),
            Ok(Life::Starting) | Err(_) => Err(CreateError::Unavailable),
        }
    }

    /// Resolves once it is gone. It is told to end even if the caller doesn't wait.
    pub(crate) async fn kill(&self) {
        self.kill.ask();
        let mut life = self.life.clone();
        let over = |life: &Life| matches!(life, Life::Failed(_) | Life::Ended);
        if life.wait_for(over).await.is_err() {
            // Its task is gone without a word, and with it the sandbox.
        }
    }

    /// The way to its agent, while it lives.
    pub(crate) fn end(&self) -> Option<(ZoneEnd, Arc<Freezer>)> {
        match &*self.life.borrow() {
            Life::Live { end, freezer, .. } => Some((end.clone(), freezer.clone())),
            Life::Starting | Life::Failed(_) | Life::Ended => None,
        }
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.end().is_some_and(|(_, freezer)| freezer.is_frozen())
    }

    pub(crate) async fn set_deadline(&self, deadline: Timestamp) -> Result<(), ZoneError> {
        self.ask(|reply| Command::SetDeadline(deadline, reply)).await
    }

    pub(crate) async fn set_network(&self, policy: NetworkPolicy) -> Result<(), ZoneError> {
        self.ask(|reply| Command::SetNetwork(policy, reply)).await
    }

    pub(crate) async fn measure(&self) -> Result<Measured, ZoneError> {
        self.ask(Command::Measure).await
    }

    pub(crate) async fn pause(&self, kept: Kept) -> Result<Checkpoint, PauseError> {
        self.save(|reply| Command::Pause(kept, reply)).await
    }

    pub(crate) async fn snapshot(&self, kept: Kept) -> Result<Checkpoint, PauseError> {
        self.save(|reply| Command::Snapshot(kept, reply)).await
    }

    async fn save(
        &self,
        command: impl FnOnce(PauseReply) -> Command,
    ) -> Result<Checkpoint, PauseError> {
        let (reply, answer) = oneshot::channel();
        if self.inbox.send(command(reply)).await.is_err() {
            return Err(PauseError::NotFound);
        }
        answer.await.unwrap_or(Err(PauseError::NotFound))
    }

    /// A sandbox that ends meanwhile is not found.
    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, ZoneError>>) -> Command,
    ) -> Result<T, ZoneError> {
        let (reply, answer) = oneshot::channel();
        if self.inbox.send(command(reply)).await.is_err() {
            return Err(ZoneError::NotFound);
        }
        answer.await.unwrap_or(Err(ZoneError::NotFound))
    }
}

/// Several callers may have waited for one start.
fn again(error: &Arc<CreateError>) -> CreateError {
    match &**error {
        CreateError::ImageNotFound(image) => CreateError::ImageNotFound(*image),
        CreateError::CheckpointNotFound(id) => CreateError::CheckpointNotFound(*id),
        CreateError::CheckpointUnusable(why) => CreateError::CheckpointUnusable(why.clone()),
        CreateError::VolumeNotFound(id) => CreateError::VolumeNotFound(*id),
        CreateError::NotMounted(why) => CreateError::NotMounted(why.clone()),
        CreateError::VolumeFileGone(path) => CreateError::VolumeFileGone(path.clone()),
        CreateError::LimitReached { what, limit } => {
            CreateError::LimitReached { what, limit: *limit }
        }
        CreateError::DiskFull => CreateError::DiskFull,
        CreateError::TimedOut(after) => CreateError::TimedOut(*after),
        CreateError::Killed => CreateError::Killed,
        CreateError::Unavailable => CreateError::Unavailable,
        CreateError::Runtime(_) => CreateError::Runtime(Box::new(StartFailed(error.clone()))),
    }
}

#[derive(Debug)]
struct StartFailed(Arc<CreateError>);

impl std::fmt::Display for StartFailed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("its start failed")
    }
}

impl std::error::Error for StartFailed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&*self.0)
    }
}

/// A sandbox's task before it runs.
pub(crate) struct Task {
    shared: Arc<Shared>,
    id: SandboxId,
    inbox: mpsc::Receiver<Command>,
    life: watch::Sender<Life>,
    kill: Kill,
    /// Its place is another's by now.
    has_left: bool,
    /// Of a checkpoint.
    under_way: Option<UnderWay>,
}

impl Drop for Task {
    /// Also when it panics.
    fn drop(&mut self) {
        self.leave();
        // Whoever waits is told last, so that a repeat doesn't meet the old entry.
        self.life.send_if_modified(|life| {
            let over = matches!(life, Life::Failed(_) | Life::Ended);
            if !over {
                *life = Life::Ended;
            }
            true
        });
    }
}

impl Task {
    /// The caller puts the handle into the map.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        id: SandboxId,
        resources: Resources,
        volumes: Vec<VolumeId>,
        stop: &Stop,
    ) -> (Self, Handle) {
        let (sender, inbox) = mpsc::channel(INBOX);
        let (life, watched) = watch::channel(Life::Starting);
        let kill = Kill { asked: Stop::new(), either: stop.child_token() };
        let handle = Handle {
            resources,
            volumes: volumes.into(),
            inbox: sender,
            life: watched,
            kill: kill.clone(),
        };
        let shared = shared.clone();
        (Self { shared, id, inbox, life, kill, has_left: false, under_way: None }, handle)
    }

    /// From here on a create of the same id is a new one.
    fn leave(&mut self) {
        if !std::mem::replace(&mut self.has_left, true) {
            self.shared.sandboxes.lock().remove(&self.id);
        }
    }

    /// Of a new sandbox.
    pub(crate) async fn create(self, spec: SandboxSpec, stop: Stop) {
        match self.start(spec).await {
            Ok((connected, claim, warm)) => {
                let started = Started { at: claim.started_at, warm };
                Box::pin(self.live(connected, claim, started, stop)).await;
            }
            Err(error) => {
                if !stop.is_cancelled() {
                    tracing::warn!(
                        sandbox.id = %self.id,
                        error = &error as &dyn std::error::Error,
                        "a sandbox did not start"
                    );
                    // What it had is gone before anybody is told.
                    self.shared.host.janitor.settle(GONE_WITHIN).await;
                }
                // The entry goes first, with the drop; then the waiting callers are woken.
                let failed = Life::Failed(Arc::new(error));
                self.life.send_if_modified(|life| {
                    *life = failed;
                    false
                });
            }
        }
    }

    /// Of a sandbox that an earlier process has left running.
    pub(crate) async fn adopt(self, connected: Connected, claim: ClaimRecord, stop: Stop) {
        let started = Started { at: claim.started_at, warm: false };
        Box::pin(self.live(connected, claim, started, stop)).await;
    }

    async fn start(
        &self,
        spec: SandboxSpec,
    ) -> Result<(Connected, ClaimRecord, bool), CreateError> {
        let host = &self.shared.host;
        if let Origin::Checkpoint { id, reboot } = spec.origin {
            let checkpoint = host.checkpoints.get(id);
            let checkpoint = checkpoint.ok_or(CreateError::CheckpointNotFound(id))?;
            let reboot = reboot || checkpoint.kept == Kept::Files;
            let volumes = spec.volumes.iter().map(|mount| mount.volume).collect();
            volumes::are_there(&host.volumes, &checkpoint.open_files, &spec.volumes).await?;
            return self.restore(&spec, Restore { checkpoint, reboot, volumes }).await;
        }
        let shape = spec.shape();
        let claim = claim_of(&spec);
        let record = || record_of(&spec, host.clock.now());
        self.shared.pool.ask(&shape);
        for _try in 0..WARM_TRIES {
            let Some(mut member) = self.shared.pool.take(&shape) else { break };
            crashpoint(Point::PoolTaken);
            let record = record();
            match member.claim(record.clone(), claim.clone(), &spec.volumes).await {
                Ok(()) => return Ok((member, record, true)),
                Err(
                    error @ (BringUpError::Refused(_)
                    | BringUpError::Network(_)
                    | BringUpError::Volume(_)
                    | BringUpError::NotMounted { .. }),
                ) => return Err(error.into()),
                Err(error) => tracing::warn!(
                    sandbox.id = %self.id,
                    error = &error as &dyn std::error::Error,
                    "a pool member could not be claimed"
                ),
            }
            if self.kill.either.is_cancelled() {
                return Err(CreateError::Killed);
            }
        }
        let mut connected = bring_up(host, shape, Weight::Normal, &self.kill.either).await?;
        let record = record();
        connected.claim(record.clone(), claim, &spec.volumes).await?;
        Ok((connected, record, false))
    }

    async fn restore(
        &self,
        spec: &SandboxSpec,
        from: Restore,
    ) -> Result<(Connected, ClaimRecord, bool), CreateError> {
        let host = &self.shared.host;
        // Files know nothing of processors and memory: those may be others than they were.
        let shape = Shape { resources: spec.resources, ..from.checkpoint.shape };
        let blank = self.shared.pool.take_blank(&shape);
        let warm = blank.is_some();
        let mut connected = bring_back(host, shape, &from, blank, &self.kill.either).await?;
        let record = record_of(spec, host.clock.now());
        let claim = claim_of(spec);
        connected.restored(record.clone(), claim, &spec.volumes, from.reboot).await?;
        Ok((connected, record, warm))
    }

    async fn live(
        mut self,
        connected: Connected,
        claim: ClaimRecord,
        started: Started,
        stop: Stop,
    ) {
        self.shared.ledger.started(ZoneSandbox {
            id: self.id,
            started_at: claim.started_at,
            deadline: claim.deadline,
        });
        crashpoint(Point::ClaimListed);
        let end = connected.end.clone();
        let freezer = connected.freezer();
        self.life.send_replace(Life::Live { started, end, freezer: freezer.clone() });
        tracing::info!(sandbox.id = %self.id, warm = started.warm, "sandbox started");
        let mut living = Living {
            freezer,
            cpu: connected.holdings.group.usage().ok().map(|usage| (Instant::now(), usage)),
            connected,
            claim,
        };
        match self.watch(&mut living, &stop).await {
            Over::ZoneStops => {
                // Nobody would let it go on.
                let _use = living.freezer.enter();
                living.connected.leave();
            }
            Over::Ended(reason, reply) => {
                self.end(living, reason).await;
                if let Some(reply) = reply {
                    answer_pause(reply, Err(PauseError::Ended));
                }
            }
            Over::Paused(description, reply) => self.paused(living, *description, reply).await,
        }
    }

    async fn end(&mut self, living: Living, reason: EndReason) {
        let ended = Ended { id: self.id, at: self.shared.host.clock.now(), reason };
        crashpoint(Point::EndDecided);
        // The end before the deed: a zone that dies in between finds a slot whose end is known.
        self.shared.ledger.write_down(&ended);
        crashpoint(Point::EndWritten);
        self.finish(living.connected).await;
        crashpoint(Point::EndFinished);
        self.shared.ledger.ended(ended);
        crashpoint(Point::EndTold);
    }

    async fn finish(&self, connected: Connected) {
        if timeout(GONE_WITHIN, connected.finish()).await.is_err() {
            tracing::warn!(sandbox.id = %self.id, "its processes are left to the janitor");
        }
    }

    async fn watch(&mut self, living: &mut Living, stop: &Stop) -> Over {
        let mut standing = self.shared.host.keeper.standing();
        let mut overdue = Overdue::default();
        let freeze_after = self.shared.host.freeze_after;
        let mut look_at = Instant::now();
        loop {
            self.under_way = None;
            let left = overdue.wait(living.time_left(self.shared.host.clock.now()));
            let Connected { process, end, .. } = &living.connected;
            tokio::select! {
                biased;
                () = stop.cancelled() => return Over::ZoneStops,
                () = self.kill.asked.cancelled() => return Over::Ended(EndReason::Killed, None),
                () = process.ended() => return Over::Ended(living.cause_of_death(), None),
                Ok(()) = standing.changed() => {
                    standing.mark_unchanged();
                    if let Err(error) = self.refresh(living) {
                        tracing::error!(
                            sandbox.id = %self.id,
                            error = &error as &dyn std::error::Error,
                            "attach again"
                        );
                        return Over::Ended(EndReason::AgentLost, None);
                    }
                }
                () = end.closed() => {
                    tracing::warn!(sandbox.id = %self.id, why = ?end.why_closed(), "channel lost");
                    let reason = match timeout(NEWS_OF_DEATH, process.ended()).await {
                        Ok(()) => living.cause_of_death(),
                        Err(_lives) => EndReason::AgentLost,
                    };
                    return Over::Ended(reason, None);
                }
                Some(command) = self.inbox.recv() => {
                    if let Some(over) = self.obey(living, command).await {
                        return over;
                    }
                }
                () = sleep_until(look_at), if freeze_after.is_some() => {
                    let after = freeze_after.unwrap_or(LOOK_AT_CLOCK);
                    look_at = Instant::now() + self.look(living, after).await;
                }
                () = sleep(left.min(LOOK_AT_CLOCK)) => {
                    if living.time_left(self.shared.host.clock.now()).is_zero()
                        && let Some(over) = self.time_is_over(living, &mut overdue).await
                    {
                        return over;
                    }
                }
            }
        }
    }

    async fn time_is_over(&mut self, living: &mut Living, overdue: &mut Overdue) -> Option<Over> {
        crashpoint(Point::TimeoutDue);
        let OnDeadline::Pause(kept) = living.claim.on_deadline else {
            return Some(Over::Ended(EndReason::TimedOut, None));
        };
        let kept = overdue.pause(kept)?;
        match self.checkpoint(living, kept, true).await {
            Ok(description) => Some(Over::Paused(Box::new(description), None)),
            Err(Failed::Ended(reason)) => Some(Over::Ended(reason, None)),
            Err(Failed::ZoneStops) => Some(Over::ZoneStops),
            Err(Failed::Refused(error)) => {
                overdue.refused();
                tracing::warn!(
                    sandbox.id = %self.id,
                    error = &error as &dyn std::error::Error,
                    "a sandbox whose time is over can't be paused yet"
                );
                None
            }
        }
    }

    fn refresh(&self, living: &mut Living) -> Result<(), BringUpError> {
        // It answers a greeting.
        let _use = living.freezer.enter();
        let connected = &mut living.connected;
        if connected.refresh()? {
            self.life.send_modify(|life| {
                if let Life::Live { end, .. } = life {
                    *end = connected.end.clone();
                }
            });
        }
        Ok(())
    }

    /// `Some`: that was the end of it.
    async fn obey(&mut self, living: &mut Living, command: Command) -> Option<Over> {
        let answered = match command {
            Command::SetDeadline(deadline, reply) => {
                self.set_deadline(living, deadline);
                reply.send(Ok(())).is_ok()
            }
            Command::SetNetwork(policy, reply) => {
                reply.send(living.set_network(policy).await).is_ok()
            }
            Command::Measure(reply) => {
                reply.send(living.measure(self.shared.host.clock.now())).is_ok()
            }
            Command::Pause(kept, reply) => match self.checkpoint(living, kept, true).await {
                Ok(description) => {
                    return Some(Over::Paused(Box::new(description), Some(reply)));
                }
                Err(Failed::Ended(reason)) => return Some(Over::Ended(reason, Some(reply))),
                Err(Failed::ZoneStops) => return Some(Over::ZoneStops),
                Err(Failed::Refused(error)) => reply.send(Err(error)).is_ok(),
            },
            Command::Snapshot(kept, reply) => return self.snapshot(living, kept, reply).await,
        };
        if !answered { /* the caller went away; what was asked is done */ }
        None
    }

    fn set_deadline(&self, living: &mut Living, deadline: Timestamp) {
        living.claim.deadline = deadline;
        // It holds without being written down: a zone that comes after is told again, by whoever
        // compares what it says with the records.
        if let Err(error) = living.write_claim() {
            tracing::warn!(
                sandbox.id = %self.id,
                error = &error as &dyn std::error::Error,
                "write down a deadline"
            );
        }
        crashpoint(Point::TimeoutWritten);
        self.shared.ledger.set_deadline(self.id, deadline);
    }
}

fn internal(error: impl std::error::Error + Send + Sync + 'static) -> ZoneError {
    ZoneError::Internal(Box::new(error))
}

fn answer_pause(reply: PauseReply, answer: Result<Checkpoint, PauseError>) {
    if reply.send(answer).is_err() { /* the caller went away; what was asked is done */ }
}

fn record_of(spec: &SandboxSpec, now: Timestamp) -> ClaimRecord {
    ClaimRecord {
        id: spec.id,
        started_at: now,
        deadline: spec.deadline,
        on_deadline: spec.on_deadline,
        network: spec.network.clone(),
        volumes: spec.volumes.iter().map(|mount| mount.volume).collect(),
    }
}

fn claim_of(spec: &SandboxSpec) -> Claim {
    Claim {
        sandbox_id: spec.id.label(),
        template_id: spec.env.get("E2B_TEMPLATE_ID").cloned().unwrap_or_default(),
        env: spec.env.clone(),
        hostname: spec.hostname.clone(),
        agent_token: spec.agent_token.as_ref().map(|token| token.expose().to_owned()),
        user: spec.user.clone(),
        workdir: spec.workdir.clone(),
        nameservers: Vec::new(),
        pids: spec.resources.pids,
        authority: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_failure_keeps_its_kind_and_its_cause() {
        let cause = std::io::Error::other("the cause");
        let first = Arc::new(CreateError::Runtime(Box::new(cause)));
        let CreateError::Runtime(second) = again(&first) else { panic!("another kind") };
        assert_eq!(second.to_string(), "its start failed");
        assert_eq!(second.source().unwrap().to_string(), "the cause");
        let full = again(&Arc::new(CreateError::DiskFull));
        assert!(matches!(full, CreateError::DiskFull));
    }
}
