//! Idempotency keys of creates, with an index by expiry.

use sandboxo_model::{IdempotencyKey, IdempotencyRecord};
use sandboxo_zone_protocol::{SandboxId, TeamId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Record, due, hex, parse_key, time_key};
use crate::{DecodeError, Read as _, StoreError, WriteTx, codec, schema::Table};

#[derive(Serialize, Deserialize)]
struct RowV1 {
    team: TeamId,
    key: String,
    fingerprint: String,
    sandbox: SandboxId,
    expires_at: Timestamp,
}

impl Record for IdempotencyRecord {
    type Id = (TeamId, IdempotencyKey);
    const TABLE: Table = Table::Idempotency;

    fn key((team, key): &Self::Id) -> Vec<u8> {
        format!("{team}/{key}").into()
    }

    fn id(&self) -> Self::Id {
        (self.team, self.key.clone())
    }

    fn encode(&self) -> Vec<u8> {
        let Self { team, key, fingerprint, sandbox, expires_at } = self.clone();
        let fingerprint = hex::print(&fingerprint);
        codec::encode(1, &RowV1 { team, key: key.to_string(), fingerprint, sandbox, expires_at })
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let RowV1 { team, key, fingerprint, sandbox, expires_at } = codec::decode_only(1, bytes)?;
        let key = key.parse().map_err(|_bad| DecodeError::Value(format!("key {key:?}")))?;
        Ok(Self { team, key, fingerprint: hex::parse(&fingerprint)?, sandbox, expires_at })
    }
}

impl WriteTx<'_> {
    pub fn put_idempotency(&mut self, record: &IdempotencyRecord) -> Result<(), StoreError> {
        let id = record.id();
        let key = IdempotencyRecord::key(&id);
        if let Some(before) = self.get::<IdempotencyRecord>(&id)? {
            self.overlay().remove(Table::IdempotencyByTime, time_key(before.expires_at, &key));
        }
        self.overlay().put(Table::IdempotencyByTime, time_key(record.expires_at, &key), vec![]);
        self.overlay().put(Table::Idempotency, key, record.encode());
        Ok(())
    }

    /// Removes up to `limit` that expired before `now`, and says how many.
    pub fn collect_idempotency(
        &mut self,
        now: Timestamp,
        limit: usize,
    ) -> Result<usize, StoreError> {
        let due = due(self.overlay(), Table::IdempotencyByTime, now, limit)?;
        for (key, index) in &due {
            self.overlay().remove(Table::Idempotency, key.clone());
            self.overlay().remove(Table::IdempotencyByTime, index.clone());
        }
        Ok(due.len())
    }
}

pub(crate) fn split(key: &[u8]) -> Result<(TeamId, String), DecodeError> {
    let text: String = parse_key(key)?;
    let (team, key) = text.split_once('/').ok_or(DecodeError::Key)?;
    Ok((parse_key(team.as_bytes())?, key.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::golden;

    #[test]
    fn format_1() {
        let record = IdempotencyRecord {
            team: golden::team(),
            key: "k-1".parse().unwrap(),
            fingerprint: [0x12; 32],
            sandbox: golden::sandbox(),
            expires_at: golden::time(),
        };
        golden::check(
            &record,
            b"\x01{\"team\":\"8b1f5d3e-0c5f-4d6e-9f57-0d3a6a1c2b4d\",\"key\":\"k-1\",\
              \"fingerprint\":\"1212121212121212121212121212121212121212121212121212121212121212\",\
              \"sandbox\":\"sbx_loc_0123456789abcdefgk7q\",\
              \"expires_at\":\"2026-01-02T03:04:05.678901234Z\"}",
        );
    }
}
