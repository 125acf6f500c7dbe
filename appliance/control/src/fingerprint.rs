//! Whether two creates ask for the same.

use std::collections::BTreeMap;

use sandboxo_model::{
    Audience, Lifecycle, MountAsked, NetworkAsked, NewSandbox, ProxyAsked, TokenName,
};
use sandboxo_zone_protocol::{Kept, OnDeadline};
use sha2::{Digest as _, Sha256};

/// Of the request after its defaults: order of keys and white space make no difference.
pub(crate) fn of(new: &NewSandbox) -> [u8; 32] {
    let NewSandbox {
        template,
        timeout,
        secure,
        env,
        metadata,
        internet,
        network,
        lifecycle,
        volumes,
        tokens,
        idempotency_key: _,
    } = new;
    let mut hash = Hash(Sha256::new());
    hash.text(template);
    hash.bytes(&timeout.as_nanos().to_be_bytes());
    hash.bytes(&[u8::from(*secure)]);
    hash.map(env);
    hash.map(metadata);
    hash.flag(*internet);
    hash.present(network.is_some());
    if let Some(network) = network {
        let NetworkAsked {
            allow_out,
            deny_out,
            allow_public_traffic,
            mask_request_host,
            rules,
            egress_proxy,
            https_ports: _,
            dns_servers: _,
        } = network;
        hash.list(allow_out.as_deref());
        hash.list(deny_out.as_deref());
        hash.flag(*allow_public_traffic);
        hash.present(mask_request_host.is_some());
        hash.text(mask_request_host.as_deref().unwrap_or_default());
        // As below.
        for (host, rules) in rules.iter().flatten() {
            hash.text(host);
            hash.bytes(&rules.len().to_be_bytes());
            for rule in rules {
                let headers = rule.headers.iter().flatten();
                let exposed = headers.map(|(name, value)| (name.clone(), value.expose().into()));
                hash.map(&exposed.collect());
            }
        }
        if let Some(ProxyAsked { address, username, password }) = egress_proxy {
            hash.text("egress proxy");
            hash.text(address);
            hash.list(username.clone().as_slice().into());
            hash.list(password.as_ref().map(|it| it.expose().to_owned()).as_slice().into());
        }
    }
    if let Some(ports) = network.as_ref().and_then(|it| it.https_ports.as_ref()) {
        hash.text("https ports");
        hash.bytes(&ports.iter().flat_map(|it| it.to_be_bytes()).collect::<Vec<_>>());
    }
    if let Some(servers) = network.as_ref().and_then(|it| it.dns_servers.as_deref()) {
        hash.text("dns servers");
        hash.list(Some(servers));
    }
    // Not said is as before it could be said: keys outlive an upgrade.
    if *lifecycle != Lifecycle::default() {
        let Lifecycle { on_timeout, auto_resume } = lifecycle;
        let on_timeout = match on_timeout {
            OnDeadline::Kill => 0,
            OnDeadline::Pause(Kept::Memory) => 1,
            OnDeadline::Pause(Kept::Files) => 2,
        };
        hash.bytes(&[on_timeout, u8::from(*auto_resume)]);
    }
    if !volumes.is_empty() {
        hash.bytes(&(volumes.len() as u64).to_be_bytes());
        for MountAsked { name, path } in volumes {
            hash.text(name);
            hash.text(path);
        }
    }
    if !tokens.is_empty() {
        let text = |(name, audience): (&TokenName, &Audience)| {
            (name.to_string(), audience.as_str().to_owned())
        };
        hash.text("tokens");
        hash.map(&tokens.iter().map(text).collect());
    }
    hash.0.finalize().into()
}

/// Lengths go in front, so that no two requests give the same bytes.
struct Hash(Sha256);

impl Hash {
    fn bytes(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn present(&mut self, present: bool) {
        self.bytes(&[u8::from(present)]);
    }

    fn flag(&mut self, flag: Option<bool>) {
        self.bytes(&[flag.map_or(2, u8::from)]);
    }

    fn map(&mut self, map: &BTreeMap<String, String>) {
        self.bytes(&(map.len() as u64).to_be_bytes());
        for (key, value) in map {
            self.text(key);
            self.text(value);
        }
    }

    fn list(&mut self, list: Option<&[String]>) {
        self.present(list.is_some());
        let list = list.unwrap_or_default();
        self.bytes(&(list.len() as u64).to_be_bytes());
        for item in list {
            self.text(item);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, time::Duration};

    use sandboxo_model::{HostRule, Tokens};
    use sandboxo_zone_protocol::Secret;

    use super::*;

    #[test]
    fn every_field_counts_but_the_key() {
        let base = NewSandbox {
            template: "base".into(),
            timeout: Duration::from_mins(5),
            secure: true,
            env: [].into(),
            metadata: [].into(),
            internet: None,
            network: None,
            lifecycle: Lifecycle::default(),
            volumes: Vec::new(),
            tokens: Tokens::default(),
            idempotency_key: None,
        };
        let entry = |key: &str, value: &str| [(key.to_owned(), value.to_owned())].into();
        let network = NetworkAsked::default();
        let rules = |host: &str, value: &str| {
            let headers = Some([("x".to_owned(), Secret::new(value))].into());
            [(host.to_owned(), vec![HostRule { headers }])].into()
        };
        let proxy = |address: &str, password: Option<&str>| ProxyAsked {
            address: address.into(),
            username: password.map(|_| "me".into()),
            password: password.map(Secret::new),
        };
        let with = |network| NewSandbox { network: Some(network), ..base.clone() };
        let mount = |name: &str, path: &str| {
            let volumes = vec![MountAsked { name: name.into(), path: path.into() }];
            NewSandbox { volumes, ..base.clone() }
        };
        let token = |name: &str, audience: &str| {
            let tokens = [(name.parse().unwrap(), audience.parse().unwrap())].into();
            NewSandbox { tokens: Tokens::new(tokens).unwrap(), ..base.clone() }
        };
        let lifecycle = |on_timeout, auto_resume| NewSandbox {
            lifecycle: Lifecycle { on_timeout, auto_resume },
            ..base.clone()
        };
        let others = [
            lifecycle(OnDeadline::Pause(Kept::Memory), false),
            lifecycle(OnDeadline::Pause(Kept::Files), false),
            lifecycle(OnDeadline::Kill, true),
            NewSandbox { template: "other".into(), ..base.clone() },
            NewSandbox { timeout: Duration::from_secs(301), ..base.clone() },
            NewSandbox { secure: false, ..base.clone() },
            NewSandbox { env: entry("a", "b"), ..base.clone() },
            NewSandbox { env: entry("ab", ""), ..base.clone() },
            NewSandbox { metadata: entry("a", "b"), ..base.clone() },
            NewSandbox { internet: Some(false), ..base.clone() },
            NewSandbox { internet: Some(true), ..base.clone() },
            mount("a", "/b"),
            mount("a", "/c"),
            token("a", "b"),
            token("a", "c"),
            token("b", "b"),
            with(network.clone()),
            with(NetworkAsked { allow_out: Some(vec![]), ..network.clone() }),
            with(NetworkAsked { allow_out: Some(vec!["1.1.1.1".into()]), ..network.clone() }),
            with(NetworkAsked { deny_out: Some(vec!["1.1.1.1".into()]), ..network.clone() }),
            with(NetworkAsked { allow_public_traffic: Some(false), ..network.clone() }),
            with(NetworkAsked { rules: Some(rules("a", "b")), ..network.clone() }),
            with(NetworkAsked { rules: Some(rules("a", "c")), ..network.clone() }),
            with(NetworkAsked { rules: Some(rules("b", "b")), ..network.clone() }),
            with(NetworkAsked { egress_proxy: Some(proxy("a:1", None)), ..network.clone() }),
            with(NetworkAsked { egress_proxy: Some(proxy("a:2", None)), ..network.clone() }),
            with(NetworkAsked { egress_proxy: Some(proxy("a:1", Some("b"))), ..network.clone() }),
            with(NetworkAsked { egress_proxy: Some(proxy("a:1", Some("c"))), ..network.clone() }),
            with(NetworkAsked { https_ports: Some(vec![]), ..network.clone() }),
            with(NetworkAsked { https_ports: Some(vec![1]), ..network.clone() }),
            with(NetworkAsked { dns_servers: Some(vec![]), ..network.clone() }),
            with(NetworkAsked { dns_servers: Some(vec!["1.1.1.1".into()]), ..network.clone() }),
            with(NetworkAsked { mask_request_host: Some(String::new()), ..network }),
        ];
        let mut seen: BTreeSet<_> = others.iter().map(of).collect();
        assert_eq!(seen.len(), others.len());
        assert!(seen.insert(of(&base)));
        let keyed = NewSandbox { idempotency_key: "k".parse().ok(), ..base };
        assert!(!seen.insert(of(&keyed)));
    }
}
