//! Agents that turn against their zone after the claim.

use std::{fs, process::Command, time::Duration};

use sandboxo_zone_protocol::{EndReason, ImageDigest, Zone};
use sha2::{Digest as _, Sha256};

use super::world::{World, import_busybox, is_well, neighbor, next_end, spec};

/// Greets and takes a claim as the channel wants it, and then does `WILD`.
const AGENT: &str = r#"
#include <arpa/inet.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
static unsigned char out[1 << 16];
static void say(unsigned char kind, const void *id, const void *body, uint32_t length) {
    uint32_t size = htonl(length);
    out[0] = kind;
    memcpy(out + 1, id, 4);
    memcpy(out + 5, &size, 4);
    memcpy(out + 9, body, length);
    if (write(0, out, length + 9) < 0) usleep(1000);
}
int main(void) {
    static unsigned char in[1 << 17], welcome[64], junk[60000];
    const char *hello = "{\"version\":\"wild\",\"claimed\":null}", *claimed = "\"claimed\"";
    for (;;) {
        ssize_t got = read(0, in, sizeof in);
        if (got < 9) {
            usleep(5000);
            continue;
        }
        for (unsigned char *at = in; at + 9 <= in + got;) {
            uint32_t length;
            memcpy(&length, at + 5, 4);
            if (at[0] == 1) {
                memcpy(welcome, at + 9, 8);
                memcpy(welcome + 8, hello, strlen(hello));
                say(2, "\0\0\0\0", welcome, 8 + strlen(hello));
            } else if (at[0] == 3) {
                say(5, at + 1, claimed, strlen(claimed));
                junk[0] = 1;
                WILD
            }
            at += 9 + ntohl(length);
        }
    }
}
"#;

/// Into the place of the zone's copy of the agent, for sandboxes that start from now on.
fn replace_agent(world: &World, wild: &str) {
    let digest = Sha256::digest(fs::read(&world.config.agent).unwrap());
    let copy =
        world.path("state/programs").join(ImageDigest::from_bytes(digest.into()).to_string());
    assert!(copy.exists(), "{copy:?}");
    let (source, program) = (world.path("wild.c"), world.path("wild"));
    fs::write(&source, AGENT).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-static", "-O1", "-w", &format!("-DWILD={wild}"), "-o"]);
    assert!(compiler.arg(&program).arg(&source).status().unwrap().success());
    fs::rename(program, copy).unwrap();
}

#[tokio::test]
async fn an_agent_that_leaves_or_breaks_the_rules_is_lost_and_nobody_else() {
    let mut world = World::new();
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    let neighbor = neighbor(&zone, &spec(image)).await;
    let before = world.on_host().await;
    let mut events = zone.subscribe().await.unwrap();
    for wild in [
        "close(0); for (;;) pause();",
        "for (;;) say(99, junk, junk, sizeof junk);",
        "for (;;) say(6, \"\\0\\0\\0\\1\", junk, 2);",
    ] {
        replace_agent(&world, wild);
        let spec = spec(image);
        zone.create(spec.clone()).await.unwrap();
        is_well(&zone, neighbor).await;
        let ended = next_end(&mut events).await;
        assert_eq!((ended.id, ended.reason), (spec.id, EndReason::AgentLost), "{wild}");
        is_well(&zone, neighbor).await;
        world.settles_to(&before).await;
    }
    world.end().await;
}

/// Frames that a zone has to bear with: what comes for a stream that it has closed.
#[tokio::test]
async fn an_agent_that_floods_costs_its_own_sandbox_at_most() {
    let mut world = World::new();
    let zone = world.start().await;
    let image = import_busybox(&zone).await;
    let neighbor = neighbor(&zone, &spec(image)).await;
    for wild in [
        "for (;;) say(9, \"\\0\\0\\0\\1\", junk, sizeof junk);",
        "for (;;) say(12, \"\\0\\0\\0\\1\", junk, 0);",
    ] {
        replace_agent(&world, wild);
        let spec = spec(image);
        zone.create(spec.clone()).await.unwrap();
        for _ in 0..5 {
            is_well(&zone, neighbor).await;
        }
        let killed = tokio::time::timeout(Duration::from_secs(20), zone.kill(spec.id)).await;
        killed.expect("a kill ends").unwrap();
        is_well(&zone, neighbor).await;
    }
    world.end().await;
}
