//! Teams, keys and templates in memory. Written after the store has them, under one lock each, so
//! that memory never runs ahead of the disk.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use parking_lot::RwLock;
use sandboxo_model::{ApiKeyRecord, TeamRecord, TemplateRecord, decide};
use sandboxo_zone_protocol::{ApiKeyId, ImageDigest, Shape, TeamId, TemplateId};

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
}

impl Accounts {
    pub(crate) fn new(
        teams: Vec<TeamRecord>,
        keys: Vec<ApiKeyRecord>,
        templates: Vec<TemplateRecord>,
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

    pub(crate) fn images(&self) -> BTreeSet<ImageDigest> {
        self.read(|maps| maps.templates.values().map(|template| template.image).collect())
    }

    /// As sandboxes of the templates start when nothing else is asked for.
    pub(crate) fn shapes(&self) -> BTreeSet<Shape> {
        self.read(|maps| maps.templates.values().map(|template| template.shape()).collect())
    }
}

impl Maps {
    pub(crate) fn key_by_hash(&self, hash: &[u8; 32]) -> Option<&Arc<ApiKeyRecord>> {
        self.keys.get(self.keys_by_hash.get(hash)?)
    }
}
