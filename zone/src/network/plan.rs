//! Names and addresses: everything follows from the instance, a pool and a number.
//!
//! The pool is a /16 in blocks of four addresses. Block 0 holds the forwarder's address, block 1
//! the uplink, each later one a sandbox: its gateway is the second address, it has the third.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

const FIRST: u32 = 2;
const BLOCKS: u32 = 1 << 14;
const PREFIX: &str = "sbxo-";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    instance: String,
    pool: Ipv4Net,
}

impl Plan {
    pub(super) fn new(instance: &str, pool: Ipv4Net) -> Self {
        Self { instance: instance.to_owned(), pool: pool.trunc() }
    }

    /// The plan of a zone namespace that has this forwarder's address.
    pub(super) fn of_forwarder(instance: &str, forwarder: Ipv4Addr) -> Option<Self> {
        let plan = Self::new(instance, Ipv4Net::new(forwarder, 16).ok()?);
        (plan.forwarder() == forwarder).then_some(plan)
    }

    pub(super) fn instance(&self) -> &str {
        &self.instance
    }

    /// The one name of all that there is one of: zone namespace, uplink and tables.
    pub(super) fn name(&self) -> String {
        name(&self.instance)
    }

    pub(super) fn namespace(&self, number: u32) -> String {
        format!("{PREFIX}{}-{number}", self.instance)
    }

    pub(super) fn link(number: u32) -> String {
        format!("sb{number}")
    }

    pub(super) fn link_number(link: &str) -> Option<u32> {
        number(link.strip_prefix("sb")?)
    }

    pub(super) fn forwarder(&self) -> Ipv4Addr {
        self.at(0, 1)
    }

    pub(super) fn uplink_host(&self) -> Ipv4Net {
        block(self.at(1, 1))
    }

    pub(super) fn uplink_zone(&self) -> Ipv4Net {
        block(self.at(1, 2))
    }

    pub(super) fn gateway(&self, number: u32) -> Ipv4Net {
        block(self.at(number, 1))
    }

    pub(super) fn guest(&self, number: u32) -> Ipv4Net {
        block(self.at(number, 2))
    }

    fn at(&self, number: u32, host: u32) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.pool.addr()) + (number % BLOCKS) * 4 + host)
    }
}

pub(super) fn name(instance: &str) -> String {
    format!("{PREFIX}{instance}")
}

/// The number of a sandbox's namespace of this instance.
pub(super) fn namespace_number(instance: &str, namespace: &str) -> Option<u32> {
    number(namespace.strip_prefix(PREFIX)?.strip_prefix(instance)?.strip_prefix('-')?)
}

pub(super) fn numbers() -> std::ops::Range<u32> {
    FIRST..BLOCKS
}

fn number(text: &str) -> Option<u32> {
    let number: u32 = text.parse().ok()?;
    // One spelling for each number, so that a name is found again.
    (numbers().contains(&number) && number.to_string() == text).then_some(number)
}

fn block(address: Ipv4Addr) -> Ipv4Net {
    Ipv4Net::new_assert(address, 30)
}

/// A pool that overlaps nothing in `busy`. The search starts at another place for each instance,
/// so that two of them on one host seldom meet.
pub(super) fn choose_pool(instance: &str, busy: &[Ipv4Net]) -> Option<Ipv4Net> {
    let start = instance.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31) + u32::from(byte));
    let ranges = [(10, 0, 256), (172, 16, 16), (198, 18, 2), (100, 64, 64), (192, 168, 1)];
    ranges
        .into_iter()
        .flat_map(|(first, second, count): (u8, u8, u32)| {
            (0..count).map(move |i| (first, u32::from(second) + (start % count + i) % count))
        })
        .filter_map(|(first, second)| {
            let second = u8::try_from(second).ok()?;
            Ipv4Net::new(Ipv4Addr::new(first, second, 0, 0), 16).ok()
        })
        .find(|pool| {
            busy.iter()
                // The default route is everywhere and says nothing.
                .filter(|net| net.prefix_len() > 0)
                .all(|net| !net.contains(pool) && !pool.contains(net))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sandboxo_zone_protocol::REFUSED_ALWAYS;

    fn net(text: &str) -> Ipv4Net {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_follow_from_the_number() {
        let plan = Plan::new("a1b2c3", net("10.7.0.0/16"));
        assert_eq!(plan.forwarder(), Ipv4Addr::new(10, 7, 0, 1));
        assert_eq!(plan.uplink_host(), net("10.7.0.5/30"));
        assert_eq!(plan.uplink_zone(), net("10.7.0.6/30"));
        assert_eq!(plan.gateway(2), net("10.7.0.9/30"));
        assert_eq!(plan.guest(2), net("10.7.0.10/30"));
        assert_eq!(plan.guest(numbers().end - 1), net("10.7.255.254/30"));
        assert_eq!(plan.namespace(2), "sbxo-a1b2c3-2");
        assert_eq!(Plan::of_forwarder("a1b2c3", plan.forwarder()), Some(plan));
        assert_eq!(Plan::of_forwarder("a1b2c3", Ipv4Addr::new(10, 7, 0, 2)), None);
    }

    #[test]
    fn names_are_read_back() {
        for (namespace, number) in [
            ("sbxo-a1b2c3-2", Some(2)),
            ("sbxo-a1b2c3-16383", Some(16383)),
            ("sbxo-a1b2c3-16384", None),
            ("sbxo-a1b2c3-1", None),
            ("sbxo-a1b2c3-02", None),
            ("sbxo-a1b2c3-+2", None),
            ("sbxo-a1b2c3", None),
            ("sbxo-a1b2c", None),
            ("sbxo-ffffff-2", None),
            ("other", None),
        ] {
            assert_eq!(namespace_number("a1b2c3", namespace), number, "{namespace}");
        }
        assert_eq!(Plan::link_number(&Plan::link(77)), Some(77));
        assert!(Plan::link(numbers().end - 1).len() <= 15 && name("a1b2c3").len() <= 15);
    }

    #[test]
    fn a_pool_keeps_clear_of_what_the_host_knows() {
        let all_of_ten = [net("0.0.0.0/0"), net("10.0.0.0/8")];
        for (why, busy, inside) in [
            ("nothing known", &[][..], "10.0.0.0/8"),
            ("a default route says nothing", &[net("0.0.0.0/0")][..], "10.0.0.0/8"),
            ("all of ten is somebody's", &all_of_ten[..], "172.16.0.0/12"),
        ] {
            let pool = choose_pool("a1b2c3", busy).unwrap();
            assert!(net(inside).contains(&pool), "{why}: {pool}");
        }
        let first = choose_pool("a1b2c3", &[]).unwrap();
        // Another instance's uplink is enough to see it.
        let taken = Plan::new("a1b2c3", first).uplink_host();
        let second = choose_pool("a1b2c3", &[taken]).unwrap();
        assert_ne!(first, second);
        assert_eq!(choose_pool("a1b2c3", &[net("0.0.0.0/1"), net("128.0.0.0/1")]), None);
    }

    #[test]
    fn every_pool_is_refused_to_sandboxes() {
        let mut busy = Vec::new();
        while let Some(pool) = choose_pool("a1b2c3", &busy) {
            assert!(REFUSED_ALWAYS.iter().any(|refused| refused.contains(&pool)), "{pool}");
            busy.push(pool);
        }
        assert_eq!(busy.len(), 256 + 16 + 2 + 64 + 1);
    }
}
