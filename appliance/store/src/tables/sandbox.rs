//! Sandboxes: the live ones in one table, the dead ones in another with an index by their end, so
//! that a start reads only what lives.

mod network;
mod phase;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use ipnet::IpNet;
use sandboxo_model::{Ingress, NetworkAsked, Phase, SandboxRecord, TemplateUse};
use sandboxo_zone_protocol::{
    CheckpointId, EgressProxy, HostName, ImageDigest, Kept, NamePattern, NetworkMode,
    NetworkPolicy, OnDeadline, Origin, Platform, Resources, SandboxId, SandboxSpec, Secret,
    SetHeader, TeamId, TemplateId, Timestamp, VolumeId, VolumeMount, ZoneName,
};
use serde::{Deserialize, Serialize};

use self::{
    network::{NetworkRow, ProxyRow},
    phase::PhaseRow,
};
use super::{Record, decode, due, time_key};
use crate::{DecodeError, StoreError, WriteTx, codec, overlay::Source, schema::Table};

const FIRST: u8 = 1;
/// The same with a proxy or with ports of TLS. A program that knows none must not take the record
/// for one without, and let the sandbox's connections out directly.
const LATER: u8 = 2;

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
    #[serde(default, skip_serializing_if = "is_false")]
    auto_resume: bool,
    created_at: Timestamp,
    phase: PhaseRow,
}

impl Row {
    fn says_later_things(&self) -> bool {
        self.proxy.is_some() || !self.https_ports.is_empty()
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
            auto_resume,
            created_at,
            phase: phase.into(),
        };
        codec::encode(if row.says_later_things() { LATER } else { FIRST }, &row)
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
            auto_resume,
            created_at,
            phase,
        } = match codec::split(bytes)? {
            (FIRST | LATER, json) => serde_json::from_slice(json)?,
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
mod tests {
    use sandboxo_model::{DeathReason, HostRule, KillCause, ProxyAsked, StartFailure};
    use sandboxo_zone_protocol::{EndReason, ProxyLogin, Sealed};

    use super::*;
    use crate::tables::golden;

    const HEAD: &str = r#"{"id":"sbx_loc_0123456789abcdefgk7q","team":"8b1f5d3e-0c5f-4d6e-9f57-0d3a6a1c2b4d","template":"0123456789abcdefghjk","alias":"base","zone":"local1","image":"cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd","resources":{"vcpus":2,"memory_mib":512,"disk_mib":10240,"pids":8192},"env":{"A":"a\"b"},"hostname":"sbx-loc-0123456789abcdefgk7q","user":"user","workdir":"/code","network_mode":"full","allow":["1.1.1.1/32"],"deny":["0.0.0.0/0","::/0"],"agent_token":"secret","deadline":"2026-01-02T03:04:05.678901234Z","timeout":{"secs":300,"nanos":0},"metadata":{"k":"v"},"internet":false,"network":{"allow_out":["1.1.1.1"],"deny_out":null,"allow_public_traffic":false,"mask_request_host":"localhost:${PORT}"},"mask_request_host":"localhost:${PORT}","traffic_token":"token","created_at":"2026-01-02T03:04:05.678901234Z","phase":"#;

    fn phases() -> Vec<(Phase, &'static str)> {
        let at = golden::time();
        let dead = |reason| Phase::Dead { at, reason, started_at: Some(at) };
        let unborn = |failure| Phase::Dead {
            at,
            reason: DeathReason::StartFailed(failure),
            started_at: None,
        };
        let ended = |reason| dead(DeathReason::Ended(reason));
        let killing =
            |cause| Phase::Killing { asked_at: at, cause, started_at: Some(at), checkpoint: None };
        let (started_at, paused_at, expires_at) = (at, at, at);
        let (checkpoint, kept) = ("0123456789abcdefghjk".parse().unwrap(), Kept::Memory);
        vec![
            (Phase::Starting { give_up_at: at }, r#"{"kind":"starting","give_up_at":T}"#),
            (
                Phase::Running { started_at: at, expires_at: at },
                r#"{"kind":"running","started_at":T,"expires_at":T}"#,
            ),
            (
                Phase::Pausing { started_at, expires_at, asked_at: at, kept: Kept::Files },
                r#"{"kind":"pausing","started_at":T,"expires_at":T,"asked_at":T,"kept":"files"}"#,
            ),
            (
                Phase::Paused { started_at, paused_at, checkpoint, kept },
                r#"{"kind":"paused","started_at":T,"paused_at":T,"checkpoint":"0123456789abcdefghjk","kept":"memory"}"#,
            ),
            (
                Phase::Resuming {
                    started_at,
                    paused_at,
                    checkpoint,
                    kept,
                    reboot: true,
                    expires_at,
                    give_up_at: at,
                },
                r#"{"kind":"resuming","started_at":T,"paused_at":T,"checkpoint":"0123456789abcdefghjk","kept":"memory","reboot":true,"expires_at":T,"give_up_at":T}"#,
            ),
            (
                Phase::Killing {
                    asked_at: at,
                    cause: KillCause::Asked,
                    started_at: Some(at),
                    checkpoint: Some(checkpoint),
                },
                r#"{"kind":"killing","asked_at":T,"cause":"asked","started_at":T,"checkpoint":"0123456789abcdefghjk"}"#,
            ),
            (
                dead(DeathReason::CheckpointLost),
                r#"{"kind":"dead","at":T,"reason":"checkpoint_lost","started_at":T}"#,
            ),
            (
                unborn(StartFailure::CheckpointLost),
                r#"{"kind":"dead","at":T,"reason":{"start_failed":"checkpoint_lost"},"started_at":null}"#,
            ),
            (
                unborn(StartFailure::CheckpointUnusable("x".into())),
                r#"{"kind":"dead","at":T,"reason":{"start_failed":{"checkpoint_unusable":"x"}},"started_at":null}"#,
            ),
            (
                killing(KillCause::Asked),
                r#"{"kind":"killing","asked_at":T,"cause":"asked","started_at":T}"#,
            ),
            (
                killing(KillCause::Expired),
                r#"{"kind":"killing","asked_at":T,"cause":"expired","started_at":T}"#,
            ),
            (
                killing(KillCause::StartFailed(StartFailure::TimedOut)),
                r#"{"kind":"killing","asked_at":T,"cause":{"start_failed":"timed_out"},"started_at":T}"#,
            ),
            (
                unborn(StartFailure::LimitReached { what: "sandboxes".into(), limit: 7 }),
                r#"{"kind":"dead","at":T,"reason":{"start_failed":{"limit_reached":{"what":"sandboxes","limit":7}}},"started_at":null}"#,
            ),
            (
                unborn(StartFailure::ImageNotFound),
                r#"{"kind":"dead","at":T,"reason":{"start_failed":"image_not_found"},"started_at":null}"#,
            ),
            (
                unborn(StartFailure::DiskFull),
                r#"{"kind":"dead","at":T,"reason":{"start_failed":"disk_full"},"started_at":null}"#,
            ),
            (
                unborn(StartFailure::Runtime),
                r#"{"kind":"dead","at":T,"reason":{"start_failed":"runtime"},"started_at":null}"#,
            ),
            (
                unborn(StartFailure::Unavailable),
                r#"{"kind":"dead","at":T,"reason":{"start_failed":"unavailable"},"started_at":null}"#,
            ),
            (
                ended(EndReason::Killed),
                r#"{"kind":"dead","at":T,"reason":"killed","started_at":T}"#,
            ),
            (
                ended(EndReason::TimedOut),
                r#"{"kind":"dead","at":T,"reason":"timed_out","started_at":T}"#,
            ),
            (
                ended(EndReason::OutOfMemory),
                r#"{"kind":"dead","at":T,"reason":"out_of_memory","started_at":T}"#,
            ),
            (
                ended(EndReason::Crashed),
                r#"{"kind":"dead","at":T,"reason":"crashed","started_at":T}"#,
            ),
            (
                ended(EndReason::AgentLost),
                r#"{"kind":"dead","at":T,"reason":"agent_lost","started_at":T}"#,
            ),
            (
                ended(EndReason::KeeperLost),
                r#"{"kind":"dead","at":T,"reason":"keeper_lost","started_at":T}"#,
            ),
            (
                ended(EndReason::ZoneRestarted),
                r#"{"kind":"dead","at":T,"reason":"zone_restarted","started_at":T}"#,
            ),
            (
                ended(EndReason::CheckpointFailed),
                r#"{"kind":"dead","at":T,"reason":"checkpoint_failed","started_at":T}"#,
            ),
            (
                dead(DeathReason::Missing),
                r#"{"kind":"dead","at":T,"reason":"missing","started_at":T}"#,
            ),
        ]
    }

    #[test]
    fn format_1() {
        for (phase, json) in phases() {
            let record = SandboxRecord { phase, ..golden::sandbox_record() };
            let json = json.replace(":T", ":\"2026-01-02T03:04:05.678901234Z\"");
            golden::check(&record, format!("\u{1}{HEAD}{json}}}").as_bytes());
        }
    }

    #[test]
    fn format_1_with_what_came_later() {
        let plain = golden::sandbox_record();
        let header = SetHeader { name: "x-key".into(), value: Secret::new("k") };
        let headers = Some([("X-Key".to_owned(), Secret::new("k"))].into());
        let rules = [("a.example.com".to_owned(), vec![HostRule { headers }])].into();
        let record = SandboxRecord {
            network: plain.network.clone().map(|it| NetworkAsked { rules: Some(rules), ..it }),
            spec: SandboxSpec {
                on_deadline: OnDeadline::Pause(Kept::Files),
                origin: Origin::Checkpoint {
                    id: "0123456789abcdefghjk".parse().unwrap(),
                    reboot: true,
                },
                network: NetworkPolicy {
                    names: vec!["*.example.com".parse().unwrap()],
                    headers: [("a.example.com".parse().unwrap(), vec![header])].into(),
                    ..plain.spec.network.clone()
                },
                volumes: vec![golden::mount()],
                ..plain.spec.clone()
            },
            auto_resume: true,
            ..plain
        };
        let time = "\"2026-01-02T03:04:05.678901234Z\"";
        let head = HEAD
            .replace(
                r#","timeout":"#,
                r#","pause_at_deadline":"files","origin":{"checkpoint":"0123456789abcdefghjk","reboot":true},"volumes":[{"volume":"vol_loc_0123456789abcdefgk7q","name":"my-data","path":"/data"}],"timeout":"#,
            )
            .replace(
                r#","agent_token":"#,
                r#","names":["*.example.com"],"headers":{"a.example.com":[{"name":"x-key","value":"k"}]},"agent_token":"#,
            )
            .replace(
                r#"},"mask_request_host":"#,
                r#","rules":{"a.example.com":[{"headers":{"X-Key":"k"}}]}},"mask_request_host":"#,
            )
            .replace(r#","created_at":"#, r#","auto_resume":true,"created_at":"#);
        let row = format!("\u{1}{head}{{\"kind\":\"starting\",\"give_up_at\":{time}}}}}");
        golden::check(&record, row.as_bytes());
    }

    #[test]
    fn format_2() {
        let plain = golden::sandbox_record();
        let login = ProxyLogin { username: "me".into(), password: Sealed::new("c2VhbGVk") };
        let address = "proxy.example.com:1080".parse().unwrap();
        let proxy = EgressProxy { address, login: Some(login) };
        let asked = ProxyAsked {
            address: "Proxy.example.com:1080".into(),
            username: Some("me".into()),
            password: None,
        };
        let record = SandboxRecord {
            network: plain.network.clone().map(|it| NetworkAsked {
                egress_proxy: Some(asked),
                https_ports: Some(vec![8443, 443]),
                dns_servers: Some(vec!["1.1.1.1".into()]),
                ..it
            }),
            spec: SandboxSpec {
                network: NetworkPolicy { proxy: Some(proxy), ..plain.spec.network.clone() },
                ..plain.spec.clone()
            },
            ingress: Ingress { https_ports: [443, 8443].into(), ..plain.ingress.clone() },
            ..plain
        };
        let time = "\"2026-01-02T03:04:05.678901234Z\"";
        let head = HEAD
            .replace(
                r#","agent_token":"#,
                r#","proxy":{"address":"proxy.example.com:1080","login":{"username":"me","password":"c2VhbGVk"}},"agent_token":"#,
            )
            .replace(
                r#"},"mask_request_host":"#,
                r#","egress_proxy":{"address":"Proxy.example.com:1080","username":"me"},"https_ports":[8443,443],"dns_servers":["1.1.1.1"]},"mask_request_host":"#,
            )
            .replace(r#","created_at":"#, r#","https_ports":[443,8443],"created_at":"#);
        let row = format!("\u{2}{head}{{\"kind\":\"starting\",\"give_up_at\":{time}}}}}");
        golden::check(&record, row.as_bytes());
    }

    /// Should one get here before it is sealed, it is lost and not recorded.
    #[test]
    fn a_password_that_is_not_sealed_is_never_written() {
        let mut record = golden::sandbox_record();
        let password = Some(Secret::new("hunter2"));
        let asked = ProxyAsked { address: "a:1".into(), username: None, password };
        record.network.as_mut().unwrap().egress_proxy = Some(asked);
        let written = record.encode();
        assert!(!String::from_utf8_lossy(&written).contains("hunter2"));
    }

    #[test]
    fn other_formats_and_torn_rows_are_refused() {
        let bytes = golden::sandbox_record().encode();
        let mut newer = bytes.clone();
        newer[0] = 3;
        assert!(matches!(SandboxRecord::decode(&newer), Err(DecodeError::Format(3))));
        assert!(matches!(SandboxRecord::decode(&[]), Err(DecodeError::Empty)));
        for end in 1..bytes.len() {
            assert!(SandboxRecord::decode(&bytes[..end]).is_err());
        }
    }
}
