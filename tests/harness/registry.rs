//! A registry of images, as Debian packages it, that wants a password.

use std::{
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::eventually;

/// Dropping it ends it.
pub struct Registry {
    /// `127.0.0.1:PORT`
    pub host: String,
    http: reqwest::Client,
    server: Child,
    _folder: TempDir,
}

impl Registry {
    pub const USER: &str = "me";
    pub const PASSWORD: &str = "opensesame";
    /// Of the password, by bcrypt, with its least cost: it only has to be right.
    const ENTRY: &str = "me:$2b$04$abcdefghijklmnopqrstuuFuhxWRTXIsURoluSTZ1N4tYaWGn9oOi\n";

    pub async fn start() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("sbxo-registry").tempdir()?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let host = format!("127.0.0.1:{port}");
        let place = |name: &str| folder.path().join(name);
        std::fs::write(place("htpasswd"), Self::ENTRY)?;
        // JSON is YAML too.
        let config = json!({
            "version": 0.1,
            "log": { "level": "error", "accesslog": { "disabled": true } },
            "storage": { "filesystem": { "rootdirectory": place("images") } },
            "http": { "addr": host },
            "auth": { "htpasswd": { "realm": "tests", "path": place("htpasswd") } },
        });
        std::fs::write(place("config.yml"), config.to_string())?;
        let server = Command::new(program()?)
            .arg("serve")
            .arg(place("config.yml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(place("log"))?)
            .spawn()?;
        let log = place("log");
        let registry = Self { host, http: reqwest::Client::new(), server, _folder: folder };
        let answers = eventually(Duration::from_mins(1), || async {
            let answer = registry.ask(Method::GET, "/v2/").send().await?;
            ensure!(answer.status() == StatusCode::OK, "it answers {}", answer.status());
            Ok(())
        });
        answers.await.with_context(|| std::fs::read_to_string(log).unwrap_or_default())?;
        Ok(registry)
    }

    fn ask(&self, method: Method, path: &str) -> RequestBuilder {
        let url = if path.starts_with('/') {
            format!("http://{}{path}", self.host)
        } else {
            path.to_owned()
        };
        self.http.request(method, url).basic_auth(Self::USER, Some(Self::PASSWORD))
    }

    /// Gives what a manifest says of it.
    pub async fn push_blob(&self, name: &str, media_type: &str, bytes: Vec<u8>) -> Result<Value> {
        let digest = digest(&bytes);
        let size = bytes.len();
        let begun = self.ask(Method::POST, &format!("/v2/{name}/blobs/uploads/")).send().await?;
        ensure!(
            begun.status() == StatusCode::ACCEPTED,
            "{}: {}",
            begun.status(),
            begun.text().await?
        );
        let place = begun.headers().get("Location").context("where to")?.to_str()?.to_owned();
        let put = self.ask(Method::PUT, &place).query(&[("digest", &digest)]).body(bytes);
        let put = put.send().await?;
        ensure!(put.status() == StatusCode::CREATED, "{}: {}", put.status(), put.text().await?);
        Ok(json!({ "mediaType": media_type, "digest": digest, "size": size }))
    }

    /// Gives its digest.
    pub async fn push_manifest(&self, name: &str, tag: &str, manifest: &Value) -> Result<String> {
        let media_type =
            manifest.get("mediaType").and_then(Value::as_str).context("its mediaType")?.to_owned();
        let body = manifest.to_string();
        let digest = digest(body.as_bytes());
        let put = self
            .ask(Method::PUT, &format!("/v2/{name}/manifests/{tag}"))
            .header("Content-Type", media_type)
            .body(body);
        let put = put.send().await?;
        ensure!(put.status() == StatusCode::CREATED, "{}: {}", put.status(), put.text().await?);
        Ok(digest)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let ended = self.server.kill().and_then(|()| self.server.wait());
        if !std::thread::panicking() {
            assert!(ended.is_ok(), "the registry does not end: {ended:?}");
        }
    }
}

fn digest(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    let hash = sandboxo_zone_protocol::ImageDigest::from_bytes(sha2::Sha256::digest(bytes).into());
    format!("sha256:{hash}")
}

#[expect(clippy::disallowed_methods, reason = "./dev test says where it is")]
fn program() -> Result<PathBuf> {
    let path = std::env::var("SANDBOXO_REGISTRY").context("SANDBOXO_REGISTRY: run ./dev test")?;
    Ok(path.into())
}
