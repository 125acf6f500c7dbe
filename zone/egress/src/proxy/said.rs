//! What a connection says in its first bytes about whom it wants. Bytes in, a name out.

use rustls::server::Acceptor;
use sandboxo_zone_protocol::HostName;

/// Of an HTTP head; a `ClientHello` has less.
pub(super) const LARGEST: usize = 64 * 1024;
pub(super) const MOST_HEADERS: usize = 128;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Said {
    /// Not yet all of it.
    More,
    Name(HostName),
    /// It speaks the protocol, and names nobody or an address.
    Nobody,
    /// Another protocol, or it contradicts itself.
    Nonsense,
}

/// A TLS `ClientHello` with its SNI.
pub(crate) fn hello(bytes: &[u8]) -> Said {
    let mut acceptor = Acceptor::default();
    let mut rest = bytes;
    while !rest.is_empty() {
        if acceptor.read_tls(&mut rest).is_err() {
            return Said::Nonsense;
        }
        match acceptor.accept() {
            Ok(Some(accepted)) => {
                let hello = accepted.client_hello();
                return match hello.server_name().map(str::parse) {
                    Some(Ok(name)) => Said::Name(name),
                    Some(Err(_)) => Said::Nonsense,
                    None => Said::Nobody,
                };
            }
            Ok(None) => {}
            Err(_) => return Said::Nonsense,
        }
    }
    Said::More
}

/// The head of an HTTP/1 request with its Host.
pub(crate) fn head(bytes: &[u8], port: u16) -> Said {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Said::More,
        Err(_) => return Said::Nonsense,
    }
    let Some(target) = request.path else { return Said::Nonsense };
    let Ok(target) = target.parse::<http::Uri>() else { return Said::Nonsense };
    let hosts = request.headers.iter().filter(|it| it.name.eq_ignore_ascii_case("host"));
    host(request.method, &target, hosts.map(|it| it.value), port)
}

/// The same of a request that somebody else has parsed.
pub(super) fn request<B>(request: &http::Request<B>, port: u16) -> Said {
    let hosts = request.headers().get_all(http::header::HOST).iter();
    let method = Some(request.method().as_str());
    host(method, request.uri(), hosts.map(http::HeaderValue::as_bytes), port)
}

fn host<'a>(
    method: Option<&str>,
    target: &http::Uri,
    hosts: impl Iterator<Item = &'a [u8]>,
    port: u16,
) -> Said {
    let mut said = target.authority().map(|it| it.as_str().as_bytes().to_vec());
    for host in hosts {
        if said.as_ref().is_some_and(|before| !before.eq_ignore_ascii_case(host)) {
            return Said::Nonsense;
        }
        said = Some(host.to_vec());
    }
    // Whoever asks for a tunnel takes us for another kind of proxy.
    if method == Some("CONNECT") {
        return Said::Nonsense;
    }
    let Some(said) = said else { return Said::Nobody };
    let Ok(said) = std::str::from_utf8(&said) else { return Said::Nonsense };
    let Ok(authority) = said.parse::<http::uri::Authority>() else { return Said::Nonsense };
    if said.contains('@') || authority.port_u16().unwrap_or(port) != port {
        return Said::Nonsense;
    }
    let host = authority.host();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    match host.parse() {
        Ok(name) => Said::Name(name),
        Err(_) if address.parse::<std::net::IpAddr>().is_ok() => Said::Nobody,
        Err(_) => Said::Nonsense,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn client_hello(name: &str) -> Vec<u8> {
        let config = rustls::ClientConfig::builder_with_provider(Arc::new(
            rustls::crypto::ring::default_provider(),
        ))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
        let name = rustls::pki_types::ServerName::try_from(name.to_owned()).unwrap();
        let mut client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_hello_is_read_as_soon_as_it_is_whole() {
        let bytes = client_hello("Example.COM");
        for length in 0..bytes.len() {
            assert_eq!(hello(&bytes[..length]), Said::More, "{length}");
        }
        let expected = Said::Name("example.com".parse().unwrap());
        assert_eq!(hello(&bytes), expected);
        // What follows is none of the hello's business.
        assert_eq!(hello(&[&*bytes, b"anything"].concat()), expected);
        assert_eq!(hello(&client_hello("203.0.113.7")), Said::Nobody);
        for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"SSH-2.0-x\r\n", &[0x16, 3, 1, 0xff, 0xff]] {
            assert_eq!(hello(bytes), Said::Nonsense, "{bytes:?}");
        }
    }

    #[test]
    fn whom_a_request_wants() {
        let name = |text: &str| Said::Name(text.parse().unwrap());
        for (text, expected) in [
            ("GET / HTTP/1.1\r\nHost: Example.com\r\n\r\n", name("example.com")),
            ("GET / HTTP/1.1\r\nhOST:example.com.:80\r\n\r\n", name("example.com")),
            ("GET / HTTP/1.1\r\nHost: example.com:81\r\n\r\n", Said::Nonsense),
            ("GET / HTTP/1.1\r\nHost: example.com\r\nHost: evil.org\r\n\r\n", Said::Nonsense),
            ("GET http://a.b/ HTTP/1.1\r\nHost: a.b\r\n\r\n", name("a.b")),
            ("GET http://evil.org/ HTTP/1.1\r\nHost: a.b\r\n\r\n", Said::Nonsense),
            ("GET http://a.b/ HTTP/1.0\r\n\r\n", name("a.b")),
            ("CONNECT a.b:80 HTTP/1.1\r\nHost: a.b:80\r\n\r\n", Said::Nonsense),
            ("GET / HTTP/1.1\r\nHost: 203.0.113.7\r\n\r\n", Said::Nobody),
            ("GET / HTTP/1.1\r\nHost: [2001:db8::1]\r\n\r\n", Said::Nobody),
            ("GET / HTTP/1.1\r\nHost: 2130706433\r\n\r\n", Said::Nonsense),
            ("GET / HTTP/1.1\r\nHost: me@a.b\r\n\r\n", Said::Nonsense),
            ("GET / HTTP/1.1\r\nHost: a.b/c\r\n\r\n", Said::Nonsense),
            ("GET / HTTP/1.1\r\nHost: \r\n\r\n", Said::Nonsense),
            ("GET / HTTP/1.0\r\n\r\n", Said::Nobody),
            ("GET / HTTP/1.1\r\nHost: a.b\r\n", Said::More),
            ("", Said::More),
            ("SSH-2.0-x\r\n", Said::Nonsense),
            ("\u{16}\u{3}\u{1}", Said::Nonsense),
        ] {
            assert_eq!(head(text.as_bytes(), 80), expected, "{text:?}");
            let mut headers = [httparse::EMPTY_HEADER; 8];
            let mut parsed = httparse::Request::new(&mut headers);
            if parsed.parse(text.as_bytes()).is_ok_and(|it| it.is_complete()) {
                let mut builder = http::Request::builder()
                    .method(parsed.method.unwrap())
                    .uri(parsed.path.unwrap());
                for header in parsed.headers.iter() {
                    builder = builder.header(header.name, header.value);
                }
                let parsed = builder.body(()).unwrap();
                assert_eq!(request(&parsed, 80), expected, "{text:?} parsed");
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn anything_may_be_said(bytes: Vec<u8>) {
            hello(&bytes);
            head(&bytes, 80);
        }

        #[test]
        fn a_hello_may_be_broken(at in 0_usize..200, with: u8) {
            let mut bytes = client_hello("example.com");
            bytes[at] = with;
            hello(&bytes);
        }
    }
}
