//! A sandbox whose agent has greeted, and what is asked of it before it is somebody's.

use std::{os::fd::OwnedFd, sync::Arc};

use sandboxo_channel::{ChannelError, Claim, OpenFile, Request, Response, ZoneEnd, attach};
use sandboxo_crashpoint::{Point, crashpoint};
use sandboxo_zone_protocol::{Shape, VolumeMount};
use tokio::time::timeout;

use super::{
    BringUpError, CLAIM_TIMEOUT, HELLO_TIMEOUT, Holdings, QUIESCE_TIMEOUT, WARM_UP_TIMEOUT,
};
use crate::{
    cgroup::Weight,
    host::Host,
    process::Process,
    sandbox::Freezer,
    slot::{ClaimRecord, RestoreRecord, Slot},
};

/// A sandbox whose agent has greeted.
pub(crate) struct Connected {
    pub(crate) holdings: Holdings,
    pub(crate) process: Process,
    pub(crate) end: ZoneEnd,
    /// To attach again, should the keeper have told the agent that the zone is gone.
    pub(super) channel: OwnedFd,
    /// How often the keeper had done so when `end` was attached.
    pub(super) rejoined: u32,
}

impl Connected {
    pub(crate) fn shape(&self) -> Shape {
        self.holdings.slot.shape
    }

    pub(crate) fn freezer(&self) -> Arc<Freezer> {
        Freezer::new(self.holdings.group.clone(), self.shape().platform)
    }

    pub(crate) fn is_alive(&self) -> bool {
        !self.process.has_ended() && self.end.why_closed().is_none()
    }

    /// Ends it. Resolves once none of its processes is left; the janitor removes the rest.
    pub(crate) async fn finish(mut self) {
        if let Err(error) = self.holdings.record(|slot| slot.ending = true) {
            tracing::warn!(error = &error as &dyn std::error::Error, "write down an end");
        }
        crashpoint(Point::EndMarked);
        self.process.kill();
        crashpoint(Point::EndSignalled);
        if let Err(error) = self.holdings.group.kill_all().await {
            tracing::warn!(error = &error as &dyn std::error::Error, "end its processes");
        }
    }

    /// It goes on without this process.
    pub(crate) fn leave(mut self) {
        self.holdings.leave();
    }

    /// Attaches again if the keeper has told the agent meanwhile that the zone is gone. `true`:
    /// there is another `end`.
    pub(crate) fn refresh(&mut self) -> Result<bool, BringUpError> {
        let rejoined = self.holdings.host.keeper.standing().borrow().rejoined;
        if rejoined == self.rejoined {
            return Ok(false);
        }
        self.end = attach_to(&self.holdings.host, &self.channel)?;
        self.rejoined = rejoined;
        Ok(true)
    }

    /// Makes it somebody's. Written down before the agent is told: a zone that dies in between
    /// finds out from the agent whether it was.
    pub(crate) async fn claim(
        &mut self,
        record: ClaimRecord,
        claim: Claim,
        volumes: &[VolumeMount],
    ) -> Result<(), BringUpError> {
        self.make_somebodys(record, claim, volumes, Request::Claim).await?;
        crashpoint(Point::ClaimTold);
        Ok(())
    }

    /// As a claim, of one that was started from a checkpoint.
    pub(crate) async fn restored(
        &mut self,
        record: ClaimRecord,
        claim: Claim,
        volumes: &[VolumeMount],
        reboot: bool,
    ) -> Result<(), BringUpError> {
        let request = |claim| Request::Restored { claim, reboot };
        self.make_somebodys(record, claim, volumes, request).await?;
        crashpoint(Point::RestoreTold);
        let told = |restored: RestoreRecord| RestoreRecord { told: true, ..restored };
        self.holdings
            .record(|slot| slot.restored = slot.restored.map(told))
            .map_err(BringUpError::at("write down that it is restored"))
    }

    /// Of one that goes on as whose it was: its agent knows already.
    pub(crate) async fn resumed(&mut self, record: ClaimRecord) -> Result<(), BringUpError> {
        self.refresh()?;
        if let Some(lease) = &self.holdings.lease {
            lease.belongs_to(record.id);
            if !record.network.is_empty() {
                lease.apply(&record.network).await?;
            }
        }
        let told = |restored: RestoreRecord| RestoreRecord { told: true, ..restored };
        let change = |slot: &mut Slot| {
            slot.claim = Some(record);
            slot.restored = slot.restored.map(told);
        };
        self.holdings.record(change).map_err(BringUpError::at("write down that it goes on"))
    }

    async fn make_somebodys(
        &mut self,
        record: ClaimRecord,
        mut claim: Claim,
        volumes: &[VolumeMount],
        request: impl FnOnce(Claim) -> Request,
    ) -> Result<(), BringUpError> {
        self.refresh()?;
        let (id, policy) = (record.id, record.network.clone());
        self.holdings
            .record(|slot| slot.claim = Some(record))
            .map_err(BringUpError::at("write down the claim"))?;
        crashpoint(Point::ClaimRecorded);
        if let Some(lease) = &self.holdings.lease {
            lease.belongs_to(id);
            claim.nameservers = lease.nameservers();
            claim.authority = Some(self.holdings.host.authority.certificate().to_owned());
            if !policy.is_empty() {
                lease.apply(&policy).await?;
            }
        }
        if !volumes.is_empty() {
            self.mount(volumes).await?;
        }
        let group = &self.holdings.group;
        group.set_weight(Weight::Normal).map_err(BringUpError::at("set its share"))?;
        crashpoint(Point::ClaimRuled);
        match timeout(CLAIM_TIMEOUT, self.end.request(request(claim))).await {
            Ok(Ok(Response::Claimed)) => Ok(()),
            Ok(Ok(Response::Refused(why))) => Err(BringUpError::Refused(why)),
            Ok(Ok(other)) => Err(BringUpError::Refused(format!("it answered {other:?}"))),
            Ok(Err(source)) => Err(self.agent_failed(source)),
            Err(_late) => Err(BringUpError::TimedOut(CLAIM_TIMEOUT, self.holdings.said())),
        }
    }

    async fn mount(&mut self, volumes: &[VolumeMount]) -> Result<(), BringUpError> {
        let ids: Vec<_> = volumes.iter().map(|mount| mount.volume).collect();
        self.holdings.attach(&ids).await?;
        let paths = volumes.iter().map(|mount| mount.path.to_string()).collect();
        match timeout(CLAIM_TIMEOUT, self.end.request(Request::Mount { paths })).await {
            Ok(Ok(Response::Mounted)) => Ok(()),
            Ok(Ok(Response::NotMounted { path, why })) => {
                Err(BringUpError::NotMounted { path, why })
            }
            // Of a time before there were any.
            Ok(Ok(_)) => Err(BringUpError::TakesNoVolumes),
            Ok(Err(source)) => Err(self.agent_failed(source)),
            Err(_late) => Err(BringUpError::TimedOut(CLAIM_TIMEOUT, self.holdings.said())),
        }
    }

    /// From here until it goes on, or another zone greets it, it starts no process.
    pub(crate) async fn quiesce(&self, end_processes: bool) -> Result<(), BringUpError> {
        let request = self.end.request(Request::Quiesce { end_processes });
        match timeout(QUIESCE_TIMEOUT, request).await {
            Ok(Ok(Response::Quiet)) => Ok(()),
            Ok(Ok(other)) => Err(BringUpError::Refused(format!("it answered {other:?}"))),
            Ok(Err(source)) => Err(self.agent_failed(source)),
            Err(_late) => Err(BringUpError::TimedOut(QUIESCE_TIMEOUT, self.holdings.said())),
        }
    }

    pub(crate) async fn open_in_volumes(&self) -> Result<Vec<OpenFile>, BringUpError> {
        match timeout(QUIESCE_TIMEOUT, self.end.request(Request::OpenInVolumes)).await {
            Ok(Ok(Response::OpenInVolumes(open))) => Ok(open),
            Ok(Ok(other)) => Err(BringUpError::Refused(format!("it answered {other:?}"))),
            Ok(Err(source)) => Err(self.agent_failed(source)),
            Err(_late) => Err(BringUpError::TimedOut(QUIESCE_TIMEOUT, self.holdings.said())),
        }
    }

    pub(crate) async fn go_on(&self) {
        let told = timeout(QUIESCE_TIMEOUT, self.end.request(Request::GoOn)).await;
        if !matches!(told, Ok(Ok(_))) {
            // It is found out by whoever asks it next.
            let container = self.holdings.slot.container;
            tracing::warn!(%container, "the agent did not hear that its sandbox goes on");
        }
    }

    pub(crate) async fn ping(&self) -> Result<(), BringUpError> {
        match timeout(HELLO_TIMEOUT, self.end.request(Request::Ping)).await {
            Ok(Ok(Response::Pong)) => Ok(()),
            Ok(Ok(other)) => Err(BringUpError::Refused(format!("it answered {other:?}"))),
            Ok(Err(source)) => Err(self.agent_failed(source)),
            Err(_late) => Err(BringUpError::TimedOut(HELLO_TIMEOUT, self.holdings.said())),
        }
    }

    /// Before it joins the pool. A shell that hangs is no reason to do without the sandbox.
    pub(crate) async fn warm_up(&self) -> Result<(), BringUpError> {
        let work = async {
            if self.holdings.lease.is_some() {
                let authority = self.holdings.host.authority.certificate().to_owned();
                self.end.request(Request::Believe(authority)).await?;
            }
            self.end.request(Request::WarmUp).await
        };
        match timeout(WARM_UP_TIMEOUT, work).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(source)) => Err(self.agent_failed(source)),
            Err(_late) => {
                let container = self.holdings.slot.container;
                tracing::warn!(%container, "an unclaimed sandbox is slow to warm up");
                Ok(())
            }
        }
    }

    fn agent_failed(&self, source: ChannelError) -> BringUpError {
        BringUpError::Agent { said: self.holdings.said(), source }
    }
}

/// A new end of the channel, with the newest epoch.
pub(super) fn attach_to(host: &Host, channel: &OwnedFd) -> Result<ZoneEnd, BringUpError> {
    let channel = channel.try_clone().map_err(BringUpError::at("duplicate its channel"))?;
    let attached = attach(channel, host.keeper.epoch());
    let (end, driver) = attached.map_err(BringUpError::at("attach to its channel"))?;
    host.tasks.spawn("agent channel", |stop| async move {
        tokio::select! {
            () = driver => {}
            () = stop.cancelled() => {}
        }
    });
    Ok(end)
}
