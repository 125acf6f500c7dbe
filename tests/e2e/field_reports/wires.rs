//! Connections: what a client sees when one is cut, and how they are set.

use std::{io, os::fd::OwnedFd};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::socket::{getsockopt, sockopt};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use sandboxo_tests::{Client, Shared, scaled};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// Stands between a client and the server for one connection, which it ends politely after so many
/// bytes of answer.
async fn hop(client: &Client, most: usize) -> Result<(Client, JoinSet<io::Result<()>>)> {
    let server = client.url.trim_start_matches("http://").to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let mut passing = JoinSet::new();
    passing.spawn(async move {
        let (mut inward, _address) = listener.accept().await?;
        let mut outward = TcpStream::connect(server).await?;
        let (mut from_client, mut to_client) = inward.split();
        let (mut from_server, mut to_server) = outward.split();
        let asking = async {
            tokio::io::copy(&mut from_client, &mut to_server).await?;
            std::future::pending::<io::Result<()>>().await
        };
        let answering = async {
            let (mut passed, mut piece) = (0, vec![0; 16 << 10]);
            while passed < most {
                let count = from_server.read(&mut piece).await?;
                if count == 0 {
                    break;
                }
                passed += count;
                to_client.write_all(piece.get(..count).unwrap_or_default()).await?;
            }
            to_client.shutdown().await
        };
        tokio::select! {
            ended = answering => ended,
            broken = asking => broken,
        }
    });
    let mut through = client.clone();
    through.url = url;
    Ok((through, passing))
}

#[tokio::test]
async fn row_05_a_stream_that_is_cut_on_its_way_is_no_end() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    let sandbox = client.sandbox().await?;
    let command = json!({
        "process": { "cmd": "/bin/bash", "args": ["-c", "for i in $(seq 4000); do echo $i; done; sleep 4321"] },
        "stdin": false,
    });
    // By a hop on the way.
    let (cut, _passing) = hop(&client, 8 << 10).await?;
    let stream = cut.open(&sandbox, "process.Process/Start", &command, &[]).await?;
    let heard = stream.rest().await;
    ensure!(heard.is_err(), "half a stream looks whole: {heard:?}");
    // By the sandbox's own end.
    let mut stream = client.open(&sandbox, "process.Process/Start", &command, &[]).await?;
    stream.pid().await?;
    client.kill(&sandbox).await?;
    let heard = stream.rest().await;
    ensure!(heard.is_err(), "a dead sandbox's stream looks whole: {heard:?}");
    Ok(())
}

#[tokio::test]
async fn row_43_a_long_download_is_whole_or_an_error() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    let sandbox = client.sandbox().await?;
    let lines = scaled(1_500_000, 200_000_000);
    let written = client.run(&sandbox, &format!("seq {lines} > big && stat -c %s big")).await?;
    let mut answer = download(&client, &sandbox).await?;
    ensure!(answer.content_length() == Some(written.stdout.trim().parse()?));
    let (mut expected, mut wanted) = (1..=lines, Vec::new());
    while let Some(chunk) = answer.chunk().await? {
        while wanted.len() < chunk.len() {
            let line = expected.next().context("more than was written")?;
            wanted.extend(format!("{line}\n").into_bytes());
        }
        let rest = wanted.split_off(chunk.len());
        ensure!(wanted == chunk, "other bytes before line {expected:?}");
        wanted = rest;
    }
    ensure!(expected.next().is_none() && wanted.is_empty(), "less than was written");

    let (cut, _passing) = hop(&client, 4 << 20).await?;
    ensure!(download(&cut, &sandbox).await?.bytes().await.is_err(), "a part looks whole");
    client.kill(&sandbox).await.map(drop)
}

async fn download(client: &Client, sandbox: &serde_json::Value) -> Result<reqwest::Response> {
    let get = client.agent(reqwest::Method::GET, sandbox, "/files");
    Ok(get.query(&[("path", "/home/user/big")]).send().await?.error_for_status()?)
}

#[tokio::test]
async fn row_08_no_connection_waits_for_more_to_send() -> Result<()> {
    let Shared { client, server_pid, .. } = Shared::get().await?;
    let sandbox = client.sandbox().await?;
    let command = json!({ "process": { "cmd": "/bin/sleep", "args": ["4321"] }, "stdin": false });
    let mut stream = client.open(&sandbox, "process.Process/Start", &command, &[]).await?;
    stream.pid().await?;
    let mut connections = 0;
    for socket in sockets_of(server_pid)? {
        // Not of TCP, or one that listens, or one whose client has just left.
        let Ok(true) = getsockopt(&socket, sockopt::AcceptConn).map(|listens| !listens) else {
            continue;
        };
        let Ok(no_delay) = getsockopt(&socket, sockopt::TcpNoDelay) else { continue };
        ensure!(no_delay, "a connection gathers what it sends");
        connections += 1;
    }
    ensure!(connections > 0, "no connection was found");
    client.kill(&sandbox).await.map(drop)
}

fn sockets_of(pid: u32) -> Result<Vec<OwnedFd>> {
    let process = Pid::from_raw(i32::try_from(pid)?).context("a process number")?;
    let handle = pidfd_open(process, PidfdFlags::empty())?;
    let mut sockets = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))?.flatten() {
        let target = std::fs::read_link(entry.path()).unwrap_or_default();
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            bail!("{} is no descriptor", entry.path().display());
        };
        // It may have been closed since it was listed.
        if target.to_string_lossy().starts_with("socket:")
            && let Ok(socket) = pidfd_getfd(&handle, number, PidfdGetfdFlags::empty())
        {
            sockets.push(socket);
        }
    }
    Ok(sockets)
}
