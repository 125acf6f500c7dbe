//! Lists.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use sandboxo_control::{ListError, ListQuery, Scope};
use sandboxo_model::{NewSandbox, PhaseKind, decide::list::Order};
use sandboxo_zone_protocol::{Clock as _, SandboxId};

use crate::world::{World, new};

async fn pages(world: &World, query: ListQuery) -> Vec<SandboxId> {
    let mut ids = Vec::new();
    let mut token = None;
    loop {
        let query = ListQuery { token, ..query.clone() };
        let page = world.control.sandboxes.list(world.team, query).await.unwrap();
        ids.extend(page.items.iter().map(|record| record.id));
        match page.next {
            Some(next) => token = Some(next.to_string()),
            None => return ids,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn filters_match_exactly() {
    let world = World::new().await;
    let create = |metadata: &[(&str, &str)]| {
        let metadata = metadata.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        world.control.sandboxes.create(world.team, NewSandbox { metadata, ..new() })
    };
    let one = create(&[("k", "a b&c=ü"), ("x", "1")]).await.unwrap().id;
    world.clock.advance(Duration::from_secs(1));
    let later = world.clock.now();
    let two = create(&[("k", "a b&c=ü")]).await.unwrap().id;
    let three = create(&[]).await.unwrap().id;
    let metadata = |pairs: &[(&str, &str)]| ListQuery {
        metadata: pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        ..ListQuery::default()
    };
    assert_eq!(pages(&world, metadata(&[("k", "a b&c=ü")])).await, [two, one]);
    assert_eq!(pages(&world, metadata(&[("k", "a b&c=ü"), ("x", "1")])).await, [one]);
    assert_eq!(pages(&world, metadata(&[("k", "a")])).await, []);
    let started_after = ListQuery { started_after: Some(later), ..ListQuery::default() };
    assert_eq!(
        pages(&world, started_after).await.into_iter().collect::<BTreeSet<_>>(),
        [two, three].into()
    );
    let template = |text: &str| ListQuery { template: Some(text.into()), ..ListQuery::default() };
    assert_eq!(pages(&world, template("base")).await.len(), 3);
    assert_eq!(pages(&world, template(&world.template.id.to_string())).await.len(), 3);
    assert_eq!(pages(&world, template("default/base")).await.len(), 3);
    assert_eq!(pages(&world, template("unknown")).await, []);
    let nothing = ListQuery { phases: BTreeSet::new(), ..ListQuery::default() };
    assert_eq!(pages(&world, nothing).await, []);
    let ascending = ListQuery { order: Order::Ascending, limit: 1, ..ListQuery::default() };
    let mut descending = pages(&world, ListQuery { limit: 2, ..ListQuery::default() }).await;
    descending.reverse();
    assert_eq!(pages(&world, ascending).await, descending);
}

#[tokio::test(start_paused = true)]
async fn bad_pages_are_refused() {
    let world = World::new().await;
    let list = |query| world.control.sandboxes.list(world.team, query);
    for token in ["", "x", "1.x", "99999999999999999999999999999999999999.sbx_loc_x"] {
        let query = ListQuery { token: Some(token.into()), ..ListQuery::default() };
        assert!(matches!(list(query).await, Err(ListError::BadToken)), "{token}");
    }
    for limit in [0, 101] {
        let query = ListQuery { limit, ..ListQuery::default() };
        assert!(matches!(list(query).await, Err(ListError::BadLimit)));
    }
}

#[tokio::test(start_paused = true)]
async fn paging_while_others_come_and_go_loses_and_repeats_nothing() {
    let world = World::new().await;
    let mut stay = BTreeSet::new();
    let mut leave = Vec::new();
    for n in 0..250 {
        let id = world.create().await.id;
        // Some start at the same moment.
        if n % 3 == 0 {
            world.clock.advance(Duration::from_millis(1));
        }
        if n % 50 == 0 {
            leave.push(id);
        } else {
            stay.insert(id);
        }
    }
    for order in [Order::Ascending, Order::Descending] {
        let mut seen: BTreeMap<SandboxId, usize> = BTreeMap::new();
        let mut token = None;
        let mut fetched = 0;
        loop {
            let query = ListQuery { order, token, limit: 100, ..ListQuery::default() };
            let page = world.control.sandboxes.list(world.team, query).await.unwrap();
            fetched += 1;
            for record in &page.items {
                *seen.entry(record.id).or_default() += 1;
            }
            for _ in 0..5 {
                world.clock.advance(Duration::from_millis(1));
                world.create().await;
            }
            if let Some(id) = leave.pop() {
                world.control.sandboxes.kill(world.team, id).await.unwrap();
            }
            match page.next {
                Some(next) => token = Some(next.to_string()),
                None => break,
            }
        }
        assert_eq!(fetched, 3, "{order:?}");
        assert!(seen.values().all(|count| *count == 1));
        assert!(stay.iter().all(|id| seen.contains_key(id)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_shows_a_change_at_once() {
    let world = World::new().await;
    for _ in 0..20 {
        let id = world.create().await.id;
        assert_eq!(pages(&world, ListQuery::default()).await, [id]);
        world.control.sandboxes.kill(world.team, id).await.unwrap();
        assert_eq!(pages(&world, ListQuery::default()).await, []);
    }
}

#[tokio::test(start_paused = true)]
async fn operators_see_the_dead_for_a_day() {
    let mut world = World::new().await;
    let dead = world.create().await.id;
    world.control.sandboxes.kill(world.team, dead).await.unwrap();
    let alive = world.create().await.id;
    let other = world.control.keys.create_team("other").await.unwrap().id;
    let theirs = world.control.sandboxes.create(other, new()).await.unwrap().id;
    assert_eq!(world.dead(dead).await, "killed");
    let all =
        ListQuery { phases: [PhaseKind::Running, PhaseKind::Dead].into(), ..ListQuery::default() };
    let listed = async |world: &World, scope: Scope| {
        let page = world.control.sandboxes.list(scope, all.clone()).await.unwrap();
        page.items.iter().map(|record| record.id).collect::<BTreeSet<_>>()
    };
    assert_eq!(listed(&world, world.team.into()).await, [dead, alive].into());
    assert_eq!(listed(&world, Scope::Operator).await, [dead, alive, theirs].into());
    for id in [alive, theirs] {
        let timeout = Duration::from_hours(48);
        world.control.sandboxes.set_timeout(Scope::Operator, id, timeout).await.unwrap();
    }
    world.clock.advance(Duration::from_hours(24) + Duration::from_secs(1));
    world.restart().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(listed(&world, Scope::Operator).await, [alive, theirs].into());
    assert_eq!(world.control.sandboxes.find(Scope::Operator, dead).await.unwrap(), None);
}
