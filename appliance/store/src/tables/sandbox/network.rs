//! Rows of what was asked about the network, and of a proxy.

use std::collections::BTreeMap;

use sandboxo_model::{HostRule, NetworkAsked, ProxyAsked};
use sandboxo_zone_protocol::{EgressProxy, ProxyAddress, ProxyLogin, Sealed, Secret};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
pub(super) struct ProxyRow {
    address: ProxyAddress,
    login: Option<LoginRow>,
}

#[derive(Serialize, Deserialize)]
struct LoginRow {
    username: String,
    password: Sealed,
}

impl From<EgressProxy> for ProxyRow {
    fn from(EgressProxy { address, login }: EgressProxy) -> Self {
        let row = |ProxyLogin { username, password }| LoginRow { username, password };
        Self { address, login: login.map(row) }
    }
}

impl From<ProxyRow> for EgressProxy {
    fn from(ProxyRow { address, login }: ProxyRow) -> Self {
        let login = login.map(|LoginRow { username, password }| ProxyLogin { username, password });
        Self { address, login }
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct NetworkRow {
    allow_out: Option<Vec<String>>,
    deny_out: Option<Vec<String>>,
    allow_public_traffic: Option<bool>,
    mask_request_host: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rules: Option<BTreeMap<String, Vec<HostRuleRow>>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    egress_proxy: Option<ProxyAskedRow>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    https_ports: Option<Vec<u16>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dns_servers: Option<Vec<String>>,
}

/// As it is shown: without a password.
#[derive(Serialize, Deserialize)]
struct ProxyAskedRow {
    address: String,
    username: Option<String>,
}

impl From<ProxyAsked> for ProxyAskedRow {
    fn from(ProxyAsked { address, username, password: _ }: ProxyAsked) -> Self {
        Self { address, username }
    }
}

impl From<ProxyAskedRow> for ProxyAsked {
    fn from(ProxyAskedRow { address, username }: ProxyAskedRow) -> Self {
        Self { address, username, password: None }
    }
}

#[derive(Serialize, Deserialize)]
struct HostRuleRow {
    headers: Option<BTreeMap<String, Secret>>,
}

impl From<NetworkAsked> for NetworkRow {
    fn from(asked: NetworkAsked) -> Self {
        let NetworkAsked {
            allow_out,
            deny_out,
            allow_public_traffic,
            mask_request_host,
            rules,
            egress_proxy,
            https_ports,
            dns_servers,
        } = asked;
        let egress_proxy = egress_proxy.map(ProxyAskedRow::from);
        let row = |rule: HostRule| HostRuleRow { headers: rule.headers };
        let rules = rules.map(|rules| over(rules, row));
        Self {
            allow_out,
            deny_out,
            allow_public_traffic,
            mask_request_host,
            rules,
            egress_proxy,
            https_ports,
            dns_servers,
        }
    }
}

impl From<NetworkRow> for NetworkAsked {
    fn from(row: NetworkRow) -> Self {
        let NetworkRow {
            allow_out,
            deny_out,
            allow_public_traffic,
            mask_request_host,
            rules,
            egress_proxy,
            https_ports,
            dns_servers,
        } = row;
        let egress_proxy = egress_proxy.map(ProxyAsked::from);
        let rule = |row: HostRuleRow| HostRule { headers: row.headers };
        let rules = rules.map(|rules| over(rules, rule));
        Self {
            allow_out,
            deny_out,
            allow_public_traffic,
            mask_request_host,
            rules,
            egress_proxy,
            https_ports,
            dns_servers,
        }
    }
}

fn over<A, B>(
    rules: BTreeMap<String, Vec<A>>,
    change: impl Fn(A) -> B,
) -> BTreeMap<String, Vec<B>> {
    let each = |(host, rules): (String, Vec<A>)| (host, rules.into_iter().map(&change).collect());
    rules.into_iter().map(each).collect()
}
