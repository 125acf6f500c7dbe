//! Images that a zone brings from registries.

use std::collections::BTreeMap;

use crate::{ImageInfo, Secret};

#[derive(Debug, Clone)]
pub struct Pull {
    pub source: ImageSource,
    pub credentials: Option<Credentials>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageSource {
    /// `docker.io`, `localhost:5000`.
    pub registry: String,
    /// `library/ubuntu`.
    pub repository: String,
    /// A tag, or a digest such as `sha256:…`.
    pub reference: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    pub user: String,
    pub password: Secret,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pulled {
    /// Its digest is that of the image's manifest.
    pub image: ImageInfo,
    /// What its maker wants programs to have.
    pub env: BTreeMap<String, String>,
    /// It was here already.
    pub was_here: bool,
}

/// Told to whoever asked for the image, behind its name.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    #[error("the registry has no such image or tag")]
    NotFound,
    #[error("the registry wants other credentials, or has no such image")]
    Unauthorized,
    #[error("the image has no version for linux/amd64")]
    NoPlatform,
    #[error("the image is larger than {max_mib} MiB")]
    TooLarge { max_mib: u64 },
    #[error("the registry can't be reached: {0}")]
    Unreachable(String),
    /// The host's own network is not for whoever may name an image.
    #[error("{0} is not on the public internet, and images.registries does not name it")]
    NotAllowed(String),
    #[error("images are not pulled here: images.max_mib is 0")]
    Off,
    /// The registry's or the image's fault.
    #[error("the image can't be used: {0}")]
    Unusable(String),
    #[error("the zone's disk is full")]
    DiskFull,
    #[error("store the image")]
    Internal(#[source] Box<dyn std::error::Error + Send + Sync>),
}
