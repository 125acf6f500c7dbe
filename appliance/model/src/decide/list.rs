//! Which sandboxes a list shows, and where its next page begins.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::Deref,
    str::FromStr,
};

use sandboxo_zone_protocol::{SandboxId, TemplateId, Timestamp};

use crate::{Phase, PhaseKind, SandboxRecord};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// A running one counts as running until its time is over, and then as nothing.
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
    let running = matching.iter().filter(|it| it.phase.kind() == PhaseKind::Running).count();
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
    let expired = match record.phase {
        Phase::Running { .. } => record.usable_until(now).is_none(),
        Phase::Starting { .. } | Phase::Killing { .. } | Phase::Dead { .. } => false,
    };
    !expired
        && query.phases.contains(&record.phase.kind())
        && query.started_after.is_none_or(|after| after <= record.started_at())
        && query.template.is_none_or(|template| template == record.template.id)
        && query.metadata.iter().all(|(key, value)| record.metadata.get(key) == Some(value))
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
