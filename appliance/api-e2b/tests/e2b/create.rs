//! Creating, in both versions of the call.

use sandboxo_zone_protocol::{CreateError, fake::ScriptedCreate};
use serde_json::json;

use crate::world::World;

#[tokio::test(start_paused = true)]
async fn the_whole_answer() {
    let world = World::new().await;
    let body = r#"{"templateID":"base","metadata":{"a":"b"},"envVars":{"X":"y"},"mcp":null}"#;
    let created = world.ask("POST /v2/sandboxes", body).await;
    assert_eq!(created.status, 201);
    let id = created.body["sandboxID"].as_str().unwrap().to_owned();
    let token = created.body["envdAccessToken"].as_str().unwrap().to_owned();
    assert!(id.starts_with("sbx-") && token.len() >= 32);
    let template = world.template.id.to_string();
    assert_eq!(
        created.body,
        json!({
            "templateID": template, "sandboxID": id, "clientID": "sandboxo",
            "envdVersion": "0.6.13", "alias": "base", "envdAccessToken": token,
            "trafficAccessToken": null, "domain": null,
        })
    );
    let detail = world.ask(&format!("GET /sandboxes/{id}"), "").await;
    assert_eq!(detail.status, 200);
    assert_eq!(
        detail.body,
        json!({
            "templateID": template, "sandboxID": id, "clientID": "sandboxo", "alias": "base",
            "startedAt": "2026-01-01T00:00:00Z", "endAt": "2026-01-01T00:05:00Z",
            "cpuCount": 2, "memoryMB": world.template.resources.memory_mib,
            "diskSizeMB": world.template.resources.disk_mib, "state": "running",
            "envdVersion": "0.6.13", "metadata": {"a": "b"}, "volumeMounts": [],
            "envdAccessToken": token, "allowInternetAccess": null, "domain": null,
            "lifecycle": {"autoResume": false, "onTimeout": "kill"},
        })
    );
}

#[tokio::test(start_paused = true)]
async fn the_versions_differ_in_their_defaults() {
    let world = World::new().await;
    let old = world.ask("POST /sandboxes", r#"{"templateID":"base"}"#).await;
    assert_eq!((old.status, &old.body["envdAccessToken"]), (201, &json!(null)));
    let id = old.body["sandboxID"].as_str().unwrap();
    assert_eq!(world.end_at(id).await, "2026-01-01T00:00:15Z");
    let secure = world.ask("POST /sandboxes", r#"{"templateID":"base","secure":true}"#).await;
    assert!(secure.body["envdAccessToken"].is_string());
    let new = world.ask("POST /v2/sandboxes", r#"{"templateID":"base","secure":false}"#).await;
    assert!(new.body["envdAccessToken"].is_string());
}

#[tokio::test(start_paused = true)]
async fn private_ingress_has_a_token_of_its_own() {
    let world = World::new().await;
    let body = r#"{"templateID":"base","network":{"allowPublicTraffic":false,"denyOut":["1.1.1.1"],"maskRequestHost":"localhost:${PORT}"}}"#;
    let created = world.ask("POST /v2/sandboxes", body).await;
    assert!(created.body["trafficAccessToken"].as_str().unwrap().len() >= 32);
    let id = created.body["sandboxID"].as_str().unwrap();
    let detail = world.ask(&format!("GET /sandboxes/{id}"), "").await;
    assert_eq!(
        detail.body["network"],
        json!({"allowPublicTraffic": false, "denyOut": ["1.1.1.1"], "maskRequestHost": "localhost:${PORT}"})
    );
    let policy = world.zone.spec(id.parse().unwrap()).unwrap().network;
    assert_eq!(policy.deny.len(), 1);
    assert_eq!(world.ask("POST /sandboxes", body).await.status, 400);
}

#[tokio::test(start_paused = true)]
async fn each_bad_field_is_named() {
    let world = World::new().await;
    for (body, expected) in [
        ("", "the body is not what this route takes: missing field `templateID`"),
        ("[]", "the body is not what this route takes: invalid length 0"),
        (r#"{"templateID":7}"#, "templateID: invalid type: integer `7`, expected a string"),
        (r#"{"templateID":"base","timeout":0}"#, "timeout: must be greater than 0"),
        (r#"{"templateID":"base","timeout":-5}"#, "timeout: must be greater than 0"),
        (r#"{"templateID":"base","timeout":"5"}"#, "timeout: invalid type: string"),
        (r#"{"templateID":"base","timeout":99999999}"#, "timeout: must be at most"),
        (r#"{"templateID":"base","metadata":{"a":1}}"#, "metadata.a: invalid type: integer"),
        (r#"{"templateID":"base","envVars":{"A=B":"x"}}"#, "envVars: \"A=B\" can't be"),
        (r#"{"templateID":"base","network":{"denyOut":["x.y"]}}"#, "network: \"x.y\" is not an IP"),
        (r#"{"templateID":"base","network":{"allowOut":"1"}}"#, "network.allowOut: invalid type"),
        (
            r#"{"templateID":"base","network":{"maskRequestHost":"a b"}}"#,
            "network.maskRequestHost: ",
        ),
        (
            r#"{"templateID":"base","network":{"rules":{"*.b":[{}]}}}"#,
            "network: the rule for \"*.b\": not the name",
        ),
        (
            r#"{"templateID":"base","network":{"rules":{"a.b":[{"transform":{"headers":{"Host":"x"}}}]}}}"#,
            "network: the rule for \"a.b\": \"Host\" is",
        ),
        (
            r#"{"templateID":"base","network":{"rules":{"a.b":[{"transform":{"headers":{"x":1}}}]}}}"#,
            "network.rules.a.b[0].transform.headers.x: invalid type",
        ),
        (
            r#"{"templateID":"base","network":{"egressProxy":{"address":"x"}}}"#,
            "network: egressProxy: address: \"x\" is not a name or IPv4 address with a port",
        ),
        (
            r#"{"templateID":"base","network":{"dnsServers":["dns.example"]}}"#,
            "network: dnsServers: \"dns.example\" is not an IPv4 address",
        ),
        (r#"{"templateID":"base","network":{"httpsPorts":[0]}}"#, "network.httpsPorts: has 0"),
        (
            r#"{"templateID":"base","network":{"httpsPorts":[49983]}}"#,
            "network.httpsPorts: has 49983",
        ),
        (
            r#"{"templateID":"base","network":{"httpsPorts":[65536]}}"#,
            "network.httpsPorts[0]: invalid value",
        ),
        (
            r#"{"templateID":"base","network":{"egressProxy":{}}}"#,
            "network.egressProxy: missing field `address`",
        ),
        (
            r#"{"templateID":"base","network":{"egressProxy":{"address":"10.0.0.1:1080"}}}"#,
            "network: egressProxy: address: 10.0.0.1 is not on the public internet",
        ),
        (
            r#"{"templateID":"base","network":{"egressProxy":{"address":"a:1","password":"p"}}}"#,
            "network: egressProxy: username: a password needs one",
        ),
        (
            r#"{"templateID":"base","network":{"egressProxy":{"address":"a:1","tls":{"enabled":true}}}}"#,
            "network.egressProxy.tls: not supported",
        ),
        (
            r#"{"templateID":"base","volumeMounts":[{"name":"a"}]}"#,
            "volumeMounts[0]: missing field `path`",
        ),
        (
            r#"{"templateID":"base","volumeMounts":[{"name":"a","path":"/a"}]}"#,
            "volumeMounts[0].name: volume 'a' not found",
        ),
    ] {
        let answer = world.ask("POST /v2/sandboxes", body).await;
        assert_eq!(answer.status, 400, "{body}");
        assert_eq!(answer.body["code"], 400);
        let message = answer.body["message"].as_str().unwrap();
        assert!(message.starts_with(expected), "{body}: {message}");
    }
    let fine = r#"{"templateID":"base","autoPause":false,"autoResume":{"enabled":false},"volumeMounts":[],"iam":{"tokens":{}},"mcp":{"x":{}},"network":{"egressProxy":null,"rules":{},"httpsPorts":[8443,443]},"unknown":1}"#;
    assert_eq!(world.ask("POST /v2/sandboxes", fine).await.status, 201);
    assert_eq!(world.zone.running().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn each_failure_has_its_own_answer() {
    let world = World::new().await;
    let create = || world.ask("POST /v2/sandboxes", r#"{"templateID":"base"}"#);
    let unknown = world.ask("POST /v2/sandboxes", r#"{"templateID":"nowhere"}"#).await;
    assert_eq!(
        (unknown.status, unknown.body),
        (404, json!({"code": 404, "message": "template 'nowhere' not found"}))
    );
    let runtime = || CreateError::Runtime("runsc: secret path".into());
    for (failure, status, error_code) in [
        (CreateError::LimitReached { what: "sandboxes", limit: 3 }, 429, "limit_reached"),
        (CreateError::DiskFull, 503, "disk_full"),
        (CreateError::TimedOut(std::time::Duration::from_secs(1)), 504, "start_timed_out"),
        (CreateError::VolumeFileGone("/data/x".into()), 409, "volume_file_gone"),
        (runtime(), 500, "start_failed"),
    ] {
        world.zone.script(ScriptedCreate::Fail(failure));
        let answer = create().await;
        assert_eq!((answer.status, answer.body["error_code"].as_str()), (status, Some(error_code)));
        assert!(!answer.body.to_string().contains("secret path"));
        assert_eq!(answer.headers.contains_key("retry-after"), status == 429);
    }
    assert_eq!(create().await.status, 201);
    assert_eq!(world.zone.running().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_repeat_with_its_key_is_the_same_sandbox() {
    let world = World::new().await;
    let with = |key: &'static str, body: &'static str| {
        world.ask_with_key("POST /v2/sandboxes", body, ("Idempotency-Key", key))
    };
    let first = with("abc-1", r#"{"templateID":"base"}"#).await;
    let again = with("abc-1", r#"{"templateID":"base"}"#).await;
    assert_eq!((again.status, &again.body), (201, &first.body));
    let other = with("abc-1", r#"{"templateID":"base","timeout":9}"#).await;
    assert_eq!(other.body["error_code"], "idempotency_request_mismatch");
    assert_eq!(other.status, 409);
    for bad in ["", "UPPER", "a b"] {
        assert_eq!(with(bad, r#"{"templateID":"base"}"#).await.status, 400, "{bad}");
    }
    assert_eq!(world.zone.running().len(), 1);
}
