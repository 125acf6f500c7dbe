//! What a zone is asked to run. The record keeps the exact spec, so that any control process can
//! deliver it again.

use std::collections::BTreeMap;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::{ImageDigest, SandboxId, Secret, Timestamp};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxSpec {
    pub id: SandboxId,
    pub image: ImageDigest,
    pub resources: Resources,
    #[serde(default, skip_serializing_if = "Platform::is_default")]
    pub platform: Platform,
    /// Sandbox-wide variables, below each command's own.
    pub env: BTreeMap<String, String>,
    pub hostname: String,
    pub user: String,
    /// `None`: the user's home.
    pub workdir: Option<String>,
    pub network: NetworkPolicy,
    /// The agent asks it of every request that changes or reads anything.
    pub agent_token: Option<Secret>,
    /// The zone ends the sandbox then, also while nobody is connected to the zone.
    pub deadline: Timestamp,
}

impl SandboxSpec {
    pub fn shape(&self) -> Shape {
        Shape {
            image: self.image,
            resources: self.resources,
            platform: self.platform,
            mode: self.network.mode,
        }
    }
}

/// What a sandbox is from its start, whoever it becomes: all of it is fixed once runsc runs. One
/// that waits can be given to whoever asks for the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Shape {
    pub image: ImageDigest,
    pub resources: Resources,
    #[serde(default, skip_serializing_if = "Platform::is_default")]
    pub platform: Platform,
    pub mode: NetworkMode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Resources {
    pub vcpus: u32,
    pub memory_mib: u32,
    /// How much the private layer may hold.
    pub disk_mib: u32,
    /// Processes and threads in the guest.
    pub pids: u32,
}

/// How gVisor catches the guest's system calls.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Platform {
    /// Starts programs three times as fast as the other, and costs nothing while idle.
    #[default]
    Ptrace,
    /// System calls and files are three to ten times as fast; an idle sandbox costs 2 to 3 % of a
    /// core.
    Systrap,
}

impl Platform {
    pub fn name(self) -> &'static str {
        match self {
            Self::Ptrace => "ptrace",
            Self::Systrap => "systrap",
        }
    }

    /// Records that don't say it are of this one.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkMode {
    /// A veth into the zone's network.
    Full,
    /// Loopback only; ports are reached over the agent channel.
    None,
}

/// Allow beats deny, deny beats the default, which is to allow. Private, link-local, metadata,
/// host and sibling addresses are refused whatever stands here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkPolicy {
    pub mode: NetworkMode,
    pub allow: Vec<IpNet>,
    pub deny: Vec<IpNet>,
}

impl NetworkPolicy {
    pub const OPEN: Self = Self { mode: NetworkMode::Full, allow: Vec::new(), deny: Vec::new() };
}
