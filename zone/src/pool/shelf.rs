//! Members of one sort, by shape: those that wait, and how it stands with those that are started.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use sandboxo_zone_protocol::Shape;
use tokio::time::Instant;

use super::decide::{PoolMove, PoolView, decide_pool};
use crate::bringup::{Blank, Connected};

const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_mins(1);

pub(super) trait Waits {
    fn shape(&self) -> Shape;
    fn is_alive(&self) -> bool;
    /// It goes on without this process.
    fn leave(self);
}

impl Waits for Connected {
    fn shape(&self) -> Shape {
        Self::shape(self)
    }

    fn is_alive(&self) -> bool {
        Self::is_alive(self)
    }

    fn leave(self) {
        Self::leave(self);
    }
}

impl Waits for Blank {
    fn shape(&self) -> Shape {
        Self::shape(self)
    }

    fn is_alive(&self) -> bool {
        Self::is_alive(self)
    }

    fn leave(self) {
        Self::leave(self);
    }
}

pub(super) struct Shelf<M> {
    members: BTreeMap<Shape, VecDeque<M>>,
    filling: BTreeMap<Shape, u32>,
    resting: BTreeMap<Shape, Rest>,
}

#[derive(Clone, Copy)]
struct Rest {
    until: Instant,
    next: Duration,
}

/// What is the same for all kinds.
#[derive(Clone, Copy)]
pub(super) struct Look {
    pub(super) now: Instant,
    pub(super) memory_is_tight: bool,
    pub(super) since_claim: Option<Duration>,
}

impl<M> Default for Shelf<M> {
    fn default() -> Self {
        Self { members: BTreeMap::new(), filling: BTreeMap::new(), resting: BTreeMap::new() }
    }
}

impl<M: Waits> Shelf<M> {
    pub(super) fn add(&mut self, member: M) {
        self.members.entry(member.shape()).or_default().push_back(member);
    }

    /// One that lives, if there is one of this kind.
    pub(super) fn take(&mut self, shape: &Shape) -> Option<M> {
        let members = self.members.get_mut(shape)?;
        loop {
            let member = members.pop_front()?;
            if member.is_alive() {
                return Some(member);
            }
        }
    }

    pub(super) fn ready(&self) -> u32 {
        let count: usize = self.members.values().map(VecDeque::len).sum();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    pub(super) fn filling(&self) -> u32 {
        self.filling.values().sum()
    }

    pub(super) fn forget_rests(&mut self) {
        self.resting.clear();
    }

    /// Those of nobody's liking any more are wanted no more; what lacks most comes first.
    pub(super) fn in_order(&self, mut wanted: BTreeMap<Shape, u32>) -> Vec<(Shape, u32)> {
        for shape in self.members.keys() {
            wanted.entry(*shape).or_default();
        }
        let mut wanted: Vec<_> = wanted.into_iter().collect();
        wanted.sort_by_key(|(shape, wanted)| self.count(shape) * 1000 / (*wanted).max(1));
        wanted
    }

    /// What is to be done for one kind; those that a fill starts count as begun. What is surplus
    /// goes into `surplus`.
    pub(super) fn step(
        &mut self,
        (shape, wanted): (Shape, u32),
        filling_all: u32,
        look: Look,
        surplus: &mut Vec<M>,
    ) -> PoolMove {
        let members = self.members.entry(shape).or_default();
        let (alive, dead): (VecDeque<M>, VecDeque<M>) =
            members.drain(..).partition(Waits::is_alive);
        *members = alive;
        surplus.extend(dead);
        let view = PoolView {
            wanted,
            ready: u32::try_from(members.len()).unwrap_or(u32::MAX),
            filling: self.filling.get(&shape).copied().unwrap_or(0),
            filling_all,
            memory_is_tight: look.memory_is_tight,
            resting: self.resting.get(&shape).is_some_and(|rest| rest.until > look.now),
            since_claim: look.since_claim,
        };
        let decided = decide_pool(view);
        match decided {
            PoolMove::Idle | PoolMove::Hold(_) => {}
            PoolMove::Fill(count) => *self.filling.entry(shape).or_default() += count,
            PoolMove::Drain(count) => {
                let keep = members.len().saturating_sub(count as usize);
                surplus.extend(members.split_off(keep));
            }
        }
        self.members.retain(|_, members| !members.is_empty());
        self.filling.retain(|_, count| *count > 0);
        decided
    }

    /// One that a fill has started is there, or failed.
    pub(super) fn filled(&mut self, shape: Shape, has_failed: bool, now: Instant) {
        if let Some(filling) = self.filling.get_mut(&shape) {
            *filling = filling.saturating_sub(1);
        }
        if has_failed {
            let rest = rest_after(self.resting.get(&shape).copied(), now);
            self.resting.insert(shape, rest);
        } else {
            self.resting.remove(&shape);
        }
    }

    pub(super) fn leave_all(&mut self) {
        for member in std::mem::take(&mut self.members).into_values().flatten() {
            member.leave();
        }
    }

    fn count(&self, shape: &Shape) -> u32 {
        let count = self.members.get(shape).map_or(0, VecDeque::len);
        u32::try_from(count).unwrap_or(u32::MAX)
    }
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
