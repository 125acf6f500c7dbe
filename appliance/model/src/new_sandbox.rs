//! What a client asks for, and the record that it becomes.

use std::{collections::BTreeMap, time::Duration};

use sandboxo_zone_protocol::{
    OnDeadline, SandboxId, SandboxSpec, Secret, TeamId, Timestamp, ZoneName,
};

use crate::{
    Field, IdempotencyKey, Ingress, Invalid, NetworkAsked, Phase, SandboxRecord, TemplateRecord,
    TemplateUse, rules,
};

/// After the surface's defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSandbox {
    /// Id, alias, `alias:tag` or `team/alias[:tag]`.
    pub template: String,
    pub timeout: Duration,
    /// The agent asks requests for a token.
    pub secure: bool,
    pub env: BTreeMap<String, String>,
    pub metadata: BTreeMap<String, String>,
    pub internet: Option<bool>,
    pub network: Option<NetworkAsked>,
    pub lifecycle: Lifecycle,
    pub idempotency_key: Option<IdempotencyKey>,
}

/// What happens when its time is over, and when somebody comes after that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lifecycle {
    pub on_timeout: OnDeadline,
    pub auto_resume: bool,
}

/// What control adds.
#[derive(Debug, Clone)]
pub struct Birth<'a> {
    pub id: SandboxId,
    pub team: TeamId,
    pub template: &'a TemplateRecord,
    pub zone: ZoneName,
    /// Used where they are asked for.
    pub agent_token: Secret,
    pub traffic_token: Secret,
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
        self.policy().map(drop)
    }

    pub fn record(mut self, birth: Birth<'_>) -> Result<SandboxRecord, Invalid> {
        self.check()?;
        let policy = self.policy()?;
        let Birth { id, team, template, zone, agent_token, traffic_token, now, budget } = birth;
        self.env.insert(TEMPLATE_VARIABLE.to_owned(), template.id.to_string());
        let private = self.network.as_ref().and_then(|it| it.allow_public_traffic) == Some(false);
        Ok(SandboxRecord {
            id,
            team,
            template: TemplateUse {
                id: template.id,
                alias: (self.template != template.id.to_string()).then_some(self.template),
            },
            zone,
            spec: SandboxSpec {
                id,
                image: template.image,
                resources: template.resources,
                platform: template.platform,
                env: self.env,
                hostname: id.label(),
                user: template.user.clone(),
                workdir: template.workdir.clone(),
                network: policy,
                agent_token: self.secure.then_some(agent_token),
                deadline: rules::after(now, self.timeout),
                on_deadline: self.lifecycle.on_timeout,
                origin: sandboxo_zone_protocol::Origin::Image,
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
            },
            network: self.network,
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
