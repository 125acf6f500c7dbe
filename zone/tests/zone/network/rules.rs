//! Who reaches whom.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
};

use sandboxo_tasks::Tasks;
use sandboxo_zone_protocol::{NetworkMode, NetworkPolicy};
use tokio::time::Instant;

use super::{
    guest::{Connects, Guest, connect},
    world::{self, GATEWAY, HOST, OTHER, OUTSIDE, PORT, PRIVATE, SOON, command, ip, within},
};

fn policy(allow: &str, deny: &str) -> NetworkPolicy {
    let nets = |text: &str| text.split_whitespace().map(|net| net.parse().unwrap()).collect();
    NetworkPolicy { allow: nets(allow), deny: nets(deny), ..NetworkPolicy::OPEN }
}

#[test]
fn the_internet_is_open_and_everything_near_is_refused() {
    world::run(|world| async move {
        // Without the rules all of them could be reached.
        for address in PRIVATE {
            connect((address, PORT).into()).unwrap();
        }
        let tasks = Tasks::new();
        let network = world.network(&tasks).await;
        let (lease, sibling) = (network.lease().await.unwrap(), network.lease().await.unwrap());
        let guest = Guest::of(&lease);

        assert_eq!(guest.stream(OUTSIDE).seen_as, HOST.to_string());
        let refused = |address, port| {
            let started = Instant::now();
            assert_eq!(guest.connects(address, port), Connects::Refused, "{address}:{port}");
            assert!(started.elapsed() < SOON / 2, "{address} took {:?}", started.elapsed());
        };
        for address in PRIVATE {
            refused(address, PORT);
        }
        // The host, by every address it has, and its neighbors.
        let uplink = command(&format!("ip -4 -br addr show dev sbxo-{}", world.instance));
        let uplink = uplink.split_whitespace().nth(2).unwrap().split('/').next().unwrap();
        for address in [HOST, uplink.parse().unwrap(), GATEWAY] {
            refused(address, PORT);
        }
        // The forwarder answers questions and nothing else.
        let IpAddr::V4(forwarder) = lease.nameservers()[0] else { panic!("IPv6") };
        refused(forwarder, PORT);

        let address = sibling.record().address();
        within(sibling.netns_path(), || {
            let _listener = std::net::TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).unwrap();
            connect((Ipv4Addr::LOCALHOST, PORT).into()).unwrap();
            refused(address, PORT);
            let next_to_it = Ipv4Addr::from(u32::from(address) - 1);
            refused(next_to_it, PORT);
        });

        // An address that the host gets later is its own as well.
        ip("addr add 203.0.113.200/32 dev lo");
        refused(Ipv4Addr::new(203, 0, 113, 200), PORT);
        assert!(tasks.shut_down(SOON).await);
    });
}

#[test]
fn policies_are_in_force_at_once() {
    use Connects::{Refused as No, Yes};

    world::run(|world| async move {
        let tasks = Tasks::new();
        let network = world.network(&tasks).await;
        let (lease, sibling) = (network.lease().await.unwrap(), network.lease().await.unwrap());
        let guest = Guest::of(&lease);
        for (why, policy, outside, other) in [
            ("open", NetworkPolicy::OPEN, Yes, Yes),
            ("one is denied", policy("", "203.0.113.7/32"), No, Yes),
            ("its network is denied", policy("", "203.0.113.0/24"), No, No),
            ("allow beats deny", policy("203.0.113.7/32", "203.0.113.0/24"), Yes, No),
            ("nothing but one", policy("203.0.113.99/32", "0.0.0.0/0"), No, Yes),
            ("nothing at all", policy("", "0.0.0.0/0"), No, No),
            ("replaced, not added", policy("", "203.0.113.99/32"), Yes, No),
            (
                "no network",
                NetworkPolicy { mode: NetworkMode::None, ..policy("0.0.0.0/0", "") },
                No,
                No,
            ),
            ("open again", policy("", ""), Yes, Yes),
        ] {
            lease.apply(&policy).await.unwrap();
            assert_eq!(guest.connects(OUTSIDE, PORT), outside, "{why}");
            assert_eq!(guest.connects(OTHER, PORT), other, "{why}");
            // Names are told whatever is denied, unless there is no network.
            let told = guest.ask(lease.nameservers()[0], "example.com").is_ok();
            assert_eq!(told, policy.mode == NetworkMode::Full, "{why}");
            assert_eq!(Guest::of(&sibling).connects(OUTSIDE, PORT), Yes, "{why}");
        }
        // Nothing near is opened by a policy.
        lease.apply(&policy("0.0.0.0/0 169.254.169.254/32 10.0.0.0/8", "")).await.unwrap();
        for address in PRIVATE.into_iter().chain([HOST]) {
            assert_eq!(guest.connects(address, PORT), No, "{address}");
        }
        assert!(tasks.shut_down(SOON).await);
    });
}

#[test]
fn an_established_connection_ends_when_it_is_refused() {
    world::run(|world| async move {
        let tasks = Tasks::new();
        let network = world.network(&tasks).await;
        let lease = network.lease().await.unwrap();
        let guest = Guest::of(&lease);
        let (mut kept, mut cut) = (guest.stream(OUTSIDE), guest.stream(OTHER));
        assert_eq!(kept.says("one").unwrap(), "one");
        assert_eq!(cut.says("one").unwrap(), "one");
        lease.apply(&policy("", "203.0.113.99/32")).await.unwrap();
        assert_eq!(kept.says("two").unwrap(), "two");
        let error = cut.says("two").unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        lease.apply(&policy("203.0.113.7/32", "0.0.0.0/0")).await.unwrap();
        assert_eq!(kept.says("three").unwrap(), "three");
        assert!(tasks.shut_down(SOON).await);
    });
}

#[test]
fn no_window_is_open_while_rules_are_replaced() {
    world::run(|world| async move {
        let tasks = Tasks::new();
        let network = world.network(&tasks).await;
        let lease = network.lease().await.unwrap();
        // OTHER is refused by both, and OUTSIDE allowed, each time by another rule.
        let (one, two) = (policy("", "203.0.113.64/26"), policy("203.0.113.7/32", "0.0.0.0/0"));
        lease.apply(&one).await.unwrap();
        let (done, tries) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let knock = |address, expected| {
            let (path, done, tries) = (lease.netns_path().to_owned(), done.clone(), tries.clone());
            thread::spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    assert_eq!(Guest(&path).connects(address, PORT), expected, "{address}");
                    tries.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let (forbidden, allowed) = (knock(OTHER, Connects::Refused), knock(OUTSIDE, Connects::Yes));
        for round in 0..150 {
            lease.apply(if round % 2 == 0 { &two } else { &one }).await.unwrap();
        }
        done.store(true, Ordering::Relaxed);
        forbidden.join().unwrap();
        allowed.join().unwrap();
        let tries = tries.load(Ordering::Relaxed);
        assert!(tries > 150, "only {tries}");
        assert!(tasks.shut_down(SOON).await);
    });
}

#[test]
fn nobody_speaks_with_anothers_address() {
    world::run(|world| async move {
        let tasks = Tasks::new();
        let network = world.network(&tasks).await;
        let (lease, sibling) = (network.lease().await.unwrap(), network.lease().await.unwrap());
        let guest = Guest::of(&lease);
        let theirs = sibling.record().address();
        for source in [theirs, Ipv4Addr::new(192, 0, 2, 77)] {
            within(guest.0, || {
                ip(&format!("addr add {source}/32 dev eth0"));
                ip(&format!("route change default via {} src {source}", gateway(&lease)));
            });
            assert_ne!(guest.connects(OUTSIDE, PORT), Connects::Yes, "as {source}");
        }
        let own = lease.record().address();
        within(guest.0, || {
            ip(&format!("route change default via {} src {own}", gateway(&lease)));
        });
        assert_eq!(guest.connects(OUTSIDE, PORT), Connects::Yes);
        assert!(tasks.shut_down(SOON).await);
    });
}

#[test]
fn one_sandbox_cannot_take_every_connection() {
    world::run(|world| async move {
        let tasks = Tasks::new();
        let network = world.network(&tasks).await;
        let (lease, sibling) = (network.lease().await.unwrap(), network.lease().await.unwrap());
        let tracked = || -> u32 {
            let count = "/proc/sys/net/netfilter/nf_conntrack_count";
            within(&world.zone(), || {
                std::fs::read_to_string(count).unwrap().trim().parse().unwrap()
            })
        };
        within(lease.netns_path(), || {
            for _ in 0..3000 {
                let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
                socket.connect((OTHER, PORT)).unwrap();
                socket.send(b"x").unwrap();
            }
        });
        let count = tracked();
        assert!((1900..2200).contains(&count), "{count}");
        assert_eq!(Guest::of(&lease).connects(OUTSIDE, PORT), Connects::Refused);
        assert_eq!(Guest::of(&sibling).connects(OUTSIDE, PORT), Connects::Yes);
        assert!(tasks.shut_down(SOON).await);
    });
}

fn gateway(lease: &sandboxo_zone::network::Lease) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(lease.record().address()) - 1)
}

#[test]
fn names_are_told_by_datagram_and_by_stream() {
    world::run(|world| async move {
        let tasks = Tasks::new();
        let network = world.network(&tasks).await;
        let lease = network.lease().await.unwrap();
        let guest = Guest::of(&lease);
        let answer = guest.ask(lease.nameservers()[0], "example.com").unwrap();
        assert_eq!(answer[..4], [1, 2, 0x81, 0x80]);
        assert_eq!(answer[answer.len() - 4..], OUTSIDE.octets());
        // Nobody resolves by TCP out there, and that is said.
        let answer = guest.ask_by_tcp(lease.nameservers()[0], "example.com").unwrap();
        assert_eq!(answer[..4], [1, 2, 0x81, 0x82]);
        assert!(tasks.shut_down(SOON).await);
    });
}

#[test]
fn there_is_no_half_of_ipv6() {
    world::run(|world| async move {
        let tasks = Tasks::new();
        let network = world.network(&tasks).await;
        let lease = network.lease().await.unwrap();
        within(lease.netns_path(), || {
            let addresses = command("ip -6 -br addr show dev eth0");
            assert_eq!(addresses.trim(), "");
            let listener = std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, PORT)).unwrap();
            connect(listener.local_addr().unwrap()).unwrap();
            let started = Instant::now();
            connect("[2001:db8::1]:80".parse().unwrap()).unwrap_err();
            assert!(started.elapsed() < SOON / 2);
        });
        within(&world.zone(), || assert_eq!(command("ip -6 -br addr").trim(), ""));
        assert!(tasks.shut_down(SOON).await);
    });
}
