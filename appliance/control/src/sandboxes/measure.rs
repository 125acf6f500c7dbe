//! What was measured and logged of sandboxes, also of ended ones.

use std::{collections::BTreeMap, ops::RangeInclusive};

use sandboxo_model::{Direction, LogEntry, LogQuery, decide::thin::thin};
use sandboxo_spool::Owner;
use sandboxo_zone_protocol::{SandboxId, TeamId, Timestamp};

use crate::{
    HistoryError, Metrics, Sandboxes, Scope,
    notices::{BRIEFLY, gather},
};

/// Of one answer: nearly three hours in full.
const MOST_SAMPLES: usize = 2000;

impl Sandboxes {
    /// Oldest first; of a long time not every one. `None`: no such sandbox.
    pub async fn metrics(
        &self,
        scope: impl Into<Scope>,
        id: SandboxId,
        range: RangeInclusive<Timestamp>,
    ) -> Result<Option<Metrics>, HistoryError> {
        let Some(record) = self.find(scope, id).await? else { return Ok(None) };
        let owner = Owner { team: record.team, sandbox: id };
        let samples = thin(self.context.spool.samples(owner, range).await?, MOST_SAMPLES);
        Ok(Some(Metrics { vcpus: record.spec.resources.vcpus, samples }))
    }

    /// The last sample of each that has one.
    pub fn latest_metrics(
        &self,
        scope: impl Into<Scope>,
        ids: &[SandboxId],
    ) -> BTreeMap<SandboxId, Metrics> {
        let scope = scope.into();
        let latest = |id: &SandboxId| {
            let (live, record) = self.usable(scope, *id)?;
            let sample = live.samples.lock().last()?;
            Some((*id, Metrics { vcpus: record.spec.resources.vcpus, samples: vec![sample] }))
        };
        ids.iter().filter_map(latest).collect()
    }

    /// `None`: the team has no such sandbox, and nothing is left of one. Lines outlive the record.
    pub async fn logs(
        &self,
        team: TeamId,
        id: SandboxId,
        query: LogQuery,
    ) -> Result<Option<Vec<LogEntry>>, HistoryError> {
        let owner = Owner { team, sandbox: id };
        let spool = &self.context.spool;
        if let Some((live, _)) = self.usable(team.into(), id) {
            gather(&self.context, &live, BRIEFLY).await;
        }
        let found = spool.logs(owner, query).await?;
        if found.is_empty() && self.find(team, id).await?.is_none() {
            let any = LogQuery {
                from: None,
                direction: Direction::Forward,
                limit: 1,
                level: None,
                search: None,
            };
            if spool.logs(owner, any).await?.is_empty() {
                return Ok(None);
            }
        }
        Ok(Some(found))
    }
}
