//! What a fuzzer does with the head of a request: whose it is, and what crosses the door.

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri,
    header::{CONNECTION, HOST, UPGRADE},
    request,
};

use crate::{
    header::{Crossing, inward, outward},
    host::{self, Domains, HostRoute},
    signature::Signed,
    target::{self, Target},
};

/// A line with a domain, then an authority.
pub fn authority(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (domain, authority) = text.split_once('\n').unwrap_or(("", text));
    for domains in [Domains::default(), Domains::new([domain])] {
        let route = host::route(authority, &domains);
        assert_eq!(host::route(&authority.to_ascii_uppercase(), &domains), route);
        if let HostRoute::Port { port, id } = route {
            assert!(port > 0 && !id.is_empty() && !id.contains('.'), "{authority:?}: {id:?}");
            let again = host::route(&format!("{port}-{id}.{domain}"), &Domains::new([domain]));
            assert!(
                domain.is_empty()
                    || domain.contains(['.', '@', ':', '['])
                    || again == HostRoute::Port { port, id: id.clone() },
                "{authority:?}: {id:?}"
            );
        }
    }
}

/// A method and a target in the first line, headers in the others.
pub fn head(data: &[u8]) {
    let Some(parts) = parse(data) else { return };
    let domains = Domains::new(["sbx.localhost"]);
    for target in [target::decide(&parts, &domains), target::decide_unmatched(&parts)] {
        if let Target::DataPlane(plane) = target {
            assert!(plane.port > 0);
            assert!(plane.path.starts_with(['/', '*']), "{:?}", plane.path);
            assert!(plane.path.parse::<Uri>().is_ok(), "{:?}", plane.path);
        }
    }
    if let Some(signed) = Signed::of(&parts) {
        assert!(!signed.fits("a token that nobody signed with"));
    }
    let uri = target::path_and_query(&parts.uri);
    let crossing = Crossing {
        method: &parts.method,
        uri: &uri,
        host: target::authority(&parts.uri, &parts.headers).unwrap_or_default(),
        scheme: "http",
        peer: None,
        to_agent: uri.len().is_multiple_of(2),
        masked_host: uri.len().is_multiple_of(3).then_some("masked.example"),
        strip_api_key: true,
        strip_authorization: true,
    };
    let inside = inward(parts.headers.clone(), &crossing);
    one_hop(&inside);
    assert!(inside.get_all(HOST).iter().count() <= 1);
    for name in inside.keys().map(HeaderName::as_str) {
        let ours = name.starts_with("x-sandboxo-") || ROUTING.contains(&name);
        assert!(!ours && name != "x-api-key" && name != "authorization", "{name} crossed");
    }
    one_hop(&outward(parts.headers.clone(), StatusCode::OK));
    one_hop(&outward(parts.headers, StatusCode::SWITCHING_PROTOCOLS));
}

/// What names a sandbox, a port or a visitor to the door.
const ROUTING: [&str; 5] = [
    "e2b-sandbox-id",
    "e2b-sandbox-port",
    "e2b-traffic-access-token",
    "x-agentenv-sandbox-id",
    "x-agentenv-target-port",
];

/// Nothing that concerns the hop before, but an upgrade, which is said anew.
fn one_hop(headers: &HeaderMap) {
    for name in ["keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding"] {
        assert!(!headers.contains_key(name), "{name} crossed");
    }
    let said: Vec<_> = headers.get_all(CONNECTION).iter().collect();
    assert!(said.is_empty() || said == ["upgrade"], "{said:?}");
    assert_eq!(said.is_empty(), !headers.contains_key(UPGRADE));
}

fn parse(data: &[u8]) -> Option<request::Parts> {
    let mut lines = data.split(|byte| *byte == b'\n');
    let mut words = lines.next()?.split(|byte| *byte == b' ');
    let mut request = Request::new(());
    *request.method_mut() = Method::from_bytes(words.next()?).ok()?;
    *request.uri_mut() = Uri::try_from(words.next()?).ok()?;
    for line in lines {
        let mut sides = line.splitn(2, |byte| *byte == b':');
        let name = HeaderName::from_bytes(sides.next()?).ok()?;
        let value = HeaderValue::from_bytes(sides.next()?.trim_ascii()).ok()?;
        request.headers_mut().try_append(name, value).ok()?;
    }
    Some(request.into_parts().0)
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_finds_no_way_around_the_door() {
        replay::corpus(env!("CARGO_MANIFEST_DIR"), "host", authority);
        replay::corpus(env!("CARGO_MANIFEST_DIR"), "headers", head);
    }
}
