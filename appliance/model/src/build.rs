//! Builds: attempts to make a version of a template, and the layers they leave for the next.

use std::{collections::BTreeMap, fmt, str::FromStr};

use sandboxo_zone_protocol::{
    BuildId, CheckpointId, ImageDigest, ImageSource, Resources, TeamId, TemplateId, Timestamp,
};

use crate::Level;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildRecord {
    pub id: BuildId,
    pub template: TemplateId,
    pub team: TeamId,
    /// What the version is called once it is ready, unless a newer one has the tag by then.
    pub tags: Vec<String>,
    pub resources: Resources,
    pub created_at: Timestamp,
    pub phase: BuildPhase,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BuildPhase {
    /// For its recipe, and for the files that it copies.
    Waiting,
    Building {
        recipe: Recipe,
        /// This one is counted.
        attempt: u32,
    },
    Ready {
        at: Timestamp,
    },
    Failed {
        at: Timestamp,
        failure: BuildFailure,
    },
}

impl BuildRecord {
    /// An appliance that dies may take a build with it, and a build may take an appliance with it.
    pub const MAX_ATTEMPTS: u32 = 2;

    pub fn is_over(&self) -> bool {
        match self.phase {
            BuildPhase::Waiting | BuildPhase::Building { .. } => false,
            BuildPhase::Ready { .. } | BuildPhase::Failed { .. } => true,
        }
    }
}

/// Told to the client in these words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct BuildFailure {
    pub message: String,
    /// `None`: no step of the recipe is to blame.
    pub step: Option<StepName>,
}

/// Where in the recipe something happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepName {
    Base,
    /// From one.
    Step(u32),
    Finalize,
}

impl fmt::Display for StepName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Base => f.write_str("base"),
            Self::Step(number) => write!(f, "{number}"),
            Self::Finalize => f.write_str("finalize"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not the name of a step")]
pub struct NotAStep;

impl FromStr for StepName {
    type Err = NotAStep;

    fn from_str(text: &str) -> Result<Self, NotAStep> {
        match text {
            "base" => Ok(Self::Base),
            "finalize" => Ok(Self::Finalize),
            number => number.parse().map(Self::Step).map_err(|_other| NotAStep),
        }
    }
}

/// What a client wants built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    pub from: From,
    pub steps: Vec<Step>,
    pub start: Option<String>,
    pub ready: Option<String>,
    /// No layer is taken from earlier builds.
    pub force: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum From {
    Image(ImageName),
    /// With credentials, which are not written down.
    PrivateImage(ImageName),
    /// As a client calls it.
    Template(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// `RUN`, `COPY`, … in capitals.
    pub kind: String,
    pub args: Vec<String>,
    pub files: Option<FilesHash>,
    /// This step and those after it take no layer from earlier builds.
    pub force: bool,
}

/// SHA-256 of what a step copies, as the client reckons it: 64 lowercase hex digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilesHash(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a hash of files: it has 64 hexadecimal digits")]
pub struct NotAHash(String);

impl FilesHash {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for FilesHash {
    type Err = NotAHash;

    fn from_str(text: &str) -> Result<Self, NotAHash> {
        let digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if text.len() == 64 && text.bytes().all(digit) {
            Ok(Self(text.to_owned()))
        } else {
            Err(NotAHash(text.to_owned()))
        }
    }
}

/// `docker.io/library/ubuntu:22.04`, whatever was left out of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageName(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the name of an image")]
pub struct NotAnImageName(String);

impl ImageName {
    const REGISTRY: &str = "docker.io";
    const MAX_LENGTH: usize = 512;

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Where it is, if it is not here.
    pub fn source(&self) -> ImageSource {
        let (registry, rest) = self.0.split_once('/').unwrap_or((Self::REGISTRY, &self.0));
        let (repository, reference) =
            rest.split_once('@').or_else(|| rest.split_once(':')).unwrap_or((rest, "latest"));
        ImageSource {
            registry: registry.to_owned(),
            repository: repository.to_owned(),
            reference: reference.to_owned(),
        }
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ImageName {
    type Err = NotAnImageName;

    fn from_str(text: &str) -> Result<Self, NotAnImageName> {
        let refused = || NotAnImageName(text.to_owned());
        let of_a_name = |b: u8| {
            b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b'/' | b':' | b'@')
        };
        let name = text.trim();
        if name.is_empty() || name.len() > Self::MAX_LENGTH || !name.bytes().all(of_a_name) {
            return Err(refused());
        }
        let (registry, rest) = match name.split_once('/') {
            Some((host, rest)) if host.contains(['.', ':']) || host == "localhost" => (host, rest),
            _ => (Self::REGISTRY, name),
        };
        let (tagged, digest) = match rest.split_once('@') {
            Some((tagged, digest)) => (tagged, Some(digest)),
            None => (rest, None),
        };
        let (path, tag) = match tagged.rsplit_once(':') {
            Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
            _ => (tagged, None),
        };
        // They become a URL, which they must not lead out of.
        let of_a_path = |part: &str| {
            part.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
                && !part.bytes().any(|b| b.is_ascii_uppercase() || b == b':')
        };
        let of_a_tag = |tag: &str| {
            (1..=128).contains(&tag.len())
                && !tag.starts_with(['.', '-'])
                && !tag.contains(['/', ':', '@'])
        };
        let of_a_digest = |digest: &str| {
            digest.strip_prefix("sha256:").is_some_and(|hex| hex.parse::<ImageDigest>().is_ok())
        };
        if registry.contains('@')
            || !path.split('/').all(of_a_path)
            || !tag.is_none_or(of_a_tag)
            || !digest.is_none_or(of_a_digest)
        {
            return Err(refused());
        }
        let version = match (digest, tag) {
            (Some(digest), _) => format!("@{digest}"),
            (None, tag) => format!(":{}", tag.unwrap_or("latest")),
        };
        let registry = if registry == "index.docker.io" { Self::REGISTRY } else { registry };
        let library =
            if registry == Self::REGISTRY && !path.contains('/') { "library/" } else { "" };
        Ok(Self(format!("{registry}/{library}{path}{version}")))
    }
}

/// What sandboxes have that are started now: each step may change it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Surroundings {
    pub env: BTreeMap<String, String>,
    pub user: String,
    /// `None`: the user's home.
    pub workdir: Option<String>,
}

/// What a step has left on the disk, by everything that led there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerRecord {
    pub key: LayerKey,
    pub team: TeamId,
    pub checkpoint: CheckpointId,
    /// Of the zone's image under it.
    pub image: ImageDigest,
    pub used_at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LayerKey(pub [u8; 32]);

impl fmt::Display for LayerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildLine {
    pub at: Timestamp,
    pub level: Level,
    pub message: String,
    pub step: Option<StepName>,
}

/// What a build has said. Written when it is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildLogRecord {
    pub build: BuildId,
    pub lines: Vec<BuildLine>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_images() {
        let hash = format!("sha256:{}", "ab".repeat(32));
        let (digest, both) = (format!("a@{hash}"), format!("a:v1@{hash}"));
        let by_digest = format!("docker.io/library/a@{hash}");
        for (text, expected) in [
            ("ubuntu", Some("docker.io/library/ubuntu:latest")),
            ("ubuntu:22.04", Some("docker.io/library/ubuntu:22.04")),
            ("e2bdev/base", Some("docker.io/e2bdev/base:latest")),
            ("docker.io/e2bdev/base:latest", Some("docker.io/e2bdev/base:latest")),
            ("index.docker.io/library/x:1", Some("docker.io/library/x:1")),
            ("ghcr.io/a/b/c", Some("ghcr.io/a/b/c:latest")),
            ("localhost:5000/a:b", Some("localhost:5000/a:b")),
            ("localhost/a", Some("localhost/a:latest")),
            ("a@sha256:ab", None),
            (&digest, Some(&by_digest)),
            (&both, Some(&by_digest)),
            ("a@sha256:../../../x", None),
            ("me@localhost:5000/a", None),
            ("a/../b", None),
            ("a/.b", None),
            ("a:.b", None),
            ("", None),
            ("a b", None),
            ("A/b", None),
            ("a//b", None),
            ("a:", None),
            ("/a", None),
            ("a/", None),
            ("a:b:c", None),
        ] {
            let parsed = text.parse::<ImageName>();
            assert_eq!(parsed.as_ref().map(ImageName::as_str).ok(), expected, "{text:?}");
        }
    }

    #[test]
    fn where_images_are() {
        let hash = format!("sha256:{}", "ab".repeat(32));
        let at = |text: &str| {
            let ImageSource { registry, repository, reference } =
                text.parse::<ImageName>().unwrap().source();
            [registry, repository, reference]
        };
        assert_eq!(at("ubuntu"), ["docker.io", "library/ubuntu", "latest"]);
        assert_eq!(at("localhost:5000/a/b:v1"), ["localhost:5000", "a/b", "v1"]);
        assert_eq!(at(&format!("ghcr.io/a@{hash}")), ["ghcr.io", "a", &hash]);
    }

    #[test]
    fn names_of_steps() {
        for step in [StepName::Base, StepName::Step(12), StepName::Finalize] {
            assert_eq!(step.to_string().parse(), Ok(step));
        }
        assert_eq!("other".parse::<StepName>(), Err(NotAStep));
    }

    #[test]
    fn hashes_are_of_hex() {
        assert!("ab".repeat(32).parse::<FilesHash>().is_ok());
        for text in ["", "ab", &"AB".repeat(32), &"../".repeat(22)] {
            assert!(text.parse::<FilesHash>().is_err(), "{text}");
        }
    }
}
