//! A zone in memory: it keeps the contract of [`Zone`], and fails on request.
//!
//! It has no timers: a deadline passes when the clock says so and [`FakeZone::end_expired`] is
//! called.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, DuplexStream},
    sync::{mpsc, watch},
};

use crate::{
    ByteStream, Capacity, Checkpoint, CheckpointId, Clock, ConnectError, CreateError, EndReason,
    Ended, ImageDefaults, ImageDigest, ImageInfo, ImportError, Imported, Kept, Measured,
    NetworkPolicy, Notice, OnDeadline, Origin, PauseError, Paused, Pull, PullError, Pulled,
    SandboxId, SandboxSpec, Shape, Started, Timestamp, Vault, VolumeError, VolumeFiles, VolumeId,
    Zone, ZoneError, ZoneEvent, ZoneInfo, ZoneReport, ZoneSandbox, fake::SeededRandom,
};

pub struct FakeZone {
    info: ZoneInfo,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    vault: Mutex<Option<Arc<dyn Vault>>>,
    /// Counts changes, for those that wait for one.
    changed: watch::Sender<u64>,
}

struct State {
    boot_id: String,
    available: bool,
    limit: u32,
    running: BTreeMap<SandboxId, Running>,
    starting: BTreeSet<SandboxId>,
    ended: BTreeMap<SandboxId, Ended>,
    checkpoints: BTreeMap<CheckpointId, Checkpoint>,
    random: SeededRandom,
    failing_pauses: VecDeque<PauseError>,
    /// Does not go on after its next snapshot.
    pausing_snapshot: bool,
    images: BTreeSet<ImageDigest>,
    image_defaults: Option<ImageDefaults>,
    volumes: BTreeSet<VolumeId>,
    warm: BTreeSet<Shape>,
    notices: BTreeMap<SandboxId, Vec<Notice>>,
    script: VecDeque<ScriptedCreate>,
    failing_imports: VecDeque<ImportError>,
    pulls: VecDeque<Result<Pulled, PullError>>,
    pulled: Vec<Pull>,
    held: bool,
    subscribers: Vec<mpsc::Sender<ZoneEvent>>,
    handler: Option<Handler>,
    calls: Vec<Call>,
}

struct Running {
    spec: SandboxSpec,
    started_at: Timestamp,
    deadline: Timestamp,
}

/// What the next create does, instead of succeeding.
#[derive(Debug)]
pub enum ScriptedCreate {
    Fail(CreateError),
    /// It runs, and the answer is lost.
    LoseAnswer,
    /// Until it is killed.
    Hang,
    /// It runs, and ends at once.
    DieAfter(EndReason),
    /// As a bug does.
    Panic,
}

/// What was asked, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    Create(SandboxId),
    Kill(SandboxId),
    Pause(SandboxId, Kept),
    Snapshot(SandboxId, Kept),
    Discard(CheckpointId),
    SetDeadline(SandboxId, Timestamp),
    SetNetwork(SandboxId, NetworkPolicy),
    Acknowledge(Vec<SandboxId>),
    KeepWarm(BTreeSet<Shape>),
    KeepImages(BTreeSet<ImageDigest>),
    MakeVolume(VolumeId, u32),
    CloneVolume(VolumeId, VolumeId),
    RemoveVolume(VolumeId),
}

fn of_volumes(error: ZoneError) -> VolumeError {
    match error {
        ZoneError::NotFound | ZoneError::Unavailable => VolumeError::Unavailable,
        ZoneError::Internal(source) => VolumeError::Internal(source),
    }
}

/// The inner end of a connection into a sandbox.
pub struct Opened {
    pub id: SandboxId,
    pub port: u16,
    pub stream: DuplexStream,
}

/// Starts whatever serves the stream, or refuses.
type Handler = Arc<dyn Fn(Opened) -> Result<(), ConnectError> + Send + Sync>;

const EVENTS: usize = 64;
const STREAM_BYTES: usize = 64 * 1024;

impl FakeZone {
    /// Whom egress would ask.
    pub fn vault(&self) -> Option<Arc<dyn Vault>> {
        self.vault.lock().clone()
    }

    /// `local1` in region `loc`.
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        let name = "local1".parse();
        let region = "loc".parse();
        let (Ok(name), Ok(region)) = (name, region) else { unreachable!("both are well formed") };
        Self::named(ZoneInfo { name, region }, clock)
    }

    pub fn named(info: ZoneInfo, clock: Arc<dyn Clock>) -> Arc<Self> {
        let state = State {
            boot_id: "boot-1".into(),
            available: true,
            limit: 10_000,
            running: BTreeMap::new(),
            starting: BTreeSet::new(),
            ended: BTreeMap::new(),
            checkpoints: BTreeMap::new(),
            random: SeededRandom::new(1),
            failing_pauses: VecDeque::new(),
            pausing_snapshot: false,
            images: BTreeSet::new(),
            image_defaults: None,
            volumes: BTreeSet::new(),
            warm: BTreeSet::new(),
            notices: BTreeMap::new(),
            script: VecDeque::new(),
            failing_imports: VecDeque::new(),
            pulls: VecDeque::new(),
            pulled: Vec::new(),
            held: false,
            subscribers: Vec::new(),
            handler: None,
            calls: Vec::new(),
        };
        let changed = watch::Sender::new(0);
        Arc::new(Self { info, clock, state: Mutex::new(state), vault: Mutex::default(), changed })
    }

    /// What the archives that are imported from here on say of their images.
    pub fn say_of_images(&self, defaults: ImageDefaults) {
        self.change(|state| state.image_defaults = Some(defaults));
    }

    /// An image that is there from the start.
    pub fn add_image(&self, image: ImageDigest) {
        self.change(|state| state.images.insert(image));
    }

    /// Scripts one create; several are used in turn.
    pub fn script(&self, create: ScriptedCreate) {
        self.change(|state| state.script.push_back(create));
    }

    /// What comes of a pull; several are used in turn, and without one there is no such image.
    pub fn script_pull(&self, outcome: Result<Pulled, PullError>) {
        self.change(|state| state.pulls.push_back(outcome));
    }

    pub fn pulled(&self) -> Vec<Pull> {
        self.state.lock().pulled.clone()
    }

    pub fn fail_next_import(&self, error: ImportError) {
        self.change(|state| state.failing_imports.push_back(error));
    }

    /// Of a pause or a snapshot; several are used in turn. `Ended` ends the sandbox, after others
    /// it goes on.
    pub fn fail_next_pause(&self, error: PauseError) {
        self.change(|state| state.failing_pauses.push_back(error));
    }

    /// After the next snapshot its sandbox can't go on, and is paused with it.
    pub fn pause_at_next_snapshot(&self) {
        self.change(|state| state.pausing_snapshot = true);
    }

    /// Creates, pauses and snapshots wait until [`Self::release`].
    pub fn hold(&self) {
        self.change(|state| state.held = true);
    }

    pub fn release(&self) {
        self.change(|state| state.held = false);
    }

    /// Everything answers `Unavailable`, and event streams close.
    pub fn set_available(&self, available: bool) {
        self.change(|state| {
            state.available = available;
            if !available {
                state.subscribers.clear();
            }
        });
    }

    pub fn set_limit(&self, limit: u32) {
        self.change(|state| state.limit = limit);
    }

    /// Event streams close.
    pub fn drop_subscribers(&self) {
        self.change(|state| state.subscribers.clear());
    }

    /// As if it ended by itself.
    pub fn end(&self, id: SandboxId, reason: EndReason) {
        let at = self.clock.now();
        self.change(|state| state.end(id, at, reason));
    }

    /// Ends or pauses what is past its deadline.
    pub fn end_expired(&self) {
        let at = self.clock.now();
        self.change(|state| {
            let expired: Vec<_> = state
                .running
                .iter()
                .filter(|(_, running)| running.deadline <= at)
                .map(|(id, running)| (*id, running.spec.on_deadline))
                .collect();
            for (id, on_deadline) in expired {
                match on_deadline {
                    OnDeadline::Kill => state.end(id, at, EndReason::TimedOut),
                    OnDeadline::Pause(kept) => {
                        state.pause(id, kept, at);
                    }
                }
            }
        });
    }

    /// Says once more what it has said before, late.
    pub fn repeat(&self, paused: Paused) {
        self.change(|state| state.tell(&ZoneEvent::SandboxPaused(paused)));
    }

    /// A checkpoint is gone without a word.
    pub fn lose_checkpoint(&self, id: CheckpointId) {
        self.change(|state| state.checkpoints.remove(&id).map(|_gone| ()));
    }

    pub fn checkpoints(&self) -> Vec<Checkpoint> {
        self.state.lock().checkpoints.values().copied().collect()
    }

    /// Gone without a trace.
    pub fn forget(&self, id: SandboxId) {
        self.change(|state| state.running.remove(&id).map(|_gone| ()));
    }

    /// Its host was started anew: nothing runs, nothing is remembered.
    pub fn restart(&self, boot_id: &str) {
        self.change(|state| {
            state.boot_id = boot_id.into();
            state.running.clear();
            state.ended.clear();
            state.subscribers.clear();
        });
    }

    /// Runs a sandbox that nobody asked for.
    pub fn plant(&self, spec: SandboxSpec) {
        let started_at = self.clock.now();
        self.change(|state| {
            let deadline = spec.deadline;
            state.running.insert(spec.id, Running { spec, started_at, deadline });
        });
    }

    /// Who serves connections into sandboxes; without one, nothing listens.
    pub fn on_connect(
        &self,
        handler: impl Fn(Opened) -> Result<(), ConnectError> + Send + Sync + 'static,
    ) {
        self.change(|state| state.handler = Some(Arc::new(handler)));
    }

    pub fn running(&self) -> Vec<SandboxId> {
        self.state.lock().running.keys().copied().collect()
    }

    pub fn starting(&self) -> Vec<SandboxId> {
        self.state.lock().starting.iter().copied().collect()
    }

    /// As it is enforced: with the policy and the deadline set last.
    pub fn spec(&self, id: SandboxId) -> Option<SandboxSpec> {
        let state = self.state.lock();
        let running = state.running.get(&id)?;
        Some(SandboxSpec { deadline: running.deadline, ..running.spec.clone() })
    }

    /// Ended and not acknowledged.
    pub fn ended(&self) -> Vec<Ended> {
        self.state.lock().ended.values().cloned().collect()
    }

    /// Tells it when somebody asks.
    pub fn notice(&self, id: SandboxId, notice: Notice) {
        self.change(|state| state.notices.entry(id).or_default().push(notice));
    }

    /// Some that nobody has asked for.
    pub fn has_notices(&self, id: SandboxId) -> bool {
        self.state.lock().notices.contains_key(&id)
    }

    pub fn warm(&self) -> BTreeSet<Shape> {
        self.state.lock().warm.clone()
    }

    pub fn calls(&self) -> Vec<Call> {
        self.state.lock().calls.clone()
    }

    /// Waits until the zone is as the closure says.
    pub async fn wait_for(&self, reached: impl Fn(&Self) -> bool) {
        let mut changed = self.changed.subscribe();
        while !reached(self) {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state.lock());
        self.changed.send_modify(|count| *count += 1);
        result
    }

    fn ask<T>(
        &self,
        call: Call,
        answer: impl FnOnce(&mut State) -> Result<T, ZoneError>,
    ) -> Result<T, ZoneError> {
        self.change(|state| {
            state.calls.push(call);
            if state.available { answer(state) } else { Err(ZoneError::Unavailable) }
        })
    }

    fn start(&self, spec: SandboxSpec) -> Result<Started, CreateError> {
        let at = self.clock.now();
        self.change(|state| {
            if state.running.len() >= usize::try_from(state.limit).unwrap_or(usize::MAX) {
                let limit = u64::from(state.limit);
                return Err(CreateError::LimitReached { what: "sandboxes", limit });
            }
            if let Origin::Checkpoint { id, .. } = spec.origin
                && !state.checkpoints.contains_key(&id)
            {
                return Err(CreateError::CheckpointNotFound(id));
            }
            let deadline = spec.deadline;
            state.running.insert(spec.id, Running { spec, started_at: at, deadline });
            Ok(Started { at, warm: false })
        })
    }
}

impl FakeZone {
    /// Until nothing is held; then what the script says.
    async fn begin_checkpoint(&self, id: SandboxId, call: Call) -> Result<(), PauseError> {
        let at = self.clock.now();
        self.change(|state| state.calls.push(call));
        let mut changed = self.changed.subscribe();
        while self.state.lock().held {
            if changed.changed().await.is_err() {
                return Err(PauseError::Unavailable);
            }
        }
        self.change(|state| {
            if !state.available {
                return Err(PauseError::Unavailable);
            }
            match state.failing_pauses.pop_front() {
                Some(PauseError::Ended) => {
                    state.end(id, at, EndReason::CheckpointFailed);
                    Err(PauseError::Ended)
                }
                Some(error) => Err(error),
                None => Ok(()),
            }
        })
    }
}

impl State {
    fn checkpoint(
        &mut self,
        sandbox: SandboxId,
        kept: Kept,
        at: Timestamp,
        is_pause: bool,
    ) -> Checkpoint {
        let id = CheckpointId::random(&self.random);
        let checkpoint = Checkpoint { id, kept, at, size_bytes: 1 << 20, sandbox, is_pause };
        self.checkpoints.insert(id, checkpoint);
        checkpoint
    }

    fn pause(&mut self, id: SandboxId, kept: Kept, at: Timestamp) -> Option<Checkpoint> {
        self.running.remove(&id)?;
        let checkpoint = self.checkpoint(id, kept, at, true);
        self.tell(&ZoneEvent::SandboxPaused(Paused { id, checkpoint }));
        Some(checkpoint)
    }

    fn end(&mut self, id: SandboxId, at: Timestamp, reason: EndReason) {
        if self.running.remove(&id).is_some() {
            let ended = Ended { id, at, reason };
            self.ended.insert(id, ended.clone());
            self.tell(&ZoneEvent::SandboxEnded(ended));
        }
    }

    fn tell(&mut self, event: &ZoneEvent) {
        self.subscribers.retain(|subscriber| subscriber.try_send(event.clone()).is_ok());
    }

    fn capacity(&self) -> Capacity {
        Capacity {
            running: u32::try_from(self.running.len()).unwrap_or(u32::MAX),
            limit: self.limit,
            warm: 0,
            blanks: 0,
            frozen: 0,
            free_memory_mib: 8192,
            free_disk_mib: 65_536,
        }
    }

    fn report(&self) -> ZoneReport {
        let sandbox = |(id, running): (&SandboxId, &Running)| ZoneSandbox {
            id: *id,
            started_at: running.started_at,
            deadline: running.deadline,
        };
        ZoneReport {
            boot_id: self.boot_id.clone(),
            capacity: self.capacity(),
            sandboxes: self.running.iter().map(sandbox).collect(),
            ended: self.ended.values().cloned().collect(),
            checkpoints: self.checkpoints.values().copied().collect(),
        }
    }
}

/// A create that is dropped or done no longer starts.
struct Starting<'a> {
    zone: &'a FakeZone,
    id: SandboxId,
}

impl Drop for Starting<'_> {
    fn drop(&mut self) {
        self.zone.change(|state| state.starting.remove(&self.id));
    }
}

#[async_trait]
impl Zone for FakeZone {
    fn info(&self) -> ZoneInfo {
        self.info.clone()
    }

    fn use_vault(&self, vault: Arc<dyn Vault>) {
        *self.vault.lock() = Some(vault);
    }

    async fn create(&self, spec: SandboxSpec) -> Result<Started, CreateError> {
        let id = spec.id;
        let script = self.change(|state| {
            state.calls.push(Call::Create(id));
            if !state.available {
                return Err(CreateError::Unavailable);
            }
            if let Some(running) = state.running.get(&id) {
                return Ok(Err(Started { at: running.started_at, warm: false }));
            }
            if state.ended.contains_key(&id) {
                return Err(CreateError::Killed);
            }
            if !state.images.contains(&spec.image) {
                return Err(CreateError::ImageNotFound(spec.image));
            }
            let mut volumes = spec.volumes.iter().map(|mount| mount.volume);
            if let Some(none) = volumes.find(|volume| !state.volumes.contains(volume)) {
                return Err(CreateError::VolumeNotFound(none));
            }
            state.starting.insert(id);
            Ok(Ok(state.script.pop_front()))
        });
        let script = match script? {
            Ok(script) => script,
            Err(running) => return Ok(running),
        };
        let _starting = Starting { zone: self, id };
        let hangs = matches!(script, Some(ScriptedCreate::Hang));
        let mut changed = self.changed.subscribe();
        loop {
            {
                let state = self.state.lock();
                if !state.starting.contains(&id) {
                    return Err(CreateError::Killed);
                }
                if !hangs && !state.held {
                    break;
                }
            }
            if changed.changed().await.is_err() {
                return Err(CreateError::Unavailable);
            }
        }
        match script {
            Some(ScriptedCreate::Fail(error)) => Err(error),
            Some(ScriptedCreate::LoseAnswer) => self.start(spec).and(Err(CreateError::Unavailable)),
            Some(ScriptedCreate::DieAfter(reason)) => {
                let started = self.start(spec)?;
                self.end(id, reason);
                Ok(started)
            }
            #[expect(clippy::panic, reason = "it was asked for")]
            Some(ScriptedCreate::Panic) => panic!("scripted"),
            Some(ScriptedCreate::Hang) | None => self.start(spec),
        }
    }

    async fn kill(&self, id: SandboxId) -> Result<(), ZoneError> {
        let at = self.clock.now();
        self.ask(Call::Kill(id), |state| {
            if state.starting.remove(&id) {
                return Ok(());
            }
            if !state.running.contains_key(&id) {
                return Err(ZoneError::NotFound);
            }
            state.end(id, at, EndReason::Killed);
            Ok(())
        })
    }

    async fn pause(&self, id: SandboxId, kept: Kept) -> Result<Checkpoint, PauseError> {
        self.begin_checkpoint(id, Call::Pause(id, kept)).await?;
        let at = self.clock.now();
        self.change(|state| {
            let before = state.checkpoints.values().rfind(|it| it.sandbox == id && it.is_pause);
            let before = before.copied();
            state.pause(id, kept, at).or(before).ok_or(PauseError::NotFound)
        })
    }

    async fn snapshot(&self, id: SandboxId, kept: Kept) -> Result<Checkpoint, PauseError> {
        self.begin_checkpoint(id, Call::Snapshot(id, kept)).await?;
        let at = self.clock.now();
        self.change(|state| {
            if !state.running.contains_key(&id) {
                return Err(PauseError::NotFound);
            }
            if std::mem::take(&mut state.pausing_snapshot) {
                return state.pause(id, kept, at).ok_or(PauseError::NotFound);
            }
            Ok(state.checkpoint(id, kept, at, false))
        })
    }

    async fn discard(&self, checkpoint: CheckpointId) -> Result<(), ZoneError> {
        self.ask(Call::Discard(checkpoint), |state| {
            state.checkpoints.remove(&checkpoint);
            Ok(())
        })
    }

    async fn set_deadline(&self, id: SandboxId, deadline: Timestamp) -> Result<(), ZoneError> {
        self.ask(Call::SetDeadline(id, deadline), |state| {
            state.running.get_mut(&id).ok_or(ZoneError::NotFound)?.deadline = deadline;
            Ok(())
        })
    }

    async fn set_network(&self, id: SandboxId, policy: NetworkPolicy) -> Result<(), ZoneError> {
        self.ask(Call::SetNetwork(id, policy.clone()), |state| {
            state.running.get_mut(&id).ok_or(ZoneError::NotFound)?.spec.network = policy;
            Ok(())
        })
    }

    async fn notices(&self, id: SandboxId) -> Result<Vec<Notice>, ZoneError> {
        let mut state = self.state.lock();
        if !state.available {
            return Err(ZoneError::Unavailable);
        }
        state.running.get(&id).ok_or(ZoneError::NotFound)?;
        Ok(state.notices.remove(&id).unwrap_or_default())
    }

    async fn measure(&self, id: SandboxId) -> Result<Measured, ZoneError> {
        let at = self.clock.now();
        let state = self.state.lock();
        if !state.available {
            return Err(ZoneError::Unavailable);
        }
        let resources = state.running.get(&id).ok_or(ZoneError::NotFound)?.spec.resources;
        Ok(Measured {
            at,
            cpu_used_percent: 1.5,
            memory_used_bytes: 20 << 20,
            memory_total_bytes: u64::from(resources.memory_mib) << 20,
            memory_cache_bytes: 4 << 20,
            disk_used_bytes: 1 << 20,
            disk_total_bytes: u64::from(resources.disk_mib) << 20,
        })
    }

    async fn connect(&self, id: SandboxId, port: u16) -> Result<Box<dyn ByteStream>, ConnectError> {
        let handler = {
            let state = self.state.lock();
            if !state.available {
                return Err(ConnectError::Unavailable);
            }
            if !state.running.contains_key(&id) {
                return Err(ConnectError::NotFound);
            }
            state.handler.clone().ok_or(ConnectError::PortClosed(port))?
        };
        let (outer, inner) = tokio::io::duplex(STREAM_BYTES);
        handler(Opened { id, port, stream: inner })?;
        Ok(Box::new(outer))
    }

    async fn subscribe(&self) -> Result<mpsc::Receiver<ZoneEvent>, ZoneError> {
        self.change(|state| {
            if !state.available {
                return Err(ZoneError::Unavailable);
            }
            let (events, receiver) = mpsc::channel(EVENTS);
            let hello = ZoneEvent::Hello(state.report());
            if events.try_send(hello).is_ok() {
                state.subscribers.push(events);
            }
            Ok(receiver)
        })
    }

    async fn acknowledge(&self, ended: Vec<SandboxId>) -> Result<(), ZoneError> {
        self.ask(Call::Acknowledge(ended.clone()), |state| {
            state.ended.retain(|id, _| !ended.contains(id));
            Ok(())
        })
    }

    async fn import_image(
        &self,
        mut tar: Box<dyn AsyncRead + Send + Unpin>,
    ) -> Result<Imported, ImportError> {
        let mut bytes = Vec::new();
        tar.read_to_end(&mut bytes).await.map_err(ImportError::Read)?;
        self.change(|state| {
            if let Some(error) = state.failing_imports.pop_front() {
                return Err(error);
            }
            if bytes.is_empty() {
                return Err(ImportError::Rejected("the archive is empty".into()));
            }
            let digest = digest(&bytes);
            state.images.insert(digest);
            let image = ImageInfo { digest, size_bytes: bytes.len() as u64 };
            Ok(Imported { image, defaults: state.image_defaults.clone() })
        })
    }

    async fn pull_image(&self, pull: Pull) -> Result<Pulled, PullError> {
        self.change(|state| {
            state.pulled.push(pull);
            let pulled = state.pulls.pop_front().unwrap_or(Err(PullError::NotFound))?;
            state.images.insert(pulled.image.digest);
            Ok(pulled)
        })
    }

    async fn keep_warm(&self, shapes: BTreeSet<Shape>) -> Result<(), ZoneError> {
        self.ask(Call::KeepWarm(shapes.clone()), |state| {
            state.warm = shapes;
            Ok(())
        })
    }

    async fn make_volume(&self, id: VolumeId, size_mib: u32) -> Result<(), VolumeError> {
        let made = self.ask(Call::MakeVolume(id, size_mib), |state| {
            state.volumes.insert(id);
            Ok(())
        });
        made.map_err(of_volumes)
    }

    async fn clone_volume(&self, id: VolumeId, of: VolumeId) -> Result<(), VolumeError> {
        let cloned = self.ask(Call::CloneVolume(id, of), |state| {
            if state.volumes.contains(&of) {
                state.volumes.insert(id);
            }
            Ok(state.volumes.contains(&of))
        });
        if cloned.map_err(of_volumes)? { Ok(()) } else { Err(VolumeError::Gone) }
    }

    async fn remove_volume(&self, id: VolumeId) -> Result<(), VolumeError> {
        let removed = self.ask(Call::RemoveVolume(id), |state| {
            state.volumes.remove(&id);
            Ok(())
        });
        removed.map_err(of_volumes)
    }

    /// It keeps no files.
    async fn volume(&self, _id: VolumeId) -> Result<Arc<dyn VolumeFiles>, VolumeError> {
        Err(VolumeError::Unavailable)
    }

    /// It has room for all of them for ever.
    async fn keep_images(&self, images: BTreeSet<ImageDigest>) -> Result<(), ZoneError> {
        self.ask(Call::KeepImages(images), |_state| Ok(()))
    }
}

/// Not a hash to trust: the same bytes have the same one, others very likely another.
fn digest(bytes: &[u8]) -> ImageDigest {
    let mut digest = [0; 32];
    for (lane, out) in digest.chunks_mut(8).enumerate() {
        let basis = 0xcbf2_9ce4_8422_2325_u64.wrapping_add(lane as u64);
        let hash = bytes
            .iter()
            .fold(basis, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
        out.copy_from_slice(&hash.to_le_bytes());
    }
    ImageDigest::from_bytes(digest)
}
