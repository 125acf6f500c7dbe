//! What every part of the zone needs of this host, made once at the start.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use sandboxo_egress::Authority;
use sandboxo_tasks::Tasks;
use sandboxo_zone_protocol::{Clock, Random, Shape};
use tokio::sync::Semaphore;

use crate::{
    cgroup::{Cgroups, HostThreads},
    checkpoint::Checkpoints,
    config::{Layout, Limits},
    disk::Disks,
    image::Images,
    janitor::Janitor,
    keeper::Keeper,
    machine::Processors,
    network::Network,
    programs::Programs,
    runsc::Runsc,
    slot::ProgramsRecord,
    volume::Volumes,
};

pub(crate) struct Host {
    pub(crate) layout: Layout,
    pub(crate) limits: Limits,
    pub(crate) start_timeout: Duration,
    /// `None`: sandboxes that nobody uses go on.
    pub(crate) freeze_after: Option<Duration>,
    pub(crate) runsc: Runsc,
    pub(crate) cgroups: Cgroups,
    pub(crate) disks: Disks,
    pub(crate) volumes: Volumes,
    pub(crate) images: Images,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) programs: Programs,
    pub(crate) network: Network,
    /// Signs for hosts whose requests are given headers.
    pub(crate) authority: Arc<Authority>,
    pub(crate) keeper: Keeper,
    pub(crate) threads: HostThreads,
    pub(crate) processors: Processors,
    /// The kernel's, of this boot.
    pub(crate) boot: String,
    pub(crate) janitor: Janitor,
    /// Starts at a time: more than the processors can do only makes all of them late.
    pub(crate) starts: Semaphore,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) tasks: Tasks,
}

impl Host {
    /// What a sandbox that is made now is made with.
    pub(crate) fn programs_now(&self) -> ProgramsRecord {
        ProgramsRecord { runsc: self.runsc.mark(), agent: self.programs.agent.clone() }
    }

    /// How many checkpoints of each shape blanks are good for.
    pub(crate) fn restorable(&self) -> BTreeMap<Shape, u32> {
        if !self.runsc.is_spoken() {
            return BTreeMap::new();
        }
        self.checkpoints.shapes(&self.programs_now())
    }

    /// Whether blanks are good for a checkpoint of these programs.
    pub(crate) fn restores_into_blanks(&self, programs: &ProgramsRecord) -> bool {
        self.runsc.is_spoken() && programs.is_same(&self.programs_now())
    }
}
