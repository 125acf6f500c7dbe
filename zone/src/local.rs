//! The zone of this process: the `Zone` trait over sandboxes of this host.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use sandboxo_channel::{ChannelError, OpenError, Target};
use sandboxo_egress::{Authority, proxy::Interception};
use sandboxo_registry::Registries;
use sandboxo_tasks::{Tasks, every};
use sandboxo_zone_protocol::{
    AGENT_PORT, ByteStream, Capacity, Checkpoint, CheckpointId, Clock, ConnectError, CreateError,
    ImageDigest, ImportError, Imported, Kept, Measured, NetworkPolicy, Notice, Origin, PauseError,
    Pull, PullError, Pulled, Random, SandboxId, SandboxSpec, Shape, Started, Timestamp, Vault,
    VolumeError, VolumeFiles, VolumeId, Zone, ZoneError, ZoneEvent, ZoneInfo,
};
use tokio::{
    io::AsyncRead,
    sync::{Semaphore, mpsc},
};

use crate::{
    admission::{HostView, Memory, admit},
    adoption,
    cgroup::{CgroupError, Cgroups, HostThreads},
    checkpoint::Checkpoints,
    config::{Layout, ZoneConfig},
    disk::{self, Disks},
    events::Ledger,
    fault::is_full,
    host::Host,
    image::Images,
    janitor::{self, Janitor, Tools},
    keeper::{Keeper, KeeperConfig, KeeperError},
    machine::Processors,
    network::{Network, NetworkConfig, NetworkError},
    notices, places,
    pool::{Pool, Sizes},
    programs::Programs,
    runsc::{ProbeError, Runsc, RuntimeFacts, kernel_release},
    sandbox::{InUse, Shared, Task},
    selftest::{self, SelfTestError},
    slot,
    volume::Volumes,
};

const PING: Duration = Duration::from_secs(5);
/// An image goes when its last sandbox has ended, which nobody tells.
const COLLECT: Duration = Duration::from_secs(10);
/// The keeper's own group, beside those of containers.
pub(crate) const KEEPER_GROUP: &str = "keeper";

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the path {0:?} is not UTF-8, and runsc could not be told of it")]
    Path(PathBuf),
    #[error("the path {0:?} is too long for the sockets in it (at most 60 bytes)")]
    LongPath(PathBuf),
    #[error("make or read {}", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error(
        "the disk under {} is full: make room there and start again; sandboxes that live go on",
        .0.display()
    )]
    DiskFull(PathBuf),
    #[error("there is no agent at {}: build it, or name it in the configuration", .0.display())]
    NoAgent(PathBuf),
    #[error("look at runsc")]
    Runsc(#[from] ProbeError),
    #[error("prepare cgroups")]
    Cgroups(#[from] CgroupError),
    #[error("reach the keeper")]
    Keeper(#[from] KeeperError),
    #[error("start the zone's network")]
    Network(#[from] NetworkError),
    #[error("the self-test failed")]
    SelfTest(#[from] SelfTestError),
}

pub struct LocalZone {
    config: ZoneConfig,
    facts: RuntimeFacts,
    registries: Registries,
    shared: Arc<Shared>,
}

impl LocalZone {
    /// Returns once what an earlier process left is adopted or removed, deadlines that passed
    /// meanwhile are applied, and a sandbox has run.
    pub async fn start(
        mut config: ZoneConfig,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        tasks: Tasks,
    ) -> Result<Arc<Self>, StartError> {
        make_folders(&mut config)?;
        let layout = Layout::new(&config);
        is_there_room(&layout.logs())?;
        let runsc = Runsc::probe(&config.runsc, layout.runsc_root(), &layout.logs()).await?;
        let cgroups = Cgroups::detect(&config.instance)?;
        let threads = HostThreads::read().map_err(folder(Path::new("/proc/sys/kernel")))?;
        let processors = Processors::read().map_err(folder(Path::new("/proc/self")))?;
        cgroups.prepare(threads, processors.count() as u64)?;
        let kernel = kernel_release();
        let facts = runsc.facts(cgroups.name(), kernel.clone());
        let boot = slot::host_boot().map_err(folder(Path::new("/proc")))?;
        let reserve = config.limits.disk_reserve_mib;
        let images = Images::open(layout.images(), reserve, config.image_grace, clock.clone())
            .map_err(folder(&layout.images()))?;
        let ledger = Ledger::open(layout.ended()).map_err(folder(&layout.ended()))?;
        let checkpoints = Checkpoints::open(layout.checkpoints());
        let checkpoints = checkpoints.map_err(folder(&layout.checkpoints()))?;
        let programs = Programs::open(layout.programs(), &config.agent);
        let programs = programs.map_err(folder(&layout.programs()))?;
        programs.keep(runsc.path(), runsc.digest()).map_err(folder(&layout.programs()))?;

        // Both share the folders that they mount in, which the keeper must find shared.
        for mounts in [layout.mounts(), layout.volume_mounts()] {
            fs::create_dir_all(&mounts)
                .and_then(|()| disk::share(&mounts))
                .map_err(folder(&mounts))?;
        }
        places::offer(&layout).map_err(folder(&layout.attached()))?;
        let volumes = Volumes::new(&layout).map_err(folder(&layout.volumes()))?;
        let authority =
            authority(&layout.authority(), &clock, &random).map_err(folder(&layout.authority()))?;
        let interception = Interception::new(authority.clone(), Interception::host_roots())
            .map_err(io::Error::other)
            .map_err(folder(&layout.authority()))?;
        let mut network = NetworkConfig::new(config.instance.clone(), interception);
        network.resolvers.clone_from(&config.resolvers);
        network.random = random.clone();
        network.proxy_networks.clone_from(&config.proxy_networks);
        let network = Network::start(network, &tasks).await?;
        let keeper = KeeperConfig {
            program: config.keeper.clone(),
            build: config.build.clone(),
            socket: layout.keeper_socket(),
            log: layout.keeper_log(),
            hide_proc_sys_net: runsc.needs_hidden_proc_sys_net(&kernel),
            cgroups: cgroups.group(KEEPER_GROUP).folders(),
        };
        let (keeper, held) = Keeper::connect_or_start(keeper, &tasks).await?;
        upgrade(&keeper).await;

        let (janitor, queue) = Janitor::new(tasks.stop());
        let tools = Arc::new(Tools {
            layout: layout.clone(),
            cgroups: cgroups.clone(),
            network: network.clone(),
            keeper: keeper.clone(),
        });
        tasks.spawn_critical("zone janitor", |stop| janitor::run(queue, tools, stop));
        let host = Arc::new(Host {
            limits: config.limits,
            start_timeout: config.start_timeout,
            freeze_after: config.freeze_after,
            disks: Disks::new(layout.disk_templates()),
            volumes,
            layout,
            runsc,
            cgroups,
            images,
            checkpoints,
            programs,
            network,
            authority,
            keeper,
            threads,
            processors,
            boot,
            janitor,
            starts: Semaphore::new(starts_at_once()),
            clock,
            random,
            tasks: tasks.clone(),
        });
        let shared = Arc::new(Shared {
            host: host.clone(),
            ledger,
            pool: Arc::new(Pool::new(Sizes { warm: config.warm, blanks: config.blanks })),
            sandboxes: parking_lot::Mutex::default(),
        });
        adoption::adopt(&shared, held).await.map_err(folder(&host.layout.slots()))?;
        if let Err(error) = selftest::run(&host).await {
            if shared.sandboxes.lock().is_empty() && shared.pool.ready() == 0 {
                host.janitor.settle(PING).await;
                if let Err(error) = host.keeper.shut_down().await {
                    tracing::warn!(error = &error as &dyn std::error::Error, "end the keeper");
                }
            }
            return Err(error.into());
        }
        let registries = Registries::new(config.registries.clone());
        let zone = Arc::new(Self { config, facts, registries, shared });
        let pool = zone.shared.pool.clone();
        let images = host.clone();
        tasks.spawn_critical("zone images", |stop| async move {
            let nudge = images.images.nudge.clone();
            every(COLLECT, &nudge, stop, || collect_images(images.clone())).await;
        });
        tasks.spawn_critical("zone pool", |stop| pool.run(host, stop));
        let pinging = zone.clone();
        tasks.spawn_critical("zone ping", |stop| async move {
            let changed = pinging.shared.pool.changed();
            every(PING, changed, stop, || async {
                pinging.shared.ledger.ping(pinging.capacity());
            })
            .await;
        });
        Ok(zone)
    }

    pub fn facts(&self) -> &RuntimeFacts {
        &self.facts
    }

    /// Which program the keeper runs.
    pub fn keeper_build(&self) -> String {
        self.shared.host.keeper.standing().borrow().build.clone()
    }

    /// Before the process ends: no sandbox is paused or snapshotted any more, and those that are
    /// come to their end.
    pub async fn drain(&self) {
        self.shared.host.checkpoints.drain().await;
    }

    pub fn capacity(&self) -> Capacity {
        let memory = Memory::read().map_or(0, |memory| memory.available_mib);
        let frozen = self.shared.sandboxes.lock().values().filter(|it| it.is_frozen()).count();
        Capacity {
            running: u32::try_from(self.shared.sandboxes.lock().len()).unwrap_or(u32::MAX),
            limit: self.config.limits.sandboxes,
            warm: self.shared.pool.ready(),
            blanks: self.shared.pool.blanks(),
            frozen: u32::try_from(frozen).unwrap_or(u32::MAX),
            free_memory_mib: memory,
            free_disk_mib: disk::free_mib(&self.config.state).unwrap_or(0),
        }
    }

    /// What is there already, or a new one if the host can take it.
    fn begin(&self, spec: SandboxSpec) -> Result<crate::sandbox::Handle, CreateError> {
        let host = HostView::read(&self.config.state, self.shared.host.threads);
        let mut sandboxes = self.shared.sandboxes.lock();
        if let Some(handle) = sandboxes.get(&spec.id) {
            return Ok(handle.clone());
        }
        // Asked for again after it has ended, by somebody who doesn't know yet.
        if self.shared.ledger.has_ended(spec.id) {
            return Err(CreateError::Killed);
        }
        match spec.origin {
            Origin::Image if !self.shared.host.images.contains(spec.image) => {
                return Err(CreateError::ImageNotFound(spec.image));
            }
            Origin::Checkpoint { id, .. } if self.shared.host.checkpoints.get(id).is_none() => {
                return Err(CreateError::CheckpointNotFound(id));
            }
            Origin::Image | Origin::Checkpoint { .. } => {}
        }
        let volumes: Vec<_> = spec.volumes.iter().map(|mount| mount.volume).collect();
        if let Some(none) = volumes.iter().find(|id| !self.shared.host.volumes.contains(**id)) {
            return Err(CreateError::VolumeNotFound(*none));
        }
        let promised = sandboxes.values().map(|handle| u64::from(handle.resources.memory_mib));
        let view = HostView {
            sandboxes: u32::try_from(sandboxes.len()).unwrap_or(u32::MAX),
            promised_mib: promised.sum(),
            ..host?
        };
        admit(&self.config.limits, &view, &spec.resources)?;
        let tasks = &self.shared.host.tasks;
        let (task, handle) =
            Task::new(&self.shared, spec.id, spec.resources, volumes, &tasks.stop());
        sandboxes.insert(spec.id, handle.clone());
        drop(sandboxes);
        tasks.spawn("sandbox", |stop| task.create(spec, stop));
        Ok(handle)
    }

    fn handle(&self, id: SandboxId) -> Option<crate::sandbox::Handle> {
        self.shared.sandboxes.lock().get(&id).cloned()
    }
}

#[async_trait]
impl Zone for LocalZone {
    fn info(&self) -> ZoneInfo {
        ZoneInfo { name: self.config.name.clone(), region: self.config.region }
    }

    fn use_vault(&self, vault: Arc<dyn Vault>) {
        self.shared.host.network.use_vault(vault);
    }

    async fn create(&self, spec: SandboxSpec) -> Result<Started, CreateError> {
        self.begin(spec)?.started().await
    }

    async fn kill(&self, id: SandboxId) -> Result<(), ZoneError> {
        self.handle(id).ok_or(ZoneError::NotFound)?.kill().await;
        Ok(())
    }

    async fn pause(&self, id: SandboxId, kept: Kept) -> Result<Checkpoint, PauseError> {
        if let Some(handle) = self.handle(id) {
            match handle.pause(kept).await {
                // Another pause may have come first.
                Err(PauseError::NotFound) => {}
                answer => return answer,
            }
        }
        self.shared.host.checkpoints.of_pause(id).ok_or(PauseError::NotFound)
    }

    async fn snapshot(&self, id: SandboxId, kept: Kept) -> Result<Checkpoint, PauseError> {
        self.handle(id).ok_or(PauseError::NotFound)?.snapshot(kept).await
    }

    async fn discard(&self, checkpoint: CheckpointId) -> Result<(), ZoneError> {
        let host = self.shared.host.clone();
        let discarded =
            tokio::task::spawn_blocking(move || host.checkpoints.discard(checkpoint)).await;
        discarded
            .unwrap_or_else(|panicked| Err(io::Error::other(panicked)))
            .map_err(|error| ZoneError::Internal(Box::new(error)))
    }

    async fn set_deadline(&self, id: SandboxId, deadline: Timestamp) -> Result<(), ZoneError> {
        self.handle(id).ok_or(ZoneError::NotFound)?.set_deadline(deadline).await
    }

    async fn set_network(&self, id: SandboxId, policy: NetworkPolicy) -> Result<(), ZoneError> {
        self.handle(id).ok_or(ZoneError::NotFound)?.set_network(policy).await
    }

    async fn measure(&self, id: SandboxId) -> Result<Measured, ZoneError> {
        self.handle(id).ok_or(ZoneError::NotFound)?.measure().await
    }

    async fn notices(&self, id: SandboxId) -> Result<Vec<Notice>, ZoneError> {
        let handle = self.handle(id).ok_or(ZoneError::NotFound)?;
        let (end, freezer) = handle.end().ok_or(ZoneError::NotFound)?;
        let mut kept = freezer.take_notices();
        // A frozen one has told all when it was frozen.
        let Some(_use) = freezer.enter_quietly() else { return Ok(kept) };
        match notices::fetch(&end).await {
            Ok(told) => {
                kept.extend(told);
                Ok(kept)
            }
            // They are told once; the next call hears what is wrong with it.
            Err(_) if !kept.is_empty() => Ok(kept),
            Err(ChannelError::Lost) => Err(ZoneError::NotFound),
            Err(error) => Err(ZoneError::Internal(Box::new(error))),
        }
    }

    async fn connect(&self, id: SandboxId, port: u16) -> Result<Box<dyn ByteStream>, ConnectError> {
        let handle = self.handle(id).ok_or(ConnectError::NotFound)?;
        let (end, freezer) = handle.end().ok_or(ConnectError::NotFound)?;
        let used = freezer.enter();
        let target = if port == AGENT_PORT { Target::Agent } else { Target::Port(port) };
        match end.open(target).await {
            Ok(stream) => Ok(Box::new(InUse::new(stream, used))),
            Err(OpenError::PortClosed) => Err(ConnectError::PortClosed(port)),
            Err(OpenError::TooMany) => Err(ConnectError::TooMany),
            Err(OpenError::Lost) => Err(ConnectError::AgentLost),
        }
    }

    async fn subscribe(&self) -> Result<mpsc::Receiver<ZoneEvent>, ZoneError> {
        let boot_id = self.shared.host.keeper.boot_id();
        let checkpoints = || self.shared.host.checkpoints.list();
        Ok(self.shared.ledger.subscribe(boot_id, self.capacity(), checkpoints))
    }

    async fn acknowledge(&self, ended: Vec<SandboxId>) -> Result<(), ZoneError> {
        self.shared.ledger.acknowledge(&ended).map_err(|error| ZoneError::Internal(Box::new(error)))
    }

    async fn import_image(
        &self,
        tar: Box<dyn AsyncRead + Send + Unpin>,
    ) -> Result<Imported, ImportError> {
        let host = &self.shared.host;
        host.images.import(tar, &*host.random).await
    }

    async fn pull_image(&self, pull: Pull) -> Result<Pulled, PullError> {
        let host = &self.shared.host;
        let max_mib = self.config.pull_max_mib;
        host.images.pull(&self.registries, pull, max_mib, &*host.random).await
    }

    async fn make_volume(&self, id: VolumeId, size_mib: u32) -> Result<(), VolumeError> {
        let reserve = self.config.limits.disk_reserve_mib;
        if disk::free_mib(&self.config.state).is_ok_and(|free| free < reserve) {
            return Err(VolumeError::DiskFull);
        }
        self.shared.host.volumes.make(id, size_mib).await
    }

    async fn clone_volume(&self, id: VolumeId, of: VolumeId) -> Result<(), VolumeError> {
        let volumes = &self.shared.host.volumes;
        // Where the host's file system shares blocks it takes less; nobody knows before.
        let needs = volumes.weight_mib(of).map_err(|_none| VolumeError::Gone)?;
        let needs = needs.saturating_add(self.config.limits.disk_reserve_mib);
        if disk::free_mib(&self.config.state).is_ok_and(|free| free < needs) {
            return Err(VolumeError::DiskFull);
        }
        volumes.copy(id, of).await
    }

    async fn remove_volume(&self, id: VolumeId) -> Result<(), VolumeError> {
        {
            // Under the lock that a create takes: from here on none has it.
            let sandboxes = self.shared.sandboxes.lock();
            if sandboxes.values().any(|it| it.volumes.contains(&id)) {
                return Err(VolumeError::InUse);
            }
            self.shared.host.volumes.doom(id);
        }
        self.shared.host.volumes.remove(id).await
    }

    async fn volume(&self, id: VolumeId) -> Result<Arc<dyn VolumeFiles>, VolumeError> {
        self.shared.host.volumes.open(id).await
    }

    async fn keep_warm(&self, shapes: BTreeSet<Shape>) -> Result<(), ZoneError> {
        let images = &self.shared.host.images;
        let known = shapes.into_iter().filter(|shape| images.contains(shape.image));
        self.shared.pool.keep_warm(known.collect());
        Ok(())
    }

    async fn keep_images(&self, images: BTreeSet<ImageDigest>) -> Result<(), ZoneError> {
        let kept = self.shared.host.images.keep(&images);
        kept.map_err(|error| ZoneError::Internal(Box::new(error)))
    }
}

/// An old keeper does all that this zone needs of it, so it is no reason not to start.
async fn upgrade(keeper: &Keeper) {
    let before = keeper.standing().borrow().build.clone();
    match keeper.upgrade().await {
        Ok(false) => {}
        Ok(true) => {
            let now = keeper.standing().borrow().build.clone();
            tracing::info!(before, now, "the keeper is this program now");
        }
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(keeper = before, error, "the keeper goes on as the program that it is");
        }
    }
}

async fn collect_images(host: Arc<Host>) {
    let collected = tokio::task::spawn_blocking(move || {
        let used = || {
            let slots = adoption::read_slots(&host.layout)?;
            let of_slots = slots.into_values().map(|slot| slot.shape.image);
            Ok(of_slots.chain(host.checkpoints.images()).collect())
        };
        host.images.collect(used)
    });
    match collected.await.unwrap_or_else(|panicked| Err(io::Error::other(panicked))) {
        Ok(gone) => gone.iter().for_each(|image| tracing::info!(%image, "an image is gone")),
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "remove an image");
        }
    }
}

/// More at a time only makes all of them late.
pub fn starts_at_once() -> usize {
    2 + 2 * std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

fn folder(path: &Path) -> impl Fn(io::Error) -> StartError + use<> {
    let path = path.to_owned();
    move |source| StartError::Folder { path: path.clone(), source }
}

/// The one that sandboxes of an earlier process believe, or a new one.
fn authority(
    path: &Path,
    clock: &Arc<dyn Clock>,
    random: &Arc<dyn Random>,
) -> io::Result<Arc<Authority>> {
    let kept = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let made = Authority::make(&**clock, &**random).map_err(io::Error::other)?;
            slot::write_lasting(path, made.as_bytes())?;
            made
        }
        kept => kept?,
    };
    let read = Authority::read(&kept, clock.clone(), random.clone());
    Ok(Arc::new(read.map_err(io::Error::other)?))
}

/// Programs that are started tell what they have to say by files; without room for those every one
/// of them would seem to fail for a reason of its own.
fn is_there_room(path: &Path) -> Result<(), StartError> {
    let file = path.join("room");
    let written = fs::write(&file, [0; 4096]);
    let removed = fs::remove_file(&file);
    match written.and(removed) {
        Err(error) if is_full(&error) => Err(StartError::DiskFull(path.to_owned())),
        done => done.map_err(folder(path)),
    }
}

/// Paths become absolute: the keeper and runsc have other working folders.
fn make_folders(config: &mut ZoneConfig) -> Result<(), StartError> {
    for path in [&mut config.state, &mut config.run] {
        fs::create_dir_all(&*path).map_err(folder(path))?;
        *path = fs::canonicalize(&*path).map_err(folder(path))?;
    }
    config.agent = fs::canonicalize(&config.agent)
        .map_err(|_missing| StartError::NoAgent(config.agent.clone()))?;
    config.runsc = fs::canonicalize(&config.runsc)
        .map_err(|_missing| ProbeError::Missing(config.runsc.clone()))?;
    for path in [&config.state, &config.run, &config.agent, &config.runsc] {
        if path.to_str().is_none() {
            return Err(StartError::Path(path.clone()));
        }
    }
    if config.run.as_os_str().len() > 60 {
        return Err(StartError::LongPath(config.run.clone()));
    }
    let layout = Layout::new(config);
    for path in [layout.slots(), layout.logs(), layout.mounts(), layout.runsc_root()] {
        fs::create_dir_all(&path).map_err(folder(&path))?;
    }
    Ok(())
}
