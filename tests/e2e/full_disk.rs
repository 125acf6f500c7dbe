//! The disk under an appliance is full: what is refused says so, nothing is lost, and room helps.

use std::{
    fs::{self, File},
    io::Write as _,
    path::PathBuf,
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use nix::{
    fcntl::{FallocateFlags, fallocate},
    sys::statvfs::statvfs,
};
use reqwest::{Method, RequestBuilder, StatusCode};
use sandboxo_tests::{Appliance, id};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A file system of its own, in a file of the host's.
struct Disk {
    _image: TempDir,
    root: PathBuf,
}

impl Disk {
    fn mount(mib: u64, root: PathBuf) -> Result<Self> {
        let image = tempfile::tempdir()?;
        let file = image.path().join("disk");
        File::create(&file)?.set_len(mib << 20)?;
        let run = |command: &mut Command| -> Result<()> {
            let output = command.output()?;
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            ensure!(output.status.success(), "{command:?}: {said}");
            Ok(())
        };
        run(Command::new("mkfs.ext4").args(["-q", "-m", "0"]).arg(&file))?;
        run(Command::new("mount").args(["-o", "loop"]).arg(&file).arg(&root))?;
        Ok(Self { _image: image, root })
    }

    fn filler(&self) -> PathBuf {
        self.root.join("filler")
    }

    /// To the last byte.
    fn fill(&self) -> Result<()> {
        let mut filler = File::options().create(true).append(true).open(self.filler())?;
        // Sparse files of others have yet to take what they were written.
        nix::unistd::syncfs(&filler)?;
        let length = filler.metadata()?.len();
        let free = statvfs(&self.root)?;
        let free = free.blocks_available() * free.fragment_size();
        let (from, most) = (i64::try_from(length)?, i64::try_from(free)?);
        // Some of what is free goes into the notes about the rest.
        let _less = (0..64).find(|pages| {
            let bytes = most - pages * (64 << 10);
            bytes > 0 && fallocate(&filler, FallocateFlags::empty(), from, bytes).is_ok()
        });
        for size in [64 << 10, 4096] {
            while filler.write_all(&vec![0; size]).and_then(|()| filler.sync_data()).is_ok() {}
        }
        Ok(())
    }

    fn make_room(&self) -> Result<()> {
        Ok(fs::remove_file(self.filler())?)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: after a test that failed somebody may still be in it.
        drop(Command::new("umount").arg("-l").arg(&self.root).status());
        drop(fs::remove_dir(&self.root));
    }
}

async fn refused(asked: RequestBuilder, status: u16, says: &str) -> Result<()> {
    let answer = asked.send().await?;
    let got = answer.status();
    let text = answer.text().await?;
    ensure!(got == status && text.contains(says), "{got}: {text}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_full_disk_can_not_take_is_refused_as_such_and_works_again() -> Result<()> {
    let state = tempfile::Builder::new().prefix("sbxo").tempdir()?;
    let disk = Disk::mount(900, state.path().to_owned())?;
    let more = json!({ "limits": { "disk_reserve_mib": 0 } });
    let mut appliance = Appliance::start_with(state, 0, more).await?;
    let client = appliance.client.clone();
    let (kept, killed) = (client.sandbox().await?, client.sandbox().await?);
    ensure!(client.run(&kept, "echo kept > ~/file").await?.exit_code == 0);
    disk.fill()?;

    let body = json!({ "templateID": "base", "timeout": 600 });
    refused(client.api(Method::POST, "/v2/sandboxes").json(&body), 503, "disk_full").await?;
    let timeout = client.api(Method::POST, &format!("/sandboxes/{}/timeout", id(&kept)?));
    refused(timeout.json(&json!({ "timeout": 900 })), 503, "disk_full").await?;
    let import = client.admin(Method::POST, "/admin/v1/templates").query(&[("name", "more")]);
    let nothing = vec![0; 1 << 20];
    refused(import.body(nothing), 507, "the zone's disk is full").await?;
    ensure!(client.run(&kept, "cat ~/file").await?.stdout == "kept\n");
    ensure!(client.run(&kept, "echo more > ~/more; cat ~/more").await?.stdout == "more\n");

    appliance.crash()?;
    appliance.spawn()?;
    let mut tries = 0;
    while !appliance.has_died()? {
        tries += 1;
        ensure!(tries < 1000, "it runs on a full disk");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let said = appliance.tail();
    ensure!(said.contains("is full: make room there and start again"), "{said}");
    disk.make_room()?;
    appliance.serve().await?;
    ensure!(client.run(&kept, "cat ~/file").await?.stdout == "kept\n");
    ensure!(client.running().await?.len() == 2, "{}", appliance.tail());
    ensure!(client.kill(&killed).await? == StatusCode::NO_CONTENT);
    ensure!(client.running().await? == [id(&kept)?]);
    let dead = client.admin(Method::GET, "/admin/v1/sandboxes?dead=true").send().await?;
    let dead: Value = dead.json().await?;
    let listed = dead.get("sandboxes").and_then(Value::as_array).context("a list")?;
    let ended = listed.iter().find(|ended| ended.get("id") == killed.get("sandboxID"));
    let reason = ended.and_then(|ended| ended.get("reason"));
    ensure!(reason == Some(&"killed".into()), "it ended by {reason:?}");
    let fresh = client.sandbox().await?;
    ensure!(client.run(&fresh, "echo new").await?.stdout == "new\n");
    appliance.leaks().await?;
    Ok(())
}
