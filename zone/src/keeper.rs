//! The zone's side of its keeper: starts it if none answers, asks it, and replaces it if it dies.
//!
//! A [`Keeper`] is a handle; one task owns the connection. It keeps a duplicate of every held
//! channel, so that the death of the keeper costs nothing but the exit codes of what was running.

mod connect;
mod owner;
#[cfg(test)]
mod tests;

use std::{fmt, fs::File, io, os::fd::OwnedFd, path::PathBuf, process::ExitStatus, time::Duration};

use sandboxo_keeper::protocol::{self, Failure, Identity, Label};
use sandboxo_tasks::Tasks;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::timeout,
};

pub use connect::KeeperError;
pub use protocol::{Bind, Stdin};

use owner::{Command, Owner};

/// A keeper answers within milliseconds; one that doesn't for this long is as good as dead.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Callers that wait for the owner; more of them wait for a place.
const QUEUE: usize = 64;

#[derive(Debug, Clone)]
pub struct KeeperConfig {
    /// What has `keeper` as its first argument: usually this executable.
    pub program: PathBuf,
    /// Tells this program from others that the keeper may be running.
    pub build: String,
    pub socket: PathBuf,
    pub log: PathBuf,
    /// Some builds of runsc can't start a network on newer kernels with them in sight. The keeper
    /// has mounts of its own then: what is mounted later it sees only below folders that were
    /// shared before it was started.
    pub hide_proc_sys_net: bool,
    /// Folders of control groups for the keeper to live in, made if they don't exist.
    pub cgroups: Vec<PathBuf>,
}

/// What to start.
#[derive(Clone)]
pub struct Launch {
    /// With `Stdin::Channel`: under which name the channel is held.
    pub label: String,
    /// The caller's own words about it, given back with the channel.
    pub meta: String,
    /// Absolute.
    pub program: PathBuf,
    pub args: Vec<String>,
    /// All of it; nothing is inherited.
    pub env: Vec<(String, String)>,
    pub stdin: Stdin,
    /// Standard output and error are appended to it.
    pub log: PathBuf,
    /// `cgroup.procs` files to join before the program runs.
    pub cgroups: Vec<PathBuf>,
    pub netns: Option<PathBuf>,
    pub oom_score_adj: Option<i16>,
    /// Files in the places of others, for this program only.
    pub binds: Vec<Bind>,
    /// Those that it begins on; none: all.
    pub processors: Vec<usize>,
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

#[derive(Debug)]
pub struct Spawned {
    pub pid: i32,
    /// The zone's end of the channel. The keeper holds another descriptor of it.
    pub channel: Option<OwnedFd>,
}

/// A channel that the keeper held before this zone came.
#[derive(Debug)]
pub struct Held {
    pub label: String,
    pub meta: String,
    pub channel: OwnedFd,
}

#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("the keeper refused")]
    Refused(#[source] Failure),
    /// It may have been done or not.
    #[error("the keeper was lost before it answered")]
    Lost,
    #[error("the keeper did not answer")]
    TimedOut,
    #[error("the command is too long for the keeper")]
    TooLong,
    #[error("open the network namespace {}", path.display())]
    Netns { path: PathBuf, source: io::Error },
}

#[derive(Debug, thiserror::Error)]
pub enum WaitError {
    #[error("the keeper was lost, and with it how the command ended")]
    Lost,
    #[error("no command {0} was started here, or its end was told already")]
    Unknown(i32),
}

/// How it stands with the keeper. Numbers only grow, so that nobody misses a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    pub identity: Identity,
    /// Which program the keeper runs, by the name that its zone gave it.
    pub build: String,
    pub connected: bool,
    /// How often a dead keeper has been replaced. Channels did not notice.
    pub replaced: u32,
    /// How often the connection was lost to a keeper that lived. It has told all agents that the
    /// zone is gone, so their channels have to be attached again.
    pub rejoined: u32,
}

#[derive(Clone)]
pub struct Keeper {
    /// The name of the program that it should run.
    build: String,
    commands: mpsc::Sender<Command>,
    standing: watch::Receiver<Standing>,
}

impl Keeper {
    /// What was held before comes with it.
    pub async fn connect_or_start(
        config: KeeperConfig,
        tasks: &Tasks,
    ) -> Result<(Self, Vec<Held>), KeeperError> {
        let connection = connect::connect_or_start(&config, None).await?;
        let (commands, queue) = mpsc::channel(QUEUE);
        let build = config.build.clone();
        let (owner, standing, held) = Owner::new(config, connection)?;
        tasks.spawn("keeper", |stop| owner.run(queue, stop));
        Ok((Self { build, commands, standing }, held))
    }

    /// Unchanged as long as held channels are.
    pub fn boot_id(&self) -> String {
        self.standing.borrow().identity.boot_id.clone()
    }

    /// Grows with each connection, so a greeting with it is newer than all before.
    pub fn epoch(&self) -> u64 {
        self.standing.borrow().identity.epoch
    }

    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.clone()
    }

    /// Resolves once the program runs. After an error other than `Refused` it may run anyway, and
    /// its channel be held: `release` it.
    pub async fn spawn(&self, launch: Launch) -> Result<Spawned, CallError> {
        let netns = launch.netns.map(|path| match File::open(&path) {
            Ok(file) => Ok(OwnedFd::from(file)),
            Err(source) => Err(CallError::Netns { path, source }),
        });
        let netns = netns.transpose()?;
        let launch = protocol::Launch {
            label: Label { label: launch.label, meta: launch.meta },
            program: launch.program,
            args: launch.args,
            env: launch.env,
            stdin: launch.stdin,
            log: launch.log,
            cgroups: launch.cgroups,
            netns: netns.is_some(),
            oom_score_adj: launch.oom_score_adj,
            binds: launch.binds,
            processors: launch.processors,
        };
        let launch = Box::new(launch);
        self.call(|reply| Command::Spawn { launch, netns, reply }).await
    }

    /// Of a command that this zone has started. Its end is told once.
    pub async fn wait(&self, pid: i32) -> Result<ExitStatus, WaitError> {
        let (reply, answer) = oneshot::channel();
        if self.commands.send(Command::Wait { pid, reply }).await.is_err() {
            return Err(WaitError::Lost);
        }
        answer.await.map_err(|_lost| WaitError::Lost)?
    }

    /// The keeper closes a channel; the caller closes its own.
    pub async fn release(&self, label: &str) -> Result<(), CallError> {
        let label = label.to_owned();
        self.call(|reply| Command::Release { label, reply }).await
    }

    /// Has a keeper that runs another program become this one's. What it holds and has started
    /// stays as it is, and so does the keeper if this fails. `false`: it runs this one already.
    pub async fn upgrade(&self) -> Result<bool, CallError> {
        if self.standing.borrow().build == self.build {
            return Ok(false);
        }
        let upgraded = self.call(|reply| Command::Upgrade { reply }).await;
        if matches!(upgraded, Err(CallError::Lost)) {
            // Another takes its place, and is of this build.
            let mut standing = self.standing.clone();
            let back = standing.wait_for(|now| now.connected && now.build == self.build);
            if timeout(CALL_TIMEOUT, back).await.is_ok_and(|back| back.is_ok()) {
                return Ok(true);
            }
        }
        upgraded.map(|()| true)
    }

    /// Ends the keeper, which kills nothing. Resolves once its socket is gone.
    pub async fn shut_down(&self) -> Result<(), CallError> {
        self.call(|reply| Command::ShutDown { reply }).await
    }

    async fn call<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, CallError>>) -> Command,
    ) -> Result<T, CallError> {
        let (reply, answer) = oneshot::channel();
        let call = async {
            if self.commands.send(command(reply)).await.is_err() {
                return Err(CallError::Lost);
            }
            answer.await.map_err(|_lost| CallError::Lost)?
        };
        timeout(CALL_TIMEOUT, call).await.map_err(|_late| CallError::TimedOut)?
    }
}
