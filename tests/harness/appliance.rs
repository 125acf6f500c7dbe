//! One appliance with its own state, run folder and port.

use std::{
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{Client, Outside, Traces, eventually};

/// Dropping it ends its sandboxes and its keeper, and removes what they left on the host.
pub struct Appliance {
    state: TempDir,
    config: PathBuf,
    program: PathBuf,
    port: u16,
    server: Option<Child>,
    /// Whom it believes, if not this machine's.
    roots: Option<PathBuf>,
    pub client: Client,
    pub instance: String,
}

impl Appliance {
    /// Running, with the template `base` and a pool of `warm` sandboxes.
    pub async fn start(warm: u32) -> Result<Self> {
        Self::start_in(folder()?, warm).await
    }

    /// With this folder as its state.
    pub async fn start_in(state: TempDir, warm: u32) -> Result<Self> {
        Self::start_with(state, warm, json!({})).await
    }

    /// With more settings.
    pub async fn start_set(warm: u32, more: Value) -> Result<Self> {
        Self::start_with(folder()?, warm, more).await
    }

    /// Whose sandboxes reach that host.
    pub async fn start_facing(warm: u32, outside: &Outside, zone: Value) -> Result<Self> {
        let mut zone = zone;
        if let Some(zone) = zone.as_object_mut() {
            zone.insert("resolvers".to_owned(), json!([outside.resolver()]));
        }
        // Why a request was cut is told there alone.
        let more = json!({
            "zone": zone,
            "log": { "filter": "sandboxo_egress=debug,info" },
        });
        Self::start_all(folder()?, warm, more, Some(outside.roots())).await
    }

    pub async fn start_with(state: TempDir, warm: u32, more: Value) -> Result<Self> {
        Self::start_all(state, warm, more, None).await
    }

    async fn start_all(
        state: TempDir,
        warm: u32,
        more: Value,
        roots: Option<PathBuf>,
    ) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let config = state.path().join("config.json");
        let mut settings = json!({
            "state": state.path(),
            "port": port,
            "pool": { "size": warm },
        });
        if let (Some(settings), Value::Object(more)) = (settings.as_object_mut(), more) {
            settings.extend(more);
        }
        std::fs::write(&config, settings.to_string())?;
        let url = format!("http://127.0.0.1:{port}");
        let client = Client::new(&url, "", "");
        let program = binary()?;
        let instance = String::new();
        let server = None;
        let mut appliance = Self { state, config, program, port, server, roots, client, instance };
        appliance.serve().await?;
        let read = |name: &str| -> Result<String> {
            let path = appliance.state.path().join(name);
            Ok(std::fs::read_to_string(&path)
                .with_context(|| path.display().to_string())?
                .trim()
                .to_owned())
        };
        appliance.client = Client::new(&url, &read("api-key")?, &read("token")?);
        let zone = appliance.zone().await?;
        appliance.instance =
            zone.get("instance").and_then(Value::as_str).context("the zone's instance")?.to_owned();
        appliance.sandboxo(&[
            "template",
            "import",
            &base_tar()?.to_string_lossy(),
            "--name",
            "base",
            "--image",
            "e2bdev/base",
            "--image",
            "ubuntu:22.04",
        ])?;
        appliance.warm(warm).await?;
        Ok(appliance)
    }

    /// Starts the server on the same state, and waits until it is healthy.
    pub async fn serve(&mut self) -> Result<()> {
        self.spawn()?;
        let health = format!("http://127.0.0.1:{}/health", self.port);
        let healthy = eventually(Duration::from_mins(1), || async {
            let answer = reqwest::get(&health).await?;
            ensure!(answer.status() == StatusCode::NO_CONTENT, "health is {}", answer.status());
            Ok(())
        });
        healthy.await.with_context(|| self.tail())
    }

    /// Starts the server on the same state.
    pub fn spawn(&mut self) -> Result<()> {
        let log = std::fs::File::options().create(true).append(true).open(self.log())?;
        let roots = self.roots.iter().map(|roots| ("SSL_CERT_FILE", roots));
        let server = Command::new(&self.program)
            .envs(roots)
            .arg("serve")
            .arg("--config")
            .arg(&self.config)
            .env("SANDBOXO_CRASH_ORDER", self.crash_order())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        self.server = Some(server);
        Ok(())
    }

    /// The next start is of another program: the same one in another file.
    pub fn install(&mut self, name: &str) -> Result<()> {
        let program = self.state.path().join(name);
        std::fs::copy(binary()?, &program)?;
        self.program = program;
        Ok(())
    }

    /// Has the server die at a point (`NAME:COUNT`), at its next start or while it runs.
    pub fn order_death(&self, at: &str) -> Result<()> {
        let file = self.crash_order();
        let new = file.with_extension("new");
        std::fs::write(&new, at)?;
        Ok(std::fs::rename(new, file)?)
    }

    pub fn call_off_death(&self) -> Result<()> {
        match std::fs::remove_file(self.crash_order()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Whether the server has died since it was started.
    pub fn has_died(&mut self) -> Result<bool> {
        let Some(server) = &mut self.server else { return Ok(true) };
        let died = server.try_wait()?.is_some();
        if died {
            self.server = None;
        }
        Ok(died)
    }

    fn crash_order(&self) -> PathBuf {
        self.state.path().join("crash-order")
    }

    /// Compares the host with what lives, as `sandboxo doctor --leaks` does, for up to 20 s.
    pub async fn leaks(&self) -> Result<Value> {
        let mut doctor = tokio::process::Command::from(self.command(&["doctor", "--leaks"])?);
        let output = doctor.args(["--quiesce", "20", "--json"]).output().await?;
        let said: Value = serde_json::from_slice(&output.stdout)
            .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
        let uneven: Vec<String> = said
            .get("rows")
            .and_then(Value::as_array)
            .context("rows")?
            .iter()
            .filter(|row| {
                let names = |field| row.get(field).and_then(Value::as_array).map_or(1, Vec::len);
                names("extra") + names("missing") > 0
            })
            .map(Value::to_string)
            .collect();
        ensure!(output.status.success() && uneven.is_empty(), "leaks: {uneven:#?}");
        Ok(said)
    }

    /// The base image once more, under another name and with other resources.
    pub async fn template(&self, name: &str, resources: &[(&str, &str)]) -> Result<()> {
        let archive = tokio::fs::File::open(base_tar()?).await?;
        let import = self
            .client
            .admin(Method::POST, "/admin/v1/templates")
            .query(&[("name", name)])
            .query(resources)
            .body(archive);
        let answer = import.send().await?;
        ensure!(answer.status() == StatusCode::CREATED, "import {name}: {}", answer.text().await?);
        Ok(())
    }

    /// Waits until the pool holds this many.
    pub async fn warm(&self, wanted: u32) -> Result<()> {
        eventually(Duration::from_mins(1), || async {
            let zone = self.zone().await?;
            let warm = zone.pointer("/capacity/warm").and_then(Value::as_u64).unwrap_or(0);
            ensure!(warm >= u64::from(wanted), "{warm} of {wanted} are warm");
            Ok(())
        })
        .await
        .with_context(|| self.tail())
    }

    /// Waits until so many sandboxes are frozen.
    pub async fn frozen(&self, wanted: u64) -> Result<()> {
        eventually(Duration::from_mins(1), || async {
            let zone = self.zone().await?;
            let frozen = zone.pointer("/capacity/frozen").and_then(Value::as_u64).unwrap_or(0);
            ensure!(frozen == wanted, "{frozen} of {wanted} are frozen");
            Ok(())
        })
        .await
        .with_context(|| self.tail())
    }

    pub async fn zone(&self) -> Result<Value> {
        Ok(self
            .client
            .admin(Method::GET, "/admin/v1/zone")
            .send()
            .await?
            .error_for_status()?
            .json()
            .await?)
    }

    /// kill -9, as a crash would.
    pub fn crash(&mut self) -> Result<()> {
        if let Some(mut server) = self.server.take() {
            server.kill()?;
            server.wait()?;
        }
        Ok(())
    }

    /// SIGTERM, and waits for its end.
    pub fn stop(&mut self) -> Result<()> {
        if let Some(mut server) = self.server.take() {
            kill(Pid::from_raw(i32::try_from(server.id())?), Signal::SIGTERM)?;
            ensure!(server.wait()?.success(), "the server ended badly: {}", self.tail());
        }
        Ok(())
    }

    pub fn crash_keeper(&self) -> Result<()> {
        let pid = self.keeper()?;
        Ok(kill(Pid::from_raw(pid), Signal::SIGKILL)?)
    }

    pub fn server_pid(&self) -> Result<u32> {
        Ok(self.server.as_ref().context("it runs")?.id())
    }

    pub fn state(&self) -> &Path {
        self.state.path()
    }

    pub(crate) fn config(&self) -> &Path {
        &self.config
    }

    pub fn keeper(&self) -> Result<i32> {
        let mut parents = std::collections::BTreeMap::<i32, i32>::new();
        for entry in std::fs::read_dir("/proc")?.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split(' ').nth(2));
            if let Some(parent) = parent.and_then(|pid| pid.parse().ok())
                && line.contains(" keeper ")
                && line.contains(&self.instance)
            {
                parents.insert(pid, parent);
            }
        }
        // A child has its parent's command line until it has become another program.
        let found = parents.iter().find(|(_, parent)| !parents.contains_key(parent));
        found.map(|(pid, _)| *pid).with_context(|| format!("no keeper of {}", self.instance))
    }

    /// The process on the host that a sandbox is.
    pub fn sentry(&self, sandbox: &Value) -> Result<i32> {
        let id = crate::id(sandbox)?.replace('-', "_");
        for slot in std::fs::read_dir(self.state().join("zone/slots"))? {
            let Ok(text) = std::fs::read(slot?.path().join("slot.json")) else { continue };
            let slot: Value = serde_json::from_slice(&text)?;
            if slot.pointer("/claim/id").and_then(Value::as_str) == Some(&id) {
                let pid = slot.pointer("/process/pid").and_then(Value::as_i64);
                return Ok(i32::try_from(pid.context("it runs")?)?);
            }
        }
        anyhow::bail!("no slot of {id}")
    }

    /// The command line program, against this appliance.
    pub fn sandboxo(&self, args: &[&str]) -> Result<String> {
        let output = self.command(args)?.output()?;
        ensure!(
            output.status.success(),
            "sandboxo {}: {}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8(output.stdout)?)
    }

    pub fn command(&self, args: &[&str]) -> Result<Command> {
        let mut command = Command::new(&self.program);
        command.args(args).env("SANDBOXO_CONFIG", &self.config).env_remove("E2B_API_URL");
        Ok(command)
    }

    pub fn traces(&self) -> Result<Traces> {
        Traces::of(&self.instance)
    }

    /// All that the server has said in all its lives.
    pub fn said(&self) -> String {
        std::fs::read_to_string(self.log()).unwrap_or_default()
    }

    pub fn tail(&self) -> String {
        let log = self.said();
        let lines: Vec<&str> = log.lines().collect();
        lines.get(lines.len().saturating_sub(30)..).unwrap_or_default().join("\n")
    }

    fn log(&self) -> PathBuf {
        self.state.path().join("server.log")
    }
}

impl Drop for Appliance {
    fn drop(&mut self) {
        let ended = self.crash().and_then(|()| self.sandboxo(&["down"]));
        let left = ended.map_or_else(|error| format!("{error:#}"), |_said| String::new());
        // A second panic would hide the first.
        if !std::thread::panicking() {
            assert_eq!(left, "", "sandboxo down; the log ends with:\n{}", self.tail());
        }
    }
}

fn folder() -> Result<TempDir> {
    Ok(tempfile::Builder::new().prefix("sbxo").tempdir()?)
}

/// The program under test: next to the test binaries.
pub(crate) fn binary() -> Result<PathBuf> {
    let tests = std::env::current_exe()?;
    let target = tests.parent().and_then(Path::parent).context("target/<profile>/deps/<test>")?;
    let binary = target.join("sandboxo");
    ensure!(binary.exists(), "{} is missing: run ./dev test", binary.display());
    Ok(binary)
}

#[expect(clippy::disallowed_methods, reason = "./dev test says where the image is")]
fn base_tar() -> Result<PathBuf> {
    let path = std::env::var("SANDBOXO_BASE_TAR").context("SANDBOXO_BASE_TAR: run ./dev test")?;
    Ok(path.into())
}
