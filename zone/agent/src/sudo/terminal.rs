//! A terminal of the command's own between `sudo` and its caller's: only the leader of a session
//! has job control, and the caller's terminal has its session already.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::atomic::{AtomicI32, Ordering},
    thread,
};

use nix::{
    errno::Errno,
    libc,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    pty::Winsize,
    sys::termios::{
        SetArg,
        SpecialCharacterIndices::{VINTR, VQUIT, VSUSP},
        Termios, cfmakeraw, tcgetattr, tcsetattr,
    },
    unistd::{Uid, getpgrp, isatty, tcgetpgrp},
};

use crate::process::pty;

nix::ioctl_read_bad!(window_size, libc::TIOCGWINSZ, Winsize);
nix::ioctl_write_ptr_bad!(set_window_size, libc::TIOCSWINSZ, Winsize);

/// Where the handler of SIGWINCH writes the new size to.
static MASTER: AtomicI32 = AtomicI32::new(-1);

/// The caller's terminal, which is as it was when this is dropped.
pub(crate) struct Terminal {
    outer: OwnedFd,
    before: Termios,
    master: OwnedFd,
}

impl Terminal {
    /// With its end for the command. None when the caller uses no terminal: a command in a pipe
    /// shares its terminal with the others there, and one in the background may not touch it.
    pub(crate) fn open() -> io::Result<Option<(Self, OwnedFd)>> {
        let (input, output) = (io::stdin(), io::stdout());
        let is_used = [input.as_fd(), output.as_fd()].iter().all(|fd| isatty(fd).unwrap_or(false));
        if !is_used || tcgetpgrp(&input) != Ok(getpgrp()) {
            return Ok(None);
        }
        let outer = input.as_fd().try_clone_to_owned()?;
        let before = tcgetattr(&outer)?;
        let size = size_of(outer.as_fd())?;
        let size = pty::Size { columns: size.ws_col, rows: size.ws_row };
        let pty::Pair { master, slave } = pty::open_pair(size, Uid::current().as_raw())?;
        tcsetattr(&slave, SetArg::TCSANOW, &before)?;
        pty::block(&master)?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        // gVisor makes signals of these also when it is told not to. No text has this byte.
        for key in [VINTR, VQUIT, VSUSP] {
            if let Some(character) = raw.control_chars.get_mut(key as usize) {
                *character = 0xff;
            }
        }
        tcsetattr(&outer, SetArg::TCSADRAIN, &raw)?;
        MASTER.store(master.as_raw_fd(), Ordering::Relaxed);
        Ok(Some((Self { outer, before, master }, slave)))
    }

    /// Until `agent` has something to say, and the terminal no more.
    pub(crate) fn relay(&self, agent: BorrowedFd<'_>) -> io::Result<()> {
        let (mut from, mut to) = (File::from(self.outer.try_clone()?), self.keys()?);
        // It ends with this program, in the middle of a read.
        let _keys = thread::Builder::new().spawn(move || io::copy(&mut from, &mut to))?;
        let (mut screen, mut said) = (io::stdout().lock(), self.keys()?);
        let mut piece = [0; 16 * 1024];
        let mut is_open = true;
        loop {
            let watched = PollFlags::POLLIN;
            let mut ends = [PollFd::new(agent, watched), PollFd::new(self.master.as_fd(), watched)];
            let count = if is_open { ends.len() } else { 1 };
            match poll(ends.get_mut(..count).unwrap_or_default(), PollTimeout::NONE) {
                Err(Errno::EINTR) => continue,
                other => other?,
            };
            let [agent_spoke, terminal_spoke] = ends.map(|end| end.any().unwrap_or(false));
            if is_open && terminal_spoke {
                // An error is the end: nobody has the other end open.
                let read = said.read(&mut piece).unwrap_or(0);
                is_open = read > 0;
                screen.write_all(piece.get(..read).unwrap_or_default())?;
                screen.flush()?;
            } else if agent_spoke {
                return Ok(());
            }
        }
    }

    fn keys(&self) -> io::Result<File> {
        self.master.try_clone().map(File::from)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        MASTER.store(-1, Ordering::Relaxed);
        if tcsetattr(&self.outer, SetArg::TCSADRAIN, &self.before).is_err() {
            // It has been hung up.
        }
    }
}

#[expect(unsafe_code, reason = "an ioctl")]
fn size_of(terminal: BorrowedFd<'_>) -> Result<Winsize, Errno> {
    let mut size = Winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the descriptor is borrowed, and the size is ours to write to.
    unsafe { window_size(terminal.as_raw_fd(), &raw mut size) }?;
    Ok(size)
}

/// Makes bare calls only: it is for a signal's handler.
#[expect(unsafe_code, reason = "ioctls on numbers")]
pub(crate) fn follow_size() {
    let mut size = Winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    let master = MASTER.load(Ordering::Relaxed);
    // SAFETY: a number that stands for no terminal is an error, and the size lives here.
    unsafe {
        if window_size(0, &raw mut size).is_ok()
            && set_window_size(master, &raw const size).is_err()
        {
            // The command is over.
        }
    }
}
