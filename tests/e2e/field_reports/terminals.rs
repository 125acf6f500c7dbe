//! Terminals: their size, their language, and staying open.

use anyhow::{Result, ensure};
use sandboxo_tests::Shared;
use serde_json::json;

#[tokio::test]
async fn row_31_a_terminal_speaks_utf8_and_its_programs_hear_of_each_size() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    let sandbox = client.sandbox().await?;
    let (pid, mut terminal) = client.terminal(&sandbox).await?;
    for columns in [90, 100, 110, 120, 133] {
        client.resize(&sandbox, pid, columns, 40).await?;
    }
    client
        .type_in(&sandbox, pid, "echo $(tput cols)x$(tput lines) $LANG $(locale charmap)\n")
        .await?;
    terminal.until("133x40 C.UTF-8 UTF-8").await?;
    // A program in front, which is not the shell, and asks for the size only when it is told to.
    let program = "import shutil, signal\n\
                   say = lambda *_: print('now', shutil.get_terminal_size().columns, flush=True)\n\
                   signal.signal(signal.SIGWINCH, say)\n\
                   print('rea' + 'dy', flush=True)\n\
                   while True: signal.pause()\n";
    let upload = client
        .agent(reqwest::Method::POST, &sandbox, "/files")
        .query(&[("path", "/tmp/front.py"), ("username", "user")])
        .header("Content-Type", "application/octet-stream")
        .body(program);
    ensure!(upload.send().await?.status() == 200);
    client.type_in(&sandbox, pid, "env -u COLUMNS python3 /tmp/front.py\n").await?;
    terminal.until("ready").await?;
    for columns in [77, 133] {
        client.resize(&sandbox, pid, columns, 41).await?;
        terminal.until(&format!("now {columns}")).await?;
    }
    client.type_in(&sandbox, pid, "\x03").await?;
    client.type_in(&sandbox, pid, "exit 7\n").await?;
    ensure!(terminal.rest().await?.exit_code() == Some(7));
    client.kill(&sandbox).await.map(drop)
}

#[tokio::test]
async fn row_33_an_idle_terminal_gives_signs_of_life() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    let sandbox = client.sandbox().await?;
    let terminal = json!({
        "process": { "cmd": "/bin/cat" },
        "pty": { "size": { "cols": 80, "rows": 24 } },
    });
    let often = [("Keepalive-Ping-Interval", "1")];
    let mut stream = client.open(&sandbox, "process.Process/Start", &terminal, &often).await?;
    stream.pid().await?;
    for _ in 0..2 {
        let event = stream.next().await?;
        ensure!(event.as_ref().is_some_and(|event| event.get("keepalive").is_some()), "{event:?}");
    }
    client.kill(&sandbox).await.map(drop)
}
