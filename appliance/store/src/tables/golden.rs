//! For the tests of row formats: bytes that a released version wrote are read for ever.

use std::{collections::BTreeMap, fmt::Debug, time::Duration};

use sandboxo_model::{Ingress, NetworkAsked, Phase, SandboxRecord, TemplateUse};
use sandboxo_zone_protocol::{
    ImageDigest, NetworkMode, NetworkPolicy, SandboxId, SandboxSpec, Secret, TeamId, TemplateId,
    Timestamp, VolumeMount,
};

use crate::Record;

pub(crate) fn check<R: Record + Debug + PartialEq>(record: &R, bytes: &[u8]) {
    let written = record.encode();
    assert_eq!(String::from_utf8_lossy(&written), String::from_utf8_lossy(bytes));
    assert_eq!(&R::decode(bytes).unwrap(), record);
}

pub(crate) fn time() -> Timestamp {
    "2026-01-02T03:04:05.678901234Z".parse().unwrap()
}

pub(crate) fn team() -> TeamId {
    "8b1f5d3e-0c5f-4d6e-9f57-0d3a6a1c2b4d".parse().unwrap()
}

pub(crate) fn template() -> TemplateId {
    "0123456789abcdefghjk".parse().unwrap()
}

pub(crate) fn sandbox() -> SandboxId {
    "sbx_loc_0123456789abcdefgk7q".parse().unwrap()
}

pub(crate) fn mount() -> VolumeMount {
    VolumeMount {
        volume: "vol_loc_0123456789abcdefgk7q".parse().unwrap(),
        name: "my-data".into(),
        path: "/data".parse().unwrap(),
    }
}

pub(crate) fn sandbox_record() -> SandboxRecord {
    let host = Some("localhost:${PORT}".to_owned());
    SandboxRecord {
        id: sandbox(),
        team: team(),
        template: TemplateUse { id: template(), alias: Some("base".into()) },
        zone: "local1".parse().unwrap(),
        spec: SandboxSpec {
            id: sandbox(),
            image: ImageDigest::from_bytes([0xcd; 32]),
            resources: sandboxo_model::resources::DEFAULT,
            platform: sandboxo_zone_protocol::Platform::Ptrace,
            env: BTreeMap::from([("A".into(), "a\"b".into())]),
            hostname: sandbox().label(),
            user: "user".into(),
            workdir: Some("/code".into()),
            network: NetworkPolicy {
                mode: NetworkMode::Full,
                allow: vec!["1.1.1.1/32".parse().unwrap()],
                deny: vec!["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()],
                names: Vec::new(),
                headers: [].into(),
                proxy: None,
            },
            agent_token: Some(Secret::new("secret")),
            deadline: time(),
            on_deadline: sandboxo_zone_protocol::OnDeadline::Kill,
            origin: sandboxo_zone_protocol::Origin::Image,
            volumes: vec![],
        },
        timeout: Duration::from_mins(5),
        metadata: BTreeMap::from([("k".into(), "v".into())]),
        internet: Some(false),
        network: Some(NetworkAsked {
            allow_out: Some(vec!["1.1.1.1".into()]),
            deny_out: None,
            allow_public_traffic: Some(false),
            mask_request_host: host.clone(),
            rules: None,
            egress_proxy: None,
            https_ports: None,
            dns_servers: None,
        }),
        ingress: Ingress {
            mask_request_host: host,
            traffic_token: Some(Secret::new("token")),
            https_ports: [].into(),
        },
        identity: None,
        auto_resume: false,
        created_at: time(),
        phase: Phase::Starting { give_up_at: time() },
    }
}
