//! What the store keeps for one sandbox. Clients never see it: each surface has its own view.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use sandboxo_zone_protocol::{
    OnDeadline, Origin, SandboxId, SandboxSpec, Secret, TeamId, TemplateId, Timestamp, ZoneName,
};

use crate::{Identity, NetworkAsked, Phase};

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
    /// `None`: it has no tokens.
    pub identity: Option<Identity>,
    /// Traffic wakes it when it is paused.
    pub auto_resume: bool,
    pub created_at: Timestamp,
    pub phase: Phase,
}

/// What clients have of it at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Running, and its time not over.
    Usable { until: Timestamp },
    /// Paused, or on its way there or back.
    Asleep,
    /// Nothing. An expired one is gone for clients even before the zone has ended it.
    Gone,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateUse {
    pub id: TemplateId,
    /// The name it was asked for by; `None` when asked for by its id.
    pub alias: Option<String>,
}

/// Who may come in, other than to the agent's port, and how programs are spoken to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ingress {
    pub mask_request_host: Option<String>,
    /// Asked of every request from outside. `None`: traffic is public.
    pub traffic_token: Option<Secret>,
    /// Of programs that speak TLS.
    pub https_ports: BTreeSet<u16>,
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

    /// `Some` while it can be used.
    pub fn usable_until(&self, now: Timestamp) -> Option<Timestamp> {
        match self.standing(now) {
            Standing::Usable { until } => Some(until),
            Standing::Asleep | Standing::Gone => None,
        }
    }

    pub fn standing(&self, now: Timestamp) -> Standing {
        match (&self.phase, self.spec.on_deadline) {
            (Phase::Running { expires_at, .. }, _) if now < *expires_at => {
                Standing::Usable { until: *expires_at }
            }
            // Its pause is due.
            (Phase::Running { .. }, OnDeadline::Pause(_))
            | (Phase::Pausing { .. } | Phase::Paused { .. } | Phase::Resuming { .. }, _) => {
                Standing::Asleep
            }
            (Phase::Running { .. }, OnDeadline::Kill)
            | (Phase::Starting { .. } | Phase::Killing { .. } | Phase::Dead { .. }, _) => {
                Standing::Gone
            }
        }
    }

    /// What the zone is asked to start now.
    pub fn to_deliver(&self) -> SandboxSpec {
        let spec = self.spec.clone();
        match self.phase {
            Phase::Resuming { checkpoint, reboot, expires_at, .. } => SandboxSpec {
                deadline: expires_at,
                origin: Origin::Checkpoint { id: checkpoint, reboot },
                ..spec
            },
            Phase::Starting { .. }
            | Phase::Running { .. }
            | Phase::Pausing { .. }
            | Phase::Paused { .. }
            | Phase::Killing { .. }
            | Phase::Dead { .. } => spec,
        }
    }
}
