//! Snapshots: what sandboxes start from as they do from templates, memory and all.

use std::{collections::BTreeMap, sync::Arc};

use sandboxo_model::{
    SnapshotBuild, SnapshotKind, SnapshotRecord, TemplateNameError, TemplateRecord, TemplateRef,
    decide::{
        list::NotACursor,
        snapshot::{self as decide_snapshot, Entry, Named},
    },
};
use sandboxo_store::{Read as _, StoreError};
use sandboxo_zone_protocol::{BuildId, CheckpointId, Kept, SandboxId, TeamId, TemplateId};

use crate::{CheckpointError, ListError, Sandboxes, Scope, context::Context};

/// A cheap clone of one thing.
#[derive(Clone)]
pub struct Snapshots {
    context: Arc<Context>,
}

/// As clients call it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// `team/name:tag`, or `id:tag` of one without a name. Taken by create and delete.
    pub id: String,
    pub names: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SnapshotQuery {
    pub sandbox: Option<SandboxId>,
    /// Nothing has an unknown one.
    pub name: Option<String>,
    /// 1 to 100.
    pub limit: usize,
    /// From the page before.
    pub token: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotPage {
    pub items: Vec<Snapshot>,
    /// `None` on the last page.
    pub next: Option<decide_snapshot::Cursor>,
}

#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error(transparent)]
    Name(#[from] TemplateNameError),
    #[error("'{0}' is the name of another team")]
    Foreign(String),
    #[error("'{0}' is the name of a template")]
    NameTaken(String),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error("the disk is full")]
    DiskFull,
    #[error("record the snapshot")]
    Store(#[source] StoreError),
}

impl From<StoreError> for SnapshotError {
    fn from(error: StoreError) -> Self {
        if matches!(error, StoreError::DiskFull) { Self::DiskFull } else { Self::Store(error) }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum DeleteSnapshotError {
    #[error("snapshot '{0}' not found")]
    NotFound(String),
    #[error("the disk is full")]
    DiskFull,
    #[error("record the deletion")]
    Store(#[source] StoreError),
}

impl From<StoreError> for DeleteSnapshotError {
    fn from(error: StoreError) -> Self {
        if matches!(error, StoreError::DiskFull) { Self::DiskFull } else { Self::Store(error) }
    }
}

impl Sandboxes {
    /// It goes on; a paused one stays so. One that has the name and tag already is replaced.
    /// Dropping the future does not stop it.
    pub async fn snapshot(
        &self,
        team: TeamId,
        id: SandboxId,
        name: Option<&str>,
        kept: Kept,
    ) -> Result<Snapshot, SnapshotError> {
        let (this, context) = (self.clone(), Arc::clone(self.context()));
        let name = name.map(|text| context.own_name(team, text)).transpose()?;
        let work = async move {
            let taken = this.checkpoint(Scope::Team(team), id, kept).await?;
            let build = SnapshotBuild::of(
                &taken.record,
                BuildId::random(&*context.random),
                context.now(),
                taken.checkpoint,
                taken.kept,
            );
            let recorded = context.record_snapshot(team, name, build).await;
            drop(taken.hold);
            let stale = match &recorded {
                Ok((_, replaced)) => *replaced,
                Err(_) => Some(taken.checkpoint),
            };
            if let Some(stale) = stale {
                context.discard_later(stale, None);
            }
            recorded.map(|(snapshot, _)| snapshot)
        };
        self.context().to_the_end("snapshot", work).await
    }
}

impl Context {
    fn own_name(&self, team: TeamId, text: &str) -> Result<TemplateRef, SnapshotError> {
        let name: TemplateRef = text.parse()?;
        let own = |owner: &str| {
            self.accounts.read(|maps| maps.teams.get(&team).is_some_and(|it| it.name == *owner))
        };
        match &name.team {
            Some(owner) if !own(owner) => Err(SnapshotError::Foreign(owner.clone())),
            Some(_) | None if self.is_of_template(team, &name) => {
                Err(SnapshotError::NameTaken(name.name.to_string()))
            }
            Some(_) | None => Ok(name),
        }
    }

    fn is_of_template(&self, team: TeamId, name: &TemplateRef) -> bool {
        self.accounts.built(team, name.name.as_str()).is_some()
            || self.accounts.read(|maps| {
                maps.templates.values().any(|it| it.team == team && it.name == name.name)
            })
    }

    /// With the checkpoint that is of no use any more.
    async fn record_snapshot(
        &self,
        team: TeamId,
        name: Option<TemplateRef>,
        build: SnapshotBuild,
    ) -> Result<(Snapshot, Option<CheckpointId>), SnapshotError> {
        let _changing = self.accounts.changing.lock().await;
        let (name, tag) = match name {
            Some(TemplateRef { name, tag, .. }) => (Some(name), tag),
            None => (None, TemplateRef::DEFAULT_TAG.to_owned()),
        };
        let fresh = SnapshotRecord {
            id: TemplateId::random(&*self.random),
            kind: SnapshotKind::Taken,
            team,
            public: false,
            name,
            builds: BTreeMap::new(),
            created_at: build.at,
        };
        let under = tag.clone();
        let write = self.store.write(move |tx| {
            let mut record = fresh;
            if let Some(name) = &record.name {
                let is_ours = |it: &TemplateRecord| it.team == team && it.name == *name;
                if tx.all::<TemplateRecord>()?.iter().any(is_ours) {
                    return Err(SnapshotError::NameTaken(name.to_string()));
                }
                let known = tx.all::<SnapshotRecord>()?;
                let known =
                    known.into_iter().find(|it| it.team == team && it.name.as_ref() == Some(name));
                if known.as_ref().is_some_and(|it| it.kind == SnapshotKind::Built) {
                    return Err(SnapshotError::NameTaken(name.to_string()));
                }
                record = known.unwrap_or(record);
            }
            let replaced = record.builds.insert(under, build);
            tx.put(&record);
            Ok((record, replaced))
        });
        let (record, replaced) = write.await?;
        let record = Arc::new(record);
        self.accounts.put_snapshot(Arc::clone(&record));
        Ok((self.called(&Entry { record, tag }), replaced.map(|build| build.checkpoint)))
    }

    fn called(&self, Entry { record, tag }: &Entry<Arc<SnapshotRecord>>) -> Snapshot {
        let name = record.name.as_ref().map(|name| {
            let owner = self
                .accounts
                .read(|maps| maps.teams.get(&record.team).map(|team| team.name.clone()));
            match owner {
                Some(owner) => format!("{owner}/{name}:{tag}"),
                None => format!("{name}:{tag}"),
            }
        });
        Snapshot {
            id: name.clone().unwrap_or_else(|| format!("{}:{tag}", record.id)),
            names: name.into_iter().collect(),
        }
    }
}

impl Snapshots {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    /// Newest first.
    pub fn list(
        &self,
        scope: impl Into<Scope>,
        query: SnapshotQuery,
    ) -> Result<SnapshotPage, ListError> {
        let scope = scope.into();
        let SnapshotQuery { sandbox, name, limit, token } = query;
        if !(1..=ListError::MAX_LIMIT).contains(&limit) {
            return Err(ListError::BadLimit);
        }
        let after = match token {
            Some(token) => Some(token.parse().map_err(|NotACursor| ListError::BadToken)?),
            None => None,
        };
        let nothing = Ok(SnapshotPage { items: Vec::new(), next: None });
        let (name, owner) = match name {
            Some(text) => match text.parse::<TemplateRef>() {
                Ok(asked) => {
                    let tag = text.contains(':').then_some(asked.tag);
                    (Some(Named { name: asked.name.to_string(), tag }), asked.team)
                }
                Err(_of_nothing) => return nothing,
            },
            None => (None, None),
        };
        let records: Vec<_> = self.context.accounts.read(|maps| {
            let of_owner = |team| {
                let owner_is =
                    |owner: &String| maps.teams.get(&team).is_some_and(|team| team.name == *owner);
                owner.as_ref().is_none_or(owner_is)
            };
            let own = maps.snapshots.values().filter(|it| scope.includes(it.team));
            own.filter(|it| of_owner(it.team)).map(Arc::clone).collect()
        });
        let query = decide_snapshot::Query { sandbox, name, limit, after };
        let page = decide_snapshot::page(records, &query);
        let items = page.items.iter().map(|entry| self.context.called(entry)).collect();
        Ok(SnapshotPage { items, next: page.next })
    }

    /// By what clients call it. What has started from it, or starts just now, goes on.
    pub async fn delete(&self, team: TeamId, text: &str) -> Result<(), DeleteSnapshotError> {
        let unknown = DeleteSnapshotError::NotFound(text.to_owned());
        let found = self.context.accounts.snapshot(team, text);
        let Some((found, tag)) = found.filter(|(it, _)| it.team == team) else {
            return Err(unknown);
        };
        let (context, id) = (Arc::clone(&self.context), found.id);
        let work = async move {
            let _changing = context.accounts.changing.lock().await;
            let write = context.store.write(move |tx| {
                let Some(mut record) = tx.get::<SnapshotRecord>(&id)? else { return Err(unknown) };
                let Some(build) = record.builds.remove(&tag) else { return Err(unknown) };
                if record.builds.is_empty() {
                    tx.remove::<SnapshotRecord>(&id);
                } else {
                    tx.put(&record);
                }
                Ok((record, build.checkpoint))
            });
            let (record, checkpoint) = write.await?;
            if record.builds.is_empty() {
                context.accounts.remove_snapshot(id);
            } else {
                context.accounts.put_snapshot(Arc::new(record));
            }
            context.discard_later(checkpoint, None);
            Ok(())
        };
        self.context.to_the_end("delete snapshot", work).await
    }
}
