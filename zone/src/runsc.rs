//! runsc by its command line: what it is, what it can do, and how it is called.
//!
//! Sandboxes are started through the keeper; this module only says with which arguments. The few
//! calls of the probe run directly, with a file as output, since runsc's children inherit it.

use std::{
    collections::BTreeSet,
    fmt, fs, io,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    str::FromStr,
    time::Duration,
};

use sandboxo_zone_protocol::{NetworkMode, Platform};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{checkpoint::RuntimeMark, slot::ContainerId};

/// The first release whose overlay on disk can be checkpointed; Debian 13 ships it.
const OLDEST: RunscVersion = RunscVersion(20_240_729);
/// Later ones ask the kernel in a way that 6.11 and newer answer.
const LAST_THAT_READS_RMEM: RunscVersion = RunscVersion(20_240_831);
/// Whose sentries we know how to speak to.
const SPOKEN: [RunscVersion; 1] = [RunscVersion(20_240_729)];
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// It takes some ten milliseconds, and longer on a busy host.
const ORDER_TIMEOUT: Duration = Duration::from_secs(10);

/// A release is named for its day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct RunscVersion(u32);

impl fmt::Display for RunscVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownVersion;

impl FromStr for RunscVersion {
    type Err = UnknownVersion;

    /// Takes what `runsc --version` prints: the packaged form `0.0~20240729.0`, and the upstream
    /// forms `release-20240729.0` and `release-20240729.0-5-gabc`.
    fn from_str(text: &str) -> Result<Self, UnknownVersion> {
        let line = text.lines().find_map(|line| line.strip_prefix("runsc version "));
        line.unwrap_or_default()
            .split(|c: char| !c.is_ascii_digit())
            .find(|part| part.len() == 8 && part.starts_with("20"))
            .and_then(|day| day.parse().ok())
            .map(Self)
            .ok_or(UnknownVersion)
    }
}

/// What this build offers beyond the oldest one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Features {
    /// Connections of a checkpointed sandbox are reset instead of failing the checkpoint.
    pub net_disconnect_ok: bool,
    /// The private layer can lie in a folder of ours.
    pub overlay_dir: bool,
    /// The private layer's size can be bounded by runsc itself.
    pub overlay_size: bool,
    /// Sentry's own panics can be kept.
    pub panic_log: bool,
}

impl Features {
    /// From what `runsc flags` prints.
    fn parse(flags: &str) -> Self {
        let named: BTreeSet<&str> = flags
            .lines()
            .filter_map(|line| line.strip_prefix("  -"))
            .filter_map(|line| line.split_whitespace().next())
            .collect();
        Self {
            net_disconnect_ok: named.contains("net-disconnect-ok"),
            overlay_dir: flags.contains("dir=/abs/dir/path"),
            overlay_size: flags.contains("size="),
            panic_log: named.contains("panic-log"),
        }
    }
}

/// What `doctor` shows, and what a memory snapshot will have to match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuntimeFacts {
    pub runsc: PathBuf,
    pub version: RunscVersion,
    /// SHA-256 of the program.
    pub digest: String,
    pub platform: &'static str,
    pub features: Features,
    /// `v1` or `v2`.
    pub cgroups: &'static str,
    /// The kernel's release.
    pub kernel: String,
}

#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    #[error(
        "there is no runsc at {0}: install Debian's package `runsc` (Debian 13 or newer) or a release of the gVisor project"
    )]
    Missing(PathBuf),
    #[error(
        "runsc {found} is too old, {OLDEST} or newer is needed: install the package `runsc` of Debian 13 or a release of the gVisor project"
    )]
    TooOld { found: RunscVersion },
    #[error("what {path} answers to `--version` is not a runsc's: {said:?}")]
    Unknown { path: PathBuf, said: String },
    #[error("`{program} {argument}` did not end within {PROBE_TIMEOUT:?}")]
    Hangs { program: PathBuf, argument: &'static str },
    #[error("`{program} {argument}` failed with {status}: {said:?}")]
    Failed { program: PathBuf, argument: &'static str, status: ExitStatus, said: String },
    #[error("this runsc can't keep a sandbox's private layer in a folder (`--overlay2=root:dir=`)")]
    NoOverlayDir,
    #[error("run {program}")]
    Run { program: PathBuf, source: io::Error },
}

/// A runsc that was looked at.
#[derive(Debug, Clone)]
pub(crate) struct Runsc {
    path: PathBuf,
    root: PathBuf,
    version: RunscVersion,
    features: Features,
    digest: String,
}

/// One sandbox to be run.
pub(crate) struct RunCommand<'a> {
    pub(crate) container: ContainerId,
    pub(crate) bundle: &'a Path,
    pub(crate) platform: Platform,
    pub(crate) network: NetworkMode,
    /// The folder for the private layer.
    pub(crate) filestore: &'a Path,
    pub(crate) log: &'a Path,
    /// For the last words of a sentry that panics.
    pub(crate) panic_log: &'a Path,
    pub(crate) pid_file: &'a Path,
}

impl Runsc {
    /// `scratch` is a folder for the answers.
    pub(crate) async fn probe(
        path: &Path,
        root: PathBuf,
        scratch: &Path,
    ) -> Result<Self, ProbeError> {
        let said = ask(path, "--version", scratch).await?;
        let version: RunscVersion = said.parse().map_err(|_unknown: UnknownVersion| {
            let said = said.chars().take(200).collect();
            ProbeError::Unknown { path: path.to_owned(), said }
        })?;
        if version < OLDEST {
            return Err(ProbeError::TooOld { found: version });
        }
        let features = Features::parse(&ask(path, "flags", scratch).await?);
        if !features.overlay_dir {
            return Err(ProbeError::NoOverlayDir);
        }
        let program = path.to_owned();
        let digest = tokio::task::spawn_blocking(move || sha256_of(&program))
            .await
            .unwrap_or_else(|panicked| Err(io::Error::other(panicked)))
            .map_err(|source| ProbeError::Run { program: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), root, version, features, digest })
    }

    pub(crate) fn facts(&self, cgroups: &'static str, kernel: String) -> RuntimeFacts {
        RuntimeFacts {
            runsc: self.path.clone(),
            version: self.version,
            digest: self.digest.clone(),
            platform: Platform::default().name(),
            features: self.features,
            cgroups,
            kernel,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What a checkpoint that it makes is of.
    pub(crate) fn mark(&self) -> RuntimeMark {
        RuntimeMark {
            version: self.version.to_string(),
            digest: self.digest.clone(),
            features: self.features,
        }
    }

    pub(crate) fn digest(&self) -> &str {
        &self.digest
    }

    /// Another build of it, with the same root.
    pub(crate) fn pinned(&self, path: PathBuf, mark: &RuntimeMark) -> Self {
        let (digest, features) = (mark.digest.clone(), mark.features);
        let version = mark.version.parse().map_or(self.version, RunscVersion);
        Self { path, root: self.root.clone(), version, features, digest }
    }

    /// Where runsc takes readable network settings for a sign that it is in the host's network.
    pub(crate) fn needs_hidden_proc_sys_net(&self, kernel: &str) -> bool {
        self.version <= LAST_THAT_READS_RMEM && kernel_version(kernel) >= Some((6, 11))
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Whether its sentries can be spoken to by their control socket.
    pub(crate) fn is_spoken(&self) -> bool {
        SPOKEN.contains(&self.version)
    }

    /// Connections of a checkpointed sandbox are reset instead of failing the checkpoint.
    pub(crate) fn cuts_connections(&self, network: NetworkMode) -> bool {
        self.features.net_disconnect_ok && network == NetworkMode::Full
    }

    /// Makes it, with nothing that runs in it; returns once its sentry waits.
    pub(crate) fn create_arguments(&self, run: &RunCommand<'_>) -> Vec<String> {
        self.start_arguments("create", None, run)
    }

    /// Creates and starts in one call, and returns once the sandbox's first process runs.
    pub(crate) fn run_arguments(&self, run: &RunCommand<'_>) -> Vec<String> {
        self.start_arguments("run", None, run)
    }

    /// As a run, from what a checkpoint has kept.
    pub(crate) fn restore_arguments(&self, run: &RunCommand<'_>, image: &Path) -> Vec<String> {
        self.start_arguments("restore", Some(image), run)
    }

    /// Returns once all is written; the sandbox ends by it, also when it fails.
    pub(crate) fn checkpoint_arguments(
        &self,
        container: ContainerId,
        log: &Path,
        image: &Path,
    ) -> Vec<String> {
        vec![
            format!("--root={}", self.root.display()),
            format!("--log={}", log.display()),
            "--log-format=text".into(),
            "checkpoint".into(),
            // Compressing takes longer than writing, and so does reading it.
            "-compression=none".into(),
            format!("-image-path={}", image.display()),
            container.to_string(),
        ]
    }

    /// One that asks nothing of it but to be done soon. With what it said.
    pub(crate) async fn order(
        &self,
        command: &str,
        container: ContainerId,
    ) -> io::Result<std::process::Output> {
        let mut runsc = tokio::process::Command::new(&self.path);
        runsc
            .arg(format!("--root={}", self.root.display()))
            .arg(command)
            .arg(container.to_string())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        match tokio::time::timeout(ORDER_TIMEOUT, runsc.output()).await {
            Ok(ended) => ended,
            Err(late) => Err(io::Error::other(late)),
        }
    }

    fn start_arguments(
        &self,
        command: &str,
        image: Option<&Path>,
        run: &RunCommand<'_>,
    ) -> Vec<String> {
        // The zone refuses folders that are not UTF-8 at its start.
        let with = |name: &str, value: &Path| format!("{name}{}", value.display());
        let mut arguments: Vec<String> = vec![
            with("--root=", &self.root),
            with("--log=", run.log),
            "--log-format=text".into(),
            format!("--platform={}", run.platform.name()),
            // The keeper places it in our cgroup, which is 20 to 30 ms faster.
            "--ignore-cgroups".into(),
            with("--overlay2=root:dir=", run.filestore),
            match run.network {
                NetworkMode::Full => "--network=sandbox".into(),
                NetworkMode::None => "--network=none".into(),
            },
        ];
        if self.features.panic_log {
            arguments.push(with("--panic-log=", run.panic_log));
        }
        if self.cuts_connections(run.network) {
            arguments.push("--net-disconnect-ok".into());
        }
        arguments.push(command.into());
        if command != "create" {
            arguments.push("-detach".into());
        }
        arguments.extend(image.map(|image| with("-image-path=", image)));
        arguments.push(with("-pid-file=", run.pid_file));
        arguments.push(with("-bundle=", run.bundle));
        arguments.push(run.container.to_string());
        arguments
    }
}

/// runsc's own records of a container that is gone: with no cgroup of its own making, files in its
/// root are all it leaves.
pub(crate) fn forget(root: &Path, container: ContainerId) -> io::Result<()> {
    let name = container.to_string();
    let entries = match fs::read_dir(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_name().to_string_lossy().contains(&name) {
            let path = entry.path();
            let removed = if entry.file_type()?.is_dir() {
                fs::remove_dir_all(path)
            } else {
                fs::remove_file(path)
            };
            match removed {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

pub(crate) fn kernel_release() -> String {
    nix::sys::utsname::uname()
        .map(|name| name.release().to_string_lossy().into_owned())
        .unwrap_or_default()
}

fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

async fn ask(program: &Path, argument: &'static str, scratch: &Path) -> Result<String, ProbeError> {
    let failed = |source| ProbeError::Run { program: program.to_owned(), source };
    let answer = scratch.join(format!("probe{argument}.txt"));
    let output = fs::File::create(&answer).map_err(failed)?;
    let errors = output.try_clone().map_err(failed)?;
    let mut child = tokio::process::Command::new(program)
        .arg(argument)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|source| {
            if source.kind() == io::ErrorKind::NotFound {
                ProbeError::Missing(program.to_owned())
            } else {
                failed(source)
            }
        })?;
    let group = child.id();
    let Ok(ended) = tokio::time::timeout(PROBE_TIMEOUT, child.wait()).await else {
        end_group(group);
        child.wait().await.map_err(failed)?;
        return Err(ProbeError::Hangs { program: program.to_owned(), argument });
    };
    let status = ended.map_err(failed)?;
    let said = fs::read(&answer).map_err(failed)?;
    fs::remove_file(&answer).map_err(failed)?;
    let said = String::from_utf8_lossy(&said).into_owned();
    if !status.success() {
        let said = said.chars().take(400).collect();
        return Err(ProbeError::Failed { program: program.to_owned(), argument, status, said });
    }
    Ok(said)
}

/// A hung probe of the platform may have left children that spin.
fn end_group(group: Option<u32>) {
    let Some(group) = group.and_then(|pid| i32::try_from(pid).ok()) else { return };
    let group = nix::unistd::Pid::from_raw(group);
    if nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL).is_err() {
        tracing::trace!("the hung probe was gone");
    }
}

pub(crate) fn sha256_of(path: &Path) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut file = fs::File::open(path)?;
    let mut chunk = vec![0; 1 << 20];
    loop {
        let count = io::Read::read(&mut file, &mut chunk)?;
        if count == 0 {
            break;
        }
        hash.update(chunk.get(..count).unwrap_or_default());
    }
    let bytes: [u8; 32] = hash.finalize().into();
    Ok(sandboxo_zone_protocol::ImageDigest::from_bytes(bytes).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        for (said, expected) in [
            ("runsc version 0.0~20240729.0\nspec: 1.2.0\n", Some(20_240_729)),
            ("runsc version release-20240807.0\nspec: 1.1.0-rc.1\n", Some(20_240_807)),
            ("runsc version release-20260323.0-12-gabcdef012345\n", Some(20_260_323)),
            ("runsc version 0.0~20221219\n", Some(20_221_219)),
            ("runsc version VERSION_MISSING\n", None),
            ("crun version 1.8.1\n", None),
            ("", None),
        ] {
            assert_eq!(said.parse().ok(), expected.map(RunscVersion), "{said}");
        }
    }

    #[test]
    fn features_are_read_from_flags() {
        let flags = "  -net-disconnect-ok\n    \tIndicates\n  -overlay2 value\n    \twrap mounts \
                     'self' or 'dir=/abs/dir/path' in which\n  -panic-log string\n    \tfile path\n";
        let all = Features {
            net_disconnect_ok: true,
            overlay_dir: true,
            overlay_size: false,
            panic_log: true,
        };
        assert_eq!(Features::parse(flags), all);
        assert_eq!(Features::parse("  -root string\n    \troot\n"), Features::default());
    }

    #[test]
    fn which_hosts_need_proc_sys_net_hidden() {
        for (version, kernel, expected) in [
            (20_240_729, "6.18.44", true),
            (20_240_729, "6.11.0-rc1", true),
            (20_240_729, "6.10.99-cloud", false),
            (20_240_729, "5.15.0-100-generic", false),
            (20_260_101, "6.18.44", false),
            (20_240_729, "odd", false),
        ] {
            let runsc = runsc(version, Features::default());
            assert_eq!(runsc.needs_hidden_proc_sys_net(kernel), expected, "{version} {kernel}");
        }
    }

    fn runsc(version: u32, features: Features) -> Runsc {
        Runsc {
            path: "/usr/bin/runsc".into(),
            root: "/run/z/r".into(),
            version: RunscVersion(version),
            features,
            digest: String::new(),
        }
    }

    #[test]
    fn arguments() {
        let newest = Features { net_disconnect_ok: true, panic_log: true, ..Features::default() };
        let line = |network, features| {
            let run = RunCommand {
                container: "c0123456789abcde".parse().unwrap(),
                bundle: Path::new("/s/c"),
                platform: Platform::Ptrace,
                network,
                filestore: Path::new("/run/z/m/c"),
                log: Path::new("/s/c/runsc.log"),
                panic_log: Path::new("/s/c/panic.log"),
                pid_file: Path::new("/s/c/pid"),
            };
            let runsc = runsc(20_240_729, features);
            let restore = runsc.restore_arguments(&run, Path::new("/k/image")).join(" ");
            let line = runsc.run_arguments(&run).join(" ");
            let as_run = restore.replace(" -image-path=/k/image", "").replace("restore", "run");
            assert_eq!(as_run, line, "a restore needs the flags of the run");
            let create = runsc.create_arguments(&run).join(" ");
            assert_eq!(create, line.replace("run -detach", "create"), "and a blank");
            line
        };
        let common = "--root=/run/z/r --log=/s/c/runsc.log --log-format=text --platform=ptrace \
                      --ignore-cgroups --overlay2=root:dir=/run/z/m/c";
        let run = "run -detach -pid-file=/s/c/pid -bundle=/s/c c0123456789abcde";
        for (network, features, between) in [
            (NetworkMode::None, newest, "--network=none --panic-log=/s/c/panic.log"),
            (
                NetworkMode::Full,
                newest,
                "--network=sandbox --panic-log=/s/c/panic.log --net-disconnect-ok",
            ),
            (NetworkMode::Full, Features::default(), "--network=sandbox"),
        ] {
            assert_eq!(line(network, features), format!("{common} {between} {run}"));
        }
        let checkpoint = runsc(20_240_729, newest).checkpoint_arguments(
            "c0123456789abcde".parse().unwrap(),
            Path::new("/s/c/checkpoint.log"),
            Path::new("/k/image"),
        );
        assert_eq!(
            checkpoint.join(" "),
            "--root=/run/z/r --log=/s/c/checkpoint.log --log-format=text checkpoint \
             -compression=none -image-path=/k/image c0123456789abcde"
        );
    }
}
