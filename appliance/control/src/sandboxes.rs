//! Sandboxes: what can be asked of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
    sync::Arc,
    time::Duration,
};

use sandboxo_model::{
    Invalid, NetworkAsked, NewSandbox, PhaseKind, SandboxRecord,
    decide::list::{self, Order},
};
use sandboxo_store::StoreError;
use sandboxo_zone_protocol::{ByteStream, Measured, SandboxId, TeamId, Timestamp};

pub use sandboxo_zone_protocol::ConnectError;

use crate::Scope;

/// A cheap clone of one thing.
#[derive(Clone)]
pub struct Sandboxes {}

impl Sandboxes {
    /// Returns once it runs and its agent answers. Dropping the future does not stop the create.
    pub async fn create(
        &self,
        team: TeamId,
        new: NewSandbox,
    ) -> Result<Arc<SandboxRecord>, CreateError> {
        todo!()
    }

    /// A running one whose time is not over.
    pub fn get(&self, scope: impl Into<Scope>, id: SandboxId) -> Option<Arc<SandboxRecord>> {
        todo!()
    }

    /// In any phase, dead ones too, for operators.
    pub async fn find(
        &self,
        scope: impl Into<Scope>,
        id: SandboxId,
    ) -> Result<Option<Arc<SandboxRecord>>, StoreError> {
        todo!()
    }

    pub async fn list(&self, scope: impl Into<Scope>, query: ListQuery) -> Result<Page, ListError> {
        todo!()
    }

    /// Returns once it is gone.
    pub async fn kill(&self, scope: impl Into<Scope>, id: SandboxId) -> Result<(), KillError> {
        todo!()
    }

    /// From now; shorter or longer than before. Zero: its time is over.
    pub async fn set_timeout(
        &self,
        scope: impl Into<Scope>,
        id: SandboxId,
        timeout: Duration,
    ) -> Result<Arc<SandboxRecord>, TimeoutError> {
        todo!()
    }

    /// From now; never shortens.
    pub async fn extend(
        &self,
        scope: impl Into<Scope>,
        id: SandboxId,
        timeout: Duration,
    ) -> Result<Arc<SandboxRecord>, TimeoutError> {
        todo!()
    }

    /// Replaces all egress rules; what was asked about ingress stays. `internet` as
    /// `allow_internet_access` of the update.
    pub async fn set_network(
        &self,
        scope: impl Into<Scope>,
        id: SandboxId,
        network: NetworkAsked,
        internet: Option<bool>,
    ) -> Result<Arc<SandboxRecord>, NetworkError> {
        todo!()
    }

    /// Oldest first. `None`: no such sandbox.
    pub fn metrics(
        &self,
        scope: impl Into<Scope>,
        id: SandboxId,
        range: RangeInclusive<Timestamp>,
    ) -> Option<Metrics> {
        todo!()
    }

    /// The last sample of each that has one.
    pub fn latest_metrics(
        &self,
        scope: impl Into<Scope>,
        ids: &[SandboxId],
    ) -> BTreeMap<SandboxId, Metrics> {
        todo!()
    }

    /// For the data plane, which has its own credentials and no team.
    pub fn lookup(&self, id: SandboxId) -> Lookup {
        todo!()
    }

    /// All that can be used now, for requests that carry only a signature.
    pub fn live(&self) -> Vec<Arc<SandboxRecord>> {
        todo!()
    }

    pub async fn open(
        &self,
        id: SandboxId,
        port: u16,
    ) -> Result<Box<dyn ByteStream>, ConnectError> {
        todo!()
    }
}

#[derive(Debug, Clone)]
pub enum Lookup {
    Ready(Arc<SandboxRecord>),
    NotFound,
}

/// [`list::Query`] in a client's words.
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

pub type Page = list::Page<Arc<SandboxRecord>>;

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
    #[error("the zone's disk is full")]
    DiskFull,
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
    Store(#[from] StoreError),
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
    Store(#[from] StoreError),
}

#[derive(Debug, thiserror::Error)]
pub enum TimeoutError {
    #[error(transparent)]
    Invalid(#[from] Invalid),
    #[error("sandbox '{}' not found", .0.label())]
    NotFound(SandboxId),
    #[error("too many requests wait for this sandbox")]
    Busy,
    #[error("record the timeout")]
    Store(#[from] StoreError),
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
    #[error("record the rules")]
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
