//! What the store keeps for one sandbox. Clients never see it: each surface has its own view.

use std::{collections::BTreeMap, time::Duration};

use sandboxo_zone_protocol::{
    SandboxId, SandboxSpec, Secret, TeamId, TemplateId, Timestamp, ZoneName,
};

use crate::{NetworkAsked, Phase};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxRecord {
    pub id: SandboxId,
    pub team: TeamId,
    pub template: TemplateUse,
    pub zone: ZoneName,
    /// What the zone is asked to run, word for word. Its deadline is the one of the create; the
    /// one in force is in the phase.
    pub spec: SandboxSpec,
    /// How long it was to live when it was asked for.
    pub timeout: Duration,
    pub metadata: BTreeMap<String, String>,
    /// `allow_internet_access` as given.
    pub internet: Option<bool>,
    /// As given, or as replaced since.
    pub network: Option<NetworkAsked>,
    pub ingress: Ingress,
    pub created_at: Timestamp,
    pub phase: Phase,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateUse {
    pub id: TemplateId,
    /// The name it was asked for by; `None` when asked for by its id.
    pub alias: Option<String>,
}

/// Who may come in, other than to the agent's port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ingress {
    pub mask_request_host: Option<String>,
    /// Asked of every request from outside. `None`: traffic is public.
    pub traffic_token: Option<Secret>,
}

impl SandboxRecord {
    /// The agent asks requests for a token.
    pub fn secure(&self) -> bool {
        self.spec.agent_token.is_some()
    }

    /// When it began to run; of one that never ran, when it was asked for.
    pub fn started_at(&self) -> Timestamp {
        self.phase.started_at().unwrap_or(self.created_at)
    }

    /// `Some` while it can be used: running, and its time not over. An expired one is gone for
    /// clients even before the zone has ended it.
    pub fn usable_until(&self, now: Timestamp) -> Option<Timestamp> {
        match self.phase {
            Phase::Running { expires_at, .. } if now < expires_at => Some(expires_at),
            Phase::Running { .. }
            | Phase::Starting { .. }
            | Phase::Killing { .. }
            | Phase::Dead { .. } => None,
        }
    }
}
