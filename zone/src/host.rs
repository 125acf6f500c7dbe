//! What every part of the zone needs of this host, made once at the start.

use std::{sync::Arc, time::Duration};

use sandboxo_tasks::Tasks;
use sandboxo_zone_protocol::{Clock, Random};
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
};

pub(crate) struct Host {
    pub(crate) layout: Layout,
    pub(crate) limits: Limits,
    pub(crate) start_timeout: Duration,
    pub(crate) runsc: Runsc,
    pub(crate) cgroups: Cgroups,
    pub(crate) disks: Disks,
    pub(crate) images: Images,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) programs: Programs,
    pub(crate) network: Network,
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
