//! Who sandboxes are, for those who believe this appliance: tokens that egress puts into requests,
//! and the keys by which anybody verifies them.

mod keyring;
mod token;

use std::{fmt, io, sync::Arc, time::Duration};

use sandboxo_model::{Issuer, SandboxRecord, TrustDomain};
use sandboxo_store::StoreError;
use sandboxo_zone_protocol::{Secret, Timestamp};

use crate::{context::Context, tokens};

pub use jsonwebtoken::jwk::JwkSet;
pub use keyring::{Keyring, NewKey, NotAKeyring};

#[derive(Debug, Clone)]
pub struct IdentityConfig {
    pub issuer: Issuer,
    pub trust_domain: TrustDomain,
    /// As it was kept.
    pub keyring: Keyring,
    pub keep: Arc<dyn KeepKeyring>,
}

/// Where the keys outlive the process.
pub trait KeepKeyring: fmt::Debug + Send + Sync {
    /// All of it or nothing.
    fn keep(&self, text: &Secret) -> io::Result<()>;
}

/// Nowhere.
#[derive(Debug)]
struct Forgets;

impl KeepKeyring for Forgets {
    fn keep(&self, _: &Secret) -> io::Result<()> {
        Ok(())
    }
}

impl Default for IdentityConfig {
    #[expect(clippy::expect_used, reason = "literals; the tests of all that stands on them")]
    fn default() -> Self {
        Self {
            issuer: "http://127.0.0.1".parse().expect("a URL"),
            trust_domain: "of-nobody".parse().expect("a trust domain"),
            keyring: Keyring::of_nobody(),
            keep: Arc::new(Forgets),
        }
    }
}

/// A cheap clone of one thing.
#[derive(Clone)]
pub struct Identities {
    context: Arc<Context>,
}

#[derive(Debug, thiserror::Error)]
pub enum NewKeyError {
    #[error(transparent)]
    TooSoon(#[from] NewKey),
    #[error("the disk is full")]
    DiskFull,
    #[error("keep the keys")]
    Keep(#[source] io::Error),
    #[error("the appliance is stopping")]
    Stopping(#[from] StoreError),
}

impl From<io::Error> for NewKeyError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::StorageFull { Self::DiskFull } else { Self::Keep(error) }
    }
}

impl Identities {
    /// How long whoever asks for the keys may keep them.
    pub const CACHED: Duration = keyring::CACHED;

    pub(crate) fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    pub fn issuer(&self) -> &Issuer {
        &self.context.config.identity.issuer
    }

    /// Those by which tokens are verified now.
    pub fn keys(&self) -> JwkSet {
        self.context.keyring.read().shown(self.context.now())
    }

    /// One that takes the place of the one that signs, once all who verify can know it. Dropping
    /// the future does not stop it.
    pub async fn new_key(&self) -> Result<NewKey, NewKeyError> {
        let context = Arc::clone(&self.context);
        let work = async move {
            let _changing = context.accounts.changing.lock().await;
            let keyring = Arc::clone(&context.keyring.read());
            let (next, new) = keyring.with_another(&*context.random, context.now())?;
            let (text, keep) = (next.text(), Arc::clone(&context.config.identity.keep));
            let kept = tokio::task::spawn_blocking(move || keep.keep(&text)).await;
            kept.map_err(io::Error::other).flatten()?;
            // Nobody is shown what a restart would not know.
            *context.keyring.write() = Arc::new(next);
            tracing::info!(key = new.id, from = %new.from, "a new key for tokens of identities");
            Ok(new)
        };
        self.context.to_the_end("new identity key", work).await
    }
}

/// `None`: it has none of this name.
pub(crate) fn token(context: &Context, record: &SandboxRecord, name: &str) -> Option<Secret> {
    let identity = record.identity.as_ref()?;
    let audience = identity.tokens.audience(&name.parse().ok()?)?;
    let config = &context.config.identity;
    let subject = token::Subject {
        team: record.team,
        template: record.template.id,
        sandbox: record.id,
        execution: identity.execution,
    };
    let now: Timestamp = context.now();
    let keyring = Arc::clone(&context.keyring.read());
    let by = (&config.issuer, &config.trust_domain);
    let id = tokens::token(&*context.random);
    Some(token::sign(keyring.signing(now), by, &subject, audience, now, &id))
}
