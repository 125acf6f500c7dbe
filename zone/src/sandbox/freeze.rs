//! A sandbox that nobody uses, stopped where it is. The rung between running and paused:
//!
//! ```text
//! running ──(quiet for so long)──► frozen ──(its time is over, or asked)──► paused
//!    ▲                               │                                        │
//!    └──(anything is sent to it)─────┴──────────────(a resume)────────────────┘
//! ```
//!
//! It holds its memory, which the host may swap out, and no processor time; to clients it runs.
//! Whoever is about to send it something holds a [`Use`], and while there is one it is not frozen.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use parking_lot::Mutex;
use sandboxo_crashpoint::{Point, crashpoint};
use sandboxo_zone_protocol::{Notice, Platform};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, timeout},
};

use super::{Living, Task};
use crate::{cgroup::Group, notices};

/// Of a processor, in thousandths: what a sentry takes for itself while nothing runs in it.
const OWN_OF_PTRACE: u32 = 5;
const OWN_OF_SYSTRAP: u32 = 30;
/// An agent that is asked for its notices and has nothing else to do.
const TELL_WITHIN: Duration = Duration::from_secs(2);

/// What the decision looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FreezeView {
    pub(super) after: Duration,
    pub(super) is_used: bool,
    pub(super) unused_for: Duration,
    /// Since processor time was looked at first, and how much it has taken since.
    pub(super) watched_for: Duration,
    pub(super) took: Duration,
    pub(super) platform: Platform,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FreezeMove {
    Freeze,
    LookIn(Duration),
    /// It was at work, or in use: what it does from now on counts.
    WatchAnew,
}

pub(super) fn decide_freeze(view: FreezeView) -> FreezeMove {
    let FreezeView { after, is_used, unused_for, watched_for, took, platform } = view;
    // A long quiet use would hide what was begun at its end.
    if is_used || watched_for > unused_for {
        return FreezeMove::WatchAnew;
    }
    let left = after.saturating_sub(watched_for);
    if !left.is_zero() {
        return FreezeMove::LookIn(left);
    }
    let own = match platform {
        Platform::Ptrace => OWN_OF_PTRACE,
        Platform::Systrap => OWN_OF_SYSTRAP,
    };
    if took > watched_for * own / 1000 { FreezeMove::WatchAnew } else { FreezeMove::Freeze }
}

/// A stream that somebody has open.
pub(crate) struct InUse<S> {
    stream: S,
    _used: Use,
}

impl<S> InUse<S> {
    pub(crate) fn new(stream: S, used: Use) -> Self {
        Self { stream, _used: used }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for InUse<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for InUse<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl Task {
    /// Freezes it if it is time to, and says when to look again.
    pub(super) async fn look(&self, living: &Living, after: Duration) -> Duration {
        match living.freezer.look(after) {
            FreezeMove::LookIn(left) => return left,
            FreezeMove::WatchAnew => return after,
            FreezeMove::Freeze => {}
        }
        // Nobody is let wait for what it had to tell.
        let notices = match living.freezer.enter_quietly() {
            Some(_use) => {
                let told = timeout(TELL_WITHIN, notices::fetch(&living.connected.end)).await;
                told.ok().and_then(Result::ok).unwrap_or_default()
            }
            None => Vec::new(),
        };
        if living.freezer.freeze(notices) {
            tracing::debug!(sandbox.id = %self.id, "frozen");
            self.shared.pool.changed().notify_one();
        }
        after
    }
}

pub(crate) struct Freezer {
    group: Group,
    platform: Platform,
    state: Mutex<State>,
}

struct State {
    is_frozen: bool,
    users: usize,
    used_at: Instant,
    watched: (Instant, Duration),
    /// What its agent had to tell before it was frozen.
    notices: Vec<Notice>,
}

/// While it lives, the sandbox is not frozen.
pub(crate) struct Use {
    freezer: Arc<Freezer>,
    /// Nobody is kept waiting by it, so it is no sign of life.
    is_own: bool,
}

impl Drop for Use {
    fn drop(&mut self) {
        let mut state = self.freezer.state.lock();
        state.users = state.users.saturating_sub(1);
        if !self.is_own {
            state.used_at = Instant::now();
        }
    }
}

impl Freezer {
    pub(crate) fn new(group: Group, platform: Platform) -> Arc<Self> {
        let now = Instant::now();
        let cpu = group.usage().map(|usage| usage.cpu).unwrap_or_default();
        let state = State {
            is_frozen: false,
            users: 0,
            used_at: now,
            watched: (now, cpu),
            notices: Vec::new(),
        };
        Arc::new(Self { group, platform, state: Mutex::new(state) })
    }

    /// From here on it can be spoken to.
    pub(crate) fn enter(self: &Arc<Self>) -> Use {
        self.enter_as(false)
    }

    /// Unless it is frozen; of the zone's own business, which wakes nobody.
    pub(crate) fn enter_quietly(self: &Arc<Self>) -> Option<Use> {
        (!self.is_frozen()).then(|| self.enter_as(true))
    }

    fn enter_as(self: &Arc<Self>, is_own: bool) -> Use {
        let mut state = self.state.lock();
        state.users += 1;
        if state.is_frozen {
            state.is_frozen = false;
            let now = Instant::now();
            state.watched = (now, self.cpu().unwrap_or_default());
            crashpoint(Point::FreezeWaking);
            // One that is being killed has no group any more.
            if let Err(error) = self.group.set_frozen(false)
                && error.kind() != io::ErrorKind::NotFound
            {
                let error = &error as &dyn std::error::Error;
                tracing::error!(error, "a frozen sandbox is not let go on");
            }
        }
        drop(state);
        Use { freezer: self.clone(), is_own }
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.state.lock().is_frozen
    }

    pub(crate) fn take_notices(&self) -> Vec<Notice> {
        std::mem::take(&mut self.state.lock().notices)
    }

    fn cpu(&self) -> Option<Duration> {
        self.group.usage().ok().map(|usage| usage.cpu)
    }

    /// What is to be done now.
    pub(super) fn look(&self, after: Duration) -> FreezeMove {
        let cpu = self.cpu();
        let mut state = self.state.lock();
        if state.is_frozen {
            return FreezeMove::LookIn(after);
        }
        let now = Instant::now();
        let (since, before) = state.watched;
        let decided = decide_freeze(FreezeView {
            after,
            is_used: state.users > 0,
            unused_for: now - state.used_at,
            watched_for: now - since,
            // What can't be read is no reason to stop it.
            took: cpu.map_or(Duration::MAX, |cpu| cpu.saturating_sub(before)),
            platform: self.platform,
        });
        if decided == FreezeMove::WatchAnew {
            state.watched = (now, cpu.unwrap_or_default());
        }
        decided
    }

    /// Unless somebody uses it by now. `notices`: what its agent told last.
    pub(super) fn freeze(&self, notices: Vec<Notice>) -> bool {
        let mut state = self.state.lock();
        state.notices.extend(notices);
        if state.users > 0 || state.is_frozen {
            return false;
        }
        match self.group.set_frozen(true) {
            Ok(()) => {
                crashpoint(Point::FreezeFrozen);
                state.is_frozen = true;
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "a sandbox can't be frozen");
                // Halfway is worse than not at all.
                if let Err(error) = self.group.set_frozen(false) {
                    tracing::warn!(error = &error as &dyn std::error::Error, "let it go on");
                }
            }
        }
        state.is_frozen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        use FreezeMove::{Freeze, LookIn, WatchAnew};
        let (ptrace, systrap) = (Platform::Ptrace, Platform::Systrap);
        let seconds = Duration::from_secs;
        for (why, is_used, unused, watched, took_ms, platform, expected) in [
            ("somebody is connected", true, 0, 10, 0, ptrace, WatchAnew),
            ("used since the last look", false, 4, 10, 0, ptrace, WatchAnew),
            ("used since, for longer than it is watched", false, 10, 20, 0, ptrace, WatchAnew),
            ("not watched for long enough", false, 60, 3, 0, ptrace, LookIn(seconds(7))),
            ("quiet", false, 10, 10, 40, ptrace, Freeze),
            ("at work", false, 10, 10, 60, ptrace, WatchAnew),
            ("systrap takes more for itself", false, 10, 10, 250, systrap, Freeze),
            ("systrap at work", false, 10, 10, 400, systrap, WatchAnew),
        ] {
            let view = FreezeView {
                after: seconds(10),
                is_used,
                unused_for: seconds(unused),
                watched_for: seconds(watched),
                took: Duration::from_millis(took_ms),
                platform,
            };
            assert_eq!(decide_freeze(view), expected, "{why}");
        }
    }
}
