//! Create, exec, kill, again and again, with a `kill -9` of the appliance now and then.
//! `./dev soak MINUTES` does 2,000 of them, 10 kills among them.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, ensure};
use reqwest::StatusCode;
use sandboxo_tests::{Appliance, Client};
use serde_json::Value;
use tokio::{task::JoinSet, time::Instant};

/// More than the host's processors start at once only wait.
const AT_ONCE: usize = 4;
/// How often sizes are looked at after the last kill.
const LOOKS: usize = 20;
/// Allocators keep what they once had, and threads come and go with the load.
const RSS_SLACK: u64 = 8 << 20;
const DESCRIPTOR_SLACK: u64 = 8;
const THREAD_SLACK: u64 = 8;

struct Plan {
    sandboxes: usize,
    kills: usize,
    /// Stops then, whatever is left of it.
    limit: Duration,
}

/// 81: what is on the host; 90: descriptors and memory.
#[tokio::test(flavor = "multi_thread")]
async fn rows_81_and_90_nothing_is_left_and_nothing_grows() -> Result<()> {
    let plan = plan();
    let mut appliance = Appliance::start(4).await?;
    let begin = Instant::now();
    let mut done = 0;
    // The kills come in the first half: sizes are compared in one life of the appliance.
    for kill in 0..plan.kills {
        done += some(&appliance.client, plan.sandboxes / 2 / plan.kills).await?;
        kill_amid_load(&mut appliance).await?;
        appliance.leaks().await.with_context(|| format!("after kill {kill}"))?;
        say(&format!("{:?}: {done} sandboxes, {} kills", begin.elapsed(), kill + 1));
    }
    let mut sizes = Vec::new();
    let each = (plan.sandboxes.saturating_sub(done) / LOOKS).max(1);
    for look in 0..LOOKS {
        if begin.elapsed() > plan.limit {
            break;
        }
        done += some(&appliance.client, each).await?;
        let host = appliance.leaks().await.with_context(|| format!("look {look}"))?;
        let processes = host.get("processes").context("processes")?;
        say(&format!("{:?}: {done} sandboxes, {processes}", begin.elapsed()));
        sizes.push(flatten(processes));
    }
    ensure!(done * 10 >= plan.sandboxes * 9 || begin.elapsed() > plan.limit, "{done} were done");
    ensure!(appliance.client.running().await?.is_empty());
    is_flat(&sizes)
}

#[expect(clippy::disallowed_methods, reason = "./dev soak says for how long")]
fn plan() -> Plan {
    match std::env::var("SANDBOXO_SOAK_MINUTES").ok().and_then(|text| text.parse().ok()) {
        Some(minutes) => Plan { sandboxes: 2000, kills: 10, limit: Duration::from_mins(minutes) },
        None => Plan { sandboxes: 80, kills: 2, limit: Duration::from_mins(5) },
    }
}

#[expect(clippy::print_stdout, reason = "a long run shows how far it is")]
pub(crate) fn say(text: &str) {
    println!("{text}");
}

/// So many, a few at a time.
async fn some(client: &Client, count: usize) -> Result<usize> {
    let mut running = JoinSet::new();
    for _ in 0..count {
        if running.len() >= AT_ONCE {
            running.join_next().await.context("some run")???;
        }
        running.spawn(one(client.clone()));
    }
    while let Some(done) = running.join_next().await {
        done??;
    }
    Ok(count)
}

async fn one(client: Client) -> Result<()> {
    let sandbox = client.sandbox().await?;
    let said = client.run(&sandbox, "echo hi").await?;
    ensure!(said.stdout == "hi\n", "{said:?}");
    let killed = client.kill(&sandbox).await?;
    ensure!(killed == StatusCode::NO_CONTENT, "a kill was answered with {killed}");
    Ok(())
}

/// Clients are in the middle of everything. What they were left with is killed after the restart.
async fn kill_amid_load(appliance: &mut Appliance) -> Result<()> {
    let mut clients = JoinSet::new();
    for _ in 0..AT_ONCE {
        let client = appliance.client.clone();
        clients.spawn(async move { while one(client.clone()).await.is_ok() {} });
    }
    tokio::time::sleep(Duration::from_millis(700)).await;
    appliance.crash()?;
    while let Some(ended) = clients.join_next().await {
        ended?;
    }
    appliance.serve().await?;
    // A create that was cut off is finished by now, or soon.
    appliance.leaks().await?;
    for id in appliance.client.running().await? {
        appliance.client.kill(&serde_json::json!({ "sandboxID": id })).await?;
    }
    Ok(())
}

type Sizes = BTreeMap<String, u64>;

fn flatten(processes: &Value) -> Sizes {
    let mut sizes = Sizes::new();
    for (process, size) in processes.as_object().into_iter().flatten() {
        for (name, number) in size.as_object().into_iter().flatten() {
            if let Some(number) = number.as_u64().filter(|_| name != "pid") {
                sizes.insert(format!("{process} {name}"), number);
            }
        }
    }
    sizes
}

/// The median of the last fifth against that of the second.
fn is_flat(sizes: &[Sizes]) -> Result<()> {
    let fifth = (sizes.len() / 5).max(1);
    let names = sizes.first().context("sizes")?.keys();
    for name in names {
        let median = |from: usize| -> Option<u64> {
            let mut values: Vec<u64> = sizes
                .iter()
                .skip(from)
                .take(fifth)
                .filter_map(|it| it.get(name).copied())
                .collect();
            values.sort_unstable();
            values.get(values.len() / 2).copied()
        };
        let (early, late) = (median(fifth), median(sizes.len() - fifth));
        let (early, late) = (early.context("early sizes")?, late.context("late sizes")?);
        let slack = if name.ends_with("rssBytes") {
            RSS_SLACK + early / 10
        } else if name.ends_with("threads") {
            THREAD_SLACK
        } else {
            DESCRIPTOR_SLACK
        };
        say(&format!("{name}: {early} early, {late} late"));
        ensure!(late <= early + slack, "{name} grows: {early} early, {late} late");
    }
    Ok(())
}

#[test]
fn growth_is_seen() {
    let of = |numbers: &[u64]| -> Vec<Sizes> {
        numbers.iter().map(|it| Sizes::from([("keeper descriptors".to_owned(), *it)])).collect()
    };
    assert!(is_flat(&of(&[10, 12, 30, 11, 12])).is_ok());
    assert!(is_flat(&of(&[10, 12, 13, 20, 21])).is_err());
}
