//! Creating: the intent is committed, with the exact spec to deliver and the idempotency entry,
//! before the zone is asked. From then on any control process can finish it.

use std::sync::Arc;

use sandboxo_model::{
    self as model, Base, DeathReason, IdempotencyRecord, InvalidMount, InvalidMounts, KillCause,
    NewSandbox, Phase, PhaseKind, SandboxRecord, StartFailure, TemplateRecord, VolumePhase,
    VolumeRecord, decide::mounts::mounts, rules,
};
use sandboxo_store::Read as _;
use sandboxo_zone_protocol::{ExecutionId, SandboxId, TeamId, TemplateId};
use tokio::sync::{SemaphorePermit, oneshot};

use crate::{
    CreateError, Sandboxes, accounts::Source, checkpoints::Hold, context::Context, driver::Driver,
    fingerprint, index::Live, secrets::seal_proxy, tokens,
};

/// A process that is asked for more at once is asked for too much.
pub(super) const AT_ONCE: usize = 1024;

/// What the first write of a sandbox checks and adds.
pub(crate) struct Birth {
    /// Has to be there.
    template: Option<TemplateId>,
    /// Until the record says it.
    hold: Option<Hold>,
    /// It has volumes, and they have to be there.
    mounts: bool,
    idempotency: Option<IdempotencyRecord>,
    /// Told instead of a birth, when the key has been used.
    repeat: oneshot::Sender<IdempotencyRecord>,
}

impl Birth {
    /// Only the store can refuse it: no key that may be used up, nothing that may be gone but the
    /// template itself.
    pub(crate) fn is_certain(&self) -> bool {
        self.hold.is_none() && self.idempotency.is_none() && !self.mounts
    }

    /// Everything or nothing.
    pub(crate) async fn commit(
        self,
        context: &Context,
        record: &Arc<SandboxRecord>,
    ) -> Result<Option<Hold>, CreateError> {
        let Self { template, hold, mounts: _, idempotency, repeat } = self;
        let now = context.now();
        let record = Arc::clone(record);
        let used = context.store.write(move |tx| {
            if let Some(entry) = idempotency {
                let used = tx.get::<IdempotencyRecord>(&(entry.team, entry.key.clone()))?;
                if let Some(used) = used.filter(|used| now < used.expires_at) {
                    return Ok(Some(used));
                }
                tx.put_idempotency(&entry)?;
            }
            // It may have been deleted since it was looked up.
            if let Some(template) = template
                && tx.get::<TemplateRecord>(&template)?.is_none()
            {
                return Err(CreateError::TemplateNotFound(template.to_string()));
            }
            for (at, mount) in record.spec.volumes.iter().enumerate() {
                let volume = tx.get::<VolumeRecord>(&mount.volume)?;
                if volume.is_none_or(|volume| volume.phase != VolumePhase::Ready) {
                    let gone = InvalidMount::NoVolume { at, name: mount.name.clone() };
                    return Err(CreateError::Mounts(InvalidMounts(vec![gone])));
                }
            }
            tx.put_sandbox(&record);
            Ok(None)
        });
        match used.await? {
            None => Ok(hold),
            Some(used) => {
                if repeat.send(used).is_err() { /* the caller has left */ }
                Err(CreateError::IdempotencyInProgress)
            }
        }
    }
}

impl Sandboxes {
    /// Returns once it runs and its agent answers. Dropping the future does not stop the create.
    ///
    /// A repeat with the same idempotency key is answered with the outcome of the first, whatever
    /// has become of the sandbox since.
    pub async fn create(
        &self,
        team: TeamId,
        new: NewSandbox,
    ) -> Result<Arc<SandboxRecord>, CreateError> {
        let context = &self.context;
        new.check()?;
        let unknown = |text: &str| CreateError::TemplateNotFound(text.to_owned());
        let Some(source) = context.accounts.source(team, &new.template) else {
            return Err(unknown(&new.template));
        };
        let (template, base, hold) = match source {
            Source::Template(template) => (Some(template.id), Base::from(&*template), None),
            Source::Snapshot { checkpoint, base } => {
                let hold = context.checkpoints.hold(checkpoint);
                // It may have been deleted since it was looked up.
                if !context.accounts.has_checkpoint(checkpoint) {
                    return Err(unknown(&new.template));
                }
                (None, base, Some(hold))
            }
        };
        let find = |name: &str| context.accounts.volume(team, name);
        let volumes = mounts(&new.volumes, &base.volumes, find).map_err(CreateError::Mounts)?;
        let _permit = self.permit()?;
        let now = context.now();
        let info = context.zone.info();
        let id = SandboxId::random(info.region, context.zone_code, &*context.random);
        let fingerprint = fingerprint::of(&new);
        let idempotency = new.idempotency_key.clone().map(|key| IdempotencyRecord {
            team,
            key,
            fingerprint,
            sandbox: id,
            expires_at: rules::after(now, context.config.keep_idempotency),
        });
        let mut record = new.record(model::Birth {
            id,
            team,
            base,
            zone: info.name,
            agent_token: tokens::token(&*context.random),
            traffic_token: tokens::token(&*context.random),
            execution: ExecutionId::random(&*context.random),
            volumes,
            now,
            budget: context.config.create_budget,
        })?;
        if let Some(asked) = &mut record.network {
            seal_proxy(context, team, None, asked, &mut record.spec.network)?;
        }

        let (reply, born) = oneshot::channel();
        let (repeat, used) = oneshot::channel();
        let mounts = !record.spec.volumes.is_empty();
        let birth = Birth { template, hold, mounts, idempotency, repeat };
        Driver::begin(context, Arc::new(record), birth, reply);
        match born.await {
            Ok(Ok(live)) => started(context, &live).await,
            Ok(Err(error)) => match used.await {
                Ok(used) => self.repeat(used, fingerprint).await,
                Err(_not_a_repeat) => Err(error),
            },
            Err(_stopping) if context.tasks.stop().is_cancelled() => {
                Err(CreateError::ZoneUnavailable)
            }
            // The next driver takes it from here.
            Err(_panicked) => Err(CreateError::Failed),
        }
    }

    /// One that needs nothing but what is held.
    pub(crate) async fn bear(
        &self,
        record: SandboxRecord,
        hold: Option<Hold>,
    ) -> Result<Arc<SandboxRecord>, CreateError> {
        let _permit = self.permit()?;
        let (reply, born) = oneshot::channel();
        let (repeat, _never) = oneshot::channel();
        let mounts = !record.spec.volumes.is_empty();
        let birth = Birth { template: None, hold, mounts, idempotency: None, repeat };
        Driver::begin(&self.context, Arc::new(record), birth, reply);
        let live = born.await.unwrap_or(Err(CreateError::ZoneUnavailable))?;
        started(&self.context, &live).await
    }

    fn permit(&self) -> Result<SemaphorePermit<'_>, CreateError> {
        let limit = AT_ONCE as u64;
        let refused = || CreateError::LimitReached { what: "creates at once".into(), limit };
        self.creates.try_acquire().map_err(|_all_taken| refused())
    }

    async fn repeat(
        &self,
        used: IdempotencyRecord,
        fingerprint: [u8; 32],
    ) -> Result<Arc<SandboxRecord>, CreateError> {
        if used.fingerprint != fingerprint {
            return Err(CreateError::IdempotencyMismatch);
        }
        let record = self.find(used.team, used.sandbox).await?;
        let record = record.ok_or(CreateError::IdempotencyUnknown)?;
        match outcome(&record) {
            None => Err(CreateError::IdempotencyInProgress),
            Some(Ok(())) => Ok(record),
            Some(Err(error)) => Err(error),
        }
    }
}

async fn started(context: &Context, live: &Live) -> Result<Arc<SandboxRecord>, CreateError> {
    let starting = |record: &SandboxRecord| matches!(record.phase, Phase::Starting { .. });
    match live.until(|record| !starting(record)).await {
        Some(record) => match (outcome(&record), record.phase.kind()) {
            (
                Some(Ok(())),
                PhaseKind::Starting
                | PhaseKind::Running
                | PhaseKind::Pausing
                | PhaseKind::Paused
                | PhaseKind::Resuming,
            ) => Ok(record),
            // It ran, and is of no use to the caller any more.
            (Some(Ok(())), PhaseKind::Killing) => Err(CreateError::Killed),
            (Some(Ok(())), PhaseKind::Dead) | (None, _) => Err(CreateError::Failed),
            (Some(Err(error)), _) => Err(error),
        },
        // The next process finishes the create.
        None if context.tasks.stop().is_cancelled() => Err(CreateError::ZoneUnavailable),
        // The next driver does.
        None => Err(CreateError::Failed),
    }
}

/// `None`: not known yet.
fn outcome(record: &SandboxRecord) -> Option<Result<(), CreateError>> {
    let failed = |failure: &StartFailure| match failure {
        // A template without its image is ours to repair.
        StartFailure::ImageNotFound
        | StartFailure::CheckpointLost
        | StartFailure::VolumeLost
        | StartFailure::Runtime => CreateError::Failed,
        StartFailure::NotMounted(why) => CreateError::NotMounted(why.clone()),
        StartFailure::VolumeFileGone(path) => CreateError::VolumeFileGone(path.clone()),
        StartFailure::CheckpointUnusable(why) => CreateError::CheckpointUnusable(why.clone()),
        StartFailure::LimitReached { what, limit } => {
            CreateError::LimitReached { what: what.to_string(), limit: *limit }
        }
        StartFailure::DiskFull => CreateError::DiskFull,
        StartFailure::TimedOut => CreateError::TimedOut,
        StartFailure::Unavailable => CreateError::ZoneUnavailable,
    };
    if record.phase.started_at().is_some() {
        return Some(Ok(()));
    }
    match &record.phase {
        Phase::Starting { .. } => None,
        Phase::Killing { cause: KillCause::StartFailed(failure), .. }
        | Phase::Dead { reason: DeathReason::StartFailed(failure), .. } => {
            Some(Err(failed(failure)))
        }
        Phase::Running { .. }
        | Phase::Pausing { .. }
        | Phase::Paused { .. }
        | Phase::Resuming { .. }
        | Phase::Killing { cause: KillCause::Asked | KillCause::Expired, .. }
        | Phase::Dead {
            reason: DeathReason::Ended(_) | DeathReason::Missing | DeathReason::CheckpointLost,
            ..
        } => Some(Err(CreateError::Killed)),
    }
}
