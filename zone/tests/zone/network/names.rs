//! Rules by name: what is told, what is reached, and what becomes of the rest.

use std::{
    io::{self, Write as _},
    net::{IpAddr, Ipv4Addr, UdpSocket},
    sync::Arc,
    thread,
};

use sandboxo_tasks::Tasks;
use sandboxo_zone::network::Lease;
use sandboxo_zone_protocol::NetworkPolicy;

use super::{
    guest::{Connects, Guest, hear},
    world::{self, HOST, HTTP, OTHER, OUTSIDE, PORT, PRIVATE, SOON, TLS, within},
};

/// Nothing but these.
pub(super) fn only(names: &str) -> NetworkPolicy {
    let names = names.split_whitespace().map(|name| name.parse().unwrap()).collect();
    NetworkPolicy { deny: vec!["0.0.0.0/0".parse().unwrap()], names, ..NetworkPolicy::OPEN }
}

pub(super) fn request(host: &str) -> Vec<u8> {
    format!("GET /path?a=%2F HTTP/1.1\r\nHost: {host}\r\nX-Odd-CASE: 1\r\n\r\n").into()
}

pub(super) fn client_hello(name: &str) -> Vec<u8> {
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(
        rustls::crypto::ring::default_provider(),
    ));
    let config = config
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

pub(super) fn response_length(request: &[u8]) -> usize {
    let length = request.len();
    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").len() + length
}

/// Whether the request comes back as it was sent.
fn by_http(guest: &Guest<'_>, address: Ipv4Addr, host: &str) -> bool {
    let request = request(host);
    let length = response_length(&request);
    match guest.says((address, HTTP), &request, length) {
        Ok(heard) => {
            assert!(heard.ends_with(&request), "{}", String::from_utf8_lossy(&heard));
            true
        }
        Err(error) => refused(&error),
    }
}

fn by_tls(guest: &Guest<'_>, address: Ipv4Addr, name: &str) -> bool {
    let hello = client_hello(name);
    let greeting = format!("{HOST}\n");
    match guest.says((address, TLS), &hello, greeting.len() + hello.len()) {
        Ok(heard) => {
            assert_eq!(heard, [greeting.as_bytes(), &hello].concat());
            true
        }
        Err(error) => refused(&error),
    }
}

/// At once, and not by silence.
pub(super) fn refused(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset};
    assert!(matches!(error.kind(), ConnectionRefused | ConnectionReset | BrokenPipe), "{error}");
    false
}

fn nameserver(lease: &Lease) -> IpAddr {
    lease.nameservers()[0]
}

#[test]
fn named_hosts_are_reached_and_nothing_else() {
    world::run(|world| async move {
        let tasks = Tasks::new();
        let network = world.network(&tasks).await;
        let (lease, sibling) = (network.lease().await.unwrap(), network.lease().await.unwrap());
        let guest = Guest::of(&lease);
        lease.apply(&only("example.com *.example.org")).await.unwrap();
        for (name, address, is_allowed) in [
            ("example.com", OUTSIDE, true),
            ("EXAMPLE.com", OUTSIDE, true),
            ("a.example.org", OUTSIDE, true),
            ("other.example.org", OTHER, true),
            ("example.org", OUTSIDE, false),
            ("www.example.com", OUTSIDE, false),
            ("evil.test", OUTSIDE, false),
        ] {
            let told = guest.told(nameserver(&lease), name).unwrap();
            assert_eq!(told, if is_allowed { (0, Some(address)) } else { (3, None) }, "{name}");
            assert_eq!(by_http(&guest, address, name), is_allowed, "HTTP {name}");
            assert_eq!(by_tls(&guest, address, name), is_allowed, "TLS {name}");
        }
        // Never told, and asked for by the proxy: as after a pause.
        assert!(by_tls(&guest, OUTSIDE, "never-told.example.org"));
        for (why, address, name) in [
            ("no name", OUTSIDE, "203.0.113.7"),
            ("another's address", OTHER, "example.com"),
            ("a name that leads inside", PRIVATE[1], "inside.example.org"),
        ] {
            assert!(!by_http(&guest, address, name), "HTTP {why}");
            assert!(!by_tls(&guest, address, name), "TLS {why}");
        }
        assert!(!by_http(&guest, OUTSIDE, "example.com:8080"));
        let plain = |port| guest.says((OUTSIDE, port), b"SSH-2.0-x\r\n\r\n", 1);
        refused(&plain(HTTP).unwrap_err());
        refused(&plain(TLS).unwrap_err());
        // Other ports, other resolvers, and the proxy itself.
        assert_eq!(guest.connects(OUTSIDE, PORT), Connects::Refused);
        assert_eq!(guest.connects(OUTSIDE, 53), Connects::Refused);
        guest.ask(OUTSIDE.into(), "example.com").unwrap_err();
        within(lease.netns_path(), || {
            let quic = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
            quic.set_read_timeout(Some(SOON)).unwrap();
            quic.connect((OUTSIDE, TLS)).unwrap();
            quic.send(b"x").unwrap();
            refused(&quic.recv(&mut [0; 9]).unwrap_err());
        });
        let IpAddr::V4(forwarder) = nameserver(&lease) else { panic!("IPv6") };
        assert_eq!(guest.connects(forwarder, 3128), Connects::Refused);

        let other = Guest::of(&sibling);
        assert_eq!(other.told(nameserver(&sibling), "evil.test").unwrap(), (0, Some(OUTSIDE)));
        assert!(by_tls(&other, OUTSIDE, "evil.test"));
        assert!(tasks.shut_down(SOON).await);
    });
}

#[test]
fn every_request_of_a_connection_is_judged() {
    world::run(|world| async move {
        let tasks = Tasks::new();
        let network = world.network(&tasks).await;
        let lease = network.lease().await.unwrap();
        let guest = Guest::of(&lease);
        lease.apply(&only("one.test two.test other.test")).await.unwrap();
        let mut stream = guest.connection((OUTSIDE, HTTP));
        let mut ask = |host: &str| -> io::Result<()> {
            let request = request(host);
            stream.write_all(&request)?;
            let heard = hear(&mut stream, response_length(&request))?;
            assert!(heard.ends_with(&request), "{}", String::from_utf8_lossy(&heard));
            Ok(())
        };
        ask("one.test").unwrap();
        ask("two.test").unwrap();
        // Allowed, but not there.
        refused(&ask("other.test").unwrap_err());

        let mut stream = guest.connection((OUTSIDE, HTTP));
        stream.write_all(&[request("one.test"), request("three.test")].concat()).unwrap();
        let length = response_length(&request("one.test"));
        let heard = hear(&mut stream, length).and_then(|_| hear(&mut stream, 1)).unwrap_err();
        refused(&heard);
        assert!(tasks.shut_down(SOON).await);
    });
}

#[test]
fn what_new_rules_refuse_is_cut_and_the_rest_goes_on() {
    world::run(|world| async move {
        let tasks = Tasks::new();
        let network = world.network(&tasks).await;
        let lease = network.lease().await.unwrap();
        let guest = Guest::of(&lease);
        // Of a time without rules by name.
        let (mut direct, mut old) = (guest.stream(OUTSIDE), guest.connection((OUTSIDE, TLS)));
        old.write_all(b"x").unwrap();
        hear(&mut old, HOST.to_string().len() + 2).unwrap();
        lease.apply(&only("one.test two.test")).await.unwrap();
        direct.says("one").unwrap_err();
        refused(&old.write_all(b"x").and_then(|()| hear(&mut old, 1)).unwrap_err());

        let open = |name: &str| {
            let mut stream = guest.connection((OUTSIDE, TLS));
            let hello = client_hello(name);
            stream.write_all(&hello).unwrap();
            hear(&mut stream, HOST.to_string().len() + 1 + hello.len()).unwrap();
            stream
        };
        let (mut one, mut two) = (open("one.test"), open("two.test"));
        lease.apply(&only("two.test three.test")).await.unwrap();
        refused(&hear(&mut one, 1).unwrap_err());
        two.write_all(b"still").unwrap();
        assert_eq!(hear(&mut two, 5).unwrap(), b"still");
        assert!(!by_tls(&guest, OUTSIDE, "one.test"));
        assert!(by_tls(&guest, OUTSIDE, "three.test"));

        // By addresses alone: what they refuse ends too.
        let deny = vec!["203.0.113.99/32".parse().unwrap()];
        lease.apply(&NetworkPolicy { deny, ..NetworkPolicy::OPEN }).await.unwrap();
        two.write_all(b"still").unwrap();
        assert_eq!(hear(&mut two, 5).unwrap(), b"still");
        assert!(by_tls(&guest, OUTSIDE, "anything.test"));
        assert_eq!(guest.told(nameserver(&lease), "evil.test").unwrap().0, 0);
        lease.apply(&only("three.test")).await.unwrap();
        refused(&hear(&mut two, 1).unwrap_err());

        let mut three = open("three.test");
        lease.release().await;
        hear(&mut three, 1).unwrap_err();
        assert!(tasks.shut_down(SOON).await);
    });
}

#[test]
fn without_the_process_nothing_is_allowed_by_name() {
    world::run(|world| async move {
        let first = thread::spawn(move || {
            // Dropped at the end, as in a kill.
            world::runtime().block_on(async move {
                let network = world.network(&Tasks::new()).await;
                let lease = network.lease().await.unwrap();
                lease.apply(&only("one.test")).await.unwrap();
                let mut open = Guest::of(&lease).connection((OUTSIDE, TLS));
                open.write_all(&client_hello("one.test")).unwrap();
                hear(&mut open, 1).unwrap();
                let path = lease.netns_path().to_owned();
                (lease.record().clone(), path, nameserver(&lease), open)
            })
        });
        let (kept, path, forwarder, mut open) = first.join().unwrap();
        let guest = Guest(&path);
        hear(&mut open, 16 * 1024).unwrap_err();
        assert_eq!(guest.connects(OUTSIDE, TLS), Connects::Refused);
        assert_eq!(guest.connects(OUTSIDE, PORT), Connects::Refused);

        let tasks = Tasks::new();
        let network = world.network(&tasks).await;
        // There again, and not told the rules yet.
        assert!(!by_tls(&guest, OUTSIDE, "one.test"));
        guest.told(forwarder, "one.test").unwrap_err();
        guest.told(forwarder, "evil.test").unwrap_err();
        let lease = network.adopt(kept).await.unwrap();
        assert!(!by_tls(&guest, OUTSIDE, "one.test"));
        lease.apply(&only("one.test")).await.unwrap();
        assert!(by_tls(&guest, OUTSIDE, "one.test"));
        assert!(!by_tls(&guest, OUTSIDE, "evil.test"));
        assert_eq!(guest.told(forwarder, "evil.test").unwrap().0, 3);
        assert!(tasks.shut_down(SOON).await);
    });
}
