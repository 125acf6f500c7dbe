//! Pauses and what comes after them, as clients of other systems have complained of.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use reqwest::{Method, StatusCode};
use sandboxo_tests::{Client, Output, Shared, eventually, id, scaled};
use serde_json::{Value, json};

const BOOT_ID: &str = "cat /proc/sys/kernel/random/boot_id";

async fn said(client: &Client, sandbox: &Value, command: &str) -> Result<String> {
    let Output { stdout, stderr, exit_code } = client.run(sandbox, command).await?;
    ensure!(exit_code == 0, "{command}: {exit_code}: {stderr}");
    Ok(stdout)
}

async fn pause(client: &Client, sandbox: &Value) -> Result<()> {
    let status = client.pause(sandbox, true).await?;
    ensure!(status == StatusCode::NO_CONTENT, "{status}");
    Ok(())
}

async fn info(client: &Client, sandbox: &Value) -> Result<Value> {
    let path = format!("/sandboxes/{}", id(sandbox)?);
    Ok(client.api(Method::GET, &path).send().await?.error_for_status()?.json().await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn row_57_58_every_cycle_keeps_what_the_ones_before_wrote() -> Result<()> {
    let Shared { client, .. } = &Shared::get().await?;
    let sandbox = client.sandbox().await?;
    let boot_id = said(client, &sandbox, BOOT_ID).await?;
    client
        .start_and_leave(&sandbox, "while :; do date +%s%N >> /tmp/ticks; sleep 0.05; done")
        .await?;
    let cycles = scaled(4, 10);
    for cycle in 0..cycles {
        said(client, &sandbox, &format!("echo {cycle} > ~/file-{cycle}")).await?;
        pause(client, &sandbox).await?;
        let about = info(client, &sandbox).await?;
        ensure!(about.get("state") == Some(&json!("paused")), "{about}");
        client.connect(&sandbox).await?;
        let before = said(client, &sandbox, "wc -l < /tmp/ticks").await?;
        let read: Vec<_> = (0..=cycle).map(|file| file.to_string()).collect();
        let files = format!("for f in $(seq 0 {cycle}); do cat ~/file-$f; done");
        ensure!(said(client, &sandbox, &files).await?.lines().eq(&read));
        eventually(Duration::from_secs(20), || async {
            ensure!(
                said(client, &sandbox, "wc -l < /tmp/ticks").await? != before,
                "it stands still"
            );
            Ok(())
        })
        .await?;
    }
    ensure!(said(client, &sandbox, BOOT_ID).await? == boot_id);
    client.kill(&sandbox).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_60_a_pause_without_memory_is_one_however_the_request_is_framed() -> Result<()> {
    let Shared { client, .. } = &Shared::get().await?;
    for chunked in [false, true] {
        let sandbox = client.sandbox().await?;
        let boot_id = said(client, &sandbox, BOOT_ID).await?;
        client.start_and_leave(&sandbox, "exec sleep 4711").await?;
        said(client, &sandbox, "echo kept > ~/kept; pgrep -f 'sleep 471[1]'").await?;
        let path = format!("/sandboxes/{}/pause", id(&sandbox)?);
        let body = r#"{"memory": false}"#;
        let body = if chunked {
            let stream = futures_util::stream::iter([Ok::<_, std::io::Error>(body)]);
            reqwest::Body::wrap_stream(stream)
        } else {
            reqwest::Body::from(body)
        };
        let request = client.api(Method::POST, &path).header("content-type", "application/json");
        let status = request.body(body).send().await?.status();
        ensure!(status == StatusCode::NO_CONTENT, "{status}");
        client.connect(&sandbox).await?;
        ensure!(said(client, &sandbox, "cat ~/kept").await? == "kept\n");
        ensure!(client.run(&sandbox, "pgrep -f 'sleep 471[1]'").await?.exit_code != 0);
        ensure!(said(client, &sandbox, BOOT_ID).await? != boot_id);
        client.kill(&sandbox).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_61_a_resume_without_a_body_has_the_default_timeout() -> Result<()> {
    let Shared { client, .. } = &Shared::get().await?;
    let sandbox = client.sandbox().await?;
    let resume = format!("/sandboxes/{}/resume", id(&sandbox)?);
    let refused = client.api(Method::POST, &resume).send().await?;
    ensure!(refused.status() == StatusCode::CONFLICT, "it runs: {}", refused.status());
    pause(client, &sandbox).await?;
    let twice = client.pause(&sandbox, true).await?;
    ensure!(twice == StatusCode::CONFLICT, "paused twice: {twice}");
    let resumed = client.api(Method::POST, &resume).send().await?;
    ensure!(resumed.status() == StatusCode::CREATED, "{}", resumed.status());
    ensure!(said(client, &sandbox, "echo here").await? == "here\n");
    client.kill(&sandbox).await?;
    let gone = client.api(Method::POST, &resume).send().await?.status();
    ensure!(gone == StatusCode::NOT_FOUND, "{gone}");
    Ok(())
}

/// In Node and Python alike an event loop waits for the listener, which gVisor may forget.
#[tokio::test(flavor = "multi_thread")]
async fn row_65_a_listener_answers_after_each_resume() -> Result<()> {
    let Shared { client, .. } = &Shared::get().await?;
    let sandbox = client.sandbox().await?;
    let server = "import asyncio\n\
                  async def answer(reader, writer):\n\
                  \x20   await reader.readuntil(b'\\r\\n\\r\\n')\n\
                  \x20   writer.write(b'HTTP/1.1 200 OK\\r\\ncontent-length: 2\\r\\n\\r\\nhi')\n\
                  \x20   await writer.drain()\n\
                  \x20   writer.close()\n\
                  async def main():\n\
                  \x20   server = await asyncio.start_server(answer, '0.0.0.0', 8000)\n\
                  \x20   await server.serve_forever()\n\
                  asyncio.run(main())\n";
    said(client, &sandbox, &format!("cat > ~/server.py <<'EOF'\n{server}EOF")).await?;
    client.start_and_leave(&sandbox, "exec python3 ~/server.py").await?;
    let get = || async {
        let answer = client.port(Method::GET, &sandbox, 8000, "/").send().await?;
        ensure!(answer.status() == StatusCode::OK, "{}", answer.status());
        ensure!(answer.text().await? == "hi");
        Ok(())
    };
    eventually(Duration::from_secs(20), get).await?;
    for _ in 0..scaled(5, 50) {
        pause(client, &sandbox).await?;
        client.connect(&sandbox).await?;
        eventually(Duration::from_secs(20), get).await?;
    }
    client.kill(&sandbox).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_66_open_terminals_and_commands_are_cut_and_their_processes_go_on() -> Result<()> {
    let Shared { client, .. } = &Shared::get().await?;
    let sandbox = client.sandbox().await?;
    let (shell, terminal) = client.terminal(&sandbox).await?;
    let (fed, stream) =
        client.feedable(&sandbox, "while read line; do echo $line > /tmp/fed; done").await?;
    pause(client, &sandbox).await?;
    ensure!(terminal.rest().await.is_err(), "a terminal is cut, not ended");
    ensure!(stream.rest().await.is_err(), "a command is cut, not ended");
    client.connect(&sandbox).await?;
    client.type_in(&sandbox, shell, "echo typed > /tmp/typed\n").await?;
    client.feed(&sandbox, fed, b"fed\n").await?;
    eventually(Duration::from_secs(20), || async {
        ensure!(said(client, &sandbox, "cat /tmp/typed /tmp/fed").await? == "typed\nfed\n");
        Ok(())
    })
    .await?;
    client.kill(&sandbox).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_68_many_resumes_all_end_well() -> Result<()> {
    let Shared { client, .. } = &Shared::get().await?;
    let mut sandboxes = Vec::new();
    for _ in 0..4 {
        sandboxes.push(client.sandbox().await?);
    }
    let cycles = scaled(3, 250);
    let all = sandboxes.iter().map(|sandbox| async move {
        for cycle in 0..cycles {
            pause(client, sandbox).await.with_context(|| format!("pause {cycle}"))?;
            client.connect(sandbox).await.with_context(|| format!("resume {cycle}"))?;
        }
        ensure!(said(client, sandbox, "echo well").await? == "well\n");
        client.kill(sandbox).await
    });
    futures_util::future::try_join_all(all).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_108_a_request_wakes_a_paused_sandbox_and_is_answered_by_it() -> Result<()> {
    let Shared { client, .. } = &Shared::get().await?;
    let sandbox = client
        .create(json!({
            "templateID": "base", "timeout": 600, "autoPause": true, "autoResume": {"enabled": true},
        }))
        .await?;
    let serve = "cd /tmp && echo mine > who && exec python3 -m http.server 8000";
    client.start_and_leave(&sandbox, serve).await?;
    let get = || async {
        let answer = client.port(Method::GET, &sandbox, 8000, "/who").send().await?;
        ensure!(answer.status() == StatusCode::OK, "{}", answer.status());
        ensure!(answer.text().await? == "mine\n");
        Ok(())
    };
    eventually(Duration::from_secs(20), get).await?;
    pause(client, &sandbox).await?;
    // One flight for all of them.
    futures_util::future::try_join_all((0..8).map(|_| get())).await?;
    ensure!(info(client, &sandbox).await?.get("state") == Some(&json!("running")));
    // Its time is over, and it is woken again.
    let timeout = format!("/sandboxes/{}/timeout", id(&sandbox)?);
    let set = client.api(Method::POST, &timeout).json(&json!({"timeout": 1})).send().await?;
    ensure!(set.status() == StatusCode::NO_CONTENT, "{}", set.status());
    eventually(Duration::from_secs(30), || async {
        let state = info(client, &sandbox).await?.get("state").cloned();
        ensure!(state == Some(json!("paused")), "{state:?}");
        Ok(())
    })
    .await?;
    // While it is on its way down it says so, and is asked again.
    eventually(Duration::from_secs(20), get).await?;
    client.kill(&sandbox).await?;
    let status = client.port(Method::GET, &sandbox, 8000, "/who").send().await?.status();
    ensure!(status == StatusCode::BAD_GATEWAY, "{status}");
    Ok(())
}
