//! Everything wired together.

use std::{sync::Arc, time::Duration};

use sandboxo_store::{Store, StoreError};
use sandboxo_tasks::Tasks;
use sandboxo_zone_protocol::{Clock, Random, Region, Zone};

use crate::{Keys, Sandboxes, Templates};

/// A cheap clone of one thing.
#[derive(Clone)]
pub struct Control {
    pub sandboxes: Sandboxes,
    pub templates: Templates,
    pub keys: Keys,
}

#[derive(Debug, Clone)]
pub struct ControlConfig {
    /// How long a zone may take for a create.
    pub create_budget: Duration,
    /// How long a caller waits for a zone to confirm a kill or new rules.
    pub zone_budget: Duration,
    /// How long a dead sandbox can still be looked at.
    pub keep_dead: Duration,
    /// How long a repeat of a create is recognized.
    pub keep_idempotency: Duration,
}

impl Default for ControlConfig {
    fn default() -> Self {
        Self {
            create_budget: Duration::from_secs(30),
            zone_budget: Duration::from_secs(10),
            keep_dead: Duration::from_hours(24),
            keep_idempotency: Duration::from_hours(24),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the zone is recorded in region {recorded}, and says it is in {told}")]
    RegionChanged { recorded: Region, told: Region },
    #[error("read the records")]
    Store(#[from] StoreError),
}

impl Control {
    /// Returns once the zone and the records agree; a zone that does not answer is asked again in
    /// the background.
    pub async fn start(
        config: ControlConfig,
        store: Store,
        zone: Arc<dyn Zone>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        tasks: Tasks,
    ) -> Result<Self, StartError> {
        todo!()
    }
}
