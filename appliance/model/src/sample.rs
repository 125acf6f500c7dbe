//! Records for the tests of decisions.

use std::time::Duration;

use sandboxo_zone_protocol::{
    ImageDigest, NetworkPolicy, Platform, SandboxId, SandboxSpec, Timestamp,
};

use crate::{Ingress, Phase, SandboxRecord, TemplateUse, resources};

pub(crate) fn record(id: SandboxId, deadline: Timestamp, phase: Phase) -> SandboxRecord {
    SandboxRecord {
        id,
        team: "8b1f5d3e-0c5f-4d6e-9f57-0d3a6a1c2b4d".parse().unwrap(),
        template: TemplateUse { id: "0123456789abcdefghjk".parse().unwrap(), alias: None },
        zone: "local1".parse().unwrap(),
        spec: SandboxSpec {
            id,
            image: ImageDigest::from_bytes([1; 32]),
            resources: resources::DEFAULT,
            platform: Platform::Ptrace,
            env: [].into(),
            hostname: id.label(),
            user: "user".into(),
            workdir: None,
            network: NetworkPolicy::OPEN,
            agent_token: None,
            deadline,
            on_deadline: sandboxo_zone_protocol::OnDeadline::Kill,
            origin: sandboxo_zone_protocol::Origin::Image,
            volumes: vec![],
        },
        timeout: Duration::from_secs(1),
        metadata: [].into(),
        internet: None,
        network: None,
        ingress: Ingress::default(),
        identity: None,
        auto_resume: false,
        created_at: Timestamp::UNIX_EPOCH,
        phase,
    }
}
