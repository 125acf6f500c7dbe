//! What a sandbox may not do to its host, its siblings and itself.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sandboxo_tests::{Appliance, eventually};
use serde_json::json;

/// Whether a TCP connection comes about, from inside.
fn dial(address: &str, port: u16) -> String {
    format!(
        "timeout 5 bash -c 'exec 3<>/dev/tcp/{address}/{port}' 2>/dev/null && echo open || echo refused"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn private_addresses_are_refused() -> Result<()> {
    let appliance = Appliance::start(2).await?;
    let client = &appliance.client;
    let (one, other) = (client.sandbox().await?, client.sandbox().await?);
    client.start_and_leave(&other, "python3 -m http.server 8080").await?;
    let own = client.run(&other, "hostname -I").await?.stdout;
    let sibling = own.split_whitespace().next().context("the sibling's address")?;
    let host = std::net::UdpSocket::bind("0.0.0.0:0")?;
    let host =
        host.connect("192.0.2.1:9").and_then(|()| host.local_addr()).map(|at| at.ip().to_string());

    eventually(Duration::from_secs(10), || async {
        let answer = client.run(&other, &dial("127.0.0.1", 8080)).await?;
        ensure!(answer.stdout == "open\n", "the sibling's server is not up");
        Ok(())
    })
    .await?;
    let port: u16 = client.url.rsplit(':').next().context("a port")?.parse()?;
    let gateway = client.run(&one, "ip route show default | cut -d' ' -f3").await?.stdout;
    let mut targets = vec![
        ("169.254.169.254".to_owned(), 80),
        ("10.0.0.1".to_owned(), 22),
        ("192.168.1.1".to_owned(), 80),
        ("172.16.0.1".to_owned(), 80),
        (sibling.to_owned(), 8080),
        (gateway.trim().to_owned(), port),
    ];
    targets.extend(host.ok().map(|address| (address, port)));
    for (address, port) in targets {
        if address.is_empty() {
            continue;
        }
        let answer = client.run(&one, &dial(&address, port)).await?;
        ensure!(answer.stdout == "refused\n", "{address}:{port} is {}", answer.stdout);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_a_memory_hog_and_a_fork_bomb_hurt_only_themselves() -> Result<()> {
    let appliance = Appliance::start(2).await?;
    let client = &appliance.client;
    let bystander = client.sandbox().await?;

    appliance.template("small", &[("disk_mib", "256")]).await?;
    let filler = client.create(json!({ "templateID": "small" })).await?;
    let fill =
        "head -c 20G /dev/zero > ~/fill; echo code $?; rm ~/fill; echo ok > ~/after && cat ~/after";
    let outcome = client.run(&filler, fill).await?;
    ensure!(outcome.stdout.contains("code 1") && outcome.stdout.ends_with("ok\n"), "{outcome:?}");

    let hog = client.sandbox().await?;
    let _cut_or_ended = client.run(&hog, "python3 -c 'x = bytearray(6 << 30)'").await;
    let bomb = client.sandbox().await?;
    client.start_and_leave(&bomb, "bomb() { bomb | bomb & }; bomb; sleep 5").await?;
    for _ in 0..10 {
        let alive = client.run(&bystander, "echo alive").await?;
        ensure!(alive.stdout == "alive\n", "{alive:?}");
    }
    let fresh = client.create(json!({ "templateID": "base" })).await?;
    ensure!(client.run(&fresh, "echo new").await?.stdout == "new\n");
    ensure!(client.kill(&bomb).await?.as_u16() / 100 != 5);
    Ok(())
}
