//! The sandbox around the agent: what it sets up for itself and its children at start, and what a
//! claim changes.

use std::{ffi::CString, fs, io, net::IpAddr, path::Path, time::Duration};

use nix::{
    libc,
    sys::{
        prctl::set_child_subreaper,
        resource::{Resource, getrlimit, setrlimit},
        signal::{
            SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, kill, sigaction,
            sigprocmask,
        },
        stat::{Mode, umask},
    },
    unistd::{Pid, chdir, execv, sethostname},
};
use sandboxo_channel::Claim;
use tokio::time::{Instant, sleep};

/// Open files of a process, unless it asks for more: enough for servers, and few enough for
/// programs that walk over all numbers.
const OPEN_FILES: u64 = 65_536;

/// The agent's own stack. What a process could grow to counts as used in gVisor, up to 2 MiB.
const OWN_STACK: u64 = 160 * 1024;
/// The stack of children, as everywhere.
const STACK: u64 = 8 * 1024 * 1024;

/// Gives free memory back, also from between what is in use.
#[expect(unsafe_code, reason = "a call of the C library")]
pub(crate) fn give_back_memory() {
    // SAFETY: it touches only what is free.
    unsafe { libc::malloc_trim(0) };
}

/// Runs the program anew with a small stack: the size is fixed when a program starts. Returns if
/// it is small already, or if that can't be.
pub(crate) fn shrink_stack() -> io::Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_STACK)?;
    if soft <= OWN_STACK {
        return Ok(());
    }
    setrlimit(Resource::RLIMIT_STACK, OWN_STACK, hard)?;
    let arguments: Vec<_> = std::env::args_os().collect();
    let texts: Result<Vec<_>, _> =
        arguments.into_iter().map(|text| CString::new(text.into_encoded_bytes())).collect();
    // By its own name, which is what `ps` shows.
    let program =
        CString::new(fs::read_link("/proc/self/exe")?.into_os_string().into_encoded_bytes())?;
    let Err(error) = execv(&program, &texts?);
    Err(error.into())
}

const LOOK_AGAIN: Duration = Duration::from_millis(5);

const LAST_SIGNAL: libc::c_int = 64;

/// What would end a process by default. Linux keeps these from the first one; gVisor does not.
const FROM_INSIDE: [Signal; 16] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGTERM,
    Signal::SIGSTKFLT,
    Signal::SIGTSTP,
    Signal::SIGXCPU,
    Signal::SIGXFSZ,
    Signal::SIGVTALRM,
    Signal::SIGPROF,
    Signal::SIGIO,
    Signal::SIGPWR,
    Signal::SIGSYS,
];

extern "C" fn nothing(_signal: libc::c_int) {}

/// By the bare call: the C library keeps two signals for itself, and children inherit those too.
#[expect(unsafe_code, reason = "a call the C library does not pass on")]
fn set_default(signal: libc::c_int) {
    // Handler, flags, restorer and mask, all zero: the default.
    let action = [0_u64; 4];
    let size = size_of::<u64>();
    // SAFETY: the kernel reads the four words and writes nothing.
    unsafe {
        let none: *mut libc::c_void = std::ptr::null_mut();
        libc::syscall(libc::SYS_rt_sigaction, signal, action.as_ptr(), none, size);
    }
}

/// Children inherit all of this but the mask, so that little is left to do for each of them.
#[expect(unsafe_code, reason = "signal handlers")]
pub(crate) fn settle_in() -> io::Result<()> {
    // In every thread that will be: else one of them would take it from the reaper.
    let mut death = SigSet::empty();
    death.add(Signal::SIGCHLD);
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&death), None)?;
    let mut harmless = vec![Signal::SIGPIPE];
    if std::process::id() == 1 {
        harmless.extend(FROM_INSIDE);
    } else {
        // Whoever started it may have had signals ignored; a sandbox's first process has none.
        (1..=LAST_SIGNAL).for_each(set_default);
        // Orphans are left to it there too.
        set_child_subreaper(true)?;
    }
    // Handled and not ignored: a program that is run starts with the default again.
    let handler = SigHandler::Handler(nothing);
    let action = SigAction::new(handler, SaFlags::SA_RESTART, SigSet::empty());
    for signal in harmless {
        // SAFETY: the handler does nothing, so it can't do harm.
        unsafe { sigaction(signal, &action) }?;
    }
    umask(Mode::from_bits_truncate(0o022));
    chdir("/")?;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let (_own, most) = getrlimit(Resource::RLIMIT_STACK)?;
    setrlimit(Resource::RLIMIT_STACK, most.min(STACK), most)?;
    if soft != hard.min(OPEN_FILES) {
        setrlimit(Resource::RLIMIT_NOFILE, hard.min(OPEN_FILES), hard)?;
    }
    Ok(())
}

/// Large pieces go back to the kernel once they are free, and one heap serves all threads.
#[expect(unsafe_code, reason = "settings of the C library")]
pub(crate) fn spare_memory() {
    // SAFETY: plain numbers, before there is a second thread.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 256 * 1024);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 64 * 1024);
        libc::mallopt(libc::M_TOP_PAD, 16 * 1024);
    }
}

/// Everything but this process, which is the first one here.
pub(crate) fn end_all(signal: Signal) {
    if kill(Pid::from_raw(-1), signal).is_err() {
        // There is nothing else.
    }
}

/// Ended ones are reaped meanwhile.
pub(crate) async fn others_are_gone(patience: Duration) -> io::Result<bool> {
    let give_up = Instant::now() + patience;
    loop {
        let processes = fs::read_dir("/proc")?.filter(|entry| {
            entry.as_ref().is_ok_and(|entry| {
                entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit())
            })
        });
        if processes.count() <= 1 {
            return Ok(true);
        }
        if Instant::now() >= give_up {
            return Ok(false);
        }
        sleep(LOOK_AGAIN).await;
    }
}

/// Files that a machine that is switched off does not keep.
pub(crate) fn forget_memory() {
    for entry in fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let path = entry.path();
        let removed = if is_folder { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        if removed.is_err() {
            // Something is mounted on it, or it went by itself.
        }
    }
}

/// A sandbox may run under a name it can't change.
pub(crate) fn take_name(claim: &Claim) {
    if !claim.hostname.is_empty() && sethostname(&claim.hostname).is_err() {
        // It is not the kernel's to change here.
    }
}

/// Of each user but root, threads included; 0 is no limit. Children inherit it.
pub(crate) fn limit_processes(most: u32) {
    let most = u64::from(most);
    if most > 0 && setrlimit(Resource::RLIMIT_NPROC, most, most).is_err() {
        // The limit it was started with is lower, and holds.
    }
}

/// What programs read to find themselves and others.
pub(crate) fn write_names(etc: &Path, claim: &Claim) -> io::Result<()> {
    // An image may be without.
    fs::create_dir_all(etc)?;
    if !claim.hostname.is_empty() {
        replace(&etc.join("hostname"), &format!("{}\n", claim.hostname))?;
        replace(&etc.join("hosts"), &hosts(&claim.hostname))?;
    }
    if !claim.nameservers.is_empty() {
        replace(&etc.join("resolv.conf"), &resolv_conf(&claim.nameservers))?;
    }
    Ok(())
}

fn hosts(hostname: &str) -> String {
    format!(
        "127.0.0.1\tlocalhost\n\
         127.0.1.1\t{hostname}\n\
         ::1\tlocalhost ip6-localhost ip6-loopback\n"
    )
}

fn resolv_conf(nameservers: &[IpAddr]) -> String {
    let lines: Vec<_> = nameservers.iter().map(|address| format!("nameserver {address}")).collect();
    lines.join("\n") + "\n"
}

/// Not through a link: it would lead to a file of a service that doesn't run here.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    if fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_symlink()) {
        fs::remove_file(path)?;
    }
    fs::write(path, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::tests::claim;

    #[test]
    fn a_claim_names_the_sandbox_and_its_resolvers() {
        let etc = tempfile::tempdir().unwrap();
        let path = |name: &str| etc.path().join(name);
        std::os::unix::fs::symlink("/run/nowhere/resolv.conf", path("resolv.conf")).unwrap();
        let nameservers = vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()];
        let claim = Claim { nameservers, ..claim() };
        write_names(etc.path(), &claim).unwrap();
        let read = |name: &str| fs::read_to_string(path(name)).unwrap();
        assert_eq!(read("hostname"), "box\n");
        assert_eq!(read("resolv.conf"), "nameserver 10.0.0.1\nnameserver fd00::1\n");
        assert!(read("hosts").contains("127.0.0.1\tlocalhost\n127.0.1.1\tbox\n"));
    }

    #[test]
    fn without_resolvers_the_template_keeps_its_own() {
        let etc = tempfile::tempdir().unwrap();
        fs::write(etc.path().join("resolv.conf"), "mine").unwrap();
        write_names(etc.path(), &claim()).unwrap();
        assert_eq!(fs::read_to_string(etc.path().join("resolv.conf")).unwrap(), "mine");
    }
}
