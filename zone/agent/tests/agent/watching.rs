//! Watching folders, polled and streamed.

use std::{collections::BTreeSet, fs, time::Duration};

use serde_json::{Value, json};

use crate::harness::{Agent, wait_until};

const FS: &str = "filesystem.Filesystem";

async fn watch(agent: &Agent, request: Value) -> String {
    let answer = agent.ask(&format!("{FS}/CreateWatcher"), request).await;
    answer["watcherId"].as_str().unwrap().to_owned()
}

async fn events(agent: &Agent, id: &str) -> Vec<(String, String)> {
    let answer = agent.ask(&format!("{FS}/GetWatcherEvents"), json!({"watcherId": id})).await;
    let events = answer["events"].as_array().cloned().unwrap_or_default();
    events.iter().map(told).collect()
}

fn told(event: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&event["name"]), text(&event["type"]).replace("EVENT_TYPE_", ""))
}

async fn upload(agent: &Agent, path: &str, body: &'static str) {
    let request = agent.client.post(agent.url("/files")).query(&[("path", path)]);
    let request = request.header("content-type", "application/octet-stream").body(body);
    assert_eq!(request.send().await.unwrap().status().as_u16(), 200);
}

fn list(wanted: &[(&str, &str)]) -> Vec<(String, String)> {
    wanted.iter().map(|(name, kind)| ((*name).to_owned(), (*kind).to_owned())).collect()
}

#[tokio::test]
async fn an_upload_is_made_given_and_written() {
    let agent = Agent::start();
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_str().unwrap();
    let id = watch(&agent, json!({"path": root})).await;
    let path = format!("{root}/new.txt");
    upload(&agent, &path, "x").await;
    let wanted = list(&[("new.txt", "CREATE"), ("new.txt", "CHMOD"), ("new.txt", "WRITE")]);
    assert_eq!(events(&agent, &id).await, wanted);
    upload(&agent, &path, "y").await;
    let again = events(&agent, &id).await;
    assert_eq!(again.first(), list(&[("new.txt", "CHMOD")]).first());
    assert!(again.contains(&list(&[("new.txt", "WRITE")])[0]));
    assert_eq!(events(&agent, &id).await, []);
    agent.ask(&format!("{FS}/RemoveWatcher"), json!({"watcherId": id})).await;
    for method in ["RemoveWatcher", "GetWatcherEvents"] {
        let (code, _message) =
            agent.refused(&format!("{FS}/{method}"), json!({"watcherId": id})).await;
        assert_eq!(code, "not_found");
    }
}

#[tokio::test]
async fn a_folder_made_by_a_call_is_watched_before_the_next() {
    let agent = Agent::start();
    for _ in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_str().unwrap();
        let id = watch(&agent, json!({"path": root, "recursive": true})).await;
        agent.ask(&format!("{FS}/MakeDir"), json!({"path": format!("{root}/sub")})).await;
        upload(&agent, &format!("{root}/sub/file"), "x").await;
        let seen = events(&agent, &id).await;
        let wanted = list(&[
            ("sub", "CREATE"),
            ("sub", "CHMOD"),
            ("sub/file", "CREATE"),
            ("sub/file", "CHMOD"),
            ("sub/file", "WRITE"),
        ]);
        assert_eq!(seen, wanted);
    }
}

#[tokio::test]
async fn a_stream_tells_as_it_happens() {
    let agent = Agent::start();
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_str().unwrap();
    let request = json!({"path": root, "includeEntry": true});
    let mut stream = agent.open(&format!("{FS}/WatchDir"), request).await;
    assert_eq!(stream.next().await.unwrap(), json!({"start": {}}));
    fs::write(folder.path().join("a"), "four").unwrap();
    let event = stream.next().await.unwrap()["filesystem"].clone();
    assert_eq!(told(&event), ("a".to_owned(), "CREATE".to_owned()));
    assert_eq!(event["entry"]["path"], format!("{root}/a"));
    assert_eq!(told(&stream.next().await.unwrap()["filesystem"]).1, "WRITE");
    fs::rename(folder.path().join("a"), folder.path().join("b")).unwrap();
    let rename = stream.next().await.unwrap()["filesystem"].clone();
    assert_eq!(told(&rename), ("a".to_owned(), "RENAME".to_owned()));
    assert!(rename["entry"].is_null());
    assert_eq!(told(&stream.next().await.unwrap()["filesystem"]).0, "b");
}

#[tokio::test]
async fn what_can_not_be_watched_is_told_by_kind() {
    let agent = Agent::start();
    for (path, code) in [("/no/such", "not_found"), ("/etc/passwd", "invalid_argument")] {
        let (found, _message) =
            agent.refused(&format!("{FS}/CreateWatcher"), json!({"path": path})).await;
        assert_eq!(found, code);
        let mut stream = agent.open(&format!("{FS}/WatchDir"), json!({"path": path})).await;
        assert_eq!(stream.next().await.unwrap_err().unwrap_err().code.name(), code);
    }
}

#[tokio::test]
async fn many_files_are_all_seen() {
    let agent = Agent::start();
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let id = watch(&agent, json!({"path": folder.path()})).await;
    for number in 0..1000 {
        let path = folder.path().join(number.to_string());
        fs::write(&path, "x").unwrap();
        fs::write(&path, "xy").unwrap();
        fs::remove_file(&path).unwrap();
    }
    let seen: BTreeSet<_> = events(&agent, &id).await.into_iter().collect();
    for number in 0..1000 {
        for kind in ["CREATE", "WRITE", "REMOVE"] {
            assert!(seen.contains(&(number.to_string(), kind.to_owned())), "{number} {kind}");
        }
    }
}

#[tokio::test]
async fn watchers_that_are_let_go_leave_nothing_open() {
    let agent = Agent::start();
    let folder = tempfile::tempdir().unwrap();
    let request = json!({"path": folder.path(), "recursive": true});
    let before = {
        let id = watch(&agent, request.clone()).await;
        agent.ask(&format!("{FS}/RemoveWatcher"), json!({"watcherId": id})).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        agent.open_files()
    };
    for _ in 0..200 {
        let id = watch(&agent, request.clone()).await;
        agent.ask(&format!("{FS}/RemoveWatcher"), json!({"watcherId": id})).await;
        let mut stream = agent.open(&format!("{FS}/WatchDir"), request.clone()).await;
        stream.next().await.unwrap();
    }
    wait_until("closing", || agent.open_files() <= before).await;
}
