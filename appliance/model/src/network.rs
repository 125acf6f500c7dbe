//! From what a client said about egress to what a zone enforces.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use sandboxo_zone_protocol::{NamePattern, NetworkMode, NetworkPolicy};

/// As given by the client, to be shown again as it was. `None` where it said nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NetworkAsked {
    pub allow_out: Option<Vec<String>>,
    pub deny_out: Option<Vec<String>>,
    pub allow_public_traffic: Option<bool>,
    pub mask_request_host: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    #[error("{0:?} is not an IP address or CIDR")]
    DenyNotAddress(String),
    #[error("{0:?} is neither an IP address or CIDR nor a domain or *.domain")]
    AllowNotKnown(String),
    /// In the words of E2B's own server.
    #[error(
        "When specifying allowed domains in allow out, you must include 'ALL_TRAFFIC' in deny out \
         to block all other traffic."
    )]
    NamesNeedDenyAll,
    #[error("more than {} entries", NetworkAsked::MAX_ENTRIES)]
    TooMany,
}

impl NetworkAsked {
    pub const MAX_ENTRIES: usize = 256;

    /// What the zone enforces. `internet` is `allow_internet_access`: `Some(false)` denies
    /// everything that is not allowed by name.
    pub fn policy(
        asked: Option<&Self>,
        internet: Option<bool>,
    ) -> Result<NetworkPolicy, NetworkError> {
        let list = |of: fn(&Self) -> &Option<Vec<String>>| {
            asked.and_then(|asked| of(asked).as_deref()).unwrap_or_default()
        };
        let (allow_out, deny_out) = (list(|asked| &asked.allow_out), list(|asked| &asked.deny_out));
        if allow_out.len().max(deny_out.len()) > Self::MAX_ENTRIES {
            return Err(NetworkError::TooMany);
        }
        let (mut allow, mut names) = (Vec::new(), Vec::new());
        for item in allow_out {
            match address(item) {
                Some(net) => allow.push(net),
                None => names.push(name(item)?),
            }
        }
        let deny = deny_out.iter();
        let mut deny = deny
            .map(|item| address(item).ok_or_else(|| NetworkError::DenyNotAddress(item.clone())))
            .collect::<Result<Vec<_>, _>>()?;
        if internet == Some(false) {
            deny.push(IpNet::V4(Ipv4Net::default()));
        }
        // The client thinks in IPv4: everything is everything.
        if deny.contains(&IpNet::V4(Ipv4Net::default())) {
            deny.push(IpNet::V6(Ipv6Net::default()));
        } else if !names.is_empty() {
            return Err(NetworkError::NamesNeedDenyAll);
        }
        for nets in [&mut allow, &mut deny] {
            nets.sort_unstable();
            nets.dedup();
        }
        names.sort_unstable();
        names.dedup();
        Ok(NetworkPolicy { mode: NetworkMode::Full, allow, deny, names })
    }
}

fn address(item: &str) -> Option<IpNet> {
    let net = item.parse::<IpNet>().or_else(|_| item.parse::<IpAddr>().map(IpNet::from));
    net.map(|net| net.trunc()).ok()
}

/// In ASCII, as DNS and TLS have it.
fn name(item: &str) -> Result<NamePattern, NetworkError> {
    let wrong = || NetworkError::AllowNotKnown(item.to_owned());
    let (wildcard, name) = item.strip_prefix("*.").map_or(("", item), |rest| ("*.", rest));
    if name == "*" && wildcard.is_empty() {
        return Ok(NamePattern::Any);
    }
    let name = idna::domain_to_ascii(name).map_err(|_not_a_name| wrong())?;
    format!("{wildcard}{name}").parse().map_err(|_not_a_name| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        let ok = |allow: &str, deny: &str| Ok((allow.to_owned(), deny.to_owned()));
        for (why, allow, deny, internet, expected) in [
            ("nothing said", "", "", None, ok("", "")),
            ("internet said aloud", "", "", Some(true), ok("", "")),
            ("no internet", "", "", Some(false), ok("", "0.0.0.0/0 ::/0")),
            ("no internet but one", "1.1.1.1", "", Some(false), ok("1.1.1.1/32", "0.0.0.0/0 ::/0")),
            ("an address", "", "8.8.8.8", None, ok("", "8.8.8.8/32")),
            ("host bits are cut", "", "10.1.2.3/8", None, ok("", "10.0.0.0/8")),
            ("v6", "2001:db8::1", "", None, ok("2001:db8::1/128", "")),
            ("said twice", "", "8.8.8.8 8.8.8.8/32", None, ok("", "8.8.8.8/32")),
            ("all", "", "0.0.0.0/0", None, ok("", "0.0.0.0/0 ::/0")),
            ("a name to deny", "", "a.b", None, Err(NetworkError::DenyNotAddress("a.b".into()))),
            ("a name to allow", "*.b", "", None, Err(NetworkError::NamesNeedDenyAll)),
            (
                "a name and two halves",
                "b",
                "0.0.0.0/1 128.0.0.0/1",
                None,
                Err(NetworkError::NamesNeedDenyAll),
            ),
            ("a name, no internet else", "A.b.", "", Some(false), ok("a.b", "0.0.0.0/0 ::/0")),
            (
                "names",
                "*.b 1.1.1.1 b b",
                "0.0.0.0/0",
                None,
                ok("1.1.1.1/32 b *.b", "0.0.0.0/0 ::/0"),
            ),
            ("any name", "*", "0.0.0.0/0", None, ok("*", "0.0.0.0/0 ::/0")),
            (
                "in another script",
                "*.BÜCHER.example",
                "0.0.0.0/0",
                None,
                ok("*.xn--bcher-kva.example", "0.0.0.0/0 ::/0"),
            ),
            (
                "not a name",
                "a_b/c",
                "0.0.0.0/0",
                None,
                Err(NetworkError::AllowNotKnown("a_b/c".into())),
            ),
            (
                "a star inside",
                "a.*.b",
                "0.0.0.0/0",
                None,
                Err(NetworkError::AllowNotKnown("a.*.b".into())),
            ),
            (
                "half an address",
                "1.1.1",
                "0.0.0.0/0",
                None,
                Err(NetworkError::AllowNotKnown("1.1.1".into())),
            ),
            (
                "33 bits",
                "",
                "1.1.1.1/33",
                None,
                Err(NetworkError::DenyNotAddress("1.1.1.1/33".into())),
            ),
        ] {
            let list = |text: &str| Some(text.split_whitespace().map(str::to_owned).collect());
            let asked = NetworkAsked {
                allow_out: list(allow),
                deny_out: list(deny),
                ..NetworkAsked::default()
            };
            let text = |nets: &[IpNet]| nets.iter().map(ToString::to_string).collect::<Vec<_>>();
            let policy = NetworkAsked::policy(Some(&asked), internet);
            let print = |policy: NetworkPolicy| {
                let names = policy.names.iter().map(ToString::to_string);
                let allow: Vec<_> = text(&policy.allow).into_iter().chain(names).collect();
                (allow.join(" "), text(&policy.deny).join(" "))
            };
            assert_eq!(policy.map(print), expected, "{why}");
        }
        assert_eq!(NetworkAsked::policy(None, None), Ok(NetworkPolicy::OPEN));
    }

    #[test]
    fn too_many() {
        let asked = NetworkAsked {
            deny_out: Some(vec!["8.8.8.8".to_owned(); 257]),
            ..NetworkAsked::default()
        };
        assert_eq!(NetworkAsked::policy(Some(&asked), None), Err(NetworkError::TooMany));
    }
}
