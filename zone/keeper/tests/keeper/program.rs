//! The keeper's program: this test executable, told by its environment to be one.

use std::{
    fs::Permissions,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;

pub(crate) const ARGS: &str = "SANDBOXO_TEST_KEEPER_ARGS";

/// Not a test: the program that `Keeper::start` executes. Does nothing when tests run.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test has no configuration to read from")]
#[expect(clippy::exit, reason = "the program's end is the keeper's, not the test's")]
fn keeper_program() {
    if let Ok(args) = std::env::var(ARGS) {
        let code = sandboxo_keeper::run(args.split('\n').map(Into::into));
        let number = (0..=10).find(|number| code == ExitCode::from(*number));
        std::process::exit(number.expect("a number that a keeper ends with").into());
    }
}

pub(crate) struct Keeper {
    pub(crate) dir: TempDir,
    pub(crate) pid: i32,
}

impl Keeper {
    pub(crate) fn start(args: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        assert!(launch(dir.path(), args), "{}", log(dir.path()));
        let pid = pid_at(dir.path());
        Self { dir, pid }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("keeper.sock")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn log(&self) -> String {
        log(self.dir.path())
    }

    pub(crate) fn kill(&self) {
        kill(Pid::from_raw(self.pid), Signal::SIGKILL).unwrap();
        until("the keeper is gone", || !alive(self.pid));
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // It may have ended in the test.
        if alive(self.pid) {
            kill(Pid::from_raw(self.pid), Signal::SIGKILL).unwrap();
        }
    }
}

pub(crate) fn launch(dir: &Path, args: &[&str]) -> bool {
    let (socket, log) = (dir.join("keeper.sock"), dir.join("keeper.log"));
    let mut all = vec!["--socket", socket.to_str().unwrap(), "--log", log.to_str().unwrap()];
    all.extend(["--build", "first"]);
    all.extend(args);
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "program::keeper_program", "--test-threads=1", "-q"])
        .env(ARGS, all.join("\n"))
        .output()
        .unwrap()
        .status
        .success()
}

fn log(dir: &Path) -> String {
    std::fs::read_to_string(dir.join("keeper.log")).unwrap_or_default()
}

/// Whoever holds the lock.
fn pid_at(dir: &Path) -> i32 {
    let lock = std::fs::metadata(dir.join("keeper.lock")).unwrap();
    assert_eq!(lock.permissions(), Permissions::from_mode(0o100_600));
    let inode = format!(":{} ", std::os::unix::fs::MetadataExt::ino(&lock));
    let locks = std::fs::read_to_string("/proc/locks").unwrap();
    let line = locks.lines().find(|line| line.contains(&inode)).expect("the lock is held");
    line.split_whitespace().nth(4).unwrap().parse().unwrap()
}

pub(crate) fn alive(pid: i32) -> bool {
    // A zombie that nobody reaps would count as alive.
    Path::new("/proc").join(pid.to_string()).exists()
}

#[expect(clippy::disallowed_methods, reason = "the outside world gives no other sign")]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(10), "not yet: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
    start.elapsed()
}
