//! Placeholders in headers of rules: filled for their host, on the way out, and nowhere else.

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use sandboxo_tasks::Tasks;
use sandboxo_zone_protocol::{EgressProxy, NetworkPolicy, SandboxId, Secret, SetHeader, Vault};

use super::{
    guest::Guest,
    secure::{Believes, request},
    world::{self, HTTP, OUTSIDE, SECURE, SOON},
};

const MINE: &str = "sbx_loc_0123456789abcdefgk7q";
const THEIRS: &str = "sbx_loc_1123456789abcdefgk7q";

/// One sandbox's secret `key`, and its token `a token`.
struct OneSecret(Mutex<Option<String>>);

#[async_trait]
impl Vault for OneSecret {
    async fn secret(&self, sandbox: SandboxId, name: &str) -> Option<Secret> {
        let is_it = sandbox.to_string() == MINE && name == "key";
        self.0.lock().clone().filter(|_| is_it).map(Secret::new)
    }

    async fn password(&self, _: SandboxId, _: &EgressProxy) -> Option<Secret> {
        None
    }

    async fn token(&self, sandbox: SandboxId, name: &str) -> Option<Secret> {
        let is_it = sandbox.to_string() == MINE && name == "a token";
        self.0.lock().clone().filter(|_| is_it).map(|value| Secret::new(format!("signed {value}")))
    }
}

fn given(host: &str, value: &str) -> NetworkPolicy {
    let header = SetHeader { name: "x-token".into(), value: Secret::new(value) };
    let headers = [(host.parse().unwrap(), vec![header])].into();
    NetworkPolicy { headers, ..NetworkPolicy::OPEN }
}

#[test]
fn a_secret_is_told_its_host_and_nobody_else() {
    world::run(|world| async move {
        let tasks = Tasks::new();
        let network = world.network(&tasks).await;
        let lease = network.lease().await.unwrap();
        let guest = Guest::of(&lease);
        let ask = |protocol: &[u8]| {
            let requests = vec![request("https://secure.test/", 3)];
            let host = (SECURE, "secure.test");
            let asked = world.secure().ask(&guest, host, Believes::Zone, protocol, requests, || {});
            asked.map(|mut heard| heard.remove(0))
        };
        let vault = Arc::new(OneSecret(Mutex::new(Some("s3cr3t".to_owned()))));
        let holds = |value: Option<&str>| *vault.0.lock() = value.map(str::to_owned);
        lease.apply(&given("secure.test", "Bearer ${e2b.secrets.key}!")).await.unwrap();
        let protocols = [&b"h2"[..], b"http/1.1"];
        // Nobody's sandbox yet, and nobody to ask.
        for protocol in protocols {
            ask(protocol).unwrap_err();
        }
        network.use_vault(vault.clone());
        for protocol in protocols {
            ask(protocol).unwrap_err();
        }

        lease.belongs_to(MINE.parse().unwrap());
        lease.apply(&given("secure.test", "of no interest")).await.unwrap();
        lease.apply(&given("secure.test", "Bearer ${e2b.secrets.key}!")).await.unwrap();
        for protocol in protocols {
            for value in ["s3cr3t", "of now"] {
                holds(Some(value));
                let (heard, header) = (ask(protocol).unwrap(), format!("\"Bearer {value}!\""));
                assert!(heard.contains(&header), "{header}: {heard}");
            }
            holds(Some("a\r\nb: c"));
            ask(protocol).unwrap_err();
            holds(None);
            ask(protocol).unwrap_err();
            holds(Some("s3cr3t"));
        }
        lease.apply(&given("secure.test", "${e2b.secrets.other}")).await.unwrap();
        ask(b"h2").unwrap_err();

        // Where anybody can read it, it does not go.
        lease.apply(&given("one.test", "${e2b.secrets.key}")).await.unwrap();
        let clear = b"GET / HTTP/1.1\r\nHost: one.test\r\n\r\n";
        guest.says((OUTSIDE, HTTP), clear, 1).unwrap_err();
        lease.apply(&given("one.test", "plain")).await.unwrap();
        guest.says((OUTSIDE, HTTP), clear, 1).unwrap();
        assert!(tasks.shut_down(SOON).await);
    });
}

#[test]
fn a_token_is_signed_for_each_request_of_the_sandbox_that_has_it() {
    world::run(|world| async move {
        let tasks = Tasks::new();
        let network = world.network(&tasks).await;
        let vault = Arc::new(OneSecret(Mutex::new(Some("1".to_owned()))));
        network.use_vault(vault.clone());
        for (id, name, expected) in
            [(MINE, "a token", true), (MINE, "another", false), (THEIRS, "a token", false)]
        {
            let lease = network.lease().await.unwrap();
            lease.belongs_to(id.parse().unwrap());
            let value = format!("Bearer ${{e2b.identity.tokens.{name}}} ${{e2b.secrets.key}}");
            lease.apply(&given("secure.test", &value)).await.unwrap();
            let guest = Guest::of(&lease);
            for count in ["1", "2"] {
                *vault.0.lock() = Some(count.to_owned());
                let (host, requests) =
                    ((SECURE, "secure.test"), vec![request("https://secure.test/", 3)]);
                let asked =
                    world.secure().ask(&guest, host, Believes::Zone, b"h2", requests, || {});
                assert_eq!(asked.is_ok(), expected, "{id} {name}: {asked:?}");
                let header = format!("\"Bearer signed {count} {count}\"");
                assert!(asked.is_err() || asked.unwrap()[0].contains(&header));
            }
            let in_the_clear = "${e2b.identity.tokens.a token}";
            lease.apply(&given("one.test", in_the_clear)).await.unwrap();
            let clear = b"GET / HTTP/1.1\r\nHost: one.test\r\n\r\n";
            guest.says((OUTSIDE, HTTP), clear, 1).unwrap_err();
        }
        assert!(tasks.shut_down(SOON).await);
    });
}

#[test]
fn a_secret_is_asked_for_in_the_name_of_the_sandbox_that_sends() {
    world::run(|world| async move {
        let tasks = Tasks::new();
        let network = world.network(&tasks).await;
        network.use_vault(Arc::new(OneSecret(Mutex::new(Some("s3cr3t".to_owned())))));
        for (id, expected) in [(THEIRS, false), (MINE, true)] {
            let lease = network.lease().await.unwrap();
            lease.belongs_to(id.parse().unwrap());
            lease.apply(&given("secure.test", "${e2b.secrets.key}")).await.unwrap();
            let (guest, requests) = (Guest::of(&lease), vec![request("https://secure.test/", 3)]);
            let host = (SECURE, "secure.test");
            let asked = world.secure().ask(&guest, host, Believes::Zone, b"h2", requests, || {});
            assert_eq!(asked.is_ok(), expected, "{id}: {asked:?}");
        }
        assert!(tasks.shut_down(SOON).await);
    });
}
