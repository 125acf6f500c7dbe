//! From what a client said about egress to what a zone enforces.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use sandboxo_zone_protocol::{NetworkMode, NetworkPolicy};

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
    #[error("{0:?} is not an IP address or CIDR; domains are not supported")]
    AllowNotAddress(String),
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
        let allow = addresses(allow_out, NetworkError::AllowNotAddress)?;
        let mut deny = addresses(deny_out, NetworkError::DenyNotAddress)?;
        if internet == Some(false) {
            deny.push(IpNet::V4(Ipv4Net::default()));
        }
        // The client thinks in IPv4: everything is everything.
        if deny.contains(&IpNet::V4(Ipv4Net::default())) {
            deny.push(IpNet::V6(Ipv6Net::default()));
        }
        deny.sort_unstable();
        deny.dedup();
        Ok(NetworkPolicy { mode: NetworkMode::Full, allow, deny })
    }
}

fn addresses(
    list: &[String],
    error: fn(String) -> NetworkError,
) -> Result<Vec<IpNet>, NetworkError> {
    let mut nets = list
        .iter()
        .map(|item| {
            let net = item.parse::<IpNet>().or_else(|_| item.parse::<IpAddr>().map(IpNet::from));
            net.map(|net| net.trunc()).map_err(|_not_an_address| error(item.clone()))
        })
        .collect::<Result<Vec<_>, _>>()?;
    nets.sort_unstable();
    nets.dedup();
    Ok(nets)
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
            ("a name to allow", "*.b", "", None, Err(NetworkError::AllowNotAddress("*.b".into()))),
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
            let print = |nets: Vec<IpNet>| {
                nets.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
            };
            let policy = NetworkAsked::policy(Some(&asked), internet);
            assert_eq!(policy.map(|p| (print(p.allow), print(p.deny))), expected, "{why}");
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
