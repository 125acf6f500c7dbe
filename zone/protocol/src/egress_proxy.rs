//! The SOCKS5 server that a sandbox's connections leave by.

use std::{fmt, net::Ipv4Addr, num::NonZeroU16, str::FromStr};

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use crate::{HostName, NotHostName, REFUSED_ALWAYS};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressProxy {
    pub address: ProxyAddress,
    /// `None`: it asks nobody who he is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<ProxyLogin>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProxyLogin {
    pub username: String,
    /// Whoever is the [`Vault`](crate::Vault) can open it.
    pub password: Sealed,
}

/// A text that only whoever sealed it can read. It is in records and on a zone's disk, and tells
/// nothing there.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sealed(String);

impl Sealed {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealed(…)")
    }
}

/// `host:port`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ProxyAddress {
    pub host: ProxyHost,
    pub port: NonZeroU16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProxyHost {
    Address(Ipv4Addr),
    /// Asked for at each connection.
    Name(HostName),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a name or IPv4 address with a port, such as proxy.example.com:1080")]
pub struct NotAProxyAddress;

/// Whether a proxy may be there: on the public internet, or in a network that the operator allows.
/// The host's own addresses are the zone's to refuse.
pub fn may_be_proxy(address: Ipv4Addr, allowed: &[Ipv4Net]) -> bool {
    let is_in = |nets: &[Ipv4Net]| nets.iter().any(|net| net.contains(&address));
    is_in(allowed) || !is_in(&REFUSED_ALWAYS)
}

impl FromStr for ProxyAddress {
    type Err = NotAProxyAddress;

    fn from_str(text: &str) -> Result<Self, NotAProxyAddress> {
        let (host, port) = text.rsplit_once(':').ok_or(NotAProxyAddress)?;
        let host = match host.parse() {
            Ok(address) => ProxyHost::Address(address),
            Err(_not_an_address) => {
                ProxyHost::Name(host.parse().map_err(|NotHostName| NotAProxyAddress)?)
            }
        };
        // "+80" is a number to the parser, and to nobody else.
        if !port.bytes().all(|it| it.is_ascii_digit()) {
            return Err(NotAProxyAddress);
        }
        let port = port.parse().map_err(|_not_a_port| NotAProxyAddress)?;
        Ok(Self { host, port })
    }
}

impl fmt::Display for ProxyAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        match host {
            ProxyHost::Address(address) => write!(f, "{address}:{port}"),
            ProxyHost::Name(name) => write!(f, "{name}:{port}"),
        }
    }
}

impl TryFrom<String> for ProxyAddress {
    type Error = NotAProxyAddress;

    fn try_from(text: String) -> Result<Self, NotAProxyAddress> {
        text.parse()
    }
}

impl From<ProxyAddress> for String {
    fn from(address: ProxyAddress) -> Self {
        address.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_an_address() {
        for (text, expected) in [
            ("proxy.example.com:1080", Some("proxy.example.com:1080")),
            ("Proxy.Example.com.:1080", Some("proxy.example.com:1080")),
            ("203.0.113.5:1", Some("203.0.113.5:1")),
            ("proxy:65535", Some("proxy:65535")),
            ("", None),
            ("proxy.example.com", None),
            (":1080", None),
            ("proxy:", None),
            ("proxy:0", None),
            ("proxy:65536", None),
            ("proxy:-1", None),
            ("proxy:+1", None),
            ("proxy:ssh", None),
            ("[2001:db8::1]:1080", None),
            ("2001:db8::1", None),
            ("1.2.3:1080", None),
            ("0x7f000001:1080", None),
            ("me@proxy:1080", None),
            ("socks5://proxy:1080", None),
            ("a b:1080", None),
        ] {
            let read = text.parse::<ProxyAddress>().ok().map(|it| it.to_string());
            assert_eq!(read.as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn where_a_proxy_may_be() {
        let allowed = ["10.9.0.0/16".parse().unwrap(), "127.0.0.1/32".parse().unwrap()];
        for (address, by_default, where_allowed) in [
            ("203.0.113.5", true, true),
            ("10.9.1.2", false, true),
            ("10.8.1.2", false, false),
            ("127.0.0.1", false, true),
            ("127.0.0.2", false, false),
            ("0.0.0.0", false, false),
            ("169.254.169.254", false, false),
            ("168.63.129.16", false, false),
            ("192.168.1.1", false, false),
            ("224.0.0.1", false, false),
        ] {
            let address = address.parse().unwrap();
            assert_eq!(may_be_proxy(address, &[]), by_default, "{address}");
            assert_eq!(may_be_proxy(address, &allowed), where_allowed, "{address}");
        }
    }

    #[test]
    fn what_is_sealed_prints_nothing() {
        let login = ProxyLogin { username: "me".into(), password: Sealed::new("c2VhbGVk") };
        let proxy = EgressProxy { address: "a:1".parse().unwrap(), login: Some(login) };
        assert!(!format!("{proxy:?}").contains("c2VhbGVk"));
    }
}
