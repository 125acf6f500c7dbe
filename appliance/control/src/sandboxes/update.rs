//! Timeouts and egress rules of a running one.

use std::{sync::Arc, time::Duration};

use sandboxo_model::{Field, Invalid, NetworkAsked, SandboxRecord, rules};
use sandboxo_zone_protocol::SandboxId;

use crate::{
    NetworkError, Sandboxes, Scope, TimeoutError,
    driver::{Message, SendError, send},
    secrets::seal_proxy,
};

impl Sandboxes {
    /// From now; shorter or longer than before. Zero: its time is over.
    pub async fn set_timeout(
        &self,
        scope: impl Into<Scope>,
        id: SandboxId,
        timeout: Duration,
    ) -> Result<Arc<SandboxRecord>, TimeoutError> {
        self.change_timeout(scope.into(), id, timeout, false).await
    }

    /// From now; never shortens.
    pub async fn extend(
        &self,
        scope: impl Into<Scope>,
        id: SandboxId,
        timeout: Duration,
    ) -> Result<Arc<SandboxRecord>, TimeoutError> {
        self.change_timeout(scope.into(), id, timeout, true).await
    }

    async fn change_timeout(
        &self,
        scope: Scope,
        id: SandboxId,
        timeout: Duration,
        only_extend: bool,
    ) -> Result<Arc<SandboxRecord>, TimeoutError> {
        rules::timeout(timeout)?;
        let (live, _) = self.usable(scope, id).ok_or(TimeoutError::NotFound(id))?;
        let set = send(&live, |reply| Message::SetTimeout { timeout, only_extend, reply });
        match set.await {
            Ok(Some(record)) => Ok(record),
            Ok(None) | Err(SendError::Gone) => Err(TimeoutError::NotFound(id)),
            Err(SendError::Busy) => Err(TimeoutError::Busy),
            Err(SendError::Store(error)) => Err(error.into()),
        }
    }

    /// Replaces all egress rules; what was asked about ingress stays. `internet` is
    /// `allow_internet_access` of the update.
    pub async fn set_network(
        &self,
        scope: impl Into<Scope>,
        id: SandboxId,
        mut network: NetworkAsked,
        internet: Option<bool>,
    ) -> Result<Arc<SandboxRecord>, NetworkError> {
        let mut policy = NetworkAsked::policy(Some(&network), internet)
            .map_err(|error| Invalid { field: Field::Network, rule: error.to_string() })?;
        let (live, _) = self.usable(scope.into(), id).ok_or(NetworkError::NotFound(id))?;
        let record = live.record();
        let before = record.spec.network.proxy.as_ref();
        seal_proxy(&self.context, record.team, before, &mut network, &mut policy)?;
        let (network, policy) = (Box::new(network), Box::new(policy));
        let set = send(&live, |reply| Message::SetNetwork { network, internet, policy, reply });
        match set.await {
            Ok(Some(set)) if set.in_force => Ok(set.record),
            Ok(Some(_)) => Err(NetworkError::ZoneUnavailable),
            Ok(None) | Err(SendError::Gone) => Err(NetworkError::NotFound(id)),
            Err(SendError::Busy) => Err(NetworkError::Busy),
            Err(SendError::Store(error)) => Err(error.into()),
        }
    }
}
