//! What of a connection's own words allows it. Values in, a verdict out.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use sandboxo_zone_protocol::{HostName, NetworkMode, NetworkPolicy, REFUSED_ALWAYS};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Whatever it says.
    Allowed,
    /// If the address is one of that name's.
    AllowedAsNamed,
    Refused,
}

/// `name`: whom it wants at that address, by its own words.
pub(crate) fn judge(policy: &NetworkPolicy, address: Ipv4Addr, name: Option<&HostName>) -> Verdict {
    let is_in = |nets: &[IpNet]| nets.iter().any(|net| net.contains(&IpAddr::V4(address)));
    let is_near = REFUSED_ALWAYS.iter().any(|net| net.contains(&address));
    if policy.mode == NetworkMode::None || is_near {
        Verdict::Refused
    } else if is_in(&policy.allow) {
        Verdict::Allowed
    } else if name.is_some_and(|name| is_named(policy, name)) {
        Verdict::AllowedAsNamed
    } else if is_in(&policy.deny) {
        Verdict::Refused
    } else {
        Verdict::Allowed
    }
}

/// Whether the policy allows the name, wherever it is.
pub(crate) fn is_named(policy: &NetworkPolicy, name: &HostName) -> bool {
    policy.names.iter().any(|pattern| pattern.matches(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(allow: &str, deny: &str, names: &str) -> NetworkPolicy {
        let nets = |text: &str| text.split_whitespace().map(|it| it.parse().unwrap()).collect();
        let names = names.split_whitespace().map(|it| it.parse().unwrap()).collect();
        NetworkPolicy { allow: nets(allow), deny: nets(deny), names, ..NetworkPolicy::OPEN }
    }

    #[test]
    fn allow_beats_deny_beats_the_default() {
        use Verdict::{Allowed, AllowedAsNamed, Refused};

        let named = policy("", "0.0.0.0/0", "example.com *.example.org");
        let mixed = policy("203.0.113.9/32", "0.0.0.0/0", "example.com");
        let open = policy("", "203.0.113.9/32", "");
        let none = NetworkPolicy { mode: NetworkMode::None, ..named.clone() };
        for (why, policy, address, name, expected) in [
            ("an allowed name", &named, "203.0.113.7", "example.com", AllowedAsNamed),
            ("a name below", &named, "203.0.113.7", "a.b.example.org", AllowedAsNamed),
            ("the name above", &named, "203.0.113.7", "example.org", Refused),
            ("another name", &named, "203.0.113.7", "evil.example", Refused),
            ("no name", &named, "203.0.113.7", "", Refused),
            ("a name that leads inside", &named, "10.0.0.1", "example.com", Refused),
            ("a name that leads to metadata", &named, "169.254.169.254", "example.com", Refused),
            ("an allowed address", &mixed, "203.0.113.9", "", Allowed),
            ("an allowed address, another name", &mixed, "203.0.113.9", "evil.example", Allowed),
            ("both", &mixed, "203.0.113.7", "example.com", AllowedAsNamed),
            ("neither", &mixed, "203.0.113.8", "", Refused),
            ("no names, denied", &open, "203.0.113.9", "example.com", Refused),
            ("no names, not denied", &open, "203.0.113.7", "", Allowed),
            ("no network", &none, "203.0.113.7", "example.com", Refused),
        ] {
            let name = (!name.is_empty()).then(|| name.parse().unwrap());
            let address = address.parse().unwrap();
            assert_eq!(judge(policy, address, name.as_ref()), expected, "{why}");
        }
    }
}
