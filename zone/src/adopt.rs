//! What becomes of each container that an earlier process left. Values in, plan out.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use sandboxo_zone_protocol::{EndReason, SandboxId, Timestamp};

use crate::slot::ContainerId;

/// One slot, and what is true about it on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "facts, each by itself")]
pub(crate) struct SlotView {
    pub(crate) container: ContainerId,
    pub(crate) same_host_boot: bool,
    pub(crate) same_keeper: bool,
    /// What runs it is what would be started now.
    pub(crate) same_programs: bool,
    pub(crate) process: ProcessView,
    /// Whose it is, and until when.
    pub(crate) claim: Option<(SandboxId, Timestamp)>,
    /// Its end was written down, and its removal cut off.
    pub(crate) has_ended: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessView {
    /// Its start was cut off.
    NotStarted,
    Alive,
    Gone {
        /// The kernel has ended some of it for want of memory.
        out_of_memory: bool,
    },
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Somebody's, and their agent can be reached.
    pub(crate) adopt: BTreeSet<ContainerId>,
    /// Nobody's, and good for the pool.
    pub(crate) pool: BTreeSet<ContainerId>,
    /// To be removed; with whose it was and why it ended.
    pub(crate) remove: BTreeMap<ContainerId, Option<(SandboxId, EndReason)>>,
}

/// `held` are those whose channel the keeper has; `found` those that anything on the host is named
/// after.
pub(crate) fn plan(
    slots: &[SlotView],
    held: &BTreeSet<ContainerId>,
    found: &BTreeSet<ContainerId>,
    now: Timestamp,
) -> Plan {
    let mut plan = Plan::default();
    for slot in slots {
        if slot.has_ended {
            plan.remove.insert(slot.container, None);
            continue;
        }
        let why = if !slot.same_host_boot {
            Some(EndReason::ZoneRestarted)
        } else if !slot.same_keeper {
            Some(EndReason::KeeperLost)
        } else {
            match slot.process {
                ProcessView::Gone { out_of_memory: true } => Some(EndReason::OutOfMemory),
                ProcessView::Gone { .. } | ProcessView::NotStarted => Some(EndReason::Crashed),
                ProcessView::Alive if !held.contains(&slot.container) => {
                    Some(EndReason::KeeperLost)
                }
                ProcessView::Alive => match slot.claim {
                    Some((_, deadline)) if deadline <= now => Some(EndReason::TimedOut),
                    _ => None,
                },
            }
        };
        match (why, slot.claim) {
            (Some(reason), claim) => {
                let ended = claim.map(|(id, _)| (id, reason));
                plan.remove.insert(slot.container, ended);
            }
            (None, Some(_)) => {
                plan.adopt.insert(slot.container);
            }
            // An older agent does not know all that a claim says.
            (None, None) if !slot.same_programs => {
                plan.remove.insert(slot.container, None);
            }
            (None, None) => {
                plan.pool.insert(slot.container);
            }
        }
    }
    let known: BTreeSet<_> = slots.iter().map(|slot| slot.container).collect();
    for stray in held.union(found).filter(|container| !known.contains(container)) {
        plan.remove.insert(*stray, None);
    }
    plan
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ended = self.remove.values().flatten().count();
        write!(
            f,
            "adopt {}, pool {}, remove {} ({ended} of them somebody's)",
            self.adopt.len(),
            self.pool.len(),
            self.remove.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use sandboxo_zone_protocol::{ZoneCode, fake::SeededRandom};

    use super::*;

    const NOW: i64 = 1000;

    fn time(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn table() {
        let random = SeededRandom::new(7);
        let container = ContainerId::random(&random);
        let id = SandboxId::random("loc".parse().unwrap(), ZoneCode::random(&random), &random);
        let gone = ProcessView::Gone { out_of_memory: false };
        let starved = ProcessView::Gone { out_of_memory: true };
        let alive = ProcessView::Alive;
        let cut = ProcessView::NotStarted;
        for (why, (host, keeper), process, deadline, held, expected) in [
            ("somebody's and well", (true, true), alive, Some(1001), true, "adopt"),
            ("nobody's and well", (true, true), alive, None, true, "pool"),
            ("nobody's, of another agent", (true, true), alive, None, true, "remove"),
            ("somebody's, of another agent", (true, true), alive, Some(1001), true, "adopt"),
            ("its time is over", (true, true), alive, Some(1000), true, "remove TimedOut"),
            ("it died meanwhile", (true, true), gone, Some(1001), true, "remove Crashed"),
            ("it starved", (true, true), starved, Some(1001), true, "remove OutOfMemory"),
            ("a dead pool member", (true, true), gone, None, true, "remove"),
            ("its start was cut off", (true, true), cut, None, true, "remove"),
            ("its start was cut off early", (true, true), cut, None, false, "remove"),
            ("the channel is nowhere", (true, true), alive, Some(1001), false, "remove KeeperLost"),
            ("another keeper", (true, false), alive, Some(1001), false, "remove KeeperLost"),
            ("another keeper, dead", (true, false), gone, Some(1001), false, "remove KeeperLost"),
            ("another keeper, nobody's", (true, false), alive, None, false, "remove"),
            ("the host was booted", (false, false), gone, Some(1), false, "remove ZoneRestarted"),
            ("the host was booted, nobody's", (false, true), gone, None, false, "remove"),
        ] {
            let slot = SlotView {
                container,
                same_host_boot: host,
                same_keeper: keeper,
                same_programs: !why.contains("of another"),
                process,
                claim: deadline.map(|deadline| (id, time(deadline))),
                has_ended: false,
            };
            let held: BTreeSet<_> = held.then_some(container).into_iter().collect();
            let plan = plan(&[slot], &held, &BTreeSet::from([container]), time(NOW));
            let Plan { adopt, pool, remove } = &plan;
            let told = match remove.get(&container) {
                Some(Some((ended, reason))) => {
                    assert_eq!(*ended, id);
                    format!("remove {reason:?}")
                }
                Some(None) => "remove".to_owned(),
                None if adopt.contains(&container) => "adopt".to_owned(),
                None if pool.contains(&container) => "pool".to_owned(),
                None => "nothing".to_owned(),
            };
            assert_eq!(told, expected, "{why}");
            let ended = SlotView { has_ended: true, ..slot };
            let over = super::plan(&[ended], &held, &BTreeSet::new(), time(NOW));
            assert_eq!(over.remove, BTreeMap::from([(container, None)]), "{why}, but told");
            assert_eq!(adopt.len() + pool.len() + remove.len(), 1, "{why}");
        }
    }

    #[test]
    fn what_has_no_slot_is_removed() {
        let random = SeededRandom::new(9);
        let [held, found, both] = [(); 3].map(|()| ContainerId::random(&random));
        let plan = plan(&[], &[held, both].into(), &[found, both].into(), time(NOW));
        let expected = [held, found, both].into_iter().map(|stray| (stray, None)).collect();
        assert_eq!(plan, Plan { remove: expected, ..Plan::default() });
        assert_eq!(plan.to_string(), "adopt 0, pool 0, remove 3 (0 of them somebody's)");
    }
}
