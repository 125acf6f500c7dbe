//! Which hosts may be asked: those of the public internet, with TLS, and those that the operator
//! names.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use http::{Uri, uri::Authority};
use sandboxo_zone_protocol::{PullError, REFUSED_ALWAYS};

/// `https://registry.lan` or `http://127.0.0.1:5000`; without a port it is any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registry {
    is_plain: bool,
    host: String,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRegistry;

impl FromStr for Registry {
    type Err = BadRegistry;

    fn from_str(text: &str) -> Result<Self, BadRegistry> {
        let (scheme, rest) = text.split_once("://").ok_or(BadRegistry)?;
        let is_plain = match scheme {
            "http" => true,
            "https" => false,
            _ => return Err(BadRegistry),
        };
        let authority: Authority = rest.parse().map_err(|_unreadable| BadRegistry)?;
        if authority.as_str().contains('@') || authority.host().is_empty() {
            return Err(BadRegistry);
        }
        let host = authority.host().to_ascii_lowercase();
        Ok(Self { is_plain, host, port: authority.port_u16() })
    }
}

impl fmt::Display for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { is_plain, host, port } = self;
        write!(f, "{}://{host}", if *is_plain { "http" } else { "https" })?;
        port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Allowed(Vec<Registry>);

impl Allowed {
    pub(crate) fn new(named: Vec<Registry>) -> Self {
        Self(named)
    }

    /// How a registry is spoken to.
    pub(crate) fn scheme(&self, authority: &Authority) -> &'static str {
        let port = authority.port_u16();
        let plain = |it: &&Registry| it.is_plain && (it.port.is_none() || it.port == port);
        match self.of(authority.host()).find(plain) {
            Some(_) => "http",
            None => "https",
        }
    }

    /// Before each request. What a name stands for is looked at when it is looked up.
    pub(crate) fn check(&self, uri: &Uri) -> Result<(), PullError> {
        let refused =
            || PullError::NotAllowed(uri.authority().map_or("", Authority::as_str).into());
        let authority = uri.authority().ok_or_else(refused)?;
        match uri.scheme_str() {
            Some("https") => {}
            Some("http") if self.scheme(authority) == "http" => {}
            _ => return Err(refused()),
        }
        let host = authority.host();
        if self.names(host) {
            let default = if uri.scheme_str() == Some("http") { 80 } else { 443 };
            let port = authority.port_u16().unwrap_or(default);
            let is_named = self.of(host).any(|it| it.port.is_none_or(|named| named == port));
            return if is_named { Ok(()) } else { Err(refused()) };
        }
        match host.trim_start_matches('[').trim_end_matches(']').parse() {
            Ok(ip) if !is_public(ip) => Err(refused()),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// The operator knows it, so it may be anywhere, though not at every port.
    pub(crate) fn names(&self, host: &str) -> bool {
        self.of(host).next().is_some()
    }

    fn of<'a>(&'a self, host: &'a str) -> impl Iterator<Item = &'a Registry> {
        self.0.iter().filter(move |it| it.host.eq_ignore_ascii_case(host))
    }
}

/// Of the whole internet, not of a network that this host happens to be in.
pub(crate) fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    !(ip.is_documentation() || REFUSED_ALWAYS.iter().any(|net| net.contains(&ip)))
}

/// Global unicast without what stands for an IPv4 address, and without examples.
fn is_public_v6(ip: Ipv6Addr) -> bool {
    let [first, second, ..] = ip.segments();
    (0x2000..0x4000).contains(&first)
        && first != 0x2002
        && !(first == 0x2001 && (second < 0x200 || second == 0xdb8))
        && !(first == 0x3fff && second < 0x1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_operator_may_name() {
        for (text, expected) in [
            ("http://127.0.0.1:5000", Ok("http://127.0.0.1:5000")),
            ("https://Registry.LAN", Ok("https://registry.lan")),
            ("registry.lan", Err(BadRegistry)),
            ("ftp://registry.lan", Err(BadRegistry)),
            ("http://user@registry.lan", Err(BadRegistry)),
            ("http://registry.lan/path", Err(BadRegistry)),
            ("http://", Err(BadRegistry)),
        ] {
            let parsed = text.parse::<Registry>().map(|it| it.to_string());
            assert_eq!(parsed, expected.map(str::to_owned), "{text}");
        }
    }

    #[test]
    fn who_is_asked_and_how() {
        let named = ["http://127.0.0.1:5000", "http://localhost", "https://10.0.0.5"];
        let allowed = Allowed::new(named.iter().map(|it| it.parse().unwrap()).collect());
        for (registry, expected) in [
            ("docker.io", "https"),
            ("127.0.0.1:5000", "http"),
            ("127.0.0.1:5001", "https"),
            ("LOCALHOST:1", "http"),
            ("10.0.0.5", "https"),
        ] {
            assert_eq!(allowed.scheme(&registry.parse().unwrap()), expected, "{registry}");
        }
        for (url, expected) in [
            ("https://example.com/v2/", true),
            ("http://example.com/v2/", false),
            ("https://1.1.1.1/v2/", true),
            ("https://169.254.169.254/latest", false),
            ("http://169.254.169.254/latest", false),
            ("http://127.0.0.1:5000/v2/", true),
            ("http://127.0.0.1:8000/v2/", false),
            ("https://127.0.0.1:8000/v2/", false),
            ("https://127.0.0.1/v2/", false),
            ("http://localhost:8000/v2/", true),
            ("https://10.0.0.5/v2/", true),
            ("http://10.0.0.5/v2/", false),
            ("https://[::1]/v2/", false),
            ("https://[::ffff:10.0.0.1]/v2/", false),
            ("/v2/", false),
        ] {
            assert_eq!(allowed.check(&url.parse().unwrap()).is_ok(), expected, "{url}");
        }
    }

    #[test]
    fn which_addresses_are_public() {
        for (ip, expected) in [
            ("8.8.8.8", true),
            ("172.32.0.1", true),
            ("192.0.1.1", true),
            ("10.1.2.3", false),
            ("172.16.0.1", false),
            ("192.168.1.1", false),
            ("100.100.0.1", false),
            ("127.0.0.1", false),
            ("169.254.169.254", false),
            ("168.63.129.16", false),
            ("0.0.0.0", false),
            ("198.18.0.1", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("2606:4700::1111", true),
            ("::1", false),
            ("::ffff:8.8.8.8", false),
            ("64:ff9b::a00:1", false),
            ("fd00::1", false),
            ("fe80::1", false),
            ("2002:a00:1::", false),
            ("2001:db8::1", false),
            ("2001::1", false),
        ] {
            assert_eq!(is_public(ip.parse().unwrap()), expected, "{ip}");
        }
    }
}
