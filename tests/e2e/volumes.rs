//! Volumes by the command line: cloned while somebody writes.

use anyhow::{Context, Result, ensure};
use sandboxo_tests::Appliance;
use serde_json::{Value, json};

/// One line into the first file, then the same into the second, for ever.
const WRITER: &str =
    "while :; do i=$((i+1)); echo $i >> /data/first; echo $i >> /data/second; done";

#[tokio::test(flavor = "multi_thread")]
async fn a_clone_is_its_source_at_one_moment_whoever_writes() -> Result<()> {
    let appliance = Appliance::start(1).await?;
    let client = &appliance.client;
    let cli = |args: &[&str]| -> Result<String> {
        let output = appliance.command(args)?.env("E2B_API_KEY", &client.key).output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{args:?}: {said}");
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    };
    cli(&["volume", "create", "data"])?;
    let none = cli(&["volume", "create", "clone", "--from", "nothing"]).err();
    let none = none.context("there is no such source")?.to_string();
    ensure!(none.contains("the team has no volume 'nothing' (404)"), "{none}");

    let mounts = json!([{ "name": "data", "path": "/data" }]);
    let writer = client.create(json!({ "templateID": "base", "volumeMounts": mounts })).await?;
    client.start_and_leave(&writer, WRITER).await?;
    for nth in 1..=3 {
        let name = format!("clone-{nth}");
        cli(&["volume", "create", &name, "--from", "data"])?;
        let mounts = json!([{ "name": name, "path": "/data" }]);
        let reader = client.create(json!({ "templateID": "base", "volumeMounts": mounts })).await?;
        let counts = "cd /data && touch first second && cat first | wc -l && cat second | wc -l";
        let counted = client.run(&reader, counts).await?.stdout;
        let [first, second] =
            [0, 1].map(|line| counted.lines().nth(line).and_then(|it| it.parse::<u64>().ok()));
        let [first, second] = [first.context("first")?, second.context("second")?];
        ensure!(first == second || first == second + 1, "{first} lines, then {second}");
        // Neither sees what the other does from here on.
        let after = client.run(&reader, "rm /data/first; touch /data/own; ls /data").await?;
        ensure!(after.stdout == "own\nsecond\n", "{after:?}");
        ensure!(client.kill(&reader).await? == 204);
        cli(&["volume", "rm", &name])?;
    }
    let goes_on =
        "a=$(wc -l < /data/first); until [ $(wc -l < /data/first) -gt $a ]; do :; done; ls /data";
    let listed = client.run(&writer, goes_on).await?.stdout;
    ensure!(listed == "first\nsecond\n", "{listed}");
    let other = cli(&["sandbox", "create", "--volume", "data:/data"])?;
    let other = sandboxo_tests::id(&serde_json::from_str(&other)?)?;
    ensure!(cli(&["sandbox", "exec", &other, "--", "ls", "/data"])? == "first\nsecond");
    cli(&["sandbox", "kill", &other])?;
    let listed: Value = serde_json::from_str(&cli(&["volume", "ls", "--json"])?)?;
    ensure!(listed.as_array().is_some_and(|all| all.len() == 1), "{listed}");
    ensure!(client.kill(&writer).await? == 204);
    cli(&["volume", "rm", "data"])?;
    Ok(())
}
