//! Zones.

use sandboxo_model::ZoneRecord;
use sandboxo_zone_protocol::{Region, ZoneCode, ZoneName};
use serde::{Deserialize, Serialize};

use super::{Plain, Record};
use crate::{DecodeError, codec, schema::Table};

#[derive(Serialize, Deserialize)]
struct RowV1 {
    name: ZoneName,
    region: Region,
    code: ZoneCode,
    boot_id: Option<String>,
}

impl Plain for ZoneRecord {}

impl Record for ZoneRecord {
    type Id = ZoneName;
    const TABLE: Table = Table::Zones;

    fn key(id: &ZoneName) -> Vec<u8> {
        id.as_str().into()
    }

    fn id(&self) -> ZoneName {
        self.name.clone()
    }

    fn encode(&self) -> Vec<u8> {
        let Self { name, region, code, boot_id } = self.clone();
        codec::encode(1, &RowV1 { name, region, code, boot_id })
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let RowV1 { name, region, code, boot_id } = codec::decode_only(1, bytes)?;
        Ok(Self { name, region, code, boot_id })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::golden;

    #[test]
    fn format_1() {
        let record = ZoneRecord {
            name: "local1".parse().unwrap(),
            region: "loc".parse().unwrap(),
            code: "k7q".parse().unwrap(),
            boot_id: Some("b1".into()),
        };
        golden::check(
            &record,
            b"\x01{\"name\":\"local1\",\"region\":\"loc\",\"code\":\"k7q\",\"boot_id\":\"b1\"}",
        );
    }
}
