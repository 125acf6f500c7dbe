//! The measure beside ours: runsc by its command line, on the same image, in the same run.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use serde_json::json;
use tempfile::TempDir;
use tokio::{io::AsyncReadExt as _, process::Command, time::Instant};

/// Random memory comes at some hundred MiB a second.
const HELD_WITHIN: Duration = Duration::from_mins(1);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

pub(super) struct Bare {
    runsc: PathBuf,
    folder: TempDir,
    images: TempDir,
    rootfs: PathBuf,
}

impl Bare {
    pub(super) fn new(runsc: &Path, state: &Path, rootfs: &Path) -> Result<Self> {
        let mut named = tempfile::Builder::new();
        let named = named.prefix("sbxo-bare");
        let (folder, images) = (named.tempdir_in("/run")?, named.tempdir_in(state)?);
        Ok(Self { runsc: runsc.to_path_buf(), folder, images, rootfs: rootfs.to_path_buf() })
    }

    /// Milliseconds from the start of `runsc run` to the first byte of the command's output.
    pub(super) async fn run(&self, id: &str, command: &[&str]) -> Result<f64> {
        let bundle = self.bundle(id, command)?;
        let begin = Instant::now();
        let mut child = self
            .command()
            .args(["run", "--bundle"])
            .arg(bundle)
            .arg(id)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("start runsc")?;
        let mut out = child.stdout.take().context("its output")?;
        let mut first = [0; 1];
        let read = out.read(&mut first).await?;
        let took = begin.elapsed();
        if read == 0 || !child.wait().await?.success() {
            bail!("runsc run failed: {}", self.log());
        }
        Ok(took.as_secs_f64() * 1000.0)
    }

    /// `runsc run -detach`: returns when the sandbox has started.
    pub(super) async fn detach(&self, id: &str) -> Result<()> {
        let bundle = self.bundle(id, &["/bin/sleep", "600"])?;
        self.call(self.command().args(["run", "-detach", "--bundle"]).arg(bundle).arg(id)).await
    }

    pub(super) async fn delete(&self, id: &str) -> Result<()> {
        self.call(self.command().args(["delete", "-force", id])).await
    }

    /// One that has that much random memory once this returns.
    pub(super) async fn hold(&self, id: &str, mib: u32) -> Result<()> {
        let fill = format!("head -c {mib}M /dev/urandom > /tmp/held && mv /tmp/held /tmp/is-held");
        let bundle = self.bundle(id, &["/bin/sh", "-c", &format!("{fill}; exec sleep 600")])?;
        self.call(self.command().args(["run", "-detach", "--bundle"]).arg(bundle).arg(id)).await?;
        let until = Instant::now() + HELD_WITHIN;
        let is_held = ["exec", id, "/bin/test", "-e", "/tmp/is-held"];
        while self.call(self.command().args(is_held)).await.is_err() {
            if Instant::now() > until {
                bail!("a bare sandbox does not get its {mib} MiB: {}", self.log());
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }

    /// Milliseconds of `runsc checkpoint`, after which it is gone.
    pub(super) async fn checkpoint(&self, id: &str) -> Result<f64> {
        let image = self.image(id);
        if image.exists() {
            std::fs::remove_dir_all(&image)?;
        }
        let begin = Instant::now();
        self.call(self.command().args(["checkpoint", "-image-path"]).arg(image).arg(id)).await?;
        let took = begin.elapsed();
        self.delete(id).await?;
        Ok(took.as_secs_f64() * 1000.0)
    }

    /// Milliseconds of `runsc restore -detach` from what a checkpoint of `id` has left.
    pub(super) async fn restore(&self, id: &str, again: &str) -> Result<f64> {
        let bundle = self.folder.path().join(id);
        let begin = Instant::now();
        let mut command = self.command();
        command.args(["restore", "-detach", "-image-path"]).arg(self.image(id));
        self.call(command.arg("--bundle").arg(bundle).arg(again)).await?;
        Ok(begin.elapsed().as_secs_f64() * 1000.0)
    }

    /// On the appliance's own disk, as checkpoints are.
    fn image(&self, id: &str) -> PathBuf {
        self.images.path().join(id)
    }

    async fn call(&self, command: &mut Command) -> Result<()> {
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let status = quiet.status().await.context("start runsc")?;
        if status.success() { Ok(()) } else { bail!("runsc failed: {}", self.log()) }
    }

    /// The flags that the zone's own sandboxes have, without a network to set up.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.runsc);
        command
            .arg("--root")
            .arg(self.folder.path().join("r"))
            .arg("--log")
            .arg(self.folder.path().join("log"))
            .args(["--platform=ptrace", "--network=none", "--ignore-cgroups"])
            .arg("--overlay2=root:memory");
        command
    }

    fn log(&self) -> String {
        let text = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        text.lines().last().unwrap_or("it said nothing").to_owned()
    }

    fn bundle(&self, id: &str, command: &[&str]) -> Result<PathBuf> {
        let bundle = self.folder.path().join(id);
        std::fs::create_dir_all(&bundle)?;
        let config = json!({
            "ociVersion": "1.0.0",
            "hostname": "bare",
            "process": {
                "args": command,
                "cwd": "/home/user",
                "env": ["PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/user", "USER=user"],
                "user": { "uid": 1000, "gid": 1000 },
            },
            "root": { "path": self.rootfs, "readonly": false },
            "mounts": [
                { "destination": "/proc", "type": "proc", "source": "proc" },
                { "destination": "/dev", "type": "tmpfs", "source": "tmpfs" },
                { "destination": "/tmp", "type": "tmpfs", "source": "tmpfs" },
            ],
            "linux": { "namespaces": [{ "type": "pid" }, { "type": "mount" }, { "type": "ipc" }, { "type": "uts" }, { "type": "network" }] },
        });
        std::fs::write(bundle.join("config.json"), config.to_string())?;
        Ok(bundle)
    }
}
