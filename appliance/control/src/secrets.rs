//! Secrets: stored for a team, never told again. Egress alone opens them, for the hosts that a
//! sandbox's rules name.

mod seal;

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use async_trait::async_trait;
use sandboxo_model::{
    Field, Invalid, NetworkAsked, NotASecretName, SecretName, SecretRecord, secret,
};
use sandboxo_store::StoreError;
use sandboxo_zone_protocol::{
    EgressProxy, NetworkPolicy, SandboxId, Sealed, Secret, SecretId, TeamId, Vault,
};

use crate::{context::Context, identity, sandboxes::ListError};

/// Of one team.
const AT_MOST: usize = 1000;

/// A cheap clone of one thing.
#[derive(Clone)]
pub struct Secrets {
    context: Arc<Context>,
}

#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error(transparent)]
    Name(#[from] NotASecretName),
    #[error(transparent)]
    Invalid(#[from] Invalid),
    #[error("the team has a secret '{0}' already")]
    NameTaken(SecretName),
    #[error("the team has {AT_MOST} secrets, the most there can be")]
    TooMany,
    #[error("secret '{0}' not found")]
    NotFound(String),
    #[error("the disk is full")]
    DiskFull,
    #[error("record the secret")]
    Store(#[source] StoreError),
}

impl From<StoreError> for SecretError {
    fn from(error: StoreError) -> Self {
        if matches!(error, StoreError::DiskFull) { Self::DiskFull } else { Self::Store(error) }
    }
}

pub struct SecretPage {
    pub items: Vec<Arc<SecretRecord>>,
    /// For the next page: the name of the last one.
    pub next: Option<SecretName>,
}

impl Secrets {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        context.zone.use_vault(Arc::new(Opener(Arc::downgrade(&context))));
        Self { context }
    }

    /// By name, from behind `after`.
    pub fn list(
        &self,
        team: TeamId,
        limit: usize,
        after: Option<&str>,
    ) -> Result<SecretPage, ListError> {
        if !(1..=ListError::MAX_LIMIT).contains(&limit) {
            return Err(ListError::BadLimit);
        }
        let after: Option<SecretName> = match after {
            Some(token) => Some(token.parse().map_err(|NotASecretName| ListError::BadToken)?),
            None => None,
        };
        let mut items = self.context.accounts.secrets(team);
        items.retain(|it| after.as_ref().is_none_or(|after| it.name > *after));
        let more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| more).map(|it| it.name.clone());
        Ok(SecretPage { items, next })
    }

    /// By id or name.
    pub fn get(&self, team: TeamId, called: &str) -> Option<Arc<SecretRecord>> {
        let accounts = &self.context.accounts;
        // No name reads as an id.
        match called.parse::<SecretId>() {
            Ok(id) => accounts.secrets(team).into_iter().find(|it| it.id == id),
            Err(_not_an_id) => accounts.secret(team, &called.parse().ok()?),
        }
    }

    /// Dropping the future does not stop it.
    pub async fn create(
        &self,
        team: TeamId,
        name: &str,
        value: &str,
        metadata: BTreeMap<String, String>,
    ) -> Result<Arc<SecretRecord>, SecretError> {
        let name = name.parse()?;
        secret::value(value)?;
        secret::metadata(&metadata)?;
        let context = Arc::clone(&self.context);
        let id = SecretId::random(&*context.random);
        let (version, created_at) = (1, context.now());
        let key = &context.config.secrets_key;
        let sealed = seal::seal(key, &of_secret(id, version), value, &*context.random);
        let updated_at = created_at;
        let record =
            SecretRecord { id, team, name, version, metadata, sealed, created_at, updated_at };
        let work = async move {
            let _changing = context.accounts.changing.lock().await;
            // All changes are made under this lock, and are in memory before it is let go.
            if context.accounts.secret(record.team, &record.name).is_some() {
                return Err(SecretError::NameTaken(record.name));
            }
            if context.accounts.secrets(record.team).len() >= AT_MOST {
                return Err(SecretError::TooMany);
            }
            Ok(put(&context, record).await?)
        };
        self.context.to_the_end("new secret", work).await
    }

    /// A new version, which is what sandboxes get from now on. Without metadata it keeps its own.
    /// Dropping the future does not stop it.
    pub async fn update(
        &self,
        team: TeamId,
        called: &str,
        value: &str,
        metadata: Option<BTreeMap<String, String>>,
    ) -> Result<Arc<SecretRecord>, SecretError> {
        secret::value(value)?;
        if let Some(metadata) = &metadata {
            secret::metadata(metadata)?;
        }
        let (this, called, value) = (self.clone(), called.to_owned(), value.to_owned());
        let work = async move {
            let context = &this.context;
            let _changing = context.accounts.changing.lock().await;
            let known = this.get(team, &called).ok_or(SecretError::NotFound(called))?;
            let (id, version) = (known.id, known.version.saturating_add(1));
            let key = &context.config.secrets_key;
            let record = SecretRecord {
                version,
                sealed: seal::seal(key, &of_secret(id, version), &value, &*context.random),
                metadata: metadata.unwrap_or_else(|| known.metadata.clone()),
                updated_at: context.now(),
                ..SecretRecord::clone(&known)
            };
            Ok(put(context, record).await?)
        };
        self.context.to_the_end("update secret", work).await
    }

    /// Dropping the future does not stop it.
    pub async fn delete(&self, team: TeamId, called: &str) -> Result<(), SecretError> {
        let (this, called) = (self.clone(), called.to_owned());
        let work = async move {
            let context = &this.context;
            let _changing = context.accounts.changing.lock().await;
            let known = this.get(team, &called).ok_or(SecretError::NotFound(called))?;
            let id = known.id;
            let write = context.store.write(move |tx| {
                tx.remove::<SecretRecord>(&id);
                Ok::<_, StoreError>(())
            });
            write.await?;
            context.accounts.remove_secret(&known);
            Ok(())
        };
        self.context.to_the_end("delete secret", work).await
    }
}

/// For whoever holds `changing`.
async fn put(context: &Context, record: SecretRecord) -> Result<Arc<SecretRecord>, StoreError> {
    let record = Arc::new(record);
    let written = Arc::clone(&record);
    let write = context.store.write(move |tx| {
        tx.put(&*written);
        Ok::<_, StoreError>(())
    });
    write.await?;
    context.accounts.put_secret(Arc::clone(&record));
    Ok(record)
}

/// The zone has it, and is the context's.
struct Opener(Weak<Context>);

#[async_trait]
impl Vault for Opener {
    async fn secret(&self, sandbox: SandboxId, name: &str) -> Option<Secret> {
        let context = self.0.upgrade()?;
        let team = context.index.get(sandbox)?.record().team;
        let record = context.accounts.secret(team, &name.parse().ok()?)?;
        let SecretRecord { id, version, sealed, .. } = &*record;
        let value = seal::open(&context.config.secrets_key, &of_secret(*id, *version), sealed);
        if value.is_none() {
            tracing::error!(secret.id = %id, "a secret was sealed with another key");
        }
        value
    }

    async fn password(&self, sandbox: SandboxId, proxy: &EgressProxy) -> Option<Secret> {
        let context = self.0.upgrade()?;
        let team = context.index.get(sandbox)?.record().team;
        let sealed = proxy.login.as_ref()?.password.as_str();
        let password = seal::open(&context.config.secrets_key, &of_proxy(team, proxy), sealed);
        if password.is_none() {
            tracing::error!(sandbox.id = %sandbox, "a proxy's password was sealed otherwise");
        }
        password
    }

    async fn token(&self, sandbox: SandboxId, name: &str) -> Option<Secret> {
        let context = self.0.upgrade()?;
        let record = context.index.get(sandbox)?.record();
        identity::token(&context, &record, name)
    }
}

/// What values of secrets are bound to.
fn of_secret(id: SecretId, version: u64) -> String {
    format!("{id} {version}")
}

/// What a proxy's password is bound to: it is of no use for a server that it was not given for,
/// and of use to copies of its sandbox.
fn of_proxy(team: TeamId, EgressProxy { address, login }: &EgressProxy) -> String {
    let username = login.as_ref().map_or("", |login| &login.username);
    format!("egress proxy {team} {address} {username}")
}

/// Whether the proxy that was asked for is one that this server allows. Its password goes from
/// what is shown to what the zone keeps, which can't read it. `before`: the proxy until now; told
/// once more it stays the same to the last letter, and so do the connections by it.
pub(crate) fn seal_proxy(
    context: &Context,
    team: TeamId,
    before: Option<&EgressProxy>,
    asked: &mut NetworkAsked,
    policy: &mut NetworkPolicy,
) -> Result<(), Invalid> {
    NetworkAsked::proxy_is_allowed(policy, &context.config.proxy_networks)
        .map_err(|error| Invalid { field: Field::Network, rule: error.to_string() })?;
    asked.seal(policy, |proxy, password| {
        let (key, bound_to) = (&context.config.secrets_key, of_proxy(team, proxy));
        let known = before.and_then(|it| it.login.as_ref()).map(|login| &login.password);
        if let Some(known) = known
            && seal::open(key, &bound_to, known.as_str()).is_some_and(|it| it == *password)
        {
            return known.clone();
        }
        Sealed::new(seal::seal(key, &bound_to, password.expose(), &*context.random))
    });
    Ok(())
}
