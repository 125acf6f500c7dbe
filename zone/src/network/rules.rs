//! The rules of the zone's namespace, as text for nft. Values in, text out.
//!
//! Each sandbox has two chains, `out-N` for what it sends and `back-N` for what is sent to it.
//! The maps lead there by interface *and* address, so that nobody speaks with another's address,
//! and what no map knows is dropped.
//!
//! A policy is changed by giving the two chains other rules. The kernel swaps the rules of a
//! chain as a whole, and the sets in them are never changed, only replaced: no packet sees a
//! mixture. Both directions look at the address on every packet, so what is refused from then on
//! ends, also where it was established.
//!
//! Where rules are by name, new connections to the ports of HTTP and TLS are led to the proxy,
//! which has the rules and dials from here; what is led there when nobody listens is refused. Of
//! a sandbox that has a proxy of its own, all connections are, and nothing else leaves.

use ipnet::{IpNet, Ipv4Net};
use sandboxo_zone_protocol::{NetworkMode, NetworkPolicy, REFUSED_ALWAYS};

use super::plan::Plan;

pub(super) const UPLINK: &str = "uplink";
/// Lead to the chains of each sandbox.
pub(super) const MAPS: [&str; 2] = ["egress", "ingress"];

/// The sandboxes whose connections are led to the proxy.
pub(super) const NAMED: &str = "named";
/// Those of which all connections are.
pub(super) const TUNNELED: &str = "tunneled";
/// Where the proxy listens, beside the forwarder. The rules that lead there outlive it.
pub(super) const PROXY_PORT: u16 = 3128;

/// Connections of one sandbox at a time. The host's table of connections is shared by all.
const FLOWS: u32 = 2048;

/// The table and what all sandboxes share. Applied again, it leaves the sandboxes' own chains
/// and the ways to them as they are.
pub(super) fn base(plan: &Plan, host: &[Ipv4Net]) -> String {
    let mut batch = Batch::new(plan);
    batch.add_table();
    for map in MAPS.into_iter().chain([NAMED, TUNNELED]) {
        batch.add("map", &format!("{map} {{ type ifname . ipv4_addr : verdict; }}"));
    }
    batch.add("set", "flows { type ifname; size 65535; flags dynamic; }");

    batch.chain("refuse", None);
    batch.rule("refuse", "meta l4proto tcp reject with tcp reset");
    // The one word that gVisor passes on to a program that waits for an answer.
    batch.rule("refuse", "meta l4proto udp reject with icmp type port-unreachable");
    batch.rule("refuse", "reject with icmp type admin-prohibited");

    batch.chain("forward", Some("type filter hook forward priority filter; policy drop;"));
    let mut refused = REFUSED_ALWAYS.to_vec();
    refused.extend(host);
    let refused = set(&refused);
    for rule in [
        format!("iifname \"{UPLINK}\" ct state related meta l4proto icmp accept"),
        format!("iifname \"{UPLINK}\" ct state established oifname . ip daddr vmap @ingress"),
        format!("iifname \"{UPLINK}\" drop"),
        format!("oifname != \"{UPLINK}\" goto refuse"),
        format!("ip daddr {refused} goto refuse"),
        "ct state invalid drop".to_owned(),
        format!("ct state new add @flows {{ iifname ct count over {FLOWS} }} goto refuse"),
        "iifname . ip saddr vmap @egress".to_owned(),
    ] {
        batch.rule("forward", &rule);
    }

    batch.chain("input", Some("type filter hook input priority filter; policy drop;"));
    let forwarder = plan.forwarder();
    for rule in [
        "iifname \"lo\" accept".to_owned(),
        // To what the proxy has dialed.
        format!("iifname \"{UPLINK}\" ct state {{ established, related }} accept"),
        format!("iifname \"{UPLINK}\" drop"),
        format!(
            "ip daddr {forwarder} meta l4proto {{ tcp, udp }} th dport 53 \
             iifname . ip saddr vmap @egress"
        ),
        format!(
            "ip daddr {forwarder} tcp dport {PROXY_PORT} ct status dnat \
             iifname . ip saddr vmap @egress"
        ),
        "goto refuse".to_owned(),
    ] {
        batch.rule("input", &rule);
    }

    // What the proxy dials.
    batch.chain("output", Some("type filter hook output priority filter; policy accept;"));
    batch.rule("output", &format!("oifname \"{UPLINK}\" ip daddr {refused} goto refuse"));

    batch.chain("lead", None);
    batch.rule("lead", &format!("tcp dport {{ 80, 443 }} dnat to {forwarder}:{PROXY_PORT}"));
    batch.chain("lead-all", None);
    batch.rule("lead-all", &format!("meta l4proto tcp dnat to {forwarder}:{PROXY_PORT}"));
    batch.chain("target", Some("type nat hook prerouting priority dstnat; policy accept;"));
    batch.rule("target", &format!("ip daddr {refused} accept"));
    for map in [TUNNELED, NAMED] {
        batch.rule("target", &format!("meta l4proto tcp iifname . ip saddr vmap @{map}"));
    }

    batch.chain("source", Some("type nat hook postrouting priority srcnat; policy accept;"));
    batch.rule("source", &format!("oifname \"{UPLINK}\" masquerade"));
    batch.text
}

/// Sandboxes come in, with the open policy.
pub(super) fn admit(plan: &Plan, numbers: &[u32]) -> String {
    let mut batch = Batch::new(plan);
    for &number in numbers {
        batch.policy(plan, number, &NetworkPolicy::OPEN);
        batch.ways(plan, number, "add");
    }
    batch.text
}

/// The ways to a sandbox's chains, whatever is in them: it may have been there already.
pub(super) fn readmit(plan: &Plan, number: u32) -> String {
    let mut batch = Batch::new(plan);
    batch.add("chain", &out(number));
    batch.add("chain", &back(number));
    batch.ways(plan, number, "add");
    batch.text
}

pub(super) fn policy(plan: &Plan, number: u32, policy: &NetworkPolicy) -> String {
    let mut batch = Batch::new(plan);
    batch.policy(plan, number, policy);
    for (map, is_led) in leads(policy) {
        batch.lead(plan, number, map, is_led);
    }
    batch.text
}

/// The first policy of a sandbox that has the open one. Rules that are only added come into force
/// four times as fast as rules that replace others, for which the kernel waits until no packet
/// uses the old ones.
pub(super) fn first_policy(plan: &Plan, number: u32, policy: &NetworkPolicy) -> String {
    let mut batch = Batch::new(plan);
    for (chain, rules) in chains(plan, number, policy) {
        for rule in rules.iter().rev() {
            batch.command("insert rule", &format!("{chain} {rule}"));
        }
    }
    for (map, is_led) in leads(policy) {
        if is_led {
            batch.lead(plan, number, map, true);
        }
    }
    batch.text
}

/// Whatever is there of these sandboxes goes. What must be there to be deleted is added first.
pub(super) fn dismiss(plan: &Plan, numbers: &[u32]) -> String {
    let mut batch = Batch::new(plan);
    for &number in numbers {
        batch.add("chain", &out(number));
        batch.add("chain", &back(number));
        batch.ways(plan, number, "add");
        batch.ways(plan, number, "delete");
        for map in [NAMED, TUNNELED] {
            batch.lead(plan, number, map, false);
        }
        for chain in [out(number), back(number)] {
            batch.command("flush chain", &chain);
            batch.command("delete chain", &chain);
        }
    }
    batch.text
}

/// The sandbox that a chain belongs to.
pub(super) fn chain_number(chain: &str) -> Option<u32> {
    chain.strip_prefix("out-").or_else(|| chain.strip_prefix("back-"))?.parse().ok()
}

fn out(number: u32) -> String {
    format!("out-{number}")
}

fn back(number: u32) -> String {
    format!("back-{number}")
}

fn key(plan: &Plan, number: u32) -> String {
    format!("\"{}\" . {}", Plan::link(number), plan.guest(number).addr())
}

/// nft merges nothing by itself, and refuses networks that overlap.
pub(super) fn set(nets: &[Ipv4Net]) -> String {
    let nets = Ipv4Net::aggregate(&nets.to_vec());
    let nets: Vec<String> = nets.iter().map(Ipv4Net::to_string).collect();
    format!("{{ {} }}", nets.join(", "))
}

/// `None`: all of it. Sandboxes have no IPv6, so rules about it say nothing.
fn matching(field: &str, nets: &[IpNet]) -> Option<String> {
    let nets: Vec<Ipv4Net> = nets
        .iter()
        .filter_map(|net| match net {
            IpNet::V4(net) => Some(net.trunc()),
            IpNet::V6(_) => None,
        })
        .collect();
    let nets = Ipv4Net::aggregate(&nets);
    if nets.is_empty() {
        return None;
    }
    if nets.iter().any(|net| net.prefix_len() == 0) {
        return Some(String::new());
    }
    Some(format!("ip {field} {} ", set(&nets)))
}

/// In which of the maps a sandbox is.
fn leads(policy: &NetworkPolicy) -> [(&'static str, bool); 2] {
    let is_tunneled = policy.is_tunneled();
    [(NAMED, policy.is_by_name() && !is_tunneled), (TUNNELED, is_tunneled)]
}

/// The two chains of a sandbox with the rules in them, of which each ends a packet's way.
fn chains(plan: &Plan, number: u32, policy: &NetworkPolicy) -> [(String, Vec<String>); 2] {
    let decide = |field: &str, refusal: &str| {
        // What its proxy is to carry never gets here, and the rest is nothing that it carries.
        if policy.mode == NetworkMode::None || policy.is_tunneled() {
            return vec![refusal.to_owned()];
        }
        let allowed = matching(field, &policy.allow).map(|nets| format!("{nets}accept"));
        let denied = matching(field, &policy.deny).map(|nets| format!("{nets}{refusal}"));
        allowed.into_iter().chain(denied).chain(["accept".to_owned()]).collect()
    };
    let mut sent = decide("daddr", "goto refuse");
    if policy.mode == NetworkMode::Full {
        // Only the input hook sees it.
        sent.insert(0, format!("ip daddr {} accept", plan.forwarder()));
    }
    [(out(number), sent), (back(number), decide("saddr", "drop"))]
}

struct Batch {
    table: String,
    text: String,
}

impl Batch {
    fn new(plan: &Plan) -> Self {
        Self { table: plan.name(), text: String::new() }
    }

    fn command(&mut self, verb: &str, rest: &str) {
        self.text.extend([verb, " ip ", &self.table, " ", rest, "\n"]);
    }

    fn add_table(&mut self) {
        self.text.extend(["add table ip ", &self.table, "\n"]);
    }

    fn add(&mut self, kind: &str, rest: &str) {
        self.command(&format!("add {kind}"), rest);
    }

    /// Empty, whatever it was.
    fn chain(&mut self, name: &str, hook: Option<&str>) {
        let hook = hook.map(|hook| format!(" {{ {hook} }}")).unwrap_or_default();
        self.add("chain", &format!("{name}{hook}"));
        self.command("flush chain", name);
    }

    fn rule(&mut self, chain: &str, rule: &str) {
        self.add("rule", &format!("{chain} {rule}"));
    }

    /// Whether its connections are led to the proxy, whatever they were.
    fn lead(&mut self, plan: &Plan, number: u32, map: &str, is_led: bool) {
        let chain = if map == TUNNELED { "lead-all" } else { "lead" };
        let element = format!("{map} {{ {} : goto {chain} }}", key(plan, number));
        self.add("element", &element);
        if !is_led {
            self.command("delete element", &element);
        }
    }

    fn ways(&mut self, plan: &Plan, number: u32, verb: &str) {
        let key = key(plan, number);
        for (map, chain) in [("egress", out(number)), ("ingress", back(number))] {
            self.command(&format!("{verb} element"), &format!("{map} {{ {key} : goto {chain} }}"));
        }
    }

    fn policy(&mut self, plan: &Plan, number: u32, policy: &NetworkPolicy) {
        for (chain, rules) in chains(plan, number, policy) {
            self.chain(&chain, None);
            for rule in rules {
                self.rule(&chain, &rule);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sandboxo_zone_protocol::EgressProxy;

    use super::*;

    fn plan() -> Plan {
        Plan::new("a1b2c3", "10.7.0.0/16".parse().unwrap())
    }

    fn nets(text: &str) -> Vec<IpNet> {
        text.split_whitespace().map(|net| net.parse().unwrap()).collect()
    }

    #[test]
    fn the_base() {
        let host = ["192.0.2.0/24".parse().unwrap(), "10.1.2.0/24".parse().unwrap()];
        let refused = "0.0.0.0/8, 10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, 168.63.129.16/32, \
                       169.254.0.0/16, 172.16.0.0/12, 192.0.0.0/24, 192.0.2.0/24, \
                       192.88.99.0/24, 192.168.0.0/16, 198.18.0.0/15, 224.0.0.0/3";
        let expected = format!(
            r#"add table ip sbxo-a1b2c3
add map ip sbxo-a1b2c3 egress {{ type ifname . ipv4_addr : verdict; }}
add map ip sbxo-a1b2c3 ingress {{ type ifname . ipv4_addr : verdict; }}
add map ip sbxo-a1b2c3 named {{ type ifname . ipv4_addr : verdict; }}
add map ip sbxo-a1b2c3 tunneled {{ type ifname . ipv4_addr : verdict; }}
add set ip sbxo-a1b2c3 flows {{ type ifname; size 65535; flags dynamic; }}
add chain ip sbxo-a1b2c3 refuse
flush chain ip sbxo-a1b2c3 refuse
add rule ip sbxo-a1b2c3 refuse meta l4proto tcp reject with tcp reset
add rule ip sbxo-a1b2c3 refuse meta l4proto udp reject with icmp type port-unreachable
add rule ip sbxo-a1b2c3 refuse reject with icmp type admin-prohibited
add chain ip sbxo-a1b2c3 forward {{ type filter hook forward priority filter; policy drop; }}
flush chain ip sbxo-a1b2c3 forward
add rule ip sbxo-a1b2c3 forward iifname "uplink" ct state related meta l4proto icmp accept
add rule ip sbxo-a1b2c3 forward iifname "uplink" ct state established oifname . ip daddr vmap @ingress
add rule ip sbxo-a1b2c3 forward iifname "uplink" drop
add rule ip sbxo-a1b2c3 forward oifname != "uplink" goto refuse
add rule ip sbxo-a1b2c3 forward ip daddr {{ {refused} }} goto refuse
add rule ip sbxo-a1b2c3 forward ct state invalid drop
add rule ip sbxo-a1b2c3 forward ct state new add @flows {{ iifname ct count over 2048 }} goto refuse
add rule ip sbxo-a1b2c3 forward iifname . ip saddr vmap @egress
add chain ip sbxo-a1b2c3 input {{ type filter hook input priority filter; policy drop; }}
flush chain ip sbxo-a1b2c3 input
add rule ip sbxo-a1b2c3 input iifname "lo" accept
add rule ip sbxo-a1b2c3 input iifname "uplink" ct state {{ established, related }} accept
add rule ip sbxo-a1b2c3 input iifname "uplink" drop
add rule ip sbxo-a1b2c3 input ip daddr 10.7.0.1 meta l4proto {{ tcp, udp }} th dport 53 iifname . ip saddr vmap @egress
add rule ip sbxo-a1b2c3 input ip daddr 10.7.0.1 tcp dport 3128 ct status dnat iifname . ip saddr vmap @egress
add rule ip sbxo-a1b2c3 input goto refuse
add chain ip sbxo-a1b2c3 output {{ type filter hook output priority filter; policy accept; }}
flush chain ip sbxo-a1b2c3 output
add rule ip sbxo-a1b2c3 output oifname "uplink" ip daddr {{ {refused} }} goto refuse
add chain ip sbxo-a1b2c3 lead
flush chain ip sbxo-a1b2c3 lead
add rule ip sbxo-a1b2c3 lead tcp dport {{ 80, 443 }} dnat to 10.7.0.1:3128
add chain ip sbxo-a1b2c3 lead-all
flush chain ip sbxo-a1b2c3 lead-all
add rule ip sbxo-a1b2c3 lead-all meta l4proto tcp dnat to 10.7.0.1:3128
add chain ip sbxo-a1b2c3 target {{ type nat hook prerouting priority dstnat; policy accept; }}
flush chain ip sbxo-a1b2c3 target
add rule ip sbxo-a1b2c3 target ip daddr {{ {refused} }} accept
add rule ip sbxo-a1b2c3 target meta l4proto tcp iifname . ip saddr vmap @tunneled
add rule ip sbxo-a1b2c3 target meta l4proto tcp iifname . ip saddr vmap @named
add chain ip sbxo-a1b2c3 source {{ type nat hook postrouting priority srcnat; policy accept; }}
flush chain ip sbxo-a1b2c3 source
add rule ip sbxo-a1b2c3 source oifname "uplink" masquerade
"#
        );
        assert_eq!(base(&plan(), &host), expected);
    }

    #[test]
    fn a_sandbox_comes_and_goes() {
        assert_eq!(
            admit(&plan(), &[2]),
            r#"add chain ip sbxo-a1b2c3 out-2
flush chain ip sbxo-a1b2c3 out-2
add rule ip sbxo-a1b2c3 out-2 ip daddr 10.7.0.1 accept
add rule ip sbxo-a1b2c3 out-2 accept
add chain ip sbxo-a1b2c3 back-2
flush chain ip sbxo-a1b2c3 back-2
add rule ip sbxo-a1b2c3 back-2 accept
add element ip sbxo-a1b2c3 egress { "sb2" . 10.7.0.10 : goto out-2 }
add element ip sbxo-a1b2c3 ingress { "sb2" . 10.7.0.10 : goto back-2 }
"#
        );
        assert_eq!(
            dismiss(&plan(), &[2]),
            r#"add chain ip sbxo-a1b2c3 out-2
add chain ip sbxo-a1b2c3 back-2
add element ip sbxo-a1b2c3 egress { "sb2" . 10.7.0.10 : goto out-2 }
add element ip sbxo-a1b2c3 ingress { "sb2" . 10.7.0.10 : goto back-2 }
delete element ip sbxo-a1b2c3 egress { "sb2" . 10.7.0.10 : goto out-2 }
delete element ip sbxo-a1b2c3 ingress { "sb2" . 10.7.0.10 : goto back-2 }
add element ip sbxo-a1b2c3 named { "sb2" . 10.7.0.10 : goto lead }
delete element ip sbxo-a1b2c3 named { "sb2" . 10.7.0.10 : goto lead }
add element ip sbxo-a1b2c3 tunneled { "sb2" . 10.7.0.10 : goto lead-all }
delete element ip sbxo-a1b2c3 tunneled { "sb2" . 10.7.0.10 : goto lead-all }
flush chain ip sbxo-a1b2c3 out-2
delete chain ip sbxo-a1b2c3 out-2
flush chain ip sbxo-a1b2c3 back-2
delete chain ip sbxo-a1b2c3 back-2
"#
        );
        assert_eq!(chain_number("out-2"), Some(2));
        assert_eq!(chain_number("back-16383"), Some(16383));
        assert_eq!(chain_number("forward"), None);
    }

    #[test]
    fn a_first_policy_goes_before_the_open_one() {
        let deny = nets("203.0.113.7/32");
        let policy = NetworkPolicy { deny, ..NetworkPolicy::OPEN };
        assert_eq!(
            first_policy(&plan(), 2, &policy),
            "insert rule ip sbxo-a1b2c3 out-2 accept
insert rule ip sbxo-a1b2c3 out-2 ip daddr { 203.0.113.7/32 } goto refuse
insert rule ip sbxo-a1b2c3 out-2 ip daddr 10.7.0.1 accept
insert rule ip sbxo-a1b2c3 back-2 accept
insert rule ip sbxo-a1b2c3 back-2 ip saddr { 203.0.113.7/32 } drop
"
        );
        let named = NetworkPolicy { names: vec!["a.b".parse().unwrap()], ..NetworkPolicy::OPEN };
        let led = "add element ip sbxo-a1b2c3 named { \"sb2\" . 10.7.0.10 : goto lead }\n";
        assert!(first_policy(&plan(), 2, &named).ends_with(led));
        let unled = led.replace("add", "delete");
        let all = led.replace("named", "tunneled").replace("lead", "lead-all");
        let not_all = all.replace("add", "delete");
        let ends = |policy: &NetworkPolicy, with: &[&str]| {
            assert!(super::policy(&plan(), 2, policy).ends_with(&with.concat()), "{with:?}");
        };
        ends(&named, &[led, &all, &not_all]);
        ends(&policy, &[led, &unled, &all, &not_all]);
        let tunneled = tunneled(named);
        ends(&tunneled, &[led, &unled, &all]);
        let first = first_policy(&plan(), 2, &tunneled);
        assert!(first.ends_with(&all) && !first.contains(led), "{first}");
    }

    /// Only the rules, without the lines that every policy has.
    fn rules(policy: &NetworkPolicy) -> Vec<String> {
        let lines = super::policy(&plan(), 2, policy);
        let rules = lines.lines().filter_map(|line| line.strip_prefix("add rule ip sbxo-a1b2c3 "));
        rules.filter(|rule| !rule.contains("10.7.0.1 ")).map(str::to_owned).collect()
    }

    fn tunneled(policy: NetworkPolicy) -> NetworkPolicy {
        let proxy = EgressProxy { address: "a:1".parse().unwrap(), login: None };
        NetworkPolicy { proxy: Some(proxy), ..policy }
    }

    #[test]
    fn allow_beats_deny_beats_the_default() {
        let full = |allow: &str, deny: &str| NetworkPolicy {
            allow: nets(allow),
            deny: nets(deny),
            ..NetworkPolicy::OPEN
        };
        for (why, policy, expected) in [
            ("open", NetworkPolicy::OPEN, "out-2 accept; back-2 accept"),
            (
                "only what is allowed",
                full("203.0.113.7/32", "0.0.0.0/0"),
                "out-2 ip daddr { 203.0.113.7/32 } accept; out-2 goto refuse; out-2 accept; \
                 back-2 ip saddr { 203.0.113.7/32 } accept; back-2 drop; back-2 accept",
            ),
            (
                "overlapping, unordered, with host bits",
                full("", "9.9.9.9/24 9.9.9.0/25 1.1.1.1/32"),
                "out-2 ip daddr { 1.1.1.1/32, 9.9.9.0/24 } goto refuse; out-2 accept; \
                 back-2 ip saddr { 1.1.1.1/32, 9.9.9.0/24 } drop; back-2 accept",
            ),
            (
                "two halves are all",
                full("", "0.0.0.0/1 128.0.0.0/1"),
                "out-2 goto refuse; out-2 accept; back-2 drop; back-2 accept",
            ),
            ("IPv6 says nothing", full("::/0", "2001:db8::/32"), "out-2 accept; back-2 accept"),
            (
                "by a proxy of its own",
                tunneled(full("203.0.113.7/32", "0.0.0.0/0")),
                "out-2 goto refuse; back-2 drop",
            ),
            (
                "no network",
                NetworkPolicy { mode: NetworkMode::None, ..full("1.1.1.1/32", "") },
                "out-2 goto refuse; back-2 drop",
            ),
        ] {
            assert_eq!(rules(&policy).join("; "), expected, "{why}");
        }
    }
}
