//! What is written down about each container, so that a zone that comes back knows what is its.
//!
//! A slot's folder is made before anything else of the container and removed after all of it. The
//! claim stands in it before the agent is told, so that a zone that died in between knows whose
//! sandbox it may have been.

use std::{fmt, fs, io, io::Write, os::unix::fs::OpenOptionsExt, path::Path, str::FromStr};

use sandboxo_zone_protocol::{
    CheckpointId, NetworkPolicy, OnDeadline, Random, SandboxId, Shape, Timestamp, VolumeId,
};
use serde::{Deserialize, Serialize};

use crate::{
    checkpoint::RuntimeMark, config::SlotPaths, network::LeaseRecord, process::ProcessMark,
};

const LENGTH: usize = 16;
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstuvwxy";

/// runsc's name of a container: of one length, since runsc matches names by prefix, and never a
/// sandbox's public id, since a pool member has none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(crate) struct ContainerId([u8; LENGTH]);

impl ContainerId {
    pub(crate) fn random(random: &dyn Random) -> Self {
        let mut bytes = [0; LENGTH];
        random.fill(&mut bytes);
        for byte in &mut bytes {
            *byte = ALPHABET.get(usize::from(*byte % 32)).copied().unwrap_or(b'0');
        }
        if let Some(first) = bytes.first_mut() {
            *first = b'c';
        }
        Self(bytes)
    }
}

impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.0).unwrap_or_default())
    }
}

impl fmt::Debug for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a container id")]
pub(crate) struct ParseContainerIdError;

impl FromStr for ContainerId {
    type Err = ParseContainerIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bytes: [u8; LENGTH] =
            text.as_bytes().try_into().map_err(|_length| ParseContainerIdError)?;
        let fits = bytes.starts_with(b"c") && bytes.iter().all(|byte| ALPHABET.contains(byte));
        fits.then_some(Self(bytes)).ok_or(ParseContainerIdError)
    }
}

impl TryFrom<String> for ContainerId {
    type Error = ParseContainerIdError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<ContainerId> for String {
    fn from(id: ContainerId) -> Self {
        id.to_string()
    }
}

/// One container's record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Slot {
    pub(crate) format: u32,
    pub(crate) container: ContainerId,
    /// The keeper that started it; another one can't reach it.
    pub(crate) keeper_boot: String,
    /// The host's boot; after another one nothing of it can live.
    pub(crate) host_boot: String,
    pub(crate) shape: Shape,
    pub(crate) lease: Option<LeaseRecord>,
    /// Set once runsc has started it.
    pub(crate) process: Option<ProcessMark>,
    pub(crate) claim: Option<ClaimRecord>,
    /// Its end is told or about to be; what is left of it goes without another word.
    #[serde(default)]
    pub(crate) ending: bool,
    /// What runs it; records of the time before this was written don't say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) programs: Option<ProgramsRecord>,
    /// runsc has made it and nothing runs in it. Of use only to the process that made it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) blank: bool,
    /// It is being saved, and ends by that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) saving: Option<CheckpointId>,
    /// It was told to stand still, or is about to be.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) held: bool,
    /// It was started from a checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) restored: Option<RestoreRecord>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProgramsRecord {
    pub(crate) runsc: RuntimeMark,
    /// The agent's digest.
    pub(crate) agent: String,
}

impl ProgramsRecord {
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.agent == other.agent && self.runsc.digest == other.runsc.digest
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RestoreRecord {
    pub(crate) checkpoint: CheckpointId,
    /// Its agent knows whose it is now. Until then it is of no use to anybody.
    pub(crate) told: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClaimRecord {
    pub(crate) id: SandboxId,
    pub(crate) started_at: Timestamp,
    pub(crate) deadline: Timestamp,
    #[serde(default, skip_serializing_if = "OnDeadline::is_default")]
    pub(crate) on_deadline: OnDeadline,
    pub(crate) network: NetworkPolicy,
    /// Attached to it, by their numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) volumes: Vec<VolumeId>,
}

impl Slot {
    pub(crate) const FORMAT: u32 = 1;

    pub(crate) fn load(paths: &SlotPaths) -> io::Result<Self> {
        let bytes = fs::read(paths.record())?;
        let slot: Self = serde_json::from_slice(&bytes)?;
        if slot.format != Self::FORMAT {
            return Err(io::Error::other(format!("unknown slot format {}", slot.format)));
        }
        Ok(slot)
    }

    pub(crate) fn store(&self, paths: &SlotPaths) -> io::Result<()> {
        write_whole(&paths.record(), &serde_json::to_vec(self)?)
    }
}

/// A reader meets the old text or the new one. Not synced: what must survive is the death of the
/// process; after the host's, no container is left.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace(path, |file| file.write_all(bytes))
}

/// The same of what must survive the host's death too.
pub(crate) fn write_lasting(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace(path, |file| file.write_all(bytes).and_then(|()| file.sync_all()))?;
    match path.parent() {
        Some(folder) => fs::File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

fn replace(path: &Path, write: impl FnOnce(&mut fs::File) -> io::Result<()>) -> io::Result<()> {
    let temporary = path.with_extension("new");
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let written = options
        .open(&temporary)
        .and_then(|mut file| write(&mut file))
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // Half of it helps nobody, and takes room where there may be none.
        drop(fs::remove_file(&temporary));
    }
    written
}

/// The host's, as the kernel tells it.
pub(crate) fn host_boot() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use sandboxo_zone_protocol::{
        ImageDigest, NetworkMode, Platform, Resources, SystemRandom, fake::SeededRandom,
    };

    use super::*;

    #[test]
    fn container_ids_have_one_length_and_no_public_form() {
        let one = ContainerId::random(&SystemRandom);
        assert_eq!(one.to_string().len(), LENGTH);
        assert_eq!(one.to_string().parse(), Ok(one));
        assert!(one.to_string().parse::<SandboxId>().is_err());
        for text in ["", "c", "x123456789abcdef", "c123456789abcdei", "c123456789abcdef0"] {
            assert!(text.parse::<ContainerId>().is_err(), "{text}");
        }
    }

    /// Bytes of a released format must stay readable: sandboxes outlive an upgrade.
    #[test]
    fn golden_record() {
        let golden = r#"{"format":1,"container":"c0123456789abcde","keeper_boot":"kb","host_boot":"hb","shape":{"image":"abababababababababababababababababababababababababababababababab","resources":{"vcpus":2,"memory_mib":512,"disk_mib":1024,"pids":300},"mode":"none"},"lease":null,"process":{"pid":7,"started":99},"claim":{"id":"sbx_loc_0123456789abcdefghjk","started_at":"2026-01-01T00:00:00Z","deadline":"2026-01-01T00:05:00Z","network":{"mode":"none","allow":[],"deny":["10.0.0.0/8"]}},"ending":true}"#;
        let slot: Slot = serde_json::from_str(golden).unwrap();
        assert_eq!(serde_json::to_string(&slot).unwrap(), golden);
    }

    #[test]
    fn what_can_not_be_written_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let taken = folder.path().join("taken");
        fs::create_dir(&taken).unwrap();
        assert!(write_whole(&taken, b"text").is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_record_is_replaced_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let paths = SlotPaths {
            folder: folder.path().to_owned(),
            mount: folder.path().join("m"),
            places: folder.path().join("p"),
            attached: folder.path().join("a"),
        };
        let mut slot = Slot {
            format: Slot::FORMAT,
            container: ContainerId::random(&SeededRandom::new(1)),
            keeper_boot: "k".into(),
            host_boot: host_boot().unwrap(),
            shape: Shape {
                image: ImageDigest::from_bytes([1; 32]),
                resources: Resources { vcpus: 1, memory_mib: 64, disk_mib: 64, pids: 100 },
                platform: Platform::Ptrace,
                mode: NetworkMode::None,
            },
            lease: None,
            process: None,
            claim: None,
            ending: false,
            programs: None,
            blank: false,
            saving: None,
            held: false,
            restored: None,
        };
        slot.store(&paths).unwrap();
        slot.process = Some(ProcessMark { pid: 5, started: 6 });
        slot.store(&paths).unwrap();
        assert_eq!(Slot::load(&paths).unwrap(), slot);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
