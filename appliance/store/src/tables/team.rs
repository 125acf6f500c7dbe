//! Teams.

use sandboxo_model::TeamRecord;
use sandboxo_zone_protocol::{TeamId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Plain, Record};
use crate::{DecodeError, codec, schema::Table};

#[derive(Serialize, Deserialize)]
struct RowV1 {
    id: TeamId,
    name: String,
    created_at: Timestamp,
}

impl Plain for TeamRecord {}

impl Record for TeamRecord {
    type Id = TeamId;
    const TABLE: Table = Table::Teams;

    fn key(id: &TeamId) -> Vec<u8> {
        id.to_string().into()
    }

    fn id(&self) -> TeamId {
        self.id
    }

    fn encode(&self) -> Vec<u8> {
        let Self { id, name, created_at } = self.clone();
        codec::encode(1, &RowV1 { id, name, created_at })
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let RowV1 { id, name, created_at } = codec::decode_only(1, bytes)?;
        Ok(Self { id, name, created_at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::golden;

    #[test]
    fn format_1() {
        let record =
            TeamRecord { id: golden::team(), name: "default".into(), created_at: golden::time() };
        golden::check(
            &record,
            b"\x01{\"id\":\"8b1f5d3e-0c5f-4d6e-9f57-0d3a6a1c2b4d\",\"name\":\"default\",\
              \"created_at\":\"2026-01-02T03:04:05.678901234Z\"}",
        );
    }
}
