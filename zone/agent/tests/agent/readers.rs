//! Several who listen, some of whom don't.

use std::time::Duration;

use serde_json::json;

use crate::harness::{Agent, process_exists, shell};

#[tokio::test]
async fn a_reader_that_stops_does_not_stop_the_others() {
    let agent = Agent::start();
    let (pid, stopped) = agent.start_process(shell("yes")).await;
    let selector = json!({"process": {"pid": pid}});
    let mut lively = agent.open("process.Process/Connect", selector).await;
    lively.started().await;
    let much = tokio::time::timeout(Duration::from_mins(1), lively.output(2 << 20)).await;
    assert!(much.is_ok(), "the reader waits for the other");
    drop(stopped);
}

#[tokio::test]
async fn output_that_nobody_hears_is_dropped_and_costs_nothing() {
    let agent = Agent::start();
    let (pid, mut events) = agent.start_process(shell("cat /dev/zero")).await;
    events.output(1 << 20).await;
    let before = agent.resident_kib();
    drop(events);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let grown = agent.resident_kib().saturating_sub(before);
    assert!(grown < 5 * 1024, "{grown} KiB more");
    assert!(process_exists(pid));
    // It is not held back either: it can be heard again at once.
    let selector = json!({"process": {"pid": pid}});
    let mut again = agent.open("process.Process/Connect", selector).await;
    again.output(1 << 20).await;
}

#[tokio::test]
async fn a_lone_reader_that_stops_holds_the_process_and_no_memory() {
    let agent = Agent::start();
    let (_pid, events) = agent.start_process(shell("head -c 50000000 /dev/zero")).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(agent.resident_kib() < 24 * 1024, "{} KiB", agent.resident_kib());
    // Nothing was lost meanwhile.
    assert_eq!(events.outcome().await.stdout.len(), 50_000_000);
}

#[tokio::test]
async fn much_output_takes_little_memory() {
    let agent = Agent::start();
    let outcome = agent.shell("head -c 30000000 /dev/zero; echo end >&2").await;
    assert_eq!((outcome.stdout.len(), &outcome.stderr[..]), (30_000_000, &b"end\n"[..]));
    assert!(agent.resident_kib() < 24 * 1024, "{} KiB", agent.resident_kib());
}

#[tokio::test]
async fn floods_that_nobody_hears_leave_time_for_others() {
    let agent = Agent::start();
    for _ in 0..3 {
        let (_pid, events) = agent.start_process(shell("cat /dev/zero")).await;
        drop(events);
    }
    let others = async {
        for _ in 0..10 {
            assert_eq!(agent.shell("echo hi").await.text(), "hi\n");
        }
    };
    tokio::time::timeout(Duration::from_mins(1), others).await.expect("nobody has a turn");
}
