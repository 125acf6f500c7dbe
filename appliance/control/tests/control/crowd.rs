//! A thousand sandboxes' worth of records.
//!
//! `cargo nextest run --release -p sandboxo-control --no-capture crowd` says what they cost.

use std::{collections::BTreeSet, time::Duration};

use sandboxo_control::ListQuery;

use crate::world::{World, new};

const MANY: usize = 1000;

#[tokio::test(start_paused = true)]
async fn a_thousand_idle_sandboxes_are_listed_and_found_again() {
    let mut world = World::new().await;
    let before = resident_kib();
    let took = Watch::start();
    let asking = (0..MANY).map(|_| world.control.sandboxes.create(world.team, new()));
    let created = futures_util::future::join_all(asking).await;
    let ids: BTreeSet<_> = created.into_iter().map(|created| created.unwrap().id).collect();
    took.say("created");
    say(&format!("{} KiB each, the zone in memory included", (resident_kib() - before) / 1000));
    for life in ["first", "next"] {
        let took = Watch::start();
        assert_eq!(pages(&world).await, ids, "{life} life");
        took.say("listed in pages of 100");
        let took = Watch::start();
        world.restart().await;
        took.say("restarted");
    }
    assert_eq!(world.zone.running().len(), MANY);
    let took = Watch::start();
    let asking = ids.into_iter().map(|id| world.control.sandboxes.kill(world.team, id));
    let killed = futures_util::future::join_all(asking).await;
    assert!(killed.into_iter().all(|killed| killed.is_ok()));
    took.say("killed");
    assert_eq!(pages(&world).await, BTreeSet::new());
    world.until("forgotten by the zone", |world| world.zone.ended().is_empty()).await;
}

async fn pages(world: &World) -> BTreeSet<sandboxo_zone_protocol::SandboxId> {
    let mut ids = BTreeSet::new();
    let mut token = None;
    loop {
        let query = ListQuery { token, ..ListQuery::default() };
        let page = world.control.sandboxes.list(world.team, query).await.unwrap();
        assert!(page.items.len() <= 100);
        assert!(page.items.iter().all(|record| ids.insert(record.id)), "listed twice");
        match page.next {
            Some(next) => token = Some(next.to_string()),
            None => return ids,
        }
    }
}

/// Tokio's time stands still here.
struct Watch(std::time::Instant);

impl Watch {
    #[expect(clippy::disallowed_methods, reason = "for a reader, nothing is decided by it")]
    fn start() -> Self {
        Self(std::time::Instant::now())
    }

    fn say(self, what: &str) {
        let took: Duration = self.0.elapsed();
        say(&format!("{what} {MANY} within {took:?}"));
    }
}

#[expect(clippy::print_stdout, reason = "a reader wants to know")]
fn say(text: &str) {
    println!("{text}");
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}
