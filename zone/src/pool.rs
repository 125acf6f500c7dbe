//! Sandboxes that wait for somebody.
//!
//! A warm one is connected and has greeted; a claim is one message. A blank is made and not
//! started, and waits for a checkpoint. None has a public id or a record but its slot, so a restart
//! adopts the warm ones and removes the rest.

mod decide;
mod shelf;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use decide::{Demand, PoolMove, blank_shares, shares};
use parking_lot::Mutex;
use sandboxo_crashpoint::{Point, crashpoint};
use sandboxo_tasks::Stop;
use sandboxo_zone_protocol::Shape;
use shelf::{Look, Shelf, Waits};
use tokio::{sync::Notify, time::Instant};

use crate::{
    admission::Memory,
    bringup::{Blank, BringUpError, Connected, bring_up, make_blank},
    cgroup::Weight,
    host::Host,
};

const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// A shape whose last checkpoint is gone for longer has no blanks: who pauses and resumes in turn
/// keeps them.
const LINGER: Duration = Duration::from_mins(10);

pub(crate) struct Pool {
    sizes: Sizes,
    state: Mutex<State>,
    work: Notify,
    /// There are more of them, or fewer by its own will: who tells how many need not wait.
    changed: Notify,
}

/// How many of each sort, in all.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) warm: u32,
    pub(crate) blanks: u32,
}

#[derive(Default)]
struct State {
    /// Nobody has said yet; members of an earlier process are kept until then.
    kept: Option<BTreeSet<Shape>>,
    warm: Shelf<Connected>,
    blanks: Shelf<Blank>,
    /// When there was a checkpoint of a shape last.
    saved: BTreeMap<Shape, Instant>,
    last_claim: Option<Instant>,
    /// As it was at the time beside it.
    demand: BTreeMap<Shape, (Demand, Instant)>,
    stopped: bool,
}

impl Pool {
    pub(crate) fn new(sizes: Sizes) -> Self {
        Self {
            sizes,
            state: Mutex::new(State::default()),
            work: Notify::new(),
            changed: Notify::new(),
        }
    }

    pub(crate) fn keep_warm(&self, shapes: BTreeSet<Shape>) {
        let mut state = self.state.lock();
        state.kept = Some(shapes);
        state.warm.forget_rests();
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

    /// There may be more checkpoints, or fewer.
    pub(crate) fn look(&self) {
        self.work.notify_one();
    }

    /// A warm one that lives, if there is one of this kind.
    pub(crate) fn take(&self, shape: &Shape) -> Option<Connected> {
        self.take_from(|state| state.warm.take(shape))
    }

    pub(crate) fn take_blank(&self, shape: &Shape) -> Option<Blank> {
        let taken = self.take_from(|state| state.blanks.take(shape));
        if taken.is_some() {
            self.changed.notify_one();
        }
        taken
    }

    fn take_from<M>(&self, take: impl FnOnce(&mut State) -> Option<M>) -> Option<M> {
        let mut state = self.state.lock();
        let taken = take(&mut state)?;
        state.last_claim = Some(Instant::now());
        drop(state);
        self.work.notify_one();
        Some(taken)
    }

    /// Of an earlier process, or new.
    pub(crate) fn add(&self, member: Connected) {
        self.add_to(member, |state| &mut state.warm);
    }

    /// New, or not needed after all.
    pub(crate) fn add_blank(&self, blank: Blank) {
        self.add_to(blank, |state| &mut state.blanks);
    }

    fn add_to<M: Waits>(&self, member: M, place: impl FnOnce(&mut State) -> &mut Shelf<M>) {
        let mut state = self.state.lock();
        if state.stopped {
            member.leave();
            return;
        }
        place(&mut state).add(member);
        drop(state);
        self.changed.notify_one();
    }

    pub(crate) fn changed(&self) -> &Notify {
        &self.changed
    }

    pub(crate) fn ready(&self) -> u32 {
        self.state.lock().warm.ready()
    }

    pub(crate) fn blanks(&self) -> u32 {
        self.state.lock().blanks.ready()
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
        // They outlive this process; the next one adopts or ends them.
        let mut state = self.state.lock();
        state.stopped = true;
        state.warm.leave_all();
        state.blanks.leave_all();
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
        let saved = host.restorable();
        let now = Instant::now();
        let (mut warm, mut blanks) = (Vec::new(), Vec::new());
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let since_claim = state.last_claim.map(|claim| now.duration_since(claim));
        let look = Look { now, memory_is_tight, since_claim };
        let mut again: Option<Duration> = None;
        let mut hold = |left: Duration| again = Some(again.map_or(left, |it| it.min(left)));
        state
            .demand
            .retain(|_, (demand, at)| !demand.after(now.duration_since(*at)).is_forgotten());
        let demand = |shape: &Shape| {
            let asked = state.demand.get(shape);
            asked.map_or_else(Demand::default, |(demand, at)| demand.after(now.duration_since(*at)))
        };
        let wanted = state.kept.as_ref().map(|kept| shares(self.sizes.warm, kept, demand));
        for (shape, wanted) in wanted.map(|it| state.warm.in_order(it)).unwrap_or_default() {
            let filling = state.warm.filling() + state.blanks.filling();
            match state.warm.step((shape, wanted), filling, look, &mut warm) {
                PoolMove::Hold(left) => hold(left),
                PoolMove::Fill(count) => (0..count).for_each(|_| self.warm(host, shape)),
                PoolMove::Idle | PoolMove::Drain(_) => {}
            }
        }
        state.saved.extend(saved.keys().map(|shape| (*shape, now)));
        state.saved.retain(|_, last| now.duration_since(*last) < LINGER);
        let lately = state.saved.keys().copied();
        let wanted = blank_shares(self.sizes.blanks, &saved, lately);
        for (shape, wanted) in state.blanks.in_order(wanted) {
            let filling = state.warm.filling() + state.blanks.filling();
            match state.blanks.step((shape, wanted), filling, look, &mut blanks) {
                PoolMove::Hold(left) => hold(left),
                PoolMove::Fill(count) => (0..count).for_each(|_| self.blank(host, shape)),
                PoolMove::Idle | PoolMove::Drain(_) => {}
            }
        }
        drop(guard);
        if !warm.is_empty() || !blanks.is_empty() {
            self.changed.notify_one();
        }
        // Dropped outside of the lock; the janitor ends them.
        drop((warm, blanks));
        again
    }

    fn warm(self: &Arc<Self>, host: &Arc<Host>, shape: Shape) {
        let (pool, filler) = (self.clone(), host.clone());
        host.tasks.spawn("pool member", move |stop| async move {
            let started = async {
                let member = bring_up(&filler, shape, Weight::Background, &stop).await?;
                member.warm_up().await.map(|()| member)
            };
            let started = started.await.map(|member| {
                pool.add(member);
                crashpoint(Point::RefillAdded);
            });
            pool.filled(shape, started, &stop, |state| &mut state.warm);
        });
    }

    fn blank(self: &Arc<Self>, host: &Arc<Host>, shape: Shape) {
        let (pool, filler) = (self.clone(), host.clone());
        host.tasks.spawn("blank", move |stop| async move {
            let made = make_blank(&filler, shape, Weight::Background, &stop).await;
            let made = made.map(|blank| pool.add_blank(blank));
            pool.filled(shape, made, &stop, |state| &mut state.blanks);
        });
    }

    fn filled<M: Waits>(
        &self,
        shape: Shape,
        outcome: Result<(), BringUpError>,
        stop: &Stop,
        place: impl FnOnce(&mut State) -> &mut Shelf<M>,
    ) {
        let failed = outcome.err().filter(|_| !stop.is_cancelled());
        if let Some(error) = &failed {
            tracing::warn!(
                image = %shape.image,
                error = error as &dyn std::error::Error,
                "a pool member did not start"
            );
        }
        place(&mut self.state.lock()).filled(shape, failed.is_some(), Instant::now());
        self.work.notify_one();
    }
}
