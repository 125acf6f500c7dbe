//! Who may ask what, and from where.

use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use serde_json::{Value, json};
use sha2::Digest;

use crate::harness::Agent;

async fn status(request: reqwest::RequestBuilder) -> (u16, Value) {
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    (status, serde_json::from_slice(&response.bytes().await.unwrap()).unwrap_or_default())
}

#[tokio::test]
async fn the_token_opens_everything_and_health_needs_none() {
    let agent = Agent::start_with(&["--token", "secret"]);
    let get = |path: &str| agent.client.get(agent.url(path));
    let health = get("/health").send().await.unwrap();
    assert_eq!(
        (health.status().as_u16(), &health.headers()["cache-control"]),
        (204, &"no-store".parse().unwrap())
    );
    for path in ["/metrics", "/envs", "/no/such"] {
        let (code, body) = status(get(path)).await;
        assert_eq!((code, &body["code"]), (401, &json!(401)), "{path}");
        let (code, _body) = status(get(path).header("x-access-token", "wrong")).await;
        assert_eq!(code, 401);
        let (code, _body) = status(get(path).header("x-access-token", "secret")).await;
        assert_eq!(code, if path == "/no/such" { 404 } else { 200 });
    }
    let (code, body) = agent.call("process.Process/List", json!({})).await;
    assert_eq!((code, &body["code"]), (401, &json!(401)));
    let header = [("x-access-token", "secret")];
    let (code, body) = agent.call_with("process.Process/List", json!({}), &header).await;
    assert_eq!((code, body), (200, json!({})));
}

#[tokio::test]
async fn without_a_token_everyone_may() {
    let agent = Agent::start();
    let (code, body) = status(agent.client.get(agent.url("/envs"))).await;
    let wanted =
        json!({"E2B_SANDBOX": "true", "E2B_SANDBOX_ID": "local", "E2B_TEMPLATE_ID": "local"});
    assert_eq!((code, body), (200, wanted));
    let (code, body) = status(agent.client.get(agent.url("/metrics"))).await;
    assert_eq!(code, 200);
    for field in [
        "ts",
        "cpu_count",
        "cpu_used_pct",
        "mem_total",
        "mem_used",
        "mem_cache",
        "mem_total_mib",
        "mem_used_mib",
        "disk_used",
        "disk_total",
    ] {
        assert!(body[field].is_number(), "{field}");
    }
}

#[tokio::test]
async fn a_signature_stands_for_the_token() {
    let agent = Agent::start_with(&["--token", "secret"]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a b.txt");
    std::fs::write(&path, "x").unwrap();
    let path = path.to_str().unwrap();
    let sign = |text: String| format!("v1_{}", STANDARD_NO_PAD.encode(sha2::Sha256::digest(text)));
    let read = sign(format!("{path}:read::secret"));
    let (old, new) = ("1000000000", "99999999999");
    let read_old = sign(format!("{path}:read::secret:{old}"));
    let read_new = sign(format!("{path}:read:root:secret:{new}"));
    let get = |query: &[(&str, &str)]| {
        agent.client.get(agent.url("/files")).query(&[("path", path)]).query(query)
    };
    for (why, request, wanted, message) in [
        ("none", get(&[]), 401, "missing signature query parameter"),
        ("wrong", get(&[("signature", "v1_x")]), 401, "invalid signature"),
        (
            "of another user",
            get(&[("signature", &read), ("username", "root")]),
            401,
            "invalid signature",
        ),
        (
            "over",
            get(&[("signature", &read_old), ("signature_expiration", old)]),
            401,
            "signature is already expired",
        ),
        (
            "a wrong header decides",
            get(&[("signature", &read)]).header("x-access-token", "x"),
            401,
            "access token present in header but does not match",
        ),
        ("right", get(&[("signature", &read)]), 200, ""),
        (
            "right, for a while and a user",
            get(&[("signature", &read_new), ("signature_expiration", new), ("username", "root")]),
            200,
            "",
        ),
        ("the token", get(&[]).header("x-access-token", "secret"), 200, ""),
    ] {
        let (code, body) = status(request).await;
        assert_eq!((code, body["message"].as_str().unwrap_or("")), (wanted, message), "{why}");
    }
    // An upload's may have no path: names are in the form.
    let write = sign(":write::secret".to_owned());
    let name = folder.path().join("new").to_str().unwrap().to_owned();
    let form = reqwest::multipart::Form::new()
        .part("file", reqwest::multipart::Part::bytes(&b"y"[..]).file_name(name.clone()));
    let url = agent.url("/files");
    let request = agent.client.post(url).query(&[("signature", &write)]).multipart(form);
    assert_eq!(status(request).await.0, 200);
    assert_eq!(std::fs::read_to_string(name).unwrap(), "y");
}

#[tokio::test]
async fn pages_of_any_origin_may_ask() {
    let agent = Agent::start_with(&["--token", "secret"]);
    let preflight = agent
        .client
        .request(reqwest::Method::OPTIONS, agent.url("/process.Process/Start"))
        .header("origin", "https://page.test")
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "x-access-token,connect-protocol-version")
        .send()
        .await
        .unwrap();
    assert_eq!(preflight.status().as_u16(), 204);
    let headers = preflight.headers();
    assert_eq!(headers["access-control-allow-origin"], "*");
    assert_eq!(headers["access-control-allow-methods"], "POST");
    assert_eq!(headers["access-control-allow-headers"], "x-access-token,connect-protocol-version");
    let refused = agent.client.get(agent.url("/envs")).header("origin", "https://page.test");
    let refused = refused.send().await.unwrap();
    assert_eq!(refused.headers().get_all("access-control-allow-origin").iter().count(), 1);
    let plain = agent.client.get(agent.url("/health")).send().await.unwrap();
    assert!(!plain.headers().contains_key("access-control-allow-origin"));
}

#[tokio::test]
async fn what_is_not_served_is_refused_in_one_shape() {
    let agent = Agent::start();
    let get = |path: &str| agent.client.get(agent.url(path));
    let post = |path: &str| agent.client.post(agent.url(path));
    for (request, wanted) in [
        (get("/"), 404),
        (post("/init"), 404),
        (post("/freeze"), 404),
        (get("/process.Process/List"), 405),
        (post("/health"), 405),
        (post("/other.Service/Method"), 404),
    ] {
        let (code, body) = status(request).await;
        assert_eq!((code, &body["code"]), (wanted, &json!(wanted)));
        assert!(body["message"].is_string());
    }
    let (code, _body) = status(post("/process.Process/List").body("{}")).await;
    assert_eq!(code, 415);
    let (code, body) = agent.call("process.Process/NoSuch", json!({})).await;
    assert_eq!((code, &body["code"]), (501, &json!("unimplemented")));
    let garbage = post("/process.Process/List").header("content-type", "application/json");
    let (code, body) = status(garbage.body("{")).await;
    assert_eq!((code, &body["code"]), (400, &json!("invalid_argument")));
}
