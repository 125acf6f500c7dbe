//! From nothing to a sandbox whose agent has greeted, in stages.
//!
//! ```text
//! Slotted ─► Equipped (disk, network, cgroup, bundle) ─► Running ─► Connected
//!                                                  └─► Blank ──┘
//! ```
//!
//! A blank is what runsc has made and not started: a checkpoint is restored into it.
//! Each stage owns what exists by then; dropped unfinished, it hands all of it to the janitor.
//! Steps are never cut in the middle: whoever wants a start to end cancels a token that is looked
//! at between them and while something is waited for.

mod blank;
mod connected;

use std::{
    fs,
    io::{self, Read, Seek, SeekFrom},
    os::fd::OwnedFd,
    path::Path,
    process::ExitStatus,
    sync::Arc,
    time::Duration,
};

use sandboxo_channel::{ChannelError, Hello};
use sandboxo_crashpoint::{Point, crashpoint};
use sandboxo_tasks::Stop;
use sandboxo_zone_protocol::{CreateError, NetworkMode, Shape, VolumeError, VolumeId};
use tokio::{
    sync::SemaphorePermit,
    time::{Instant, timeout_at},
};

use crate::{
    bundle::{self, Bundle, OOM_SCORE},
    cgroup::{CgroupError, Group, GroupLimits, Weight},
    checkpoint::Description,
    config::SlotPaths,
    disk::DiskError,
    fault::is_full,
    host::Host,
    janitor::{NetworkRemains, Remains},
    keeper::{Bind, CallError, Launch, Stdin, WaitError},
    machine,
    network::{Lease, LeaseRecord, NetworkError},
    places,
    process::{Process, ProcessMark},
    runsc::{RunCommand, Runsc},
    sentry::SentryError,
    slot::{ContainerId, ProgramsRecord, RestoreRecord, Slot},
};

pub(crate) use blank::{Blank, bring_back, make_blank};
pub(crate) use connected::Connected;
use connected::attach_to;

/// Of runsc's log and the sandbox's output, for an error.
const EXCERPT: u64 = 2000;
const CLAIM_TIMEOUT: Duration = Duration::from_secs(10);
/// An agent that has to end processes gives them some seconds.
const QUIESCE_TIMEOUT: Duration = Duration::from_secs(10);
const WARM_UP_TIMEOUT: Duration = Duration::from_secs(10);
/// An agent that lives answers a greeting within milliseconds, on a busy host within seconds.
pub(crate) const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// Until a claim names it.
const HOSTNAME: &str = "sandbox";
const MEMINFO: &str = "/proc/meminfo";

#[derive(Debug, thiserror::Error)]
pub(crate) enum BringUpError {
    #[error("it was told to stop")]
    Cancelled,
    #[error("it took longer than {0:?}; {1}")]
    TimedOut(Duration, String),
    #[error("make its disk")]
    Disk(#[from] DiskError),
    #[error("make its network")]
    Network(#[from] NetworkError),
    #[error("make its cgroup")]
    Cgroup(#[from] CgroupError),
    #[error("{doing}")]
    Io { doing: &'static str, source: io::Error },
    #[error("ask the keeper to start runsc")]
    Keeper(#[from] CallError),
    #[error("wait for runsc")]
    Wait(#[from] WaitError),
    #[error("runsc ended with {status}; {said}")]
    Runsc { status: ExitStatus, said: String },
    #[error("it ended while it started; {0}")]
    Ended(String),
    #[error("talk to its agent; {said}")]
    Agent { said: String, source: ChannelError },
    #[error("its agent refuses: {0}")]
    Refused(String),
    #[error("speak to its sentry; {said}")]
    Sentry { said: String, source: SentryError },
    #[error("it was made by runsc {0}, which this host does not have")]
    OtherRuntime(String),
    #[error("the agent that it has in memory is not kept here")]
    OtherAgent,
    #[error("attach a volume")]
    Volume(#[from] VolumeError),
    #[error("{path}: {why}")]
    NotMounted { path: String, why: String },
    #[error("the agent that it has in memory takes no volumes")]
    TakesNoVolumes,
}

/// What a sandbox is started from, other than its image alone.
#[derive(Debug, Clone)]
pub(crate) struct Restore {
    pub(crate) checkpoint: Description,
    pub(crate) reboot: bool,
    /// Attached before it goes on, since it may have files open in them.
    pub(crate) volumes: Vec<VolumeId>,
}

impl BringUpError {
    pub(crate) fn at(doing: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| {
            if is_full(&source) { Self::Disk(DiskError::Full) } else { Self::Io { doing, source } }
        }
    }
}

impl From<BringUpError> for CreateError {
    fn from(error: BringUpError) -> Self {
        match error {
            BringUpError::Cancelled => Self::Killed,
            BringUpError::TimedOut(after, _) => Self::TimedOut(after),
            BringUpError::Disk(DiskError::Full) | BringUpError::Volume(VolumeError::DiskFull) => {
                Self::DiskFull
            }
            BringUpError::NotMounted { .. } => Self::NotMounted(error.to_string()),
            BringUpError::OtherRuntime(_)
            | BringUpError::OtherAgent
            | BringUpError::TakesNoVolumes => Self::CheckpointUnusable(error.to_string()),
            BringUpError::Disk(_)
            | BringUpError::Network(_)
            | BringUpError::Cgroup(_)
            | BringUpError::Io { .. }
            | BringUpError::Keeper(_)
            | BringUpError::Wait(_)
            | BringUpError::Runsc { .. }
            | BringUpError::Ended(_)
            | BringUpError::Agent { .. }
            | BringUpError::Sentry { .. }
            | BringUpError::Volume(_)
            | BringUpError::Refused(_) => Self::Runtime(Box::new(error)),
        }
    }
}

/// What a container has on this host.
pub(crate) struct Holdings {
    pub(crate) host: Arc<Host>,
    pub(crate) slot: Slot,
    pub(crate) paths: SlotPaths,
    pub(crate) group: Group,
    pub(crate) lease: Option<Lease>,
    /// How many volumes are attached.
    attached: usize,
    /// It stays when this value goes.
    left: bool,
}

impl Holdings {
    pub(crate) fn new(host: Arc<Host>, slot: Slot, lease: Option<Lease>) -> Self {
        let paths = host.layout.slot(slot.container);
        let group = host.cgroups.group(&slot.container.to_string());
        let attached = slot.claim.as_ref().map_or(0, |claim| claim.volumes.len());
        Self { host, slot, paths, group, lease, attached, left: false }
    }

    /// Changes the record; the one on disk first.
    pub(crate) fn record(&mut self, change: impl FnOnce(&mut Slot)) -> io::Result<()> {
        let mut slot = self.slot.clone();
        change(&mut slot);
        slot.store(&self.paths)?;
        self.slot = slot;
        Ok(())
    }

    fn remove(&mut self) -> tokio::sync::oneshot::Receiver<()> {
        self.left = true;
        let network = self.lease.take().map(|lease| NetworkRemains::Lease(Box::new(lease)));
        self.host.janitor.remove(Remains { container: self.slot.container, network })
    }

    fn leave(&mut self) {
        self.left = true;
    }

    /// What runsc said of a checkpoint.
    pub(crate) fn checkpoint_said(&self) -> String {
        excerpt(&self.paths.checkpoint_log(), End::Last).unwrap_or_default()
    }

    /// What runsc and the sandbox said last. runsc's whole log is kept, since the slot goes.
    pub(crate) fn said(&self) -> String {
        if let Err(error) = fs::copy(self.paths.runsc_log(), self.host.layout.failed_start_log()) {
            tracing::debug!(%error, "keep runsc's log");
        }
        let logs = [
            ("runsc", excerpt(&self.paths.runsc_log(), End::Last)),
            // What it panicked of stands before all the stacks.
            ("its sentry", excerpt(&self.paths.panic_log(), End::First)),
            ("output", excerpt(&self.paths.output(), End::Last)),
        ];
        let said = logs.into_iter().filter_map(|(name, said)| {
            let said = said.ok().filter(|said| !said.is_empty())?;
            Some(format!("{name} said: {said:?}"))
        });
        let said: Vec<_> = said.collect();
        if said.is_empty() { "nothing was said".to_owned() } else { said.join("; ") }
    }
}

impl Drop for Holdings {
    fn drop(&mut self) {
        if !self.left {
            drop(self.remove());
        }
    }
}

#[derive(Clone, Copy)]
enum End {
    First,
    Last,
}

fn excerpt(path: &Path, end: End) -> io::Result<String> {
    let mut file = fs::File::open(path)?;
    if let End::Last = end {
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(EXCERPT)))?;
    }
    let mut bytes = Vec::new();
    file.take(EXCERPT).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
}

/// A new sandbox of this shape, within the host's start timeout. `cancel` ends the attempt.
pub(crate) async fn bring_up(
    host: &Arc<Host>,
    shape: Shape,
    weight: Weight,
    cancel: &Stop,
) -> Result<Connected, BringUpError> {
    let start = Start::begin(host, cancel);
    let _one_of_few = start.turn().await?;
    start.by_command_line(shape, weight, None).await
}

/// What all the steps of one start look at.
struct Start<'a> {
    host: &'a Arc<Host>,
    give_up: Instant,
    cancel: &'a Stop,
}

impl<'a> Start<'a> {
    fn begin(host: &'a Arc<Host>, cancel: &'a Stop) -> Self {
        Self { host, give_up: Instant::now() + host.start_timeout, cancel }
    }

    async fn turn(&self) -> Result<SemaphorePermit<'a>, BringUpError> {
        let Self { host, give_up, cancel } = self;
        tokio::select! {
            permit = timeout_at(*give_up, host.starts.acquire()) => {
                permit.ok().and_then(Result::ok).ok_or_else(|| {
                    BringUpError::TimedOut(host.start_timeout, "too many others start".to_owned())
                })
            }
            () = cancel.cancelled() => Err(BringUpError::Cancelled),
        }
    }

    fn go_on(&self) -> Result<(), BringUpError> {
        if self.cancel.is_cancelled() { Err(BringUpError::Cancelled) } else { Ok(()) }
    }

    /// By runsc's command line alone.
    async fn by_command_line(
        &self,
        shape: Shape,
        weight: Weight,
        from: Option<&Restore>,
    ) -> Result<Connected, BringUpError> {
        let call = from.map_or(Call::Run, Call::Restore);
        let running = self.call(shape, weight, call).await?;
        let connected = running.connect(self.give_up, self.cancel).await?;
        crashpoint(Point::RefillGreeted);
        Ok(connected)
    }

    async fn call(
        &self,
        shape: Shape,
        weight: Weight,
        call: Call<'_>,
    ) -> Result<Running, BringUpError> {
        let slotted = Slotted::make(self.host, shape, call)?;
        self.go_on()?;
        let equipped = slotted.equip(weight, call.from()).await?;
        self.go_on()?;
        let running = equipped.start(call, self.give_up, self.cancel).await?;
        self.go_on()?;
        Ok(running)
    }
}

/// What runsc is told to do.
#[derive(Clone, Copy)]
enum Call<'a> {
    Run,
    Restore(&'a Restore),
    Create,
}

impl<'a> Call<'a> {
    fn from(self) -> Option<&'a Restore> {
        match self {
            Self::Restore(from) => Some(from),
            Self::Run | Self::Create => None,
        }
    }
}

/// Written down, and nothing else.
struct Slotted(Holdings);

impl Slotted {
    fn make(host: &Arc<Host>, shape: Shape, call: Call<'_>) -> Result<Self, BringUpError> {
        let from = call.from();
        let new = || host.programs_now();
        let slot = Slot {
            format: Slot::FORMAT,
            container: ContainerId::random(&*host.random),
            keeper_boot: host.keeper.boot_id(),
            host_boot: host.boot.clone(),
            shape,
            lease: None,
            process: None,
            claim: None,
            ending: false,
            programs: Some(from.map_or_else(new, |from| from.checkpoint.programs.clone())),
            blank: matches!(call, Call::Create),
            saving: None,
            held: false,
            restored: from
                .map(|from| RestoreRecord { checkpoint: from.checkpoint.id, told: false }),
        };
        let holdings = Holdings::new(host.clone(), slot, None);
        fs::create_dir_all(&holdings.paths.folder).map_err(BringUpError::at("make its slot"))?;
        holdings.slot.store(&holdings.paths).map_err(BringUpError::at("write its slot"))?;
        crashpoint(Point::RefillSlotted);
        Ok(Self(holdings))
    }

    async fn equip(self, weight: Weight, from: Option<&Restore>) -> Result<Equipped, BringUpError> {
        let Self(mut holdings) = self;
        let (host, shape) = (holdings.host.clone(), holdings.slot.shape);
        if shape.mode == NetworkMode::Full {
            let lease = host.network.lease().await?;
            crashpoint(Point::RefillLeased);
            let record: LeaseRecord = lease.record().clone();
            holdings.lease = Some(lease);
            holdings
                .record(|slot| slot.lease = Some(record))
                .map_err(BringUpError::at("write down its network"))?;
            crashpoint(Point::RefillNetworkRecorded);
        }
        let container = holdings.slot.container.to_string();
        let limits = GroupLimits::of(&shape.resources, host.threads);
        let group = host.cgroups.create(&container, &limits)?;
        group.set_weight(weight).map_err(BringUpError::at("set its share"))?;
        crashpoint(Point::RefillGrouped);
        let paths = holdings.paths.clone();
        host.disks.make(paths.disk_image(), paths.mount.clone(), shape.resources.disk_mib).await?;
        crashpoint(Point::RefillMounted);
        places::make(&paths).map_err(BringUpError::at("make a place for volumes"))?;
        if let Some(from) = from {
            holdings.attach(&from.volumes).await?;
        }
        holdings.write_bundle(from)?;
        crashpoint(Point::RefillBundled);
        Ok(Equipped(holdings))
    }
}

impl Holdings {
    /// What runs it; of one of the time before slots said so, what runs all now.
    pub(crate) fn programs(&self) -> ProgramsRecord {
        self.slot.programs.clone().unwrap_or_else(|| self.host.programs_now())
    }

    /// The build of runsc that its sentry is of.
    pub(crate) fn runsc(&self) -> Result<Runsc, BringUpError> {
        let ProgramsRecord { runsc, .. } = self.programs();
        if runsc.digest == self.host.runsc.digest() {
            return Ok(self.host.runsc.clone());
        }
        match self.host.programs.find(&runsc.digest) {
            Some(path) => Ok(self.host.runsc.pinned(path, &runsc)),
            None => Err(BringUpError::OtherRuntime(runsc.version)),
        }
    }

    /// Those that are not attached yet.
    async fn attach(&mut self, volumes: &[VolumeId]) -> Result<(), BringUpError> {
        for (number, volume) in volumes.iter().enumerate().skip(self.attached) {
            let mounted = self.host.volumes.mounted(*volume).await?;
            places::attach(&self.paths, number, &mounted)
                .map_err(BringUpError::at("mount a volume"))?;
            self.attached = number + 1;
            crashpoint(Point::VolumeAttached);
        }
        Ok(())
    }

    fn write_bundle(&self, from: Option<&Restore>) -> Result<(), BringUpError> {
        let (host, paths, shape) = (&self.host, &self.paths, self.slot.shape);
        let boot_id = paths.boot_id();
        let rootfs = host.layout.rootfs(shape.image);
        let agent = host.programs.find(&self.programs().agent);
        let agent = agent.ok_or(BringUpError::OtherAgent)?;
        let config = bundle::config(&Bundle {
            rootfs: &rootfs,
            agent: &agent,
            boot_id: &boot_id,
            volumes: &paths.attached,
            hostname: HOSTNAME,
            netns: self.lease.as_ref().map(Lease::netns_path),
            memory_mib: shape.resources.memory_mib,
        });
        self.write_boot_id(from)?;
        fs::write(paths.bundle_config(), config.to_string())
            .map_err(BringUpError::at("write its bundle"))
    }

    /// In place, since a sandbox may have the file already.
    fn write_boot_id(&self, from: Option<&Restore>) -> Result<(), BringUpError> {
        let boot = if let Some(Restore { checkpoint, reboot: false, .. }) = from {
            // What goes on has not been booted again.
            checkpoint.boot_id.clone()
        } else {
            let mut random = [0; 16];
            self.host.random.fill(&mut random);
            uuid(random)
        };
        fs::write(self.paths.boot_id(), boot).map_err(BringUpError::at("write its boot id"))
    }
}

fn uuid(random: [u8; 16]) -> String {
    let number = u128::from_be_bytes(random);
    // Version 4, variant 1.
    let number = number & !(0xf << 76) | (4 << 76);
    let hex = format!("{:032x}", number & !(3 << 62) | (2 << 62));
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    format!("{}-{}-{}-{}-{}\n", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32))
}

/// All that runsc needs.
struct Equipped(Holdings);

impl Equipped {
    async fn start(
        self,
        call: Call<'_>,
        give_up: Instant,
        cancel: &Stop,
    ) -> Result<Running, BringUpError> {
        let Self(mut holdings) = self;
        let host = holdings.host.clone();
        let container = holdings.slot.container;
        let pid_file = holdings.paths.pid_file();
        let log = holdings.paths.runsc_log();
        let panic_log = holdings.paths.panic_log();
        let runsc = holdings.runsc()?;
        let run = RunCommand {
            container,
            bundle: &holdings.paths.folder,
            platform: holdings.slot.shape.platform,
            network: holdings.slot.shape.mode,
            filestore: &holdings.paths.mount,
            log: &log,
            panic_log: &panic_log,
            pid_file: &pid_file,
        };
        let args = match call {
            Call::Run => runsc.run_arguments(&run),
            Call::Create => runsc.create_arguments(&run),
            Call::Restore(from) => {
                runsc.restore_arguments(&run, &host.checkpoints.image(from.checkpoint.id))
            }
        };
        let memory_mib = holdings.slot.shape.resources.memory_mib;
        let meminfo = host.layout.meminfo(memory_mib);
        let scratch = holdings.paths.folder.join("meminfo");
        machine::write_meminfo(&meminfo, &scratch, memory_mib)
            .map_err(BringUpError::at("write its size"))?;
        let launch = Launch {
            label: container.to_string(),
            meta: String::new(),
            program: runsc.path().to_owned(),
            args,
            env: vec![("PATH".into(), "/usr/sbin:/usr/bin:/sbin:/bin".into())],
            stdin: Stdin::Channel,
            log: holdings.paths.output(),
            cgroups: holdings.group.procs_files(),
            netns: None,
            // runsc sets it at a start, which a blank's sentry does not see.
            oom_score_adj: Some(OOM_SCORE),
            binds: vec![Bind { source: meminfo, target: MEMINFO.into() }],
            processors: host.processors.begin_on(holdings.slot.shape.resources.vcpus),
        };
        let spawned = host.keeper.spawn(launch).await?;
        crashpoint(Point::RefillSpawned);
        let waited = tokio::select! {
            waited = timeout_at(give_up, host.keeper.wait(spawned.pid)) => waited,
            () = cancel.cancelled() => return Err(BringUpError::Cancelled),
        };
        let Ok(status) = waited else {
            return Err(BringUpError::TimedOut(host.start_timeout, holdings.said()));
        };
        let status = status?;
        if !status.success() {
            return Err(BringUpError::Runsc { status, said: holdings.said() });
        }
        crashpoint(Point::RefillStarted);
        let pid = fs::read_to_string(&pid_file).map_err(BringUpError::at("read its pid"))?;
        let mark = pid
            .trim()
            .parse()
            .map_err(|bad| io::Error::new(io::ErrorKind::InvalidData, bad))
            .and_then(ProcessMark::of);
        let process = match mark.and_then(Process::open) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(BringUpError::Ended(holdings.said()));
            }
            process => process.map_err(BringUpError::at("watch its process"))?,
        };
        holdings
            .record(|slot| slot.process = Some(process.mark()))
            .map_err(BringUpError::at("write down its process"))?;
        crashpoint(Point::RefillProcessRecorded);
        let channel = spawned.channel.ok_or(CallError::Lost).map_err(BringUpError::Keeper)?;
        Ok(Running { holdings, process, channel })
    }
}

/// runsc has started it.
pub(crate) struct Running {
    pub(crate) holdings: Holdings,
    pub(crate) process: Process,
    pub(crate) channel: OwnedFd,
}

impl Running {
    async fn connect(self, give_up: Instant, cancel: &Stop) -> Result<Connected, BringUpError> {
        let after = self.holdings.host.start_timeout;
        tokio::select! {
            () = cancel.cancelled() => Err(BringUpError::Cancelled),
            greeted = timeout_at(give_up, self.greet()) => match greeted {
                Ok(greeted) => greeted.map(|(connected, _)| connected),
                Err(_late) => Err(BringUpError::TimedOut(after, "its agent does not greet".into())),
            },
        }
    }

    /// Attaches, and waits for the agent's greeting or the sandbox's end.
    pub(crate) async fn greet(self) -> Result<(Connected, Hello), BringUpError> {
        let Self { holdings, process, channel } = self;
        let rejoined = holdings.host.keeper.standing().borrow().rejoined;
        let end = attach_to(&holdings.host, &channel)?;
        let hello = tokio::select! {
            hello = end.hello() => hello,
            () = process.ended() => return Err(BringUpError::Ended(holdings.said())),
        };
        let hello = match hello {
            Ok(hello) => hello,
            Err(source) => return Err(BringUpError::Agent { said: holdings.said(), source }),
        };
        // By now its sentry has counted those that it began on.
        let processes = holdings.group.processes();
        if let Err(error) = processes.and_then(|all| holdings.host.processors.give_all(all)) {
            tracing::warn!(error = &error as &dyn std::error::Error, "give it all processors");
        }
        Ok((Connected { holdings, process, end, channel, rejoined }, hello))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_ids_look_like_the_kernels() {
        assert_eq!(uuid([0xff; 16]), "ffffffff-ffff-4fff-bfff-ffffffffffff\n");
        assert_eq!(uuid([0; 16]), "00000000-0000-4000-8000-000000000000\n");
    }
}
