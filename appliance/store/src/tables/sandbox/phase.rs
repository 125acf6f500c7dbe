//! The phase of a sandbox.

use std::borrow::Cow;

use sandboxo_model::{DeathReason, KillCause, Phase, StartFailure};
use sandboxo_zone_protocol::{CheckpointId, EndReason, Timestamp};
use serde::{Deserialize, Serialize};

use super::KeptRow;

#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum PhaseRow {
    Starting {
        give_up_at: Timestamp,
    },
    Running {
        started_at: Timestamp,
        expires_at: Timestamp,
    },
    Pausing {
        started_at: Timestamp,
        expires_at: Timestamp,
        asked_at: Timestamp,
        kept: KeptRow,
    },
    Paused {
        started_at: Timestamp,
        paused_at: Timestamp,
        checkpoint: CheckpointId,
        kept: KeptRow,
    },
    Resuming {
        started_at: Timestamp,
        paused_at: Timestamp,
        checkpoint: CheckpointId,
        kept: KeptRow,
        reboot: bool,
        expires_at: Timestamp,
        give_up_at: Timestamp,
    },
    Killing {
        asked_at: Timestamp,
        cause: KillCauseRow,
        started_at: Option<Timestamp>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        checkpoint: Option<CheckpointId>,
    },
    Dead {
        at: Timestamp,
        reason: DeathRow,
        started_at: Option<Timestamp>,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum KillCauseRow {
    Asked,
    Expired,
    StartFailed(FailureRow),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum DeathRow {
    StartFailed(FailureRow),
    Killed,
    TimedOut,
    OutOfMemory,
    Crashed,
    AgentLost,
    KeeperLost,
    ZoneRestarted,
    CheckpointFailed,
    CheckpointLost,
    Missing,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FailureRow {
    ImageNotFound,
    CheckpointLost,
    CheckpointUnusable(String),
    LimitReached { what: String, limit: u64 },
    DiskFull,
    VolumeLost,
    NotMounted(String),
    VolumeFileGone(String),
    TimedOut,
    Runtime,
    Unavailable,
}

impl From<Phase> for PhaseRow {
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::Starting { give_up_at } => Self::Starting { give_up_at },
            Phase::Running { started_at, expires_at } => Self::Running { started_at, expires_at },
            Phase::Pausing { started_at, expires_at, asked_at, kept } => {
                Self::Pausing { started_at, expires_at, asked_at, kept: kept.into() }
            }
            Phase::Paused { started_at, paused_at, checkpoint, kept } => {
                Self::Paused { started_at, paused_at, checkpoint, kept: kept.into() }
            }
            Phase::Resuming {
                started_at,
                paused_at,
                checkpoint,
                kept,
                reboot,
                expires_at,
                give_up_at,
            } => Self::Resuming {
                started_at,
                paused_at,
                checkpoint,
                kept: kept.into(),
                reboot,
                expires_at,
                give_up_at,
            },
            Phase::Killing { asked_at, cause, started_at, checkpoint } => {
                let cause = match cause {
                    KillCause::Asked => KillCauseRow::Asked,
                    KillCause::Expired => KillCauseRow::Expired,
                    KillCause::StartFailed(failure) => KillCauseRow::StartFailed(failure.into()),
                };
                Self::Killing { asked_at, cause, started_at, checkpoint }
            }
            Phase::Dead { at, reason, started_at } => {
                let reason = match reason {
                    DeathReason::StartFailed(failure) => DeathRow::StartFailed(failure.into()),
                    DeathReason::Missing => DeathRow::Missing,
                    DeathReason::CheckpointLost => DeathRow::CheckpointLost,
                    DeathReason::Ended(EndReason::Killed) => DeathRow::Killed,
                    DeathReason::Ended(EndReason::TimedOut) => DeathRow::TimedOut,
                    DeathReason::Ended(EndReason::OutOfMemory) => DeathRow::OutOfMemory,
                    DeathReason::Ended(EndReason::Crashed) => DeathRow::Crashed,
                    DeathReason::Ended(EndReason::AgentLost) => DeathRow::AgentLost,
                    DeathReason::Ended(EndReason::KeeperLost) => DeathRow::KeeperLost,
                    DeathReason::Ended(EndReason::ZoneRestarted) => DeathRow::ZoneRestarted,
                    DeathReason::Ended(EndReason::CheckpointFailed) => DeathRow::CheckpointFailed,
                };
                Self::Dead { at, reason, started_at }
            }
        }
    }
}

impl From<PhaseRow> for Phase {
    fn from(row: PhaseRow) -> Self {
        match row {
            PhaseRow::Starting { give_up_at } => Self::Starting { give_up_at },
            PhaseRow::Running { started_at, expires_at } => {
                Self::Running { started_at, expires_at }
            }
            PhaseRow::Pausing { started_at, expires_at, asked_at, kept } => {
                Self::Pausing { started_at, expires_at, asked_at, kept: kept.into() }
            }
            PhaseRow::Paused { started_at, paused_at, checkpoint, kept } => {
                Self::Paused { started_at, paused_at, checkpoint, kept: kept.into() }
            }
            PhaseRow::Resuming {
                started_at,
                paused_at,
                checkpoint,
                kept,
                reboot,
                expires_at,
                give_up_at,
            } => Self::Resuming {
                started_at,
                paused_at,
                checkpoint,
                kept: kept.into(),
                reboot,
                expires_at,
                give_up_at,
            },
            PhaseRow::Killing { asked_at, cause, started_at, checkpoint } => {
                let cause = match cause {
                    KillCauseRow::Asked => KillCause::Asked,
                    KillCauseRow::Expired => KillCause::Expired,
                    KillCauseRow::StartFailed(failure) => KillCause::StartFailed(failure.into()),
                };
                Self::Killing { asked_at, cause, started_at, checkpoint }
            }
            PhaseRow::Dead { at, reason, started_at } => {
                let reason = match reason {
                    DeathRow::StartFailed(failure) => DeathReason::StartFailed(failure.into()),
                    DeathRow::Missing => DeathReason::Missing,
                    DeathRow::CheckpointLost => DeathReason::CheckpointLost,
                    DeathRow::Killed => DeathReason::Ended(EndReason::Killed),
                    DeathRow::TimedOut => DeathReason::Ended(EndReason::TimedOut),
                    DeathRow::OutOfMemory => DeathReason::Ended(EndReason::OutOfMemory),
                    DeathRow::Crashed => DeathReason::Ended(EndReason::Crashed),
                    DeathRow::AgentLost => DeathReason::Ended(EndReason::AgentLost),
                    DeathRow::KeeperLost => DeathReason::Ended(EndReason::KeeperLost),
                    DeathRow::ZoneRestarted => DeathReason::Ended(EndReason::ZoneRestarted),
                    DeathRow::CheckpointFailed => DeathReason::Ended(EndReason::CheckpointFailed),
                };
                Self::Dead { at, reason, started_at }
            }
        }
    }
}

impl From<StartFailure> for FailureRow {
    fn from(failure: StartFailure) -> Self {
        match failure {
            StartFailure::ImageNotFound => Self::ImageNotFound,
            StartFailure::CheckpointLost => Self::CheckpointLost,
            StartFailure::CheckpointUnusable(why) => Self::CheckpointUnusable(why),
            StartFailure::LimitReached { what, limit } => {
                Self::LimitReached { what: what.into_owned(), limit }
            }
            StartFailure::DiskFull => Self::DiskFull,
            StartFailure::VolumeLost => Self::VolumeLost,
            StartFailure::NotMounted(why) => Self::NotMounted(why),
            StartFailure::VolumeFileGone(path) => Self::VolumeFileGone(path),
            StartFailure::TimedOut => Self::TimedOut,
            StartFailure::Runtime => Self::Runtime,
            StartFailure::Unavailable => Self::Unavailable,
        }
    }
}

impl From<FailureRow> for StartFailure {
    fn from(row: FailureRow) -> Self {
        match row {
            FailureRow::ImageNotFound => Self::ImageNotFound,
            FailureRow::CheckpointLost => Self::CheckpointLost,
            FailureRow::CheckpointUnusable(why) => Self::CheckpointUnusable(why),
            FailureRow::LimitReached { what, limit } => {
                Self::LimitReached { what: Cow::Owned(what), limit }
            }
            FailureRow::DiskFull => Self::DiskFull,
            FailureRow::VolumeLost => Self::VolumeLost,
            FailureRow::NotMounted(why) => Self::NotMounted(why),
            FailureRow::VolumeFileGone(path) => Self::VolumeFileGone(path),
            FailureRow::TimedOut => Self::TimedOut,
            FailureRow::Runtime => Self::Runtime,
            FailureRow::Unavailable => Self::Unavailable,
        }
    }
}
