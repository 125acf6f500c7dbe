//! The terminal this program was started on: its size, and raw mode while a PTY is attached.

use std::{
    io::{self, IsTerminal},
    os::fd::AsFd,
};

use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};

/// Gives the terminal back as it was when it is dropped.
pub(crate) struct Raw {
    before: Termios,
}

impl Raw {
    /// `None` where standard input is no terminal.
    pub(crate) fn enter() -> io::Result<Option<Self>> {
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            return Ok(None);
        }
        let before = tcgetattr(stdin.as_fd())?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        tcsetattr(stdin.as_fd(), SetArg::TCSANOW, &raw)?;
        Ok(Some(Self { before }))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if tcsetattr(io::stdin().as_fd(), SetArg::TCSADRAIN, &self.before).is_err() {
            // The terminal is gone, so there is nobody to give it back to.
        }
    }
}

/// Columns and rows; what most programs assume where there is no terminal.
pub(crate) fn size() -> (u32, u32) {
    match console::Term::stdout().size_checked() {
        Some((rows, columns)) if rows > 0 && columns > 0 => (columns.into(), rows.into()),
        _ => (80, 24),
    }
}
