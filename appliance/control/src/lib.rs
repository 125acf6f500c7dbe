//! What can be done, whoever asks: sandboxes, templates, builds, snapshots, volumes, secrets,
//! identities, keys.
//!
//! Knows nothing of HTTP, and cannot tell one zone from another.
//! The record says what should be, the zone reports what is; one driver per live sandbox brings
//! the two together, and a request only ever waits for it.
#![forbid(unsafe_code)]

mod accounts;
mod builds;
mod checkpoints;
mod context;
mod control;
mod driver;
mod fingerprint;
mod identity;
mod index;
mod keys;
mod loops;
mod notices;
mod samples;
mod sandboxes;
mod scope;
mod secrets;
mod snapshots;
mod starts;
mod templates;
mod tokens;
mod volumes;
mod zones;

pub use builds::{
    BuildStatus, BuildStatusError, Builds, MAX_UPLOAD_BYTES, NewBuild, RequestBuildError,
    Requested, StartBuildError, StatusPhase, Tag, TagError, UploadError, UploadLink,
};
pub use control::{Control, ControlConfig, StartError};
pub use identity::{
    Identities, IdentityConfig, JwkSet, KeepKeyring, Keyring, NewKey as NewIdentityKey,
    NewKeyError, NotAKeyring,
};
pub use keys::{Caller, KeyError, Keys, NewKey};
pub use sandboxes::{
    CheckpointError, ConnectError, Connected, CreateError, ForkError, HistoryError, KillError,
    ListError, ListQuery, Lookup, Metrics, NetworkError, Page, PauseError, ResumeError, Sandboxes,
    TimeoutError,
};
pub use scope::Scope;
pub use secrets::{SecretError, SecretPage, Secrets};
pub use snapshots::{
    DeleteSnapshotError, Snapshot, SnapshotError, SnapshotPage, SnapshotQuery, Snapshots,
};
pub use templates::{
    DeleteTemplateError, ImportTemplate, ImportTemplateError, PublishError, Templates,
};
pub use volumes::{CreateVolumeError, DeleteVolumeError, OpenVolumeError, Volumes};
pub use zones::{ZoneStatus, Zones};
