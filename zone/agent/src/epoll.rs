//! The C library's calls for epoll, with one check more.
//!
//! The event loop gives the kernel the address of each registered file's state and takes it back
//! with the event. After a restore gVisor may tell events of files that were taken off long before:
//! a checkpoint also saves what its lists no longer hold but still point to, and marks all of it
//! ready. By then something else may be at that address. So events pass only if their registration
//! is in force. The agent has one epoll instance; descriptors are told apart by number alone.

use std::{collections::BTreeMap, ffi::c_int};

use nix::libc::{self, epoll_event};
use parking_lot::Mutex;

static IN_FORCE: Mutex<Registrations> = Mutex::new(Registrations::new());

struct Registrations {
    by_file: BTreeMap<c_int, u64>,
    /// How many files have one token.
    tokens: BTreeMap<u64, usize>,
}

impl Registrations {
    const fn new() -> Self {
        Self { by_file: BTreeMap::new(), tokens: BTreeMap::new() }
    }

    fn put(&mut self, file: c_int, token: u64) {
        self.remove(file);
        self.by_file.insert(file, token);
        *self.tokens.entry(token).or_default() += 1;
    }

    fn remove(&mut self, file: c_int) {
        let Some(token) = self.by_file.remove(&file) else { return };
        if let Some(count) = self.tokens.get_mut(&token) {
            *count -= 1;
            if *count == 0 {
                self.tokens.remove(&token);
            }
        }
    }

    /// Moves those that are in force to the front, and says how many they are.
    fn sift(&self, events: &mut [epoll_event]) -> usize {
        let mut kept = 0;
        for at in 0..events.len() {
            let Some(&event) = events.get(at) else { break };
            if self.tokens.contains_key(&{ event.u64 })
                && let Some(place) = events.get_mut(kept)
            {
                *place = event;
                kept += 1;
            }
        }
        kept
    }
}

/// In the place of the C library's own.
#[expect(unsafe_code, reason = "a call of the C library")]
// SAFETY: nothing else of the program has this name, and it does what callers of the name expect.
#[unsafe(no_mangle)]
extern "C" fn epoll_ctl(
    instance: c_int,
    operation: c_int,
    file: c_int,
    event: *mut epoll_event,
) -> c_int {
    let ends = operation == libc::EPOLL_CTL_DEL;
    if !ends {
        // Before the kernel knows: another thread may be told of it at once.
        // SAFETY: the caller has put it there for the kernel.
        IN_FORCE.lock().put(file, unsafe { (*event).u64 });
    }
    // SAFETY: the kernel checks all of it, and reads the event that the caller points to.
    let done = unsafe { libc::syscall(libc::SYS_epoll_ctl, instance, operation, file, event) };
    if ends == (done == 0) {
        IN_FORCE.lock().remove(file);
    }
    // Zero or -1.
    i32::try_from(done).unwrap_or(-1)
}

/// In the place of the C library's own.
#[expect(unsafe_code, reason = "a call of the C library")]
// SAFETY: nothing else of the program has this name, and it does what callers of the name expect.
#[unsafe(no_mangle)]
extern "C" fn epoll_wait(
    instance: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: the kernel writes as many events as the caller has room for.
    let count = unsafe { libc::syscall(libc::SYS_epoll_wait, instance, events, most, timeout) };
    let Ok(length) = usize::try_from(count) else { return -1 };
    // SAFETY: the kernel has just written them.
    let events = unsafe { std::slice::from_raw_parts_mut(events, length) };
    i32::try_from(IN_FORCE.lock().sift(events)).unwrap_or(-1)
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::AsRawFd, sync::Arc};

    use tokio::io::Interest;

    use super::*;
    use crate::readiness::{Held, watch};

    fn in_force(file: c_int) -> Option<u64> {
        IN_FORCE.lock().by_file.get(&file).copied()
    }

    /// The event loop calls these, and not the library's own.
    #[tokio::test]
    async fn the_loops_registrations_are_known() {
        let (read, write) = nix::unistd::pipe().unwrap();
        let number = read.as_raw_fd();
        assert_eq!(in_force(number), None);
        let held = Held::File(Arc::new(File::from(read)));
        let watched = watch(held, Interest::READABLE).unwrap();
        assert!(in_force(number).is_some());
        nix::unistd::write(&write, b"x").unwrap();
        assert!(watched.readable().await.is_ok(), "its events pass");
        drop(watched);
        assert_eq!(in_force(number), None);
    }

    #[test]
    fn only_events_in_force_pass_and_in_order() {
        let event = |token| epoll_event { events: 1, u64: token };
        let mut registrations = Registrations::new();
        for (file, token) in [(3, 30), (4, 40), (5, 30), (4, 41)] {
            registrations.put(file, token);
        }
        registrations.remove(3);
        registrations.remove(9);
        let mut events = [40, 41, 7, 30, 41].map(event);
        let kept = registrations.sift(&mut events);
        let tokens: Vec<_> = events[..kept].iter().map(|event| event.u64).collect();
        assert_eq!(tokens, [41, 30, 41]);
        registrations.remove(5);
        assert_eq!(registrations.sift(&mut [30].map(event)), 0);
    }
}
