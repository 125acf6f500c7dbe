//! Creating: what is asked, what fails, what is repeated.

use std::{collections::BTreeSet, time::Duration};

use sandboxo_control::{CreateError, Scope};
use sandboxo_model::{NetworkAsked, NewSandbox, Phase, PhaseKind};
use sandboxo_store::Read as _;
use sandboxo_zone_protocol::{
    CreateError as ZoneCreateError, EndReason, Timestamp,
    fake::{Call, ScriptedCreate},
};

use crate::world::{World, new};

#[tokio::test(start_paused = true)]
async fn a_create_runs_what_was_asked_for() {
    let world = World::new().await;
    let record = world
        .control
        .sandboxes
        .create(
            world.team,
            NewSandbox {
                env: [("A".to_owned(), "1".to_owned())].into(),
                metadata: [("k".to_owned(), "v".to_owned())].into(),
                internet: Some(false),
                network: Some(NetworkAsked {
                    allow_out: Some(vec!["1.1.1.1".into()]),
                    allow_public_traffic: Some(false),
                    mask_request_host: Some("localhost:${PORT}".into()),
                    deny_out: None,
                    rules: None,
                    egress_proxy: None,
                    https_ports: None,
                    dns_servers: None,
                }),
                ..new()
            },
        )
        .await
        .unwrap();
    assert_eq!(world.zone.spec(record.id), Some(record.spec.clone()));
    assert_eq!(record.spec.env.get("A").map(String::as_str), Some("1"));
    assert_eq!(record.spec.env.get("E2B_TEMPLATE_ID"), Some(&world.template.id.to_string()));
    assert_eq!(record.spec.image, world.template.image);
    assert_eq!(record.spec.hostname, record.id.label());
    assert_eq!(record.spec.network.allow, ["1.1.1.1/32".parse().unwrap()]);
    assert_eq!(record.spec.network.deny.len(), 2);
    assert_eq!(record.template.alias.as_deref(), Some("base"));
    assert_eq!(record.id.region().to_string(), "loc");
    assert_ne!(record.spec.agent_token, record.ingress.traffic_token);
    assert!(record.secure() && record.ingress.traffic_token.is_some());
    let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let expires_at = "2026-01-01T00:05:00Z".parse().unwrap();
    assert_eq!(record.phase, Phase::Running { started_at: now, expires_at });
    assert_eq!(record.spec.deadline, expires_at);
    assert_eq!(world.control.sandboxes.get(world.team, record.id), Some(record));
}

#[tokio::test(start_paused = true)]
async fn a_plain_create_has_no_more_than_it_needs() {
    let world = World::new().await;
    let plain = NewSandbox { secure: false, template: world.template.id.to_string(), ..new() };
    let record = world.control.sandboxes.create(world.team, plain).await.unwrap();
    assert_eq!(record.spec.agent_token, None);
    assert_eq!(record.ingress.traffic_token, None);
    assert_eq!(record.template.alias, None);
}

#[tokio::test(start_paused = true)]
async fn bad_requests_touch_nothing() {
    let world = World::new().await;
    let entry = |key: &str, value: &str| [(key.to_owned(), value.to_owned())].into();
    let network = |network| NewSandbox { network: Some(network), ..new() };
    for (expected, bad) in [
        ("Timeout must be greater than 0", NewSandbox { timeout: Duration::ZERO, ..new() }),
        (
            "Timeout must be at most 2592000 seconds",
            NewSandbox { timeout: Duration::from_hours(24 * 31), ..new() },
        ),
        (
            "Env \"A=\" can't be the name of a variable",
            NewSandbox { env: entry("A=", ""), ..new() },
        ),
        ("Env \"A\" can't hold a NUL character", NewSandbox { env: entry("A", "\0"), ..new() }),
        (
            "Metadata must have at most 65536 bytes",
            NewSandbox { metadata: entry("k", &"x".repeat(70_000)), ..new() },
        ),
        (
            "Network \"a.b\" is not an IP address or CIDR",
            network(NetworkAsked { deny_out: Some(vec!["a.b".into()]), ..NetworkAsked::default() }),
        ),
        (
            "MaskRequestHost must be a host name of at most 255 characters",
            network(NetworkAsked {
                mask_request_host: Some("a b".into()),
                ..NetworkAsked::default()
            }),
        ),
        ("template 'other' not found", NewSandbox { template: "other".into(), ..new() }),
        ("template 'base:v2' not found", NewSandbox { template: "base:v2".into(), ..new() }),
    ] {
        let error = world.control.sandboxes.create(world.team, bad).await.unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    assert!(world.zone.calls().iter().all(|call| !matches!(call, Call::Create(_))));
}

#[tokio::test(start_paused = true)]
async fn what_the_zone_refuses_is_typed_and_leaves_nothing() {
    let world = World::new().await;
    let limit = ZoneCreateError::LimitReached { what: "sandboxes", limit: 7 };
    for (fault, expected, reason) in [
        (
            limit,
            "the limit of 7 sandboxes is reached",
            "not started: the zone's limit of 7 sandboxes was reached",
        ),
        (ZoneCreateError::DiskFull, "the disk is full", "not started: the zone's disk was full"),
        (
            ZoneCreateError::TimedOut(Duration::from_secs(9)),
            "the sandbox did not start in time",
            "not started: it did not start in time",
        ),
        (
            ZoneCreateError::Runtime("no".into()),
            "the sandbox did not start",
            "not started: the runtime failed to start it",
        ),
        (ZoneCreateError::Killed, "the sandbox was killed while it started", "killed"),
    ] {
        world.zone.script(ScriptedCreate::Fail(fault));
        let error = world.control.sandboxes.create(world.team, new()).await.unwrap_err();
        assert_eq!(error.to_string(), expected);
        let id = last_create(&world);
        assert_eq!(world.dead(id).await, reason);
        assert!(!world.is_listed(id));
    }
    assert!(world.zone.running().is_empty());
    assert!(world.store.read(|tx| tx.live_sandboxes()).await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_zone_that_hangs_is_given_up_and_cleaned() {
    let world = World::new().await;
    world.zone.script(ScriptedCreate::Hang);
    let error = world.control.sandboxes.create(world.team, new()).await.unwrap_err();
    assert!(matches!(error, CreateError::TimedOut));
    let id = last_create(&world);
    assert_eq!(world.dead(id).await, "not started: it did not start in time");
    assert!(world.zone.calls().contains(&Call::Kill(id)));
    assert!(world.zone.starting().is_empty() && world.zone.running().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_asked_for_again() {
    let world = World::new().await;
    world.zone.script(ScriptedCreate::LoseAnswer);
    let record = world.create().await;
    let creates = world.zone.calls().iter().filter(|it| **it == Call::Create(record.id)).count();
    assert_eq!(creates, 2);
    assert_eq!(world.zone.running(), [record.id]);
}

#[tokio::test(start_paused = true)]
async fn a_zone_that_is_away_is_said_to_be_and_cleaned_when_it_is_back() {
    let world = World::new().await;
    for _ in 0..4 {
        world.zone.script(ScriptedCreate::LoseAnswer);
    }
    world.zone.set_available(false);
    let error = world.control.sandboxes.create(world.team, new()).await.unwrap_err();
    assert!(matches!(error, CreateError::ZoneUnavailable));
    let id = last_create(&world);
    assert_eq!(world.record(id).await.phase.kind(), PhaseKind::Killing);
    world.zone.set_available(true);
    assert_eq!(world.dead(id).await, "not started: the zone was not available");
}

#[tokio::test(start_paused = true)]
async fn one_that_dies_at_once_is_not_handed_out() {
    let world = World::new().await;
    world.zone.script(ScriptedCreate::DieAfter(EndReason::OutOfMemory));
    let created = world.control.sandboxes.create(world.team, new()).await;
    let id = last_create(&world);
    // Whether the start or the end is seen first is a race that the zone decides.
    if let Ok(record) = created {
        assert_eq!(record.id, id);
    }
    assert_eq!(world.dead(id).await, "out of memory");
    world.until("acknowledged", |world| world.zone.ended().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_does_not_stop_its_create() {
    let world = World::new().await;
    world.zone.hold();
    {
        let create = world.control.sandboxes.create(world.team, new());
        tokio::select! {
            _ = create => panic!("the zone holds it"),
            () = world.zone.wait_for(|zone| !zone.starting().is_empty()) => {}
        }
    }
    world.zone.release();
    let id = last_create(&world);
    world.until("it runs", |world| world.is_listed(id)).await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_at_any_moment_leaves_nothing_half_done() {
    let world = World::new().await;
    // Drop the future after 0, 1, 2, … polls.
    for polls in 0..12 {
        let mut create = Box::pin(world.control.sandboxes.create(world.team, new()));
        for _ in 0..polls {
            let polled = std::future::poll_fn(|context| {
                std::task::Poll::Ready(create.as_mut().poll(context).is_ready())
            });
            if polled.await {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(create);
        let mut agree = false;
        for _ in 0..1000 {
            let stored = world.store.read(|tx| tx.live_sandboxes()).await.unwrap();
            let recorded: BTreeSet<_> = stored
                .iter()
                .filter(|record| record.phase.kind() == PhaseKind::Running)
                .map(|record| record.id)
                .collect();
            let listed = world.control.sandboxes.live().iter().map(|it| it.id).collect();
            agree = recorded.len() == stored.len()
                && recorded == world.zone.running().into_iter().collect()
                && recorded == listed
                && world.zone.starting().is_empty();
            if agree {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(agree, "dropped after {polls} polls");
    }
    world.until("some got as far as running", |world| !world.zone.running().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn the_same_key_gives_the_same_sandbox() {
    let world = World::new().await;
    let keyed = |key: &str| NewSandbox { idempotency_key: key.parse().ok(), ..new() };
    let sandboxes = &world.control.sandboxes;
    let first = sandboxes.create(world.team, keyed("k")).await.unwrap();
    let second = sandboxes.create(world.team, keyed("k")).await.unwrap();
    assert_eq!(second.id, first.id);
    assert_eq!(second.spec.agent_token, first.spec.agent_token);
    let other = NewSandbox { secure: false, ..keyed("k") };
    assert!(matches!(
        sandboxes.create(world.team, other).await,
        Err(CreateError::IdempotencyMismatch)
    ));
    let another = sandboxes.create(world.team, keyed("l")).await.unwrap();
    assert_ne!(another.id, first.id);

    // Whatever has become of it, and also for a failure.
    sandboxes.kill(world.team, first.id).await.unwrap();
    assert_eq!(sandboxes.create(world.team, keyed("k")).await.unwrap().id, first.id);
    world.zone.script(ScriptedCreate::Fail(ZoneCreateError::DiskFull));
    for _ in 0..2 {
        let failed = sandboxes.create(world.team, keyed("full")).await;
        assert!(matches!(failed, Err(CreateError::DiskFull)));
    }

    // Another team's keys are its own.
    let other_team = world.control.keys.create_team("other").await.unwrap();
    let theirs = sandboxes.create(other_team.id, keyed("k")).await.unwrap();
    assert_ne!(theirs.id, first.id);

    // A day later it is forgotten.
    world.clock.advance(Duration::from_hours(24));
    assert_ne!(sandboxes.create(world.team, keyed("k")).await.unwrap().id, first.id);
}

#[tokio::test(start_paused = true)]
async fn a_repeat_during_the_create_is_told_so() {
    let world = World::new().await;
    let keyed = || NewSandbox { idempotency_key: "k".parse().ok(), ..new() };
    world.zone.hold();
    let sandboxes = &world.control.sandboxes;
    let first = sandboxes.create(world.team, keyed());
    let second = async {
        world.zone.wait_for(|zone| !zone.starting().is_empty()).await;
        let second = sandboxes.create(world.team, keyed()).await;
        world.zone.release();
        second
    };
    let (first, second) = tokio::join!(first, second);
    assert!(matches!(second, Err(CreateError::IdempotencyInProgress)));
    assert_eq!(sandboxes.create(world.team, keyed()).await.unwrap().id, first.unwrap().id);
}

#[tokio::test(start_paused = true)]
async fn many_with_one_key_make_one_sandbox() {
    let world = World::new().await;
    let keyed = || NewSandbox { idempotency_key: "k".parse().ok(), ..new() };
    let creates = (0..50).map(|_| world.control.sandboxes.create(world.team, keyed()));
    let answers = futures_util::future::join_all(creates).await;
    let mut ids = BTreeSet::new();
    for answer in answers {
        match answer {
            Ok(record) => {
                ids.insert(record.id);
            }
            Err(CreateError::IdempotencyInProgress) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(ids.len(), 1);
    assert_eq!(world.zone.running().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn two_hundred_at_once_all_run_or_are_refused_whole() {
    let world = World::new().await;
    world.zone.set_limit(150);
    let creates = (0..200).map(|_| world.control.sandboxes.create(world.team, new()));
    let answers = futures_util::future::join_all(creates).await;
    let refused = answers
        .iter()
        .filter(|answer| matches!(answer, Err(CreateError::LimitReached { limit: 150, .. })));
    assert_eq!(refused.count(), 50);
    let ids: BTreeSet<_> =
        answers.iter().filter_map(|answer| answer.as_ref().ok()).map(|record| record.id).collect();
    assert_eq!(ids, world.zone.running().into_iter().collect());
    assert_eq!(world.control.sandboxes.live().len(), 150);
    for record in answers.into_iter().flatten() {
        world.control.sandboxes.kill(Scope::Operator, record.id).await.unwrap();
    }
    assert!(world.zone.running().is_empty());
}

fn last_create(world: &World) -> sandboxo_zone_protocol::SandboxId {
    let calls = world.zone.calls();
    let mut creates = calls.iter().rev().filter_map(|call| {
        let Call::Create(id) = call else { return None };
        Some(*id)
    });
    creates.next().unwrap()
}
