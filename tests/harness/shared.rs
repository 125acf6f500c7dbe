//! One appliance for all tests of a run that only use it, whichever process each of them is.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result};
use nix::fcntl::{Flock, FlockArg};
use serde_json::{Value, json};

use crate::{Appliance, Client};

/// Ends it with its sandboxes once the runner of the tests has ended.
const GUARDIAN: &str = r#"tail --pid="$1" -f /dev/null; kill -9 "$2"
SANDBOXO_CONFIG=$3 "$4" down; rm -r "$5" "$6""#;

/// An appliance that others use at the same time: no test may stop it or change its templates.
pub struct Shared {
    pub client: Client,
    pub server_pid: u32,
    pub state: PathBuf,
}

impl Shared {
    /// The first that asks starts it.
    pub async fn get() -> Result<Self> {
        let runner = std::os::unix::process::parent_id();
        // A number comes back, a number and a beginning do not.
        let stat = std::fs::read_to_string(format!("/proc/{runner}/stat"))?;
        let began = stat.rsplit(')').next().and_then(|rest| rest.split(' ').nth(20));
        let began = began.context("when the runner began")?;
        let facts = std::env::temp_dir().join(format!("sbxo-shared-{runner}-{began}"));
        let file = File::options().create(true).append(true).read(true).open(&facts)?;
        let _others_wait = Flock::lock(file, FlockArg::LockExclusive)
            .map_err(|(_file, errno)| errno)
            .context("the lock of the shared appliance")?;
        let known = std::fs::read_to_string(&facts)?;
        if known.is_empty() {
            let made = start(runner, &facts).await?;
            std::fs::write(&facts, made.to_string())?;
            return Self::of(&made);
        }
        Self::of(&serde_json::from_str(&known)?)
    }

    fn of(facts: &Value) -> Result<Self> {
        let text = |name: &str| {
            facts.get(name).and_then(Value::as_str).with_context(|| format!("{name} in {facts}"))
        };
        let server = facts.get("server").and_then(Value::as_u64).context("server")?;
        Ok(Self {
            client: Client::new(text("url")?, text("key")?, text("token")?),
            server_pid: server.try_into()?,
            state: text("state")?.into(),
        })
    }
}

async fn start(runner: u32, facts: &Path) -> Result<Value> {
    let registries = json!({ "images": { "registries": ["http://127.0.0.1"] } });
    let appliance = Appliance::start_set(3, registries).await?;
    let server = appliance.server_pid()?;
    let program: PathBuf = crate::appliance::binary()?;
    Command::new("setsid")
        .args(["sh", "-c", GUARDIAN, "guardian"])
        .args([runner.to_string(), server.to_string()])
        .args([appliance.config(), &program, appliance.state(), facts])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let state = appliance.state().to_owned();
    let Client { url, key, token, .. } = appliance.client.clone();
    // From here on it is the guardian's.
    std::mem::forget(appliance);
    Ok(json!({ "url": url, "key": key, "token": token, "server": server, "state": state }))
}
