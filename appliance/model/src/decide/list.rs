//! Which sandboxes a list shows, and where its next page begins.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::Deref,
    str::FromStr,
};

use sandboxo_zone_protocol::{SandboxId, TemplateId, Timestamp};

use crate::{Phase, PhaseKind, SandboxRecord, Standing};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// A running one counts as running until its time is over, and then as pausing or as nothing.
    pub phases: BTreeSet<PhaseKind>,
    /// All pairs must match exactly.
    pub metadata: BTreeMap<String, String>,
    /// Keeps what started at it or later.
    pub started_after: Option<Timestamp>,
    pub template: Option<TemplateId>,
    pub order: Order,
    pub limit: usize,
    /// The last of the page before.
    pub after: Option<Cursor>,
}

/// By start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    Ascending,
    #[default]
    Descending,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// `None` on the last page.
    pub next: Option<Cursor>,
    /// How many running ones match, on all pages.
    pub running: usize,
}

/// A place in the order of starts. Opaque to clients. What starts or ends between two pages moves
/// no other sandbox, so nothing is lost or shown twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    started_at: Timestamp,
    id: SandboxId,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a token of this list")]
pub struct NotACursor;

pub fn page<T: Deref<Target = SandboxRecord>>(
    records: impl IntoIterator<Item = T>,
    query: &Query,
    now: Timestamp,
) -> Page<T> {
    let mut matching: Vec<_> =
        records.into_iter().filter(|record| matches(record, query, now)).collect();
    let is_running = |it: &T| counts_as(it, now) == Some(PhaseKind::Running);
    let running = matching.iter().filter(|it| is_running(it)).count();
    matching.retain(|record| match (query.after, query.order) {
        (None, _) => true,
        (Some(last), Order::Ascending) => Cursor::of(record) > last,
        (Some(last), Order::Descending) => Cursor::of(record) < last,
    });
    matching.sort_unstable_by(|one, other| match query.order {
        Order::Ascending => Cursor::of(one).cmp(&Cursor::of(other)),
        Order::Descending => Cursor::of(other).cmp(&Cursor::of(one)),
    });
    let more = matching.len() > query.limit;
    matching.truncate(query.limit);
    let next = matching.last().filter(|_| more).map(|last| Cursor::of(last));
    Page { items: matching, next, running }
}

fn matches(record: &SandboxRecord, query: &Query, now: Timestamp) -> bool {
    counts_as(record, now).is_some_and(|kind| query.phases.contains(&kind))
        && query.started_after.is_none_or(|after| after <= record.started_at())
        && query.template.is_none_or(|template| template == record.template.id)
        && query.metadata.iter().all(|(key, value)| record.metadata.get(key) == Some(value))
}

fn counts_as(record: &SandboxRecord, now: Timestamp) -> Option<PhaseKind> {
    match (&record.phase, record.standing(now)) {
        (Phase::Running { .. }, Standing::Asleep) => Some(PhaseKind::Pausing),
        (Phase::Running { .. }, Standing::Gone) => None,
        (phase, _) => Some(phase.kind()),
    }
}

impl Cursor {
    fn of(record: &SandboxRecord) -> Self {
        Self { started_at: record.started_at(), id: record.id }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.started_at.as_nanosecond(), self.id)
    }
}

impl FromStr for Cursor {
    type Err = NotACursor;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (nanoseconds, id) = text.split_once('.')?;
            let started_at = Timestamp::from_nanosecond(nanoseconds.parse().ok()?).ok()?;
            Some(Self { started_at, id: id.parse().ok()? })
        };
        parse().ok_or(NotACursor)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sandboxo_zone_protocol::{Kept, OnDeadline};

    use super::*;
    use crate::sample;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn record(n: usize, started: i64) -> SandboxRecord {
        let id = format!("sbx_loc_{n:020}").parse().unwrap();
        let phase = Phase::Running { started_at: at(started), expires_at: at(1000) };
        sample::record(id, at(1000), phase)
    }

    fn query(order: Order, limit: usize) -> Query {
        Query {
            phases: [PhaseKind::Running].into(),
            metadata: BTreeMap::new(),
            started_after: None,
            template: None,
            order,
            limit,
            after: None,
        }
    }

    proptest! {
        /// Whatever comes and goes between the pages, what stays is shown once, in order.
        #[test]
        fn pages_show_what_stays_once(
            stay in proptest::collection::vec(0..20i64, 0..30),
            come_and_go in proptest::collection::vec((0..20i64, any::<bool>(), any::<bool>()), 0..30),
            limit in 1..7usize,
            descending in any::<bool>(),
        ) {
            let order = if descending { Order::Descending } else { Order::Ascending };
            let stay: Vec<_> = stay.iter().enumerate().map(|(n, s)| record(n, *s)).collect();
            let others: Vec<_> = come_and_go
                .iter()
                .enumerate()
                .map(|(n, (second, even, odd))| (record(100 + n, *second), *even, *odd))
                .collect();
            let mut query = query(order, limit);
            let mut shown = Vec::new();
            for turn in 0.. {
                let there = others
                    .iter()
                    .filter(|(_, even, odd)| if turn % 2 == 0 { *even } else { *odd })
                    .map(|(record, ..)| record);
                let page = page(stay.iter().chain(there), &query, at(500));
                prop_assert!(page.items.len() <= limit);
                shown.extend(page.items.iter().map(|record| Cursor::of(record)));
                match page.next {
                    Some(next) => query.after = Some(next.to_string().parse().unwrap()),
                    None => break,
                }
            }
            let mut expected = shown.clone();
            expected.sort_unstable();
            expected.dedup();
            if descending {
                expected.reverse();
            }
            prop_assert_eq!(&shown, &expected);
            for record in &stay {
                prop_assert!(shown.contains(&Cursor::of(record)));
            }
        }
    }

    #[test]
    fn running_ones_are_counted_on_all_pages() {
        let records: Vec<_> = (0..5).map(|n| record(n, 1)).collect();
        let first = page(&records, &query(Order::Ascending, 2), at(500));
        assert_eq!((first.items.len(), first.running), (2, 5));
        let last = Query { after: first.next, limit: 3, ..query(Order::Ascending, 3) };
        let last = page(&records, &last, at(500));
        assert_eq!((last.items.len(), last.running, last.next), (3, 5, None));
        let expired = page(&records, &query(Order::Ascending, 9), at(1000));
        assert_eq!((expired.items.len(), expired.running), (0, 0));
    }

    #[test]
    fn one_whose_pause_is_due_counts_as_pausing() {
        let mut due = record(1, 1);
        due.spec.on_deadline = OnDeadline::Pause(Kept::Memory);
        let both = [PhaseKind::Running, PhaseKind::Pausing].into();
        for (phases, now, shown, running) in [
            ([PhaseKind::Running].into(), 500, 1, 1),
            ([PhaseKind::Running].into(), 1000, 0, 0),
            ([PhaseKind::Pausing].into(), 1000, 1, 0),
            (both, 1000, 1, 0),
        ] {
            let query = Query { phases, ..query(Order::Ascending, 9) };
            let page = page([&due], &query, at(now));
            assert_eq!((page.items.len(), page.running), (shown, running), "{query:?} {now}");
        }
    }
}
