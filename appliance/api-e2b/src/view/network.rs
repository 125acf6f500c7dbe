//! What is asked of a sandbox's network, and how it is shown.

use std::collections::BTreeMap;

use sandboxo_model::{HostRule, NetworkAsked, ProxyAsked};
use sandboxo_zone_protocol::Secret;
use serde::{Deserialize, Serialize};

use super::Unsupported;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NetworkView {
    #[serde(skip_serializing_if = "Option::is_none")]
    allow_out: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deny_out: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    allow_public_traffic: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mask_request_host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rules: Option<BTreeMap<String, Vec<Rule>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    egress_proxy: Option<ProxyView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    https_ports: Option<Vec<u16>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dns_servers: Option<Vec<String>>,
}

/// Without its password, which nobody is told.
#[derive(Serialize)]
struct ProxyView {
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    username: Option<String>,
}

impl From<&NetworkAsked> for NetworkView {
    fn from(asked: &NetworkAsked) -> Self {
        let NetworkAsked {
            allow_out,
            deny_out,
            allow_public_traffic,
            mask_request_host,
            rules,
            egress_proxy,
            https_ports,
            dns_servers,
        } = asked.clone();
        let rule = |HostRule { headers }| Rule {
            transform: headers.map(|headers| Transform { headers: Some(headers) }),
        };
        let all =
            |(host, rules): (String, Vec<HostRule>)| (host, rules.into_iter().map(rule).collect());
        let rules = rules.map(|rules| rules.into_iter().map(all).collect());
        let egress_proxy = egress_proxy.map(|ProxyAsked { address, username, password: _ }| {
            let address = address.trim().to_owned();
            ProxyView { address, username: username.filter(|it| !it.is_empty()) }
        });
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

/// What requests to a host go through.
#[derive(Serialize, Deserialize)]
struct Rule {
    #[serde(skip_serializing_if = "Option::is_none")]
    transform: Option<Transform>,
}

#[derive(Serialize, Deserialize)]
struct Transform {
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<BTreeMap<String, Secret>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NetworkBody {
    allow_out: Option<Vec<String>>,
    deny_out: Option<Vec<String>>,
    allow_public_traffic: Option<bool>,
    mask_request_host: Option<String>,
    /// Of an update; of a create it stands beside `network`.
    #[serde(rename = "allow_internet_access")]
    pub(crate) allow_internet_access: Option<bool>,
    rules: Option<BTreeMap<String, Vec<Rule>>>,
    egress_proxy: Option<ProxyBody>,
    https_ports: Option<Vec<u16>>,
    dns_servers: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct ProxyBody {
    address: String,
    username: Option<String>,
    password: Option<Secret>,
    tls: Option<serde_json::Value>,
}

impl Unsupported for NetworkBody {
    fn unsupported(&self) -> Option<&'static str> {
        let tls = self.egress_proxy.as_ref().and_then(|it| it.tls.as_ref());
        // `{"enabled": false}` is how it is said that there is none.
        let tls = tls.and_then(|tls| tls.get("enabled").or(Some(tls)));
        let is_on = |tls| says_something(tls) && *tls != serde_json::Value::Bool(false);
        tls.is_some_and(is_on).then_some("network.egressProxy.tls")
    }
}

impl From<NetworkBody> for NetworkAsked {
    fn from(body: NetworkBody) -> Self {
        let NetworkBody {
            allow_out,
            deny_out,
            allow_public_traffic,
            mask_request_host,
            rules,
            egress_proxy,
            https_ports,
            allow_internet_access: _,
            dns_servers,
        } = body;
        let rule = |rule: Rule| HostRule { headers: rule.transform.and_then(|it| it.headers) };
        let all =
            |(host, rules): (String, Vec<Rule>)| (host, rules.into_iter().map(rule).collect());
        let rules = rules.map(|rules| rules.into_iter().map(all).collect());
        let egress_proxy = egress_proxy.map(|ProxyBody { address, username, password, tls: _ }| {
            ProxyAsked { address, username, password }
        });
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

/// `{}` and objects of nothing ask for nothing.
fn says_something(value: &serde_json::Value) -> bool {
    use serde_json::Value;
    match value {
        Value::Null => false,
        Value::Object(fields) => fields.values().any(says_something),
        Value::Array(items) => !items.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}
