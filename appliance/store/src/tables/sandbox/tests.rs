//! Rows as released versions wrote them.

use sandboxo_model::{DeathReason, HostRule, KillCause, ProxyAsked, StartFailure, Tokens};
use sandboxo_zone_protocol::{EndReason, ProxyLogin, Sealed};

use super::*;
use crate::tables::golden;

const HEAD: &str = r#"{"id":"sbx_loc_0123456789abcdefgk7q","team":"8b1f5d3e-0c5f-4d6e-9f57-0d3a6a1c2b4d","template":"0123456789abcdefghjk","alias":"base","zone":"local1","image":"cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd","resources":{"vcpus":2,"memory_mib":512,"disk_mib":10240,"pids":8192},"env":{"A":"a\"b"},"hostname":"sbx-loc-0123456789abcdefgk7q","user":"user","workdir":"/code","network_mode":"full","allow":["1.1.1.1/32"],"deny":["0.0.0.0/0","::/0"],"agent_token":"secret","deadline":"2026-01-02T03:04:05.678901234Z","timeout":{"secs":300,"nanos":0},"metadata":{"k":"v"},"internet":false,"network":{"allow_out":["1.1.1.1"],"deny_out":null,"allow_public_traffic":false,"mask_request_host":"localhost:${PORT}"},"mask_request_host":"localhost:${PORT}","traffic_token":"token","created_at":"2026-01-02T03:04:05.678901234Z","phase":"#;

fn phases() -> Vec<(Phase, &'static str)> {
    let at = golden::time();
    let dead = |reason| Phase::Dead { at, reason, started_at: Some(at) };
    let unborn =
        |failure| Phase::Dead { at, reason: DeathReason::StartFailed(failure), started_at: None };
    let ended = |reason| dead(DeathReason::Ended(reason));
    let killing =
        |cause| Phase::Killing { asked_at: at, cause, started_at: Some(at), checkpoint: None };
    let (started_at, paused_at, expires_at) = (at, at, at);
    let (checkpoint, kept) = ("0123456789abcdefghjk".parse().unwrap(), Kept::Memory);
    vec![
        (Phase::Starting { give_up_at: at }, r#"{"kind":"starting","give_up_at":T}"#),
        (
            Phase::Running { started_at: at, expires_at: at },
            r#"{"kind":"running","started_at":T,"expires_at":T}"#,
        ),
        (
            Phase::Pausing { started_at, expires_at, asked_at: at, kept: Kept::Files },
            r#"{"kind":"pausing","started_at":T,"expires_at":T,"asked_at":T,"kept":"files"}"#,
        ),
        (
            Phase::Paused { started_at, paused_at, checkpoint, kept },
            r#"{"kind":"paused","started_at":T,"paused_at":T,"checkpoint":"0123456789abcdefghjk","kept":"memory"}"#,
        ),
        (
            Phase::Resuming {
                started_at,
                paused_at,
                checkpoint,
                kept,
                reboot: true,
                expires_at,
                give_up_at: at,
            },
            r#"{"kind":"resuming","started_at":T,"paused_at":T,"checkpoint":"0123456789abcdefghjk","kept":"memory","reboot":true,"expires_at":T,"give_up_at":T}"#,
        ),
        (
            Phase::Killing {
                asked_at: at,
                cause: KillCause::Asked,
                started_at: Some(at),
                checkpoint: Some(checkpoint),
            },
            r#"{"kind":"killing","asked_at":T,"cause":"asked","started_at":T,"checkpoint":"0123456789abcdefghjk"}"#,
        ),
        (
            dead(DeathReason::CheckpointLost),
            r#"{"kind":"dead","at":T,"reason":"checkpoint_lost","started_at":T}"#,
        ),
        (
            unborn(StartFailure::CheckpointLost),
            r#"{"kind":"dead","at":T,"reason":{"start_failed":"checkpoint_lost"},"started_at":null}"#,
        ),
        (
            unborn(StartFailure::CheckpointUnusable("x".into())),
            r#"{"kind":"dead","at":T,"reason":{"start_failed":{"checkpoint_unusable":"x"}},"started_at":null}"#,
        ),
        (
            killing(KillCause::Asked),
            r#"{"kind":"killing","asked_at":T,"cause":"asked","started_at":T}"#,
        ),
        (
            killing(KillCause::Expired),
            r#"{"kind":"killing","asked_at":T,"cause":"expired","started_at":T}"#,
        ),
        (
            killing(KillCause::StartFailed(StartFailure::TimedOut)),
            r#"{"kind":"killing","asked_at":T,"cause":{"start_failed":"timed_out"},"started_at":T}"#,
        ),
        (
            unborn(StartFailure::LimitReached { what: "sandboxes".into(), limit: 7 }),
            r#"{"kind":"dead","at":T,"reason":{"start_failed":{"limit_reached":{"what":"sandboxes","limit":7}}},"started_at":null}"#,
        ),
        (
            unborn(StartFailure::ImageNotFound),
            r#"{"kind":"dead","at":T,"reason":{"start_failed":"image_not_found"},"started_at":null}"#,
        ),
        (
            unborn(StartFailure::DiskFull),
            r#"{"kind":"dead","at":T,"reason":{"start_failed":"disk_full"},"started_at":null}"#,
        ),
        (
            unborn(StartFailure::Runtime),
            r#"{"kind":"dead","at":T,"reason":{"start_failed":"runtime"},"started_at":null}"#,
        ),
        (
            unborn(StartFailure::Unavailable),
            r#"{"kind":"dead","at":T,"reason":{"start_failed":"unavailable"},"started_at":null}"#,
        ),
        (ended(EndReason::Killed), r#"{"kind":"dead","at":T,"reason":"killed","started_at":T}"#),
        (
            ended(EndReason::TimedOut),
            r#"{"kind":"dead","at":T,"reason":"timed_out","started_at":T}"#,
        ),
        (
            ended(EndReason::OutOfMemory),
            r#"{"kind":"dead","at":T,"reason":"out_of_memory","started_at":T}"#,
        ),
        (ended(EndReason::Crashed), r#"{"kind":"dead","at":T,"reason":"crashed","started_at":T}"#),
        (
            ended(EndReason::AgentLost),
            r#"{"kind":"dead","at":T,"reason":"agent_lost","started_at":T}"#,
        ),
        (
            ended(EndReason::KeeperLost),
            r#"{"kind":"dead","at":T,"reason":"keeper_lost","started_at":T}"#,
        ),
        (
            ended(EndReason::ZoneRestarted),
            r#"{"kind":"dead","at":T,"reason":"zone_restarted","started_at":T}"#,
        ),
        (
            ended(EndReason::CheckpointFailed),
            r#"{"kind":"dead","at":T,"reason":"checkpoint_failed","started_at":T}"#,
        ),
        (dead(DeathReason::Missing), r#"{"kind":"dead","at":T,"reason":"missing","started_at":T}"#),
    ]
}

#[test]
fn format_1() {
    for (phase, json) in phases() {
        let record = SandboxRecord { phase, ..golden::sandbox_record() };
        let json = json.replace(":T", ":\"2026-01-02T03:04:05.678901234Z\"");
        golden::check(&record, format!("\u{1}{HEAD}{json}}}").as_bytes());
    }
}

#[test]
fn format_1_with_what_came_later() {
    let plain = golden::sandbox_record();
    let header = SetHeader { name: "x-key".into(), value: Secret::new("k") };
    let headers = Some([("X-Key".to_owned(), Secret::new("k"))].into());
    let rules = [("a.example.com".to_owned(), vec![HostRule { headers }])].into();
    let record = SandboxRecord {
        network: plain.network.clone().map(|it| NetworkAsked { rules: Some(rules), ..it }),
        spec: SandboxSpec {
            on_deadline: OnDeadline::Pause(Kept::Files),
            origin: Origin::Checkpoint {
                id: "0123456789abcdefghjk".parse().unwrap(),
                reboot: true,
            },
            network: NetworkPolicy {
                names: vec!["*.example.com".parse().unwrap()],
                headers: [("a.example.com".parse().unwrap(), vec![header])].into(),
                ..plain.spec.network.clone()
            },
            volumes: vec![golden::mount()],
            ..plain.spec.clone()
        },
        auto_resume: true,
        ..plain
    };
    let time = "\"2026-01-02T03:04:05.678901234Z\"";
    let head = HEAD
        .replace(
            r#","timeout":"#,
            r#","pause_at_deadline":"files","origin":{"checkpoint":"0123456789abcdefghjk","reboot":true},"volumes":[{"volume":"vol_loc_0123456789abcdefgk7q","name":"my-data","path":"/data"}],"timeout":"#,
        )
        .replace(
            r#","agent_token":"#,
            r#","names":["*.example.com"],"headers":{"a.example.com":[{"name":"x-key","value":"k"}]},"agent_token":"#,
        )
        .replace(
            r#"},"mask_request_host":"#,
            r#","rules":{"a.example.com":[{"headers":{"X-Key":"k"}}]}},"mask_request_host":"#,
        )
        .replace(r#","created_at":"#, r#","auto_resume":true,"created_at":"#);
    let row = format!("\u{1}{head}{{\"kind\":\"starting\",\"give_up_at\":{time}}}}}");
    golden::check(&record, row.as_bytes());
}

#[test]
fn format_2() {
    let plain = golden::sandbox_record();
    let login = ProxyLogin { username: "me".into(), password: Sealed::new("c2VhbGVk") };
    let address = "proxy.example.com:1080".parse().unwrap();
    let proxy = EgressProxy { address, login: Some(login) };
    let asked = ProxyAsked {
        address: "Proxy.example.com:1080".into(),
        username: Some("me".into()),
        password: None,
    };
    let record = SandboxRecord {
        network: plain.network.clone().map(|it| NetworkAsked {
            egress_proxy: Some(asked),
            https_ports: Some(vec![8443, 443]),
            dns_servers: Some(vec!["1.1.1.1".into()]),
            ..it
        }),
        spec: SandboxSpec {
            network: NetworkPolicy { proxy: Some(proxy), ..plain.spec.network.clone() },
            ..plain.spec.clone()
        },
        ingress: Ingress { https_ports: [443, 8443].into(), ..plain.ingress.clone() },
        ..plain
    };
    let time = "\"2026-01-02T03:04:05.678901234Z\"";
    let head = HEAD
        .replace(
            r#","agent_token":"#,
            r#","proxy":{"address":"proxy.example.com:1080","login":{"username":"me","password":"c2VhbGVk"}},"agent_token":"#,
        )
        .replace(
            r#"},"mask_request_host":"#,
            r#","egress_proxy":{"address":"Proxy.example.com:1080","username":"me"},"https_ports":[8443,443],"dns_servers":["1.1.1.1"]},"mask_request_host":"#,
        )
        .replace(r#","created_at":"#, r#","https_ports":[443,8443],"created_at":"#);
    let row = format!("\u{2}{head}{{\"kind\":\"starting\",\"give_up_at\":{time}}}}}");
    golden::check(&record, row.as_bytes());
}

/// Should one get here before it is sealed, it is lost and not recorded.
#[test]
fn a_password_that_is_not_sealed_is_never_written() {
    let mut record = golden::sandbox_record();
    let password = Some(Secret::new("hunter2"));
    let asked = ProxyAsked { address: "a:1".into(), username: None, password };
    record.network.as_mut().unwrap().egress_proxy = Some(asked);
    let written = record.encode();
    assert!(!String::from_utf8_lossy(&written).contains("hunter2"));
}

#[test]
fn format_3_has_an_identity() {
    let tokens = [
        ("aws".parse().unwrap(), "sts.amazonaws.com".parse().unwrap()),
        ("a \"b".parse().unwrap(), "//é".parse().unwrap()),
    ];
    let execution = "0d9e1f2a-3b4c-4d5e-8f60-718293a4b5c6".parse().unwrap();
    let identity = Identity { tokens: Tokens::new(tokens.into()).unwrap(), execution };
    let record = SandboxRecord { identity: Some(identity), ..golden::sandbox_record() };
    let time = "\"2026-01-02T03:04:05.678901234Z\"";
    let head = HEAD.replace(
        r#","created_at":"#,
        r#","identity":{"tokens":{"a \"b":"//é","aws":"sts.amazonaws.com"},"execution":"0d9e1f2a-3b4c-4d5e-8f60-718293a4b5c6"},"created_at":"#,
    );
    let row = format!("\u{3}{head}{{\"kind\":\"starting\",\"give_up_at\":{time}}}}}");
    golden::check(&record, row.as_bytes());
    for (right, wrong) in [
        (r#""aws":"sts"#, r#""":"sts"#),
        (r#":"sts.amazonaws.com""#, r#":"""#),
        ("0d9e1f2a", "0d9e1f2"),
        (r#""aws":"#, r#""a":"a","b":"b","c":"c","d":"d","aws":"#),
    ] {
        assert!(row.contains(right));
        let row = row.replace(right, wrong);
        assert!(SandboxRecord::decode(row.as_bytes()).is_err(), "{row}");
    }
}

#[test]
fn other_formats_and_torn_rows_are_refused() {
    let bytes = golden::sandbox_record().encode();
    let mut newer = bytes.clone();
    newer[0] = 4;
    assert!(matches!(SandboxRecord::decode(&newer), Err(DecodeError::Format(4))));
    assert!(matches!(SandboxRecord::decode(&[]), Err(DecodeError::Empty)));
    for end in 1..bytes.len() {
        assert!(SandboxRecord::decode(&bytes[..end]).is_err());
    }
}
