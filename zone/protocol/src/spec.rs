//! What a zone is asked to run. The record keeps the exact spec, so that any control process can
//! deliver it again.

use std::{collections::BTreeMap, net::Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Serialize};

use crate::{
    CheckpointId, EgressProxy, HostName, ImageDigest, NamePattern, SandboxId, Secret, Timestamp,
    VolumeMount,
};

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
    /// The zone ends or pauses the sandbox then, also while nobody is connected to the zone.
    pub deadline: Timestamp,
    #[serde(default, skip_serializing_if = "OnDeadline::is_default")]
    pub on_deadline: OnDeadline,
    #[serde(default, skip_serializing_if = "Origin::is_default")]
    pub origin: Origin,
    /// Of one that starts from a checkpoint: first those that were there, in the same order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeMount>,
}

/// What the zone does with a sandbox whose time is over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnDeadline {
    #[default]
    Kill,
    Pause(Kept),
}

impl OnDeadline {
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What a checkpoint keeps of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    /// Processes and files: what starts from it goes on.
    Memory,
    /// Files alone: what starts from it boots.
    Files,
}

/// What a sandbox starts from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    #[default]
    Image,
    /// The checkpoint is of the same image, platform and network mode. It stays.
    Checkpoint {
        id: CheckpointId,
        /// Only its files count, whatever it keeps.
        reboot: bool,
    },
}

impl Origin {
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
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

/// What is not the public internet (RFC 6890), and the metadata services with public addresses.
/// The networks for documentation are left alone: nobody routes them.
pub const REFUSED_ALWAYS: [Ipv4Net; 12] = [
    net(0, 0, 0, 0, 8),
    net(10, 0, 0, 0, 8),
    net(100, 64, 0, 0, 10),
    net(127, 0, 0, 0, 8),
    net(168, 63, 129, 16, 32),
    net(169, 254, 0, 0, 16),
    net(172, 16, 0, 0, 12),
    net(192, 0, 0, 0, 24),
    net(192, 88, 99, 0, 24),
    net(192, 168, 0, 0, 16),
    net(198, 18, 0, 0, 15),
    net(224, 0, 0, 0, 3),
];

const fn net(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

/// Allow beats deny, deny beats the default, which is to allow. Private, link-local, metadata,
/// host and sibling addresses are refused whatever stands here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkPolicy {
    pub mode: NetworkMode,
    pub allow: Vec<IpNet>,
    pub deny: Vec<IpNet>,
    /// Allowed as well, by HTTP and TLS on their own ports. Where there are any, DNS tells no
    /// other names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<NamePattern>,
    /// What requests to a host are given on their way, by HTTP and TLS on their own ports. Allows
    /// nothing.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<HostName, Vec<SetHeader>>,
    /// What is allowed leaves by it or not at all; UDP not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<EgressProxy>,
}

/// In place of all headers of that name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetHeader {
    pub name: String,
    pub value: Secret,
}

impl NetworkPolicy {
    pub const OPEN: Self = Self {
        mode: NetworkMode::Full,
        allow: Vec::new(),
        deny: Vec::new(),
        names: Vec::new(),
        headers: BTreeMap::new(),
        proxy: None,
    };

    /// Nothing is said about addresses or names.
    pub fn is_empty(&self) -> bool {
        let Self { mode: _, allow, deny, names, headers, proxy } = self;
        let says_nothing = allow.is_empty() && deny.is_empty() && names.is_empty();
        says_nothing && headers.is_empty() && proxy.is_none()
    }

    /// Whether somebody has to look at what connections say.
    pub fn is_by_name(&self) -> bool {
        self.mode == NetworkMode::Full && !(self.names.is_empty() && self.headers.is_empty())
    }

    /// Whether all connections leave by somebody else.
    pub fn is_tunneled(&self) -> bool {
        self.mode == NetworkMode::Full && self.proxy.is_some()
    }

    /// Whether any of its connections go through the zone's own proxy.
    pub fn is_attended(&self) -> bool {
        self.is_by_name() || self.is_tunneled()
    }
}
