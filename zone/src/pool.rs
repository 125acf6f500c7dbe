//! Sandboxes that run and wait for somebody.
//!
//! A member is connected and has greeted; a claim is one message. Members have no public id and
//! no record but their slot, so a restart adopts or removes them.

mod decide;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use decide::{Demand, PoolMove, PoolView, decide_pool, shares};
use parking_lot::Mutex;
use sandboxo_crashpoint::{Point, crashpoint};
use sandboxo_tasks::Stop;
use sandboxo_zone_protocol::Shape;
use tokio::{sync::Notify, time::Instant};

use crate::{
    admission::Memory,
    bringup::{Connected, bring_up},
    cgroup::Weight,
    host::Host,
};

const LOOK_AGAIN: Duration = Duration::from_secs(2);
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_mins(1);

pub(crate) struct Pool {
    size: u32,
    state: Mutex<State>,
    work: Notify,
    /// There are more of them, or fewer by its own will: who tells how many need not wait.
    changed: Notify,
}

#[derive(Default)]
struct State {
    /// Nobody has said yet; members of an earlier process are kept until then.
    kept: Option<BTreeSet<Shape>>,
    members: BTreeMap<Shape, VecDeque<Connected>>,
    filling: BTreeMap<Shape, u32>,
    resting: BTreeMap<Shape, Rest>,
    last_claim: Option<Instant>,
    /// As it was at the time beside it.
    demand: BTreeMap<Shape, (Demand, Instant)>,
    stopped: bool,
}

#[derive(Clone, Copy)]
struct Rest {
    until: Instant,
    next: Duration,
}

impl Pool {
    pub(crate) fn new(size: u32) -> Self {
        Self {
            size,
            state: Mutex::new(State::default()),
            work: Notify::new(),
            changed: Notify::new(),
        }
    }

    pub(crate) fn keep_warm(&self, shapes: BTreeSet<Shape>) {
        let mut state = self.state.lock();
        state.kept = Some(shapes);
        state.resting.clear();
        drop(state);
        self.work.notify_one();
    }

    /// Somebody wants one of this kind. Once for each create, however many members it takes.
    pub(crate) fn ask(&self, shape: &Shape) {
        let now = Instant::now();
        let mut state = self.state.lock();
        let (demand, at) = state.demand.entry(*shape).or_insert_with(|| (Demand::default(), now));
        *demand = demand.after(now.duration_since(*at)).asked();
        *at = now;
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
        drop(state);
        self.changed.notify_one();
    }

    pub(crate) fn changed(&self) -> &Notify {
        &self.changed
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
        let kept = state.kept.clone()?;
        let since_claim = state.last_claim.map(|claim| now.duration_since(claim));
        let mut again: Option<Duration> = None;
        state
            .demand
            .retain(|_, (demand, at)| !demand.after(now.duration_since(*at)).is_forgotten());
        for (shape, wanted) in self.wanted(&state, &kept, now) {
            let members = state.members.entry(shape).or_default();
            surplus.extend(take_dead(members));
            let view = PoolView {
                wanted,
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
        if !surplus.is_empty() {
            self.changed.notify_one();
        }
        // Dropped outside of the lock; the janitor ends them.
        drop(surplus);
        again
    }

    /// Of every kind that is kept or there; what lacks most comes first.
    fn wanted(&self, state: &State, kept: &BTreeSet<Shape>, now: Instant) -> Vec<(Shape, u32)> {
        let demand = |shape: &Shape| {
            let asked = state.demand.get(shape);
            asked.map_or_else(Demand::default, |(demand, at)| demand.after(now.duration_since(*at)))
        };
        let mut wanted = shares(self.size, kept, demand);
        for shape in state.members.keys() {
            wanted.entry(*shape).or_default();
        }
        let mut wanted: Vec<_> = wanted.into_iter().collect();
        wanted
            .sort_by_key(|(shape, wanted)| count(&state.members, shape) * 1000 / (*wanted).max(1));
        wanted
    }

    fn fill(self: &Arc<Self>, host: &Arc<Host>, shape: Shape) {
        let (pool, filler) = (self.clone(), host.clone());
        host.tasks.spawn("pool member", move |stop| async move {
            let started = async {
                let member = bring_up(&filler, shape, Weight::Background, None, &stop).await?;
                member.warm_up().await.map(|()| member)
            };
            let failed = match started.await {
                Ok(member) => {
                    pool.add(member);
                    crashpoint(Point::RefillAdded);
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
