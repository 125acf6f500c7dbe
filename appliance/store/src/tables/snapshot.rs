//! Snapshots.

use std::collections::BTreeMap;

use sandboxo_model::{SnapshotBuild, SnapshotKind, SnapshotRecord};
use sandboxo_zone_protocol::{
    BuildId, CheckpointId, ImageDigest, SandboxId, TeamId, TemplateId, Timestamp,
};
use serde::{Deserialize, Serialize};

use super::{
    Plain, Record,
    sandbox::{KeptRow, MountRow, NetworkModeRow, PlatformRow, ResourcesRow, mounts},
};
use crate::{DecodeError, codec, schema::Table};

#[derive(Serialize, Deserialize)]
struct RowV1 {
    id: TemplateId,
    team: TeamId,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    built: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    public: bool,
    name: Option<String>,
    builds: BTreeMap<String, BuildRow>,
    created_at: Timestamp,
}

#[derive(Serialize, Deserialize)]
struct BuildRow {
    id: BuildId,
    at: Timestamp,
    sandbox: SandboxId,
    checkpoint: CheckpointId,
    kept: KeptRow,
    image: ImageDigest,
    resources: ResourcesRow,
    #[serde(default, skip_serializing_if = "PlatformRow::is_default")]
    platform: PlatformRow,
    network_mode: NetworkModeRow,
    env: BTreeMap<String, String>,
    user: String,
    workdir: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    volumes: Vec<MountRow>,
}

impl Plain for SnapshotRecord {}

impl Record for SnapshotRecord {
    type Id = TemplateId;
    const TABLE: Table = Table::Snapshots;

    fn key(id: &TemplateId) -> Vec<u8> {
        id.to_string().into()
    }

    fn id(&self) -> TemplateId {
        self.id
    }

    fn encode(&self) -> Vec<u8> {
        let Self { id, kind, team, public, name, builds, created_at } = self.clone();
        let row = RowV1 {
            id,
            team,
            built: kind == SnapshotKind::Built,
            public,
            name: name.map(|name| name.to_string()),
            builds: builds.into_iter().map(|(tag, build)| (tag, build.into())).collect(),
            created_at,
        };
        codec::encode(1, &row)
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let RowV1 { id, team, built, public, name, builds, created_at } =
            codec::decode_only(1, bytes)?;
        let parse = |name: String| {
            name.parse().map_err(|_bad| DecodeError::Value(format!("name {name:?}")))
        };
        Ok(Self {
            id,
            kind: if built { SnapshotKind::Built } else { SnapshotKind::Taken },
            team,
            public,
            name: name.map(parse).transpose()?,
            builds: builds
                .into_iter()
                .map(|(tag, build)| Ok((tag, build.try_into()?)))
                .collect::<Result<_, DecodeError>>()?,
            created_at,
        })
    }
}

impl From<SnapshotBuild> for BuildRow {
    fn from(build: SnapshotBuild) -> Self {
        let SnapshotBuild {
            id,
            at,
            sandbox,
            checkpoint,
            kept,
            image,
            resources,
            platform,
            mode,
            env,
            user,
            workdir,
            volumes,
        } = build;
        Self {
            id,
            at,
            sandbox,
            checkpoint,
            kept: kept.into(),
            image,
            resources: resources.into(),
            platform: platform.into(),
            network_mode: mode.into(),
            env,
            user,
            workdir,
            volumes: volumes.into_iter().map(MountRow::from).collect(),
        }
    }
}

impl TryFrom<BuildRow> for SnapshotBuild {
    type Error = DecodeError;

    fn try_from(row: BuildRow) -> Result<Self, DecodeError> {
        let BuildRow {
            id,
            at,
            sandbox,
            checkpoint,
            kept,
            image,
            resources,
            platform,
            network_mode,
            env,
            user,
            workdir,
            volumes,
        } = row;
        Ok(Self {
            id,
            at,
            sandbox,
            checkpoint,
            kept: kept.into(),
            image,
            resources: resources.into(),
            platform: platform.into(),
            mode: network_mode.into(),
            env,
            user,
            workdir,
            volumes: mounts(volumes)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use sandboxo_zone_protocol::{Kept, NetworkMode, Platform};

    use super::*;
    use crate::tables::golden;

    fn build() -> SnapshotBuild {
        SnapshotBuild {
            id: "0c9a6f6e-51a7-4b0e-9f7f-0f8b2f0c7a11".parse().unwrap(),
            at: golden::time(),
            sandbox: golden::sandbox(),
            checkpoint: "0123456789abcdefghjm".parse().unwrap(),
            kept: Kept::Memory,
            image: ImageDigest::from_bytes([0xcd; 32]),
            resources: sandboxo_model::resources::DEFAULT,
            platform: Platform::Ptrace,
            mode: NetworkMode::Full,
            env: [("A".into(), "b".into())].into(),
            user: "user".into(),
            workdir: None,
            volumes: vec![],
        }
    }

    fn record() -> SnapshotRecord {
        SnapshotRecord {
            id: golden::template(),
            kind: SnapshotKind::Taken,
            team: golden::team(),
            public: false,
            name: Some("snap".parse().unwrap()),
            builds: [("default".into(), build())].into(),
            created_at: golden::time(),
        }
    }

    #[test]
    fn format_1() {
        golden::check(
            &record(),
            b"\x01{\"id\":\"0123456789abcdefghjk\",\
              \"team\":\"8b1f5d3e-0c5f-4d6e-9f57-0d3a6a1c2b4d\",\"name\":\"snap\",\
              \"builds\":{\"default\":{\"id\":\"0c9a6f6e-51a7-4b0e-9f7f-0f8b2f0c7a11\",\
              \"at\":\"2026-01-02T03:04:05.678901234Z\",\
              \"sandbox\":\"sbx_loc_0123456789abcdefgk7q\",\
              \"checkpoint\":\"0123456789abcdefghjm\",\"kept\":\"memory\",\
              \"image\":\"cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd\",\
              \"resources\":{\"vcpus\":2,\"memory_mib\":512,\"disk_mib\":10240,\"pids\":8192},\
              \"network_mode\":\"full\",\"env\":{\"A\":\"b\"},\
              \"user\":\"user\",\"workdir\":null}},\
              \"created_at\":\"2026-01-02T03:04:05.678901234Z\"}",
        );
    }

    #[test]
    fn the_rest_of_format_1() {
        let other = SnapshotBuild {
            kept: Kept::Files,
            platform: Platform::Systrap,
            mode: NetworkMode::None,
            workdir: Some("/code".into()),
            volumes: vec![golden::mount()],
            ..build()
        };
        let record = SnapshotRecord {
            kind: SnapshotKind::Built,
            public: true,
            name: None,
            builds: [("default".into(), build()), ("v1".into(), other)].into(),
            ..record()
        };
        assert_eq!(SnapshotRecord::decode(&record.encode()).unwrap(), record);
    }
}
