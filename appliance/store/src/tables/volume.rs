//! Volumes.

use sandboxo_model::{VolumePhase, VolumeRecord};
use sandboxo_zone_protocol::{TeamId, Timestamp, VolumeId, ZoneName};
use serde::{Deserialize, Serialize};

use super::{Plain, Record};
use crate::{DecodeError, codec, schema::Table};

#[derive(Serialize, Deserialize)]
struct RowV1 {
    id: VolumeId,
    team: TeamId,
    name: String,
    zone: ZoneName,
    size_mib: u32,
    created_at: Timestamp,
    phase: PhaseRow,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PhaseRow {
    Making,
    Ready,
    Doomed,
}

impl Plain for VolumeRecord {}

impl Record for VolumeRecord {
    type Id = VolumeId;
    const TABLE: Table = Table::Volumes;

    fn key(id: &VolumeId) -> Vec<u8> {
        id.to_string().into()
    }

    fn id(&self) -> VolumeId {
        self.id
    }

    fn encode(&self) -> Vec<u8> {
        let Self { id, team, name, zone, size_mib, created_at, phase } = self.clone();
        let (name, phase) = (name.to_string(), phase.into());
        codec::encode(1, &RowV1 { id, team, name, zone, size_mib, created_at, phase })
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let RowV1 { id, team, name, zone, size_mib, created_at, phase } =
            codec::decode_only(1, bytes)?;
        let name = name.parse().map_err(|_bad| DecodeError::Value(format!("name {name:?}")))?;
        Ok(Self { id, team, name, zone, size_mib, created_at, phase: phase.into() })
    }
}

impl From<VolumePhase> for PhaseRow {
    fn from(phase: VolumePhase) -> Self {
        match phase {
            VolumePhase::Making => Self::Making,
            VolumePhase::Ready => Self::Ready,
            VolumePhase::Doomed => Self::Doomed,
        }
    }
}

impl From<PhaseRow> for VolumePhase {
    fn from(row: PhaseRow) -> Self {
        match row {
            PhaseRow::Making => Self::Making,
            PhaseRow::Ready => Self::Ready,
            PhaseRow::Doomed => Self::Doomed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::golden;

    #[test]
    fn format_1() {
        let record = VolumeRecord {
            id: "vol_loc_0123456789abcdefgk7q".parse().unwrap(),
            team: golden::team(),
            name: "my-data".parse().unwrap(),
            zone: "local1".parse().unwrap(),
            size_mib: 1024,
            created_at: golden::time(),
            phase: VolumePhase::Ready,
        };
        golden::check(
            &record,
            b"\x01{\"id\":\"vol_loc_0123456789abcdefgk7q\",\
              \"team\":\"8b1f5d3e-0c5f-4d6e-9f57-0d3a6a1c2b4d\",\"name\":\"my-data\",\
              \"zone\":\"local1\",\"size_mib\":1024,\
              \"created_at\":\"2026-01-02T03:04:05.678901234Z\",\"phase\":\"ready\"}",
        );
    }
}
