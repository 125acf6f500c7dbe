//! What a sandbox's agent tells of the programs that clients start in it.

use serde::{Deserialize, Serialize};

use crate::Timestamp;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// As the sandbox says, which may be anything.
    pub at: Timestamp,
    pub what: Noticed,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Noticed {
    Started {
        pid: u32,
        command: String,
    },
    Ended {
        pid: u32,
        exit_code: i32,
        status: String,
    },
    /// So many were let go of before somebody asked.
    Missed {
        count: u64,
    },
}
