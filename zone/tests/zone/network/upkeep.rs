//! What is made, kept, found again and removed.

use std::fs;

use sandboxo_tasks::Tasks;
use sandboxo_zone::network::{LeaseRecord, Network, NetworkConfig, NetworkError, Uplink};
use sandboxo_zone_protocol::NetworkPolicy;

use super::{
    guest::{Connects, Guest},
    world::{self, OTHER, OUTSIDE, PORT, SOON, World, command, ip, within},
};

fn denies_other() -> NetworkPolicy {
    let deny = vec!["203.0.113.99/32".parse().unwrap()];
    NetworkPolicy { deny, ..NetworkPolicy::OPEN }
}

/// The namespaces, links and chains of sandboxes that exist, each by its numbers.
fn numbers(world: &World) -> [Vec<u32>; 3] {
    let prefix = format!("sbxo-{}-", world.instance);
    let mut namespaces: Vec<u32> = fs::read_dir("/run/netns")
        .unwrap()
        .filter_map(|entry| {
            entry.unwrap().file_name().into_string().unwrap().strip_prefix(&prefix)?.parse().ok()
        })
        .collect();
    namespaces.sort_unstable();
    let (links, chains) = within(&world.zone(), || {
        (command("ip -br link"), command(&format!("nft list table ip sbxo-{}", world.instance)))
    });
    let of = |text: &str, prefixes: &[&str]| {
        let mut found: Vec<u32> = text
            .split(|c: char| c.is_whitespace() || c == '@')
            .filter_map(|word| {
                prefixes.iter().find_map(|prefix| word.strip_prefix(prefix)?.parse().ok())
            })
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    };
    [namespaces, of(&links, &["sb"]), of(&chains, &["out-", "back-"])]
}

fn number(record: &LeaseRecord) -> u32 {
    serde_json::to_value(record).unwrap()["number"].as_u64().unwrap().try_into().unwrap()
}

#[test]
fn sandboxes_keep_their_network_when_the_process_is_killed() {
    world::run(|world| async move {
        let (kept, lost) = std::thread::spawn(|| {
            let runtime = world::runtime();
            runtime.block_on(async {
                let network = world.network(&Tasks::new()).await;
                let (kept, lost) = (network.lease().await.unwrap(), network.lease().await.unwrap());
                kept.apply(&denies_other()).await.unwrap();
                (kept.record().clone(), lost.record().clone())
            })
        })
        .join()
        .unwrap();
        let path = format!("/run/netns/sbxo-{}-{}", world.instance, number(&kept));
        let guest = Guest(path.as_ref());
        // Nobody is there, and the rules are.
        assert_eq!(guest.connects(OUTSIDE, PORT), Connects::Yes);
        assert_eq!(guest.connects(OTHER, PORT), Connects::Refused);
        let mut talk = guest.stream(OUTSIDE);

        let tasks = Tasks::new();
        let network = world.network(&tasks).await;
        // The record comes back from a file.
        let record = serde_json::from_str(&serde_json::to_string(&kept).unwrap()).unwrap();
        let lease = network.adopt(record).await.unwrap();
        assert_eq!(lease.netns_path(), guest.0);
        network.sweep(std::slice::from_ref(&kept)).await;
        assert_eq!(talk.says("still here").unwrap(), "still here");
        assert_eq!(guest.connects(OTHER, PORT), Connects::Refused);
        lease.apply(&NetworkPolicy::OPEN).await.unwrap();
        assert_eq!(guest.connects(OTHER, PORT), Connects::Yes);
        assert!(guest.ask(lease.nameservers()[0], "example.com").is_ok());

        for record in [&lost, &kept] {
            let error = network.adopt(record.clone()).await.err().unwrap();
            assert!(matches!(error, NetworkError::NotFound), "{error:?}");
        }
        lease.release().await;
        assert!(tasks.shut_down(SOON).await);
        assert_eq!(numbers(world), [const { Vec::<u32>::new() }; 3]);
    });
}

#[test]
fn a_sweep_finds_what_was_half_made() {
    world::run(|world| async move {
        let tasks = Tasks::new();
        let config = NetworkConfig { ready: 0, ..world.config() };
        let network = Network::start(config, &tasks).await.unwrap();
        let held = network.lease().await.unwrap();
        let kept = number(held.record());
        assert!(tasks.shut_down(SOON).await);
        std::mem::forget(held);

        // Killed at every step of making one, and of removing one.
        let instance = &world.instance;
        let name = |number: u32| format!("sbxo-{instance}-{number}");
        fs::write(format!("/run/netns/{}", name(100)), "").unwrap();
        ip(&format!("netns add {}", name(101)));
        ip(&format!("netns add {}", name(102)));
        ip(&format!(
            "-n sbxo-{instance} link add sb102 type veth peer name eth0 netns {}",
            name(102)
        ));
        ip(&format!("-n sbxo-{instance} link add sb103 type veth peer name far103"));
        within(&world.zone(), || {
            command(&format!("nft add chain ip sbxo-{instance} out-104"));
        });
        let [namespaces, links, chains] = numbers(world);
        assert_eq!(namespaces, [kept, 100, 101, 102]);
        assert_eq!(links, [kept, 102, 103]);
        assert_eq!(chains, [kept, 104]);

        let tasks = Tasks::new();
        let network = world.network(&tasks).await;
        let record = network.lease().await.unwrap();
        let leased = number(record.record());
        assert!(leased != kept && leased < 100);
        let held: LeaseRecord = serde_json::from_value(serde_json::json!({
            "number": kept,
            "address": std::net::Ipv4Addr::from(
                u32::from(record.record().address()) - 4 * (leased - kept)
            ),
            "namespace": name(kept),
        }))
        .unwrap();
        let lease = network.adopt(held.clone()).await.unwrap();
        network.sweep(&[]).await;
        record.release().await;
        assert!(tasks.shut_down(SOON).await);
        assert_eq!(numbers(world), [vec![kept], vec![kept], vec![kept]]);
        drop(lease);
    });
}

#[test]
fn the_pool_is_filled_again_and_released_ones_go() {
    world::run(|world| async move {
        let tasks = Tasks::new();
        let network = world.network(&tasks).await;
        let mut leases = Vec::new();
        for _ in 0..6 {
            leases.push(network.lease().await.unwrap());
        }
        let mut distinct: Vec<_> = leases.iter().map(|it| it.record().address()).collect();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), 6);
        for lease in leases {
            assert_eq!(Guest::of(&lease).connects(OUTSIDE, PORT), Connects::Yes);
            lease.release().await;
        }
        // One that was dropped is nobody's, and a sweep takes it.
        let dropped = network.lease().await.unwrap().record().clone();
        let held = network.lease().await.unwrap();
        network.sweep(std::slice::from_ref(&dropped)).await;
        assert!(numbers(world)[0].contains(&number(&dropped)), "it was named");
        network.sweep(&[]).await;
        assert!(!numbers(world)[0].contains(&number(&dropped)));
        assert!(tasks.shut_down(SOON).await);
        let left = vec![number(held.record())];
        assert_eq!(numbers(world), [left.clone(), left.clone(), left]);
        assert!(matches!(network.lease().await, Err(NetworkError::Stopped)));
    });
}

#[test]
fn the_host_is_left_as_it_was() {
    world::run(|world| async move {
        let read = |key: &str| fs::read_to_string(format!("/proc/sys/net/ipv4/{key}")).unwrap();
        let eth0 = "conf/eth0/forwarding";
        assert_eq!([read("ip_forward"), read(eth0)], ["0\n", "0\n"]);
        let tasks = Tasks::new();
        world.network(&tasks).await;
        assert_eq!([read("ip_forward"), read(eth0)], ["0\n", "1\n"]);
        let inventory = Network::inventory(&world.instance).await.unwrap();
        for expected in ["netns ", "link ", "nft table ip "] {
            let expected = format!("{expected}sbxo-{}", world.instance);
            assert!(inventory.contains(&expected), "{expected} is not in {inventory:?}");
        }

        // Somebody else on the network can't use the host as a router.
        fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1").unwrap();
        ip("link add lan type veth peer name far");
        ip("addr add 198.18.5.1/24 dev lan");
        ip("link set lan up");
        ip("link set far up");
        let before = command("ip -s -j link show dev lan");
        let outside = format!("outside-{}", world.instance);
        ip(&format!("-n {outside} route add 198.18.5.0/24 via {}", world::HOST));
        let way = format!("/run/netns/{outside}");
        assert_ne!(
            Guest(way.as_ref()).connects(std::net::Ipv4Addr::new(198, 18, 5, 9), PORT),
            Connects::Yes
        );
        let sent = |text: &str| {
            let json: serde_json::Value = serde_json::from_str(text).unwrap();
            json[0]["stats64"]["tx"]["packets"].as_u64().unwrap()
        };
        assert_eq!(sent(&command("ip -s -j link show dev lan")), sent(&before));

        assert!(tasks.shut_down(SOON).await);
        Network::tear_down(&world.instance).await.unwrap();
        assert_eq!([read("ip_forward"), read(eth0)], ["0\n", "0\n"]);
        assert_eq!(command("nft list tables").trim(), "");
    });
}

#[test]
fn a_firewall_that_drops_is_told() {
    world::run(|_| async {
        assert_eq!(Network::obstacles().await.unwrap(), [""; 0]);
        command("nft add table ip filter");
        command(
            "nft add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }",
        );
        ip("route del default");
        let obstacles = Network::obstacles().await.unwrap();
        assert_eq!(obstacles[0], "the host has no default route");
        assert!(obstacles[1].starts_with("chain FORWARD of table ip filter drops"));
        assert_eq!(obstacles.len(), 2);
    });
}

#[test]
fn a_host_that_changes_is_followed() {
    world::run(|world| async move {
        let tasks = Tasks::new();
        let network = world.network(&tasks).await;
        let lease = network.lease().await.unwrap();
        let guest = Guest::of(&lease);
        assert_eq!(guest.connects(OUTSIDE, PORT), Connects::Yes);
        // The firewall is loaded anew, and the host is moved to another network.
        command("nft flush ruleset");
        fs::write("/proc/sys/net/ipv4/conf/eth0/forwarding", "0").unwrap();
        ip("addr add 203.0.113.65/26 dev lo");
        let mut tries = 0;
        while guest.connects(OUTSIDE, PORT) != Connects::Yes {
            tries += 1;
            assert!(tries < 20, "the way out stays closed");
        }
        // The neighborhood of the new address is the zone's to refuse.
        let rules = || {
            within(&world.zone(), || command(&format!("nft list table ip sbxo-{}", world.instance)))
        };
        while !rules().contains("203.0.113.64/26") {
            tries += 1;
            assert!(tries < 40, "{}", rules());
        }
        assert_eq!(guest.connects(OTHER, PORT), Connects::Refused);
        assert!(tasks.shut_down(SOON).await);
    });
}

#[test]
fn two_instances_share_a_host() {
    world::run(|world| async move {
        let tasks = Tasks::new();
        let second = world.second();
        let one = world.network(&tasks).await;
        let config = NetworkConfig { instance: second.clone(), ..world.config() };
        let two = Network::start(config, &tasks).await.unwrap();
        let (first, other) = (one.lease().await.unwrap(), two.lease().await.unwrap());
        assert_ne!(first.nameservers(), other.nameservers());
        assert_eq!(Guest::of(&first).connects(OUTSIDE, PORT), Connects::Yes);
        assert_eq!(Guest::of(&other).connects(OUTSIDE, PORT), Connects::Yes);
        assert_eq!(Guest::of(&first).connects(other.record().address(), PORT), Connects::Refused);
        other.release().await;
        Network::tear_down(&second).await.unwrap();
        // The way out is still needed by one of them.
        assert_eq!(Guest::of(&first).connects(OUTSIDE, PORT), Connects::Yes);
        assert!(tasks.shut_down(SOON).await);
    });
}

#[test]
fn without_an_uplink_there_is_no_internet_and_no_change_to_the_host() {
    world::run(|world| async move {
        let tasks = Tasks::new();
        let config = NetworkConfig { uplink: Uplink::None, ..world.config() };
        let network = Network::start(config, &tasks).await.unwrap();
        let lease = network.lease().await.unwrap();
        assert_eq!(Guest::of(&lease).connects(OUTSIDE, PORT), Connects::Refused);
        assert!(Guest::of(&lease).ask(lease.nameservers()[0], "example.com").is_ok());
        assert_eq!(command("nft list tables").trim(), "");
        assert!(tasks.shut_down(SOON).await);
    });
}
