//! Starts a program the cheap way: the child borrows the agent's memory until it runs the program,
//! so nothing is copied, and makes only the calls it needs. Each call costs 50 µs in gVisor.

use std::{
    ffi::{CStr, CString, c_char, c_int},
    os::fd::{AsRawFd, BorrowedFd, RawFd},
    ptr,
    sync::atomic::{AtomicI32, Ordering},
};

use nix::{errno::Errno, libc, sched, sched::CloneFlags, unistd::Pid};
use parking_lot::Mutex;

use crate::users::User;

/// Enough for a handful of system calls, with room for an unoptimized build.
const STACK: usize = 32 * 1024;

pub(crate) struct Launch<'a> {
    /// Tried in turn.
    pub(crate) programs: &'a [CString],
    pub(crate) arguments: &'a [CString],
    pub(crate) environment: &'a [CString],
    pub(crate) folder: &'a CStr,
    pub(crate) user: &'a User,
    pub(crate) stdio: [BorrowedFd<'a>; 3],
    /// Whether stdin is to be the terminal that controls the session.
    pub(crate) terminal: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SpawnError {
    #[error("no process could be made: {}", .0.desc())]
    Clone(Errno),
    #[error("the process could not be given its user and files: {}", .0.desc())]
    SetUp(Errno),
    #[error("the process could not enter its folder: {}", .0.desc())]
    Folder(Errno),
    #[error("{}", .0.desc())]
    Run(Errno),
}

/// Owns the stack that each child borrows.
pub(crate) struct Spawner {
    stack: Mutex<Vec<u8>>,
}

/// All that the child reads, made before it exists: it can't allocate.
struct Plan {
    programs: Vec<*const c_char>,
    arguments: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    folder: *const c_char,
    stdio: [RawFd; 3],
    terminal: bool,
    identity: Option<Identity>,
    /// Written by the child, read after it: an error number for the step that failed.
    set_up_failed: AtomicI32,
    folder_failed: AtomicI32,
    run_failed: AtomicI32,
}

struct Identity {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

impl Spawner {
    pub(crate) fn new() -> Self {
        Self { stack: Mutex::new(vec![0; STACK]) }
    }

    #[expect(unsafe_code, reason = "a child on borrowed memory")]
    pub(crate) fn spawn(&self, launch: &Launch<'_>) -> Result<Pid, SpawnError> {
        let plan = Plan::of(launch);
        let mut stack = self.stack.lock();
        let child = Box::new(|| -> isize { plan.carry_out() });
        let flags = CloneFlags::CLONE_VM | CloneFlags::CLONE_VFORK;
        // SAFETY: the parent sleeps until the child has run its program or has exited, so the
        // plan, what it points to and the stack outlive the child's use of them; `carry_out`
        // makes only system calls.
        let cloned = unsafe { sched::clone(child, &mut stack, flags, Some(libc::SIGCHLD)) };
        let pid = cloned.map_err(SpawnError::Clone)?;
        plan.outcome().map(|()| pid)
    }
}

impl Plan {
    fn of(launch: &Launch<'_>) -> Self {
        let user = launch.user;
        // The agent is root and in no other group: nothing to change then.
        let is_agent = user.uid == 0 && user.gid == 0 && user.groups == [0];
        Self {
            programs: pointers(launch.programs),
            arguments: pointers(launch.arguments),
            environment: pointers(launch.environment),
            folder: launch.folder.as_ptr(),
            stdio: launch.stdio.map(|fd| fd.as_raw_fd()),
            terminal: launch.terminal,
            identity: (!is_agent).then(|| Identity {
                uid: user.uid,
                gid: user.gid,
                groups: user.groups.clone(),
            }),
            set_up_failed: AtomicI32::new(0),
            folder_failed: AtomicI32::new(0),
            run_failed: AtomicI32::new(0),
        }
    }

    fn outcome(&self) -> Result<(), SpawnError> {
        let failed = |step: &AtomicI32| match step.load(Ordering::Relaxed) {
            0 => Ok(()),
            errno => Err(Errno::from_raw(errno)),
        };
        failed(&self.set_up_failed).map_err(SpawnError::SetUp)?;
        failed(&self.folder_failed).map_err(SpawnError::Folder)?;
        failed(&self.run_failed).map_err(SpawnError::Run)
    }

    /// Runs in the child.
    #[expect(unsafe_code, reason = "a child on borrowed memory")]
    fn carry_out(&self) -> isize {
        if !self.set_up() {
            self.set_up_failed.store(Errno::last_raw(), Ordering::Relaxed);
            return 127;
        }
        // SAFETY: the text is borrowed by `Launch`.
        if unsafe { libc::chdir(self.folder) } < 0 {
            self.folder_failed.store(Errno::last_raw(), Ordering::Relaxed);
            return 127;
        }
        let mut worst = libc::ENOENT;
        for program in &self.programs {
            if program.is_null() {
                break;
            }
            // SAFETY: all three point to what `Launch` borrows, ended by null.
            unsafe {
                libc::execve(*program, self.arguments.as_ptr(), self.environment.as_ptr());
            }
            let errno = Errno::last_raw();
            // A file that is there but can't be run says more than one that isn't there.
            if errno != libc::ENOENT && errno != libc::ENOTDIR {
                worst = errno;
                if errno != libc::EACCES {
                    break;
                }
            }
        }
        self.run_failed.store(worst, Ordering::Relaxed);
        127
    }

    /// The identity is set by bare calls: the C library's would tell all threads of the agent.
    #[expect(unsafe_code, reason = "a child on borrowed memory")]
    fn set_up(&self) -> bool {
        let ok = |result: c_int| result >= 0;
        // SAFETY: plain system calls on numbers and on pointers that `Launch` keeps alive.
        unsafe {
            // The agent blocks one signal; what it starts blocks none.
            let none = 0_u64;
            let mask = &raw const none;
            let (old, size) = (ptr::null_mut::<u64>(), size_of::<u64>());
            if libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, mask, old, size) < 0 {
                return false;
            }
            // Its own session, so that what it sends to its group reaches nobody else.
            if !ok(libc::setsid()) {
                return false;
            }
            for (fd, target) in self.stdio.into_iter().zip(0..) {
                if !ok(libc::dup2(fd, target)) {
                    return false;
                }
            }
            if self.terminal && !ok(libc::ioctl(0, libc::TIOCSCTTY, 0)) {
                return false;
            }
            let Some(Identity { uid, gid, groups }) = &self.identity else { return true };
            libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) >= 0
                && libc::syscall(libc::SYS_setresgid, *gid, *gid, *gid) >= 0
                && libc::syscall(libc::SYS_setresuid, *uid, *uid, *uid) >= 0
        }
    }
}

fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
}
