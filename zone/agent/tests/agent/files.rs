//! Whole files over plain HTTP.

use std::{
    fs,
    io::{Read, Write},
    os::unix::fs::{MetadataExt, PermissionsExt},
};

use reqwest::{
    RequestBuilder, Response,
    multipart::{Form, Part},
};
use serde_json::{Value, json};

use crate::harness::Agent;

fn get(agent: &Agent, path: &str) -> RequestBuilder {
    agent.client.get(agent.url("/files")).query(&[("path", path)])
}

fn put(agent: &Agent, path: &str, body: impl Into<reqwest::Body>) -> RequestBuilder {
    let request = agent.client.post(agent.url("/files")).query(&[("path", path)]);
    request.header("content-type", "application/octet-stream").body(body)
}

async fn ok(request: RequestBuilder) -> Value {
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let body = response.text().await.unwrap();
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

async fn refused(request: RequestBuilder) -> (u16, String) {
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let body: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
    assert_eq!(body["code"], json!(status));
    (status, body["message"].as_str().unwrap().to_owned())
}

fn header<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
    response.headers().get(name).map(|value| value.to_str().unwrap())
}

fn at(folder: &tempfile::TempDir, name: &str) -> String {
    folder.path().join(name).to_str().unwrap().to_owned()
}

fn every_byte() -> Vec<u8> {
    (0..1_000_000_u32).map(|n| n.to_le_bytes()[0] ^ n.to_le_bytes()[1]).collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn bytes_come_back_as_they_went() {
    let agent = Agent::start_with(&["--user", "daemon"]);
    let folder = tempfile::tempdir().unwrap();
    let path = at(&folder, "deep/er/a%2Fb c#?日本 \"x\".txt");
    let written = ok(put(&agent, &path, every_byte())).await;
    assert_eq!(written, json!([{"name": "a%2Fb c#?日本 \"x\".txt", "path": path, "type": "file"}]));
    for made in ["deep", "deep/er", "deep/er/a%2Fb c#?日本 \"x\".txt"] {
        assert_eq!(fs::metadata(at(&folder, made)).unwrap().uid(), 1, "{made}");
    }
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o644);
    let response = get(&agent, &path).send().await.unwrap();
    assert_eq!(header(&response, "content-length"), Some("1000000"));
    assert_eq!(header(&response, "vary"), Some("Accept-Encoding"));
    assert_eq!(
        header(&response, "content-disposition"),
        Some(
            "inline; filename=\"a%2Fb c#?__ \\\"x\\\".txt\"; \
             filename*=UTF-8''a%252Fb%20c#%3F%E6%97%A5%E6%9C%AC%20%22x%22.txt"
        )
    );
    assert!(response.bytes().await.unwrap() == every_byte());
}

#[tokio::test]
async fn a_form_brings_several_files() {
    let agent = Agent::start();
    let folder = tempfile::tempdir().unwrap();
    let part = |text: &'static str, name: String| Part::text(text).file_name(name);
    let form = Form::new()
        .text("ignored", "x")
        .part("file", part("one", at(&folder, "1")))
        .part("file", part("", at(&folder, "empty")))
        .part("file", part("two", at(&folder, "sub/2")));
    let written = ok(agent.client.post(agent.url("/files")).multipart(form)).await;
    let entry =
        |name: &str, path: &str| json!({"name": name, "path": at(&folder, path), "type": "file"});
    assert_eq!(written, json!([entry("1", "1"), entry("empty", "empty"), entry("2", "sub/2")]));
    assert_eq!(fs::read_to_string(at(&folder, "sub/2")).unwrap(), "two");

    // A path in the query is for the one file of the form.
    let form = Form::new().part("file", part("three", "elsewhere".into()));
    let request = agent.client.post(agent.url("/files")).query(&[("path", at(&folder, "3"))]);
    assert_eq!(ok(request.multipart(form)).await[0]["path"], at(&folder, "3"));

    let twice = Form::new()
        .part("file", part("a", at(&folder, "x")))
        .part("file", part("b", at(&folder, "./x")));
    let (status, message) = refused(agent.client.post(agent.url("/files")).multipart(twice)).await;
    assert_eq!(
        (status, message),
        (400, format!("path '{}' is given more than once", at(&folder, "x")))
    );
}

#[tokio::test]
async fn compressed_bodies_are_unpacked() {
    let agent = Agent::start();
    let folder = tempfile::tempdir().unwrap();
    let path = at(&folder, "gz");
    ok(put(&agent, &path, gzip(&every_byte())).header("content-encoding", "gzip")).await;
    assert!(fs::read(&path).unwrap() == every_byte());

    let boundary = "XX";
    let body = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{}\"\r\n\r\nin a form\r\n--{boundary}--\r\n",
        at(&folder, "form")
    );
    let request = agent
        .client
        .post(agent.url("/files"))
        .header("content-type", format!("multipart/form-data; boundary={boundary}"))
        .header("content-encoding", "gzip")
        .body(gzip(body.as_bytes()));
    ok(request).await;
    assert_eq!(fs::read_to_string(at(&folder, "form")).unwrap(), "in a form");

    let mut cut = gzip(&every_byte());
    cut.truncate(cut.len() / 2);
    for (body, coding) in [(cut, "gzip"), (b"plain".to_vec(), "gzip"), (b"x".to_vec(), "br")] {
        let request = put(&agent, &path, body).header("content-encoding", coding);
        assert_eq!(refused(request).await.0, 400);
    }
}

#[tokio::test]
async fn a_file_that_is_there_keeps_its_mode_and_links() {
    let agent = Agent::start_with(&["--user", "daemon"]);
    let folder = tempfile::tempdir().unwrap();
    let (path, hard, soft) = (at(&folder, "a"), at(&folder, "hard"), at(&folder, "soft"));
    fs::write(&path, "long before").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o751)).unwrap();
    fs::hard_link(&path, &hard).unwrap();
    std::os::unix::fs::symlink("a", &soft).unwrap();
    ok(put(&agent, &soft, "now")).await;
    assert_eq!(fs::read_to_string(&hard).unwrap(), "now");
    let found = fs::metadata(&hard).unwrap();
    assert_eq!((found.mode() & 0o7777, found.uid()), (0o751, 1));
    // What is no file is written to and nothing else.
    let before = fs::metadata("/dev/null").unwrap();
    ok(put(&agent, "/dev/null", "gone")).await;
    let after = fs::metadata("/dev/null").unwrap();
    assert_eq!((after.uid(), after.mode()), (before.uid(), before.mode()));
}

#[tokio::test]
async fn parts_and_codings() {
    let agent = Agent::start();
    let folder = tempfile::tempdir().unwrap();
    let path = at(&folder, "digits");
    fs::write(&path, "0123456789").unwrap();

    let response = get(&agent, &path)
        .header("range", "bytes=2-4")
        .header("accept-encoding", "gzip")
        .send()
        .await
        .unwrap();
    assert_eq!(response.status().as_u16(), 206);
    assert_eq!(header(&response, "content-range"), Some("bytes 2-4/10"));
    assert_eq!(
        (header(&response, "content-length"), header(&response, "content-encoding")),
        (Some("3"), None)
    );
    let date = header(&response, "last-modified").unwrap().to_owned();
    assert_eq!(response.text().await.unwrap(), "234");

    let response = get(&agent, &path).header("range", "bytes=10-").send().await.unwrap();
    assert_eq!(
        (response.status().as_u16(), header(&response, "content-range")),
        (416, Some("bytes */10"))
    );
    let response = get(&agent, &path).header("if-modified-since", date).send().await.unwrap();
    assert_eq!((response.status().as_u16(), response.text().await.unwrap().as_str()), (304, ""));

    let response = get(&agent, &path).header("accept-encoding", "gzip").send().await.unwrap();
    assert_eq!(header(&response, "content-encoding"), Some("gzip"));
    let mut text = String::new();
    let bytes = response.bytes().await.unwrap();
    flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text).unwrap();
    assert_eq!(text, "0123456789");
    assert_eq!(refused(get(&agent, &path).header("accept-encoding", "identity;q=0")).await.0, 406);

    let head =
        agent.client.head(agent.url("/files")).query(&[("path", &path)]).send().await.unwrap();
    assert_eq!((head.status().as_u16(), header(&head, "content-length")), (200, Some("10")));
}

#[tokio::test]
async fn files_without_a_size_are_read_to_their_end() {
    let agent = Agent::start();
    let folder = tempfile::tempdir().unwrap();
    let status = get(&agent, "/proc/self/status").send().await.unwrap();
    assert_eq!(header(&status, "content-length").filter(|length| *length == "0"), None);
    assert!(status.text().await.unwrap().starts_with("Name:"));
    fs::write(at(&folder, "empty"), "").unwrap();
    let empty = get(&agent, &at(&folder, "empty")).send().await.unwrap();
    assert_eq!((empty.status().as_u16(), empty.text().await.unwrap().as_str()), (200, ""));
}

#[tokio::test]
async fn refusals_name_the_path() {
    let agent = Agent::start();
    let folder = tempfile::tempdir().unwrap();
    let missing = at(&folder, "no");
    let root = folder.path().to_str().unwrap();
    fs::write(at(&folder, "file"), "").unwrap();
    nix::unistd::mkfifo(folder.path().join("fifo").as_path(), nix::sys::stat::Mode::S_IRWXU)
        .unwrap();
    for (request, status, message) in [
        (get(&agent, &missing), 404, format!("path '{missing}' does not exist")),
        (get(&agent, &at(&folder, "file/x")), 404, format!("path '{root}/file/x' does not exist")),
        (get(&agent, root), 400, format!("path '{root}' is a directory")),
        (
            get(&agent, &at(&folder, "fifo")),
            400,
            format!("path '{root}/fifo' is not a regular file"),
        ),
        (put(&agent, root, "x"), 400, format!("path '{root}' is a directory")),
        (
            put(&agent, &at(&folder, "file/x"), "x"),
            400,
            format!("error opening '{root}/file/x': not a directory"),
        ),
        (
            put(&agent, &at(&folder, "fifo"), "x"),
            400,
            format!("error opening '{root}/fifo': no such device or address"),
        ),
        (put(&agent, "/dev/full", "x"), 507, "not enough disk space available".to_owned()),
        (
            get(&agent, &missing).query(&[("username", "nosuch")]),
            401,
            "error looking up user 'nosuch': user: unknown user nosuch".to_owned(),
        ),
        (
            agent
                .client
                .post(agent.url("/files"))
                .header("content-type", "application/octet-stream"),
            400,
            "the query parameter path is required".to_owned(),
        ),
    ] {
        assert_eq!(refused(request).await, (status, message));
    }
    let request = agent.client.post(agent.url("/files")).header("content-type", "text/plain");
    assert_eq!(refused(request.body("x")).await.0, 400);
}

#[tokio::test]
async fn metadata_is_kept_and_replaced() {
    let agent = Agent::start();
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = at(&folder, "a");
    let stat = async |path: &str| {
        let answer = agent.ask("filesystem.Filesystem/Stat", json!({"path": path})).await;
        answer["entry"]["metadata"].clone()
    };
    let both = json!({"author": "m i", "purpose": "x"});
    let first = put(&agent, &path, "1")
        .header("X-Metadata-Author", "m i")
        .header("x-metadata-purpose", "x");
    assert_eq!(ok(first).await[0]["metadata"], both);
    assert_eq!(stat(&path).await, both);
    let moved = at(&folder, "b");
    let request = json!({"source": path, "destination": moved});
    let answer = agent.ask("filesystem.Filesystem/Move", request).await;
    assert_eq!(answer["entry"]["metadata"], both);
    ok(put(&agent, &moved, "2").header("x-metadata-purpose", "y")).await;
    assert_eq!(stat(&moved).await, json!({"purpose": "y"}));
    ok(put(&agent, &moved, "3")).await;
    assert_eq!(stat(&moved).await, Value::Null);
    let bad = put(&agent, &at(&folder, "new"), "x").header("x-metadata-a", "\u{e9}");
    assert_eq!(refused(bad).await.0, 400);
    assert!(!folder.path().join("new").exists());
}

#[tokio::test]
async fn large_files_pass_with_little_memory() {
    let agent = Agent::start();
    let folder = tempfile::tempdir().unwrap();
    let path = at(&folder, "large");
    let size = 128 << 20;
    ok(put(&agent, &path, vec![7; size])).await;
    assert!(agent.resident_kib() < 24 * 1024, "{} KiB", agent.resident_kib());
    let mut response = get(&agent, &path).send().await.unwrap();
    let mut seen = 0;
    while let Some(chunk) = response.chunk().await.unwrap() {
        seen += chunk.len();
    }
    assert_eq!(seen, size);
    assert!(agent.resident_kib() < 24 * 1024, "{} KiB", agent.resident_kib());
}

#[tokio::test]
async fn a_file_that_shrinks_is_not_taken_for_whole() {
    let agent = Agent::start();
    let folder = tempfile::tempdir().unwrap();
    let path = at(&folder, "shrinks");
    fs::write(&path, vec![7; 32 << 20]).unwrap();
    let mut response = get(&agent, &path).send().await.unwrap();
    response.chunk().await.unwrap();
    fs::write(&path, "short").unwrap();
    let cut = loop {
        match response.chunk().await {
            Ok(Some(_)) => {}
            Ok(None) => break false,
            Err(_cut) => break true,
        }
    };
    assert!(cut);
}

#[tokio::test]
async fn files_are_composed() {
    let agent = Agent::start();
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [("1", "one "), ("2", "two")] {
        fs::write(at(&folder, name), text).unwrap();
    }
    let request = json!({
        "source_paths": [at(&folder, "1"), at(&folder, "2")], "destination": at(&folder, "both"),
        "username": "daemon",
    });
    let written = ok(agent.client.post(agent.url("/files/compose")).json(&request)).await;
    assert_eq!(written["path"], at(&folder, "both"));
    assert_eq!(fs::read_to_string(at(&folder, "both")).unwrap(), "one two");
    assert_eq!(fs::metadata(at(&folder, "both")).unwrap().uid(), 1);
    assert_eq!(refused(agent.client.post(agent.url("/files/compose")).json(&request)).await.0, 404);
}
