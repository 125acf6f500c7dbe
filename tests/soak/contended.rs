//! Two clients want different things of the same sandboxes at the same time.

use anyhow::{Context as _, Result, ensure};
use reqwest::{Method, StatusCode};
use sandboxo_tests::{Appliance, Client, id, scaled};
use serde_json::{Value, json};

/// 75: whoever writes last, the end of a sandbox stays its end.
#[tokio::test(flavor = "multi_thread")]
async fn row_75_two_clients_that_kill_and_extend_agree_in_the_end() -> Result<()> {
    let appliance = Appliance::start(4).await?;
    let client = &appliance.client;
    for _ in 0..scaled(12, 300) {
        let sandbox = client.sandbox().await?;
        let (one, other, extended) =
            tokio::join!(client.kill(&sandbox), client.kill(&sandbox), extend(client, &sandbox),);
        let answers = [one?, other?];
        ensure!(answers.contains(&StatusCode::NO_CONTENT), "nobody has killed it: {answers:?}");
        let of_two = [StatusCode::NO_CONTENT, StatusCode::NOT_FOUND];
        ensure!(answers.iter().all(|answer| of_two.contains(answer)), "{answers:?}");
        ensure!(of_two.contains(&extended?), "extended meanwhile");
        ensure!(extend(client, &sandbox).await? == StatusCode::NOT_FOUND, "extended after its end");
        ensure!(client.kill(&sandbox).await? == StatusCode::NOT_FOUND, "killed after its end");
        let id = id(&sandbox)?;
        ensure!(!client.running().await?.contains(&id), "{id} is listed after its end");
        ensure!(reason(client, &id).await? == "killed");
    }
    appliance.leaks().await.map(drop)
}

async fn extend(client: &Client, sandbox: &Value) -> Result<StatusCode> {
    let path = format!("/sandboxes/{}/timeout", id(sandbox)?);
    let asked = client.api(Method::POST, &path).json(&json!({ "timeout": 900 }));
    Ok(asked.send().await?.status())
}

async fn reason(client: &Client, id: &str) -> Result<String> {
    let asked = client.admin(Method::GET, "/admin/v1/sandboxes?dead=true").send().await?;
    let page: Value = asked.error_for_status()?.json().await?;
    let listed = page.get("sandboxes").and_then(Value::as_array).context("sandboxes")?;
    let found = listed.iter().find(|it| it.get("id").and_then(Value::as_str) == Some(id));
    let reason = found.and_then(|it| it.get("reason")).and_then(Value::as_str);
    Ok(reason.context("it is recorded as dead")?.to_owned())
}
