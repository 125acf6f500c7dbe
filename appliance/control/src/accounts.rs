//! Teams, keys, templates, snapshots, volumes, secrets and layers of builds in memory. Written
//! after the store has them, under one lock each, so that memory never runs ahead of the disk.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use parking_lot::RwLock;
use sandboxo_model::{
    ApiKeyRecord, Base, ImageName, LayerKey, LayerRecord, SecretName, SecretRecord, SnapshotKind,
    SnapshotRecord, TeamRecord, TemplateName, TemplateRecord, TemplateRef, VolumePhase,
    VolumeRecord, decide,
};
use sandboxo_zone_protocol::{
    ApiKeyId, CheckpointId, ImageDigest, Shape, TeamId, TemplateId, VolumeId,
};

#[derive(Default)]
pub(crate) struct Accounts {
    maps: RwLock<Maps>,
    /// One change at a time: what is published last was written last.
    pub(crate) changing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
pub(crate) struct Maps {
    pub(crate) teams: BTreeMap<TeamId, Arc<TeamRecord>>,
    pub(crate) keys: BTreeMap<ApiKeyId, Arc<ApiKeyRecord>>,
    keys_by_hash: HashMap<[u8; 32], ApiKeyId>,
    pub(crate) templates: BTreeMap<TemplateId, Arc<TemplateRecord>>,
    pub(crate) snapshots: BTreeMap<TemplateId, Arc<SnapshotRecord>>,
    layers: BTreeMap<LayerKey, Arc<LayerRecord>>,
    volumes: BTreeMap<VolumeId, Arc<VolumeRecord>>,
    /// Asked for by name, at each request that goes out with one.
    secrets: BTreeMap<(TeamId, SecretName), Arc<SecretRecord>>,
}

/// What a client wants to start from.
#[expect(clippy::large_enum_variant, reason = "there is one for each request")]
pub(crate) enum Source {
    Template(Arc<TemplateRecord>),
    Snapshot { checkpoint: CheckpointId, base: Base },
}

impl Source {
    pub(crate) fn id(&self) -> TemplateId {
        match self {
            Self::Template(template) => template.id,
            Self::Snapshot { base, .. } => base.id,
        }
    }
}

impl Accounts {
    pub(crate) fn new(
        teams: Vec<TeamRecord>,
        keys: Vec<ApiKeyRecord>,
        templates: Vec<TemplateRecord>,
        snapshots: Vec<SnapshotRecord>,
        layers: Vec<LayerRecord>,
        volumes: Vec<VolumeRecord>,
        secrets: Vec<SecretRecord>,
    ) -> Self {
        let accounts = Self::default();
        for team in teams {
            accounts.put_team(Arc::new(team));
        }
        for key in keys {
            accounts.put_key(Arc::new(key));
        }
        for template in templates {
            accounts.put_template(Arc::new(template));
        }
        for snapshot in snapshots {
            accounts.put_snapshot(Arc::new(snapshot));
        }
        for layer in layers {
            accounts.put_layer(Arc::new(layer));
        }
        for volume in volumes {
            accounts.put_volume(Arc::new(volume));
        }
        for secret in secrets {
            accounts.put_secret(Arc::new(secret));
        }
        accounts
    }

    pub(crate) fn put_team(&self, team: Arc<TeamRecord>) {
        self.maps.write().teams.insert(team.id, team);
    }

    pub(crate) fn put_key(&self, key: Arc<ApiKeyRecord>) {
        let mut maps = self.maps.write();
        maps.keys_by_hash.insert(key.hash, key.id);
        maps.keys.insert(key.id, key);
    }

    pub(crate) fn remove_key(&self, id: ApiKeyId) {
        let mut maps = self.maps.write();
        if let Some(key) = maps.keys.remove(&id) {
            maps.keys_by_hash.remove(&key.hash);
        }
    }

    pub(crate) fn put_template(&self, template: Arc<TemplateRecord>) {
        self.maps.write().templates.insert(template.id, template);
    }

    pub(crate) fn remove_template(&self, id: TemplateId) {
        self.maps.write().templates.remove(&id);
    }

    pub(crate) fn put_snapshot(&self, snapshot: Arc<SnapshotRecord>) {
        self.maps.write().snapshots.insert(snapshot.id, snapshot);
    }

    pub(crate) fn remove_snapshot(&self, id: TemplateId) {
        self.maps.write().snapshots.remove(&id);
    }

    pub(crate) fn put_layer(&self, layer: Arc<LayerRecord>) {
        self.maps.write().layers.insert(layer.key, layer);
    }

    pub(crate) fn remove_layer(&self, key: LayerKey) {
        self.maps.write().layers.remove(&key);
    }

    pub(crate) fn put_volume(&self, volume: Arc<VolumeRecord>) {
        self.maps.write().volumes.insert(volume.id, volume);
    }

    pub(crate) fn remove_volume(&self, id: VolumeId) {
        self.maps.write().volumes.remove(&id);
    }

    pub(crate) fn volumes(&self) -> Vec<Arc<VolumeRecord>> {
        self.read(|maps| maps.volumes.values().map(Arc::clone).collect())
    }

    /// A ready one, by its name in the team.
    pub(crate) fn volume(&self, team: TeamId, name: &str) -> Option<VolumeId> {
        self.read(|maps| {
            let is_it = |it: &&Arc<VolumeRecord>| {
                it.team == team && it.phase == VolumePhase::Ready && it.name.to_string() == name
            };
            maps.volumes.values().find(is_it).map(|it| it.id)
        })
    }

    pub(crate) fn put_secret(&self, secret: Arc<SecretRecord>) {
        self.maps.write().secrets.insert((secret.team, secret.name.clone()), secret);
    }

    pub(crate) fn remove_secret(&self, secret: &SecretRecord) {
        self.maps.write().secrets.remove(&(secret.team, secret.name.clone()));
    }

    pub(crate) fn secret(&self, team: TeamId, name: &SecretName) -> Option<Arc<SecretRecord>> {
        self.read(|maps| maps.secrets.get(&(team, name.clone())).map(Arc::clone))
    }

    /// Of a team, by name.
    pub(crate) fn secrets(&self, team: TeamId) -> Vec<Arc<SecretRecord>> {
        self.read(|maps| {
            let own = maps.secrets.iter().filter(|((owner, _), _)| *owner == team);
            own.map(|(_, secret)| Arc::clone(secret)).collect()
        })
    }

    pub(crate) fn layer(&self, key: LayerKey) -> Option<Arc<LayerRecord>> {
        self.read(|maps| maps.layers.get(&key).map(Arc::clone))
    }

    pub(crate) fn layers(&self) -> Vec<Arc<LayerRecord>> {
        self.read(|maps| maps.layers.values().map(Arc::clone).collect())
    }

    /// A template whose image is called so: a team's own before public ones, the newest first.
    pub(crate) fn image(&self, team: TeamId, name: &ImageName) -> Option<Arc<TemplateRecord>> {
        self.read(|maps| {
            let found = maps
                .templates
                .values()
                .filter(|it| (it.team == team || it.public) && it.image_names.contains(name));
            found.max_by_key(|it| (it.team == team, it.updated_at, it.id)).map(Arc::clone)
        })
    }

    /// A team's own that builds make, ready or not. By id, `alias` or `team/alias`; a tag says
    /// nothing.
    pub(crate) fn built(&self, team: TeamId, text: &str) -> Option<Arc<SnapshotRecord>> {
        let TemplateRef { team: owner, name, .. } = text.parse().ok()?;
        self.read(|maps| {
            let owner_fits = owner
                .as_ref()
                .is_none_or(|owner| maps.teams.get(&team).is_some_and(|team| team.name == *owner));
            let called = |it: &TemplateName| *it == name;
            let of_team = maps
                .snapshots
                .values()
                .filter(|it| it.team == team && it.kind == SnapshotKind::Built && owner_fits);
            of_team
                .filter(|it| {
                    it.id.to_string() == name.as_str() || it.name.as_ref().is_some_and(called)
                })
                .min_by_key(|it| (it.id.to_string() != name.as_str(), it.id))
                .map(Arc::clone)
        })
    }

    pub(crate) fn read<T>(&self, read: impl FnOnce(&Maps) -> T) -> T {
        read(&self.maps.read())
    }

    pub(crate) fn resolve(&self, team: TeamId, text: &str) -> Option<Arc<TemplateRecord>> {
        self.read(|maps| {
            let found = decide::template::resolve(
                maps.templates.values().map(AsRef::as_ref),
                |name| maps.teams.values().find(|team| team.name == name).map(|team| team.id),
                team,
                text,
            )?;
            maps.templates.get(&found.id).map(Arc::clone)
        })
    }

    /// With the tag that is meant.
    pub(crate) fn snapshot(
        &self,
        team: TeamId,
        text: &str,
    ) -> Option<(Arc<SnapshotRecord>, String)> {
        self.read(|maps| {
            let (found, tag) = decide::snapshot::resolve(
                maps.snapshots.values().map(AsRef::as_ref),
                |name| maps.teams.values().find(|team| team.name == name).map(|team| team.id),
                team,
                text,
            )?;
            Some((Arc::clone(maps.snapshots.get(&found.id)?), tag))
        })
    }

    /// A team's own before public ones.
    pub(crate) fn source(&self, team: TeamId, text: &str) -> Option<Source> {
        let template = self.resolve(team, text);
        if template.as_ref().is_some_and(|it| it.team == team) {
            return template.map(Source::Template);
        }
        let snapshot = self.snapshot(team, text).and_then(|(snapshot, tag)| {
            let build = snapshot.builds.get(&tag)?;
            let base = build.base(snapshot.id);
            Some((snapshot.team, Source::Snapshot { checkpoint: build.checkpoint, base }))
        });
        match (template, snapshot) {
            (Some(template), Some((owner, _))) if owner != team => Some(Source::Template(template)),
            (_, Some((_, snapshot))) => Some(snapshot),
            (template, None) => template.map(Source::Template),
        }
    }

    pub(crate) fn images(&self) -> BTreeSet<ImageDigest> {
        self.read(|maps| {
            let templates = maps.templates.values().map(|template| template.image);
            let snapshots = maps.snapshots.values().flat_map(|it| it.builds.values());
            let layers = maps.layers.values().map(|layer| layer.image);
            templates.chain(snapshots.map(|build| build.image)).chain(layers).collect()
        })
    }

    /// Of snapshots and layers.
    pub(crate) fn checkpoints(&self) -> BTreeSet<CheckpointId> {
        self.read(|maps| maps.checkpoints().collect())
    }

    pub(crate) fn has_checkpoint(&self, checkpoint: CheckpointId) -> bool {
        self.read(|maps| maps.checkpoints().any(|it| it == checkpoint))
    }

    /// As sandboxes of the templates start when nothing else is asked for.
    pub(crate) fn shapes(&self) -> BTreeSet<Shape> {
        self.read(|maps| maps.templates.values().map(|template| template.shape()).collect())
    }
}

impl Maps {
    fn checkpoints(&self) -> impl Iterator<Item = CheckpointId> {
        let builds = self.snapshots.values().flat_map(|it| it.builds.values());
        let layers = self.layers.values().map(|layer| layer.checkpoint);
        builds.map(|build| build.checkpoint).chain(layers)
    }

    pub(crate) fn key_by_hash(&self, hash: &[u8; 32]) -> Option<&Arc<ApiKeyRecord>> {
        self.keys.get(self.keys_by_hash.get(hash)?)
    }
}
