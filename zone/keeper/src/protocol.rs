//! What a zone and its keeper say: one JSON message a packet, descriptors beside it.
//!
//! ```text
//! zone                          keeper
//!  Hello  ──────────────────────►
//!         ◄──────────────────────  Welcome, then Holding… (held channels beside them), then Ready
//!  Hold, Spawn, Release, ShutDown ►
//!         ◄──────────────────────  Spawned (channel beside it) | Failed | Done, by call number
//!         ◄──────────────────────  Exited
//!  Upgrade ──────────────────────►  asks the program, and becomes it
//!         ◄──────────────────────  Done (by the new program) | Failed (by the old)
//! ```
//!
//! One zone at a time: another that connects waits until the first has gone.
//!
//! A zone of another protocol is welcomed with the keeper's number and nothing more, and may only
//! ask for an upgrade. So `Hello`, `Welcome`, `Upgrade` and its answers never lose a field.

use std::{fmt, io, os::unix::process::ExitStatusExt as _, path::PathBuf, process::ExitStatus};

use serde::{Deserialize, Serialize};

/// Grows when a message changes its meaning.
pub const PROTOCOL: u32 = 2;
/// The kernel takes 253 descriptors a message; this many labels stay below [`MAX_MESSAGE`] too.
pub const BATCH: usize = 64;
pub const MAX_MESSAGE: usize = 128 * 1024;
pub const MAX_LABEL: usize = 128;
pub const MAX_META: usize = 1024;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ToKeeper {
    Hello(Greeting),
    /// The channels beside it, in this order, were held by a keeper that is gone.
    Hold {
        call: u64,
        held: Vec<Label>,
    },
    /// Beside it the network namespace, if `launch.netns`.
    Spawn {
        call: u64,
        launch: Box<Launch>,
    },
    /// Closes a held channel. Releasing what is not held is done already.
    Release {
        call: u64,
        label: String,
    },
    /// The keeper becomes this program, with all that it holds and has started.
    Upgrade {
        call: u64,
        /// Absolute.
        program: PathBuf,
        /// The zone's name for it.
        build: String,
    },
    /// The keeper ends. What it started goes on.
    ShutDown {
        call: u64,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    pub protocol: u32,
    /// Written into every held channel when this connection ends.
    pub detached: Vec<u8>,
    /// Makes a keeper that has met no zone yet the successor of another.
    pub resume: Option<Identity>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Stays as long as held channels do.
    pub boot_id: String,
    /// Grows with each connection of a zone.
    pub epoch: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Label {
    pub label: String,
    /// The zone's own words about it; the keeper only keeps them.
    pub meta: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stdin {
    Null,
    /// One end of a new channel. The other is held under the launch's label.
    Channel,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    pub label: Label,
    /// Absolute.
    pub program: PathBuf,
    /// Without the program's own name.
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
    pub stdin: Stdin,
    /// Standard output and error are appended to it.
    pub log: PathBuf,
    /// `cgroup.procs` files to join.
    pub cgroups: Vec<PathBuf>,
    pub netns: bool,
    pub oom_score_adj: Option<i16>,
    /// Seen by the program and not by the keeper.
    #[serde(default)]
    pub binds: Vec<Bind>,
    /// The processors that it may begin on; none: all that the keeper has.
    #[serde(default)]
    pub processors: Vec<usize>,
}

/// A file in another's place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bind {
    pub source: PathBuf,
    pub target: PathBuf,
}

/// The environment may hold secrets.
impl fmt::Debug for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Launch")
            .field("label", &self.label)
            .field("program", &self.program)
            .field("args", &self.args)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FromKeeper {
    Welcome {
        protocol: u32,
        identity: Identity,
        /// What the zone that started this program called it.
        build: String,
    },
    Holding {
        held: Vec<Label>,
    },
    Ready,
    Spawned {
        call: u64,
        pid: i32,
    },
    Failed {
        call: u64,
        failure: Failure,
    },
    Done {
        call: u64,
    },
    /// Of a spawned command. `status` is as `wait` gives it.
    Exited {
        pid: i32,
        status: i32,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Failure {
    #[error("{label} is held already")]
    LabelInUse { label: String },
    #[error("the label or its words are too long")]
    LabelTooLong,
    #[error("{0} contains a zero byte", field)]
    ZeroByte { field: String },
    #[error("{expected} descriptors belong to the message and {present} came")]
    Descriptors { expected: usize, present: usize },
    /// What could not be done on the way to the running program, and to what.
    #[error("start {program}: {step}{}{target}: {}", if target.is_empty() { "" } else { " " },
        io::Error::from_raw_os_error(*errno), program = program.display())]
    Start { program: PathBuf, step: Step, target: String, errno: i32 },
    #[error("{} does not read what this keeper hands over (format {format}); asked, it ended with {}",
        program.display(), ExitStatus::from_raw(*status))]
    Unread { program: PathBuf, format: u32, status: i32 },
    #[error("another program was to be asked instead")]
    Overtaken,
    #[error("the keeper is ending")]
    Ending,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    OpenLog,
    OpenNull,
    OpenCgroup,
    MakeChannel,
    Fork,
    Session,
    Signals,
    JoinCgroup,
    JoinNetwork,
    Bind,
    SetProcessors,
    SetOomScore,
    SetStdio,
    HandOver,
    Exec,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OpenLog => "open the log",
            Self::OpenNull => "open the null device",
            Self::OpenCgroup => "open the control group",
            Self::MakeChannel => "make the channel",
            Self::Fork => "fork",
            Self::Session => "begin a session",
            Self::Signals => "reset signals",
            Self::JoinCgroup => "join the control group",
            Self::JoinNetwork => "join the network namespace",
            Self::Bind => "put a file in the place of",
            Self::SetProcessors => "choose its processors",
            Self::SetOomScore => "set the OOM score",
            Self::SetStdio => "set standard input and output",
            Self::HandOver => "hand over what is held",
            Self::Exec => "execute it",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_program_step_and_reason() {
        let failure = |step, target: &str| Failure::Start {
            program: "/bin/x".into(),
            step,
            target: target.into(),
            errno: 2,
        };
        let unread = Failure::Unread { program: "/bin/x".into(), format: 3, status: 256 };
        assert_eq!(
            unread.to_string(),
            "/bin/x does not read what this keeper hands over (format 3); asked, it ended with \
             exit status: 1"
        );
        assert_eq!(
            failure(Step::Exec, "").to_string(),
            "start /bin/x: execute it: No such file or directory (os error 2)"
        );
        assert_eq!(
            failure(Step::OpenLog, "/log").to_string(),
            "start /bin/x: open the log /log: No such file or directory (os error 2)"
        );
    }

    #[test]
    fn messages_keep_their_form() {
        for (message, text) in [
            (
                ToKeeper::Hello(Greeting {
                    protocol: 1,
                    detached: vec![13],
                    resume: Some(Identity { boot_id: "b".into(), epoch: 4 }),
                }),
                r#"{"kind":"hello","protocol":1,"detached":[13],"resume":{"boot_id":"b","epoch":4}}"#,
            ),
            (
                ToKeeper::Hold {
                    call: 1,
                    held: vec![Label { label: "a".into(), meta: "m".into() }],
                },
                r#"{"kind":"hold","call":1,"held":[{"label":"a","meta":"m"}]}"#,
            ),
            (
                ToKeeper::Upgrade { call: 4, program: "/p".into(), build: "n".into() },
                r#"{"kind":"upgrade","call":4,"program":"/p","build":"n"}"#,
            ),
            (
                ToKeeper::Release { call: 2, label: "a".into() },
                r#"{"kind":"release","call":2,"label":"a"}"#,
            ),
            (ToKeeper::ShutDown { call: 3 }, r#"{"kind":"shut_down","call":3}"#),
        ] {
            assert_eq!(serde_json::to_string(&message).unwrap(), text);
            assert_eq!(serde_json::from_str::<ToKeeper>(text).unwrap(), message);
        }
        for (message, text) in [
            (
                FromKeeper::Welcome {
                    protocol: 1,
                    identity: Identity { boot_id: "b".into(), epoch: 4 },
                    build: "n".into(),
                },
                r#"{"kind":"welcome","protocol":1,"identity":{"boot_id":"b","epoch":4},"build":"n"}"#,
            ),
            (FromKeeper::Ready, r#"{"kind":"ready"}"#),
            (FromKeeper::Spawned { call: 1, pid: 9 }, r#"{"kind":"spawned","call":1,"pid":9}"#),
            (
                FromKeeper::Failed { call: 1, failure: Failure::LabelInUse { label: "a".into() } },
                r#"{"kind":"failed","call":1,"failure":{"kind":"label_in_use","label":"a"}}"#,
            ),
            (
                FromKeeper::Exited { pid: 9, status: 256 },
                r#"{"kind":"exited","pid":9,"status":256}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&message).unwrap(), text);
            assert_eq!(serde_json::from_str::<FromKeeper>(text).unwrap(), message);
        }
    }
}
