//! Which version of a template is called what, and the end of a template with all of them.

use std::sync::Arc;

use sandboxo_model::{
    BuildLogRecord, BuildRecord, SnapshotBuild, SnapshotKind, SnapshotRecord, TemplateNameError,
    TemplateRef,
};
use sandboxo_store::{Read as _, StoreError};
use sandboxo_zone_protocol::{BuildId, CheckpointId, TeamId, Timestamp};

use super::Builds;
use crate::{DeleteTemplateError, Scope};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tag {
    pub name: String,
    pub build: BuildId,
    pub at: Timestamp,
}

#[derive(Debug, thiserror::Error)]
pub enum TagError {
    #[error(transparent)]
    Name(#[from] TemplateNameError),
    #[error("template '{0}' not found")]
    NotFound(String),
    #[error("the disk is full")]
    DiskFull,
    #[error("record the tags")]
    Store(#[source] StoreError),
}

impl From<StoreError> for TagError {
    fn from(error: StoreError) -> Self {
        if matches!(error, StoreError::DiskFull) { Self::DiskFull } else { Self::Store(error) }
    }
}

impl Builds {
    /// Those that builds make, ready or not, by name.
    pub fn templates(&self, scope: impl Into<Scope>) -> Vec<Arc<SnapshotRecord>> {
        let scope = scope.into();
        let mut templates: Vec<_> = self.context.accounts.read(|maps| {
            let own = maps.snapshots.values();
            own.filter(|it| scope.includes(it.team) && it.kind == SnapshotKind::Built)
                .cloned()
                .collect()
        });
        templates.sort_by(|one, other| (&one.name, one.id).cmp(&(&other.name, other.id)));
        templates
    }

    /// By id or name.
    pub fn template(&self, team: TeamId, text: &str) -> Option<Arc<SnapshotRecord>> {
        self.context.accounts.built(team, text)
    }

    /// `team/alias`, as clients are shown it.
    pub fn full_name(&self, template: &SnapshotRecord) -> String {
        let owner = self
            .context
            .accounts
            .read(|maps| maps.teams.get(&template.team).map(|it| it.name.clone()));
        let name =
            template.name.as_ref().map_or_else(|| template.id.to_string(), ToString::to_string);
        owner.map_or_else(|| name.clone(), |owner| format!("{owner}/{name}"))
    }

    /// Also another team's that is published, if it is ready.
    pub fn usable(&self, team: TeamId, text: &str) -> Option<Arc<SnapshotRecord>> {
        let found = self.context.accounts.snapshot(team, text);
        found.map(|(record, _)| record).filter(|it| it.kind == SnapshotKind::Built)
    }

    /// Lets other teams use it, or no more; what has started from it goes on.
    pub async fn publish(
        &self,
        team: TeamId,
        text: &str,
        public: bool,
    ) -> Result<Arc<SnapshotRecord>, TagError> {
        let not_found = || TagError::NotFound(text.to_owned());
        let record = self.context.accounts.built(team, text).ok_or_else(not_found)?;
        self.change(&record, not_found(), move |record| record.public = public).await?;
        self.template(team, &record.id.to_string()).ok_or_else(not_found)
    }

    /// Of those that are ready.
    pub fn tags(&self, team: TeamId, template: &str) -> Option<Vec<Tag>> {
        let record = self.context.accounts.built(team, template)?;
        let tag = |(name, build): (&String, &SnapshotBuild)| Tag {
            name: name.clone(),
            build: build.id,
            at: build.at,
        };
        Some(record.builds.iter().map(tag).collect())
    }

    /// The version that is called so gets more names. Gives its id.
    pub async fn tag(
        &self,
        team: TeamId,
        target: &str,
        tags: Vec<String>,
    ) -> Result<(BuildId, Vec<String>), TagError> {
        let TemplateRef { name, .. } = target.parse()?;
        let tags: Vec<String> =
            tags.iter().map(|tag| tag_of(&name.to_string(), tag)).collect::<Result<_, _>>()?;
        let not_found = || TagError::NotFound(target.to_owned());
        let found = self.context.accounts.snapshot(team, target);
        let (record, tag) = found.filter(|(it, _)| is_own(it, team)).ok_or_else(not_found)?;
        let build = record.builds.get(&tag).ok_or_else(not_found)?.clone();
        let id = build.id;
        let (unknown, given) = (not_found(), tags.clone());
        self.change(&record, unknown, move |record| {
            for tag in given {
                record.builds.insert(tag, build.clone());
            }
        })
        .await?;
        Ok((id, tags))
    }

    /// A version without a name goes.
    pub async fn untag(
        &self,
        team: TeamId,
        template: &str,
        tags: Vec<String>,
    ) -> Result<(), TagError> {
        let not_found = || TagError::NotFound(template.to_owned());
        let record = self.context.accounts.built(team, template).ok_or_else(not_found)?;
        let tags: Vec<String> =
            tags.iter().map(|tag| tag_of("any", tag)).collect::<Result<_, _>>()?;
        if let Some(missing) = tags.iter().find(|tag| !record.builds.contains_key(*tag)) {
            return Err(TagError::NotFound(format!("{template}:{missing}")));
        }
        self.change(&record, not_found(), move |record| {
            for tag in &tags {
                record.builds.remove(tag);
            }
        })
        .await
    }

    async fn change(
        &self,
        record: &SnapshotRecord,
        not_found: TagError,
        change: impl FnOnce(&mut SnapshotRecord) + Send + 'static,
    ) -> Result<(), TagError> {
        let (context, id) = (Arc::clone(&self.context), record.id);
        let work = async move {
            let _changing = context.accounts.changing.lock().await;
            let write = context.store.write(move |tx| {
                let Some(mut record) = tx.get::<SnapshotRecord>(&id)? else {
                    return Err(not_found);
                };
                let before = checkpoints(&record);
                change(&mut record);
                tx.put(&record);
                Ok((record, before))
            });
            let (record, before) = write.await?;
            let after = checkpoints(&record);
            context.accounts.put_snapshot(Arc::new(record));
            for stale in before.into_iter().filter(|it| !after.contains(it)) {
                context.discard_later(stale, None);
            }
            Ok(())
        };
        self.context.to_the_end("tag template", work).await
    }

    /// With all its versions; builds of it that go on end. By id or name; with a tag that alone.
    pub async fn delete(
        &self,
        scope: impl Into<Scope>,
        text: &str,
    ) -> Result<(), DeleteTemplateError> {
        let not_found = || DeleteTemplateError::NotFound(text.to_owned());
        let team = match scope.into() {
            Scope::Team(team) => team,
            Scope::Operator => {
                let teams: Vec<TeamId> =
                    self.context.accounts.read(|maps| maps.teams.keys().copied().collect());
                let owner = teams
                    .into_iter()
                    .find(|team| self.context.accounts.built(*team, text).is_some());
                owner.ok_or_else(not_found)?
            }
        };
        if let Some((name, tag)) = text.rsplit_once(':') {
            return self.untag(team, name, vec![tag.to_owned()]).await.map_err(
                |error| match error {
                    TagError::Name(_) | TagError::NotFound(_) => not_found(),
                    TagError::DiskFull => DeleteTemplateError::DiskFull,
                    TagError::Store(source) => DeleteTemplateError::Store(source),
                },
            );
        }
        let id = self.context.accounts.built(team, text).ok_or_else(not_found)?.id;
        let this = self.clone();
        let unknown = not_found();
        let work = async move {
            let context = &this.context;
            let _changing = context.accounts.changing.lock().await;
            let write = context.store.write(move |tx| {
                let Some(record) = tx.get::<SnapshotRecord>(&id)? else { return Err(unknown) };
                let live = tx.live_sandboxes()?;
                let of_it = |it: &&sandboxo_model::SandboxRecord| {
                    it.template.id == id && it.team != TeamId::NIL
                };
                let sandboxes = live.iter().filter(of_it).count();
                if sandboxes > 0 {
                    return Err(DeleteTemplateError::InUse { sandboxes });
                }
                for build in tx.all::<BuildRecord>()?.iter().filter(|build| build.template == id) {
                    tx.remove::<BuildLogRecord>(&build.id);
                    tx.remove::<BuildRecord>(&build.id);
                }
                tx.remove::<SnapshotRecord>(&id);
                Ok(record)
            });
            let record = write.await?;
            context.accounts.remove_snapshot(id);
            for live in this.state.live.lock().values().filter(|live| live.is_of(id)) {
                live.cancel.cancel();
            }
            for stale in checkpoints(&record) {
                context.discard_later(stale, None);
            }
            this.templates.tell_images().await;
            Ok(())
        };
        self.context.to_the_end("delete template", work).await
    }
}

fn is_own(record: &SnapshotRecord, team: TeamId) -> bool {
    record.team == team && record.kind == SnapshotKind::Built
}

/// A newer version keeps its tag. Gives the checkpoints that have no name any more.
pub(super) fn put(
    template: &mut SnapshotRecord,
    tags: &[String],
    version: &SnapshotBuild,
) -> Vec<CheckpointId> {
    let before = checkpoints(template);
    for tag in tags {
        let newer = template.builds.get(tag).is_some_and(|known| known.at > version.at);
        if !newer {
            template.builds.insert(tag.clone(), version.clone());
        }
    }
    let after = checkpoints(template);
    let mut stale = before;
    stale.push(version.checkpoint);
    stale.retain(|it| !after.contains(it));
    stale
}

fn checkpoints(record: &SnapshotRecord) -> Vec<CheckpointId> {
    record.builds.values().map(|build| build.checkpoint).collect()
}

/// A tag alone, or `name:tag`.
fn tag_of(name: &str, text: &str) -> Result<String, TemplateNameError> {
    let whole = if text.contains(':') { text.to_owned() } else { format!("{name}:{text}") };
    whole.parse::<TemplateRef>().map(|parsed| parsed.tag)
}
