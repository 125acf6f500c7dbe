//! A zone of a test's own, and what it has on the host.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use base64::Engine;
use sandboxo_tasks::Tasks;
use sandboxo_zone::{Limits, LocalZone, StartError, ZoneConfig, network::Network, tear_down};
use sandboxo_zone_protocol::{
    AGENT_PORT, Clock, Ended, ImageDigest, NetworkMode, NetworkPolicy, Platform, Random, Region,
    Resources, SandboxId, SandboxSpec, SystemClock, SystemRandom, Zone, ZoneCode, ZoneEvent,
    ZoneReport,
};
use tar::EntryType::{Directory, Regular, Symlink};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const ARGS: &str = "SANDBOXO_TEST_KEEPER";

/// Not a test: the keeper that the zones of these tests start. Does nothing when tests run.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test has no configuration to read from")]
#[expect(clippy::exit, reason = "the program's end is not the test's")]
fn program() {
    let Ok(args) = std::env::var(ARGS) else { return };
    let mut args = args.split(' ');
    assert_eq!(args.next(), Some("keeper"));
    let code = sandboxo_keeper::run(args.map(Into::into));
    std::process::exit(i32::from(code != std::process::ExitCode::SUCCESS));
}

pub(crate) const SMALL: Resources =
    Resources { vcpus: 1, memory_mib: 128, disk_mib: 64, pids: 200 };

pub(crate) struct World {
    pub(crate) config: ZoneConfig,
    tasks: Tasks,
    zone: Option<Arc<LocalZone>>,
    dir: TempDir,
}

#[expect(clippy::disallowed_methods, reason = "a test has no configuration to read from")]
fn agent() -> PathBuf {
    let built = "../target/x86_64-unknown-linux-gnu/agent/sandboxo-agent";
    std::env::var("SANDBOXO_AGENT")
        .map_or_else(|_unset| Path::new(env!("CARGO_MANIFEST_DIR")).join(built), PathBuf::from)
}

impl World {
    pub(crate) fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("z").tempdir().unwrap();
        let script = format!(
            "#!/bin/sh\n{ARGS}=\"$*\" exec {} --exact local::world::program -q\n",
            std::env::current_exe().unwrap().display()
        );
        let keeper = dir.path().join("keeper");
        write_script(&keeper, &script);
        let mut instance = [0; 4];
        SystemRandom.fill(&mut instance);
        let config = ZoneConfig {
            name: "local1".parse().unwrap(),
            region: region(),
            state: dir.path().join("state"),
            run: dir.path().join("run"),
            instance: format!("{:06x}", u32::from_be_bytes(instance) >> 8),
            runsc: which("runsc"),
            agent: agent(),
            keeper,
            build: "test".into(),
            warm: 0,
            blanks: 0,
            limits: Limits { disk_reserve_mib: 64, ..Limits::default() },
            registries: Vec::new(),
            pull_max_mib: 1024,
            image_grace: Duration::from_mins(10),
            resolvers: Vec::new(),
            proxy_networks: Vec::new(),
            freeze_after: None,
            start_timeout: Duration::from_secs(20),
        };
        Self { config, tasks: Tasks::new(), zone: None, dir }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) async fn try_start(&mut self) -> Result<Arc<LocalZone>, StartError> {
        self.start_by(Arc::new(SystemClock)).await
    }

    pub(crate) async fn start_by(
        &mut self,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<LocalZone>, StartError> {
        self.tasks = Tasks::new();
        let random = Arc::new(SystemRandom);
        let zone = LocalZone::start(self.config.clone(), clock, random, self.tasks.clone()).await?;
        self.zone = Some(zone.clone());
        Ok(zone)
    }

    pub(crate) async fn start(&mut self) -> Arc<LocalZone> {
        match self.try_start().await {
            Ok(zone) => zone,
            Err(error) => panic!("the zone starts: {}", chain(&error)),
        }
    }

    /// The zone's process ends; what it started goes on.
    pub(crate) async fn stop(&mut self) {
        self.zone = None;
        assert!(self.tasks.shut_down(Duration::from_secs(10)).await, "some task is deaf");
    }

    /// Stops, removes all, and makes sure of it.
    pub(crate) async fn end(mut self) {
        self.stop().await;
        tear_down(&self.config, SystemClock.now()).await.unwrap();
        assert_eq!(self.on_host().await, BTreeMap::new(), "a torn down zone leaves nothing");
        let left: Vec<_> = fs::read_dir(self.path("state/slots")).into_iter().flatten().collect();
        assert!(left.is_empty(), "{left:?}");
    }

    /// What a killed sandbox had goes in the background, within moments.
    pub(crate) async fn settles_to(&self, expected: &BTreeMap<&'static str, Vec<String>>) {
        for _ in 0..250 {
            if self.on_host().await == *expected {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(self.on_host().await, *expected);
    }

    /// How many links wait is the network's own affair.
    pub(crate) async fn settles_but_for_network(
        &self,
        expected: &BTreeMap<&'static str, Vec<String>>,
    ) {
        let now = async || {
            let mut now = self.on_host().await;
            now.insert("network", expected["network"].clone());
            now
        };
        for _ in 0..250 {
            if now().await == *expected {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(now().await, *expected);
    }

    /// The zone is gone with its runtime.
    pub(crate) fn forget(&mut self) {
        self.zone = None;
        self.tasks = Tasks::new();
    }

    /// The processes in one of this zone's groups: a container's, or the keeper's.
    pub(crate) fn processes_of(&self, group: &str) -> Vec<i32> {
        let base = Path::new("/sys/fs/cgroup");
        let below = Path::new("sandboxo").join(&self.config.instance).join(group);
        ["pids", ""]
            .iter()
            .find_map(|it| fs::read_to_string(base.join(it).join(&below).join("cgroup.procs")).ok())
            .unwrap_or_default()
            .lines()
            .map(|pid| pid.parse().unwrap())
            .collect()
    }

    /// The groups of all its containers.
    pub(crate) fn containers(&self) -> Vec<String> {
        let names = fs::read_dir(self.path("state/slots")).unwrap();
        names.map(|name| name.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Everything that this zone has on the host, by kind.
    pub(crate) async fn on_host(&self) -> BTreeMap<&'static str, Vec<String>> {
        let place = self.dir.path().to_string_lossy().into_owned();
        let mut found: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        for point in mounts.lines().filter_map(|line| line.split(' ').nth(4)) {
            if point.starts_with(&place) {
                found.entry("mounts").or_default().push(point.to_owned());
            }
        }
        for block in fs::read_dir("/sys/block").unwrap() {
            let file = block.unwrap().path().join("loop/backing_file");
            if let Ok(backing) = fs::read_to_string(file)
                && backing.starts_with(&place)
            {
                found.entry("loop devices").or_default().push(backing.trim().to_owned());
            }
        }
        for hierarchy in ["memory", "cpu", "cpuacct", "pids", "freezer", ""] {
            let base = Path::new("/sys/fs/cgroup").join(hierarchy).join("sandboxo");
            let groups = fs::read_dir(base.join(&self.config.instance)).into_iter().flatten();
            for group in groups.map(Result::unwrap).filter(|it| it.path().is_dir()) {
                found.entry("cgroups").or_default().push(group.path().display().to_string());
            }
        }
        let network = Network::inventory(&self.config.instance).await.unwrap();
        if !network.is_empty() {
            found.insert("network", network);
        }
        for process in fs::read_dir("/proc").unwrap().map(Result::unwrap) {
            let Ok(line) = fs::read_to_string(process.path().join("cmdline")) else { continue };
            if line.contains(&place) && line.contains("runsc") {
                found.entry("processes").or_default().push(line.replace('\0', " "));
            }
        }
        for names in found.values_mut() {
            names.sort();
        }
        found
    }
}

impl Drop for World {
    /// A test that failed must not leave its sandboxes to the next.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let config = self.config.clone();
            let cleaned = std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.unwrap().block_on(tear_down(&config, SystemClock.now()))
            });
            if !matches!(cleaned.join(), Ok(Ok(()))) {
                tracing::error!("a failed test left something behind");
            }
        }
    }
}

pub(crate) fn write_script(path: &Path, script: &str) {
    fs::write(path, script).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

pub(crate) fn which(program: &str) -> PathBuf {
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
        .iter()
        .map(|folder| Path::new(folder).join(program))
        .find(|path| path.is_file())
        .unwrap_or_else(|| panic!("{program} is not installed"))
}

pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

fn region() -> Region {
    "loc".parse().unwrap()
}

/// A few MiB with every program of busybox, and the users that the agent looks for.
pub(crate) async fn import_busybox(zone: &LocalZone) -> ImageDigest {
    import_with(zone, &[]).await
}

/// And these programs in `/bin`.
pub(crate) async fn import_with(zone: &LocalZone, programs: &[(&str, &Path)]) -> ImageDigest {
    let mut tar = tar::Builder::new(Vec::new());
    let mut add = |path: &str, kind, mode, link: &str, content: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(content.len() as u64);
        if link.is_empty() {
            tar.append_data(&mut header, path, content).unwrap();
        } else {
            tar.append_link(&mut header, path, link).unwrap();
        }
    };
    for folder in ["bin/", "etc/", "root/", "home/", "home/user/", "usr/", "var/"] {
        add(folder, Directory, 0o755, "", b"");
    }
    add("bin/busybox", Regular, 0o755, "", &fs::read(which("busybox")).unwrap());
    for name in ["sh", "bash", "cat", "dd", "rm", "sleep", "ls", "df", "head", "env", "true"] {
        add(&format!("bin/{name}"), Symlink, 0o777, "busybox", b"");
    }
    for (name, program) in programs {
        add(&format!("bin/{name}"), Regular, 0o755, "", &fs::read(program).unwrap());
    }
    add("usr/bin", Symlink, 0o777, "../bin", b"");
    let users = b"root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n";
    add("etc/passwd", Regular, 0o644, "", users);
    add("etc/group", Regular, 0o644, "", b"root:x:0:\nuser:x:1000:\n");
    let tar = tar.into_inner().unwrap();
    zone.import_image(Box::new(std::io::Cursor::new(tar))).await.unwrap().image.digest
}

pub(crate) fn spec(image: ImageDigest) -> SandboxSpec {
    let id = SandboxId::random(region(), ZoneCode::random(&SystemRandom), &SystemRandom);
    SandboxSpec {
        id,
        image,
        resources: SMALL,
        platform: Platform::Ptrace,
        env: BTreeMap::new(),
        hostname: id.label(),
        user: "root".into(),
        workdir: None,
        network: NetworkPolicy { mode: NetworkMode::None, ..NetworkPolicy::OPEN },
        agent_token: None,
        deadline: SystemClock.now() + Duration::from_mins(10),
        on_deadline: sandboxo_zone_protocol::OnDeadline::Kill,
        origin: sandboxo_zone_protocol::Origin::Image,
        volumes: Vec::new(),
    }
}

/// The agent's status line for a request without a body.
pub(crate) async fn health(zone: &LocalZone, id: SandboxId) -> String {
    let mut stream = zone.connect(id, AGENT_PORT).await.unwrap();
    let request = b"GET /health HTTP/1.1\r\nhost: sandbox\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.lines().next().unwrap_or_default().to_owned()
}

/// What a shell command said and how it ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) output: String,
    /// `None`: a signal ended it, or it was not heard of again.
    pub(crate) code: Option<i64>,
}

/// Runs a shell command as root by the agent's process service.
pub(crate) async fn run(zone: &LocalZone, id: SandboxId, command: &str) -> Ran {
    run_as(zone, id, "root", command).await
}

/// What a command said that went well.
pub(crate) async fn said(zone: &LocalZone, id: SandboxId, command: &str) -> String {
    let Ran { output, code } = run(zone, id, command).await;
    assert_eq!(code, Some(0), "{command}: {output}");
    output
}

/// Another sandbox, which must not notice.
pub(crate) async fn neighbor(zone: &LocalZone, like: &SandboxSpec) -> SandboxId {
    let spec = spec(like.image);
    zone.create(spec.clone()).await.unwrap();
    spec.id
}

pub(crate) async fn is_well(zone: &LocalZone, id: SandboxId) {
    let answer = tokio::time::timeout(Duration::from_secs(20), said(zone, id, "echo well")).await;
    assert_eq!(answer.expect("the neighbor answers in time"), "well\n");
}

pub(crate) async fn run_as(zone: &LocalZone, id: SandboxId, user: &str, command: &str) -> Ran {
    let user = base64::engine::general_purpose::STANDARD.encode(format!("{user}:"));
    let start = serde_json::json!({
        "process": {"cmd": "/bin/sh", "args": ["-c", command]},
        "stdin": false,
    });
    let start = start.to_string();
    let length = u32::try_from(start.len()).unwrap();
    let head = format!(
        "POST /process.Process/Start HTTP/1.1\r\nhost: sandbox\r\nconnection: close\r\n\
         content-type: application/connect+json\r\nconnect-protocol-version: 1\r\n\
         authorization: Basic {user}\r\ncontent-length: {}\r\n\r\n",
        length + 5
    );
    let mut stream = zone.connect(id, AGENT_PORT).await.unwrap();
    let request = [head.as_bytes(), &[0], &length.to_be_bytes(), start.as_bytes()].concat();
    stream.write_all(&request).await.unwrap();
    let mut answer = Vec::new();
    let outcome = stream.read_to_end(&mut answer).await;
    let mut ran = Ran { output: String::new(), code: None };
    for message in envelopes(&unchunked(&answer)) {
        let event = &message["event"];
        for name in ["stdout", "stderr"] {
            if let Some(data) = event["data"][name].as_str() {
                let bytes = base64::engine::general_purpose::STANDARD.decode(data).unwrap();
                ran.output.push_str(&String::from_utf8_lossy(&bytes));
            }
        }
        let end = &event["end"];
        if end["exited"] == true {
            // Zero is left out.
            ran.code = Some(end["exitCode"].as_i64().unwrap_or(0));
        } else if !end.is_null() {
            ran.output.push_str(end["status"].as_str().unwrap_or_default());
        }
        if !message["error"].is_null() {
            ran.output.push_str(&message["error"].to_string());
        }
    }
    if let Err(error) = outcome {
        ran.output.push_str(&error.to_string());
    }
    ran
}

fn unchunked(answer: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(answer);
    // A sandbox may end before its agent has answered.
    let Some(head) = text.find("\r\n\r\n") else { return Vec::new() };
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    let mut rest = &answer[head + 4..];
    let mut body = Vec::new();
    while let Some(end) = rest.windows(2).position(|it| it == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        let Some(chunk) = rest.get(end + 2..end + 2 + size).filter(|_| size > 0) else { break };
        body.extend_from_slice(chunk);
        rest = &rest[end + 2 + size + 2..];
    }
    body
}

fn envelopes(mut body: &[u8]) -> Vec<serde_json::Value> {
    let mut messages = Vec::new();
    while let Some((head, rest)) = body.split_at_checked(5) {
        let length = u32::from_be_bytes(head[1..].try_into().unwrap()) as usize;
        let Some(message) = rest.get(..length) else { break };
        messages.push(serde_json::from_slice(message).unwrap());
        body = &rest[length..];
    }
    messages
}

/// Polls a level that nothing tells about, and says what was missing.
pub(crate) async fn until(what: &str, mut reached: impl AsyncFnMut() -> bool) {
    for _ in 0..1500 {
        if reached().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("never: {what}");
}

pub(crate) fn soon(seconds: u64) -> sandboxo_zone_protocol::Timestamp {
    SystemClock.now() + Duration::from_secs(seconds)
}

/// The next end that is told.
pub(crate) async fn next_end(events: &mut tokio::sync::mpsc::Receiver<ZoneEvent>) -> Ended {
    let end = async {
        loop {
            match events.recv().await.expect("the zone still tells") {
                ZoneEvent::SandboxEnded(ended) => return ended,
                ZoneEvent::Ping(_) | ZoneEvent::Hello(_) | ZoneEvent::SandboxPaused(_) => {}
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), end).await.expect("a sandbox ends")
}

pub(crate) async fn report(zone: &LocalZone) -> ZoneReport {
    match zone.subscribe().await.unwrap().recv().await {
        Some(ZoneEvent::Hello(report)) => report,
        other => panic!("{other:?}"),
    }
}
