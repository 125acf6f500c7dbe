//! Another program is installed, and sandboxes go on under it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use reqwest::Method;
use sandboxo_tests::{Appliance, eventually};
use serde_json::Value;

const COUNTER: &str = "while true; do echo x >> /tmp/count; sleep 0.2; done";

fn text(zone: &Value, field: &str) -> Result<String> {
    Ok(zone.get(field).and_then(Value::as_str).context(field.to_owned())?.to_owned())
}

async fn counts(appliance: &Appliance, sandbox: &Value) -> Result<()> {
    let before = appliance.client.read(sandbox, "/tmp/count").await?.len();
    eventually(Duration::from_secs(30), || async {
        let now = appliance.client.read(sandbox, "/tmp/count").await?.len();
        ensure!(now > before, "the counter stands at {now}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_keeper_becomes_the_program_that_is_installed_and_nobody_notices() -> Result<()> {
    let mut appliance = Appliance::start(1).await?;
    let client = appliance.client.clone();
    let mut sandboxes = Vec::new();
    for _ in 0..3 {
        let sandbox = client.sandbox().await?;
        client.start_and_leave(&sandbox, COUNTER).await?;
        sandboxes.push(sandbox);
    }
    let (first, keeper) = (appliance.zone().await?, appliance.keeper()?);
    ensure!(text(&first, "build")? == text(&first, "keeperBuild")?);

    for name in ["second", "third"] {
        appliance.install(name)?;
        if name == "second" {
            appliance.stop()?;
        } else {
            // Killed in the middle of it, and started once more.
            appliance.crash()?;
            appliance.spawn()?;
            let log = appliance.state().join("zone/logs/keeper.log");
            eventually(Duration::from_mins(1), || async {
                let becoming = std::fs::read_to_string(&log)?.matches("becoming ").count();
                ensure!(becoming == 2, "{becoming} upgrades");
                Ok(())
            })
            .await?;
            appliance.crash()?;
        }
        appliance.serve().await?;
        let zone = appliance.zone().await?;
        ensure!(text(&zone, "build")? != text(&first, "build")?);
        ensure!(text(&zone, "build")? == text(&zone, "keeperBuild")?, "{}", appliance.tail());
        ensure!(text(&zone, "bootId")? == text(&first, "bootId")?);
        ensure!(appliance.keeper()? == keeper, "the keeper is another process");
        ensure!(client.running().await?.len() == 3, "{}", appliance.tail());
        for sandbox in &sandboxes {
            counts(&appliance, sandbox).await?;
        }
    }

    // The children are the keeper's as before: it hears of their ends and clears them away.
    let victim = sandboxes.first().context("three")?;
    kill(Pid::from_raw(appliance.sentry(victim)?), Signal::SIGKILL)?;
    eventually(Duration::from_secs(20), || async {
        let dead = client.admin(Method::GET, "/admin/v1/sandboxes?dead=true").send().await?;
        let dead: Value = dead.json().await?;
        let listed = dead.get("sandboxes").and_then(Value::as_array).context("a list")?;
        let ended = listed.iter().find(|ended| ended.get("id") == victim.get("sandboxID"));
        let reason = ended.and_then(|ended| ended.get("reason"));
        ensure!(reason == Some(&"crashed".into()), "it ended by {reason:?}");
        Ok(())
    })
    .await?;
    let next = client.sandbox().await?;
    ensure!(client.run(&next, "echo hi").await?.stdout == "hi\n");
    appliance.leaks().await?;
    let doctor = appliance.sandboxo(&["doctor", "--json"])?;
    ensure!(doctor.contains("is the appliance's program"), "{doctor}");
    Ok(())
}
