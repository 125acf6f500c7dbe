//! Rules that give headers to requests: who gets them, and that nothing else is touched.

use std::{
    io::{self, Write as _},
    net::Ipv4Addr,
    thread,
};

use sandboxo_tasks::Tasks;
use sandboxo_zone_protocol::{NetworkPolicy, Secret, SetHeader};
use tokio::time::Instant;

use super::{
    guest::{Guest, hear},
    secure::{Believes, request},
    world::{self, HOST, HTTP, OUTSIDE, SECURE, SOON, TLS, World},
};

/// `X-Token` for that host, over what else is allowed.
fn given(host: &str, value: &str, policy: NetworkPolicy) -> NetworkPolicy {
    let header = SetHeader { name: "x-token".into(), value: Secret::new(value) };
    NetworkPolicy { headers: [(host.parse().unwrap(), vec![header])].into(), ..policy }
}

fn once(
    world: &World,
    guest: &Guest<'_>,
    (address, name, uri): (Ipv4Addr, &str, &str),
    believes: Believes,
    protocol: &[u8],
) -> io::Result<String> {
    let requests = vec![request(uri, 3)];
    let asked = world.secure().ask(guest, (address, name), believes, protocol, requests, || {});
    asked.map(|mut answers| answers.remove(0))
}

#[test]
fn requests_to_a_ruled_host_are_given_headers_and_nothing_else_is_touched() {
    world::run(|world| async move {
        let tasks = Tasks::new();
        let network = world.network(&tasks).await;
        let lease = network.lease().await.unwrap();
        let guest = Guest::of(&lease);
        lease.apply(&given("secure.test", "one", NetworkPolicy::OPEN)).await.unwrap();
        for (protocol, version) in [(&b"h2"[..], "HTTP/2.0"), (b"http/1.1", "HTTP/1.1")] {
            let ruled = (SECURE, "secure.test", "https://secure.test/path");
            let heard = once(world, &guest, ruled, Believes::Zone, protocol).unwrap();
            assert!(heard.starts_with(&format!("{version} /path 3\n")), "{heard}");
            assert!(heard.contains("x-token: \"one\""), "{heard}");
            assert_eq!(heard.matches("x-token").count(), 1, "{heard}");
            assert!(!heard.contains("mine") && heard.contains("x-other: \"stays\""), "{heard}");

            let other = (SECURE, "secure-two.test", "https://secure-two.test/");
            once(world, &guest, other, Believes::Zone, protocol).unwrap_err();
            let heard = once(world, &guest, other, Believes::Internet, protocol).unwrap();
            assert!(heard.contains("x-token: \"mine\""), "{heard}");

            // Rules are found by one name, and requests that mean another are not sent.
            let mixed = (SECURE, "secure.test", "https://secure-two.test/");
            once(world, &guest, mixed, Believes::Zone, protocol).unwrap_err();
            // Somebody else in its place.
            let elsewhere = (OUTSIDE, "secure.test", "https://secure.test/");
            once(world, &guest, elsewhere, Believes::Zone, protocol).unwrap_err();
        }
        // It says that it is another.
        lease.apply(&given("secure-no.test", "one", NetworkPolicy::OPEN)).await.unwrap();
        let liar = (SECURE, "secure-no.test", "https://secure-no.test/");
        once(world, &guest, liar, Believes::Zone, b"http/1.1").unwrap_err();
        assert!(tasks.shut_down(SOON).await);
    });
}

#[test]
fn new_values_hold_for_the_next_request() {
    world::run(|world| async move {
        let tasks = Tasks::new();
        let network = world.network(&tasks).await;
        let lease = network.lease().await.unwrap();
        let guest = Guest::of(&lease);
        let here = tokio::runtime::Handle::current();
        for protocol in [&b"h2"[..], b"http/1.1"] {
            lease.apply(&given("secure.test", "one", NetworkPolicy::OPEN)).await.unwrap();
            let requests = vec![request("https://secure.test/a", 300_000); 3];
            let mut policies =
                vec![NetworkPolicy::OPEN, given("secure.test", "two", NetworkPolicy::OPEN)];
            let change = || {
                if let Some(policy) = policies.pop() {
                    let apply = || here.block_on(lease.apply(&policy)).unwrap();
                    thread::scope(|scope| scope.spawn(apply).join().unwrap());
                }
            };
            let ruled = (SECURE, "secure.test");
            let asked =
                world.secure().ask(&guest, ruled, Believes::Zone, protocol, requests, change);
            let heard = asked.unwrap();
            for (heard, value) in heard.iter().zip(["one", "two", "mine"]) {
                assert!(heard.contains(" /a 300000\n"), "{heard}");
                assert!(heard.contains(&format!("x-token: \"{value}\"")), "{value}: {heard}");
            }
            assert_eq!(heard.len(), 3);
        }
        assert!(tasks.shut_down(SOON).await);
    });
}

#[test]
fn a_rule_allows_nothing_and_holds_in_the_clear() {
    world::run(|world| async move {
        let tasks = Tasks::new();
        let network = world.network(&tasks).await;
        let lease = network.lease().await.unwrap();
        let guest = Guest::of(&lease);
        let secure = (SECURE, "secure.test", "https://secure.test/");
        let deny = vec!["0.0.0.0/0".parse().unwrap()];
        let denied = NetworkPolicy { deny, ..NetworkPolicy::OPEN };
        let names = vec!["secure.test".parse().unwrap()];
        let fine = NetworkPolicy { names, ..denied.clone() };
        let other = NetworkPolicy { names: vec!["a.test".parse().unwrap()], ..denied.clone() };
        for (why, policy, expected) in
            [("denied", denied, false), ("another name", other, false), ("named", fine, true)]
        {
            lease.apply(&given("secure.test", "one", policy)).await.unwrap();
            let told = guest.told(lease.nameservers()[0], "secure.test").unwrap().0;
            assert_eq!(told == 3, why == "another name", "{why}");
            let heard = once(world, &guest, secure, Believes::Zone, b"h2");
            assert_eq!(heard.is_ok(), expected, "{why}: {heard:?}");
        }

        lease.apply(&given("one.test", "one", NetworkPolicy::OPEN)).await.unwrap();
        let say = |host: &str| {
            let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nX-Token: mine\r\n\r\n");
            let heard = guest.says((OUTSIDE, HTTP), request.as_bytes(), 87).unwrap();
            String::from_utf8(heard).unwrap().to_ascii_lowercase()
        };
        assert!(say("one.test").contains("x-token: one"));
        assert!(say("two.test").contains("x-token: mine"));
        let elsewhere = b"GET / HTTP/1.1\r\nHost: one.test\r\n\r\n";
        guest.says((SECURE, HTTP), elsewhere, 1).unwrap_err();

        // Of what is no HTTP or TLS nothing is asked, also where the other side speaks first.
        let start = Instant::now();
        let mut silent = guest.connection((OUTSIDE, TLS));
        silent.set_read_timeout(Some(SOON * 3)).unwrap();
        let greeting = format!("{HOST}\n");
        assert_eq!(hear(&mut silent, greeting.len()).unwrap(), greeting.as_bytes());
        assert!(start.elapsed() < SOON * 3);
        let mut ssh = guest.connection((OUTSIDE, TLS));
        ssh.write_all(b"SSH-2.0-x\r\n").unwrap();
        assert_eq!(hear(&mut ssh, greeting.len() + 11).unwrap().len(), greeting.len() + 11);
        assert!(tasks.shut_down(SOON).await);
    });
}
