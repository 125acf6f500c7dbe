//! Becoming another program: what is held stays open across the `execve`, and a sealed piece of
//! memory says what it is.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    ffi::{CString, NulError, OsString},
    fs::File,
    io::{self, Read, Seek, Write},
    os::{
        fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
        unix::ffi::OsStringExt,
    },
    path::Path,
    rc::Rc,
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, FdFlag, SealFlag, fcntl},
    sys::memfd::{MFdFlags, memfd_create},
    unistd::execv,
};

use crate::{
    args::Args,
    protocol::{Failure, Step},
    state::{State, StateError},
};

/// How a program that is asked ends if it reads the format. Others end with other numbers.
pub(crate) const READS: u8 = 10;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ResumeError {
    #[error("read what the program before has handed over")]
    Read(#[source] io::Error),
    #[error("understand what the program before has handed over")]
    State(#[from] StateError),
    #[error("take over descriptor {number}")]
    Descriptor { number: RawFd, source: Errno },
    #[error("descriptor {0} is handed over twice")]
    Twice(RawFd),
    #[error("set up signals and orphans")]
    Setup(#[source] Errno),
}

/// Returns only if it fails, and then nothing has changed.
pub(crate) fn become_program(program: &Path, args: &Args, state: &State) -> Failure {
    let Err((step, errno)) = try_become(program, args, state);
    Failure::Start { program: program.to_owned(), step, target: String::new(), errno: errno as i32 }
}

fn try_become(program: &Path, args: &Args, state: &State) -> Result<Infallible, (Step, Errno)> {
    let hand_over = |errno| (Step::HandOver, errno);
    let text = state.encode().map_err(|_never| hand_over(Errno::EINVAL))?;
    let memory = sealed(&text)
        .map_err(|error| hand_over(error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)))?;
    let args = Args { resume: Some(memory.as_raw_fd()), ..args.clone() };
    let line = [OsString::from(program), "keeper".into()].into_iter().chain(args.line());
    let line: Result<Vec<_>, NulError> = line.map(|arg| CString::new(arg.into_vec())).collect();
    let line = line.map_err(|_zero| hand_over(Errno::EINVAL))?;
    let Some(path) = line.first() else { return Err(hand_over(Errno::EINVAL)) };
    let mut kept = state.descriptors();
    kept.insert(memory.as_raw_fd());
    let became = kept
        .iter()
        .try_for_each(|number| survive(*number, true).map_err(hand_over))
        .and_then(|()| execv(path, &line).map_err(|errno| (Step::Exec, errno)));
    // Other programs that are started must not get them.
    for number in kept {
        survive(number, false).map_err(hand_over)?;
    }
    became
}

fn sealed(text: &[u8]) -> io::Result<File> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let mut memory = File::from(memfd_create("keeper", flags)?);
    memory.write_all(text)?;
    // The position goes with the descriptor.
    memory.rewind()?;
    let seals = SealFlag::F_SEAL_WRITE
        | SealFlag::F_SEAL_SHRINK
        | SealFlag::F_SEAL_GROW
        | SealFlag::F_SEAL_SEAL;
    fcntl(&memory, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(memory)
}

#[expect(unsafe_code, reason = "a state names descriptors by number")]
fn survive(number: RawFd, survives: bool) -> Result<(), Errno> {
    let flags = if survives { FdFlag::empty() } else { FdFlag::FD_CLOEXEC };
    // SAFETY: only its flag is set, and the kernel refuses what is not open.
    let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
    fcntl(descriptor, FcntlArg::F_SETFD(flags)).map(drop)
}

pub(crate) fn read(memory: RawFd) -> Result<State, ResumeError> {
    let failed = |source| ResumeError::Descriptor { number: memory, source };
    let mut text = Vec::new();
    let read = File::from(own(memory).map_err(failed)?).read_to_end(&mut text);
    read.map_err(ResumeError::Read)?;
    Ok(State::decode(&text)?)
}

/// What came through the `execve`, by number.
pub(crate) struct Inherited(BTreeMap<RawFd, Rc<OwnedFd>>);

impl Inherited {
    pub(crate) fn take(numbers: &BTreeSet<RawFd>) -> Result<Self, ResumeError> {
        let owned = numbers.iter().map(|&number| {
            let descriptor =
                own(number).map_err(|source| ResumeError::Descriptor { number, source })?;
            Ok((number, Rc::new(descriptor)))
        });
        owned.collect::<Result<_, _>>().map(Self)
    }

    /// Others may have it too.
    pub(crate) fn shared(&self, number: RawFd) -> Result<Rc<OwnedFd>, ResumeError> {
        self.0.get(&number).cloned().ok_or(ResumeError::Twice(number))
    }

    pub(crate) fn alone(&mut self, number: RawFd) -> Result<OwnedFd, ResumeError> {
        let descriptor = self.0.remove(&number).ok_or(ResumeError::Twice(number))?;
        Rc::try_unwrap(descriptor).map_err(|_shared| ResumeError::Twice(number))
    }
}

/// And closes it for programs that are started.
#[expect(unsafe_code, reason = "a state names descriptors by number")]
fn own(number: RawFd) -> Result<OwnedFd, Errno> {
    // Standard input, output and error are everybody's.
    if number < 3 {
        return Err(Errno::EBADF);
    }
    survive(number, false)?;
    // SAFETY: it is open, and the program before, which was alone with it, left it to this one.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_memory_can_be_read_and_not_written() {
        let mut memory = sealed(b"text").unwrap();
        let mut text = String::new();
        memory.read_to_string(&mut text).unwrap();
        assert_eq!(text, "text");
        memory.rewind().unwrap();
        assert_eq!(memory.write(b"other").unwrap_err().raw_os_error(), Some(1));
        assert_eq!(memory.set_len(0).unwrap_err().raw_os_error(), Some(1));
    }

    #[test]
    fn a_descriptor_that_is_not_there_is_named() {
        for number in [1, 1_000_000] {
            let error = Inherited::take(&BTreeSet::from([number])).err().unwrap();
            assert!(matches!(error, ResumeError::Descriptor { .. }), "{error:?}");
        }
    }
}
