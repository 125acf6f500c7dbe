//! The host's side of the uplink: what the host is like, and the one table that is made there.
//!
//! The switch `ip_forward` and all tables of others stay as they are. Forwarding is turned on for
//! the uplink and the ways out alone, and where that makes a router of an interface that was
//! none, the table keeps it from routing anything but answers to sandboxes.

use std::{collections::BTreeSet, io, net::IpAddr};

use ipnet::Ipv4Net;

use super::{
    namespace::{set_sysctl, sysctl},
    netlink::Netlink,
    nft::{self, NftError},
    plan::{self, Plan},
};

/// Wider networks on a link are a way to the internet, not a neighborhood.
const WIDEST_REFUSED: u8 = 8;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Host {
    /// What sandboxes must not reach: its addresses and the networks they are in.
    pub(super) own: Vec<Ipv4Net>,
    /// Everything it has an address in or a route to, without the default.
    pub(super) known: Vec<Ipv4Net>,
    /// The interfaces with a default route.
    pub(super) ways: BTreeSet<String>,
    /// Those of them that forward only since we asked.
    pub(super) guarded: BTreeSet<String>,
    pub(super) mtu: u32,
}

#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error("read the host's addresses and routes")]
    Read(#[source] io::Error),
    #[error("turn on forwarding on {link}")]
    Forwarding { link: String, source: io::Error },
    #[error("make the host's table")]
    Table(#[source] NftError),
}

/// Reads the host as seen from the namespace of the calling thread.
pub(super) fn read(instance: &str) -> Result<Host, HostError> {
    let mut netlink = Netlink::open().map_err(HostError::Read)?;
    let links = netlink.links().map_err(HostError::Read)?;
    let addresses = netlink.addresses().map_err(HostError::Read)?;
    let routes = netlink.routes().map_err(HostError::Read)?;
    let uplink = plan::name(instance);

    let mut host = Host { mtu: 1500, ..Host::default() };
    for address in &addresses {
        let is_ours = links.iter().any(|link| link.index == address.link && link.name == uplink);
        if !is_ours {
            host.known.push(address.net);
        }
        host.own.push(Ipv4Net::from(address.net.addr()));
        if address.net.prefix_len() >= WIDEST_REFUSED {
            host.own.push(address.net.trunc());
        }
    }
    for route in routes {
        let mut leads_to = links.iter().filter(|link| route.links.contains(&link.index));
        if route.to.prefix_len() == 0 {
            for link in leads_to {
                host.mtu = host.mtu.min(link.mtu);
                host.ways.insert(link.name.clone());
            }
        } else if !leads_to.any(|link| link.name == uplink) {
            host.known.push(route.to);
        }
    }
    host.own = Ipv4Net::aggregate(&host.own);
    host.guarded = guarded(&host.ways)?;
    Ok(host)
}

/// An interface is guarded if it doesn't forward, or did not before an instance came.
fn guarded(ways: &BTreeSet<String>) -> Result<BTreeSet<String>, HostError> {
    // Somebody made a router of this host, so what it routes is theirs to say.
    if sysctl("net/ipv4/ip_forward").map_err(HostError::Read)? != "0" {
        return Ok(BTreeSet::new());
    }
    let mut before = BTreeSet::new();
    for table in tables()? {
        before.extend(read_guarded(&table)?);
    }
    let mut guarded = BTreeSet::new();
    for way in ways {
        let forwards = sysctl(&forwarding(way)).map_err(HostError::Read)? != "0";
        if !forwards || before.contains(way) {
            guarded.insert(way.clone());
        }
    }
    Ok(guarded)
}

fn read_guarded(table: &str) -> Result<BTreeSet<String>, HostError> {
    let listed = nft::list(&["set", "ip", table, "guarded"]).map_err(HostError::Table)?;
    let mut names = BTreeSet::new();
    let objects = listed.as_ref().and_then(|it| it.get("nftables")?.as_array());
    for object in objects.into_iter().flatten() {
        let elements = object.get("set").and_then(|set| set.get("elem")?.as_array());
        names.extend(elements.into_iter().flatten().filter_map(|it| Some(it.as_str()?.to_owned())));
    }
    Ok(names)
}

/// Makes the host's side what `host` says. The table comes first: nothing is ever forwarded that
/// it would not let through.
pub(super) fn open_the_way(plan: &Plan, host: &Host) -> Result<(), HostError> {
    nft::apply(&table(plan, host)).map_err(HostError::Table)?;
    let uplink = plan.name();
    for link in host.ways.iter().chain([&uplink]) {
        let key = forwarding(link);
        let turn_on = || {
            if sysctl(&key)? == "0" { set_sysctl(&key, "1") } else { Ok(()) }
        };
        turn_on().map_err(|source| HostError::Forwarding { link: link.clone(), source })?;
    }
    Ok(())
}

/// Whether somebody has undone it since.
pub(super) fn is_open(plan: &Plan, host: &Host) -> Result<bool, HostError> {
    for link in host.ways.iter().chain([&plan.name()]) {
        if sysctl(&forwarding(link)).map_err(HostError::Read)? == "0" {
            return Ok(false);
        }
    }
    Ok(tables()?.contains(&plan.name()))
}

/// Undoes it. Forwarding stays on where another instance still needs it.
pub(super) fn close_the_way(instance: &str) -> Result<(), HostError> {
    let table = plan::name(instance);
    let mut ours = read_guarded(&table)?;
    for other in tables()?.iter().filter(|other| **other != table) {
        for name in read_guarded(other)? {
            ours.remove(&name);
        }
    }
    for link in ours {
        match set_sysctl(&forwarding(&link), "0") {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(HostError::Forwarding { link, source: error });
            }
            _ => {}
        }
    }
    nft::apply(&format!("add table ip {table}\ndelete table ip {table}\n"))
        .map_err(HostError::Table)
}

/// The tables of all instances on this host.
pub(super) fn tables() -> Result<Vec<String>, HostError> {
    let listed = nft::list(&["tables", "ip"]).map_err(HostError::Table)?;
    let objects = listed.as_ref().and_then(|it| it.get("nftables")?.as_array());
    Ok(objects
        .into_iter()
        .flatten()
        .filter_map(|object| object.get("table")?.get("name")?.as_str())
        .filter(|name| name.starts_with(&plan::name("")))
        .map(str::to_owned)
        .collect())
}

/// What keeps the host from forwarding for sandboxes, whatever our own table says.
pub(super) fn obstacles() -> Result<Vec<String>, HostError> {
    let mut found = Vec::new();
    if read("")?.ways.is_empty() {
        found.push("the host has no default route".to_owned());
    }
    let listed = nft::list(&["chains"]).map_err(HostError::Table)?.unwrap_or_default();
    found.extend(dropping_chains(&listed).into_iter().map(|chain| {
        format!("{chain} drops what is forwarded: accept what comes from and goes to sbxo-* there")
    }));
    Ok(found)
}

/// Of others. A packet that one base chain drops is lost, whatever another accepts.
fn dropping_chains(listed: &serde_json::Value) -> Vec<String> {
    let objects = listed.get("nftables").and_then(|it| it.as_array());
    let chains = objects.into_iter().flatten().filter_map(|object| object.get("chain"));
    chains
        .filter_map(|chain| {
            let text = |key| chain.get(key).and_then(|it| it.as_str());
            let drops = text("hook") == Some("forward") && text("policy") == Some("drop");
            let (family, table, name) = (text("family")?, text("table")?, text("name")?);
            let sees_ipv4 = matches!(family, "ip" | "inet");
            let is_ours = table.starts_with(&plan::name(""));
            (drops && sees_ipv4 && !is_ours)
                .then(|| format!("chain {name} of table {family} {table}"))
        })
        .collect()
}

fn forwarding(link: &str) -> String {
    format!("net/ipv4/conf/{link}/forwarding")
}

/// The whole table, in place of the one that may be there.
fn table(plan: &Plan, host: &Host) -> String {
    let name = plan.name();
    let quoted = |names: &BTreeSet<String>| {
        names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
    };
    let out = if host.ways.is_empty() {
        String::new()
    } else {
        format!("    iifname \"{name}\" oifname {{ {} }} accept\n", quoted(&host.ways))
    };
    let elements = if host.guarded.is_empty() {
        String::new()
    } else {
        format!(" elements = {{ {} }};", quoted(&host.guarded))
    };
    let uplink = plan.uplink_zone().addr();
    format!(
        r#"add table ip {name}
delete table ip {name}
table ip {name} {{
  set guarded {{ type ifname;{elements} }}
  chain refuse {{
    meta l4proto tcp reject with tcp reset
    reject with icmp type admin-prohibited
  }}
  chain input {{
    type filter hook input priority filter - 1; policy accept;
    iifname "{name}" goto refuse
  }}
  chain forward {{
    type filter hook forward priority filter - 1; policy accept;
{out}    iifname "{name}" goto refuse
    oifname "{name}" ct state established,related accept
    oifname "{name}" drop
    iifname @guarded oifname != "{prefix}*" drop
  }}
  chain source {{
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr {uplink} oifname != "{name}" masquerade
  }}
}}
"#,
        prefix = plan::name(""),
    )
}

/// What `/etc/resolv.conf` says; entries that are no address are passed over.
pub(super) fn resolvers(resolv_conf: &str) -> Vec<IpAddr> {
    resolv_conf
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            (words.next()? == "nameserver").then(|| words.next()?.parse().ok())?
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_table() {
        let plan = Plan::new("a1b2c3", "10.7.0.0/16".parse().unwrap());
        let ways: BTreeSet<String> = ["eth0".to_owned(), "wg0".to_owned()].into();
        let host = Host { guarded: ["eth0".to_owned()].into(), ways, ..Host::default() };
        assert_eq!(
            table(&plan, &host),
            r#"add table ip sbxo-a1b2c3
delete table ip sbxo-a1b2c3
table ip sbxo-a1b2c3 {
  set guarded { type ifname; elements = { "eth0" }; }
  chain refuse {
    meta l4proto tcp reject with tcp reset
    reject with icmp type admin-prohibited
  }
  chain input {
    type filter hook input priority filter - 1; policy accept;
    iifname "sbxo-a1b2c3" goto refuse
  }
  chain forward {
    type filter hook forward priority filter - 1; policy accept;
    iifname "sbxo-a1b2c3" oifname { "eth0", "wg0" } accept
    iifname "sbxo-a1b2c3" goto refuse
    oifname "sbxo-a1b2c3" ct state established,related accept
    oifname "sbxo-a1b2c3" drop
    iifname @guarded oifname != "sbxo-*" drop
  }
  chain source {
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr 10.7.0.6 oifname != "sbxo-a1b2c3" masquerade
  }
}
"#
        );
    }

    #[test]
    fn no_way_out_is_no_rule() {
        let plan = Plan::new("a1b2c3", "10.7.0.0/16".parse().unwrap());
        let text = table(&plan, &Host::default());
        assert!(text.contains("set guarded { type ifname; }"));
        assert!(!text.contains("oifname { "), "{text}");
    }

    #[test]
    fn who_drops_what_is_forwarded() {
        let chain = |family: &str, table: &str, name: &str, hook: &str, policy: &str| {
            serde_json::json!({"chain": {
                "family": family, "table": table, "name": name, "hook": hook, "policy": policy,
            }})
        };
        let listed = serde_json::json!({"nftables": [
            {"metainfo": {"version": "1.0.6"}},
            chain("ip", "filter", "FORWARD", "forward", "drop"),
            chain("ip", "filter", "INPUT", "input", "drop"),
            chain("ip6", "filter", "FORWARD", "forward", "drop"),
            chain("inet", "fw", "fwd", "forward", "accept"),
            chain("inet", "fw2", "fwd", "forward", "drop"),
            chain("ip", "sbxo-a1b2c3", "forward", "forward", "drop"),
            {"chain": {"family": "ip", "table": "filter", "name": "DOCKER"}},
        ]});
        assert_eq!(
            dropping_chains(&listed),
            ["chain FORWARD of table ip filter", "chain fwd of table inet fw2",]
        );
        assert_eq!(dropping_chains(&serde_json::Value::Null), [""; 0]);
    }

    #[test]
    fn resolv_conf() {
        for (text, expected) in [
            ("", vec![]),
            ("nameserver 127.0.0.53\noptions edns0\n", vec!["127.0.0.53"]),
            (
                "# nameserver 1.1.1.1\nnameserver\t9.9.9.9 # x\nnameserver 2001:db8::1\n",
                vec!["9.9.9.9", "2001:db8::1"],
            ),
            ("nameserver fe80::1%eth0\nnameserver\nnameserver x\nsearch nameserver\n", vec![]),
        ] {
            let expected: Vec<IpAddr> = expected.iter().map(|it| it.parse().unwrap()).collect();
            assert_eq!(resolvers(text), expected, "{text}");
        }
    }
}
