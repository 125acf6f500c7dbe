//! What a sandbox's team reads of it afterwards.

use anyhow::{Context, Result, ensure};
use reqwest::Method;
use sandboxo_tests::{Client, Shared, id};
use serde_json::Value;

async fn of_processes(client: &Client, sandbox: &Value) -> Result<Vec<Value>> {
    let get = client.api(Method::GET, &format!("/v2/sandboxes/{}/logs", id(sandbox)?));
    let page: Value = get.send().await?.error_for_status()?.json().await?;
    let lines = page.get("logs").and_then(Value::as_array).context("logs")?;
    let of_process = |line: &&Value| line.pointer("/fields/logger") == Some(&"process".into());
    Ok(lines.iter().filter(of_process).cloned().collect())
}

#[tokio::test]
async fn programs_that_clients_start_are_in_the_log_with_their_ends() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    let sandbox = client.sandbox().await?;
    ensure!(client.run(&sandbox, "exit 3").await?.exit_code == 3);
    let lines = of_processes(&client, &sandbox).await?;
    ensure!(client.run(&sandbox, "echo last").await?.stdout == "last\n");
    ensure!(client.kill(&sandbox).await? == 204);
    let after = of_processes(&client, &sandbox).await?;
    ensure!(after.len() == 4 && after.starts_with(&lines), "{lines:#?} became {after:#?}");
    let [started, ended, last, _] = &after[..] else { unreachable!("four") };
    let field = |line: &Value, name: &str| {
        line.pointer(&format!("/fields/{name}")).and_then(Value::as_str).unwrap_or("-").to_owned()
    };
    let told =
        |line: &Value| ["event", "command", "exit_code"].map(|name| field(line, name)).join("; ");
    ensure!(told(started) == "process_start; /bin/bash -l -c exit 3; -", "{started}");
    ensure!(told(ended) == "process_end; -; 3", "{ended}");
    ensure!(told(last) == "process_start; /bin/bash -l -c echo last; -", "{last}");
    ensure!(field(started, "pid") == field(ended, "pid"), "{started} {ended}");
    Ok(())
}
