//! Looking at folders and changing them.

use std::{fs, os::unix::fs::MetadataExt, time::Duration};

use serde_json::{Value, json};

use crate::harness::Agent;

fn at(folder: &tempfile::TempDir, path: &str) -> String {
    folder.path().join(path).to_str().unwrap().to_owned()
}

#[tokio::test]
async fn an_entry_says_what_is_known() {
    let agent = Agent::start();
    let folder = tempfile::tempdir().unwrap();
    fs::write(at(&folder, "日本 \"x\".txt"), "four").unwrap();
    let path = at(&folder, "日本 \"x\".txt");
    let answer = agent.ask("filesystem.Filesystem/Stat", json!({"path": path})).await;
    let mut entry = answer["entry"].clone();
    let modified = entry["modifiedTime"].take();
    assert!(modified.as_str().unwrap().ends_with('Z'), "{modified}");
    assert_eq!(
        entry,
        json!({
            "name": "日本 \"x\".txt", "type": "FILE_TYPE_FILE", "path": path, "size": "4",
            "mode": 0o644, "permissions": "-rw-r--r--", "owner": "root", "group": "root",
            "modifiedTime": null,
        })
    );
    for missing in [at(&folder, "no"), at(&folder, "日本 \"x\".txt/below")] {
        let request = json!({"path": missing});
        let refused = agent.refused("filesystem.Filesystem/Stat", request).await;
        assert_eq!(refused, ("not_found".to_owned(), format!("file not found: {missing}")));
    }
}

#[tokio::test]
async fn folders_are_made_once_and_belong_to_the_user() {
    let agent = Agent::start_with(&["--user", "daemon"]);
    let folder = tempfile::tempdir().unwrap();
    let path = at(&folder, "a/b");
    let request = json!({"path": path});
    let made = agent.ask("filesystem.Filesystem/MakeDir", request.clone()).await;
    assert_eq!(
        (&made["entry"]["owner"], &made["entry"]["permissions"]),
        (&json!("daemon"), &json!("drwxr-xr-x"))
    );
    assert_eq!(fs::metadata(at(&folder, "a")).unwrap().uid(), 1);
    assert_eq!(agent.refused("filesystem.Filesystem/MakeDir", request).await.0, "already_exists");
    fs::write(at(&folder, "file"), "").unwrap();
    let on_a_file = json!({"path": at(&folder, "file")});
    assert_eq!(
        agent.refused("filesystem.Filesystem/MakeDir", on_a_file).await.0,
        "invalid_argument"
    );
}

#[tokio::test]
async fn listing_moving_and_removing() {
    let agent = Agent::start();
    let folder = tempfile::tempdir().unwrap();
    for path in ["a/x", "b"] {
        fs::create_dir_all(at(&folder, path)).unwrap();
    }
    std::os::unix::fs::symlink("a", at(&folder, "link")).unwrap();
    let paths = async |depth: u32, path: &str| -> Vec<String> {
        let request = json!({"path": path, "depth": depth});
        let list = agent.ask("filesystem.Filesystem/ListDir", request).await;
        let entries = list["entries"].as_array().cloned().unwrap_or_default();
        let text = |entry: &Value| entry["path"].as_str().unwrap().to_owned();
        entries.iter().map(text).collect()
    };
    let root = folder.path().to_str().unwrap();
    let join = |names: &[&str]| names.iter().map(|name| at(&folder, name)).collect::<Vec<_>>();
    assert_eq!(paths(0, root).await, join(&["a", "b", "link"]));
    assert_eq!(paths(2, root).await, join(&["a", "a/x", "b", "link"]));
    // The prefix stays as it was asked for.
    assert_eq!(paths(1, &at(&folder, "link")).await, join(&["link/x"]));
    assert_eq!(paths(1, &at(&folder, "b")).await, join(&[]));

    let request = json!({"source": at(&folder, "a"), "destination": at(&folder, "deep/er/c")});
    let moved = agent.ask("filesystem.Filesystem/Move", request.clone()).await;
    assert_eq!(moved["entry"]["path"], at(&folder, "deep/er/c"));
    assert_eq!(agent.refused("filesystem.Filesystem/Move", request).await.0, "not_found");
    for _ in 0..2 {
        let request = json!({"path": at(&folder, "deep")});
        assert_eq!(agent.ask("filesystem.Filesystem/Remove", request).await, json!({}));
    }
    for (path, code) in [("no", "not_found"), ("file", "invalid_argument")] {
        fs::write(at(&folder, "file"), "").unwrap();
        let request = json!({"path": at(&folder, path)});
        assert_eq!(agent.refused("filesystem.Filesystem/ListDir", request).await.0, code);
    }
}

#[tokio::test]
async fn a_move_crosses_file_systems() {
    let agent = Agent::start();
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap());
    fs::create_dir(at(&here, "tree")).unwrap();
    fs::write(at(&here, "tree/file"), "x").unwrap();
    assert_ne!(fs::metadata(here.path()).unwrap().dev(), fs::metadata(there.path()).unwrap().dev());
    let request = json!({"source": at(&here, "tree"), "destination": at(&there, "tree")});
    agent.ask("filesystem.Filesystem/Move", request).await;
    assert_eq!(fs::read_to_string(at(&there, "tree/file")).unwrap(), "x");
    assert!(!here.path().join("tree").exists());
}

#[tokio::test]
async fn a_huge_folder_is_written_while_it_is_read() {
    let agent = Agent::start();
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    for number in 0..20_000 {
        fs::write(at(&folder, &format!("{number:05}")), "").unwrap();
    }
    let before = agent.resident_kib();
    let request = json!({"path": folder.path()});
    let list = agent.ask("filesystem.Filesystem/ListDir", request).await;
    let entries = list["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 20_000);
    assert_eq!(entries[19_999]["name"], "19999");
    let grown = agent.resident_kib().saturating_sub(before);
    assert!(grown < 4 * 1024, "{grown} KiB more");
}

#[tokio::test]
async fn a_unary_call_keeps_its_time() {
    let agent = Agent::start();
    let (_pid, _events) = agent
        .start_process(json!({"process": {"cmd": "sleep", "args": ["60"]}, "tag": "deaf"}))
        .await;
    // A pipe takes 64 KiB; the rest waits for a reader.
    let request = json!({"process": {"tag": "deaf"}, "input": {"stdin": "AAAA".repeat(100_000)}});
    let headers = [("connect-timeout-ms", "300")];
    let call = agent.call_with("process.Process/SendInput", request, &headers);
    let (status, answer) = tokio::time::timeout(Duration::from_secs(5), call).await.unwrap();
    assert_eq!((status, &answer["code"]), (504, &json!("deadline_exceeded")));
}
