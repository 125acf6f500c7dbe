//! Sandboxes: what can be asked of them.

mod checkpoint;
mod create;
mod fork;
mod kill;
mod list;
mod measure;
mod pause;
mod resume;
mod update;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use sandboxo_model::{
    Invalid, InvalidMounts, Phase, PhaseKind, SandboxRecord, Standing,
    decide::list::{self as decide_list, Order},
};
use sandboxo_spool::SpoolError;
use sandboxo_store::{Read as _, StoreError};
use sandboxo_zone_protocol::{ByteStream, Measured, SandboxId, Timestamp};

pub use checkpoint::CheckpointError;
pub(crate) use checkpoint::Taken;
pub(crate) use create::Birth;
pub use fork::ForkError;
pub use pause::PauseError;
pub use resume::{Connected, ResumeError};
pub use sandboxo_zone_protocol::ConnectError;

use crate::{Scope, context::Context, index::Live};

/// A cheap clone of one thing.
#[derive(Clone)]
pub struct Sandboxes {
    context: Arc<Context>,
    creates: Arc<tokio::sync::Semaphore>,
}

impl Sandboxes {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        let creates = Arc::new(tokio::sync::Semaphore::new(create::AT_ONCE));
        Self { context, creates }
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// One that runs, and its time is not over, or that is paused.
    pub fn get(&self, scope: impl Into<Scope>, id: SandboxId) -> Option<Arc<SandboxRecord>> {
        self.known(scope.into(), id).map(|(_, record)| record)
    }

    /// The moment by which the answers here are true.
    pub fn now(&self) -> Timestamp {
        self.context.now()
    }

    /// In any phase, dead ones too, for operators.
    pub async fn find(
        &self,
        scope: impl Into<Scope>,
        id: SandboxId,
    ) -> Result<Option<Arc<SandboxRecord>>, StoreError> {
        let scope = scope.into();
        let record = match self.context.index.get(id) {
            Some(live) => Some(live.record()),
            None => self.context.store.read(move |tx| tx.sandbox(id)).await?.map(Arc::new),
        };
        Ok(record.filter(|record| scope.includes(record.team)))
    }

    /// For the data plane, which has its own credentials and no team.
    pub fn lookup(&self, id: SandboxId) -> Lookup {
        let Some(record) = self.get(Scope::Operator, id) else { return Lookup::NotFound };
        match (record.standing(self.context.now()), &record.phase) {
            (Standing::Usable { .. }, _) => Lookup::Ready(record),
            (Standing::Asleep, Phase::Paused { .. }) => Lookup::Paused(record),
            (Standing::Asleep, Phase::Resuming { .. }) => Lookup::Resuming(record),
            (Standing::Asleep, _) => Lookup::Pausing(record),
            (Standing::Gone, _) => Lookup::NotFound,
        }
    }

    /// All that a request reaches now, or wakes; for those that carry only a signature.
    pub fn live(&self) -> Vec<Arc<SandboxRecord>> {
        let now = self.context.now();
        let mut records = self.context.index.records();
        records.retain(|record| match record.standing(now) {
            Standing::Usable { .. } => true,
            Standing::Asleep => record.auto_resume,
            Standing::Gone => false,
        });
        records
    }

    /// Wakes when nothing of the sandbox runs any more; at once if nothing does now.
    pub async fn gone(&self, id: SandboxId) {
        if let Some(live) = self.context.index.get(id) {
            // A pause that is refused cuts nobody off.
            let runs = |record: &SandboxRecord| {
                matches!(record.phase.kind(), PhaseKind::Running | PhaseKind::Pausing)
            };
            live.until(|record| !runs(record)).await;
        }
    }

    /// Wakes when it is neither on its way to a pause nor back.
    pub async fn settled(&self, id: SandboxId) {
        if let Some(live) = self.context.index.get(id) {
            let moving = |record: &SandboxRecord| {
                record.standing(self.context.now()) == Standing::Asleep
                    && record.phase.kind() != PhaseKind::Paused
            };
            live.until(|record| !moving(record)).await;
        }
    }

    pub async fn open(
        &self,
        id: SandboxId,
        port: u16,
    ) -> Result<Box<dyn ByteStream>, ConnectError> {
        match self.lookup(id) {
            Lookup::Ready(_) => self.context.zone.connect(id, port).await,
            Lookup::Paused(_) | Lookup::Pausing(_) | Lookup::Resuming(_) | Lookup::NotFound => {
                Err(ConnectError::NotFound)
            }
        }
    }

    fn usable(&self, scope: Scope, id: SandboxId) -> Option<(Arc<Live>, Arc<SandboxRecord>)> {
        let now = self.context.now();
        self.known(scope, id).filter(|(_, record)| record.usable_until(now).is_some())
    }

    fn known(&self, scope: Scope, id: SandboxId) -> Option<(Arc<Live>, Arc<SandboxRecord>)> {
        let live = self.context.index.get(id)?;
        let record = live.record();
        let known = record.standing(self.context.now()) != Standing::Gone;
        (known && scope.includes(record.team)).then_some((live, record))
    }
}

/// Whoever is let in by the record's rules may wake it where it says so.
#[derive(Debug, Clone)]
pub enum Lookup {
    Ready(Arc<SandboxRecord>),
    Paused(Arc<SandboxRecord>),
    /// Also one whose pause is due.
    Pausing(Arc<SandboxRecord>),
    Resuming(Arc<SandboxRecord>),
    NotFound,
}

/// [`decide_list::Query`] in a client's words.
#[derive(Debug, Clone)]
pub struct ListQuery {
    pub phases: BTreeSet<PhaseKind>,
    pub metadata: BTreeMap<String, String>,
    pub started_after: Option<Timestamp>,
    /// Id or name; nothing is of an unknown one.
    pub template: Option<String>,
    pub order: Order,
    /// 1 to 100.
    pub limit: usize,
    /// From the page before.
    pub token: Option<String>,
}

impl Default for ListQuery {
    fn default() -> Self {
        Self {
            phases: BTreeSet::from([PhaseKind::Running]),
            metadata: BTreeMap::new(),
            started_after: None,
            template: None,
            order: Order::Descending,
            limit: 100,
            token: None,
        }
    }
}

pub type Page = decide_list::Page<Arc<SandboxRecord>>;

#[derive(Debug, Clone, PartialEq)]
pub struct Metrics {
    pub vcpus: u32,
    pub samples: Vec<Measured>,
}

#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    #[error(transparent)]
    Invalid(#[from] Invalid),
    #[error("template '{0}' not found")]
    TemplateNotFound(String),
    /// The key was used for another request.
    #[error("the idempotency key was used with a different request")]
    IdempotencyMismatch,
    #[error("a create with this idempotency key is in progress")]
    IdempotencyInProgress,
    #[error("the outcome of the create with this idempotency key is not known")]
    IdempotencyUnknown,
    /// Too many creates at once, or a limit of the zone.
    #[error("the limit of {limit} {what} is reached")]
    LimitReached { what: String, limit: u64 },
    #[error("the disk is full")]
    DiskFull,
    /// Made by another runtime; the text says which.
    #[error("what it would start from can't be restored here: {0}")]
    CheckpointUnusable(String),
    #[error(transparent)]
    Mounts(InvalidMounts),
    /// Its path, and what is wrong with it.
    #[error("volumeMounts: {0}")]
    NotMounted(String),
    #[error("'{0}' was open in a volume when the snapshot was taken, and it is gone")]
    VolumeFileGone(String),
    #[error("the sandbox did not start in time")]
    TimedOut,
    #[error("the sandbox was killed while it started")]
    Killed,
    /// Logged where it happened.
    #[error("the sandbox did not start")]
    Failed,
    #[error("no zone is available")]
    ZoneUnavailable,
    #[error("record the sandbox")]
    Store(#[source] StoreError),
}

/// A disk that is full is the same to a caller, whether records or sandboxes lie on it.
impl From<StoreError> for CreateError {
    fn from(error: StoreError) -> Self {
        if matches!(error, StoreError::DiskFull) { Self::DiskFull } else { Self::Store(error) }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum KillError {
    #[error("sandbox '{}' not found", .0.label())]
    NotFound(SandboxId),
    #[error("too many requests wait for this sandbox")]
    Busy,
    /// The kill is written down and goes on.
    #[error("the zone has not confirmed the kill")]
    ZoneUnavailable,
    #[error("record the kill")]
    Store(#[source] StoreError),
}

#[derive(Debug, thiserror::Error)]
pub enum TimeoutError {
    #[error(transparent)]
    Invalid(#[from] Invalid),
    #[error("sandbox '{}' not found", .0.label())]
    NotFound(SandboxId),
    #[error("too many requests wait for this sandbox")]
    Busy,
    #[error("the disk is full")]
    DiskFull,
    #[error("record the timeout")]
    Store(#[source] StoreError),
}

#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    #[error(transparent)]
    Invalid(#[from] Invalid),
    #[error("sandbox '{}' not found", .0.label())]
    NotFound(SandboxId),
    #[error("too many requests wait for this sandbox")]
    Busy,
    /// The rules are written down, and not in force yet.
    #[error("the zone did not take the rules")]
    ZoneUnavailable,
    #[error("the disk is full")]
    DiskFull,
    #[error("record the rules")]
    Store(#[source] StoreError),
}

impl From<StoreError> for TimeoutError {
    fn from(error: StoreError) -> Self {
        if matches!(error, StoreError::DiskFull) { Self::DiskFull } else { Self::Store(error) }
    }
}

impl From<StoreError> for NetworkError {
    fn from(error: StoreError) -> Self {
        if matches!(error, StoreError::DiskFull) { Self::DiskFull } else { Self::Store(error) }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    #[error("read the history")]
    Spool(#[from] SpoolError),
    #[error("read the record")]
    Store(#[from] StoreError),
}

#[derive(Debug, thiserror::Error)]
pub enum ListError {
    #[error("not a token of this list")]
    BadToken,
    #[error("limit must be between 1 and {}", ListError::MAX_LIMIT)]
    BadLimit,
    #[error("read the list")]
    Store(#[from] StoreError),
}

impl ListError {
    pub const MAX_LIMIT: usize = 100;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_under_the_records_is_told_as_one() {
        assert!(matches!(CreateError::from(StoreError::DiskFull), CreateError::DiskFull));
        assert!(matches!(CreateError::from(StoreError::Closed), CreateError::Store(_)));
        assert!(matches!(TimeoutError::from(StoreError::DiskFull), TimeoutError::DiskFull));
        assert!(matches!(TimeoutError::from(StoreError::Closed), TimeoutError::Store(_)));
        assert!(matches!(NetworkError::from(StoreError::DiskFull), NetworkError::DiskFull));
        assert!(matches!(NetworkError::from(StoreError::Closed), NetworkError::Store(_)));
    }
}
