//! Commands: their output, input, end, and what they leave.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sandboxo_tests::{Output, Shared, eventually, scaled};
use serde_json::{Value, json};

/// Far above what any of it takes.
const CEILING: Duration = Duration::from_mins(1);

fn shell(script: &str) -> Value {
    json!({
        "process": { "cmd": "/bin/bash", "args": ["-c", script] },
        "stdin": false,
    })
}

fn said(stdout: &str) -> Output {
    Output { stdout: stdout.into(), stderr: String::new(), exit_code: 0 }
}

#[tokio::test]
async fn row_01_a_reader_that_stops_does_not_stop_the_others() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    let sandbox = client.sandbox().await?;
    let mut started = client.open(&sandbox, "process.Process/Start", &shell("yes"), &[]).await?;
    let pid = started.pid().await?;
    let selector = json!({ "process": { "pid": pid } });
    // Both stay open, and neither is read on.
    let stopped = client.open(&sandbox, "process.Process/Connect", &selector, &[]).await?;
    let mut lively = client.open(&sandbox, "process.Process/Connect", &selector, &[]).await?;
    let read = async {
        let mut read = 0;
        while read < 8 << 20 {
            let event = lively.next().await?.context("yes does not end")?;
            read += event.pointer("/data/stdout").and_then(Value::as_str).unwrap_or("").len();
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(CEILING, read).await.context("the reader waits for the others")??;
    drop((started, stopped));
    client.kill(&sandbox).await.map(drop)
}

#[tokio::test]
async fn row_02_output_that_nobody_reads_takes_no_memory() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    let sandbox = client.sandbox().await?;
    let bytes = scaled(96 << 20, 2 << 30);
    let before = client.agent_kib(&sandbox).await?;
    let script = format!("head -c {bytes} /dev/zero; exec sleep 4321");
    client.start_and_leave(&sandbox, &script).await?;
    eventually(CEILING * 3, || async {
        let slept = client.run(&sandbox, "pgrep -f '^sleep 4321'").await?;
        ensure!(slept.exit_code == 0, "the command has not said all yet");
        Ok(())
    })
    .await?;
    let after = client.agent_kib(&sandbox).await?;
    ensure!(after < before + 20 * 1024, "{before} KiB grew to {after} KiB");
    client.kill(&sandbox).await.map(drop)
}

#[tokio::test]
async fn row_06_many_short_commands_at_once_all_end_well() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    let sandbox = client.sandbox().await?;
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (client, sandbox) = (client.clone(), sandbox.clone());
        workers.spawn(async move {
            for _ in 0..scaled(6, 50) {
                let command = shell("sleep 0.01 & wait; echo $((6 * 7))");
                let stream = client.open(&sandbox, "process.Process/Start", &command, &[]).await?;
                let heard = stream.rest().await?;
                ensure!(heard.stdout == b"42\n" && heard.exit_code() == Some(0), "{heard:?}");
            }
            Ok(())
        });
    }
    while let Some(done) = workers.join_next().await {
        done??;
    }
    client.kill(&sandbox).await.map(drop)
}

#[tokio::test]
async fn row_07_commands_have_no_tail_of_waiting() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    let sandbox = client.sandbox().await?;
    let many = async {
        for _ in 0..120 {
            let stream =
                client.open(&sandbox, "process.Process/Start", &shell("true"), &[]).await?;
            ensure!(stream.rest().await?.exit_code() == Some(0));
        }
        Ok(())
    };
    // With a second for each they would take twice that.
    tokio::time::timeout(CEILING, many).await.context("120 commands took too long")??;
    client.kill(&sandbox).await.map(drop)
}

#[tokio::test]
async fn row_09_a_command_past_its_time_is_gone() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    let sandbox = client.sandbox().await?;
    let soon = [("Connect-Timeout-Ms", "1000")];
    let stream =
        client.open(&sandbox, "process.Process/Start", &shell("sleep 4321; true"), &soon).await?;
    let heard = stream.rest().await?;
    ensure!(heard.failed() == "deadline_exceeded", "{heard:?}");
    let left = client.run(&sandbox, "pgrep -f '^sleep 4321'").await?;
    ensure!(left.exit_code == 1, "left behind: {left:?}");
    client.kill(&sandbox).await.map(drop)
}

#[tokio::test]
async fn row_10_a_command_that_hears_no_signal_ends_at_its_time() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    let sandbox = client.sandbox().await?;
    let soon = [("Connect-Timeout-Ms", "2000")];
    let deaf = shell("trap '' TERM HUP INT; while :; do sleep 0.1; done");
    let mut stream = client.open(&sandbox, "process.Process/Start", &deaf, &soon).await?;
    let selector = json!({ "process": { "pid": stream.pid().await? } });
    let other = client.open(&sandbox, "process.Process/Connect", &selector, &[]).await?;
    let (heard, other) = (stream.rest().await?, other.rest().await?);
    ensure!(heard.failed() == "deadline_exceeded", "{heard:?}");
    // In E2B's words; a shell would say 137.
    ensure!((other.exit_code(), other.status()) == (Some(-1), "signal: killed"), "{other:?}");
    client.kill(&sandbox).await.map(drop)
}

#[tokio::test]
async fn row_13_orphans_are_reaped() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    let sandbox = client.sandbox().await?;
    let script = format!("for i in $(seq {}); do (true &); done", scaled(100, 1000));
    ensure!(client.run(&sandbox, &script).await? == said(""));
    eventually(CEILING, || async {
        let dead = client.run(&sandbox, "ps -eo stat= | grep -c ^Z").await?;
        ensure!(dead.stdout == "0\n", "zombies: {dead:?}");
        Ok(())
    })
    .await?;
    client.kill(&sandbox).await.map(drop)
}

#[tokio::test]
async fn row_14_a_closed_pipe_ends_its_writer() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    let sandbox = client.sandbox().await?;
    let run = client.run(&sandbox, "yes | head -1; echo ${PIPESTATUS[*]}");
    let ended = tokio::time::timeout(CEILING, run).await.context("yes goes on")??;
    ensure!(ended == said("y\n141 0\n"), "{ended:?}");
    // A shell tells the signals that it found ignored.
    let ignored = client.run(&sandbox, "trap -p").await?;
    ensure!(ignored == said(""), "{ignored:?}");
    client.kill(&sandbox).await.map(drop)
}

#[tokio::test]
async fn row_16_blank_lines_stay() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    let sandbox = client.sandbox().await?;
    for text in [r"a\n\n\nb", r"\n", r"\r\n\r\n", r"\0\n\n", "data: x\\n\\ndata: y\\n\\n"] {
        let stream = client
            .open(&sandbox, "process.Process/Start", &shell(&format!("printf '{text}'")), &[])
            .await?;
        let wanted = text.replace(r"\n", "\n").replace(r"\r", "\r").replace(r"\0", "\0");
        ensure!(stream.rest().await?.stdout == wanted.as_bytes(), "{text}");
    }
    client.kill(&sandbox).await.map(drop)
}

#[tokio::test]
async fn row_17_a_silent_command_is_known_to_run() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    let sandbox = client.sandbox().await?;
    let open = async {
        let silent = shell("sleep 4321");
        let mut stream = client.open(&sandbox, "process.Process/Start", &silent, &[]).await?;
        stream.pid().await.map(|pid| (pid, stream))
    };
    let (pid, _stream) = tokio::time::timeout(CEILING, open).await.context("no headers")??;
    ensure!(client.is_alive(&sandbox, pid).await?);
    client.kill(&sandbox).await.map(drop)
}

#[tokio::test]
async fn row_18_long_output_comes_whole_and_is_not_kept() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    let sandbox = client.sandbox().await?;
    let bytes = scaled(16 << 20, 100 << 20);
    let before = client.agent_kib(&sandbox).await?;
    let command = shell(&format!("head -c {bytes} /dev/zero | tr '\\0' x"));
    let mut stream = client.open(&sandbox, "process.Process/Start", &command, &[]).await?;
    let mut read = 0;
    while let Some(event) = stream.next().await? {
        let text = event.pointer("/data/stdout").and_then(Value::as_str).unwrap_or("");
        read += text.len() / 4 * 3 - text.bytes().rev().take_while(|byte| *byte == b'=').count();
    }
    ensure!(read == bytes, "{read} of {bytes}");
    let after = client.agent_kib(&sandbox).await?;
    ensure!(after < before + 8 * 1024, "{before} KiB grew to {after} KiB");
    client.kill(&sandbox).await.map(drop)
}

#[tokio::test]
async fn row_19_the_end_comes_behind_the_last_of_the_output() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    let sandbox = client.sandbox().await?;
    for _ in 0..scaled(10, 100) {
        let run = client.run(&sandbox, "seq 1 100000; exit 3").await?;
        ensure!(run.stdout.ends_with("\n99999\n100000\n") && run.exit_code == 3);
        ensure!(run.stdout.len() == 588_895, "{}", run.stdout.len());
    }
    client.kill(&sandbox).await.map(drop)
}

#[tokio::test]
async fn row_20_input_ends_when_there_is_none_and_when_it_is_closed() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    let sandbox = client.sandbox().await?;
    let alone = tokio::time::timeout(CEILING, client.run(&sandbox, "cat")).await;
    ensure!(alone.context("cat waits")?? == said(""));
    let (pid, stream) = client.feedable(&sandbox, "cat").await?;
    ensure!(client.feed(&sandbox, pid, b"hi\0there").await?.0 == 200);
    client.end_input(&sandbox, pid).await?;
    let heard = stream.rest().await?;
    ensure!((&heard.stdout[..], heard.exit_code()) == (b"hi\0there", Some(0)), "{heard:?}");
    client.kill(&sandbox).await.map(drop)
}

#[tokio::test]
async fn row_21_long_input_arrives_whole_and_a_broken_pipe_is_told() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    let sandbox = client.sandbox().await?;
    let piece: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
    let pieces = scaled(8, 64);
    let (pid, stream) = client.feedable(&sandbox, "md5sum; exit 4").await?;
    for _ in 0..pieces {
        let (status, answer) = client.feed(&sandbox, pid, &piece).await?;
        ensure!(status == 200, "{answer}");
    }
    client.end_input(&sandbox, pid).await?;
    let sent = stream.rest().await?;
    let same = format!(
        "for i in $(seq {pieces}); do python3 -c 'import sys; sys.stdout.buffer.write(bytes(range(256)) * 4096)'; done | md5sum"
    );
    ensure!(sent.stdout == client.run(&sandbox, &same).await?.stdout.as_bytes());
    ensure!(sent.exit_code() == Some(4), "{sent:?}");

    // Nobody reads it: the process has gone, or has closed its end.
    let (gone, stream) = client.feedable(&sandbox, "exec true").await?;
    ensure!(stream.rest().await?.exit_code() == Some(0));
    let (_status, answer) = client.feed(&sandbox, gone, &piece).await?;
    ensure!(answer.get("code") == Some(&"not_found".into()), "{answer}");
    let (closed, mut stream) =
        client.feedable(&sandbox, "exec 0<&-; echo closed; exec sleep 4321").await?;
    stream.until("closed\n").await?;
    let (status, answer) = client.feed(&sandbox, closed, &piece).await?;
    let told = answer.get("message").and_then(Value::as_str).unwrap_or_default();
    ensure!(status != 200 && told.contains("broken pipe"), "{answer}");
    client.kill(&sandbox).await.map(drop)
}

#[tokio::test]
async fn row_22_what_a_command_in_the_background_is_fed_arrives_in_order() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    let sandbox = client.sandbox().await?;
    let (pid, stream) = client.feedable(&sandbox, "cat > /tmp/typed").await?;
    for piece in ["one\n", "zwei\n", "三\n"] {
        ensure!(client.feed(&sandbox, pid, piece.as_bytes()).await?.0 == 200);
    }
    client.end_input(&sandbox, pid).await?;
    ensure!(stream.rest().await?.exit_code() == Some(0));
    ensure!(client.read(&sandbox, "/tmp/typed").await? == "one\nzwei\n三\n".as_bytes());
    client.kill(&sandbox).await.map(drop)
}

#[tokio::test]
async fn row_23_a_killed_command_is_gone_when_the_kill_answers() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    let sandbox = client.sandbox().await?;
    let command = shell("trap '' TERM; sleep 4321 & wait");
    let mut stream = client.open(&sandbox, "process.Process/Start", &command, &[]).await?;
    let pid = stream.pid().await?;
    let kill = json!({ "process": { "pid": pid }, "signal": "SIGNAL_SIGKILL" });
    client.ask(&sandbox, "process.Process/SendSignal", kill.clone()).await?;
    let (_status, again) = client.call(&sandbox, "process.Process/SendSignal", kill).await?;
    ensure!(again.get("code") == Some(&"not_found".into()), "{again}");
    ensure!(!client.is_alive(&sandbox, pid).await?);
    // Though a child holds its output open.
    ensure!(stream.rest().await?.status() == "signal: killed");
    client.kill(&sandbox).await.map(drop)
}

#[tokio::test]
async fn row_26_a_silent_command_is_left_alone() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    // It outlives its command also in the report's size.
    let sandbox = client.create(json!({ "templateID": "base", "timeout": 1800 })).await?;
    let command = shell(&format!("sleep {}; echo woke", scaled(4, 900)));
    let lively = [("Keepalive-Ping-Interval", "1")];
    let stream = client.open(&sandbox, "process.Process/Start", &command, &lively).await?;
    let heard = stream.rest().await?;
    ensure!((&heard.stdout[..], heard.exit_code()) == (b"woke\n", Some(0)), "{heard:?}");
    ensure!(heard.keepalives > 1, "{heard:?}");
    client.kill(&sandbox).await.map(drop)
}

#[tokio::test]
async fn row_28_values_of_the_environment_are_nobodys_to_read() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    for value in ["a\"b'c\n$(id)\\n", "`id` $HOME ${x} %s \t ü!", "", "=", "-n", "\\"] {
        let made = json!({ "templateID": "base", "envVars": { "A": value, "B": value } });
        let sandbox = client.create(made).await?;
        let process = json!({
            "cmd": "/usr/bin/printenv", "args": ["-0", "A", "B"], "envs": { "B": value },
        });
        let start = "process.Process/Start";
        let plain = json!({ "process": process.clone(), "stdin": false });
        let heard = client.open(&sandbox, start, &plain, &[]).await?.rest().await?;
        let wanted = format!("{value}\0{value}\0");
        ensure!(heard.stdout == wanted.as_bytes(), "{value:?}: {heard:?}");
        let pty = json!({ "process": process, "pty": { "size": { "cols": 80, "rows": 24 } } });
        let heard = client.open(&sandbox, start, &pty, &[]).await?.rest().await?;
        ensure!(heard.pty == wanted.replace('\n', "\r\n").as_bytes(), "{value:?}: {heard:?}");
        client.kill(&sandbox).await?;
    }
    Ok(())
}

#[tokio::test]
async fn row_34_a_command_is_in_all_groups_of_its_user() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    let sandbox = client.sandbox().await?;
    let add = "groupadd -g 4321 extra && usermod -aG extra,audio user";
    let added = client.run_as(&sandbox, "root", add).await?;
    ensure!(added.exit_code == 0, "{added:?}");
    let is = client.run(&sandbox, "id -Gn | tr ' ' '\\n' | sort").await?;
    let listed = "{ id -gn; awk -F: '\",\" $4 \",\" ~ /,user,/ { print $1 }' /etc/group; } | sort";
    ensure!(is == client.run(&sandbox, listed).await?, "{is:?}");
    ensure!(is.stdout.contains("extra\n") && is.stdout.contains("sudo\n"), "{is:?}");
    client.kill(&sandbox).await.map(drop)
}

#[tokio::test]
async fn row_36_the_base_template_has_the_options_that_agents_use() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    let sandbox = client.sandbox().await?;
    let script = "mkdir g && echo needle > 'g/a b' && grep -rHnFZ needle g | tr '\\0' '|' && \
                  find g -type f -printf '%p %s %m\\n' && ps -eo pid,ppid,user,args | grep -c '^ *1 .*agent' && \
                  sed -i -E 's/n(e+)dle/\\1/' 'g/a b' && sort -V 'g/a b' && tar cz g | tar tz | wc -l && \
                  stat -c %F g && date -d @0 -u +%FT%T && readlink -f g/.";
    let run = client.run(&sandbox, script).await?;
    let wanted =
        "g/a b|1:needle\ng/a b 7 644\n1\nee\n2\ndirectory\n1970-01-01T00:00:00\n/home/user/g\n";
    ensure!(run == said(wanted), "{run:?}");
    client.kill(&sandbox).await.map(drop)
}

#[tokio::test]
async fn row_37_a_command_has_a_number_and_outlives_its_client() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    let sandbox = client.sandbox().await?;
    let loops = shell("while :; do echo tick; sleep 0.1; done");
    let mut stream = client.open(&sandbox, "process.Process/Start", &loops, &[]).await?;
    let pid = stream.pid().await?;
    stream.until("tick\n").await?;
    drop(stream);
    ensure!(client.is_alive(&sandbox, pid).await?);
    let selector = json!({ "process": { "pid": pid } });
    let mut again = client.open(&sandbox, "process.Process/Connect", &selector, &[]).await?;
    ensure!(again.pid().await? == pid);
    again.until("tick\ntick\n").await?;
    client.kill(&sandbox).await.map(drop)
}
