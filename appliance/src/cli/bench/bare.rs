//! The measure beside ours: runsc by its command line, on the same image, in the same run.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context as _, Result, bail};
use serde_json::json;
use tempfile::TempDir;
use tokio::{io::AsyncReadExt as _, process::Command, time::Instant};

pub(super) struct Bare {
    runsc: PathBuf,
    folder: TempDir,
    rootfs: PathBuf,
}

impl Bare {
    pub(super) fn new(runsc: &Path, rootfs: &Path) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("sbxo-bare").tempdir_in("/run")?;
        Ok(Self { runsc: runsc.to_path_buf(), folder, rootfs: rootfs.to_path_buf() })
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
        let status = self
            .command()
            .args(["run", "-detach", "--bundle"])
            .arg(bundle)
            .arg(id)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .await
            .context("start runsc")?;
        if status.success() { Ok(()) } else { bail!("runsc run -detach failed: {}", self.log()) }
    }

    pub(super) async fn delete(&self, id: &str) -> Result<()> {
        let status = self
            .command()
            .args(["delete", "-force", id])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .await?;
        if status.success() { Ok(()) } else { bail!("runsc delete failed: {}", self.log()) }
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
