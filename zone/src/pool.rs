//! Sandboxes that run and wait for somebody.
//!
//! A member is connected and has greeted; a claim is one message. Members have no public id and
//! no record but their slot, so a restart adopts or removes them.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use sandboxo_tasks::Stop;
use sandboxo_zone_protocol::ImageDigest;
use tokio::{sync::Notify, time::Instant};

use crate::{
    admission::Memory,
    bringup::{Connected, bring_up},
    cgroup::Weight,
    config::Warm,
    host::Host,
    slot::Shape,
};

/// The host's processors can start 13 to 17 a second whatever the parallelism; more at once only
/// makes a create that somebody waits for slower.
const FILL_AT_ONCE: u32 = 2;
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// The first command of a sandbox comes right after its claim; a start beside it makes it slower.
const HOLD: Duration = Duration::from_millis(100);
/// More for each missing member, for those of a burst share the processors.
const HOLD_EACH: Duration = Duration::from_millis(10);
const HOLD_AT_MOST: Duration = Duration::from_millis(300);
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_mins(1);

/// What the decision about one kind of member looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PoolView {
    pub(crate) wanted: u32,
    pub(crate) ready: u32,
    /// Being started.
    pub(crate) filling: u32,
    /// Of all kinds.
    pub(crate) filling_all: u32,
    pub(crate) memory_is_tight: bool,
    /// It failed a moment ago.
    pub(crate) resting: bool,
    /// Of any kind.
    pub(crate) since_claim: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PoolMove {
    Fill(u32),
    Drain(u32),
    /// There is something to start, but not before this time has passed without a claim.
    Hold(Duration),
    Idle,
}

pub(crate) fn decide_pool(view: PoolView) -> PoolMove {
    let PoolView { wanted, ready, filling, filling_all, memory_is_tight, resting, since_claim } =
        view;
    if ready > wanted {
        return PoolMove::Drain(ready - wanted);
    }
    let missing = wanted - ready;
    let free = FILL_AT_ONCE.saturating_sub(filling_all);
    let fill = missing.saturating_sub(filling).min(free);
    if fill == 0 || memory_is_tight || resting {
        return PoolMove::Idle;
    }
    // Claims that never pause must not empty the pool.
    let is_low = ready * 8 <= wanted;
    let hold = (HOLD + HOLD_EACH * missing).min(HOLD_AT_MOST);
    let left = since_claim.map_or(Duration::ZERO, |since| hold.saturating_sub(since));
    if is_low || left.is_zero() { PoolMove::Fill(fill) } else { PoolMove::Hold(left) }
}

pub(crate) struct Pool {
    warm: Warm,
    state: Mutex<State>,
    work: Notify,
}

#[derive(Default)]
struct State {
    /// Nobody has said yet; members of an earlier process are kept until then.
    images: Option<BTreeSet<ImageDigest>>,
    members: BTreeMap<Shape, VecDeque<Connected>>,
    filling: BTreeMap<Shape, u32>,
    resting: BTreeMap<Shape, Rest>,
    last_claim: Option<Instant>,
    stopped: bool,
}

#[derive(Clone, Copy)]
struct Rest {
    until: Instant,
    next: Duration,
}

impl Pool {
    pub(crate) fn new(warm: Warm) -> Self {
        Self { warm, state: Mutex::new(State::default()), work: Notify::new() }
    }

    pub(crate) fn keep_warm(&self, images: BTreeSet<ImageDigest>) {
        let mut state = self.state.lock();
        state.images = Some(images);
        state.resting.clear();
        drop(state);
        self.work.notify_one();
    }

    /// A member that lives, if there is one of this kind.
    pub(crate) fn take(&self, shape: &Shape) -> Option<Connected> {
        let mut state = self.state.lock();
        let members = state.members.get_mut(shape)?;
        let taken = loop {
            let member = members.pop_front()?;
            if member.is_alive() {
                break member;
            }
        };
        state.last_claim = Some(Instant::now());
        drop(state);
        self.work.notify_one();
        Some(taken)
    }

    /// Of an earlier process, or new.
    pub(crate) fn add(&self, member: Connected) {
        let mut state = self.state.lock();
        if state.stopped {
            member.leave();
            return;
        }
        state.members.entry(member.shape()).or_default().push_back(member);
    }

    pub(crate) fn ready(&self) -> u32 {
        let count: usize = self.state.lock().members.values().map(VecDeque::len).sum();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    pub(crate) async fn run(self: Arc<Self>, host: Arc<Host>, stop: Stop) {
        loop {
            let again = self.pass(&host).unwrap_or(LOOK_AGAIN);
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.work.notified() => {}
                () = tokio::time::sleep(again) => {}
            }
        }
        // They outlive this process; the next one adopts them.
        let mut state = self.state.lock();
        state.stopped = true;
        for member in std::mem::take(&mut state.members).into_values().flatten() {
            member.leave();
        }
    }

    /// When to look again, if before the usual time.
    fn pass(self: &Arc<Self>, host: &Arc<Host>) -> Option<Duration> {
        let memory_is_tight = match Memory::read() {
            Ok(memory) => memory.is_tight(&host.limits),
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "read memory");
                true
            }
        };
        let now = Instant::now();
        let mut surplus = Vec::new();
        let mut state = self.state.lock();
        let images = state.images.clone()?;
        let since_claim = state.last_claim.map(|claim| now.duration_since(claim));
        let mut again: Option<Duration> = None;
        for shape in self.shapes(&state, &images) {
            let members = state.members.entry(shape).or_default();
            surplus.extend(take_dead(members));
            let view = PoolView {
                wanted: self.wanted(&images, &shape),
                ready: count(&state.members, &shape),
                filling: state.filling.get(&shape).copied().unwrap_or(0),
                filling_all: state.filling.values().sum(),
                memory_is_tight,
                resting: state.resting.get(&shape).is_some_and(|rest| rest.until > now),
                since_claim,
            };
            match decide_pool(view) {
                PoolMove::Idle => {}
                PoolMove::Hold(left) => {
                    again = Some(again.map_or(left, |other| other.min(left)));
                }
                PoolMove::Fill(count) => {
                    *state.filling.entry(shape).or_default() += count;
                    for _ in 0..count {
                        self.fill(host, shape);
                    }
                }
                PoolMove::Drain(count) => {
                    let members = state.members.entry(shape).or_default();
                    let keep = members.len().saturating_sub(count as usize);
                    surplus.extend(members.split_off(keep));
                }
            }
        }
        state.members.retain(|_, members| !members.is_empty());
        state.filling.retain(|_, count| *count > 0);
        drop(state);
        // Dropped outside of the lock; the janitor ends them.
        drop(surplus);
        again
    }

    /// Every kind that is wanted or there.
    fn shapes(&self, state: &State, images: &BTreeSet<ImageDigest>) -> BTreeSet<Shape> {
        let resources = self.warm.resources;
        let wanted = images.iter().flat_map(|image| {
            let modes = self.warm.modes.iter();
            modes.map(move |mode| Shape { image: *image, resources, mode: *mode })
        });
        wanted.chain(state.members.keys().copied()).collect()
    }

    fn wanted(&self, images: &BTreeSet<ImageDigest>, shape: &Shape) -> u32 {
        let is_wanted = images.contains(&shape.image)
            && shape.resources == self.warm.resources
            && self.warm.modes.contains(&shape.mode);
        if is_wanted { self.warm.per_image } else { 0 }
    }

    fn fill(self: &Arc<Self>, host: &Arc<Host>, shape: Shape) {
        let (pool, filler) = (self.clone(), host.clone());
        host.tasks.spawn("pool member", move |stop| async move {
            let started = bring_up(&filler, shape, Weight::Background, &stop).await;
            let failed = match started {
                Ok(member) => {
                    pool.add(member);
                    None
                }
                Err(_) if stop.is_cancelled() => None,
                Err(error) => Some(error),
            };
            let mut state = pool.state.lock();
            if let Some(filling) = state.filling.get_mut(&shape) {
                *filling = filling.saturating_sub(1);
            }
            match failed {
                None => {
                    state.resting.remove(&shape);
                }
                Some(error) => {
                    let rest = rest_after(state.resting.get(&shape).copied(), Instant::now());
                    tracing::warn!(
                        image = %shape.image,
                        error = &error as &dyn std::error::Error,
                        "a pool member did not start"
                    );
                    state.resting.insert(shape, rest);
                }
            }
            drop(state);
            pool.work.notify_one();
        });
    }
}

fn count(members: &BTreeMap<Shape, VecDeque<Connected>>, shape: &Shape) -> u32 {
    members.get(shape).map_or(0, |members| u32::try_from(members.len()).unwrap_or(u32::MAX))
}

fn take_dead(members: &mut VecDeque<Connected>) -> Vec<Connected> {
    let (alive, dead) = members.drain(..).partition(Connected::is_alive);
    *members = alive;
    dead.into_iter().collect::<VecDeque<_>>().into()
}

fn rest_after(before: Option<Rest>, now: Instant) -> Rest {
    let pause = before.map_or(FIRST_RETRY, |rest| rest.next);
    Rest { until: now + pause, next: (pause * 2).min(LAST_RETRY) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        use PoolMove::{Drain, Fill, Idle};
        for (why, wanted, ready, filling, filling_all, (tight, resting), expected) in [
            ("nothing wanted, nothing there", 0, 0, 0, 0, (false, false), Idle),
            ("empty: two at a time", 8, 0, 0, 0, (false, false), Fill(2)),
            ("one on the way", 8, 0, 1, 1, (false, false), Fill(1)),
            ("two on the way", 8, 0, 2, 2, (false, false), Idle),
            ("another kind has the places", 8, 0, 0, 2, (false, false), Idle),
            ("one missing", 8, 7, 0, 0, (false, false), Fill(1)),
            ("the missing one is on the way", 8, 7, 1, 1, (false, false), Idle),
            ("full", 8, 8, 0, 0, (false, false), Idle),
            ("too many", 4, 8, 0, 0, (false, false), Drain(4)),
            ("no longer wanted", 0, 8, 1, 1, (false, false), Drain(8)),
            ("short of memory", 8, 0, 0, 0, (true, false), Idle),
            ("short of memory, too many", 4, 8, 0, 0, (true, false), Drain(4)),
            ("it just failed", 8, 0, 0, 0, (false, true), Idle),
        ] {
            let view = PoolView {
                wanted,
                ready,
                filling,
                filling_all,
                memory_is_tight: tight,
                resting,
                since_claim: None,
            };
            assert_eq!(decide_pool(view), expected, "{why}");
        }
    }

    #[test]
    fn claims_hold_the_refill_until_the_pool_is_low() {
        use PoolMove::{Drain, Fill, Hold, Idle};
        for (why, wanted, ready, filling, since_ms, expected) in [
            ("one was just taken", 24, 23, 0, 0, Hold(Duration::from_millis(110))),
            ("it was taken a while ago", 24, 23, 0, 110, Fill(1)),
            ("a part of the time is over", 24, 23, 0, 100, Hold(Duration::from_millis(10))),
            ("a burst", 24, 4, 0, 0, Hold(Duration::from_millis(300))),
            ("a burst is over", 24, 4, 0, 300, Fill(2)),
            ("an eighth is left", 24, 3, 0, 0, Fill(2)),
            ("none is left", 24, 0, 0, 0, Fill(2)),
            ("a pool of one", 1, 0, 0, 0, Fill(1)),
            ("nothing is missing", 24, 24, 0, 0, Idle),
            ("what is missing is on the way", 24, 23, 1, 0, Idle),
            ("too many", 20, 24, 0, 0, Drain(4)),
        ] {
            let view = PoolView {
                wanted,
                ready,
                filling,
                filling_all: filling,
                memory_is_tight: false,
                resting: false,
                since_claim: Some(Duration::from_millis(since_ms)),
            };
            assert_eq!(decide_pool(view), expected, "{why}");
        }
    }

    #[test]
    fn rests_grow_to_a_minute() {
        let now = Instant::now();
        let mut rest = None;
        let pauses: Vec<u64> = (0..8)
            .map(|_| {
                let next = rest_after(rest, now);
                rest = Some(next);
                (next.until - now).as_secs()
            })
            .collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
    }
}
