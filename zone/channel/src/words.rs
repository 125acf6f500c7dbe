//! What a zone and an agent say to each other.

use std::{collections::BTreeMap, fmt, net::IpAddr};

use serde::{Deserialize, Serialize};

/// Makes an unclaimed sandbox somebody's.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// As a label of a host name.
    pub sandbox_id: String,
    pub template_id: String,
    pub env: BTreeMap<String, String>,
    pub hostname: String,
    pub agent_token: Option<String>,
    pub user: String,
    pub workdir: Option<String>,
    pub nameservers: Vec<IpAddr>,
    pub pids: u32,
    /// In PEM: who signs for hosts whose requests are given headers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority: Option<String>,
}

/// Environment and token are secrets of the tenant.
impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim")
            .field("sandbox_id", &self.sandbox_id)
            .field("template_id", &self.template_id)
            .field("hostname", &self.hostname)
            .finish_non_exhaustive()
    }
}

/// How an agent introduces itself to each zone that greets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    pub version: String,
    /// `Claim::sandbox_id`, once claimed.
    pub claimed: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    Claim(Claim),
    Ping,
    /// Of an unclaimed sandbox: have in memory what the first command needs.
    WarmUp,
    /// Of an unclaimed sandbox: what its claim will say as `authority`, so that it need not be
    /// waited for then.
    Believe(String),
    /// What programs have started and ended. What was told once is not told again.
    Notices,
    /// Before a checkpoint: start no process until a zone greets again.
    Quiesce {
        /// And end those that are there.
        end_processes: bool,
    },
    /// There is no checkpoint after all.
    GoOn,
    /// Before a claim: where the volumes appear that the zone has attached, by their numbers.
    Mount {
        paths: Vec<String>,
    },
    /// What of its volumes is in use.
    OpenInVolumes,
    /// After a restore: whose sandbox it is now.
    Restored {
        claim: Claim,
        /// As if the sandbox had been switched off and on: only files are left.
        reboot: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    Claimed,
    Pong,
    Warm,
    Believes,
    Notices(Vec<Notice>),
    Quiet,
    GoesOn,
    Mounted,
    /// Some of them may be: that is undone by the sandbox's end.
    NotMounted {
        path: String,
        why: String,
    },
    OpenInVolumes(Vec<OpenFile>),
    Refused(String),
}

/// A file or directory of a volume, which somebody has open, runs or is in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OpenFile {
    /// The volume's number.
    pub volume: u32,
    /// From the volume's root, without a slash before it.
    pub path: String,
    /// What has that name now, if anything, is another.
    pub is_gone: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// By the sandbox's clock, since 1970.
    pub at_ms: i64,
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

/// Where a stream ends inside the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// The agent's own HTTP server.
    Agent,
    /// Whatever listens there. Port 0 can't be asked for.
    Port(u16),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Nothing listens on that port.
    PortClosed,
    TooMany,
}
