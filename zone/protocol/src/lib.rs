//! The shared words: ids, specs, and what an appliance and a zone say to each other.
//!
//! Nothing here does anything; both sides depend on it and on nothing else of each other's.
#![forbid(unsafe_code)]

mod clock;
mod egress_proxy;
mod event;
mod host_name;
mod id;
mod notice;
mod overdue;
pub mod placeholder;
mod pull;
mod random;
mod secret;
mod spec;
mod stream;
mod volume;
mod zone;

#[cfg(feature = "test-support")]
pub mod fake;

pub use clock::{Clock, SystemClock, Timestamp};
pub use egress_proxy::{
    EgressProxy, NotAProxyAddress, ProxyAddress, ProxyHost, ProxyLogin, Sealed, may_be_proxy,
};
pub use event::{Checkpoint, EndReason, Ended, Paused, ZoneEvent, ZoneReport, ZoneSandbox};
pub use host_name::{HostName, NamePattern, NotHostName};
pub use id::{
    ApiKeyId, BuildId, CheckpointId, ExecutionId, ImageDigest, ParseIdError, Region, SandboxId,
    SecretId, TeamId, TemplateId, VolumeId, ZoneCode, ZoneName,
};
pub use notice::{Notice, Noticed};
pub use overdue::{PAUSE_AGAIN, Refused, pause_overdue};
pub use placeholder::Vault;
pub use pull::{Credentials, ImageSource, Pull, PullError, Pulled};
pub use random::{Random, SystemRandom};
pub use secret::Secret;
pub use spec::{
    Kept, NetworkMode, NetworkPolicy, OnDeadline, Origin, Platform, REFUSED_ALWAYS, Resources,
    SandboxSpec, SetHeader, Shape,
};
pub use stream::ByteStream;
pub use volume::{
    Attributes, Content, EntryKind, MountPath, NotAMountPath, NotAVolumePath, VolumeEntry,
    VolumeError, VolumeFileError, VolumeFiles, VolumeMount, VolumePath,
};
pub use zone::{
    AGENT_PORT, Capacity, ConnectError, CreateError, ImageDefaults, ImageInfo, ImportError,
    Imported, Measured, PauseError, Started, Zone, ZoneError, ZoneInfo,
};
