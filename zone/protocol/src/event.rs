//! What a zone tells: everything it holds at first (hello), then what changes.

use serde::{Deserialize, Serialize};

use crate::{Capacity, CheckpointId, Kept, SandboxId, Timestamp};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ZoneEvent {
    Hello(ZoneReport),
    Ping(Capacity),
    SandboxEnded(Ended),
    /// Asked for or at its deadline. It runs no longer.
    SandboxPaused(Paused),
}

/// A snapshot of the zone. Ended sandboxes stay in it until they are acknowledged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ZoneReport {
    /// The keeper's: unchanged while sandboxes can have lived on.
    pub boot_id: String,
    pub capacity: Capacity,
    pub sandboxes: Vec<ZoneSandbox>,
    pub ended: Vec<Ended>,
    /// All that the zone has, in whatever use.
    #[serde(default)]
    pub checkpoints: Vec<Checkpoint>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    pub id: CheckpointId,
    pub kept: Kept,
    pub at: Timestamp,
    /// On the zone's disk.
    pub size_bytes: u64,
    /// The sandbox that was paused with it, or of which it is a snapshot.
    pub sandbox: SandboxId,
    /// It was made by a pause: the sandbox may have nothing else.
    pub is_pause: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paused {
    pub id: SandboxId,
    pub checkpoint: Checkpoint,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneSandbox {
    pub id: SandboxId,
    pub started_at: Timestamp,
    pub deadline: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    pub id: SandboxId,
    pub at: Timestamp,
    pub reason: EndReason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// Somebody asked.
    Killed,
    /// Its deadline passed.
    TimedOut,
    /// The kernel ended it at its memory limit.
    OutOfMemory,
    /// The runtime's process went away by itself.
    Crashed,
    /// The process is there, the agent does not answer.
    AgentLost,
    /// The keeper was gone at a start, and with it the agent's channel.
    KeeperLost,
    /// The zone's host was started anew.
    ZoneRestarted,
    /// The runtime ended it when it was to be checkpointed.
    CheckpointFailed,
}
