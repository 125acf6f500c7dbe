//! Whose request is it: a sandbox's port, or the control plane's. Pure: method, headers and path in,
//! a target out. What the sandbox's state makes of it is decided later, in `refusal`.
//!
//! In this order: host names; `/proxy…`; `E2b-Sandbox-Id` before any path. `X-Agentenv-*` headers
//! alone count only on paths that nothing else answers, so they're asked for separately, and below
//! `/.well-known/`.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, Method, Uri, header::HOST, request};
use sandboxo_zone_protocol::AGENT_PORT;

use crate::host::{self, Domains, HostRoute, parse_port};

pub(crate) const E2B_SANDBOX_ID: HeaderName = HeaderName::from_static("e2b-sandbox-id");
pub(crate) const E2B_SANDBOX_PORT: HeaderName = HeaderName::from_static("e2b-sandbox-port");
pub(crate) const AGENTENV_SANDBOX_ID: HeaderName = HeaderName::from_static("x-agentenv-sandbox-id");
pub(crate) const AGENTENV_TARGET_PORT: HeaderName =
    HeaderName::from_static("x-agentenv-target-port");

const WELL_KNOWN: &str = "/.well-known/";

/// The way in decides how failures are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Surface {
    E2bHeader,
    E2bHost,
    /// `/proxy…` and `X-Agentenv-*`.
    AgentEnv,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DataPlane {
    /// As it was written; not known to be an id.
    pub id: String,
    pub port: u16,
    pub surface: Surface,
    /// Raw path and query, as the program inside is to see them.
    pub path: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    DataPlane(DataPlane),
    ControlPlane,
    /// 400: the request contradicts itself or names no port; the text says which part.
    Malformed(String),
    /// 404: a sandbox's name without a port, or a name nothing answers to.
    NoSuchSandbox(String),
    UnknownHost,
}

pub(crate) fn decide(parts: &request::Parts, domains: &Domains) -> Target {
    if parts.method == Method::CONNECT {
        // Its target is another host, not a path; what it would be inside isn't defined.
        return Target::Malformed("CONNECT is not taken".to_owned());
    }
    let headers = &parts.headers;
    let path = path_and_query(&parts.uri);
    let authority = match authority(&parts.uri, headers) {
        Ok(authority) => authority,
        Err(why) => return Target::Malformed(why),
    };
    match host::route(authority, domains) {
        HostRoute::Port { port, id } => {
            let path = path.into_owned();
            return Target::DataPlane(DataPlane { id, port, surface: Surface::E2bHost, path });
        }
        HostRoute::Malformed(why) => return Target::Malformed(why.to_owned()),
        HostRoute::SandboxAlone { id } => return Target::NoSuchSandbox(id),
        HostRoute::Unknown => return Target::UnknownHost,
        HostRoute::Elsewhere => {}
    }
    if let Some(inner) = below_proxy(&path) {
        return by_headers(
            headers,
            &[AGENTENV_SANDBOX_ID, E2B_SANDBOX_ID],
            &[AGENTENV_TARGET_PORT, E2B_SANDBOX_PORT],
            None,
            Surface::AgentEnv,
            inner,
        );
    }
    if headers.contains_key(E2B_SANDBOX_ID) || headers.contains_key(E2B_SANDBOX_PORT) {
        return by_headers(
            headers,
            &[E2B_SANDBOX_ID],
            &[E2B_SANDBOX_PORT],
            Some(AGENT_PORT),
            Surface::E2bHeader,
            path.into_owned(),
        );
    }
    // A sandbox may have documents of its own there.
    if path.starts_with(WELL_KNOWN) {
        return decide_unmatched(parts);
    }
    Target::ControlPlane
}

/// For paths that nothing else answers.
pub(crate) fn decide_unmatched(parts: &request::Parts) -> Target {
    let headers = &parts.headers;
    if !headers.contains_key(AGENTENV_SANDBOX_ID) && !headers.contains_key(AGENTENV_TARGET_PORT) {
        return Target::ControlPlane;
    }
    by_headers(
        headers,
        &[AGENTENV_SANDBOX_ID],
        &[AGENTENV_TARGET_PORT],
        None,
        Surface::AgentEnv,
        path_and_query(&parts.uri).into_owned(),
    )
}

/// The request's own authority outranks the header, as RFC 9112 has it.
pub(crate) fn authority<'r>(uri: &'r Uri, headers: &'r HeaderMap) -> Result<&'r str, String> {
    if let Some(authority) = uri.authority() {
        return Ok(authority.as_str());
    }
    Ok(only_one(headers, &HOST)?.unwrap_or_default())
}

fn by_headers(
    headers: &HeaderMap,
    ids: &[HeaderName],
    ports: &[HeaderName],
    default_port: Option<u16>,
    surface: Surface,
    path: String,
) -> Target {
    let read = || {
        let id = first_of(headers, ids)?.ok_or_else(|| missing(ids))?;
        let port = match first_of(headers, ports)? {
            Some((name, text)) => parse_port(text)
                .ok_or_else(|| format!("header {name} is not a port (1 to 65535)"))?,
            None => default_port.ok_or_else(|| missing(ports))?,
        };
        Ok((id.1.to_owned(), port))
    };
    match read() {
        Ok((id, port)) => {
            let id = host::without_client(&id).to_owned();
            Target::DataPlane(DataPlane { id, port, surface, path })
        }
        Err(why) => Target::Malformed(why),
    }
}

fn missing(names: &[HeaderName]) -> String {
    let names: Vec<&str> = names.iter().map(HeaderName::as_str).collect();
    format!("missing header {}", names.join(" or "))
}

fn first_of<'h>(
    headers: &'h HeaderMap,
    names: &[HeaderName],
) -> Result<Option<(HeaderName, &'h str)>, String> {
    for name in names {
        if let Some(text) = only_one(headers, name)? {
            return Ok(Some((name.clone(), text)));
        }
    }
    Ok(None)
}

/// Two values would let two readers disagree about whose request it is.
fn only_one<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, String> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(format!("header {name} is given more than once"));
    }
    match value.to_str() {
        Ok(text) => Ok(Some(text.trim())),
        Err(_not_ascii) => Err(format!("header {name} is not ASCII text")),
    }
}

/// `/proxy` gives `/`; `/proxy//api` gives `//api`; `/proxyx` is something else.
fn below_proxy(path_and_query: &str) -> Option<String> {
    let rest = path_and_query.strip_prefix("/proxy")?;
    match rest.chars().next() {
        None => Some("/".to_owned()),
        Some('?') => Some(format!("/{rest}")),
        Some('/') => Some(rest.to_owned()),
        Some(_) => None,
    }
}

/// `*` (of OPTIONS) has no path of its own. An absolute target may leave the path out, and what
/// goes on from here is no absolute one.
pub(crate) fn path_and_query(uri: &Uri) -> Cow<'_, str> {
    match uri.path_and_query().map_or("/", |path| path.as_str()) {
        query if query.starts_with('?') => format!("/{query}").into(),
        path => path.into(),
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    const ID: &str = "sbx-ord-0123456789abcdefghjk";

    fn ask(uri: &str, headers: &[(&str, &str)]) -> request::Parts {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn to(id: &str, port: u16, surface: Surface, path: &str) -> Target {
        Target::DataPlane(DataPlane { id: id.to_owned(), port, surface, path: path.to_owned() })
    }

    fn bad(why: &str) -> Target {
        Target::Malformed(why.to_owned())
    }

    #[test]
    fn table() {
        use Surface::{AgentEnv, E2bHeader, E2bHost};
        let host = format!("8080-{ID}.sbx.localhost");
        let alone = format!("{ID}.sbx.localhost");
        let domains = Domains::new(["sbx.localhost"]);
        let id = ("e2b-sandbox-id", ID);
        let other = ("x-agentenv-sandbox-id", "other");
        for (why, uri, headers, expected) in [
            ("a control path", "/sandboxes?a=1", vec![], Target::ControlPlane),
            ("health is ours without a header", "/health", vec![], Target::ControlPlane),
            ("and the sandbox's with it", "/health", vec![id], to(ID, 49983, E2bHeader, "/health")),
            (
                "host_route_wins_over_any_control_path",
                "/sandboxes?x=%2F",
                vec![("host", host.as_str()), ("e2b-sandbox-id", "other")],
                to(ID, 8080, E2bHost, "/sandboxes?x=%2F"),
            ),
            (
                "also over /proxy",
                "/proxy/a",
                vec![("host", &host)],
                to(ID, 8080, E2bHost, "/proxy/a"),
            ),
            (
                "an absolute target outranks the header",
                "http://8080-sbx-ord-0123456789abcdefghjk.sbx.localhost/x",
                vec![("host", "localhost")],
                to(ID, 8080, E2bHost, "/x"),
            ),
            (
                "an absolute target without a path",
                "http://8080-sbx-ord-0123456789abcdefghjk.sbx.localhost?x",
                vec![],
                to(ID, 8080, E2bHost, "/?x"),
            ),
            (
                "a header's port",
                "/",
                vec![id, ("e2b-sandbox-port", "49999")],
                to(ID, 49999, E2bHeader, "/"),
            ),
            (
                "a bad header's port",
                "/",
                vec![id, ("e2b-sandbox-port", "0")],
                bad("header e2b-sandbox-port is not a port (1 to 65535)"),
            ),
            (
                "a port alone",
                "/",
                vec![("e2b-sandbox-port", "1")],
                bad("missing header e2b-sandbox-id"),
            ),
            ("two ids", "/", vec![id, id], bad("header e2b-sandbox-id is given more than once")),
            (
                "two hosts",
                "/",
                vec![("host", "a"), ("host", "b")],
                bad("header host is given more than once"),
            ),
            (
                "a client id is cut",
                "/",
                vec![("e2b-sandbox-id", "iabc-0123")],
                to("iabc", 49983, E2bHeader, "/"),
            ),
            (
                "proxy, root",
                "/proxy",
                vec![id, ("e2b-sandbox-port", "80")],
                to(ID, 80, AgentEnv, "/"),
            ),
            (
                "proxy, query",
                "/proxy?a=b",
                vec![id, ("x-agentenv-target-port", "80")],
                to(ID, 80, AgentEnv, "/?a=b"),
            ),
            (
                "proxy, raw suffix; its own header first",
                "/proxy//api/%2F/a%20b?x=%26",
                vec![other, id, ("x-agentenv-target-port", "80"), ("e2b-sandbox-port", "81")],
                to("other", 80, AgentEnv, "//api/%2F/a%20b?x=%26"),
            ),
            ("not below proxy", "/proxyx", vec![other], Target::ControlPlane),
            (
                "proxy without an id",
                "/proxy/x",
                vec![("x-agentenv-target-port", "80")],
                bad("missing header x-agentenv-sandbox-id or e2b-sandbox-id"),
            ),
            (
                "proxy without a port",
                "/proxy/x",
                vec![id],
                bad("missing header x-agentenv-target-port or e2b-sandbox-port"),
            ),
            ("a document of ours", "/.well-known/jwks.json", vec![], Target::ControlPlane),
            (
                "and the sandbox's own, by any way in",
                "/.well-known/jwks.json?a",
                vec![("x-agentenv-sandbox-id", ID), ("x-agentenv-target-port", "80")],
                to(ID, 80, AgentEnv, "/.well-known/jwks.json?a"),
            ),
            (
                "by its header",
                "/.well-known/jwks.json",
                vec![id],
                to(ID, 49983, E2bHeader, "/.well-known/jwks.json"),
            ),
            (
                "by its host",
                "/.well-known/jwks.json",
                vec![("host", &host)],
                to(ID, 8080, E2bHost, "/.well-known/jwks.json"),
            ),
            (
                "a label without a port",
                "/",
                vec![("host", &alone)],
                Target::NoSuchSandbox(ID.to_owned()),
            ),
            ("an unknown name", "/", vec![("host", "app.sbx.localhost")], Target::UnknownHost),
        ] {
            assert_eq!(decide(&ask(uri, &headers), &domains), expected, "{why}");
        }
    }

    #[test]
    fn header_route_on_unmatched_path() {
        let id = ("x-agentenv-sandbox-id", ID);
        let port = ("x-agentenv-target-port", "8080");
        let expected = to(ID, 8080, Surface::AgentEnv, "/any/thing?q");
        assert_eq!(
            decide(&ask("/any/thing?q", &[id, port]), &Domains::default()),
            Target::ControlPlane
        );
        assert_eq!(decide_unmatched(&ask("/any/thing?q", &[id, port])), expected);
        assert_eq!(decide_unmatched(&ask("/any", &[])), Target::ControlPlane);
        let no_port = bad("missing header x-agentenv-target-port");
        assert_eq!(decide_unmatched(&ask("/any", &[id])), no_port);
        assert_eq!(
            decide_unmatched(&ask("/any", &[port])),
            bad("missing header x-agentenv-sandbox-id")
        );
    }
}
