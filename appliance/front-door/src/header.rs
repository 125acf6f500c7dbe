//! Which headers cross the door, and which the door adds. Pure.
//!
//! What concerns one hop ends here, both ways; so do routing headers and credentials of the
//! platform. The program inside learns the original host, scheme, method and path.

use std::net::IpAddr;

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
    header::{
        AUTHORIZATION, CONNECTION, CONTENT_LENGTH, EXPECT, FORWARDED, HOST, PROXY_AUTHENTICATE,
        PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
    },
};

use crate::target::{AGENTENV_SANDBOX_ID, AGENTENV_TARGET_PORT, E2B_SANDBOX_ID, E2B_SANDBOX_PORT};

pub(crate) const TRAFFIC_TOKEN: HeaderName = HeaderName::from_static("e2b-traffic-access-token");
pub(crate) const AGENT_TOKEN: HeaderName = HeaderName::from_static("x-access-token");
pub(crate) const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Facts about the request that its own headers don't carry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Crossing<'r> {
    pub method: &'r Method,
    /// As the client sent it, path and query.
    pub uri: &'r str,
    pub host: &'r str,
    pub scheme: &'static str,
    pub peer: Option<IpAddr>,
    pub to_agent: bool,
    /// What the program inside is to see as `Host` instead, already filled in.
    pub masked_host: Option<&'r str>,
    /// The value of `X-API-Key` is one of ours.
    pub strip_api_key: bool,
    /// The bearer token is one of ours.
    pub strip_authorization: bool,
}

/// The headers for the program inside.
pub(crate) fn inward(mut headers: HeaderMap, crossing: &Crossing<'_>) -> HeaderMap {
    let upgrade = upgrade_of(&headers);
    strip_hop_by_hop(&mut headers);
    let ours: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().starts_with("x-sandboxo-")).cloned().collect();
    for name in ours {
        headers.remove(name);
    }
    for name in [
        E2B_SANDBOX_ID,
        E2B_SANDBOX_PORT,
        AGENTENV_SANDBOX_ID,
        AGENTENV_TARGET_PORT,
        TRAFFIC_TOKEN,
        // The server half of this hop has answered it.
        EXPECT,
        FORWARDED,
    ] {
        headers.remove(name);
    }
    if !crossing.to_agent {
        headers.remove(AGENT_TOKEN);
    }
    if crossing.strip_api_key {
        headers.remove(API_KEY);
    }
    if crossing.strip_authorization {
        headers.remove(AUTHORIZATION);
    }
    if let Some(protocol) = upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, protocol);
    }
    let host = crossing.masked_host.filter(|_| !crossing.to_agent).unwrap_or(crossing.host);
    set(&mut headers, HOST, host);
    set(&mut headers, HeaderName::from_static("x-forwarded-host"), crossing.host);
    set(&mut headers, HeaderName::from_static("x-forwarded-proto"), crossing.scheme);
    set(&mut headers, HeaderName::from_static("x-forwarded-method"), crossing.method.as_str());
    set(&mut headers, HeaderName::from_static("x-forwarded-uri"), crossing.uri);
    for name in ["x-forwarded-for", "x-real-ip"] {
        let name = HeaderName::from_static(name);
        headers.remove(&name);
        if let Some(peer) = crossing.peer {
            set(&mut headers, name, &peer.to_canonical().to_string());
        }
    }
    headers
}

/// The headers of an answer, for the client. A switch of protocols keeps the two that announce it.
pub(crate) fn outward(mut headers: HeaderMap, status: StatusCode) -> HeaderMap {
    let upgrade =
        (status == StatusCode::SWITCHING_PROTOCOLS).then(|| upgrade_of(&headers)).flatten();
    strip_hop_by_hop(&mut headers);
    if let Some(protocol) = upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, protocol);
    }
    headers
}

/// The protocol that is asked for, if `Connection` says that it is meant.
pub(crate) fn upgrade_of(headers: &HeaderMap) -> Option<HeaderValue> {
    nominated(headers).any(|name| name == UPGRADE).then(|| headers.get(UPGRADE).cloned()).flatten()
}

fn strip_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(TRANSFER_ENCODING) {
        // The chunks have told the length. Passed on alone, a second one would cut the body.
        headers.remove(CONTENT_LENGTH);
    }
    let nominated: Vec<HeaderName> = nominated(headers).collect();
    for name in nominated.into_iter().chain(HOP_BY_HOP) {
        headers.remove(name);
    }
}

fn nominated(headers: &HeaderMap) -> impl Iterator<Item = HeaderName> + '_ {
    headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::try_from(name.trim()).ok())
}

/// What isn't a header's value can't have come in as one, so it is only left out.
fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    } else {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in list {
            map.append(HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        map
    }

    const CROSSING: Crossing<'_> = Crossing {
        method: &Method::PUT,
        uri: "/a%20b?c=%2F",
        host: "8080-x.example.com:8443",
        scheme: "http",
        peer: Some(IpAddr::V4(std::net::Ipv4Addr::new(10, 1, 2, 3))),
        to_agent: false,
        masked_host: None,
        strip_api_key: false,
        strip_authorization: false,
    };

    /// Without the ones that are always added.
    fn kept(list: &[(&str, &str)], crossing: &Crossing<'_>) -> Vec<(String, String)> {
        inward(headers(list), crossing)
            .iter()
            .filter(|(name, _)| !name.as_str().starts_with("x-forwarded-"))
            .filter(|(name, _)| *name != HOST && *name != "x-real-ip")
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .collect()
    }

    fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn forwarded_headers_are_set() {
        let sent = headers(&[
            ("host", "8080-x.example.com:8443"),
            ("x-forwarded-for", "6.6.6.6"),
            ("x-real-ip", "6.6.6.6"),
            ("x-forwarded-host", "lie"),
            ("forwarded", "for=6.6.6.6"),
        ]);
        let expected = headers(&[
            ("host", "8080-x.example.com:8443"),
            ("x-forwarded-host", "8080-x.example.com:8443"),
            ("x-forwarded-proto", "http"),
            ("x-forwarded-method", "PUT"),
            ("x-forwarded-uri", "/a%20b?c=%2F"),
            ("x-forwarded-for", "10.1.2.3"),
            ("x-real-ip", "10.1.2.3"),
        ]);
        assert_eq!(inward(sent, &CROSSING), expected);
    }

    #[test]
    fn connection_nominated_headers() {
        let sent = [
            ("connection", "keep-alive, X-Private"),
            ("connection", "x-other, not a name"),
            ("x-private", "1"),
            ("x-other", "2"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("te", "trailers"),
            ("trailer", "x"),
            ("transfer-encoding", "chunked"),
            ("content-length", "4"),
            ("upgrade", "h2c"),
            ("proxy-authorization", "Basic x"),
            ("x-kept", "3"),
            ("x-kept", "4"),
        ];
        assert_eq!(kept(&sent, &CROSSING), pairs(&[("x-kept", "3"), ("x-kept", "4")]));
        let answer = outward(headers(&sent), StatusCode::OK);
        assert_eq!(answer, headers(&[("x-kept", "3"), ("x-kept", "4")]));
    }

    #[test]
    fn an_upgrade_is_carried_on_both_ways() {
        let sent = [("connection", "keep-alive, Upgrade"), ("upgrade", "websocket"), ("a", "b")];
        let expected = [("a", "b"), ("connection", "upgrade"), ("upgrade", "websocket")];
        assert_eq!(kept(&sent, &CROSSING), pairs(&expected));
        let answer = outward(headers(&sent), StatusCode::SWITCHING_PROTOCOLS);
        assert_eq!(answer, headers(&expected));
        assert_eq!(outward(headers(&sent), StatusCode::OK), headers(&[("a", "b")]));
    }

    #[test]
    fn routing_headers_and_credentials_are_stripped() {
        let sent = [
            ("e2b-sandbox-id", "a"),
            ("e2b-sandbox-port", "b"),
            ("x-agentenv-sandbox-id", "c"),
            ("x-agentenv-target-port", "d"),
            ("e2b-traffic-access-token", "e"),
            ("x-access-token", "f"),
            ("x-sandboxo-route", "kind=instance"),
            ("x-api-key", "mine"),
            ("authorization", "Bearer g"),
            ("expect", "100-continue"),
        ];
        assert_eq!(
            kept(&sent, &CROSSING),
            pairs(&[("authorization", "Bearer g"), ("x-api-key", "mine")])
        );
        let ours = Crossing { strip_api_key: true, strip_authorization: true, ..CROSSING };
        assert_eq!(kept(&sent, &ours), pairs(&[]));
        let agent = Crossing { to_agent: true, strip_api_key: true, ..CROSSING };
        assert_eq!(
            kept(&sent, &agent),
            pairs(&[("authorization", "Bearer g"), ("x-access-token", "f")])
        );
    }

    #[test]
    fn a_masked_host_is_not_for_the_agent() {
        let masked = Crossing { masked_host: Some("localhost:8080"), ..CROSSING };
        let sent = inward(HeaderMap::new(), &masked);
        assert_eq!(sent.get(HOST).unwrap(), "localhost:8080");
        assert_eq!(sent.get("x-forwarded-host").unwrap(), "8080-x.example.com:8443");
        let agent = Crossing { to_agent: true, ..masked };
        assert_eq!(inward(HeaderMap::new(), &agent).get(HOST).unwrap(), "8080-x.example.com:8443");
    }
}
