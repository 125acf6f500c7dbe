//! One attempt: a sandbox of the deepest layer there is, the steps that are left, and a checkpoint
//! of what they made.

use std::{sync::Arc, time::Duration};

use sandboxo_crashpoint::{Point, crashpoint};
use sandboxo_model::{
    Base, Birth, BuildFailure, BuildRecord, From, ImageName, LayerKey, LayerRecord, Level,
    Lifecycle, NewSandbox, Recipe, SandboxRecord, StepName, Surroundings, Tokens,
    decide::{
        build::{Action, Plan, Stage, cached, plan},
        copy::{Rule, There, What},
    },
    origin,
};
use sandboxo_zone_protocol::{
    CheckpointId, Credentials, ExecutionId, ImageInfo, Kept, NetworkPolicy, Origin, Platform, Pull,
    PullError, Pulled, Resources, SandboxId, TeamId,
};
use tokio::{sync::mpsc, time::sleep};

use super::{
    LiveBuild,
    agent::{Agent, AgentError, Command, Exit, Said, Stream},
    copy::{self, Owner},
    log::Splitter,
    script::Script,
};
use crate::{
    CheckpointError, CreateError, Sandboxes, Scope, accounts::Source, checkpoints::Hold,
    context::Context, sandboxes::Taken, tokens,
};

/// Until the ready command says yes.
const READY_WITHIN: Duration = Duration::from_mins(10);
const READY_AGAIN: Duration = Duration::from_secs(2);
/// For a start command without a ready command.
const SETTLES_WITHIN: Duration = Duration::from_secs(20);
/// Scripts of our own.
const SCRIPT_WITHIN: Duration = Duration::from_mins(10);
/// Pieces of an archive on their way.
const PIECES: usize = 16;

pub(super) struct Worker {
    pub(super) context: Arc<Context>,
    pub(super) sandboxes: Sandboxes,
    pub(super) live: Arc<LiveBuild>,
    pub(super) record: BuildRecord,
    /// Of the image that the recipe begins with.
    pub(super) credentials: Option<Credentials>,
}

/// What a build has made.
pub(super) struct Made {
    pub(super) base: Base,
    pub(super) result: Surroundings,
    pub(super) sandbox: SandboxId,
    pub(super) checkpoint: CheckpointId,
    pub(super) kept: Kept,
    /// Until a record says it.
    pub(super) hold: Hold,
}

/// What the first step stands on.
struct Ground {
    base: Base,
    around: Surroundings,
    /// Differs for what differs.
    words: String,
    provision: bool,
    hold: Option<Hold>,
}

type Outcome<T> = Result<T, BuildFailure>;

fn failed(step: StepName, message: impl Into<String>) -> BuildFailure {
    BuildFailure { message: message.into(), step: Some(step) }
}

impl Worker {
    pub(super) async fn attempt(&self, recipe: &Recipe) -> Outcome<Made> {
        let ground = self.ground(recipe).await?;
        let Ground { mut base, around, words, provision, hold } = ground;
        let plan = plan(recipe, &words, around, provision)
            .map_err(|error| failed(error.step, error.message))?;
        let (done, hold) = self.begin_from(&plan, recipe.steps.len(), &mut base, hold);
        let record = self.sandbox(&base)?;
        let id = record.id;
        self.live.sandbox.lock().replace(id);
        let record = self.sandboxes.bear(record, hold).await.map_err(|error| of_create(&error))?;
        crashpoint(Point::BuildBegun);
        let sandbox = Inside { worker: self, record, base };
        for stage in plan.stages.iter().skip(done) {
            sandbox.stage(stage, recipe.steps.len()).await?;
        }
        let (checkpoint, kept, hold) = sandbox.finalize(recipe, &plan.result).await?;
        let base = sandbox.base;
        Ok(Made { base, result: plan.result, sandbox: id, checkpoint, kept, hold })
    }

    async fn ground(&self, recipe: &Recipe) -> Outcome<Ground> {
        let (team, asked) = (self.record.team, self.record.resources);
        match &recipe.from {
            From::Image(name) | From::PrivateImage(name) => {
                let base = match self.context.accounts.image(team, name) {
                    Some(found) => Base { resources: asked, ..Base::from(&*found) },
                    None => self.pull(&recipe.from, name).await?,
                };
                let around = Surroundings {
                    env: base.env.clone(),
                    user: "user".into(),
                    workdir: Some("/home/user".into()),
                };
                Ok(Ground {
                    words: words(team, &base, &around),
                    base,
                    around,
                    provision: true,
                    hold: None,
                })
            }
            From::Template(text) => {
                let unknown = || {
                    failed(StepName::Base, format!("template '{text}' not found, or not yet built"))
                };
                let (mut base, hold) = match self.context.accounts.source(team, text) {
                    None => return Err(unknown()),
                    Some(Source::Template(template)) => (Base::from(&*template), None),
                    Some(Source::Snapshot { checkpoint, base }) => {
                        let hold = self.context.checkpoints.hold(checkpoint);
                        if !self.context.accounts.has_checkpoint(checkpoint) {
                            return Err(unknown());
                        }
                        // Its files; what ran in it belongs to its own start command.
                        (Base { origin: origin(checkpoint, Kept::Files), ..base }, Some(hold))
                    }
                };
                if !base.volumes.is_empty() {
                    let why = format!("template '{text}' has volumes, and none can be built of it");
                    return Err(failed(StepName::Base, why));
                }
                base.resources = Resources { disk_mib: base.resources.disk_mib, ..asked };
                let around = Surroundings {
                    env: base.env.clone(),
                    user: base.user.clone(),
                    workdir: base.workdir.clone(),
                };
                let provision = base.origin == Origin::Image;
                Ok(Ground { words: words(team, &base, &around), base, around, provision, hold })
            }
        }
    }

    async fn pull(&self, from: &From, name: &ImageName) -> Outcome<Base> {
        if matches!(from, From::PrivateImage(_)) && self.credentials.is_none() {
            let why = "its credentials were not kept when the appliance was started anew";
            return Err(failed(StepName::Base, format!("image '{name}': {why}: build it again")));
        }
        self.say(StepName::Base, Level::Info, format!("[base] FROM {name}"));
        let pull = Pull { source: name.source(), credentials: self.credentials.clone() };
        let pulled = self.context.zone.pull_image(pull).await.map_err(|error| {
            if let PullError::Internal(_) = error {
                tracing::warn!(
                    image = %name,
                    error = &error as &dyn std::error::Error,
                    "an image can't be pulled"
                );
            }
            failed(StepName::Base, format!("image '{name}': {error}"))
        })?;
        let Pulled { image: ImageInfo { digest, size_bytes }, env, was_here } = pulled;
        let how = if was_here { "is here already" } else { "was pulled" };
        let mib = size_bytes.div_ceil(1 << 20);
        self.say(StepName::Base, Level::Info, format!("[base] sha256:{digest} {how}, {mib} MiB"));
        Ok(Base {
            id: self.record.template,
            image: digest,
            resources: self.record.resources,
            platform: Platform::default(),
            mode: NetworkPolicy::OPEN.mode,
            env,
            user: "user".into(),
            workdir: None,
            origin: Origin::Image,
            volumes: Vec::new(),
        })
    }

    /// How many stages are done already.
    fn begin_from(
        &self,
        plan: &Plan,
        of: usize,
        base: &mut Base,
        hold: Option<Hold>,
    ) -> (usize, Option<Hold>) {
        let layers = &self.context.accounts;
        let Some(at) = cached(&plan.stages, |key| layers.layer(key).is_some()) else {
            return (0, hold);
        };
        let found = plan.stages.get(at).and_then(|stage| layers.layer(stage.key));
        let Some(layer) = found else { return (0, hold) };
        let own = self.context.checkpoints.hold(layer.checkpoint);
        // It may have been collected since it was looked up.
        if !layers.has_checkpoint(layer.checkpoint) {
            return (0, hold);
        }
        base.origin = origin(layer.checkpoint, Kept::Files);
        for stage in plan.stages.iter().take(at + 1) {
            self.say(
                stage.name,
                Level::Info,
                format!("CACHED {} {}", prefix(stage, of), tail(stage)),
            );
        }
        self.use_layer(&layer);
        (at + 1, Some(own))
    }

    fn use_layer(&self, layer: &LayerRecord) {
        let used = LayerRecord { used_at: self.context.now(), ..*layer };
        let context = Arc::clone(&self.context);
        drop(self.context.tasks.spawn("use layer", |_stop| async move {
            if let Err(error) = context.put_layer(used).await {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "a layer's use is not kept"
                );
            }
        }));
    }

    /// Nobody's: no team sees it, and the next process ends what this one leaves.
    fn sandbox(&self, base: &Base) -> Outcome<SandboxRecord> {
        let context = &self.context;
        let info = context.zone.info();
        let new = NewSandbox {
            template: self.record.template.to_string(),
            timeout: context.config.build_budget,
            secure: true,
            env: [].into(),
            metadata: [("build".to_owned(), self.record.id.to_string())].into(),
            internet: None,
            network: None,
            lifecycle: Lifecycle::default(),
            volumes: Vec::new(),
            tokens: Tokens::default(),
            idempotency_key: None,
        };
        let made = new.record(Birth {
            id: SandboxId::random(info.region, context.zone_code, &*context.random),
            team: TeamId::NIL,
            base: Base { id: self.record.template, env: [].into(), ..base.clone() },
            zone: info.name,
            agent_token: tokens::token(&*context.random),
            traffic_token: tokens::token(&*context.random),
            execution: ExecutionId::random(&*context.random),
            volumes: Vec::new(),
            now: context.now(),
            budget: context.config.create_budget,
        });
        made.map_err(|invalid| failed(StepName::Base, invalid.to_string()))
    }

    fn say(&self, step: StepName, level: Level, message: impl Into<String>) {
        self.live.log.say(&*self.context.clock, level, Some(step), message);
    }
}

fn prefix(stage: &Stage, of: usize) -> String {
    match stage.name {
        StepName::Base => "[base]".into(),
        StepName::Step(number) => format!("[builder {number}/{of}]"),
        StepName::Finalize => "[finalize]".into(),
    }
}

fn tail(stage: &Stage) -> String {
    let key: String = stage.key.to_string().chars().take(8).collect();
    format!("{} [{key}]", stage.title)
}

fn words(team: TeamId, base: &Base, around: &Surroundings) -> String {
    let Base { image, resources, platform, origin, .. } = base;
    format!("{team} {image} {resources:?} {} {origin:?} {around:?}", platform.name())
}

struct Inside<'w> {
    worker: &'w Worker,
    record: Arc<SandboxRecord>,
    base: Base,
}

impl Inside<'_> {
    fn agent(&self) -> Agent {
        Agent {
            context: Arc::clone(&self.worker.context),
            sandbox: self.record.id,
            token: self.record.spec.agent_token.clone(),
        }
    }

    async fn stage(&self, stage: &Stage, of: usize) -> Outcome<()> {
        let prefix = prefix(stage, of);
        self.worker.say(stage.name, Level::Info, format!("{prefix} {}", tail(stage)));
        match &stage.action {
            Action::Provision => self.script(stage.name, Script::provision()).await.map(drop)?,
            Action::Run { command, user } => {
                self.run(stage, &prefix, command, user).await?;
            }
            Action::Copy { files, from, to, owner, mode } => {
                let rule = Rule { from: from.clone(), to: to.clone(), mode: *mode };
                let archive = self.worker.context.uploads.place(self.worker.record.team, files);
                self.copy(stage.name, &archive, &rule, owner).await?;
            }
            Action::MakeFolder { path } => {
                let script = Script::make_folder(path, &stage.around.user);
                self.script(stage.name, script).await.map(drop)?;
            }
            Action::MakeUser { name, sudo } => {
                self.script(stage.name, Script::make_user(name, *sudo)).await.map(drop)?;
            }
            Action::Nothing => {}
        }
        if stage.action.leaves_a_layer() {
            self.keep_layer(stage.name, stage.key).await?;
        }
        Ok(())
    }

    async fn keep_layer(&self, step: StepName, key: LayerKey) -> Outcome<()> {
        let Taken { checkpoint, hold, .. } = self.checkpoint(step, Kept::Files).await?;
        crashpoint(Point::BuildLayerSaved);
        let context = &self.worker.context;
        let layer = LayerRecord {
            key,
            team: self.worker.record.team,
            checkpoint,
            image: self.base.image,
            used_at: context.now(),
        };
        let written = context.put_layer(layer).await;
        drop(hold);
        match written {
            Ok(replaced) => {
                if let Some(stale) = replaced {
                    context.discard_later(stale, None);
                }
            }
            // The build goes on without it.
            Err(error) => {
                context.discard_later(checkpoint, None);
                tracing::warn!(error = &error as &dyn std::error::Error, "a layer is not kept");
            }
        }
        Ok(())
    }

    async fn checkpoint(&self, step: StepName, kept: Kept) -> Outcome<Taken> {
        let taken = self.worker.sandboxes.checkpoint(Scope::Operator, self.record.id, kept).await;
        taken.map_err(|error| {
            failed(
                step,
                match error {
                    CheckpointError::NotFound(_) | CheckpointError::Ended => {
                        "the sandbox of the build ended".to_owned()
                    }
                    error @ (CheckpointError::Busy
                    | CheckpointError::DiskFull
                    | CheckpointError::AgentUnresponsive
                    | CheckpointError::DeletedFileOpen(_)
                    | CheckpointError::TimedOut
                    | CheckpointError::Failed
                    | CheckpointError::ZoneUnavailable) => {
                        format!("keep what the step has made: {error}")
                    }
                },
            )
        })
    }

    async fn run(&self, stage: &Stage, prefix: &str, command: &str, user: &str) -> Outcome<()> {
        let ran = self.shell(stage.name, prefix, command, user, &stage.around, None).await;
        match ran {
            Ok(Exit { is_success: true, .. }) => Ok(()),
            Ok(Exit { status, .. }) => {
                Err(failed(stage.name, format!("failed to run command '{command}': {status}")))
            }
            Err(error) => Err(failed(
                stage.name,
                format!("failed to run command '{command}': command failed: {error}"),
            )),
        }
    }

    /// As a login shell does it, told line by line.
    async fn shell(
        &self,
        step: StepName,
        prefix: &str,
        command: &str,
        user: &str,
        around: &Surroundings,
        limit: Option<Duration>,
    ) -> Result<Exit, AgentError> {
        let command = Command {
            program: "/bin/bash".into(),
            args: vec!["-l".into(), "-c".into(), command.into()],
            user: user.into(),
            env: around.env.clone(),
            workdir: Some(around.folder()),
            limit,
        };
        let mut splitter = Splitter::default();
        let say = |stream: Stream, line: &str| {
            let (name, level) = match stream {
                Stream::Out => ("stdout", Level::Info),
                Stream::Err => ("stderr", Level::Warn),
            };
            self.worker.say(step, level, format!("{prefix} [{name}]: {line}"));
        };
        let agent = self.agent();
        let ran = agent.run(command, |said| {
            if let Said::Bytes(stream, bytes) = said {
                splitter.push(stream, &bytes, say);
            }
        });
        let ran = ran.await;
        splitter.finish(say);
        ran
    }

    /// Of ours, as root. Gives what it prints.
    async fn script(&self, step: StepName, script: Script) -> Outcome<String> {
        let Script { text, args } = script;
        let args = [vec!["-c".to_owned(), text, "sh".to_owned()], args].concat();
        let command = Command {
            program: "/bin/sh".into(),
            args,
            user: "root".into(),
            workdir: Some("/".into()),
            limit: Some(SCRIPT_WITHIN),
            ..Command::default()
        };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let agent = self.agent();
        let ran = agent.run(command, |said| match said {
            Said::Started => {}
            Said::Bytes(Stream::Out, bytes) => out.extend_from_slice(&bytes),
            Said::Bytes(Stream::Err, bytes) => err.extend_from_slice(&bytes),
        });
        match ran.await {
            Ok(Exit { is_success: true, .. }) => Ok(String::from_utf8_lossy(&out).into_owned()),
            Ok(Exit { status, .. }) => {
                let said = String::from_utf8_lossy(&err);
                Err(failed(step, format!("{} ({status})", said.trim())))
            }
            Err(error) => Err(failed(step, error.to_string())),
        }
    }

    async fn copy(
        &self,
        step: StepName,
        archive: &std::path::Path,
        rule: &Rule,
        owner: &str,
    ) -> Outcome<()> {
        let blocking = |error: tokio::task::JoinError| failed(step, error.to_string());
        let listed = archive.to_owned();
        let entries = tokio::task::spawn_blocking(move || copy::list(&listed)).await;
        let entries = entries.map_err(blocking)?.map_err(|error| match &error {
            copy::RewriteError::Read(cause) if cause.kind() == std::io::ErrorKind::NotFound => {
                failed(step, "the files of this step were not uploaded")
            }
            copy::RewriteError::Copy(_)
            | copy::RewriteError::Entry(_)
            | copy::RewriteError::Read(_)
            | copy::RewriteError::Write => failed(step, error.to_string()),
        })?;
        let folder = match rule.to.trim_end_matches('/') {
            "" => "/",
            folder => folder,
        };
        let told = self.script(step, Script::look(folder, owner)).await?;
        let (there, owner) = looked(&told).ok_or_else(|| {
            failed(step, format!("'{owner}' is no user and group of the sandbox"))
        })?;
        let (sender, pieces) = mpsc::channel(PIECES);
        let (source, rule) = (archive.to_owned(), rule.clone());
        let now = self.worker.context.now();
        let rewriting = tokio::task::spawn_blocking(move || {
            copy::rewrite(&source, &entries, &rule, &there, (owner, now), sender)
        });
        let place = format!("/.sandboxo-copy-{}.tar", self.worker.record.id);
        let put = self.agent().put(&place, pieces).await;
        match rewriting.await.map_err(blocking)? {
            Ok(()) => {}
            Err(copy::RewriteError::Write) if put.is_err() => {}
            Err(error) => return Err(failed(step, error.to_string())),
        }
        put.map_err(|error| failed(step, format!("copy the files: {error}")))?;
        self.script(step, Script::unpack(&place)).await.map(drop)
    }

    async fn finalize(
        &self,
        recipe: &Recipe,
        result: &Surroundings,
    ) -> Outcome<(CheckpointId, Kept, Hold)> {
        let step = StepName::Finalize;
        let BuildRecord { id, template, .. } = &self.worker.record;
        self.worker.say(step, Level::Info, "[finalize] Finalizing the template");
        self.script(step, Script::finalize(&template.to_string(), &id.to_string())).await?;
        let kept = if recipe.start.is_some() { Kept::Memory } else { Kept::Files };
        match &recipe.start {
            Some(start) => {
                self.worker.say(step, Level::Info, format!("[finalize] START {start}"));
                let started = self.shell(step, "[start]", start, &result.user, result, None);
                let ready = self.ready(recipe, result);
                tokio::pin!(started, ready);
                tokio::select! {
                    ended = &mut started => {
                        let status = match ended {
                            Ok(Exit { is_success: true, .. }) => None,
                            Ok(Exit { status, .. }) => Some(status),
                            Err(error) => Some(format!("command failed: {error}")),
                        };
                        if let Some(status) = status {
                            let why = format!("failed to run command '{start}': {status}");
                            return Err(failed(step, why));
                        }
                        ready.await?;
                    }
                    is_ready = &mut ready => is_ready?,
                }
            }
            None if recipe.ready.is_some() => self.ready(recipe, result).await?,
            None => {}
        }
        let Taken { checkpoint, kept, hold, .. } = self.checkpoint(step, kept).await?;
        self.worker.say(step, Level::Info, "[finalize] Build finished");
        Ok((checkpoint, kept, hold))
    }

    async fn ready(&self, recipe: &Recipe, around: &Surroundings) -> Outcome<()> {
        let step = StepName::Finalize;
        let Some(ready) = &recipe.ready else {
            sleep(SETTLES_WITHIN).await;
            return Ok(());
        };
        self.worker.say(step, Level::Info, format!("[finalize] READY {ready}"));
        let asked = async {
            loop {
                let ran = self.shell(step, "[ready]", ready, &around.user, around, None).await;
                match ran {
                    Ok(Exit { is_success: true, .. }) => return Ok(()),
                    Ok(Exit { .. }) => sleep(READY_AGAIN).await,
                    Err(error) => {
                        let why =
                            format!("failed to run command '{ready}': command failed: {error}");
                        return Err(failed(step, why));
                    }
                }
            }
        };
        let minutes = READY_WITHIN.as_secs() / 60;
        tokio::time::timeout(READY_WITHIN, asked).await.unwrap_or_else(|_elapsed| {
            Err(failed(step, format!("the ready command did not succeed within {minutes} minutes")))
        })
    }
}

/// `None`: no such user or group.
fn looked(told: &str) -> Option<(There, Owner)> {
    let mut lines = told.lines();
    let what = match lines.next()? {
        "folder" => What::Folder,
        "other" => What::Other,
        _ => What::Nothing,
    };
    let nearest = lines.next()?.to_owned();
    let mut id = || lines.next()?.parse().ok();
    let owner = Owner { uid: id()?, gid: id()? };
    Some((There { what, nearest }, owner))
}

fn of_create(error: &CreateError) -> BuildFailure {
    failed(StepName::Base, format!("the sandbox of the build did not start: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_looked_at() {
        let there = |what, nearest: &str| There { what, nearest: nearest.into() };
        for (told, expected) in [
            ("folder\n/app\n1000\n1001\n", Some((there(What::Folder, "/app"), (1000, 1001)))),
            ("other\n/\n0\n0\n", Some((there(What::Other, "/"), (0, 0)))),
            ("nothing\n/a b\n0\n0\n", Some((there(What::Nothing, "/a b"), (0, 0)))),
            ("nothing\n/\n\n0\n", None),
            ("nothing\n/\n0\n\n", None),
            ("", None),
        ] {
            let found = looked(told).map(|(there, owner)| (there, (owner.uid, owner.gid)));
            assert_eq!(found, expected, "{told:?}");
        }
    }
}
