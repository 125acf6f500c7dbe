//! Named moments between two steps whose order matters, at which a test ends the process as
//! `kill -9` does.
//!
//! Without the feature `armed` a point is nothing at all. `tests/crash` dies at each of them.
#![forbid(unsafe_code)]

#[cfg(feature = "armed")]
mod armed;

#[cfg(feature = "armed")]
pub use armed::obey;

macro_rules! points {
    ($($point:ident = $name:literal,)+) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Point { $($point,)+ }

        impl Point {
            pub const ALL: &'static [Self] = &[$(Self::$point,)+];

            /// What is going on, a dot, and what has just been done.
            pub fn name(self) -> &'static str {
                match self { $(Self::$point => $name,)+ }
            }
        }
    };
}

points! {
    StoreStaged = "store.staged",
    StoreCommitted = "store.committed",
    CreateCommitted = "create.committed",
    CreateDelivered = "create.delivered",
    CreatePublished = "create.published",
    CreateRecorded = "create.recorded",
    PoolTaken = "claim.taken",
    ClaimRecorded = "claim.recorded",
    ClaimRuled = "claim.ruled",
    ClaimTold = "claim.told",
    ClaimListed = "claim.listed",
    RefillSlotted = "refill.slotted",
    RefillLeased = "refill.leased",
    RefillNetworkRecorded = "refill.network-recorded",
    RefillGrouped = "refill.grouped",
    RefillMounted = "refill.mounted",
    RefillBundled = "refill.bundled",
    RefillSpawned = "refill.spawned",
    RefillStarted = "refill.started",
    RefillProcessRecorded = "refill.process-recorded",
    RefillGreeted = "refill.greeted",
    RefillAdded = "refill.added",
    LinkMade = "refill.link-made",
    LinkAdmitted = "refill.link-admitted",
    KillRecorded = "kill.recorded",
    KillConfirmed = "kill.confirmed",
    EndDecided = "kill.end-decided",
    EndWritten = "kill.end-written",
    EndMarked = "kill.slot-marked",
    EndSignalled = "kill.signalled",
    EndFinished = "kill.finished",
    EndTold = "kill.end-told",
    EndAcknowledged = "kill.acknowledged",
    RemoveProcesses = "kill.processes-gone",
    RemoveNetwork = "kill.network-gone",
    RemoveRunsc = "kill.runsc-forgotten",
    RemoveVolumes = "mount.detached",
    RemoveDisk = "kill.unmounted",
    RemoveGroup = "kill.cgroup-gone",
    RemoveSlot = "kill.slot-gone",
    TimeoutRecorded = "timeout.recorded",
    TimeoutWritten = "timeout.written",
    TimeoutDue = "timeout.due",
    FreezeFrozen = "freeze.frozen",
    FreezeWaking = "freeze.waking",
    CheckpointBegun = "pause.begun",
    CheckpointMarked = "pause.slot-marked",
    CheckpointSaved = "pause.saved",
    CheckpointWritten = "pause.written",
    CheckpointRenamed = "pause.renamed",
    PauseTold = "pause.told",
    BlankTaken = "resume.blank-taken",
    BlankFilled = "resume.blank-filled",
    BlankGreeted = "resume.greeted",
    RestoreTold = "resume.agent-told",
    VolumeAttached = "mount.attached",
    VolumeHeld = "mount.held",
    VolumeRecorded = "volume.recorded",
    VolumeFormatted = "volume.formatted",
    VolumeFrozen = "volume.frozen",
    VolumeCopied = "volume.copied",
    VolumeMade = "volume.made",
    VolumeDoomed = "volume.doomed",
    VolumeUnmounted = "volume.unmounted",
    VolumeRemoved = "volume.removed",
    ImportUnpacked = "import.unpacked",
    ImportDescribed = "import.described",
    ImportRenamed = "import.renamed",
    ImportRecorded = "import.recorded",
    BuildBegun = "build.begun",
    BuildLayerSaved = "build.layer-saved",
    BuildMade = "build.made",
    AdoptPlanned = "restart.planned",
    AdoptTold = "restart.ends-told",
    AdoptTaken = "restart.taken-over",
    AdoptRemoved = "restart.removed",
    Reconciled = "restart.reconciled",
}

/// Nothing, unless the process was ordered to die here.
#[inline]
#[cfg_attr(not(feature = "armed"), expect(unused_variables, reason = "a release has no points"))]
pub fn crashpoint(point: Point) {
    #[cfg(feature = "armed")]
    armed::crashpoint(point);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_told_apart() {
        let names: BTreeSet<_> = Point::ALL.iter().map(|point| point.name()).collect();
        assert_eq!(names.len(), Point::ALL.len());
        assert!(names.iter().all(|name| name.split_once('.').is_some()), "{names:?}");
    }
}
