//! As many sandboxes at once as are let in, with twice as many clients at the door.
//! `./dev soak --crowd` does it with 100 of them.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use reqwest::{Method, StatusCode};
use sandboxo_tests::{Appliance, Client, id};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::Instant};

use crate::rounds::say;

/// Commands and kills at the same time: more would only wait for the host's processors.
const AT_ONCE: usize = 8;
/// Connections that the client keeps.
const SLACK: u64 = 16;

/// 125: each of a herd is let in, or told which limit stops it and that later is better.
#[tokio::test(flavor = "multi_thread")]
async fn row_125_a_crowd_is_let_in_up_to_its_limit_and_lives_through_a_crash() -> Result<()> {
    let most = most();
    let limits = json!({ "limits": { "sandboxes": most } });
    let mut appliance = Appliance::start_set(0, limits).await?;
    let client = appliance.client.clone();
    let empty = host(&appliance).await?;

    let begin = Instant::now();
    let crowd = herd(&client, most).await?;
    say(&format!("{most} of {} were let in within {:?}", 2 * most, begin.elapsed()));
    ensure!(crowd.len() == most, "{} of {most} were let in", crowd.len());
    let ids = crowd.iter().map(id).collect::<Result<BTreeSet<_>>>()?;
    ensure!(all_running(&client).await? == ids, "not those that were told are there");
    each_answers(&client, &crowd).await?;
    say(&format!("each has answered within {:?}", begin.elapsed()));
    let full = host(&appliance).await?;
    let used = (empty.free_kib.saturating_sub(full.free_kib)) / most as u64;
    say(&format!("each takes {used} KiB of the host's memory"));
    say(&format!("empty: {empty:?}\nfull: {full:?}"));

    appliance.crash()?;
    let begin = Instant::now();
    appliance.serve().await?;
    say(&format!("after a kill it serves again within {:?}", begin.elapsed()));
    ensure!(all_running(&client).await? == ids, "some did not live on");
    each_answers(&client, &crowd).await?;
    ensure!(herd(&client, 1).await?.is_empty(), "one more was let in");

    let begin = Instant::now();
    stream::iter(&crowd)
        .map(|sandbox| async {
            let killed = client.kill(sandbox).await?;
            ensure!(killed == StatusCode::NO_CONTENT, "a kill was answered with {killed}");
            Ok(())
        })
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await?;
    say(&format!("all were killed within {:?}", begin.elapsed()));
    let after = host(&appliance).await?;
    say(&format!("after: {after:?}"));
    ensure!(after.descriptors <= empty.descriptors + SLACK, "{empty:?} became {after:?}");
    ensure!(all_running(&client).await?.is_empty());
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "./dev soak says how many")]
fn most() -> usize {
    std::env::var("SANDBOXO_CROWD").ok().and_then(|text| text.parse().ok()).unwrap_or(30)
}

/// Twice as many creates as there is room for, all at once. Every answer is one or the other.
async fn herd(client: &Client, room: usize) -> Result<Vec<Value>> {
    let mut asking = JoinSet::new();
    for _ in 0..2 * room {
        let body = json!({ "templateID": "base", "timeout": 1800 });
        let create = client.api(Method::POST, "/v2/sandboxes").json(&body);
        asking.spawn(async move {
            let answer = create.send().await?;
            let later = answer.headers().contains_key("retry-after");
            Ok::<_, reqwest::Error>((answer.status(), later, answer.json::<Value>().await?))
        });
    }
    let mut let_in = Vec::new();
    while let Some(answer) = asking.join_next().await {
        let (status, later, body) = answer??;
        if status == StatusCode::CREATED {
            let_in.push(body);
            continue;
        }
        let said = body.get("message").and_then(Value::as_str).unwrap_or_default();
        let is_named = said.contains("sandboxes is reached");
        ensure!(status == StatusCode::TOO_MANY_REQUESTS && later && is_named, "{status} {body}");
    }
    Ok(let_in)
}

/// Each at the same time as some others, and as itself.
async fn each_answers(client: &Client, crowd: &[Value]) -> Result<()> {
    stream::iter(crowd)
        .map(|sandbox| async {
            let said = client.run(sandbox, "echo $E2B_SANDBOX_ID").await?;
            ensure!(said.stdout.trim() == id(sandbox)?, "{said:?}");
            Ok(())
        })
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await
}

async fn all_running(client: &Client) -> Result<BTreeSet<String>> {
    let mut ids = BTreeSet::new();
    let mut token = None;
    loop {
        let list = client.api(Method::GET, "/v2/sandboxes?state=running&limit=40");
        let page = list.query(&token.map(|token: String| [("nextToken", token)])).send().await?;
        let next =
            page.headers().get("x-next-token").map(|token| token.to_str().map(str::to_owned));
        token = next.transpose()?.filter(|token| !token.is_empty());
        let page: Value = page.error_for_status()?.json().await?;
        for sandbox in page.as_array().context("a list")? {
            ensure!(ids.insert(id(sandbox)?), "listed twice: {sandbox}");
        }
        if token.is_none() {
            return Ok(ids);
        }
    }
}

#[derive(Debug)]
#[expect(dead_code, reason = "shown")]
struct Host {
    free_kib: u64,
    /// Of the appliance and the keeper.
    descriptors: u64,
    resident_bytes: u64,
    threads: u64,
}

/// Also sees that what is on the host is what lives.
async fn host(appliance: &Appliance) -> Result<Host> {
    let seen = appliance.leaks().await?;
    let processes = seen.get("processes").and_then(Value::as_object).context("processes")?;
    let sum = |name: &str| {
        processes.values().filter_map(|process| process.get(name).and_then(Value::as_u64)).sum()
    };
    let meminfo = std::fs::read_to_string("/proc/meminfo")?;
    let free = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let free = free.and_then(|line| line.trim().strip_suffix(" kB")).context("MemAvailable")?;
    Ok(Host {
        free_kib: free.parse()?,
        descriptors: sum("descriptors"),
        resident_bytes: sum("rssBytes"),
        threads: sum("threads"),
    })
}
