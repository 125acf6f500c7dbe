//! The records and the decisions: values in, values out, no I/O.
#![forbid(unsafe_code)]

mod build;
pub mod decide;
mod idempotency;
mod identity;
mod key;
pub mod lifecycle;
mod log;
mod network;
mod new_sandbox;
pub mod resources;
pub mod rules;
#[cfg(test)]
mod sample;
mod sandbox;
pub mod secret;
mod snapshot;
mod team;
mod template;
mod volume;
mod zone;

pub use build::{
    BuildFailure, BuildLine, BuildLogRecord, BuildPhase, BuildRecord, FilesHash, From, ImageName,
    LayerKey, LayerRecord, NotAHash, NotAStep, NotAnImageName, Recipe, Step, StepName,
    Surroundings,
};
pub use decide::mounts::{InvalidMount, InvalidMounts};
pub use idempotency::{IdempotencyKey, IdempotencyRecord, NotAnIdempotencyKey};
pub use identity::{
    Audience, Identity, Issuer, NotATokenName, NotATrustDomain, NotAnAudience, NotAnIssuer,
    TokenName, Tokens, TooManyTokens, TrustDomain,
};
pub use key::{ApiKeyRecord, KeyMask};
pub use lifecycle::{DeathReason, IllegalMove, KillCause, Phase, PhaseKind, StartFailure};
pub use log::{Direction, Level, LogEntry, LogQuery, NotALevel};
pub use network::{HostRule, NetworkAsked, NetworkError, ProxyAsked, ProxyError, RuleError};
pub use new_sandbox::{Birth, Lifecycle, MountAsked, NewSandbox};
pub use rules::{Field, Invalid};
pub use sandbox::{Ingress, SandboxRecord, Standing, TemplateUse};
pub use secret::{NotASecretName, SecretName, SecretRecord};
pub use snapshot::{Base, Fork, SnapshotBuild, SnapshotKind, SnapshotRecord, origin};
pub use team::TeamRecord;
pub use template::{TemplateName, TemplateNameError, TemplateRecord, TemplateRef};
pub use volume::{NotAVolumeName, VolumeName, VolumePhase, VolumeRecord};
pub use zone::ZoneRecord;
