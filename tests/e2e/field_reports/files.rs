//! Files: names, contents, folders, watches.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use parking_lot::Mutex;
use reqwest::Method;
use sandboxo_tests::{Client, Shared, eventually, scaled};
use serde_json::{Value, json};

async fn upload(client: &Client, sandbox: &Value, path: &str, bytes: &[u8]) -> Result<()> {
    let post = client
        .agent(Method::POST, sandbox, "/files")
        .query(&[("path", path), ("username", "user")])
        .header("Content-Type", "application/octet-stream")
        .body(bytes.to_vec());
    let answer = post.send().await?;
    ensure!(answer.status() == 200, "{path}: {}", answer.text().await?);
    Ok(())
}

#[tokio::test]
async fn row_45_a_download_is_called_as_its_file() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    let sandbox = client.sandbox().await?;
    for (name, wanted) in [
        (
            "日本 \"x\".txt",
            r#"inline; filename="__ \"x\".txt"; filename*=UTF-8''%E6%97%A5%E6%9C%AC%20%22x%22.txt"#,
        ),
        ("a;b.txt", "inline; filename=\"a;b.txt\""),
        ("plain.txt", "inline; filename=plain.txt"),
    ] {
        let path = format!("/tmp/{name}");
        upload(&client, &sandbox, &path, b"hi").await?;
        let get = client.agent(Method::GET, &sandbox, "/files").query(&[("path", &path)]);
        let answer = get.send().await?;
        let told = answer.headers().get("content-disposition").context("a name")?.clone();
        ensure!(told == wanted, "{told:?}");
        ensure!(answer.bytes().await? == "hi");
    }
    client.kill(&sandbox).await.map(drop)
}

#[tokio::test]
async fn row_46_an_encoded_path_is_decoded_once() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    let sandbox = client.sandbox().await?;
    let (path, encoded) = ("/home/user/web/a%2Fb c#?.txt", "/a%252Fb%20c%23%3F.txt");
    upload(&client, &sandbox, path, b"odd").await?;
    ensure!(client.read(&sandbox, path).await? == b"odd");
    client.start_and_leave(&sandbox, "cd web && exec python3 -m http.server 8080").await?;
    let id = sandbox.get("sandboxID").and_then(Value::as_str).context("an id")?;
    let ways: [(&str, &[(&str, &str)]); 4] = [
        ("", &[("E2b-Sandbox-Id", id), ("E2b-Sandbox-Port", "8080")]),
        ("/proxy", &[("X-Agentenv-Sandbox-Id", id), ("X-Agentenv-Target-Port", "8080")]),
        ("", &[("X-Agentenv-Sandbox-Id", id), ("X-Agentenv-Target-Port", "8080")]),
        ("", &[("Host", &format!("8080-{id}.localhost"))]),
    ];
    for (prefix, headers) in ways {
        eventually(Duration::from_secs(30), || async {
            let mut get = client.api(Method::GET, &format!("{prefix}{encoded}"));
            for (name, value) in headers {
                get = get.header(*name, *value);
            }
            let answer = get.send().await?;
            let (status, text) = (answer.status(), answer.text().await?);
            ensure!(status == 200 && text == "odd", "{headers:?}: {status} {text}");
            Ok(())
        })
        .await?;
    }
    client.kill(&sandbox).await.map(drop)
}

#[tokio::test]
async fn row_47_bytes_are_not_text() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    let sandbox = client.sandbox().await?;
    let every: Vec<u8> = (0..=255).chain((0..=255).rev()).cycle().take(100_000).collect();
    let office = [b"PK\x03\x04\x14\0\x06\0\x08\0\0\0!\0".as_slice(), &every].concat();
    for (path, bytes) in [("/tmp/a.docx", &office), ("/tmp/b.txt", &every), ("/tmp/c", &every)] {
        upload(&client, &sandbox, path, bytes).await?;
        ensure!(client.read(&sandbox, path).await? == *bytes, "{path}");
    }
    client.kill(&sandbox).await.map(drop)
}

#[tokio::test]
async fn row_50_a_listing_shows_links_and_does_not_enter_them() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    let sandbox = client.sandbox().await?;
    let make = "mkdir -p d/real && touch d/real/in && ln -s /etc d/out && ln -s real d/near && \
                ln -s nowhere d/dead && ln -s . d/loop";
    ensure!(client.run(&sandbox, make).await?.exit_code == 0);
    let asked = json!({ "path": "d", "depth": 5 });
    let listed = client.ask(&sandbox, "filesystem.Filesystem/ListDir", asked).await?;
    let entries = listed.get("entries").and_then(Value::as_array).context("entries")?;
    let seen: Vec<_> = entries
        .iter()
        .map(|entry| {
            let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or("-");
            (text("path"), text("permissions").get(..1).unwrap_or("-"), text("symlinkTarget"))
        })
        .collect();
    let wanted = [
        ("/home/user/d/dead", "L", "/home/user/d/dead"),
        ("/home/user/d/loop", "L", "/home/user/d"),
        ("/home/user/d/near", "L", "/home/user/d/real"),
        ("/home/user/d/out", "L", "/etc"),
        ("/home/user/d/real", "d", "-"),
        ("/home/user/d/real/in", "-", "-"),
    ];
    ensure!(seen == wanted, "{seen:#?}");
    client.kill(&sandbox).await.map(drop)
}

#[tokio::test]
async fn row_51_a_watch_sees_all_of_many_quick_changes() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    let sandbox = client.sandbox().await?;
    let many = scaled(300, 1000);
    let files = "ls /proc/1/fd | wc -l";
    ensure!(client.run(&sandbox, "mkdir w").await?.exit_code == 0);
    let before = client.run_as(&sandbox, "root", files).await?;
    let asked = json!({ "path": "w" });
    let made = client.ask(&sandbox, "filesystem.Filesystem/CreateWatcher", asked).await?;
    let watcher = json!({ "watcherId": made.get("watcherId").context("an id")? });
    let change = format!(
        "import os\nos.chdir('w')\nall = range({many})\n\
         for i in all: open(f'f{{i}}', 'w').close()\n\
         for i in all: open(f'f{{i}}', 'w').write('x')\n\
         for i in all: os.rename(f'f{{i}}', f'g{{i}}')\n\
         for i in all: os.remove(f'g{{i}}')\n"
    );
    upload(&client, &sandbox, "/tmp/change.py", change.as_bytes()).await?;
    let changed = client.run(&sandbox, "python3 /tmp/change.py").await?;
    ensure!(changed.exit_code == 0, "{changed:?}");
    let seen = Mutex::new(BTreeMap::<String, BTreeSet<String>>::new());
    eventually(Duration::from_secs(30), || async {
        let got = client.ask(&sandbox, "filesystem.Filesystem/GetWatcherEvents", watcher.clone());
        let got = got.await?;
        let mut seen = seen.lock();
        for event in got.get("events").and_then(Value::as_array).into_iter().flatten() {
            let text = |name: &str| event.get(name).and_then(Value::as_str).unwrap_or("");
            seen.entry(text("type").to_owned()).or_default().insert(text("name").to_owned());
        }
        let counts: Vec<_> =
            seen.iter().map(|(kind, names)| (kind.as_str(), names.len())).collect();
        // A renamed file is made under its new name.
        let wanted = [("CREATE", 2 * many), ("REMOVE", many), ("RENAME", many), ("WRITE", many)];
        let wanted = wanted.map(|(kind, count)| (format!("EVENT_TYPE_{kind}"), count));
        let wanted: Vec<_> = wanted.iter().map(|(kind, count)| (kind.as_str(), *count)).collect();
        ensure!(counts == wanted, "{counts:?}");
        Ok(())
    })
    .await?;
    client.ask(&sandbox, "filesystem.Filesystem/RemoveWatcher", watcher.clone()).await?;
    let (_status, again) =
        client.call(&sandbox, "filesystem.Filesystem/RemoveWatcher", watcher).await?;
    ensure!(again.get("code") == Some(&"not_found".into()), "{again}");
    let after = client.run_as(&sandbox, "root", files).await?;
    ensure!(after == before, "descriptors of the agent: {before:?}, {after:?}");
    client.kill(&sandbox).await.map(drop)
}

#[tokio::test]
async fn row_52_watches_that_end_leave_nothing_open() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    let sandbox = client.sandbox().await?;
    ensure!(client.run(&sandbox, "mkdir w").await?.exit_code == 0);
    let files = "ls -l /proc/1/fd | grep -c -e inotify -e socket";
    let before = client.run_as(&sandbox, "root", files).await?;
    for _ in 0..scaled(60, 500) {
        let asked = json!({ "path": "w" });
        let mut stream =
            client.open(&sandbox, "filesystem.Filesystem/WatchDir", &asked, &[]).await?;
        let first = stream.next().await?.context("a start")?;
        ensure!(first.get("start").is_some(), "{first}");
    }
    eventually(Duration::from_secs(30), || async {
        let after = client.run_as(&sandbox, "root", files).await?;
        ensure!(after == before, "{before:?} became {after:?}");
        Ok(())
    })
    .await?;
    client.kill(&sandbox).await.map(drop)
}

#[tokio::test]
async fn row_53_a_program_without_descriptors_is_alone_with_that() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    let (sandbox, other) = (client.sandbox().await?, client.sandbox().await?);
    let many = scaled(5_000, 20_000);
    let hold = format!(
        "import os, time\nos.mkdir('o')\nheld = [open(f'o/{{i}}', 'w') for i in range({many})]\n\
         try:\n  while True: held.append(os.dup(0))\n\
         except OSError as error: print(error.errno, flush=True)\n\
         time.sleep(4321)\n"
    );
    upload(&client, &sandbox, "/tmp/hold.py", hold.as_bytes()).await?;
    let command = json!({
        "process": { "cmd": "/usr/bin/python3", "args": ["/tmp/hold.py"] }, "stdin": false,
    });
    let mut stream = client.open(&sandbox, "process.Process/Start", &command, &[]).await?;
    // EMFILE
    stream.until("24\n").await?;
    for sandbox in [&sandbox, &other] {
        ensure!(client.run(sandbox, "cat /etc/hostname | wc -l").await?.stdout == "1\n");
        client.kill(sandbox).await?;
    }
    Ok(())
}

#[tokio::test]
async fn row_54_a_huge_folder_is_listed_without_being_held() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    let sandbox = client.sandbox().await?;
    // gVisor keeps 2.4 KiB of the sandbox's memory for each file, which is the larger part of it.
    let many = scaled(5_000, 100_000);
    let make = format!(
        "mkdir m && cd m && python3 -c 'for i in range({many}): open(str(i), \"w\").close()'"
    );
    ensure!(client.run(&sandbox, &make).await?.exit_code == 0);
    let before = client.agent_kib(&sandbox).await?;
    let asked = json!({ "path": "m" });
    let call = client.agent(Method::POST, &sandbox, "/filesystem.Filesystem/ListDir");
    let mut answer = call.basic_auth("user", Some("")).json(&asked).send().await?;
    // Not read before the agent has had the time to gather all of it, had it wanted to.
    let first = answer.chunk().await?.context("a beginning")?;
    let during = client.agent_kib(&sandbox).await?;
    let mut text = first.to_vec();
    while let Some(chunk) = answer.chunk().await? {
        text.extend(chunk);
    }
    let listed: Value = serde_json::from_slice(&text)?;
    let entries = listed.get("entries").and_then(Value::as_array).context("entries")?;
    ensure!(entries.len() == many, "{} of {many}", entries.len());
    ensure!(during < before + 16 * 1024, "{before} KiB grew to {during} KiB");
    client.kill(&sandbox).await.map(drop)
}
