//! API keys.

use sandboxo_model::{ApiKeyRecord, KeyMask};
use sandboxo_zone_protocol::{ApiKeyId, TeamId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Plain, Record, hex};
use crate::{DecodeError, codec, schema::Table};

#[derive(Serialize, Deserialize)]
struct RowV1 {
    id: ApiKeyId,
    team: TeamId,
    name: String,
    hash: String,
    prefix: String,
    value_length: u32,
    first: String,
    last: String,
    created_at: Timestamp,
}

impl Plain for ApiKeyRecord {}

impl Record for ApiKeyRecord {
    type Id = ApiKeyId;
    const TABLE: Table = Table::ApiKeys;

    fn key(id: &ApiKeyId) -> Vec<u8> {
        id.to_string().into()
    }

    fn id(&self) -> ApiKeyId {
        self.id
    }

    fn encode(&self) -> Vec<u8> {
        let Self { id, team, name, hash, mask, created_at } = self.clone();
        let KeyMask { prefix, value_length, first, last } = mask;
        let hash = hex::print(&hash);
        codec::encode(
            1,
            &RowV1 { id, team, name, hash, prefix, value_length, first, last, created_at },
        )
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let RowV1 { id, team, name, hash, prefix, value_length, first, last, created_at } =
            codec::decode_only(1, bytes)?;
        let mask = KeyMask { prefix, value_length, first, last };
        Ok(Self { id, team, name, hash: hex::parse(&hash)?, mask, created_at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::golden;

    #[test]
    fn format_1() {
        let record = ApiKeyRecord {
            id: "5f0c2a7e-9d1b-4c3a-8e6f-7a9b0c1d2e3f".parse().unwrap(),
            team: golden::team(),
            name: "first".into(),
            hash: [0xab; 32],
            mask: KeyMask::of("0123456789abcdef0123456789abcdef01234567"),
            created_at: golden::time(),
        };
        golden::check(
            &record,
            b"\x01{\"id\":\"5f0c2a7e-9d1b-4c3a-8e6f-7a9b0c1d2e3f\",\
              \"team\":\"8b1f5d3e-0c5f-4d6e-9f57-0d3a6a1c2b4d\",\"name\":\"first\",\
              \"hash\":\"abababababababababababababababababababababababababababababababab\",\
              \"prefix\":\"e2b_\",\"value_length\":40,\"first\":\"0123\",\"last\":\"4567\",\
              \"created_at\":\"2026-01-02T03:04:05.678901234Z\"}",
        );
    }
}
