//! Requests for what is paused.

use futures_util::future::join_all;
use http_body_util::BodyExt as _;
use sandboxo_control::{Lookup, Scope};
use sandboxo_front_door::{Domains, FrontDoorConfig};
use sandboxo_model::{Lifecycle, NetworkAsked, SandboxRecord};
use sandboxo_zone_protocol::{
    CreateError, Kept, OnDeadline, PauseError, SandboxId,
    fake::{Call, ScriptedCreate},
};

use crate::{
    program::{AGENT, HTTP},
    world::{DOMAIN, OPERATOR, World, host, within},
};

const WAKES: Lifecycle =
    Lifecycle { on_timeout: OnDeadline::Pause(Kept::Memory), auto_resume: true };

impl World {
    async fn paused(&self, lifecycle: Lifecycle) -> std::sync::Arc<SandboxRecord> {
        let record = self.create_with(NetworkAsked::default(), lifecycle).await;
        self.pause(record.id).await;
        record
    }

    async fn pause(&self, id: SandboxId) {
        self.control.sandboxes.pause(Scope::Operator, id, Kept::Memory).await.unwrap();
    }

    fn creates(&self, id: SandboxId) -> usize {
        self.zone.calls().iter().filter(|call| **call == Call::Create(id)).count()
    }
}

/// The ways in to a port of a sandbox.
fn ways(label: &str, port: u16) -> [Vec<(&'static str, String)>; 3] {
    [
        vec![("e2b-sandbox-id", label.to_owned()), ("e2b-sandbox-port", port.to_string())],
        vec![("host", host(port, label))],
        vec![
            ("x-agentenv-sandbox-id", label.to_owned()),
            ("x-agentenv-target-port", port.to_string()),
        ],
    ]
}

fn borrow<'h>(headers: &'h [(&'static str, String)]) -> Vec<(&'h str, &'h str)> {
    headers.iter().map(|(name, value)| (*name, value.as_str())).collect()
}

#[tokio::test]
async fn paused_without_auto_resume_is_told_by_the_way_in() {
    let world = World::new().await;
    let record = world.paused(Lifecycle::default()).await;
    for (headers, expected) in ways(&record.id.label(), HTTP).into_iter().zip([
        (502, "The sandbox was not found"),
        (502, "The sandbox was not found"),
        (410, "The sandbox is paused"),
    ]) {
        let answer = world.ask("GET /x", &borrow(&headers)).await;
        let message = answer.json()["message"].as_str().unwrap().to_owned();
        assert_eq!((answer.status, message.as_str()), expected, "{headers:?}");
        assert_eq!(answer.headers["should-retry"], "false");
    }
    assert_eq!(world.creates(record.id), 1, "it sleeps on");
}

#[tokio::test]
async fn paused_with_auto_resume_is_served() {
    let world = World::new().await;
    let record = world.create_with(NetworkAsked::default(), WAKES).await;
    for port in [HTTP, AGENT] {
        for headers in ways(&record.id.label(), port) {
            world.pause(record.id).await;
            world.ask("GET /x", &borrow(&headers)).await.seen();
        }
    }
    assert_eq!(world.creates(record.id), 7);
}

#[tokio::test]
async fn one_resume_flight_for_many_requests() {
    let world = World::new().await;
    let record = world.paused(WAKES).await;
    let headers = ways(&record.id.label(), HTTP);
    world.zone.hold();
    let asked = (0..30).map(|n| {
        let headers = borrow(&headers[n % 3]);
        let world = &world;
        async move { world.ask("GET /x", &headers).await }
    });
    let release = async {
        world.zone.wait_for(|zone| !zone.starting().is_empty()).await;
        world.zone.release();
    };
    let (answers, ()) = tokio::join!(join_all(asked), release);
    for answer in answers {
        answer.seen();
    }
    assert_eq!(world.creates(record.id), 2);
}

#[tokio::test]
async fn first_caller_leaving_does_not_fail_others() {
    let world = World::new().await;
    let record = world.paused(WAKES).await;
    let [header, ..] = ways(&record.id.label(), HTTP);
    let header = borrow(&header);
    world.zone.hold();
    {
        let first = world.ask("GET /first", &header);
        tokio::select! {
            answer = first => panic!("{answer:?}"),
            () = world.zone.wait_for(|zone| !zone.starting().is_empty()) => {}
        }
    }
    let second = world.ask("GET /second", &header);
    let release = async {
        tokio::task::yield_now().await;
        world.zone.release();
    };
    let (answer, ()) = tokio::join!(second, release);
    assert_eq!(answer.seen().uri, "/second");
    assert_eq!(world.creates(record.id), 2);
}

#[tokio::test]
async fn a_stranger_wakes_nobody() {
    let world = World::new().await;
    let network = NetworkAsked { allow_public_traffic: Some(false), ..NetworkAsked::default() };
    let record = world.create_with(network, WAKES).await;
    world.pause(record.id).await;
    let label = record.id.label();
    let [header, ..] = ways(&label, HTTP);
    for (more, status) in [(vec![], 403), (vec![("e2b-traffic-access-token", OPERATOR)], 403)] {
        let answer = world.ask("GET /", &[borrow(&header), more].concat()).await;
        assert_eq!(answer.status, status);
    }
    let [agent, ..] = ways(&label, AGENT);
    assert_eq!(world.ask("POST /init", &borrow(&agent)).await.status, 404);
    assert!(matches!(world.control.sandboxes.lookup(record.id), Lookup::Paused(_)));
    let token = record.ingress.traffic_token.as_ref().unwrap().expose();
    let right = [borrow(&header), vec![("e2b-traffic-access-token", token)]].concat();
    world.ask("GET /", &right).await.seen();
}

#[tokio::test]
async fn pausing_right_now_is_waited_for_or_told_by_the_way_in() {
    let world = World::new().await;
    let record = world.create_with(NetworkAsked::default(), WAKES).await;
    let label = record.id.label();
    world.zone.hold();
    let ask = async {
        let moving = |id| matches!(world.control.sandboxes.lookup(id), Lookup::Pausing(_));
        within(async {
            while !moving(record.id) {
                tokio::task::yield_now().await;
            }
        })
        .await;
        for (port, status) in [(HTTP, 409), (AGENT, 503)] {
            let [header, host, _] = ways(&label, port);
            for headers in [header, host] {
                let answer = world.ask("GET /", &borrow(&headers)).await;
                assert_eq!(answer.status, status, "{headers:?}");
                assert_eq!(answer.headers["retry-after"], "1");
                assert!(answer.text().contains("is being paused or resumed"), "{answer:?}");
            }
        }
        let [.., prefix] = ways(&label, HTTP);
        let prefix = borrow(&prefix);
        let waits = world.ask("GET /proxy/x", &prefix);
        let release = async {
            tokio::task::yield_now().await;
            world.zone.release();
        };
        tokio::join!(waits, release).0.seen();
    };
    tokio::join!(world.pause(record.id), ask);
}

/// Clients poll it to see a pause through.
#[tokio::test]
async fn the_health_of_one_that_traffic_does_not_wake_is_gone_as_soon_as_it_pauses() {
    let world = World::new().await;
    let sleeps = Lifecycle { auto_resume: false, ..WAKES };
    let record = world.create_with(NetworkAsked::default(), sleeps).await;
    let label = record.id.label();
    world.zone.hold();
    let ask = async {
        let moving = |id| matches!(world.control.sandboxes.lookup(id), Lookup::Pausing(_));
        within(async {
            while !moving(record.id) {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let [header, host, _] = ways(&label, AGENT);
        for headers in [header, host] {
            let answer = world.ask("GET /health", &borrow(&headers)).await;
            assert_eq!(answer.status, 502, "{headers:?}");
            assert!(answer.text().contains("was not found"), "{answer:?}");
            let answer = world.ask("GET /envs", &borrow(&headers)).await;
            assert_eq!(answer.status, 503, "{headers:?}");
        }
        world.zone.release();
    };
    tokio::join!(world.pause(record.id), ask);
}

#[tokio::test(start_paused = true)]
async fn resume_failure_and_timeout_are_told_by_the_way_in() {
    let runtime = || ScriptedCreate::Fail(CreateError::Runtime("x".into()));
    let world = World::new().await;
    let record = world.paused(WAKES).await;
    let ways = ways(&record.id.label(), HTTP);
    for (script, expected) in [
        (Some(runtime as fn() -> ScriptedCreate), [(500, false), (500, false), (502, false)]),
        // Until the budget for tries is used up.
        (None, [(503, true), (503, true), (502, false)]),
    ] {
        for (headers, (status, retry)) in ways.iter().zip(expected) {
            match script {
                Some(script) => world.zone.script(script()),
                None => world.zone.set_limit(0),
            }
            let answer = world.site_ask("/x", &borrow(headers)).await;
            assert_eq!(answer.status(), status, "{headers:?}");
            assert_eq!(answer.headers().contains_key("retry-after"), retry, "{headers:?}");
            world.zone.set_limit(100);
        }
    }
    // A start that hangs is given up after half a minute, and so is the next.
    for (headers, status) in ways.iter().zip([503, 503, 504]) {
        for _ in 0..2 {
            world.zone.script(ScriptedCreate::Hang);
        }
        let answer = world.site_ask("/x", &borrow(headers)).await;
        assert_eq!(answer.status(), status, "{headers:?}");
        world.control.sandboxes.settled(record.id).await;
    }
}

#[tokio::test]
async fn lot_full_is_told_apart() {
    let domains = Domains::new([DOMAIN]);
    let config = FrontDoorConfig { domains, max_waiting: 1, ..FrontDoorConfig::default() };
    let world = World::with(config).await;
    let record = world.paused(WAKES).await;
    let [header, ..] = ways(&record.id.label(), HTTP);
    let header = borrow(&header);
    world.zone.hold();
    let full = async {
        world.zone.wait_for(|zone| !zone.starting().is_empty()).await;
        let answer = world.ask("GET /", &header).await;
        world.zone.release();
        answer
    };
    let (first, full) = tokio::join!(world.ask("GET /", &header), full);
    first.seen();
    assert_eq!((full.status, full.headers.get("retry-after")), (503, None));
    assert_eq!(full.json()["error_code"], "proxy_parking_lot_full");
    assert_eq!(full.json()["code"], 503);
    // Those that need not wait need no place.
    world.ask("GET /", &header).await.seen();
}

#[tokio::test]
async fn a_pause_cuts_streams_and_a_refused_one_does_not() {
    let world = World::new().await;
    let host = world.host(HTTP);
    let headers = [("host", host.as_str())];
    let mut answer = world.begin("GET /ticks", &headers, "").await;
    within(answer.body_mut().frame()).await.unwrap().unwrap();
    world.zone.fail_next_pause(PauseError::AgentUnresponsive);
    let refused = world.control.sandboxes.pause(Scope::Operator, world.record.id, Kept::Memory);
    refused.await.unwrap_err();
    world.programs.go.notify_one();
    assert_eq!(within(answer.into_body().collect()).await.unwrap().to_bytes(), "tick 2\n");

    let mut answer = world.begin("GET /ticks", &headers, "").await;
    within(answer.body_mut().frame()).await.unwrap().unwrap();
    world.pause(world.record.id).await;
    within(answer.into_body().collect()).await.unwrap_err();
}
