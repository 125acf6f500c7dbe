//! What outlives a crash, and what is left when nothing does.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use reqwest::Method;
use sandboxo_tests::{Appliance, eventually};
use serde_json::Value;

const COUNTER: &str = "while true; do echo x >> /tmp/count; sleep 0.2; done";

#[tokio::test(flavor = "multi_thread")]
async fn sandboxes_outlive_the_appliance_and_end_with_the_keeper() -> Result<()> {
    let mut appliance = Appliance::start(4).await?;
    let client = appliance.client.clone();
    let mut sandboxes = Vec::new();
    for _ in 0..10 {
        let sandbox = client.sandbox().await?;
        client.start_and_leave(&sandbox, COUNTER).await?;
        sandboxes.push(sandbox);
    }
    let short = client.create(serde_json::json!({ "templateID": "base", "timeout": 3 })).await?;
    let open = client.start(sandboxes.first().context("ten")?, "user", "sleep 600").await?;

    appliance.crash()?;
    ensure!(open.bytes().await.is_err(), "an open stream must be cut, not ended");
    let mut before = Vec::new();
    appliance.serve().await?;
    let running = client.running().await?;
    ensure!(running.len() >= 10, "{} of 10 were adopted: {}", running.len(), appliance.tail());
    for sandbox in &sandboxes {
        before.push(client.read(sandbox, "/tmp/count").await?.len());
    }
    for (sandbox, before) in sandboxes.iter().zip(before) {
        eventually(Duration::from_secs(10), || async {
            let now = client.read(sandbox, "/tmp/count").await?.len();
            ensure!(now > before, "the counter stands at {now}");
            Ok(())
        })
        .await?;
        ensure!(client.run(sandbox, "echo alive").await?.stdout == "alive\n");
    }
    let gone = |id: Value| {
        let client = &client;
        async move {
            let running = client.running().await?;
            ensure!(!running.iter().any(|one| id == one.as_str()), "{id} is still running");
            Ok(())
        }
    };
    let short_id = short.get("sandboxID").cloned().unwrap_or_default();
    eventually(Duration::from_secs(10), || gone(short_id.clone())).await?;

    appliance.crash()?;
    appliance.crash_keeper()?;
    appliance.serve().await?;
    ensure!(client.running().await?.is_empty());
    let dead = client.admin(Method::GET, "/admin/v1/sandboxes?dead=true").send().await?;
    let dead: Value = dead.json().await?;
    let listed = dead.get("sandboxes").and_then(Value::as_array).context("a list")?;
    // The short one may have ended either way.
    for sandbox in &sandboxes {
        let id = sandbox.get("sandboxID");
        let ended = listed.iter().find(|ended| ended.get("id") == id);
        let reason = ended.and_then(|ended| ended.get("reason"));
        ensure!(reason == Some(&"keeper_lost".into()), "{id:?} ended by {reason:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_after_down() -> Result<()> {
    let appliance = Appliance::start(2).await?;
    let client = &appliance.client;
    for _ in 0..4 {
        client.sandbox().await?;
    }
    let instance = appliance.instance.clone();
    ensure!(!appliance.traces()?.0.is_empty(), "no traces while it runs: the check is blind");
    drop(appliance);
    let left = sandboxo_tests::Traces::of(&instance)?;
    ensure!(left.0.is_empty(), "left on the host: {left:#?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn killing_sandboxes_returns_the_host_to_where_it_was() -> Result<()> {
    let appliance = Appliance::start(2).await?;
    let client = &appliance.client;
    let before = appliance.traces()?.0.len();
    for _ in 0..6 {
        let sandbox = client.sandbox().await?;
        ensure!(client.run(&sandbox, "echo hi").await?.stdout == "hi\n");
        ensure!(client.kill(&sandbox).await? == 204);
        ensure!(client.kill(&sandbox).await? == 404);
    }
    appliance.warm(2).await?;
    eventually(Duration::from_secs(20), || async {
        let now = appliance.traces()?;
        ensure!(now.0.len() <= before, "{} were {before}: {now:#?}", now.0.len());
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_polite_stop_leaves_sandboxes_running() -> Result<()> {
    let mut appliance = Appliance::start(1).await?;
    let client = appliance.client.clone();
    let sandbox = client.sandbox().await?;
    client.start_and_leave(&sandbox, COUNTER).await?;
    appliance.stop()?;
    appliance.serve().await?;
    ensure!(client.run(&sandbox, "pgrep -fc 'sleep 0.2'").await?.exit_code >= 0);
    ensure!(client.running().await?.len() == 1);
    Ok(())
}
