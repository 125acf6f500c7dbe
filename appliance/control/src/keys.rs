//! Teams and their API keys.

use std::sync::Arc;

use sandboxo_model::{ApiKeyRecord, TeamRecord};
use sandboxo_store::StoreError;
use sandboxo_zone_protocol::{ApiKeyId, Secret, TeamId};

use crate::Scope;

#[derive(Clone)]
pub struct Keys {}

/// Proof that a key was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    pub team: TeamId,
    pub key: ApiKeyId,
}

/// The only moment at which a key can be read.
#[derive(Debug, Clone)]
pub struct NewKey {
    pub record: Arc<ApiKeyRecord>,
    pub secret: Secret,
}

impl Keys {
    pub fn authenticate(&self, key: &str) -> Option<Caller> {
        todo!()
    }

    /// Makes the team `default` and a key if there is no key at all.
    pub async fn ensure_first(&self) -> Result<Option<NewKey>, StoreError> {
        todo!()
    }

    pub async fn create(&self, team: TeamId, name: &str) -> Result<NewKey, KeyError> {
        todo!()
    }

    /// By creation.
    pub fn list(&self, scope: impl Into<Scope>) -> Vec<Arc<ApiKeyRecord>> {
        todo!()
    }

    /// `false`: there was no such key.
    pub async fn revoke(&self, scope: impl Into<Scope>, id: ApiKeyId) -> Result<bool, StoreError> {
        todo!()
    }

    pub async fn rename(
        &self,
        scope: impl Into<Scope>,
        id: ApiKeyId,
        name: &str,
    ) -> Result<bool, KeyError> {
        todo!()
    }

    pub fn team(&self, id: TeamId) -> Option<Arc<TeamRecord>> {
        todo!()
    }

    pub fn teams(&self) -> Vec<Arc<TeamRecord>> {
        todo!()
    }

    pub async fn create_team(&self, name: &str) -> Result<Arc<TeamRecord>, KeyError> {
        todo!()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("a name has 1 to 128 characters")]
    BadName,
    #[error("there is no such team")]
    NoTeam,
    #[error("a team has this name")]
    NameTaken,
    #[error("record the key")]
    Store(#[from] StoreError),
}
