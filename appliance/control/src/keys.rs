//! Teams and their API keys.

use std::sync::Arc;

use sandboxo_model::{ApiKeyRecord, KeyMask, TeamRecord};
use sandboxo_store::{Read as _, StoreError};
use sandboxo_zone_protocol::{ApiKeyId, Secret, TeamId};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::{Scope, context::Context, tokens};

/// A cheap clone of one thing.
#[derive(Clone)]
pub struct Keys {
    context: Arc<Context>,
}

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

const FIRST_NAME: &str = "first";

impl Keys {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    pub fn authenticate(&self, key: &str) -> Option<Caller> {
        let hash = hash(key);
        self.context.accounts.read(|maps| {
            let record = maps.key_by_hash(&hash)?;
            // The map compares hashes, of which timing tells nothing about keys; this makes it
            // not depend on how the map does it.
            let same = bool::from(record.hash.ct_eq(&hash));
            same.then_some(Caller { team: record.team, key: record.id })
        })
    }

    /// Makes the team `default` and a key if there is no key at all.
    ///
    /// `keep` has the key before the records have it: a process that dies between the two leaves
    /// a note of a key that nobody knows, and not a key of which nobody has a note.
    pub async fn ensure_first<E>(
        &self,
        keep: impl FnOnce(&Secret) -> Result<(), E> + Send + 'static,
    ) -> Result<Option<NewKey>, E>
    where
        E: From<StoreError> + Send + 'static,
    {
        let context = Arc::clone(&self.context);
        let work = async move {
            let _changing = context.accounts.changing.lock().await;
            let (keys, teams) = context
                .store
                .read(|tx| Ok((tx.all::<ApiKeyRecord>()?, tx.all::<TeamRecord>()?)))
                .await?;
            if !keys.is_empty() {
                return Ok(None);
            }
            let team = teams.into_iter().find(|team| team.name == TeamRecord::DEFAULT);
            let team = team.unwrap_or_else(|| TeamRecord {
                id: TeamId::random(&*context.random),
                name: TeamRecord::DEFAULT.to_owned(),
                created_at: context.now(),
            });
            let new = NewKey::make(&context, team.id, FIRST_NAME.to_owned());
            keep(&new.secret)?;
            let (team, key) = (Arc::new(team), Arc::clone(&new.record));
            let write = context.store.write({
                let (team, key) = (Arc::clone(&team), Arc::clone(&key));
                move |tx| {
                    tx.put(&*team);
                    tx.put(&*key);
                    Ok::<_, StoreError>(())
                }
            });
            write.await?;
            context.accounts.put_team(team);
            context.accounts.put_key(key);
            Ok(Some(new))
        };
        self.context.to_the_end("first key", work).await
    }

    pub async fn create(&self, team: TeamId, name: &str) -> Result<NewKey, KeyError> {
        let name = checked(name)?;
        let context = Arc::clone(&self.context);
        let work = async move {
            let _changing = context.accounts.changing.lock().await;
            let new = NewKey::make(&context, team, name);
            let key = (*new.record).clone();
            let write = context.store.write(move |tx| {
                if tx.get::<TeamRecord>(&key.team)?.is_none() {
                    return Err(KeyError::NoTeam);
                }
                tx.put(&key);
                Ok(())
            });
            write.await?;
            context.accounts.put_key(Arc::clone(&new.record));
            Ok(new)
        };
        self.context.to_the_end("new key", work).await
    }

    /// By creation.
    pub fn list(&self, scope: impl Into<Scope>) -> Vec<Arc<ApiKeyRecord>> {
        let scope = scope.into();
        let mut keys: Vec<_> = self.context.accounts.read(|maps| {
            maps.keys.values().filter(|key| scope.includes(key.team)).map(Arc::clone).collect()
        });
        keys.sort_by_key(|key| (key.created_at, key.id));
        keys
    }

    /// `false`: there was no such key.
    pub async fn revoke(&self, scope: impl Into<Scope>, id: ApiKeyId) -> Result<bool, StoreError> {
        let scope = scope.into();
        let context = Arc::clone(&self.context);
        let work = async move {
            let _changing = context.accounts.changing.lock().await;
            let write = context.store.write(move |tx| {
                let known = tx.get::<ApiKeyRecord>(&id)?;
                let found = known.is_some_and(|key| scope.includes(key.team));
                if found {
                    tx.remove::<ApiKeyRecord>(&id);
                }
                Ok::<_, StoreError>(found)
            });
            let found = write.await?;
            if found {
                context.accounts.remove_key(id);
            }
            Ok(found)
        };
        self.context.to_the_end("revoke key", work).await
    }

    /// `false`: there is no such key.
    pub async fn rename(
        &self,
        scope: impl Into<Scope>,
        id: ApiKeyId,
        name: &str,
    ) -> Result<bool, KeyError> {
        let name = checked(name)?;
        let scope = scope.into();
        let context = Arc::clone(&self.context);
        let work = async move {
            let _changing = context.accounts.changing.lock().await;
            let write = context.store.write(move |tx| {
                let known = tx.get::<ApiKeyRecord>(&id)?;
                let Some(known) = known.filter(|key| scope.includes(key.team)) else {
                    return Ok::<_, StoreError>(None);
                };
                let renamed = ApiKeyRecord { name, ..known };
                tx.put(&renamed);
                Ok(Some(renamed))
            });
            let Some(renamed) = write.await? else { return Ok(false) };
            context.accounts.put_key(Arc::new(renamed));
            Ok(true)
        };
        self.context.to_the_end("rename key", work).await
    }

    pub fn team(&self, id: TeamId) -> Option<Arc<TeamRecord>> {
        self.context.accounts.read(|maps| maps.teams.get(&id).map(Arc::clone))
    }

    /// By creation.
    pub fn teams(&self) -> Vec<Arc<TeamRecord>> {
        let mut teams: Vec<_> =
            self.context.accounts.read(|maps| maps.teams.values().map(Arc::clone).collect());
        teams.sort_by_key(|team| (team.created_at, team.id));
        teams
    }

    /// The name is the first part of `team/template`, so it has the rules of a template's.
    pub async fn create_team(&self, name: &str) -> Result<Arc<TeamRecord>, KeyError> {
        let name: sandboxo_model::TemplateName =
            name.parse().map_err(|_not_a_name| KeyError::BadName)?;
        let context = Arc::clone(&self.context);
        let work = async move {
            let _changing = context.accounts.changing.lock().await;
            let team = TeamRecord {
                id: TeamId::random(&*context.random),
                name: name.to_string(),
                created_at: context.now(),
            };
            let fresh = team.clone();
            let write = context.store.write(move |tx| {
                if tx.all::<TeamRecord>()?.iter().any(|known| known.name == fresh.name) {
                    return Err(KeyError::NameTaken);
                }
                tx.put(&fresh);
                Ok(())
            });
            write.await?;
            let team = Arc::new(team);
            context.accounts.put_team(Arc::clone(&team));
            Ok(team)
        };
        self.context.to_the_end("new team", work).await
    }
}

impl NewKey {
    fn make(context: &Context, team: TeamId, name: String) -> Self {
        let secret = tokens::api_key(&*context.random);
        let value = secret.expose().strip_prefix(KeyMask::PREFIX).unwrap_or_default();
        let record = Arc::new(ApiKeyRecord {
            id: ApiKeyId::random(&*context.random),
            team,
            name,
            hash: hash(secret.expose()),
            mask: KeyMask::of(value),
            created_at: context.now(),
        });
        Self { record, secret }
    }
}

fn hash(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

fn checked(name: &str) -> Result<String, KeyError> {
    let fits = (1..=128).contains(&name.chars().count());
    if fits { Ok(name.to_owned()) } else { Err(KeyError::BadName) }
}
