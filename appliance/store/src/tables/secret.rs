//! Secrets.

use std::collections::BTreeMap;

use sandboxo_model::SecretRecord;
use sandboxo_zone_protocol::{SecretId, TeamId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Plain, Record};
use crate::{DecodeError, codec, schema::Table};

#[derive(Serialize, Deserialize)]
struct RowV1 {
    id: SecretId,
    team: TeamId,
    name: String,
    version: u64,
    metadata: BTreeMap<String, String>,
    sealed: String,
    created_at: Timestamp,
    updated_at: Timestamp,
}

impl Plain for SecretRecord {}

impl Record for SecretRecord {
    type Id = SecretId;
    const TABLE: Table = Table::Secrets;

    fn key(id: &SecretId) -> Vec<u8> {
        id.to_string().into()
    }

    fn id(&self) -> SecretId {
        self.id
    }

    fn encode(&self) -> Vec<u8> {
        let Self { id, team, name, version, metadata, sealed, created_at, updated_at } =
            self.clone();
        let name = name.to_string();
        codec::encode(
            1,
            &RowV1 { id, team, name, version, metadata, sealed, created_at, updated_at },
        )
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let RowV1 { id, team, name, version, metadata, sealed, created_at, updated_at } =
            codec::decode_only(1, bytes)?;
        let name = name.parse().map_err(|_bad| DecodeError::Value(format!("name {name:?}")))?;
        Ok(Self { id, team, name, version, metadata, sealed, created_at, updated_at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::golden;

    #[test]
    fn format_1() {
        let record = SecretRecord {
            id: "sec_0123456789abcdefghjk".parse().unwrap(),
            team: golden::team(),
            name: "api-key".parse().unwrap(),
            version: 3,
            metadata: BTreeMap::from([("owner".to_owned(), "me".to_owned())]),
            sealed: "qwE=".into(),
            created_at: golden::time(),
            updated_at: golden::time(),
        };
        golden::check(
            &record,
            b"\x01{\"id\":\"sec_0123456789abcdefghjk\",\
              \"team\":\"8b1f5d3e-0c5f-4d6e-9f57-0d3a6a1c2b4d\",\"name\":\"api-key\",\
              \"version\":3,\"metadata\":{\"owner\":\"me\"},\"sealed\":\"qwE=\",\
              \"created_at\":\"2026-01-02T03:04:05.678901234Z\",\
              \"updated_at\":\"2026-01-02T03:04:05.678901234Z\"}",
        );
    }
}
