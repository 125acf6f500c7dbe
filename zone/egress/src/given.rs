//! Which addresses a sandbox was told of which name. No I/O.

use std::{collections::HashMap, net::Ipv4Addr};

use sandboxo_zone_protocol::HostName;

/// Far more than programs use at a time; what is forgotten is asked for again.
const NAMES: usize = 1024;
/// Of one name. Those that change their addresses with every answer have some hundred.
const ADDRESSES: usize = 256;

/// Not bounded by time: programs keep what they were told for longer than they should.
#[derive(Debug, Default)]
pub(crate) struct Given {
    names: HashMap<HostName, Told>,
    answers: u64,
}

#[derive(Debug, Default)]
struct Told {
    latest: u64,
    /// The latest are at the end.
    addresses: Vec<Ipv4Addr>,
}

impl Given {
    pub(crate) fn note(&mut self, name: &HostName, addresses: &[Ipv4Addr]) {
        if addresses.is_empty() {
            return;
        }
        self.answers += 1;
        if self.names.len() >= NAMES && !self.names.contains_key(name) {
            let oldest = self.names.iter().min_by_key(|(_, told)| told.latest);
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                self.names.remove(&oldest);
            }
        }
        let told = self.names.entry(name.clone()).or_default();
        told.latest = self.answers;
        told.addresses.retain(|it| !addresses.contains(it));
        told.addresses.extend(addresses);
        let excess = told.addresses.len().saturating_sub(ADDRESSES);
        told.addresses.drain(..excess);
    }

    pub(crate) fn is_of(&self, address: Ipv4Addr, name: &HostName) -> bool {
        self.names.get(name).is_some_and(|told| told.addresses.contains(&address))
    }

    pub(crate) fn knows(&self, address: Ipv4Addr) -> bool {
        self.names.values().any(|told| told.addresses.contains(&address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: usize) -> Ipv4Addr {
        Ipv4Addr::from(u32::try_from(number).unwrap())
    }

    #[test]
    fn an_address_is_of_the_names_it_was_told_for() {
        let (one, two): (HostName, HostName) = ("a.b".parse().unwrap(), "c.d".parse().unwrap());
        let mut given = Given::default();
        given.note(&one, &[address(1), address(2)]);
        given.note(&two, &[address(3)]);
        given.note(&one, &[address(4)]);
        given.note(&two, &[]);
        for (number, of_one, of_two) in [
            (1, true, false),
            (2, true, false),
            (3, false, true),
            (4, true, false),
            (5, false, false),
        ] {
            assert_eq!(given.is_of(address(number), &one), of_one, "{number}");
            assert_eq!(given.is_of(address(number), &two), of_two, "{number}");
            assert_eq!(given.knows(address(number)), of_one || of_two, "{number}");
        }
    }

    #[test]
    fn the_oldest_is_forgotten_first() {
        let name = |number: usize| -> HostName { format!("n{number}.x").parse().unwrap() };
        let mut given = Given::default();
        for number in 0..NAMES {
            given.note(&name(number), &[address(number)]);
        }
        given.note(&name(0), &[address(0)]);
        given.note(&name(NAMES), &[address(NAMES)]);
        assert!(given.is_of(address(0), &name(0)));
        assert!(!given.is_of(address(1), &name(1)));
        assert!(given.is_of(address(NAMES), &name(NAMES)));
        assert_eq!(given.names.len(), NAMES);

        let many: Vec<Ipv4Addr> = (0..=ADDRESSES).map(address).collect();
        given.note(&name(0), &many);
        assert!(!given.is_of(address(0), &name(0)) && given.is_of(address(1), &name(0)));
    }
}
