//! What a client asks for, and the record that it becomes.

use std::{collections::BTreeMap, time::Duration};

use sandboxo_zone_protocol::{
    ExecutionId, OnDeadline, SandboxId, SandboxSpec, Secret, TeamId, Timestamp, VolumeMount,
    ZoneName,
};

use crate::{
    Base, Field, IdempotencyKey, Identity, Ingress, Invalid, NetworkAsked, Phase, SandboxRecord,
    TemplateUse, Tokens, rules,
};

/// After the surface's defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSandbox {
    /// Id, alias, `alias:tag` or `team/alias[:tag]`, also of a snapshot.
    pub template: String,
    pub timeout: Duration,
    /// The agent asks requests for a token.
    pub secure: bool,
    pub env: BTreeMap<String, String>,
    pub metadata: BTreeMap<String, String>,
    pub internet: Option<bool>,
    pub network: Option<NetworkAsked>,
    pub lifecycle: Lifecycle,
    /// Beside those of a snapshot that it starts from.
    pub volumes: Vec<MountAsked>,
    /// Of its identity. Nothing that it starts from has any for it.
    pub tokens: Tokens,
    pub idempotency_key: Option<IdempotencyKey>,
}

/// As given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountAsked {
    /// Of a volume.
    pub name: String,
    pub path: String,
}

/// What happens when its time is over, and when somebody comes after that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lifecycle {
    pub on_timeout: OnDeadline,
    pub auto_resume: bool,
}

/// What control adds.
#[derive(Debug, Clone)]
pub struct Birth {
    pub id: SandboxId,
    pub team: TeamId,
    pub base: Base,
    pub zone: ZoneName,
    /// Used where they are asked for.
    pub agent_token: Secret,
    pub traffic_token: Secret,
    pub execution: ExecutionId,
    /// All of them, found.
    pub volumes: Vec<VolumeMount>,
    pub now: Timestamp,
    /// How long the zone may take.
    pub budget: Duration,
}

/// Programs inside read it; the zone hands it to the agent.
const TEMPLATE_VARIABLE: &str = "E2B_TEMPLATE_ID";

impl NewSandbox {
    /// Every rule that needs nothing but the request.
    pub fn check(&self) -> Result<(), Invalid> {
        rules::first_timeout(self.timeout)?;
        rules::metadata(&self.metadata)?;
        rules::env(&self.env)?;
        if let Some(host) = self.network.as_ref().and_then(|it| it.mask_request_host.as_deref()) {
            rules::mask_request_host(host)?;
        }
        if let Some(ports) = self.network.as_ref().and_then(|it| it.https_ports.as_deref()) {
            rules::https_ports(ports)?;
        }
        self.policy().map(drop)
    }

    pub fn record(mut self, birth: Birth) -> Result<SandboxRecord, Invalid> {
        self.check()?;
        let mut policy = self.policy()?;
        let Birth {
            id,
            team,
            base,
            zone,
            agent_token,
            traffic_token,
            execution,
            volumes,
            now,
            budget,
        } = birth;
        policy.mode = base.mode;
        let mut env = base.env;
        env.append(&mut self.env);
        env.insert(TEMPLATE_VARIABLE.to_owned(), base.id.to_string());
        rules::env(&env)?;
        let by_id = self.template.split(':').next() == Some(&*base.id.to_string());
        let private = self.network.as_ref().and_then(|it| it.allow_public_traffic) == Some(false);
        Ok(SandboxRecord {
            id,
            team,
            template: TemplateUse { id: base.id, alias: (!by_id).then_some(self.template) },
            zone,
            spec: SandboxSpec {
                id,
                image: base.image,
                resources: base.resources,
                platform: base.platform,
                env,
                hostname: id.label(),
                user: base.user,
                workdir: base.workdir,
                network: policy,
                agent_token: self.secure.then_some(agent_token),
                deadline: rules::after(now, self.timeout),
                on_deadline: self.lifecycle.on_timeout,
                origin: base.origin,
                volumes,
            },
            timeout: self.timeout,
            metadata: self.metadata,
            internet: self.internet,
            ingress: Ingress {
                mask_request_host: self
                    .network
                    .as_ref()
                    .and_then(|it| it.mask_request_host.clone()),
                traffic_token: private.then_some(traffic_token),
                https_ports: self
                    .network
                    .as_ref()
                    .and_then(|it| it.https_ports.as_ref())
                    .map(|ports| ports.iter().copied().collect())
                    .unwrap_or_default(),
            },
            network: self.network,
            identity: (!self.tokens.is_empty())
                .then_some(Identity { tokens: self.tokens, execution }),
            auto_resume: self.lifecycle.auto_resume,
            created_at: now,
            phase: Phase::Starting { give_up_at: rules::after(now, budget) },
        })
    }

    fn policy(&self) -> Result<sandboxo_zone_protocol::NetworkPolicy, Invalid> {
        NetworkAsked::policy(self.network.as_ref(), self.internet)
            .map_err(|error| Invalid::new(Field::Network, error.to_string()))
    }
}
