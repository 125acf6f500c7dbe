//! Sandboxes: the live ones in one table, the dead ones in another with an index by their end, so
//! that a start reads only what lives.

mod identity;
mod network;
mod phase;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use ipnet::IpNet;
use sandboxo_model::{Identity, Ingress, NetworkAsked, Phase, SandboxRecord, TemplateUse};
use sandboxo_zone_protocol::{
    CheckpointId, EgressProxy, HostName, ImageDigest, Kept, NamePattern, NetworkMode,
    NetworkPolicy, OnDeadline, Origin, Platform, Resources, SandboxId, SandboxSpec, Secret,
    SetHeader, TeamId, TemplateId, Timestamp, VolumeId, VolumeMount, ZoneName,
};
use serde::{Deserialize, Serialize};

use self::{
    identity::IdentityRow,
    network::{NetworkRow, ProxyRow},
    phase::PhaseRow,
};
use super::{Record, decode, due, time_key};
use crate::{DecodeError, StoreError, WriteTx, codec, overlay::Source, schema::Table};

const FIRST: u8 = 1;
/// The same with a proxy or with ports of TLS. A program that knows none must not take the record
/// for one without, and let the sandbox's connections out directly.
const LATER: u8 = 2;
/// The same with an identity, whose tokens would be lost on a program that knows none.
const WITH_IDENTITY: u8 = 3;

#[derive(Serialize, Deserialize)]
struct Row {
    id: SandboxId,
    team: TeamId,
    template: TemplateId,
    alias: Option<String>,
    zone: ZoneName,
    image: ImageDigest,
    resources: ResourcesRow,
    #[serde(default, skip_serializing_if = "PlatformRow::is_default")]
    platform: PlatformRow,
    env: BTreeMap<String, String>,
    hostname: String,
    user: String,
    workdir: Option<String>,
    network_mode: NetworkModeRow,
    allow: Vec<IpNet>,
    deny: Vec<IpNet>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    names: Vec<NamePattern>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<HostName, Vec<SetHeader>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    proxy: Option<ProxyRow>,
    agent_token: Option<Secret>,
    deadline: Timestamp,
    /// `None`: it is killed then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pause_at_deadline: Option<KeptRow>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin: Option<OriginRow>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    volumes: Vec<MountRow>,
    timeout: Duration,
    metadata: BTreeMap<String, String>,
    internet: Option<bool>,
    network: Option<NetworkRow>,
    mask_request_host: Option<String>,
    traffic_token: Option<Secret>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    https_ports: BTreeSet<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    identity: Option<IdentityRow>,
    #[serde(default, skip_serializing_if = "is_false")]
    auto_resume: bool,
    created_at: Timestamp,
    phase: PhaseRow,
}

impl Row {
    fn format(&self) -> u8 {
        if self.identity.is_some() {
            WITH_IDENTITY
        } else if self.proxy.is_some() || !self.https_ports.is_empty() {
            LATER
        } else {
            FIRST
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls it with")]
fn is_false(flag: &bool) -> bool {
    !flag
}

#[derive(Serialize, Deserialize)]
pub(super) struct MountRow {
    volume: VolumeId,
    name: String,
    path: String,
}

impl From<VolumeMount> for MountRow {
    fn from(VolumeMount { volume, name, path }: VolumeMount) -> Self {
        Self { volume, name, path: path.into() }
    }
}

pub(super) fn mounts(rows: Vec<MountRow>) -> Result<Vec<VolumeMount>, DecodeError> {
    let mount = |MountRow { volume, name, path }: MountRow| {
        let path = path.parse().map_err(|_bad| DecodeError::Value(format!("path {path:?}")))?;
        Ok(VolumeMount { volume, name, path })
    };
    rows.into_iter().map(mount).collect()
}

#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) struct ResourcesRow {
    vcpus: u32,
    memory_mib: u32,
    disk_mib: u32,
    pids: u32,
}

#[derive(Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PlatformRow {
    #[default]
    Ptrace,
    Systrap,
}

impl PlatformRow {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls it with")]
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum KeptRow {
    Memory,
    Files,
}

/// A checkpoint.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct OriginRow {
    checkpoint: CheckpointId,
    reboot: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum NetworkModeRow {
    Full,
    None,
}

impl Record for SandboxRecord {
    type Id = SandboxId;
    const TABLE: Table = Table::Sandboxes;

    fn key(id: &SandboxId) -> Vec<u8> {
        id.to_string().into()
    }

    fn id(&self) -> SandboxId {
        self.id
    }

    fn encode(&self) -> Vec<u8> {
        let Self {
            id,
            team,
            template: TemplateUse { id: template, alias },
            zone,
            spec:
                SandboxSpec {
                    id: _,
                    image,
                    resources,
                    platform,
                    env,
                    hostname,
                    user,
                    workdir,
                    network: NetworkPolicy { mode, allow, deny, names, headers, proxy },
                    agent_token,
                    deadline,
                    on_deadline,
                    origin,
                    volumes,
                },
            timeout,
            metadata,
            internet,
            network,
            ingress: Ingress { mask_request_host, traffic_token, https_ports },
            identity,
            auto_resume,
            created_at,
            phase,
        } = self.clone();
        let row = Row {
            id,
            team,
            template,
            alias,
            zone,
            image,
            resources: resources.into(),
            platform: platform.into(),
            env,
            hostname,
            user,
            workdir,
            network_mode: mode.into(),
            allow,
            deny,
            names,
            headers,
            proxy: proxy.map(ProxyRow::from),
            agent_token,
            deadline,
            pause_at_deadline: match on_deadline {
                OnDeadline::Kill => None,
                OnDeadline::Pause(kept) => Some(kept.into()),
            },
            origin: match origin {
                Origin::Image => None,
                Origin::Checkpoint { id: checkpoint, reboot } => {
                    Some(OriginRow { checkpoint, reboot })
                }
            },
            volumes: volumes.into_iter().map(MountRow::from).collect(),
            timeout,
            metadata,
            internet,
            network: network.map(NetworkRow::from),
            mask_request_host,
            traffic_token,
            https_ports,
            identity: identity.as_ref().map(IdentityRow::from),
            auto_resume,
            created_at,
            phase: phase.into(),
        };
        codec::encode(row.format(), &row)
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let Row {
            id,
            team,
            template,
            alias,
            zone,
            image,
            resources,
            platform,
            env,
            hostname,
            user,
            workdir,
            network_mode,
            allow,
            deny,
            names,
            headers,
            proxy,
            agent_token,
            deadline,
            pause_at_deadline,
            origin,
            volumes,
            timeout,
            metadata,
            internet,
            network,
            mask_request_host,
            traffic_token,
            https_ports,
            identity,
            auto_resume,
            created_at,
            phase,
        } = match codec::split(bytes)? {
            (FIRST | LATER | WITH_IDENTITY, json) => serde_json::from_slice(json)?,
            (other, _) => return Err(DecodeError::Format(other)),
        };
        let mode = network_mode.into();
        Ok(Self {
            id,
            team,
            template: TemplateUse { id: template, alias },
            zone,
            spec: SandboxSpec {
                id,
                image,
                resources: resources.into(),
                platform: platform.into(),
                env,
                hostname,
                user,
                workdir,
                network: NetworkPolicy {
                    mode,
                    allow,
                    deny,
                    names,
                    headers,
                    proxy: proxy.map(EgressProxy::from),
                },
                agent_token,
                deadline,
                on_deadline: pause_at_deadline
                    .map_or(OnDeadline::Kill, |kept| OnDeadline::Pause(kept.into())),
                origin: origin.map_or(Origin::Image, |row| Origin::Checkpoint {
                    id: row.checkpoint,
                    reboot: row.reboot,
                }),
                volumes: mounts(volumes)?,
            },
            timeout,
            metadata,
            internet,
            network: network.map(NetworkAsked::from),
            ingress: Ingress { mask_request_host, traffic_token, https_ports },
            identity: identity.map(Identity::try_from).transpose()?,
            auto_resume,
            created_at,
            phase: phase.into(),
        })
    }
}

impl WriteTx<'_> {
    /// A dead one moves to the dead.
    pub fn put_sandbox(&mut self, record: &SandboxRecord) {
        let key = SandboxRecord::key(&record.id);
        match record.phase {
            Phase::Dead { at, .. } => {
                self.overlay().remove(Table::Sandboxes, key.clone());
                self.overlay().put(Table::EndedByTime, time_key(at, &key), vec![]);
                self.overlay().put(Table::EndedSandboxes, key, record.encode());
            }
            Phase::Starting { .. }
            | Phase::Running { .. }
            | Phase::Pausing { .. }
            | Phase::Paused { .. }
            | Phase::Resuming { .. }
            | Phase::Killing { .. } => {
                self.overlay().put(Table::Sandboxes, key, record.encode());
            }
        }
    }

    /// Removes up to `limit` that died before `before`, and says how many.
    pub fn collect_ended(&mut self, before: Timestamp, limit: usize) -> Result<usize, StoreError> {
        let due = due(self.overlay(), Table::EndedByTime, before, limit)?;
        for (key, index) in &due {
            self.overlay().remove(Table::EndedSandboxes, key.clone());
            self.overlay().remove(Table::EndedByTime, index.clone());
        }
        Ok(due.len())
    }
}

pub(crate) fn find(
    source: &mut dyn Source,
    id: SandboxId,
) -> Result<Option<SandboxRecord>, StoreError> {
    let key = SandboxRecord::key(&id);
    for table in [Table::Sandboxes, Table::EndedSandboxes] {
        if let Some(value) = source.get(table, &key)? {
            return decode(table, &key, &value).map(Some);
        }
    }
    Ok(None)
}

impl From<Resources> for ResourcesRow {
    fn from(resources: Resources) -> Self {
        let Resources { vcpus, memory_mib, disk_mib, pids } = resources;
        Self { vcpus, memory_mib, disk_mib, pids }
    }
}

impl From<ResourcesRow> for Resources {
    fn from(row: ResourcesRow) -> Self {
        let ResourcesRow { vcpus, memory_mib, disk_mib, pids } = row;
        Self { vcpus, memory_mib, disk_mib, pids }
    }
}

impl From<Kept> for KeptRow {
    fn from(kept: Kept) -> Self {
        match kept {
            Kept::Memory => Self::Memory,
            Kept::Files => Self::Files,
        }
    }
}

impl From<KeptRow> for Kept {
    fn from(row: KeptRow) -> Self {
        match row {
            KeptRow::Memory => Self::Memory,
            KeptRow::Files => Self::Files,
        }
    }
}

impl From<NetworkMode> for NetworkModeRow {
    fn from(mode: NetworkMode) -> Self {
        match mode {
            NetworkMode::Full => Self::Full,
            NetworkMode::None => Self::None,
        }
    }
}

impl From<NetworkModeRow> for NetworkMode {
    fn from(row: NetworkModeRow) -> Self {
        match row {
            NetworkModeRow::Full => Self::Full,
            NetworkModeRow::None => Self::None,
        }
    }
}

impl From<Platform> for PlatformRow {
    fn from(platform: Platform) -> Self {
        match platform {
            Platform::Ptrace => Self::Ptrace,
            Platform::Systrap => Self::Systrap,
        }
    }
}

impl From<PlatformRow> for Platform {
    fn from(row: PlatformRow) -> Self {
        match row {
            PlatformRow::Ptrace => Self::Ptrace,
            PlatformRow::Systrap => Self::Systrap,
        }
    }
}

#[cfg(test)]
mod tests;
