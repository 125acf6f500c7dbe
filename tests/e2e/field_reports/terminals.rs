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
    // What is typed sooner is lost with the terminal that it went to.
    terminal.until(":~$ ").await?;
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

#[tokio::test]
async fn sudo_has_a_terminal_of_its_own() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    let sandbox = client.sandbox().await?;
    let (pid, mut terminal) = client.terminal(&sandbox).await?;
    let plain = "echo a | sudo cat; sudo echo b | cat; sudo sh -c 'kill -TERM $$'; echo c$?\n";
    client.type_in(&sandbox, pid, plain).await?;
    let said = terminal.until("c143\r\n").await?;
    ensure!(said.contains("\ra\r\nb\r\n"), "{said:?}");
    client.type_in(&sandbox, pid, "sudo -s\n").await?;
    client.type_in(&sandbox, pid, "echo I am $(id -un), $(stty size)\n").await?;
    terminal.until("I am root, 24 80").await?;
    // A job is stopped, brought back, interrupted.
    let job = "sh -c 'trap \"echo ba\"\"ck\" CONT; echo rea\"\"dy; while :; do sleep 0.1; done'\n";
    client.type_in(&sandbox, pid, job).await?;
    terminal.until("ready\r\n").await?;
    client.type_in(&sandbox, pid, "\x1a").await?;
    terminal.until("Stopped").await?;
    client.type_in(&sandbox, pid, "fg\n").await?;
    terminal.until("back\r\n").await?;
    client.type_in(&sandbox, pid, "\x03").await?;
    client.type_in(&sandbox, pid, "echo interrupted $?\n").await?;
    terminal.until("interrupted 130").await?;
    // Sizes go through both terminals.
    let told =
        "sh -c \"trap 'echo now; stty size' WINCH; echo rea''dy; while :; do sleep 0.1; done\"\n";
    client.type_in(&sandbox, pid, told).await?;
    terminal.until("ready\r\n").await?;
    client.resize(&sandbox, pid, 100, 40).await?;
    terminal.until("40 100").await?;
    client.type_in(&sandbox, pid, "\x03").await?;
    client.type_in(&sandbox, pid, "exit 7\n").await?;
    // What is typed sooner is lost with the terminal that it went to.
    terminal.until(":~$ ").await?;
    // Nothing could bring back what leads its session: it is not stopped, and can be interrupted.
    client.type_in(&sandbox, pid, "sudo sh -c 'echo al''one; exec sleep 600'\n").await?;
    terminal.until("alone\r\n").await?;
    client.type_in(&sandbox, pid, "\x1a\x03").await?;
    terminal.until(":~$ ").await?;
    client.type_in(&sandbox, pid, "echo was $?\n").await?;
    terminal.until("was 130").await?;
    // The caller's terminal is as it was.
    let asked = "case $(stty -a) in *' icanon '*) echo by li''ne;; esac\n";
    client.type_in(&sandbox, pid, asked).await?;
    terminal.until("by line\r\n").await?;
    client.type_in(&sandbox, pid, "exit 5\n").await?;
    ensure!(terminal.rest().await?.exit_code() == Some(5));
    client.kill(&sandbox).await.map(drop)
}
