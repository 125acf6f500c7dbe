//! Templates from images of a real registry.

use std::{io::Write as _, time::Duration};

use anyhow::{Context as _, Result, ensure};
use reqwest::{Method, StatusCode};
use sandboxo_tests::{Client, Registry, Shared, eventually};
use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};

const OCI: &str = "application/vnd.oci.image";

fn tar(entries: &[(&str, EntryType, &str, &[u8])]) -> Result<Vec<u8>> {
    let mut tar = Builder::new(Vec::new());
    for (path, kind, link, content) in entries {
        let mut header = Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_mode(0o755);
        header.set_size(content.len() as u64);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        if link.is_empty() {
            tar.append_data(&mut header, path, *content)?;
        } else {
            tar.append_link(&mut header, path, link)?;
        }
    }
    Ok(tar.into_inner()?)
}

fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(bytes)?;
    Ok(gzip.finish()?)
}

/// What the builder's own scripts need, and no more.
fn busybox() -> Result<Vec<u8>> {
    let found = std::process::Command::new("sh").args(["-c", "command -v busybox"]).output()?;
    let program = std::fs::read(String::from_utf8(found.stdout)?.trim())?;
    let mut entries: Vec<(&str, EntryType, &str, &[u8])> = vec![
        ("bin/busybox", EntryType::Regular, "", &program),
        ("bin/bash", EntryType::Regular, "", b"#!/bin/sh\nexec /bin/sh \"$@\"\n"),
        ("etc/passwd", EntryType::Regular, "", b"root:x:0:0:root:/root:/bin/sh\n"),
        ("etc/group", EntryType::Regular, "", b"root:x:0:\n"),
        ("opt/gone", EntryType::Regular, "", b"below"),
        ("opt/folder/file", EntryType::Regular, "", b"below"),
        ("opt/changed", EntryType::Regular, "", b"below"),
    ];
    let applets = [
        "sh", "sed", "grep", "mkdir", "cp", "chown", "chmod", "readlink", "rm", "ln", "tar", "cat",
        "printenv",
    ];
    let links: Vec<String> = applets.iter().map(|name| format!("bin/{name}")).collect();
    entries
        .extend(links.iter().map(|link| (link.as_str(), EntryType::Symlink, "busybox", &b""[..])));
    tar(&entries)
}

/// Three layers, each packed in another way, in a list of platforms; with a Docker name too.
async fn push(registry: &Registry, name: &str) -> Result<()> {
    let changes = tar(&[
        ("opt/.wh.gone", EntryType::Regular, "", b""),
        ("opt/folder/.wh..wh..opq", EntryType::Regular, "", b""),
        ("opt/folder/new", EntryType::Regular, "", b"above"),
        ("opt/changed", EntryType::Regular, "", b"above"),
    ])?;
    let zstd = ruzstd::encoding::compress_to_vec(
        tar(&[("opt/packed", EntryType::Regular, "", b"zstd")])?.as_slice(),
        ruzstd::encoding::CompressionLevel::Fastest,
    );
    let config = json!({
        "os": "linux",
        "architecture": "amd64",
        "config": { "Env": ["PATH=/bin", "GREETING=of the image"], "User": "nobody" },
        "rootfs": { "type": "layers", "diff_ids": [] },
    });
    let blob = async |kind: &str, bytes: Vec<u8>| registry.push_blob(name, kind, bytes).await;
    let config = blob(&format!("{OCI}.config.v1+json"), config.to_string().into_bytes()).await?;
    let layer = |kind: &str| format!("{OCI}.layer.v1.tar{kind}");
    let layers = [
        blob(&layer("+gzip"), gzip(&busybox()?)?).await?,
        blob(&layer(""), changes).await?,
        blob(&layer("+zstd"), zstd).await?,
    ];
    let media_type = format!("{OCI}.manifest.v1+json");
    let image = json!({
        "schemaVersion": 2,
        "mediaType": media_type,
        "config": config,
        "layers": layers,
    });
    let digest = registry.push_manifest(name, "amd64", &image).await?;
    let list = json!({
        "schemaVersion": 2,
        "mediaType": format!("{OCI}.index.v1+json"),
        "manifests": [{
            "mediaType": media_type,
            "digest": digest,
            "size": image.to_string().len(),
            "platform": { "os": "linux", "architecture": "amd64" },
        }],
    });
    registry.push_manifest(name, "v1", &list).await?;
    Ok(())
}

/// How it ends, with all that was said.
async fn build(client: &Client, name: &str, recipe: Value) -> Result<Value> {
    let asked = client.api(Method::POST, "/v3/templates").json(&json!({ "name": name }));
    let asked: Value = asked.send().await?.error_for_status()?.json().await?;
    let text = |field: &str| asked.get(field).and_then(Value::as_str).context("an id");
    let (template, build) = (text("templateID")?, text("buildID")?);
    let start = client.api(Method::POST, &format!("/v2/templates/{template}/builds/{build}"));
    let start = start.json(&recipe).send().await?;
    ensure!(start.status() == StatusCode::ACCEPTED, "{}: {}", start.status(), start.text().await?);
    let path = format!("/templates/{template}/builds/{build}/status");
    let ended = eventually(Duration::from_mins(2), || async {
        let status: Value = client.api(Method::GET, &path).send().await?.json().await?;
        let phase = status.get("status").and_then(Value::as_str).unwrap_or_default().to_owned();
        ensure!(matches!(phase.as_str(), "ready" | "error"), "it is {status}");
        Ok(status)
    });
    ended.await
}

fn reason(status: &Value) -> &str {
    status.pointer("/reason/message").and_then(Value::as_str).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_is_built_from_an_image_of_a_registry() -> Result<()> {
    let registry = Registry::start().await?;
    push(&registry, "team/app").await?;
    let appliance = Shared::get().await?;
    let client = &appliance.client;
    let image = |tag: &str| format!("{}/team/app:{tag}", registry.host);
    let credentials = json!({
        "type": "registry",
        "username": Registry::USER,
        "password": Registry::PASSWORD,
    });
    let recipe = |tag: &str, credentials: &Value| json!({ "fromImage": image(tag), "fromImageRegistry": credentials });
    let built = build(client, "pulled", recipe("v1", &credentials)).await?;
    ensure!(built.get("status") == Some(&json!("ready")), "{built}");
    let said = built.get("logEntries").context("its log")?.to_string();
    ensure!(said.contains("was pulled"), "{said}");
    let sandbox = client.create(json!({ "templateID": "pulled", "timeout": 600 })).await?;
    for (path, expected) in
        [("/opt/changed", "above"), ("/opt/folder/new", "above"), ("/opt/packed", "zstd")]
    {
        let read = String::from_utf8(client.read(&sandbox, path).await?)?;
        ensure!(read == expected, "{path} has {read:?}");
    }
    for path in ["/opt/gone", "/opt/folder/file", "/opt/.wh.gone"] {
        let found = client.agent(Method::GET, &sandbox, "/files").query(&[("path", path)]);
        let status = found.send().await?.status();
        ensure!(status == StatusCode::NOT_FOUND, "{path}: {status}");
    }
    let ran = client.run(&sandbox, "echo $GREETING").await?;
    ensure!(ran.stdout == "of the image\n", "{ran:?}");

    // Once it is here, it is here; also under its digest, and for the layers that came of it.
    let again = build(client, "again", recipe("amd64", &credentials)).await?;
    let said = again.get("logEntries").context("its log")?.to_string();
    ensure!(said.contains("is here already") && said.contains("CACHED"), "{said}");

    for (recipe, expected) in [
        (recipe("v2", &credentials), "the registry has no such image or tag"),
        (recipe("v1", &Value::Null), "the registry wants other credentials"),
        (
            json!({ "fromImage": "192.168.0.1:5000/a" }),
            "192.168.0.1:5000 is not on the public internet",
        ),
    ] {
        let failed = build(client, "failed", recipe).await?;
        ensure!(reason(&failed).contains(expected), "{failed}");
    }
    // Of all this nothing is kept or told that opens the registry.
    let wanted = Registry::PASSWORD.as_bytes();
    for name in ["server.log", "records.redb"] {
        let kept = std::fs::read(appliance.state.join(name))?;
        ensure!(!kept.windows(wanted.len()).any(|it| it == wanted), "{name} has the password");
    }
    client.kill(&sandbox).await?;
    Ok(())
}
