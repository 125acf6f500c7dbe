//! Egress rules, and measurements.

use std::time::Duration;

use sandboxo_control::NetworkError;
use sandboxo_model::{NetworkAsked, NewSandbox};
use sandboxo_zone_protocol::{Clock as _, Timestamp};

use crate::world::{World, new};

fn deny(address: &str) -> NetworkAsked {
    NetworkAsked { deny_out: Some(vec![address.into()]), ..NetworkAsked::default() }
}

#[tokio::test(start_paused = true)]
async fn rules_are_replaced_and_ingress_stays() {
    let world = World::new().await;
    let sandboxes = &world.control.sandboxes;
    let first = NetworkAsked {
        allow_public_traffic: Some(false),
        mask_request_host: Some("h".into()),
        ..deny("8.8.8.8")
    };
    let asked = NewSandbox { internet: Some(false), network: Some(first), ..new() };
    let before = sandboxes.create(world.team, asked).await.unwrap();
    let after = sandboxes.set_network(world.team, before.id, deny("1.1.1.1"), None).await.unwrap();
    assert_eq!(after.spec.network.deny, ["1.1.1.1/32".parse().unwrap()]);
    assert_eq!(after.internet, None);
    assert_eq!(after.ingress, before.ingress);
    let kept = after.network.clone().unwrap();
    assert_eq!(kept.allow_public_traffic, Some(false));
    assert_eq!(kept.mask_request_host.as_deref(), Some("h"));
    assert_eq!(world.zone.spec(before.id).unwrap().network, after.spec.network);
    assert_eq!(after.phase, before.phase);

    let bad = sandboxes.set_network(world.team, before.id, deny("x"), None).await;
    assert!(matches!(bad, Err(NetworkError::Invalid(_))));
}

#[tokio::test(start_paused = true)]
async fn rules_that_the_zone_missed_are_told_at_its_next_hello() {
    let world = World::new().await;
    let id = world.create().await.id;
    world.zone.set_available(false);
    let set = world.control.sandboxes.set_network(world.team, id, deny("1.1.1.1"), None).await;
    assert!(matches!(set, Err(NetworkError::ZoneUnavailable)));
    world.zone.set_available(true);
    world.until("in force", |world| !world.zone.spec(id).unwrap().network.deny.is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn samples_come_soon_and_are_filtered() {
    let world = World::new().await;
    let sandboxes = &world.control.sandboxes;
    let id = world.create().await.id;
    let all = Timestamp::MIN..=Timestamp::MAX;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let metrics = sandboxes.metrics(world.team, id, all.clone()).await.unwrap().unwrap();
    assert_eq!((metrics.vcpus, metrics.samples.len()), (2, 1));
    assert_eq!(metrics.samples[0].memory_total_bytes, 512 << 20);

    let start = world.clock.now();
    for _ in 0..4 {
        world.clock.advance(Duration::from_secs(5));
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    let count = async |range| {
        sandboxes.metrics(world.team, id, range).await.unwrap().unwrap().samples.len()
    };
    assert_eq!(count(all.clone()).await, 5);
    assert_eq!(count(start..=start).await, 1);
    let latest = sandboxes.latest_metrics(world.team, &[id]);
    assert_eq!(latest[&id].samples[0].at, world.clock.now());
    let other = world.control.keys.create_team("other").await.unwrap().id;
    assert_eq!(sandboxes.metrics(other, id, all).await.unwrap(), None);
    assert!(sandboxes.latest_metrics(other, &[id]).is_empty());
}
