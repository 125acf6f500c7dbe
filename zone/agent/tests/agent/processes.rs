//! Starting, feeding, ending.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use sandboxo_agent_proto::connect::Code;
use serde_json::{Value, json};
use sha2::Digest;
use tokio::time::Instant;

use crate::harness::{Agent, Outcome, envelope, process_exists, shell, wait_until};

fn input(pid: u64, bytes: &[u8]) -> Value {
    json!({"process": {"pid": pid}, "input": {"stdin": STANDARD.encode(bytes)}})
}

fn with_stdin(script: &str) -> Value {
    json!({"process": {"cmd": "/bin/sh", "args": ["-c", script]}})
}

#[tokio::test]
async fn output_comes_back_byte_for_byte() {
    let agent = Agent::start();
    let outcome = agent.shell("printf 'a\\n\\n\\nb'; printf oops >&2").await;
    let wanted = Outcome {
        stdout: b"a\n\n\nb".to_vec(),
        stderr: b"oops".to_vec(),
        end: Some(json!({"exited": true, "status": "exit status 0"})),
        ..Outcome::default()
    };
    assert_eq!(outcome, wanted);
}

#[tokio::test]
async fn the_tail_is_not_lost() {
    let agent = Agent::start();
    for _ in 0..20 {
        let outcome = agent.shell("seq 1 100000; exit 3").await;
        assert!(outcome.stdout.ends_with(b"\n100000\n"));
        assert_eq!(outcome.stdout.len(), 588_895);
        assert_eq!(
            outcome.end.unwrap(),
            json!({"exitCode": 3, "exited": true, "status": "exit status 3", "error": "exit status 3"})
        );
    }
}

#[tokio::test]
async fn without_stdin_there_is_nothing_to_read() {
    let agent = Agent::start();
    assert_eq!(agent.shell("cat").await.exit_code(), 0);
}

#[tokio::test]
async fn stdin_takes_pieces_until_it_is_closed() {
    let agent = Agent::start();
    let (pid, events) = agent.start_process(with_stdin("cat")).await;
    for piece in [&b"one\n"[..], b"", b"two\n", "三\n".as_bytes()] {
        agent.ask("process.Process/SendInput", input(pid, piece)).await;
    }
    let selector = json!({"process": {"pid": pid}});
    agent.ask("process.Process/CloseStdin", selector.clone()).await;
    assert_eq!(events.outcome().await.text(), "one\ntwo\n三\n");
    let (code, message) = agent.refused("process.Process/CloseStdin", selector).await;
    assert_eq!(
        (code.as_str(), message),
        ("not_found", format!("process with pid {pid} not found"))
    );
}

#[tokio::test]
async fn input_can_be_streamed() {
    let agent = Agent::start();
    let (pid, events) = agent.start_process(with_stdin("head -c 9")).await;
    let mut body = Vec::new();
    for message in [
        json!({"start": {"process": {"pid": pid}}}),
        json!({"data": {"input": {"stdin": STANDARD.encode("four")}}}),
        json!({"keepalive": {}}),
        json!({"data": {"input": {"stdin": STANDARD.encode("fives")}}}),
    ] {
        body.extend(envelope(&message));
    }
    let request = agent.client.post(agent.url("/process.Process/StreamInput"));
    let request = request.header("content-type", "application/connect+json").body(body);
    let answer = request.send().await.unwrap().bytes().await.unwrap();
    assert_eq!(&answer[..], b"\0\0\0\0\x02{}\x02\0\0\0\x02{}");
    assert_eq!(events.outcome().await.text(), "fourfives");
}

#[tokio::test]
async fn much_input_arrives_whole() {
    let agent = Agent::start();
    let (pid, events) = agent.start_process(with_stdin("sha256sum")).await;
    let bytes: Vec<u8> = (0..16_000_000_u32).map(|n| n.to_le_bytes()[1]).collect();
    agent.ask("process.Process/SendInput", input(pid, &bytes)).await;
    agent.ask("process.Process/CloseStdin", json!({"process": {"pid": pid}})).await;

    let hash = sha2::Sha256::digest(&bytes);
    let hash: Vec<_> = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    let hash = hash.concat();
    assert_eq!(events.outcome().await.text(), format!("{hash}  -\n"));
}

#[tokio::test]
async fn input_that_nobody_takes_is_refused() {
    let agent = Agent::start();
    let (pid, _events) = agent.start_process(with_stdin("exec <&-; echo; sleep 60")).await;
    let closed = async {
        loop {
            let (status, answer) = agent.call("process.Process/SendInput", input(pid, b"x")).await;
            if status != 200 {
                return answer;
            }
        }
    };
    let answer = tokio::time::timeout(Duration::from_secs(5), closed).await.unwrap();
    let wanted = json!({"code": "internal", "message": "error writing to stdin: broken pipe"});
    assert_eq!(answer, wanted);
    let (pid, events) = agent.start_process(shell("sleep 60")).await;
    let (code, message) = agent.refused("process.Process/SendInput", input(pid, b"x")).await;
    assert_eq!(
        (code.as_str(), message.as_str()),
        ("failed_precondition", "stdin not enabled or closed")
    );
    drop(events);
}

#[tokio::test]
async fn the_environment_is_what_was_asked_for_and_no_more() {
    let agent = Agent::start_with(&["--user", "daemon"]);
    let value = "a\"b'c\n$(id)\\n";
    let request = json!({
        "process": {"cmd": "/usr/bin/env", "args": ["-0"], "envs": {"A": value}, "cwd": "/"},
    });
    let (_pid, events) = agent.start_process(request).await;
    let outcome = events.outcome().await;
    let mut found: Vec<&str> = outcome.text().split_terminator('\0').collect();
    found.retain(|line| !line.starts_with("PATH="));
    found.sort_unstable();
    let mut wanted = vec![
        "E2B_SANDBOX=true".to_owned(),
        "E2B_SANDBOX_ID=local".to_owned(),
        "E2B_TEMPLATE_ID=local".to_owned(),
        "HOME=/usr/sbin".to_owned(),
        "LOGNAME=daemon".to_owned(),
        "USER=daemon".to_owned(),
        format!("A={value}"),
    ];
    wanted.sort_unstable();
    assert_eq!(found, wanted);
}

#[tokio::test]
async fn processes_have_the_rights_of_their_user() {
    let agent = Agent::start();
    let user = [("authorization", "Basic ZGFlbW9uOg==")];
    let script =
        "id -un; id -G; grep -E '^Sig(Blk|Ign)' /proc/self/status; umask; pwd; cat /etc/shadow";
    let request = json!({
        "process": {"cmd": "sh", "args": ["-c", script], "cwd": "~"}, "stdin": false,
    });
    let mut events = agent.open_with("process.Process/Start", request, &user).await;
    events.started().await;
    let outcome = events.outcome().await;
    assert_eq!(
        outcome.text(),
        "daemon\n1\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n0022\n/usr/sbin\n"
    );
    assert_ne!(outcome.exit_code(), 0);
}

#[tokio::test]
async fn what_can_not_be_started_is_told_by_kind() {
    let agent = Agent::start();
    let nobody = [("authorization", "Basic bm9zdWNoOg==")];
    let program = |cmd: &str, cwd: &str| json!({"process": {"cmd": cmd, "cwd": cwd}});
    for (request, headers, code, message) in [
        (
            program("/bin/true", "/"),
            &nobody[..],
            Code::Unauthenticated,
            "invalid username: 'nosuch'",
        ),
        (
            program("/bin/true", "/no/such"),
            &[],
            Code::InvalidArgument,
            "cwd '/no/such' does not exist",
        ),
        (
            program("/bin/true", "/etc/passwd"),
            &[],
            Code::InvalidArgument,
            "cwd '/etc/passwd' is not a directory",
        ),
        (
            program("no-such-program", "/"),
            &[],
            Code::InvalidArgument,
            "error starting process 'no-such-program': No such file or directory",
        ),
        (
            program("/etc/passwd", "/"),
            &[],
            Code::InvalidArgument,
            "error starting process '/etc/passwd': Permission denied",
        ),
        (
            json!({"process": {"cmd": "/bin/true", "envs": {"A=B": "c"}, "cwd": "/"}}),
            &[],
            Code::InvalidArgument,
            "invalid name of an environment variable: \"A=B\"",
        ),
        (
            json!({"process": {"cmd": "/bin/true"}, "tag": "_system"}),
            &[],
            Code::InvalidArgument,
            "tag '_system' is reserved",
        ),
    ] {
        let mut events = agent.open_with("process.Process/Start", request, headers).await;
        let failure = events.next().await.unwrap_err().unwrap_err();
        assert_eq!((failure.code, failure.message.as_str()), (code, message));
    }
    wait_until("the children's end", || agent.children_in_state('Z') == 0).await;
}

#[tokio::test]
async fn a_command_past_its_time_is_killed_with_all_it_started() {
    let agent = Agent::start();
    let script = "trap '' TERM; sleep 3601 & echo $!; sleep 3602; echo late";
    let began = Instant::now();
    let headers = [("connect-timeout-ms", "500")];
    let mut events = agent.open_with("process.Process/Start", shell(script), &headers).await;
    let shell_pid = events.started().await;
    let child: u64 = String::from_utf8(events.output(2).await).unwrap().trim().parse().unwrap();
    let (_pid, _other) = agent.start_process(shell("sleep 1")).await;
    let outcome = events.outcome().await;
    assert_eq!(outcome.failure.unwrap().code, Code::DeadlineExceeded);
    assert_eq!(outcome.end, None);
    assert!(began.elapsed() < Duration::from_secs(2));
    wait_until("their end", || !process_exists(shell_pid) && !process_exists(child)).await;
}

#[tokio::test]
async fn the_time_runs_on_when_the_client_has_left() {
    let agent = Agent::start();
    let headers = [("connect-timeout-ms", "1000")];
    let mut events = agent.open_with("process.Process/Start", shell("sleep 3600"), &headers).await;
    let pid = events.started().await;
    drop(events);
    let late = agent.open("process.Process/Connect", json!({"process": {"pid": pid}})).await;
    let end = late.outcome().await.end.unwrap();
    assert_eq!(end["status"], "signal: killed");
    assert!(!process_exists(pid));
}

#[tokio::test]
async fn a_killed_process_is_over_at_once_whoever_holds_its_output() {
    let agent = Agent::start();
    let (pid, mut events) = agent.start_process(shell("sleep 5 & echo on; wait")).await;
    assert_eq!(events.output(3).await, b"on\n");
    let began = Instant::now();
    let kill = json!({"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"});
    agent.ask("process.Process/SendSignal", kill.clone()).await;
    let (code, _message) = agent.refused("process.Process/SendSignal", kill).await;
    assert_eq!(code, "not_found");
    let end = events.outcome().await.end.unwrap();
    let wanted = json!({"exitCode": -1, "status": "signal: killed", "error": "signal: killed"});
    assert_eq!(end, wanted);
    assert!(began.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn the_end_waits_for_who_holds_the_output() {
    let agent = Agent::start();
    let began = Instant::now();
    let outcome = agent.shell("(sleep 0.5; echo late) & echo soon").await;
    assert_eq!(outcome.text(), "soon\nlate\n");
    assert!(began.elapsed() >= Duration::from_millis(500));
}

#[tokio::test]
async fn a_process_outlives_its_client_and_can_be_found_again() {
    let agent = Agent::start();
    let mut request = shell("echo early; read line; echo late; exit 7");
    request["stdin"] = json!(true);
    request["tag"] = json!("mine");
    let (pid, mut events) = agent.start_process(request.clone()).await;
    assert_eq!(events.output(6).await, b"early\n");
    drop(events);
    let list = agent.ask("process.Process/List", json!({})).await;
    let wanted = json!([{"config": request["process"], "pid": pid, "tag": "mine"}]);
    assert_eq!(list["processes"], wanted);
    let mut again =
        agent.open("process.Process/Connect", json!({"process": {"tag": "mine"}})).await;
    assert_eq!(again.started().await, pid);
    agent.ask("process.Process/SendInput", input(pid, b"\n")).await;
    let outcome = again.outcome().await;
    assert_eq!((outcome.text(), outcome.exit_code()), ("late\n", 7));
    // How it ended can be asked for a while, and it is no longer listed.
    assert_eq!(agent.ask("process.Process/List", json!({})).await, json!({}));
    let late = agent.open("process.Process/Connect", json!({"process": {"pid": pid}})).await;
    let late = late.outcome().await;
    assert_eq!((late.text(), late.exit_code()), ("", 7));
    for (selector, wanted) in [
        (json!({"pid": 4_000_000}), "process with pid 4000000 not found"),
        (json!({"tag": "other"}), "process with tag other not found"),
    ] {
        let mut events = agent.open("process.Process/Connect", json!({"process": selector})).await;
        let failure = events.next().await.unwrap_err().unwrap_err();
        assert_eq!((failure.code, failure.message.as_str()), (Code::NotFound, wanted));
    }
}

#[tokio::test]
async fn orphans_are_reaped() {
    let agent = Agent::start();
    let script = "for n in $(seq 50); do (sleep 0.2 &) ; done";
    for _ in 0..4 {
        assert_eq!(agent.shell(script).await.exit_code(), 0);
    }
    let lasting = "(exec >/dev/null 2>&1; sleep 60 &)";
    assert_eq!(agent.shell(lasting).await.exit_code(), 0);
    wait_until("adoption", || agent.children_in_state('S') == 1).await;
    wait_until("reaping", || agent.children_in_state('Z') == 0).await;
}

#[tokio::test]
async fn a_broken_pipe_ends_who_writes_to_it() {
    let agent = Agent::start();
    let began = Instant::now();
    let outcome = agent.shell("yes | head -1").await;
    assert_eq!((outcome.text(), outcome.exit_code()), ("y\n", 0));
    assert!(began.elapsed() < Duration::from_secs(1));
}

#[tokio::test]
async fn a_silent_command_is_heard_of() {
    let agent = Agent::start();
    let began = Instant::now();
    let headers = [("keepalive-ping-interval", "1")];
    let mut events = agent.open_with("process.Process/Start", shell("sleep 60"), &headers).await;
    events.started().await;
    assert!(began.elapsed() < Duration::from_millis(500));
    assert_eq!(events.next().await.unwrap(), json!({"event": {"keepalive": {}}}));
    assert!(began.elapsed() >= Duration::from_millis(950));
}

#[tokio::test]
async fn short_commands_leave_nothing_open() {
    let agent = Agent::start();
    agent.shell("true").await;
    let before = agent.open_files();
    for _ in 0..100 {
        assert_eq!(agent.shell("true").await.exit_code(), 0);
    }
    // The client's pool may hold a connection more or less.
    wait_until("closing", || agent.open_files() <= before + 2).await;
}
