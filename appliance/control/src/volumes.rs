//! Volumes: folders that outlive sandboxes, and short-lived tokens for the files in them.
//!
//! A record comes before its volume and goes after it, so that there is no volume without one.

mod token;

use std::{sync::Arc, time::Duration};

use sandboxo_crashpoint::{Point, crashpoint};
use sandboxo_model::{NotAVolumeName, SnapshotRecord, VolumeName, VolumePhase, VolumeRecord};
use sandboxo_store::{Read as _, StoreError};
use sandboxo_zone_protocol::{
    TeamId, VolumeError as ZoneVolumeError, VolumeFiles, VolumeId, VolumeMount,
};
use tokio::time::timeout;

use crate::context::Context;

/// As long as a client may take for one file.
const TOKEN_LIFE: Duration = Duration::from_hours(1);

/// A cheap clone of one thing.
#[derive(Clone)]
pub struct Volumes {
    context: Arc<Context>,
}

#[derive(Debug, thiserror::Error)]
pub enum CreateVolumeError {
    #[error(transparent)]
    Name(#[from] NotAVolumeName),
    #[error("the team has a volume '{0}' already")]
    NameTaken(VolumeName),
    #[error("the team has no volume '{0}'")]
    NoSource(String),
    #[error("the disk is full")]
    DiskFull,
    #[error("the zone did not make the volume in time")]
    TimedOut,
    #[error("the zone is not available")]
    ZoneUnavailable,
    #[error("the volume could not be made")]
    Failed,
    #[error("record the volume")]
    Store(#[source] StoreError),
}

impl From<StoreError> for CreateVolumeError {
    fn from(error: StoreError) -> Self {
        if matches!(error, StoreError::DiskFull) { Self::DiskFull } else { Self::Store(error) }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum DeleteVolumeError {
    #[error("volume '{0}' not found")]
    NotFound(String),
    /// Of a sandbox, also of a paused one, of a snapshot, or of a client that reads or writes.
    #[error("volume '{0}' is in use")]
    InUse(VolumeName),
    #[error("the zone is not available")]
    ZoneUnavailable,
    #[error("the volume could not be removed")]
    Failed,
    #[error("the disk is full")]
    DiskFull,
    #[error("record the deletion")]
    Store(#[source] StoreError),
}

impl From<StoreError> for DeleteVolumeError {
    fn from(error: StoreError) -> Self {
        if matches!(error, StoreError::DiskFull) { Self::DiskFull } else { Self::Store(error) }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum OpenVolumeError {
    #[error("the volume's token is missing, wrong or too old")]
    BadToken,
    #[error("the volume is gone")]
    Gone,
    #[error("the zone is not available")]
    ZoneUnavailable,
    #[error("open the volume")]
    Failed(#[source] ZoneVolumeError),
}

impl Volumes {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    /// The newest last.
    pub fn list(&self, team: TeamId) -> Vec<Arc<VolumeRecord>> {
        let mut volumes = self.context.accounts.volumes();
        volumes.retain(|it| it.team == team && it.phase == VolumePhase::Ready);
        volumes.sort_by_key(|it| (it.created_at, it.id));
        volumes
    }

    pub fn get(&self, team: TeamId, id: &str) -> Option<Arc<VolumeRecord>> {
        self.list(team).into_iter().find(|it| it.id.to_string() == id)
    }

    /// Empty, or with what the team's volume of that name or id holds. Dropping the future does
    /// not stop it.
    pub async fn create(
        &self,
        team: TeamId,
        name: &str,
        from: Option<&str>,
    ) -> Result<Arc<VolumeRecord>, CreateVolumeError> {
        let name = name.parse()?;
        let source = from.map(|from| {
            let mut volumes = self.list(team).into_iter();
            volumes
                .find(|it| it.id.to_string() == from || it.name.to_string() == from)
                .ok_or_else(|| CreateVolumeError::NoSource(from.to_owned()))
        });
        let (this, source) = (self.clone(), source.transpose()?);
        let work = async move { this.make(team, name, source.as_deref()).await };
        self.context.to_the_end("create volume", work).await
    }

    async fn make(
        &self,
        team: TeamId,
        name: VolumeName,
        source: Option<&VolumeRecord>,
    ) -> Result<Arc<VolumeRecord>, CreateVolumeError> {
        let context = &self.context;
        let info = context.zone.info();
        let record = VolumeRecord {
            id: VolumeId::random(info.region, context.zone_code, &*context.random),
            team,
            name,
            zone: info.name,
            size_mib: source.map_or(context.config.volume_mib, |source| source.size_mib),
            created_at: context.now(),
            phase: VolumePhase::Making,
        };
        let making = record.clone();
        let write = context.store.write(move |tx| {
            let is_taken = |it: &VolumeRecord| {
                it.team == making.team && it.name == making.name && it.phase != VolumePhase::Doomed
            };
            if tx.all::<VolumeRecord>()?.iter().any(is_taken) {
                return Err(CreateVolumeError::NameTaken(making.name));
            }
            tx.put(&making);
            Ok(())
        });
        write.await?;
        crashpoint(Point::VolumeRecorded);
        let made = async {
            match source {
                None => context.zone.make_volume(record.id, record.size_mib).await,
                Some(source) => context.zone.clone_volume(record.id, source.id).await,
            }
        };
        let made = timeout(context.config.create_budget, made).await;
        crashpoint(Point::VolumeMade);
        let failed = match made {
            Ok(Ok(())) => {
                let record = VolumeRecord { phase: VolumePhase::Ready, ..record };
                return Ok(self.put(record).await?);
            }
            Ok(Err(ZoneVolumeError::DiskFull)) => CreateVolumeError::DiskFull,
            Ok(Err(ZoneVolumeError::Unavailable)) => CreateVolumeError::ZoneUnavailable,
            Ok(Err(ZoneVolumeError::Gone)) => CreateVolumeError::NoSource(
                source.map(|it| it.name.to_string()).unwrap_or_default(),
            ),
            Ok(Err(error @ (ZoneVolumeError::InUse | ZoneVolumeError::Internal(_)))) => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(volume.id = %record.id, error, "a volume can't be made");
                CreateVolumeError::Failed
            }
            Err(_late) => CreateVolumeError::TimedOut,
        };
        self.clear(record).await;
        Err(failed)
    }

    /// Everything in it is lost. Dropping the future does not stop it.
    pub async fn delete(&self, team: TeamId, id: &str) -> Result<(), DeleteVolumeError> {
        let found = self.get(team, id);
        let record = found.ok_or_else(|| DeleteVolumeError::NotFound(id.to_owned()))?;
        let this = self.clone();
        let work = async move { this.remove(&record).await };
        self.context.to_the_end("delete volume", work).await
    }

    async fn remove(&self, record: &VolumeRecord) -> Result<(), DeleteVolumeError> {
        self.doom(record).await?;
        crashpoint(Point::VolumeDoomed);
        let removed = self.context.zone.remove_volume(record.id).await;
        crashpoint(Point::VolumeRemoved);
        let failed = match removed {
            Ok(()) => return Ok(self.forget(record.id).await?),
            Err(ZoneVolumeError::InUse) => DeleteVolumeError::InUse(record.name.clone()),
            Err(ZoneVolumeError::Unavailable) => DeleteVolumeError::ZoneUnavailable,
            Err(
                error @ (ZoneVolumeError::DiskFull
                | ZoneVolumeError::Gone
                | ZoneVolumeError::Internal(_)),
            ) => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(volume.id = %record.id, error, "a volume can't be removed");
                DeleteVolumeError::Failed
            }
        };
        self.put(record.clone()).await?;
        Err(failed)
    }

    /// Unless something mounts it, or will. From here on nobody can ask for it.
    async fn doom(&self, record: &VolumeRecord) -> Result<(), DeleteVolumeError> {
        let _changing = self.context.accounts.changing.lock().await;
        let doomed = Arc::new(VolumeRecord { phase: VolumePhase::Doomed, ..record.clone() });
        let (context, written) = (Arc::clone(&self.context), Arc::clone(&doomed));
        let write = self.context.store.write(move |tx| {
            let now = tx.get::<VolumeRecord>(&written.id)?;
            if now.is_none_or(|now| now.phase != VolumePhase::Ready) {
                return Err(DeleteVolumeError::NotFound(written.id.to_string()));
            }
            // A create is in the index before it is committed, and is committed only while the
            // volume is ready: one of the two comes first.
            let has = |mounts: &[VolumeMount]| mounts.iter().any(|it| it.volume == written.id);
            let lives = context.index.records().iter().any(|it| has(&it.spec.volumes));
            let snapshots = tx.all::<SnapshotRecord>()?;
            let kept = snapshots.iter().flat_map(|it| it.builds.values());
            if lives || kept.map(|build| &build.volumes).any(|mounts| has(mounts)) {
                return Err(DeleteVolumeError::InUse(written.name.clone()));
            }
            tx.put(&*written);
            Ok(())
        });
        write.await?;
        self.context.accounts.put_volume(doomed);
        Ok(())
    }

    /// For an hour, for whoever bears it.
    pub fn token(&self, record: &VolumeRecord) -> String {
        token::issue(&self.context.config.volume_key, record.id, self.context.now(), TOKEN_LIFE)
    }

    /// `volume`: the one that the bearer names.
    pub async fn files(
        &self,
        token: &str,
        volume: &str,
    ) -> Result<Arc<dyn VolumeFiles>, OpenVolumeError> {
        let context = &self.context;
        let id = token::verify(&context.config.volume_key, token, context.now())
            .filter(|id| id.to_string() == volume)
            .ok_or(OpenVolumeError::BadToken)?;
        let is_ready = |it: &Arc<VolumeRecord>| it.id == id && it.phase == VolumePhase::Ready;
        if !context.accounts.volumes().iter().any(is_ready) {
            return Err(OpenVolumeError::Gone);
        }
        let opened = context.zone.volume(id).await;
        opened.map_err(|error| match error {
            ZoneVolumeError::Unavailable => OpenVolumeError::ZoneUnavailable,
            error @ (ZoneVolumeError::DiskFull
            | ZoneVolumeError::InUse
            | ZoneVolumeError::Gone
            | ZoneVolumeError::Internal(_)) => OpenVolumeError::Failed(error),
        })
    }

    /// Finishes what an earlier process left: what nobody was told of, and what was to go.
    pub(crate) async fn take_over(&self) -> Result<(), StoreError> {
        let mut left = self.context.accounts.volumes();
        left.retain(|it| it.phase != VolumePhase::Ready);
        // Their names are free from here on.
        for record in left.iter().filter(|it| it.phase == VolumePhase::Making) {
            let record = VolumeRecord::clone(record);
            self.put(VolumeRecord { phase: VolumePhase::Doomed, ..record }).await?;
        }
        let this = self.clone();
        drop(self.context.tasks.spawn("volumes left", |_stop| async move {
            for record in left {
                this.clear((*record).clone()).await;
            }
        }));
        Ok(())
    }

    /// As far as possible now; the next start does the rest.
    async fn clear(&self, record: VolumeRecord) {
        let id = record.id;
        let cleared = async {
            self.put(VolumeRecord { phase: VolumePhase::Doomed, ..record }).await?;
            self.context.zone.remove_volume(id).await?;
            self.forget(id).await?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
        };
        if let Err(error) = cleared.await {
            let error = error.as_ref() as &dyn std::error::Error;
            tracing::warn!(volume.id = %id, error, "a volume is removed later");
        }
    }

    async fn put(&self, record: VolumeRecord) -> Result<Arc<VolumeRecord>, StoreError> {
        let _changing = self.context.accounts.changing.lock().await;
        let written = record.clone();
        let write = self.context.store.write(move |tx| {
            tx.put(&written);
            Ok::<_, StoreError>(())
        });
        write.await?;
        let record = Arc::new(record);
        self.context.accounts.put_volume(Arc::clone(&record));
        Ok(record)
    }

    async fn forget(&self, id: VolumeId) -> Result<(), StoreError> {
        let _changing = self.context.accounts.changing.lock().await;
        let write = self.context.store.write(move |tx| {
            tx.remove::<VolumeRecord>(&id);
            Ok::<_, StoreError>(())
        });
        write.await?;
        self.context.accounts.remove_volume(id);
        Ok(())
    }
}
