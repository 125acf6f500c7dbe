//! `template base`: the template that every client expects, made of this host's own packages.
//!
//! The archive is kept under the recipe's hash, so a second run only imports it. A run that is cut
//! leaves nothing under that name, and the next one starts again.

mod recipe;
mod sources;

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context as _, Result, anyhow, bail};
use nix::fcntl::{Flock, FlockArg};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    process::Command,
};

use super::{Context, target::Target, templates};
use crate::{
    config::Config,
    output::{self, Progress},
    state::StateFolder,
};
use recipe::Recipe;

/// How many archives a cache keeps.
const KEPT: usize = 3;

#[derive(Debug, clap::Args)]
pub(crate) struct Base {
    /// What clients will call it
    #[arg(long, default_value = "base")]
    name: String,
    /// Make it anew, with the newest packages
    #[arg(long)]
    fresh: bool,
    /// Keep archives in this folder [default: `cache` in the state folder]
    #[arg(long, value_name = "FOLDER")]
    cache: Option<PathBuf>,
    /// Make the archive and print its path, import nothing
    #[arg(long)]
    only_archive: bool,
}

pub(crate) async fn base(context: &Context, base: Base) -> Result<()> {
    let cache = if let Some(cache) = base.cache {
        cache
    } else {
        StateFolder::at(&Config::load(&context.flags)?.state).cache()
    };
    // Before minutes of work: is there anybody to import it?
    let target = if base.only_archive {
        None
    } else {
        let target = Target::find(context)?;
        target.admin_get("/templates").await?;
        Some(target)
    };
    let archive = archive(&cache, base.fresh).await?;
    match target {
        None => output::print(&archive.display().to_string())?,
        Some(target) => {
            // Recipes that begin with the base image mean this.
            let query = [("name", base.name.clone()), ("image", "e2bdev/base".to_owned())];
            let made = templates::upload(&target, &archive, &query).await?;
            templates::show(context, &made)?;
        }
    }
    Ok(())
}

async fn archive(cache: &Path, fresh: bool) -> Result<PathBuf> {
    std::fs::create_dir_all(cache).with_context(|| format!("make {}", cache.display()))?;
    let cache = std::fs::canonicalize(cache)?;
    let recipe = Recipe::of_this_host()?;
    let archive = cache.join(format!("base-{}.tar", recipe.digest()));
    let _one_at_a_time = lock(&cache)?;
    if archive.exists() && !fresh {
        output::note(&format!("the archive is there already: {}", archive.display()));
        return Ok(archive);
    }
    if !nix::unistd::geteuid().is_root() {
        bail!("making the base template needs root: run it with sudo");
    }
    make(&recipe, &cache, &archive).await?;
    forget_old(&cache);
    Ok(archive)
}

fn lock(cache: &Path) -> Result<Flock<std::fs::File>> {
    let path = cache.join("lock");
    let file = std::fs::File::create(&path).with_context(|| format!("open {}", path.display()))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(held) => Ok(held),
        Err((file, nix::errno::Errno::EWOULDBLOCK)) => {
            output::note("another run makes the base template; waiting for it");
            Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, errno)| anyhow!(errno))
        }
        Err((_, errno)) => Err(anyhow!(errno)),
    }
    .with_context(|| format!("lock {}", path.display()))
}

async fn make(recipe: &Recipe, cache: &Path, archive: &Path) -> Result<()> {
    let work = cache.join("work");
    clear(&work)?;
    std::fs::create_dir(&work).with_context(|| format!("make {}", work.display()))?;
    let (setup, sources) = recipe.write(&work)?;
    let part = work.join("base.tar");
    let temporary = work.join("tmp");
    std::fs::create_dir(&temporary)?;
    let progress = Progress::spinner("base template: starting mmdebstrap");
    let log = cache.join("build.log");
    std::fs::write(&log, "").with_context(|| format!("make {}", log.display()))?;
    let mut command = Command::new("mmdebstrap");
    command
        .args(Recipe::arguments())
        .arg(format!("--customize-hook={}", setup.display()))
        .arg(recipe.suite())
        .arg(&part)
        .arg(&sources)
        .env("TMPDIR", &temporary)
        .env("SOURCE_DATE_EPOCH", today().to_string())
        .env("LC_ALL", "C.UTF-8");
    run(command, &log, &progress).await?;
    // mmdebstrap leaves out /dev with its nodes; the mount point is wanted.
    progress.phase("base template: finishing the archive");
    std::fs::create_dir(work.join("dev"))?;
    let mut append = Command::new("tar");
    append
        .args(["--append", "--owner=0", "--group=0", "--numeric-owner", "--mode=0755"])
        .arg(format!("--mtime=@{}", today()))
        .arg("-f")
        .arg(&part)
        .arg("-C")
        .arg(&work)
        .arg("./dev");
    run(append, &log, &progress).await?;
    std::fs::File::open(&part)?.sync_all()?;
    std::fs::rename(&part, archive).with_context(|| format!("make {}", archive.display()))?;
    clear(&work)
}

/// What an earlier, cut run left. mmdebstrap mounts in a namespace of its own, so no mount can
/// have stayed behind; a file system boundary is not crossed all the same.
fn clear(work: &Path) -> Result<()> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let prefix = format!("{}/", work.display());
    if let Some(mount) =
        mounts.lines().filter_map(|line| line.split(' ').nth(1)).find(|at| at.starts_with(&prefix))
    {
        bail!("something is mounted in the work folder: `umount {mount}`, then run this again");
    }
    match std::fs::remove_dir_all(work) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("clear {}", work.display()))
        }
        _ => Ok(()),
    }
}

/// Archives of older recipes, but for the last few: other checkouts may share the folder.
fn forget_old(cache: &Path) {
    let mut archives: Vec<_> = std::fs::read_dir(cache)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"base-"))
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    archives.sort();
    let old = archives.len().saturating_sub(KEPT);
    for (_, path) in archives.into_iter().take(old) {
        if std::fs::remove_file(&path).is_err() {
            output::note(&format!("{} could not be removed", path.display()));
        }
    }
}

/// Midnight: newer times are set back to it, so that two runs of one day give the same archive.
fn today() -> i64 {
    use sandboxo_zone_protocol::{Clock as _, SystemClock};
    let now = SystemClock.now().as_second();
    now - now.rem_euclid(86_400)
}

/// Runs it with its output in the log, and shows what it is at.
async fn run(mut command: Command, log: &Path, progress: &Progress) -> Result<()> {
    let program = command.as_std().get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("start {program}: `apt-get install {program}` brings it"))?;
    let stderr = child.stderr.take().context("its output")?;
    let mut lines = BufReader::new(stderr).split(b'\n');
    let mut file = tokio::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(log)
        .await
        .with_context(|| format!("make {}", log.display()))?;
    let mut phase = String::from("starting");
    let mut tail: Vec<String> = Vec::new();
    let mut count = 0_u64;
    while let Some(line) = lines.next_segment().await.context("read its output")? {
        count += 1;
        file.write_all(&line).await?;
        file.write_all(b"\n").await?;
        let line = String::from_utf8_lossy(&line).into_owned();
        match recipe::phase(&line) {
            Some(next) => {
                next.clone_into(&mut phase);
                progress.phase(&format!("base template: {phase}"));
            }
            None => progress.detail(&format!("base template: {phase} ({count} lines)")),
        }
        tail.push(line);
        if tail.len() > 15 {
            tail.remove(0);
        }
    }
    file.flush().await?;
    let status = child.wait().await.with_context(|| format!("wait for {program}"))?;
    if status.success() {
        return Ok(());
    }
    bail!(
        "{program} failed ({status}); all of its output is in {}, its end is:\n{}",
        log.display(),
        tail.join("\n")
    )
}
