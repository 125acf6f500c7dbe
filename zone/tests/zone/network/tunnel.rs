//! Proxies of sandboxes' own, with a SOCKS5 server of somebody else's make on the internet: what
//! leaves by them, and that nothing leaves past them.

use std::{
    fs, io,
    io::Write as _,
    net::{IpAddr, Ipv4Addr, TcpListener, UdpSocket},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use async_trait::async_trait;
use sandboxo_tasks::Tasks;
use sandboxo_zone::network::{Lease, Network, NetworkConfig};
use sandboxo_zone_protocol::{
    EgressProxy, NetworkPolicy, ProxyLogin, SandboxId, Sealed, Secret, SetHeader, Vault,
};

use super::{
    guest::{Connects, Guest, connect, hear},
    names::{client_hello, only, refused, request, response_length},
    secure::{self, Believes},
    world::{self, HOST, HTTP, OTHER, OUTSIDE, PORT, PRIVATE, SECURE, SOON, TLS, World, within},
};

const MINE: &str = "sbx_loc_0123456789abcdefgk7q";
const SOCKS: u16 = 1080;

/// Opens what is sealed by a prefix, for one sandbox.
struct Prefix;

#[async_trait]
impl Vault for Prefix {
    async fn secret(&self, _: SandboxId, _: &str) -> Option<Secret> {
        None
    }

    async fn password(&self, sandbox: SandboxId, proxy: &EgressProxy) -> Option<Secret> {
        let sealed = proxy.login.as_ref()?.password.as_str();
        let opened = sealed.strip_prefix("sealed:").filter(|_| sandbox.to_string() == MINE);
        opened.map(Secret::new)
    }

    async fn token(&self, _: SandboxId, _: &str) -> Option<Secret> {
        None
    }
}

/// microsocks, ended with this.
struct Server {
    child: Child,
    _hosts: tempfile::TempDir,
}

impl Server {
    /// On the internet, where some names have other addresses than the sandboxes' DNS tells.
    fn start(world: &World, address: Ipv4Addr, port: u16, login: Option<(&str, &str)>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let hosts = folder.path().join("hosts");
        let named = format!("{OTHER} one.test two.test\n{SECURE} secure.test\n");
        fs::write(&hosts, named).unwrap();
        let login =
            login.map_or(String::new(), |(name, password)| format!("-u {name} -P {password}"));
        let script = format!(
            "mount --bind {} /etc/hosts && exec microsocks -i {address} -p {port} {login}",
            hosts.display()
        );
        let mut child = within(&world.internet(), || {
            let mut command = Command::new("unshare");
            command.args(["--mount", "sh", "-c", &script]).stderr(Stdio::null()).spawn().unwrap()
        });
        // It is there when it takes connections.
        while within(&world.internet(), || connect((address, port).into())).is_err() {
            assert_eq!(child.try_wait().unwrap(), None, "microsocks does not start");
            thread::yield_now();
        }
        Self { child, _hosts: folder }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn by(address: &str, policy: NetworkPolicy) -> NetworkPolicy {
    let proxy = EgressProxy { address: address.parse().unwrap(), login: None };
    NetworkPolicy { proxy: Some(proxy), ..policy }
}

fn with_login(address: &str, username: &str, sealed: &str) -> NetworkPolicy {
    let login = ProxyLogin { username: username.into(), password: Sealed::new(sealed) };
    let proxy = EgressProxy { address: address.parse().unwrap(), login: Some(login) };
    NetworkPolicy { proxy: Some(proxy), ..NetworkPolicy::OPEN }
}

/// Whom the echo there takes the sandbox for: on the internet it is the address itself for
/// everybody who is there too, and the host's for whoever comes directly.
fn seen_as(guest: &Guest<'_>, to: (Ipv4Addr, u16), says: &[u8]) -> io::Result<Ipv4Addr> {
    let heard = guest.says(to, says, 1)?;
    let line = String::from_utf8_lossy(&heard).lines().next().unwrap_or_default().to_owned();
    Ok(line.parse().unwrap())
}

fn nameserver(lease: &Lease) -> IpAddr {
    lease.nameservers()[0]
}

#[test]
fn all_tcp_leaves_by_the_proxy_and_nothing_else_leaves() {
    world::run(|world| async move {
        let (_open, _asking) = (
            Server::start(world, OUTSIDE, SOCKS, None),
            Server::start(world, OUTSIDE, SOCKS + 1, Some(("me", "hunter2"))),
        );
        let tasks = Tasks::new();
        let network = world.network(&tasks).await;
        network.use_vault(Arc::new(Prefix));
        let lease = network.lease().await.unwrap();
        lease.belongs_to(MINE.parse().unwrap());
        let guest = Guest::of(&lease);
        assert_eq!(seen_as(&guest, (OTHER, PORT), b"x").unwrap(), HOST);
        for (why, policy) in [
            ("an address", by("203.0.113.7:1080", NetworkPolicy::OPEN)),
            ("a name", by("proxy.test:1080", NetworkPolicy::OPEN)),
            ("a password", with_login("203.0.113.7:1081", "me", "sealed:hunter2")),
        ] {
            lease.apply(&policy).await.unwrap();
            // A server that speaks first, on an odd port; HTTP; and what only looks like TLS.
            assert_eq!(seen_as(&guest, (OTHER, PORT), b"").unwrap(), OTHER, "{why}");
            assert_eq!(seen_as(&guest, (OTHER, TLS), b"").unwrap(), OTHER, "{why}");
            let asked = request("any.test");
            let heard = guest.says((OTHER, HTTP), &asked, response_length(&asked)).unwrap();
            assert!(heard.starts_with(b"HTTP/1.1 200 OK"), "{why}");

            assert_eq!(guest.told(nameserver(&lease), "any.test").unwrap(), (0, Some(OUTSIDE)));
            let IpAddr::V4(forwarder) = nameserver(&lease) else { panic!("IPv6") };
            assert_eq!(guest.connects(forwarder, 53), Connects::Yes, "{why}");
            assert_eq!(guest.connects(forwarder, 3128), Connects::Refused, "{why}");
            refused(&guest.ask(OUTSIDE.into(), "any.test").unwrap_err());
            within(lease.netns_path(), || {
                let quic = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
                quic.set_read_timeout(Some(SOON)).unwrap();
                quic.connect((OUTSIDE, TLS)).unwrap();
                quic.send(b"x").unwrap();
                refused(&quic.recv(&mut [0; 9]).unwrap_err());
            });
            for address in PRIVATE.into_iter().chain([HOST]) {
                assert_eq!(guest.connects(address, PORT), Connects::Refused, "{address}");
            }
        }
        lease.apply(&NetworkPolicy::OPEN).await.unwrap();
        assert_eq!(seen_as(&guest, (OTHER, PORT), b"x").unwrap(), HOST);
        assert!(tasks.shut_down(SOON).await);
    });
}

#[test]
fn where_the_proxy_does_not_let_it_through_it_ends() {
    world::run(|world| async move {
        let server = Server::start(world, OUTSIDE, SOCKS, Some(("me", "hunter2")));
        let tasks = Tasks::new();
        let network = world.network(&tasks).await;
        let lease = network.lease().await.unwrap();
        let guest = Guest::of(&lease);
        let address = "203.0.113.7:1080";
        let fine = with_login(address, "me", "sealed:hunter2");
        let fails = |why: &str| {
            let error = guest.says((OTHER, PORT), b"x", 1).unwrap_err();
            assert!(!refused(&error), "{why}");
        };
        lease.apply(&fine).await.unwrap();
        fails("nobody to ask for its password");
        network.use_vault(Arc::new(Prefix));
        fails("nobody's sandbox");
        lease.belongs_to(MINE.parse().unwrap());
        for (why, policy) in [
            ("a wrong password", with_login(address, "me", "sealed:hunter3")),
            ("a wrong name", with_login(address, "you", "sealed:hunter2")),
            ("sealed for somebody else", with_login(address, "me", "hunter2")),
            ("none given", by(address, NetworkPolicy::OPEN)),
            ("nobody there", by("203.0.113.7:1", NetworkPolicy::OPEN)),
            ("another protocol", by("203.0.113.7:8080", NetworkPolicy::OPEN)),
            ("a name that leads inside", by("inside.test:8080", NetworkPolicy::OPEN)),
            ("an address inside", by("10.99.0.1:8080", NetworkPolicy::OPEN)),
            ("metadata", by("169.254.169.254:8080", NetworkPolicy::OPEN)),
            ("the host's loopback", by("127.0.0.1:8080", NetworkPolicy::OPEN)),
            ("the host", by("198.51.100.2:8080", NetworkPolicy::OPEN)),
        ] {
            lease.apply(&policy).await.unwrap();
            fails(why);
        }
        lease.apply(&fine).await.unwrap();
        assert_eq!(seen_as(&guest, (OTHER, PORT), b"x").unwrap(), OTHER);
        // The server's own refusal: nobody listens there.
        refused(&guest.says((OTHER, 1), b"x", 1).unwrap_err());
        let denied = vec!["203.0.113.99/32".parse().unwrap()];
        lease.apply(&NetworkPolicy { deny: denied, ..fine.clone() }).await.unwrap();
        fails("rules are judged first");
        assert_eq!(seen_as(&guest, (OUTSIDE, PORT), b"x").unwrap(), OUTSIDE);
        let (allow, deny) =
            (vec!["203.0.113.99/32".parse().unwrap()], vec!["0.0.0.0/0".parse().unwrap()]);
        lease.apply(&NetworkPolicy { allow, deny, ..fine }).await.unwrap();
        assert_eq!(seen_as(&guest, (OTHER, PORT), b"x").unwrap(), OTHER);
        refused(&guest.says((OUTSIDE, PORT), b"x", 1).unwrap_err());
        drop(server);
        fails("it is gone");
        assert!(tasks.shut_down(SOON).await);
    });
}

#[test]
fn a_proxy_that_says_nothing_is_waited_for_so_long() {
    world::run(|world| async move {
        let (heard, knocks) = mpsc::channel();
        within(&world.internet(), || {
            let silent = TcpListener::bind((OUTSIDE, SOCKS)).unwrap();
            thread::spawn(move || {
                let kept: Vec<_> =
                    silent.incoming().take_while(|_| heard.send(()).is_ok()).collect();
                drop(kept);
            });
        });
        let tasks = Tasks::new();
        let network = world.network(&tasks).await;
        let lease = network.lease().await.unwrap();
        lease.apply(&by("203.0.113.7:1080", NetworkPolicy::OPEN)).await.unwrap();
        let mut stream = Guest::of(&lease).connection((OTHER, PORT));
        // Longer than the zone waits.
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        refused(&hear(&mut stream, 1).unwrap_err());
        assert_eq!(knocks.try_iter().count(), 1);
        assert!(tasks.shut_down(SOON).await);
    });
}

#[test]
fn a_proxy_inside_is_reached_where_the_operator_allows_it() {
    world::run(|world| async move {
        let _inside = Server::start(world, PRIVATE[1], SOCKS, None);
        let _other = Server::start(world, PRIVATE[2], SOCKS, None);
        let tasks = Tasks::new();
        let config = NetworkConfig {
            proxy_networks: vec!["10.99.0.0/24".parse().unwrap()],
            ..world.config()
        };
        let network = Network::start(config, &tasks).await.unwrap();
        let lease = network.lease().await.unwrap();
        let guest = Guest::of(&lease);
        for (address, is_reached) in
            [("10.99.0.1:1080", true), ("inside.test:1080", true), ("192.168.77.1:1080", false)]
        {
            lease.apply(&by(address, NetworkPolicy::OPEN)).await.unwrap();
            let seen = seen_as(&guest, (OTHER, PORT), b"x");
            assert_eq!(seen.is_ok_and(|it| it == OTHER), is_reached, "{address}");
            // The proxy may be there, and the sandbox still may not.
            assert_eq!(guest.connects(PRIVATE[1], SOCKS), Connects::Refused);
        }
        assert!(tasks.shut_down(SOON).await);
    });
}

#[test]
fn names_are_judged_first_and_told_to_the_proxy() {
    world::run(|world| async move {
        let server = Server::start(world, OUTSIDE, SOCKS, None);
        let tasks = Tasks::new();
        let network = world.network(&tasks).await;
        let lease = network.lease().await.unwrap();
        let guest = Guest::of(&lease);
        lease.apply(&by("203.0.113.7:1080", only("one.test two.test"))).await.unwrap();
        // What the proxy knows by that name is somebody else than what DNS told the sandbox.
        assert_eq!(guest.told(nameserver(&lease), "one.test").unwrap(), (0, Some(OUTSIDE)));
        let hello = client_hello("one.test");
        assert_eq!(seen_as(&guest, (OUTSIDE, TLS), &hello).unwrap(), OTHER);
        refused(&guest.says((OUTSIDE, TLS), &client_hello("three.test"), 1).unwrap_err());
        // Named, and at an address that is none of that name's.
        refused(&guest.says((OTHER, TLS), &hello, 1).unwrap_err());
        assert_eq!(guest.told(nameserver(&lease), "three.test").unwrap(), (3, None));
        refused(&guest.says((OUTSIDE, PORT), b"x", 1).unwrap_err());

        let mut stream = guest.connection((OUTSIDE, HTTP));
        for _twice in 0..2 {
            stream.write_all(&request("one.test")).unwrap();
            let heard = hear(&mut stream, response_length(&request("one.test"))).unwrap();
            assert!(heard.ends_with(&request("one.test")), "{}", String::from_utf8_lossy(&heard));
        }
        // It is allowed, but whoever the proxy reached is the other name's.
        stream.write_all(&request("two.test")).unwrap();
        refused(&hear(&mut stream, 1).unwrap_err());

        let header = SetHeader { name: "x-token".into(), value: Secret::new("given") };
        let headers = [("secure.test".parse().unwrap(), vec![header])].into();
        let given = NetworkPolicy { headers, ..NetworkPolicy::OPEN };
        lease.apply(&by("203.0.113.7:1080", given)).await.unwrap();
        let ask = |protocol: &[u8]| {
            let requests = vec![secure::request("https://secure.test/", 3)];
            let host = (SECURE, "secure.test");
            world.secure().ask(&guest, host, Believes::Zone, protocol, requests, || {})
        };
        for protocol in [&b"h2"[..], b"http/1.1"] {
            let heard = ask(protocol).unwrap().remove(0);
            assert!(heard.contains("x-token: \"given\""), "{heard}");
        }
        drop(server);
        for protocol in [&b"h2"[..], b"http/1.1"] {
            ask(protocol).unwrap_err();
        }
        assert!(tasks.shut_down(SOON).await);
    });
}

#[test]
fn what_went_another_way_is_cut() {
    world::run(|world| async move {
        let _servers = (
            Server::start(world, OUTSIDE, SOCKS, None),
            Server::start(world, OUTSIDE, SOCKS + 1, None),
        );
        let tasks = Tasks::new();
        let network = world.network(&tasks).await;
        let lease = network.lease().await.unwrap();
        let guest = Guest::of(&lease);
        let (one, two) = ("203.0.113.7:1080", "203.0.113.7:1081");
        let mut open = guest.stream(OTHER);
        let mut before = HOST;
        for (why, policy, after) in [
            ("a proxy comes", by(one, NetworkPolicy::OPEN), OTHER),
            ("another in its place", by(two, NetworkPolicy::OPEN), OTHER),
            ("it goes", NetworkPolicy::OPEN, HOST),
            ("it comes again", by(one, NetworkPolicy::OPEN), OTHER),
        ] {
            assert_eq!(open.seen_as, before.to_string(), "{why}");
            assert_eq!(open.says("still").unwrap(), "still", "{why}");
            lease.apply(&policy).await.unwrap();
            open.says("still").unwrap_err();
            (open, before) = (guest.stream(OTHER), after);
        }
        // Other rules, and the same way.
        let deny = vec!["203.0.113.20/32".parse().unwrap()];
        let same = by(one, NetworkPolicy { deny, ..NetworkPolicy::OPEN });
        lease.apply(&same).await.unwrap();
        assert_eq!(open.says("still").unwrap(), "still");
        let deny = vec!["203.0.113.99/32".parse().unwrap()];
        lease.apply(&by(one, NetworkPolicy { deny, ..NetworkPolicy::OPEN })).await.unwrap();
        open.says("still").unwrap_err();
        assert!(tasks.shut_down(SOON).await);
    });
}

#[test]
fn without_the_process_nothing_leaves() {
    world::run(|world| async move {
        let _server = Server::start(world, OUTSIDE, SOCKS, None);
        let policy = by("203.0.113.7:1080", NetworkPolicy::OPEN);
        let told = policy.clone();
        let first = thread::spawn(move || {
            // Dropped at the end, as in a kill.
            world::runtime().block_on(async move {
                let network = world.network(&Tasks::new()).await;
                let lease = network.lease().await.unwrap();
                lease.apply(&told).await.unwrap();
                let guest = Guest::of(&lease);
                let open = guest.stream(OTHER);
                assert_eq!(open.seen_as, OTHER.to_string());
                (lease.record().clone(), lease.netns_path().to_owned(), open)
            })
        });
        let (kept, path, mut open): (_, PathBuf, _) = first.join().unwrap();
        let guest = Guest(&path);
        open.says("still").unwrap_err();
        for port in [PORT, HTTP, TLS, 22] {
            assert_eq!(guest.connects(OTHER, port), Connects::Refused);
        }
        refused(&guest.ask(OUTSIDE.into(), "any.test").unwrap_err());

        let tasks = Tasks::new();
        let network = world.network(&tasks).await;
        // There again, and not told by whom it leaves.
        refused(&guest.says((OTHER, PORT), b"x", 1).unwrap_err());
        let lease = network.adopt(kept).await.unwrap();
        refused(&guest.says((OTHER, PORT), b"x", 1).unwrap_err());
        lease.apply(&policy).await.unwrap();
        assert_eq!(seen_as(&guest, (OTHER, PORT), b"x").unwrap(), OTHER);
        assert!(tasks.shut_down(SOON).await);
    });
}
