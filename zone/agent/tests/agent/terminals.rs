//! Processes with a terminal.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::harness::Agent;

fn terminal(script: &str) -> Value {
    json!({
        "process": {
            "cmd": "/bin/bash", "args": ["-c", script], "cwd": "/",
            "envs": {"TERM": "xterm-256color", "LANG": "C.UTF-8"},
        },
        "pty": {"size": {"cols": 80, "rows": 24}},
    })
}

fn typed(pid: u64, text: &str) -> Value {
    json!({"process": {"pid": pid}, "input": {"pty": STANDARD.encode(text)}})
}

#[tokio::test]
async fn a_terminal_has_the_size_it_is_given() {
    let agent = Agent::start();
    let script = "tty; stty size; read line; stty size; echo \"<$line>\"; exit 7";
    let (pid, mut events) = agent.start_process(terminal(script)).await;
    let first = events.until("24 80").await;
    assert!(first.starts_with("/dev/pts/"), "{first}");
    for (columns, rows) in [(10, 10), (1, 1), (300, 100), (50, 20), (133, 40)] {
        let size =
            json!({"process": {"pid": pid}, "pty": {"size": {"cols": columns, "rows": rows}}});
        agent.ask("process.Process/Update", size).await;
    }
    agent.ask("process.Process/SendInput", typed(pid, "日本\n")).await;
    let outcome = events.outcome().await;
    let text = String::from_utf8(outcome.pty.clone()).unwrap();
    assert!(text.contains("40 133") && text.contains("<日本>"), "{text}");
    assert_eq!(outcome.exit_code(), 7);
}

#[tokio::test]
async fn control_c_reaches_the_program_in_front() {
    let agent = Agent::start();
    let script = "trap 'echo caught; exit 3' INT; echo ready; while true; do sleep 0.05; done";
    let (pid, mut events) = agent.start_process(terminal(script)).await;
    events.until("ready").await;
    agent.ask("process.Process/SendInput", typed(pid, "\x03")).await;
    let outcome = events.outcome().await;
    assert!(String::from_utf8(outcome.pty.clone()).unwrap().contains("caught"));
    assert_eq!(outcome.exit_code(), 3);
}

#[tokio::test]
async fn a_terminal_ends_with_its_shell_though_others_hold_it() {
    let agent = Agent::start();
    let (_pid, events) =
        agent.start_process(terminal("trap '' HUP; sleep 120 & echo last words")).await;
    let outcome = tokio::time::timeout(Duration::from_mins(1), events.outcome()).await;
    let outcome = outcome.expect("it waits for the other");
    assert_eq!(String::from_utf8(outcome.pty.clone()).unwrap(), "last words\r\n");
}

#[tokio::test]
async fn terminals_and_pipes_are_not_mixed_up() {
    let agent = Agent::start();
    let (pid, _events) = agent.start_process(terminal("read line")).await;
    let selector = json!({"process": {"pid": pid}});
    let (code, _message) = agent.refused("process.Process/CloseStdin", selector).await;
    assert_eq!(code, "failed_precondition");
    let wrong = json!({"process": {"pid": pid}, "input": {"stdin": "eA=="}});
    let (code, _message) = agent.refused("process.Process/SendInput", wrong).await;
    assert_eq!(code, "failed_precondition");
    let (pid, _other) =
        agent.start_process(json!({"process": {"cmd": "sleep", "args": ["9"]}})).await;
    let resize = json!({"process": {"pid": pid}, "pty": {"size": {"cols": 1, "rows": 1}}});
    let (code, message) = agent.refused("process.Process/Update", resize).await;
    assert_eq!(
        (code.as_str(), message.as_str()),
        ("failed_precondition", "tty not assigned to process")
    );
}

#[tokio::test]
async fn a_killed_terminal_is_over() {
    let agent = Agent::start();
    let (pid, events) = agent.start_process(terminal("sleep 60; true")).await;
    let kill = json!({"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"});
    agent.ask("process.Process/SendSignal", kill).await;
    assert_eq!(events.outcome().await.end.unwrap()["status"], "signal: killed");
}
