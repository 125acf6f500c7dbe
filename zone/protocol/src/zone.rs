//! The zone API as Rust. `control` cannot tell an in-process zone from one behind a tunnel.
//!
//! Every operation is idempotent by id: delivery is at least once.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::{io::AsyncRead, sync::mpsc};

use crate::{
    ByteStream, Checkpoint, CheckpointId, ImageDigest, Kept, NetworkPolicy, Notice, Pull,
    PullError, Pulled, Region, SandboxId, SandboxSpec, Shape, Timestamp, Vault, VolumeError,
    VolumeFiles, VolumeId, ZoneEvent, ZoneName,
};

/// Where the agent listens inside a sandbox; a connection to it ends in the agent.
pub const AGENT_PORT: u16 = 49983;

#[async_trait]
pub trait Zone: Send + Sync {
    fn info(&self) -> ZoneInfo;

    /// Whom egress asks for secrets from now on. Before, requests that need one are cut.
    fn use_vault(&self, vault: Arc<dyn Vault>);

    /// Returns once the agent answers. A repeat for a running id is a success.
    async fn create(&self, spec: SandboxSpec) -> Result<Started, CreateError>;

    /// Returns once it is gone; checkpoints stay. A repeat is a success: `NotFound` means there is
    /// nothing to kill.
    async fn kill(&self, id: SandboxId) -> Result<(), ZoneError>;

    /// Ends it, and keeps what a later create starts from. A repeat for one that is paused is a
    /// success. Dropping the future does not stop it.
    async fn pause(&self, id: SandboxId, kept: Kept) -> Result<Checkpoint, PauseError>;

    /// As a pause, and the sandbox goes on from there; connections to it are cut. One that can't go
    /// on is paused with it, which the checkpoint says. With
    /// [`Kept::Files`] its processes end only in what starts from the checkpoint.
    async fn snapshot(&self, id: SandboxId, kept: Kept) -> Result<Checkpoint, PauseError>;

    /// A repeat is a success. A sandbox that is starting from it may fail.
    async fn discard(&self, checkpoint: CheckpointId) -> Result<(), ZoneError>;

    async fn set_deadline(&self, id: SandboxId, deadline: Timestamp) -> Result<(), ZoneError>;

    /// Replaces all egress rules at once; established connections that are now refused end.
    async fn set_network(&self, id: SandboxId, policy: NetworkPolicy) -> Result<(), ZoneError>;

    async fn measure(&self, id: SandboxId) -> Result<Measured, ZoneError>;

    /// What programs have started and ended there. What was told once is not told again, whether
    /// the answer arrives or not.
    async fn notices(&self, id: SandboxId) -> Result<Vec<Notice>, ZoneError>;

    /// A byte stream to a port inside; [`AGENT_PORT`] is the agent itself.
    async fn connect(&self, id: SandboxId, port: u16) -> Result<Box<dyn ByteStream>, ConnectError>;

    /// Hello first. A receiver that falls behind is closed, and its owner subscribes again.
    async fn subscribe(&self) -> Result<mpsc::Receiver<ZoneEvent>, ZoneError>;

    /// Forget these ended sandboxes: their end is recorded.
    async fn acknowledge(&self, ended: Vec<SandboxId>) -> Result<(), ZoneError>;

    /// Unpacks a root file system from a tar stream, or the one image in it; gzip is recognized.
    async fn import_image(
        &self,
        tar: Box<dyn AsyncRead + Send + Unpin>,
    ) -> Result<Imported, ImportError>;

    /// Brings an image from a registry, unless it is here. Dropping the future drops the pull.
    async fn pull_image(&self, pull: Pull) -> Result<Pulled, PullError>;

    /// An empty one of this size. A repeat is a success.
    async fn make_volume(&self, id: VolumeId, size_mib: u32) -> Result<(), VolumeError>;

    /// One with what another holds, all of it as it was at one moment, and of the other's size.
    /// Whoever writes to the other waits meanwhile. Dropping the future ends it.
    async fn clone_volume(&self, id: VolumeId, of: VolumeId) -> Result<(), VolumeError>;

    /// With all that is in it. A repeat is a success.
    async fn remove_volume(&self, id: VolumeId) -> Result<(), VolumeError>;

    /// The caller knows that it was made.
    async fn volume(&self, id: VolumeId) -> Result<Arc<dyn VolumeFiles>, VolumeError>;

    /// What to keep sandboxes ready of; replaces the earlier list.
    async fn keep_warm(&self, shapes: BTreeSet<Shape>) -> Result<(), ZoneError>;

    /// The images that may be asked for; replaces the earlier list. Others go after a while, once
    /// no sandbox of the zone has them.
    async fn keep_images(&self, images: BTreeSet<ImageDigest>) -> Result<(), ZoneError>;
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneInfo {
    pub name: ZoneName,
    pub region: Region,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Capacity {
    pub running: u32,
    pub limit: u32,
    pub warm: u32,
    /// Made and not started, for what is restored.
    #[serde(default)]
    pub blanks: u32,
    /// Of those that run: stopped where they are, since nobody uses them.
    #[serde(default)]
    pub frozen: u32,
    pub free_memory_mib: u64,
    pub free_disk_mib: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    pub at: Timestamp,
    /// It came from the warm pool.
    pub warm: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    pub at: Timestamp,
    pub cpu_used_percent: f32,
    pub memory_used_bytes: u64,
    pub memory_total_bytes: u64,
    pub memory_cache_bytes: u64,
    pub disk_used_bytes: u64,
    pub disk_total_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageInfo {
    pub digest: ImageDigest,
    pub size_bytes: u64,
}

/// What came in an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    pub image: ImageInfo,
    /// `None`: it is a root file system, of which nobody says anything.
    pub defaults: Option<ImageDefaults>,
}

/// What the maker of an image wants where nobody says otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageDefaults {
    pub env: BTreeMap<String, String>,
    /// A name, or a number where the image has no name for it.
    pub user: Option<String>,
    pub workdir: Option<String>,
}

/// A create that failed has left nothing behind.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    #[error("the zone has no image {0}")]
    ImageNotFound(ImageDigest),
    #[error("the zone has no checkpoint {0}")]
    CheckpointNotFound(CheckpointId),
    /// Made by another runtime than the zone has. The text says which.
    #[error("the checkpoint can't be restored here: {0}")]
    CheckpointUnusable(String),
    #[error("the zone has no volume {0}")]
    VolumeNotFound(VolumeId),
    /// What the sandbox has at that path is no place for a volume.
    #[error("a volume can't be mounted: {0}")]
    NotMounted(String),
    /// It stays as it is; a file of this name lets it go on.
    #[error("a file in a volume that was open is not there any more: {0}")]
    VolumeFileGone(String),
    #[error("the zone's limit of {limit} {what} is reached")]
    LimitReached { what: &'static str, limit: u64 },
    #[error("the zone's disk is full")]
    DiskFull,
    #[error("the sandbox did not start within {0:?}")]
    TimedOut(Duration),
    #[error("it was killed while it started")]
    Killed,
    #[error("start the sandbox")]
    Runtime(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the zone is not available")]
    Unavailable,
}

/// Unless it says otherwise, the sandbox goes on as if nobody had asked.
#[derive(Debug, thiserror::Error)]
pub enum PauseError {
    #[error("the zone has no such sandbox")]
    NotFound,
    /// It starts, or another pause of it is under way.
    #[error("the sandbox is busy")]
    Busy,
    #[error(
        "the checkpoint needs {needed_mib} MiB, and the zone's disk has {free_mib} MiB to spare"
    )]
    DiskFull { needed_mib: u64, free_mib: u64 },
    #[error("the agent does not answer")]
    AgentUnresponsive,
    /// No checkpoint can keep it.
    #[error("a deleted file of a volume is open: {0}")]
    DeletedFileOpen(String),
    /// The sandbox ended of it, which is also told as an event.
    #[error("the checkpoint failed, and the sandbox ended")]
    Ended,
    #[error("the zone is not available")]
    Unavailable,
    #[error("the zone failed")]
    Internal(#[source] Box<dyn std::error::Error + Send + Sync>),
}

#[derive(Debug, thiserror::Error)]
pub enum ZoneError {
    #[error("the zone has no such sandbox")]
    NotFound,
    #[error("the zone is not available")]
    Unavailable,
    #[error("the zone failed")]
    Internal(#[source] Box<dyn std::error::Error + Send + Sync>),
}

#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("the zone has no such sandbox")]
    NotFound,
    #[error("nothing listens on port {0}")]
    PortClosed(u16),
    #[error("the agent does not answer")]
    AgentLost,
    #[error("too many connections to this sandbox")]
    TooMany,
    #[error("the zone is not available")]
    Unavailable,
}

#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The archive's fault: the text says which entry and why.
    #[error("{0}")]
    Rejected(String),
    #[error("read the archive")]
    Read(#[source] std::io::Error),
    #[error("the image is larger than {max_mib} MiB")]
    TooLarge { max_mib: u64 },
    #[error("the zone's disk is full")]
    DiskFull,
    #[error("store the image")]
    Internal(#[source] Box<dyn std::error::Error + Send + Sync>),
}
