//! How many sandboxes of each kind wait, and when one is started. Values in, answers out.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use sandboxo_zone_protocol::{Platform, Shape};

/// The host's processors can start 13 to 17 a second whatever the parallelism; more at once only
/// makes a create that somebody waits for slower.
const FILL_AT_ONCE: u32 = 2;
/// The first command of a sandbox comes right after its claim; a start beside it makes it slower.
const HOLD: Duration = Duration::from_millis(100);
/// More for each missing member, for those of a burst share the processors.
const HOLD_EACH: Duration = Duration::from_millis(10);
const HOLD_AT_MOST: Duration = Duration::from_millis(300);
/// A kind may have this part of its share too many before one is ended: shares move all the time.
const SLACK: u32 = 4;
/// What was taken counts half after this time.
const HALF_LIFE: Duration = Duration::from_mins(10);
/// The weight of a kind that nobody has asked for, in thousandths of a claim.
const UNUSED: u64 = 250;
/// Below it nobody has asked for the kind lately.
const FORGOTTEN: u64 = 100;
/// Of a kind that costs processor time while it waits, 1 to 3 % of a core each.
const COSTLY_AT_MOST: u32 = 4;

/// How much a kind was asked for lately, in thousandths of a claim.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Demand(u64);

impl Demand {
    pub(crate) fn asked(self) -> Self {
        Self(self.0 + 1000)
    }

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a weight, from 0 to what it was"
    )]
    pub(crate) fn after(self, time: Duration) -> Self {
        let halvings = time.as_secs_f64() / HALF_LIFE.as_secs_f64();
        Self((self.0 as f64 * (-halvings).exp2()) as u64)
    }

    pub(crate) fn is_forgotten(self) -> bool {
        self.0 < FORGOTTEN
    }
}

/// How many of each kind are to wait. What waits for free does so before anybody asks for it, the
/// others only while somebody does, and a few.
pub(crate) fn shares(
    size: u32,
    kept: &BTreeSet<Shape>,
    demand: impl Fn(&Shape) -> Demand,
) -> BTreeMap<Shape, u32> {
    let waits_for_free = |shape: &Shape| match shape.platform {
        Platform::Ptrace => true,
        Platform::Systrap => false,
    };
    let kinds = kept.iter().map(|shape| (*shape, (waits_for_free(shape), demand(shape))));
    let mut shares = apportion(size, &kinds.collect());
    for (shape, share) in &mut shares {
        if !waits_for_free(shape) {
            *share = (*share).min(COSTLY_AT_MOST);
        }
    }
    shares
}

/// How many blanks of each kind are to wait, when there are so many checkpoints to restore, and
/// lately were some of those kinds.
pub(crate) fn blank_shares<K: Ord + Copy>(
    size: u32,
    saved: &BTreeMap<K, u32>,
    lately: impl Iterator<Item = K>,
) -> BTreeMap<K, u32> {
    let mut kinds: BTreeMap<K, _> = lately.map(|kind| (kind, (false, Demand(UNUSED)))).collect();
    for (kind, count) in saved {
        kinds.insert(*kind, (false, Demand(u64::from(*count) * 1000)));
    }
    apportion(size, &kinds)
}

/// Shares the pool's size among kinds by demand, whole ones by the largest remainder. Each kind
/// comes with whether it is kept ready before anybody asks for it.
fn apportion<K: Ord + Copy>(size: u32, kinds: &BTreeMap<K, (bool, Demand)>) -> BTreeMap<K, u32> {
    let weight = |(kept, demand): (bool, Demand)| demand.0 + if kept { UNUSED } else { 0 };
    let total: u64 = kinds.values().map(|kind| weight(*kind)).sum();
    if total == 0 {
        return BTreeMap::new();
    }
    let parts = kinds.iter().map(|(kind, facts)| {
        let part = u64::from(size) * weight(*facts);
        (*kind, u32::try_from(part / total).unwrap_or(size), part % total)
    });
    let mut parts: Vec<_> = parts.collect();
    let given: u32 = parts.iter().map(|(_, share, _)| share).sum();
    parts.sort_by_key(|(kind, _, remainder)| (std::cmp::Reverse(*remainder), *kind));
    for (_, share, _) in parts.iter_mut().take((size - given) as usize) {
        *share += 1;
    }
    parts.into_iter().map(|(kind, share, _)| (kind, share)).collect()
}

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
    if ready > wanted + wanted / SLACK {
        return PoolMove::Drain(ready - wanted);
    }
    let missing = wanted.saturating_sub(ready);
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

#[cfg(test)]
mod tests {
    use sandboxo_zone_protocol::{ImageDigest, NetworkMode, Resources};

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
    fn blanks_go_to_what_there_are_checkpoints_of() {
        for (why, size, saved, lately, expected) in [
            ("nothing was ever saved", 4, &[][..], &[][..], &[][..]),
            ("one kind", 4, &[("a", 1)], &[], &[("a", 4)]),
            ("by how many there are", 4, &[("a", 3), ("b", 1)], &[], &[("a", 3), ("b", 1)]),
            ("a kind that was resumed lately", 4, &[], &["a"], &[("a", 4)]),
            ("which gives way", 4, &[("a", 9)], &["b"], &[("a", 4), ("b", 0)]),
            ("none are to wait", 0, &[("a", 1)], &["a"], &[("a", 0)]),
        ] {
            let saved = saved.iter().copied().collect();
            let shares = blank_shares(size, &saved, lately.iter().copied());
            assert_eq!(shares, expected.iter().copied().collect(), "{why}");
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
            ("a few too many", 20, 24, 0, 0, Idle),
            ("too many", 16, 24, 0, 0, Drain(8)),
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

    fn parts(size: u32, kinds: &[(bool, u64)]) -> Vec<u32> {
        let kinds = kinds.iter().map(|(kept, demand)| (*kept, Demand(*demand))).enumerate();
        apportion(size, &kinds.collect()).into_values().collect()
    }

    #[test]
    fn shares_follow_demand() {
        for (why, size, kinds, expected) in [
            ("nothing to keep", 20, &[][..], &[][..]),
            ("one image has all", 20, &[(true, 0)], &[20]),
            ("unused ones share", 20, &[(true, 0), (true, 0)], &[10, 10]),
            ("more images than places", 2, &[(true, 0), (true, 0), (true, 0)], &[1, 1, 0]),
            ("who is asked for has most", 20, &[(true, 0), (true, 4_500)], &[1, 19]),
            ("a size nobody keeps, asked for", 20, &[(true, 750), (false, 1_000)], &[10, 10]),
            ("a size nobody keeps, not asked for", 20, &[(true, 0), (false, 0)], &[20, 0]),
            ("no pool", 0, &[(true, 0), (true, 5_000)], &[0, 0]),
        ] {
            assert_eq!(parts(size, kinds), expected, "{why}");
        }
    }

    #[test]
    fn a_kind_waits_as_its_templates_are() {
        let shape = |image: u8, memory_mib, platform| Shape {
            image: ImageDigest::from_bytes([image; 32]),
            resources: Resources { vcpus: 2, memory_mib, disk_mib: 10, pids: 100 },
            platform,
            mode: NetworkMode::Full,
        };
        let (small, large) = (shape(1, 512, Platform::Ptrace), shape(1, 4096, Platform::Ptrace));
        let (systrap, gone) = (shape(1, 512, Platform::Systrap), shape(2, 512, Platform::Ptrace));
        let asked = |times: usize| (0..times).fold(Demand::default(), |it, _| it.asked());
        for (why, kept, demand, expected) in [
            ("no template", &[][..], &[][..], &[][..]),
            ("nobody asked yet", &[large], &[], &[(large, 20)]),
            ("two sizes of an image", &[small, large], &[], &[(small, 10), (large, 10)]),
            ("one is asked for", &[small, large], &[(large, 1)], &[(small, 3), (large, 17)]),
            ("a size that no template has any more", &[large], &[(small, 9)], &[(large, 20)]),
            ("an image that no template has any more", &[large], &[(gone, 9)], &[(large, 20)]),
            ("it costs to wait", &[systrap], &[], &[]),
            ("it costs, and is asked for", &[systrap], &[(systrap, 9)], &[(systrap, 4)]),
            (
                "beside one that waits for free",
                &[small, systrap],
                &[(systrap, 9)],
                &[(small, 1), (systrap, 4)],
            ),
        ] {
            let demand: BTreeMap<_, _> = demand.iter().copied().collect();
            let of = |shape: &Shape| asked(demand.get(shape).copied().unwrap_or(0));
            let shares = shares(20, &kept.iter().copied().collect(), of);
            assert_eq!(shares, expected.iter().copied().collect(), "{why}");
        }
    }

    #[test]
    fn demand_fades() {
        let ten = (0..10).fold(Demand::default(), |demand, _| demand.asked());
        assert_eq!(ten.after(HALF_LIFE), Demand(5_000));
        assert_eq!(ten.after(Duration::ZERO), ten);
        assert!(!ten.after(HALF_LIFE * 6).is_forgotten());
        assert!(ten.after(HALF_LIFE * 7).is_forgotten());
        assert!(Demand::default().is_forgotten());
    }

    /// Of each thousand creates, how many find a member: 10 images, of which one in turn is asked
    /// for, at a rate at which the host can start what is taken.
    #[test]
    fn shares_by_demand_serve_more_than_equal_ones() {
        let hits = |by_demand: bool| {
            let (images, size, pause) = (10_usize, 20_u32, Duration::from_millis(150));
            let mut demand = vec![Demand::default(); images];
            let mut ready = vec![size / 10; images];
            let mut hits = 0;
            for create in 0..1000_usize {
                // Bursts of ten, half a minute apart; the busy image changes after 250.
                let image = create / 250;
                let gap = if create % 10 == 0 { Duration::from_secs(30) } else { Duration::ZERO };
                demand = demand.into_iter().map(|demand| demand.after(gap)).collect();
                let kinds = demand.iter().map(|demand| (true, *demand)).enumerate().collect();
                let wanted = if by_demand {
                    apportion(size, &kinds).into_values().collect()
                } else {
                    vec![size / 10; images]
                };
                let mut starts = gap.as_millis() / pause.as_millis();
                for (ready, wanted) in ready.iter_mut().zip(wanted) {
                    if *ready > wanted + wanted / SLACK {
                        *ready = wanted;
                    }
                    while *ready < wanted && starts > 0 {
                        *ready += 1;
                        starts -= 1;
                    }
                }
                demand[image] = demand[image].asked();
                if ready[image] > 0 {
                    ready[image] -= 1;
                    hits += 1;
                }
            }
            hits
        };
        let (equal, shared) = (hits(false), hits(true));
        assert_eq!(equal, 200, "two of each ten");
        assert!(shared > 700, "{shared}");
    }
}
