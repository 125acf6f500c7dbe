//! Templates.

use std::collections::{BTreeMap, BTreeSet};

use sandboxo_model::TemplateRecord;
use sandboxo_zone_protocol::{BuildId, ImageDigest, TeamId, TemplateId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{
    Plain, Record,
    sandbox::{PlatformRow, ResourcesRow},
};
use crate::{DecodeError, codec, schema::Table};

#[derive(Serialize, Deserialize)]
struct RowV1 {
    id: TemplateId,
    team: TeamId,
    name: String,
    public: bool,
    image: ImageDigest,
    image_bytes: u64,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    image_names: BTreeSet<String>,
    build: BuildId,
    resources: ResourcesRow,
    #[serde(default, skip_serializing_if = "PlatformRow::is_default")]
    platform: PlatformRow,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    env: BTreeMap<String, String>,
    user: String,
    workdir: Option<String>,
    created_at: Timestamp,
    updated_at: Timestamp,
}

impl Plain for TemplateRecord {}

impl Record for TemplateRecord {
    type Id = TemplateId;
    const TABLE: Table = Table::Templates;

    fn key(id: &TemplateId) -> Vec<u8> {
        id.to_string().into()
    }

    fn id(&self) -> TemplateId {
        self.id
    }

    fn encode(&self) -> Vec<u8> {
        let Self {
            id,
            team,
            name,
            public,
            image,
            image_bytes,
            image_names,
            build,
            resources,
            platform,
            env,
            user,
            workdir,
            created_at,
            updated_at,
        } = self.clone();
        let row = RowV1 {
            id,
            team,
            name: name.to_string(),
            public,
            image,
            image_bytes,
            image_names: image_names.iter().map(ToString::to_string).collect(),
            build,
            resources: resources.into(),
            platform: platform.into(),
            env,
            user,
            workdir,
            created_at,
            updated_at,
        };
        codec::encode(1, &row)
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let RowV1 {
            id,
            team,
            name,
            public,
            image,
            image_bytes,
            image_names,
            build,
            resources,
            platform,
            env,
            user,
            workdir,
            created_at,
            updated_at,
        } = codec::decode_only(1, bytes)?;
        let name = name.parse().map_err(|_bad| DecodeError::Value(format!("name {name:?}")))?;
        let parse = |name: String| {
            name.parse().map_err(|_bad| DecodeError::Value(format!("image {name:?}")))
        };
        let image_names = image_names.into_iter().map(parse).collect::<Result<_, _>>()?;
        Ok(Self {
            id,
            team,
            name,
            public,
            image,
            image_bytes,
            image_names,
            build,
            resources: resources.into(),
            platform: platform.into(),
            env,
            user,
            workdir,
            created_at,
            updated_at,
        })
    }
}

#[cfg(test)]
mod tests {
    use sandboxo_zone_protocol::Platform;

    use super::*;
    use crate::tables::golden;

    fn base() -> TemplateRecord {
        TemplateRecord {
            id: golden::template(),
            team: golden::team(),
            name: "base".parse().unwrap(),
            public: true,
            image: ImageDigest::from_bytes([0xcd; 32]),
            image_bytes: 400_000_000,
            image_names: BTreeSet::new(),
            build: "0c9a6f6e-51a7-4b0e-9f7f-0f8b2f0c7a11".parse().unwrap(),
            resources: sandboxo_model::resources::DEFAULT,
            platform: Platform::Ptrace,
            env: BTreeMap::new(),
            user: "user".into(),
            workdir: None,
            created_at: golden::time(),
            updated_at: golden::time(),
        }
    }

    #[test]
    fn format_1() {
        golden::check(
            &base(),
            b"\x01{\"id\":\"0123456789abcdefghjk\",\
              \"team\":\"8b1f5d3e-0c5f-4d6e-9f57-0d3a6a1c2b4d\",\"name\":\"base\",\
              \"public\":true,\
              \"image\":\"cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd\",\
              \"image_bytes\":400000000,\"build\":\"0c9a6f6e-51a7-4b0e-9f7f-0f8b2f0c7a11\",\
              \"resources\":{\"vcpus\":2,\"memory_mib\":512,\"disk_mib\":10240,\"pids\":8192},\
              \"user\":\"user\",\"workdir\":null,\
              \"created_at\":\"2026-01-02T03:04:05.678901234Z\",\
              \"updated_at\":\"2026-01-02T03:04:05.678901234Z\"}",
        );
    }

    /// A record that says it; those that don't are above.
    #[test]
    fn format_1_with_what_not_every_template_has() {
        let key = br#""pids":8192},"platform":"systrap","env":{"A":"b"},"user""#;
        let image_names = ["ubuntu:22.04".parse().unwrap()].into();
        let env = [("A".to_owned(), "b".to_owned())].into();
        let record = TemplateRecord { platform: Platform::Systrap, image_names, env, ..base() };
        let bytes = record.encode();
        assert!(bytes.windows(key.len()).any(|window| window == key));
        assert_eq!(TemplateRecord::decode(&bytes).unwrap(), record);
    }
}
