//! Builds of templates: a client asks for one, sends the files, hands in the recipe, and looks how
//! far it is.
//!
//! What is written down is a build's phase; everything else of an attempt goes with the process,
//! and the next one makes another attempt. The sandbox of an attempt is nobody's.

mod agent;
mod copy;
mod layers;
mod log;
mod recipe;
mod script;
mod tags;
mod uploads;
mod worker;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use parking_lot::Mutex;
use sandboxo_crashpoint::{Point, crashpoint};
use sandboxo_model::{
    BuildFailure, BuildLine, BuildLogRecord, BuildPhase, BuildRecord, FilesHash, Invalid, Level,
    Recipe, SnapshotBuild, SnapshotKind, SnapshotRecord, TemplateNameError, TemplateRecord,
    TemplateRef, resources,
};
use sandboxo_store::{Read as _, StoreError};
use sandboxo_tasks::Stop;
use sandboxo_zone_protocol::{
    BuildId, Credentials, NetworkPolicy, Resources, SandboxId, Secret, TeamId, TemplateId,
    Timestamp,
};
use tokio::{io::AsyncRead, sync::Semaphore, time::timeout};

pub use tags::{Tag, TagError};
pub(crate) use uploads::Uploads;
pub use uploads::{MAX_UPLOAD_BYTES, UploadError};

use crate::{Sandboxes, Scope, Templates, context::Context, tokens};
use log::Log;
use worker::{Made, Worker};

/// A cheap clone of one thing.
#[derive(Clone)]
pub struct Builds {
    context: Arc<Context>,
    sandboxes: Sandboxes,
    templates: Templates,
    state: Arc<State>,
}

struct State {
    live: Mutex<BTreeMap<BuildId, Arc<LiveBuild>>>,
    seats: Semaphore,
    /// Links are good for one process: an upload does not outlive it either.
    links: Secret,
}

/// One that is being built, or waits for its turn.
struct LiveBuild {
    template: TemplateId,
    log: Log,
    cancel: Stop,
    sandbox: Mutex<Option<SandboxId>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewBuild {
    /// `alias` or `alias:tag`.
    pub name: String,
    pub tags: Vec<String>,
    pub vcpus: Option<u32>,
    pub memory_mib: Option<u32>,
}

/// A build that waits for its recipe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requested {
    pub template: TemplateId,
    pub build: BuildId,
    pub alias: String,
    /// `team/alias`.
    pub name: String,
    pub tags: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildStatus {
    pub build: BuildId,
    pub template: TemplateId,
    pub phase: StatusPhase,
    pub lines: Vec<BuildLine>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatusPhase {
    Waiting,
    Building,
    Ready,
    /// With the last that was said at the step.
    Failed(BuildFailure, Vec<BuildLine>),
}

/// Where the files of a step go to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadLink {
    pub is_there: bool,
    /// Proves that its bearer was given the link.
    pub proof: String,
}

#[derive(Debug, thiserror::Error)]
pub enum RequestBuildError {
    #[error(transparent)]
    Name(#[from] TemplateNameError),
    #[error("'{0}' is the name of another team")]
    Foreign(String),
    #[error("'{0}' is the name of a template that was imported, or of a snapshot")]
    NameTaken(String),
    #[error(transparent)]
    Invalid(#[from] Invalid),
    #[error("the disk is full")]
    DiskFull,
    #[error("record the build")]
    Store(#[source] StoreError),
}

impl From<StoreError> for RequestBuildError {
    fn from(error: StoreError) -> Self {
        if matches!(error, StoreError::DiskFull) { Self::DiskFull } else { Self::Store(error) }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum StartBuildError {
    #[error("build '{0}' not found")]
    NotFound(BuildId),
    #[error("build '{0}' has begun already")]
    NotWaiting(BuildId),
    #[error("{0}")]
    Recipe(String),
    #[error("the disk is full")]
    DiskFull,
    #[error("record the build")]
    Store(#[source] StoreError),
}

impl From<StoreError> for StartBuildError {
    fn from(error: StoreError) -> Self {
        if matches!(error, StoreError::DiskFull) { Self::DiskFull } else { Self::Store(error) }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum BuildStatusError {
    #[error("build '{0}' not found")]
    NotFound(BuildId),
    #[error("read the build")]
    Store(#[from] StoreError),
}

impl Builds {
    pub(crate) fn new(context: Arc<Context>, sandboxes: Sandboxes, templates: Templates) -> Self {
        let state = State {
            live: Mutex::default(),
            seats: Semaphore::new(context.config.builds_at_once),
            links: tokens::token(&*context.random),
        };
        Self { context, sandboxes, templates, state: Arc::new(state) }
    }

    /// A name that is known gets another build, and a new one a template without any.
    pub async fn request(
        &self,
        team: TeamId,
        new: NewBuild,
    ) -> Result<Requested, RequestBuildError> {
        let NewBuild { name: text, tags, vcpus, memory_mib } = new;
        let TemplateRef { team: owner, name, tag } = text.parse()?;
        let own = self
            .context
            .accounts
            .read(|maps| maps.teams.get(&team).map(|team| team.name.clone()))
            .unwrap_or_default();
        if let Some(owner) = owner.filter(|owner| *owner != own) {
            return Err(RequestBuildError::Foreign(owner));
        }
        let mut all: BTreeSet<String> = text.contains(':').then_some(tag).into_iter().collect();
        for tag in tags {
            all.insert(format!("{name}:{tag}").parse::<TemplateRef>()?.tag);
        }
        if all.is_empty() {
            all.insert(TemplateRef::DEFAULT_TAG.to_owned());
        }
        let tags: Vec<String> = all.into_iter().collect();
        let asked = Resources {
            vcpus: vcpus.unwrap_or(resources::DEFAULT.vcpus),
            memory_mib: memory_mib.unwrap_or(resources::DEFAULT.memory_mib),
            ..resources::DEFAULT
        };
        resources::check(asked)?;
        let context = Arc::clone(&self.context);
        let requested = Requested {
            template: TemplateId::random(&*context.random),
            build: BuildId::random(&*context.random),
            alias: name.to_string(),
            name: format!("{own}/{name}"),
            tags: tags.clone(),
        };
        let work = async move {
            let _changing = context.accounts.changing.lock().await;
            let now = context.now();
            let (fresh, build) = (requested.template, requested.build);
            let write = context.store.write(move |tx| {
                let taken = || RequestBuildError::NameTaken(name.to_string());
                let of_import = |it: &TemplateRecord| it.team == team && it.name == name;
                if tx.all::<TemplateRecord>()?.iter().any(of_import) {
                    return Err(taken());
                }
                let known = tx.all::<SnapshotRecord>()?;
                let known =
                    known.into_iter().find(|it| it.team == team && it.name.as_ref() == Some(&name));
                let template = match known {
                    Some(it) if it.kind == SnapshotKind::Taken => return Err(taken()),
                    Some(it) => it,
                    None => {
                        let record = SnapshotRecord {
                            id: fresh,
                            kind: SnapshotKind::Built,
                            team,
                            public: false,
                            name: Some(name),
                            builds: BTreeMap::new(),
                            created_at: now,
                        };
                        tx.put(&record);
                        record
                    }
                };
                tx.put(&BuildRecord {
                    id: build,
                    template: template.id,
                    team,
                    tags,
                    resources: asked,
                    created_at: now,
                    phase: BuildPhase::Waiting,
                });
                Ok(template)
            });
            let template = write.await?;
            let requested = Requested { template: template.id, ..requested };
            context.accounts.put_snapshot(Arc::new(template));
            Ok(requested)
        };
        self.context.to_the_end("request build", work).await
    }

    /// It is under way when this returns. Credentials are for the image that it begins with, and
    /// go with the process.
    pub async fn start(
        &self,
        team: TeamId,
        template: TemplateId,
        build: BuildId,
        recipe: Recipe,
        credentials: Option<Credentials>,
    ) -> Result<(), StartBuildError> {
        recipe::check(&recipe).map_err(StartBuildError::Recipe)?;
        let this = self.clone();
        let work = async move {
            let write = this.context.store.write(move |tx| {
                let not_found = || StartBuildError::NotFound(build);
                let record = tx.get::<BuildRecord>(&build)?.ok_or_else(not_found)?;
                if record.team != team || record.template != template {
                    return Err(not_found());
                }
                if record.phase != BuildPhase::Waiting {
                    return Err(StartBuildError::NotWaiting(build));
                }
                let phase = BuildPhase::Building { recipe, attempt: 1 };
                let record = BuildRecord { phase, ..record };
                tx.put(&record);
                Ok(record)
            });
            let record = write.await?;
            this.go(record, credentials);
            Ok(())
        };
        self.context.to_the_end("start build", work).await
    }

    /// The newest build of each of the team's templates, as far as they are kept.
    pub async fn newest(
        &self,
        team: TeamId,
    ) -> Result<BTreeMap<TemplateId, BuildRecord>, BuildStatusError> {
        let read = self.context.store.read(|tx| tx.all::<BuildRecord>());
        let mut newest = BTreeMap::new();
        let mut own: Vec<_> = read.await?.into_iter().filter(|it| it.team == team).collect();
        own.sort_by_key(|it| (it.created_at, it.id));
        for build in own {
            newest.insert(build.template, build);
        }
        Ok(newest)
    }

    /// Lines from `offset` on, `limit` of them at most.
    pub async fn status(
        &self,
        team: TeamId,
        template: TemplateId,
        build: BuildId,
        offset: usize,
        limit: usize,
    ) -> Result<BuildStatus, BuildStatusError> {
        // Before the record: a build that ends in between is found there, with its log.
        let live = self.state.live.lock().get(&build).cloned();
        let read = self.context.store.read(move |tx| {
            let record = tx.get::<BuildRecord>(&build)?;
            Ok::<_, StoreError>((record, tx.get::<BuildLogRecord>(&build)?))
        });
        let (record, log) = read.await?;
        let record = record.filter(|it| it.team == team && it.template == template);
        let record = record.ok_or(BuildStatusError::NotFound(build))?;
        let page = |lines: &[BuildLine]| -> Vec<BuildLine> {
            lines.iter().skip(offset).take(limit).cloned().collect()
        };
        let said = match (&live, &log) {
            (_, Some(log)) => page(&log.lines),
            (Some(live), None) => live.log.read(page),
            (None, None) => Vec::new(),
        };
        let phase = match record.phase {
            // What it has made is to be had once everything of it is done.
            _ if live.is_some() => StatusPhase::Building,
            BuildPhase::Waiting => StatusPhase::Waiting,
            BuildPhase::Building { .. } => StatusPhase::Building,
            BuildPhase::Ready { .. } => StatusPhase::Ready,
            BuildPhase::Failed { failure, .. } => {
                let lines = log.map(|log| log.lines).unwrap_or_default();
                let last = failure.step.map(|step| log::last_of(&lines, step, TOLD_LINES));
                StatusPhase::Failed(failure, last.unwrap_or_default())
            }
        };
        Ok(BuildStatus { build, template, phase, lines: said })
    }

    /// Where to send the files of a step, and whether somebody has.
    pub async fn link(&self, team: TeamId, template: &str, hash: &FilesHash) -> Option<UploadLink> {
        self.context.accounts.built(team, template)?;
        let is_there = self.context.uploads.has(team, hash, self.context.now()).await;
        Some(UploadLink { is_there, proof: self.proof(team, hash) })
    }

    /// For whoever bears a link.
    pub async fn upload(
        &self,
        proof: &str,
        hash: &FilesHash,
        bytes: impl AsyncRead + Unpin,
    ) -> Result<(), UploadError> {
        let teams: Vec<TeamId> =
            self.context.accounts.read(|maps| maps.teams.keys().copied().collect());
        let team = teams.into_iter().find(|team| {
            let own = self.proof(*team, hash);
            subtle::ConstantTimeEq::ct_eq(own.as_bytes(), proof.as_bytes()).into()
        });
        let team = team.ok_or(UploadError::BadLink)?;
        self.context.uploads.put(team, hash, bytes, &*self.context.random).await
    }

    fn proof(&self, team: TeamId, hash: &FilesHash) -> String {
        use sha2::Digest as _;
        let secret = self.state.links.expose();
        let text = format!("{secret} {team} {} {secret}", hash.as_str());
        sandboxo_zone_protocol::ImageDigest::from_bytes(sha2::Sha256::digest(text).into())
            .to_string()
    }

    fn go(&self, record: BuildRecord, credentials: Option<Credentials>) {
        let BuildPhase::Building { recipe, attempt } = record.phase.clone() else { return };
        let live = Arc::new(LiveBuild {
            template: record.template,
            log: Log::default(),
            cancel: self.context.tasks.stop().child_token(),
            sandbox: Mutex::default(),
        });
        self.state.live.lock().insert(record.id, Arc::clone(&live));
        if attempt > 1 {
            live.log.say(
                &*self.context.clock,
                Level::Warn,
                None,
                format!(
                    "the appliance was started anew, and so is the build: attempt {attempt} of {}",
                    BuildRecord::MAX_ATTEMPTS
                ),
            );
        }
        let this = self.clone();
        drop(self.context.tasks.spawn("build", |stop| async move {
            let outcome = tokio::select! {
                biased;
                () = live.cancel.cancelled() => None,
                outcome = this.attempt(&record, &recipe, credentials, &live) => Some(outcome),
            };
            this.end_sandbox(&live).await;
            // The next process begins anew; one that was cancelled has no record any more.
            if let Some(outcome) = outcome.filter(|_| !stop.is_cancelled()) {
                this.finish(&record, outcome, &live).await;
            }
            this.state.live.lock().remove(&record.id);
        }));
    }

    async fn attempt(
        &self,
        record: &BuildRecord,
        recipe: &Recipe,
        credentials: Option<Credentials>,
        live: &Arc<LiveBuild>,
    ) -> Result<Made, BuildFailure> {
        let Ok(_seat) = self.state.seats.acquire().await else {
            return Err(BuildFailure { message: "the appliance is stopping".into(), step: None });
        };
        let worker = Worker {
            context: Arc::clone(&self.context),
            sandboxes: self.sandboxes.clone(),
            live: Arc::clone(live),
            record: record.clone(),
            credentials,
        };
        let budget = self.context.config.build_budget;
        timeout(budget, worker.attempt(recipe)).await.unwrap_or_else(|_elapsed| {
            let minutes = budget.as_secs() / 60;
            let message = format!("the build did not end within {minutes} minutes");
            Err(BuildFailure { message, step: None })
        })
    }

    async fn end_sandbox(&self, live: &LiveBuild) {
        let sandbox = live.sandbox.lock().take();
        if let Some(id) = sandbox
            && let Err(error) = self.sandboxes.kill(Scope::Operator, id).await
        {
            tracing::debug!(error = &error as &dyn std::error::Error, "the sandbox of a build");
        }
    }

    async fn finish(
        &self,
        record: &BuildRecord,
        outcome: Result<Made, BuildFailure>,
        live: &LiveBuild,
    ) {
        let context = &self.context;
        let _changing = context.accounts.changing.lock().await;
        let now = context.now();
        crashpoint(Point::BuildMade);
        let (made, phase) = match outcome {
            Ok(made) => (Some(made), BuildPhase::Ready { at: now }),
            Err(failure) => {
                live.log.say(&*context.clock, Level::Error, failure.step, failure.to_string());
                (None, BuildPhase::Failed { at: now, failure })
            }
        };
        let version = made.as_ref().map(|made| version(record, made));
        let log = BuildLogRecord { build: record.id, lines: live.log.read(<[_]>::to_vec) };
        let ended = BuildRecord { phase, ..record.clone() };
        let write = context.store.write(move |tx| {
            let mut replaced = Vec::new();
            let Some(mut template) = tx.get::<SnapshotRecord>(&ended.template)? else {
                return Ok(None);
            };
            if let Some(version) = version {
                replaced = tags::put(&mut template, &ended.tags, &version);
                tx.put(&template);
            }
            tx.put(&ended);
            tx.put(&log);
            Ok::<_, StoreError>(Some((template, replaced)))
        });
        let stale = match write.await {
            Ok(Some((template, replaced))) => {
                context.accounts.put_snapshot(Arc::new(template));
                self.templates.tell_images().await;
                replaced
            }
            Ok(None) => made.iter().map(|made| made.checkpoint).collect(),
            Err(error) => {
                // It is as if the process had died: the next one builds it again.
                tracing::error!(
                    build.id = %record.id,
                    error = &error as &dyn std::error::Error,
                    "the end of a build can't be recorded"
                );
                made.iter().map(|made| made.checkpoint).collect()
            }
        };
        drop(made.map(|made| made.hold));
        for checkpoint in stale {
            context.discard_later(checkpoint, None);
        }
    }

    /// Before an orderly end: what it cuts off begins anew, and that was no attempt.
    pub async fn set_aside(&self) -> Result<(), StoreError> {
        let live: BTreeSet<BuildId> = self.state.live.lock().keys().copied().collect();
        let write = self.context.store.write(move |tx| {
            for id in live {
                let Some(record) = tx.get::<BuildRecord>(&id)? else { continue };
                if let BuildPhase::Building { recipe, attempt } = record.phase.clone() {
                    let attempt = attempt.saturating_sub(1);
                    let phase = BuildPhase::Building { recipe, attempt };
                    tx.put(&BuildRecord { phase, ..record });
                }
            }
            Ok(())
        });
        write.await
    }

    /// What an earlier process has left: its sandboxes end, and its builds begin anew, but not
    /// without end.
    pub(crate) async fn take_over(&self) -> Result<(), StoreError> {
        for record in self.context.index.records() {
            if record.team == TeamId::NIL {
                let (sandboxes, id) = (self.sandboxes.clone(), record.id);
                drop(self.context.tasks.spawn("end build sandbox", |_stop| async move {
                    if let Err(error) = sandboxes.kill(Scope::Operator, id).await {
                        tracing::debug!(
                            error = &error as &dyn std::error::Error,
                            "the sandbox of a build that was cut off"
                        );
                    }
                }));
            }
        }
        let now = self.context.now();
        let write = self.context.store.write(move |tx| {
            let mut again = Vec::new();
            for record in tx.all::<BuildRecord>()? {
                let BuildPhase::Building { recipe, attempt } = record.phase.clone() else {
                    continue;
                };
                let attempt = attempt + 1;
                let phase = if attempt <= BuildRecord::MAX_ATTEMPTS {
                    BuildPhase::Building { recipe, attempt }
                } else {
                    BuildPhase::Failed { at: now, failure: given_up() }
                };
                let record = BuildRecord { phase, ..record };
                tx.put(&record);
                again.push(record);
            }
            Ok::<_, StoreError>(again)
        });
        for record in write.await? {
            self.go(record, None);
        }
        Ok(())
    }
}

/// Of a step that failed, for whoever reads only the reason.
const TOLD_LINES: usize = 20;

fn given_up() -> BuildFailure {
    let attempts = BuildRecord::MAX_ATTEMPTS;
    let message = format!("the appliance went down in each of {attempts} attempts to build it");
    BuildFailure { message, step: None }
}

fn version(record: &BuildRecord, made: &Made) -> SnapshotBuild {
    let Made { base, result, sandbox, checkpoint, kept, hold: _ } = made;
    SnapshotBuild {
        id: record.id,
        // The newest asked for is the newest, whichever is done first.
        at: record.created_at,
        sandbox: *sandbox,
        checkpoint: *checkpoint,
        kept: *kept,
        image: base.image,
        resources: base.resources,
        platform: base.platform,
        mode: NetworkPolicy::OPEN.mode,
        env: result.env.clone(),
        user: result.user.clone(),
        workdir: result.workdir.clone(),
        volumes: Vec::new(),
    }
}

impl LiveBuild {
    fn is_of(&self, template: TemplateId) -> bool {
        self.template == template
    }
}

/// Long ago, for what is kept that long.
fn before(now: Timestamp, kept: std::time::Duration) -> Timestamp {
    Timestamp::checked_sub(now, kept).unwrap_or(Timestamp::MIN)
}
