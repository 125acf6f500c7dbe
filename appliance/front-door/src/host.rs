//! What a host name says about where a request goes. Pure: an authority and the configured domains
//! in, an answer out.
//!
//! `<port>-<sandbox id>.<domain>` is a port of a sandbox. Without a configured domain any parent
//! will do, as long as the label is one of our own ids: such a label can't mean anything else.

use sandboxo_zone_protocol::SandboxId;

/// The domains whose labels are sandboxes; each in lower case, without a final dot or a port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Domains(Vec<String>);

impl Domains {
    pub fn new<S: AsRef<str>>(domains: impl IntoIterator<Item = S>) -> Self {
        Self(domains.into_iter().map(|domain| normalize(domain.as_ref())).collect())
    }

    /// `Some("")`: the domain itself; `Some("a.b")`: what stands before it.
    fn labels_before<'h>(&self, host: &'h str) -> Option<&'h str> {
        self.0.iter().find_map(|domain| {
            let before = host.strip_suffix(domain.as_str())?;
            if before.is_empty() { Some("") } else { before.strip_suffix('.') }
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HostRoute {
    /// A port of a sandbox. The id is not known to be one; it is in lower case.
    Port { port: u16, id: String },
    /// Meant as a port of a sandbox, and isn't: what is wrong with it.
    Malformed(&'static str),
    /// A sandbox label without a port.
    SandboxAlone { id: String },
    /// A name under a configured domain that nothing answers to.
    Unknown,
    /// Not a sandbox by its name: headers and path decide.
    Elsewhere,
}

pub(crate) fn route(authority: &str, domains: &Domains) -> HostRoute {
    let host = normalize(authority);
    let Some(before) = domains.labels_before(&host) else {
        return match host.split_once('.') {
            Some((label, _parent)) => own_label(label),
            None => HostRoute::Elsewhere,
        };
    };
    match before {
        // The control plane, and the stable host of header routing.
        "" | "api" | "sandbox" => HostRoute::Elsewhere,
        nested if nested.contains('.') => HostRoute::Unknown,
        label => under_domain(label),
    }
}

/// Lower case, without userinfo, port and final dot. Brackets of an IPv6 address stay.
fn normalize(authority: &str) -> String {
    let authority = authority.rsplit_once('@').map_or(authority, |(_userinfo, rest)| rest);
    let host = match authority.rsplit_once(':') {
        Some((host, port))
            if port.bytes().all(|b| b.is_ascii_digit()) && !inside_brackets(host) =>
        {
            host
        }
        _ => authority,
    };
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

/// The colon belonged to an IPv6 address, not to a port.
fn inside_brackets(before_colon: &str) -> bool {
    before_colon.starts_with('[') && !before_colon.ends_with(']')
}

fn own_label(label: &str) -> HostRoute {
    match label.split_once('-') {
        Some((port, id)) if id.parse::<SandboxId>().is_ok() => match parse_port(port) {
            Some(port) => HostRoute::Port { port, id: id.to_owned() },
            None => HostRoute::Malformed("the host's port is not a number from 1 to 65535"),
        },
        _ => HostRoute::Elsewhere,
    }
}

fn under_domain(label: &str) -> HostRoute {
    if label.starts_with("sbx-") {
        return HostRoute::SandboxAlone { id: label.to_owned() };
    }
    let Some((port, rest)) = label.split_once('-') else { return HostRoute::Unknown };
    if port.is_empty() || !port.bytes().all(|b| b.is_ascii_digit()) {
        return HostRoute::Unknown;
    }
    let Some(port) = parse_port(port) else {
        return HostRoute::Malformed("the host's port is not a number from 1 to 65535");
    };
    match without_client(rest) {
        "" => HostRoute::Malformed("the host names no sandbox"),
        id => HostRoute::Port { port, id: id.to_owned() },
    }
}

/// Old clients write `<id>-<client id>`. Our own ids have dashes in them and are never cut.
pub(crate) fn without_client(id: &str) -> &str {
    if id.starts_with("sbx-") || id.starts_with("sbx_") {
        return id;
    }
    id.split_once('-').map_or(id, |(id, _client)| id)
}

/// From 1 to 65535, in decimal digits and nothing else.
pub(crate) fn parse_port(text: &str) -> Option<u16> {
    let digits = (1..=5).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|port| digits && *port > 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "sbx-ord-0123456789abcdefghjk";

    fn port(port: u16, id: &str) -> HostRoute {
        HostRoute::Port { port, id: id.to_owned() }
    }

    #[test]
    fn table() {
        use HostRoute::{Elsewhere, Malformed, SandboxAlone, Unknown};
        let domains = Domains::new(["SBX.localhost.", "example.com:8443"]);
        let bad_port = "the host's port is not a number from 1 to 65535";
        for (why, authority, expected) in [
            ("a port", format!("8080-{ID}.sbx.localhost"), port(8080, ID)),
            ("with a listener's port", format!("8080-{ID}.sbx.localhost:8443"), port(8080, ID)),
            (
                "upper case, final dot",
                format!("8080-{ID}.SBX.Localhost.:1").to_uppercase(),
                port(8080, ID),
            ),
            ("the second domain", format!("1-{ID}.example.com"), port(1, ID)),
            ("an unknown id", "8080-nosuch.example.com".to_owned(), port(8080, "nosuch")),
            ("a client id is cut", "8080-iabc-0123.example.com".to_owned(), port(8080, "iabc")),
            ("no sandbox", "8080-.example.com".to_owned(), Malformed("the host names no sandbox")),
            ("port 0", format!("0-{ID}.example.com"), Malformed(bad_port)),
            ("port too large", format!("65536-{ID}.example.com"), Malformed(bad_port)),
            ("no port", format!("{ID}.example.com"), SandboxAlone { id: ID.to_owned() }),
            ("an app", "my-app.example.com".to_owned(), Unknown),
            ("a single word", "app.example.com".to_owned(), Unknown),
            ("nested", format!("8080-{ID}.x.example.com"), Unknown),
            ("the domain", "example.com:8443".to_owned(), Elsewhere),
            ("the API", "api.example.com".to_owned(), Elsewhere),
            ("the stable host", "sandbox.example.com".to_owned(), Elsewhere),
            ("no label boundary", "8080-xexample.com".to_owned(), Elsewhere),
            ("localhost", "localhost:3000".to_owned(), Elsewhere),
            ("IPv4", "127.0.0.1:3000".to_owned(), Elsewhere),
            ("IPv6", "[::1]:3000".to_owned(), Elsewhere),
            ("IPv6 without a port", "[2001:db8::1]".to_owned(), Elsewhere),
            ("nothing", String::new(), Elsewhere),
            ("our own id anywhere", format!("8080-{ID}.anything.test"), port(8080, ID)),
            ("our own id, bad port", format!("0-{ID}.localhost"), Malformed(bad_port)),
            ("a foreign id anywhere", "8080-nosuch.localhost".to_owned(), Elsewhere),
            ("userinfo", format!("u@8080-{ID}.example.com"), port(8080, ID)),
        ] {
            assert_eq!(route(&authority, &domains), expected, "{why}: {authority}");
        }
    }

    #[test]
    fn ports() {
        for (text, expected) in [
            ("1", Some(1)),
            ("65535", Some(65535)),
            ("08080", Some(8080)),
            ("0", None),
            ("65536", None),
            ("+80", None),
            (" 80", None),
            ("", None),
            ("000080", None),
        ] {
            assert_eq!(parse_port(text), expected, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn a_label_made_by_a_client_is_read_back(
            wanted in 1_u16..,
            tail in "[0-9a-hjkmnp-z]{20}",
            domain in "[a-z]{1,8}(\\.[a-z]{1,8}){0,2}",
            listener in proptest::option::of(1_u16..),
            configured in any::<bool>(),
        ) {
            let id = format!("sbx-ord-{tail}");
            let listener = listener.map(|port| format!(":{port}")).unwrap_or_default();
            let host = format!("{wanted}-{id}.{domain}{listener}");
            let domains = Domains::new(configured.then_some(&domain));
            prop_assert_eq!(route(&host, &domains), port(wanted, &id));
            prop_assert_eq!(route(&host.to_uppercase(), &domains), port(wanted, &id));
        }

        #[test]
        fn any_text_has_an_answer(authority in ".{0,80}") {
            let domains = Domains::new(["example.com"]);
            if let HostRoute::Port { port, id } = route(&authority, &domains) {
                prop_assert!(port > 0 && !id.is_empty());
            }
        }
    }
}
