//! Which number is used for what. No I/O: the shell asks, does, and reports.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::plan;

/// Prepared in one go: more of them would keep a waiting one longer.
const BATCH: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Left by an earlier process; nobody has asked for it yet.
    Found,
    Preparing,
    Ready,
    Leased,
    /// To be removed.
    Leaving,
    /// Its lease was dropped without being released: a sweep takes it, if nobody keeps it.
    Dropped,
}

#[derive(Debug)]
pub(super) struct Book {
    uses: BTreeMap<u32, Use>,
    ready: VecDeque<u32>,
    target: usize,
    next: u32,
}

impl Book {
    pub(super) fn new(target: usize, found: impl IntoIterator<Item = u32>) -> Self {
        let uses = found.into_iter().map(|number| (number, Use::Found)).collect();
        Self { uses, ready: VecDeque::new(), target, next: plan::numbers().start }
    }

    pub(super) fn take_ready(&mut self) -> Option<u32> {
        let number = self.ready.pop_front()?;
        self.uses.insert(number, Use::Leased);
        Some(number)
    }

    /// The numbers to prepare so that `waiting` callers are served and the pool is full.
    /// Numbers go round, so that one is not used again soon. `None`: all are in use.
    pub(super) fn reserve(&mut self, waiting: usize) -> Option<Vec<u32>> {
        let preparing = self.uses.values().filter(|it| **it == Use::Preparing).count();
        let wanted = (waiting + self.target).saturating_sub(self.ready.len() + preparing);
        let mut reserved = Vec::new();
        for _ in plan::numbers() {
            if reserved.len() == wanted.min(BATCH) {
                break;
            }
            let number = self.next;
            self.next =
                if number + 1 < plan::numbers().end { number + 1 } else { plan::numbers().start };
            if let std::collections::btree_map::Entry::Vacant(entry) = self.uses.entry(number) {
                entry.insert(Use::Preparing);
                reserved.push(number);
            }
        }
        (wanted == 0 || !reserved.is_empty()).then_some(reserved)
    }

    pub(super) fn prepared(&mut self, number: u32) {
        self.uses.insert(number, Use::Ready);
        self.ready.push_back(number);
    }

    /// `false`: nothing with this number was left behind, or somebody has it already.
    pub(super) fn adopt(&mut self, number: u32) -> bool {
        match self.uses.get_mut(&number) {
            Some(it @ (Use::Found | Use::Dropped)) => {
                *it = Use::Leased;
                true
            }
            _ => false,
        }
    }

    pub(super) fn leave(&mut self, number: u32) {
        self.uses.insert(number, Use::Leaving);
    }

    pub(super) fn dropped(&mut self, number: u32) {
        if let Some(it @ Use::Leased) = self.uses.get_mut(&number) {
            *it = Use::Dropped;
        }
    }

    /// What nobody in this process holds, and nobody keeps, leaves.
    pub(super) fn sweep(&mut self, keep: &BTreeSet<u32>) {
        for (number, it) in &mut self.uses {
            if matches!(it, Use::Found | Use::Dropped) && !keep.contains(number) {
                *it = Use::Leaving;
            }
        }
    }

    /// No more are wanted, and those that nobody got leave.
    pub(super) fn close(&mut self) {
        self.target = 0;
        for number in self.ready.drain(..) {
            self.uses.insert(number, Use::Leaving);
        }
    }

    pub(super) fn leaving(&self) -> Vec<u32> {
        self.uses.iter().filter(|(_, it)| **it == Use::Leaving).map(|(number, _)| *number).collect()
    }

    pub(super) fn gone(&mut self, number: u32) {
        self.uses.remove(&number);
    }

    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_is_filled_and_numbers_go_round() {
        let mut book = Book::new(5, [3]);
        // 3 was left behind by somebody.
        assert_eq!(book.reserve(0), Some(vec![2, 4, 5, 6]));
        assert_eq!(book.reserve(0), Some(vec![7]));
        assert_eq!(book.reserve(0), Some(vec![]));
        for number in [2, 4, 5, 6, 7] {
            book.prepared(number);
        }
        assert_eq!(book.take_ready(), Some(2));
        book.leave(2);
        assert_eq!(book.leaving(), [2]);
        book.gone(2);
        // Not 2 again, though it is free.
        assert_eq!(book.reserve(0), Some(vec![8]));
        assert_eq!(book.reserve(1), Some(vec![9]));
    }

    #[test]
    fn all_numbers_are_in_use() {
        let mut book = Book::new(1, plan::numbers().skip(1));
        assert_eq!(book.reserve(0), Some(vec![2]));
        assert_eq!(book.reserve(1), None);
        book.gone(100);
        assert_eq!(book.reserve(1), Some(vec![100]));
    }

    #[test]
    fn a_sweep_takes_what_nobody_holds_or_keeps() {
        let mut book = Book::new(1, [10, 11, 12]);
        assert_eq!(book.reserve(0), Some(vec![2]));
        book.prepared(2);
        assert!(book.adopt(10));
        assert!(!book.adopt(10), "it is held");
        assert!(!book.adopt(2), "it belongs to the pool");
        assert!(!book.adopt(99), "there is no such one");
        book.sweep(&[11].into());
        assert_eq!(book.leaving(), [12]);
        assert!(!book.adopt(12));
        book.dropped(10);
        book.sweep(&[].into());
        assert_eq!(book.leaving(), [10, 11, 12]);
        book.close();
        assert_eq!(book.leaving(), [2, 10, 11, 12]);
        assert_eq!(book.reserve(0), Some(vec![]));
    }
}
