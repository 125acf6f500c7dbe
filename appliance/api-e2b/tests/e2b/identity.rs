//! Tokens of sandboxes: asked for by name, never shown, and verified by whoever reads the keys.

use serde_json::{Value, json};

use crate::world::World;

const NEW: &str = "POST /v2/sandboxes";
const KEYS: &str = "GET /.well-known/jwks.json";

fn with(tokens: &Value) -> String {
    json!({ "templateID": "base", "iam": { "tokens": tokens } }).to_string()
}

fn aws() -> Value {
    json!({ "aws": { "audience": "sts.amazonaws.com", "tokenType": "JWT-SVID" } })
}

/// The claims, which nobody has verified.
fn claims(token: &str) -> Value {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    let claims = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_with_tokens_is_named() {
    let world = World::new().await;
    let token = |field: &str, value: Value| {
        let mut token = json!({ "audience": "b", "tokenType": "JWT-SVID" });
        token[field] = value;
        with(&json!({ "a": token }))
    };
    let fine = json!({ "audience": "b", "tokenType": "JWT-SVID" });
    let six: serde_json::Map<String, Value> =
        (0..6).map(|at| (format!("t{at}"), fine.clone())).collect();
    let named = |name: &str| with(&json!({ name: fine }));
    for (body, expected) in [
        (with(&json!(six)), "iam.tokens: too many tokens: 6 (max 5)"),
        (named(""), "iam.tokens: token name must not be empty"),
        (named("a}b"), "iam.tokens: a token's name has 1 to 128 bytes, and no '{'"),
        (named(&"n".repeat(129)), "iam.tokens: a token's name has 1 to 128 bytes"),
        (token("audience", json!("")), "iam.tokens.a.audience: audience is required"),
        (token("audience", Value::Null), "iam.tokens.a.audience: audience is required"),
        (token("audience", json!(["b"])), "iam.tokens.a.audience: invalid type"),
        (token("audience", json!("b".repeat(1025))), "iam.tokens.a.audience: an audience has 1"),
        (token("tokenType", json!("OIDC")), "iam.tokens.a.tokenType: only \"JWT-SVID\" is"),
        (token("tokenType", json!("jwt-svid")), "iam.tokens.a.tokenType: only"),
        (token("tokenType", Value::Null), "iam.tokens.a.tokenType: only"),
        (token("filePath", json!("/run/token")), "iam.tokens.a.filePath: tokens are not"),
        (token("lifetime", json!(9)), "iam.tokens.a.lifetime: unknown field `lifetime`"),
        (with(&json!({ "a": "b" })), "iam.tokens.a: invalid type"),
        (with(&json!(["a"])), "iam.tokens: invalid type"),
        (r#"{"templateID":"base","iam":{"token":{}}}"#.to_owned(), "iam.token: unknown field"),
        (r#"{"templateID":"base","iam":"aws"}"#.to_owned(), "iam: invalid type"),
    ] {
        let answer = world.ask(NEW, &body).await;
        assert_eq!(answer.status, 400, "{body:.80}");
        let message = answer.body["message"].as_str().unwrap();
        assert!(message.starts_with(expected), "{body:.80}: {message}");
    }
    assert_eq!(world.zone.running().len(), 0);
    for (iam, path) in [
        (json!(null), "POST /sandboxes"),
        (json!({}), NEW),
        (json!({ "tokens": null }), NEW),
        (json!({ "tokens": {} }), NEW),
        (
            json!({ "tokens": { "a": { "audience": "b", "tokenType": "JWT-SVID", "filePath": null } } }),
            NEW,
        ),
    ] {
        let body = json!({ "templateID": "base", "iam": iam }).to_string();
        assert_eq!(world.ask(path, &body).await.status, 201, "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn tokens_are_egress_s_alone() {
    let world = World::new().await;
    let vault = world.zone.vault().unwrap();
    let made = world.ask(NEW, &with(&aws())).await;
    assert_eq!(made.status, 201, "{made:?}");
    let label = made.body["sandboxID"].as_str().unwrap();
    let id = label.parse().unwrap();
    let none = world.create().await.parse().unwrap();
    let first = vault.token(id, "aws").await.unwrap();
    assert!(vault.token(id, "AWS").await.is_none(), "names are exact");
    assert!(vault.token(none, "aws").await.is_none(), "another sandbox's");
    let told = claims(first.expose());
    assert_eq!((&told["aud"], &told["sandbox_id"]), (&json!("sts.amazonaws.com"), &json!(label)));
    let second = claims(vault.token(id, "aws").await.unwrap().expose());
    assert_ne!(told["jti"], second["jti"]);
    assert_eq!(told["execution_id"], second["execution_id"]);

    let detail = world.ask(&format!("GET /sandboxes/{label}"), "").await;
    let listed = world.ask("GET /v2/sandboxes", "").await;
    let spec = format!("{:?}", world.zone.spec(id).unwrap());
    for shown in [made.body.to_string(), detail.body.to_string(), listed.body.to_string(), spec] {
        assert!(!shown.contains("amazonaws") && !shown.contains("iam"), "{shown}");
    }

    let paused = world.ask(&format!("POST /sandboxes/{label}/pause"), "").await;
    assert_eq!(paused.status, 204, "{paused:?}");
    let other = json!({ "b": { "audience": "c", "tokenType": "JWT-SVID" } });
    let resume = json!({ "timeout": 60, "iam": { "tokens": other } }).to_string();
    let resumed = world.ask(&format!("POST /sandboxes/{label}/resume"), &resume).await;
    assert_eq!(resumed.status, 201, "{resumed:?}");
    let after = claims(vault.token(id, "aws").await.unwrap().expose());
    assert!(vault.token(id, "b").await.is_none(), "a resume does not change what it has");
    assert_ne!(told["execution_id"], after["execution_id"]);
    for claim in ["iss", "aud", "team_id", "template_id", "sandbox_id"] {
        assert_eq!(told[claim], after[claim], "{claim}");
    }
    assert_eq!(world.ask(&format!("DELETE /sandboxes/{label}"), "").await.status, 204);
    assert!(vault.token(id, "aws").await.is_none(), "of no sandbox");
}

#[tokio::test(start_paused = true)]
async fn what_starts_from_a_sandbox_has_none_of_its_tokens() {
    let world = World::new().await;
    let vault = world.zone.vault().unwrap();
    let made = world.ask(NEW, &with(&aws())).await;
    let label = made.body["sandboxID"].as_str().unwrap();
    let id = label.parse().unwrap();
    let fork = world.ask(&format!("POST /sandboxes/{label}/fork"), r#"{"count":2}"#).await;
    assert_eq!(fork.status, 201, "{fork:?}");
    let copies = fork.body.as_array().unwrap();
    assert_eq!(copies.len(), 2);
    for copy in copies {
        let copy = copy["sandbox"]["sandboxID"].as_str().unwrap().parse().unwrap();
        assert!(vault.token(copy, "aws").await.is_none());
    }
    let snapshot = world.ask(&format!("POST /sandboxes/{label}/snapshots"), "{}").await;
    let from = snapshot.body["snapshotID"].as_str().unwrap();
    let plain = json!({ "templateID": from }).to_string();
    let own = json!({ "gcp": { "audience": "g", "tokenType": "JWT-SVID" } });
    let own = json!({ "templateID": from, "iam": { "tokens": own } }).to_string();
    for (body, has) in [(plain, false), (own, true)] {
        let copy = world.ask(NEW, &body).await;
        assert_eq!(copy.status, 201, "{copy:?}");
        let copy = copy.body["sandboxID"].as_str().unwrap().parse().unwrap();
        assert!(vault.token(copy, "aws").await.is_none());
        assert_eq!(vault.token(copy, "gcp").await.is_some(), has);
    }
    assert!(vault.token(id, "aws").await.is_some(), "the source goes on with its own");
}

#[tokio::test(start_paused = true)]
async fn an_idempotency_key_is_of_one_set_of_tokens() {
    let world = World::new().await;
    let keyed = async |tokens: &Value| {
        let answer = world.ask_with_key(NEW, &with(tokens), ("Idempotency-Key", "k")).await;
        (answer.status, answer.body["sandboxID"].clone())
    };
    let first = keyed(&aws()).await;
    assert_eq!(first.0, 201);
    assert_eq!(keyed(&aws()).await, first);
    let other = json!({ "aws": { "audience": "other", "tokenType": "JWT-SVID" } });
    assert_eq!(keyed(&other).await.0, 409);
    assert_eq!(keyed(&json!({})).await.0, 409);
}

#[tokio::test(start_paused = true)]
async fn a_rule_may_name_a_token() {
    let world = World::new().await;
    let id = world.create().await;
    let rules = |value: &str| {
        let headers = json!({ "transform": { "headers": { "Authorization": value } } });
        json!({ "rules": { "a.example.com": [headers] } }).to_string()
    };
    let put = async |value: &str| {
        let answer = world.ask(&format!("PUT /sandboxes/{id}/network"), &rules(value)).await;
        (answer.status, answer.body["message"].as_str().unwrap_or_default().to_owned())
    };
    // As E2B's own server has it: the rule is taken, and what asks for the token is cut.
    assert_eq!(put("Bearer ${e2b.identity.tokens.aws}").await.0, 204);
    for wrong in ["${e2b.identity.tokens.}", "${e2b.identity.tokens.a", "${e2b.identity.aws}"] {
        let (status, message) = put(wrong).await;
        assert!(status == 400 && message.contains("is no placeholder"), "{status} {message}");
    }
    let detail = world.ask(&format!("GET /sandboxes/{id}"), "").await;
    let shown = &detail.body["network"]["rules"]["a.example.com"][0]["transform"]["headers"];
    assert_eq!(shown["Authorization"], "Bearer ${e2b.identity.tokens.aws}");
}

#[tokio::test(start_paused = true)]
async fn anybody_may_read_who_signs() {
    let world = World::new().await;
    let ask = async |line: &str| {
        let answer = world.ask_with(line, "", &[]).await;
        assert_eq!(answer.status, 200, "{line}");
        assert_eq!(answer.headers["cache-control"], "public, max-age=300");
        answer.body
    };
    let about = ask("GET /.well-known/openid-configuration").await;
    assert_eq!(about["issuer"], "http://127.0.0.1");
    assert_eq!(about["jwks_uri"], "http://127.0.0.1/.well-known/jwks.json");
    assert_eq!(about["id_token_signing_alg_values_supported"], json!(["ES256"]));
    let keys = ask(KEYS).await;
    let key = keys["keys"][0].as_object().unwrap();
    let mut fields: Vec<&str> = key.keys().map(String::as_str).collect();
    fields.sort_unstable();
    assert_eq!(fields, ["alg", "crv", "kid", "kty", "use", "x", "y"], "and nothing private");

    let new = world.control.identities.new_key().await.unwrap();
    world.control.identities.new_key().await.unwrap_err();
    let both = ask(KEYS).await;
    assert_eq!(both["keys"].as_array().unwrap().len(), 2);
    assert_eq!(both["keys"][0], keys["keys"][0]);
    assert_eq!(both["keys"][1]["kid"], new.id);
}
