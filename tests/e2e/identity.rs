//! Who a sandbox is, over the lives of the appliance.

use std::{os::unix::fs::PermissionsExt as _, path::Path};

use anyhow::{Context, Result, ensure};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use reqwest::Method;
use sandboxo_tests::{Appliance, Outside, id};
use serde_json::{Value, json};

/// Header and claims; the SDKs' stories verify the signature.
fn parts(token: &str) -> Result<(Value, Value)> {
    let part = |at: usize| -> Result<Value> {
        let part = token.split('.').nth(at).context("three parts")?;
        Ok(serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part)?)?)
    };
    Ok((part(0)?, part(1)?))
}

async fn keys(appliance: &Appliance) -> Result<Value> {
    let url = format!("{}/.well-known/jwks.json", appliance.client.url);
    Ok(reqwest::get(url).await?.error_for_status()?.json().await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_appliance_says_the_same_of_a_sandbox() -> Result<()> {
    let outside = Outside::new()?;
    let mut appliance = Appliance::start_facing(1, &outside, json!({})).await?;
    let client = appliance.client.clone();
    let header = "Bearer ${e2b.identity.tokens.aws}";
    let rule = json!([{ "transform": { "headers": { "Authorization": header } } }]);
    let sandbox = client
        .create(json!({
            "templateID": "base",
            "iam": { "tokens": { "aws": { "audience": "sts", "tokenType": "JWT-SVID" } } },
            "network": { "rules": { Outside::HOST: rule } },
        }))
        .await?;
    let ask = async |path: &str| {
        let url = format!("https://{}{path}", Outside::HOST);
        let said = client.run(&sandbox, &format!("curl -sS --max-time 20 {url}")).await?;
        ensure!(said.stdout == "heard", "{path}: {said:?}");
        let heard = outside.heard(path)?;
        let header = heard.pointer("/headers/authorization").and_then(Value::as_str);
        let token = header.and_then(|it| it.strip_prefix("Bearer ")).context("a token")?;
        parts(token)
    };
    let (header, claims) = ask("/before").await.with_context(|| appliance.tail())?;
    let before = keys(&appliance).await?;
    ensure!(header.get("kid") == before.pointer("/keys/0/kid"), "{header} {before}");
    ensure!(claims.get("sandbox_id") == Some(&id(&sandbox)?.into()), "{claims}");
    ensure!(claims.get("iss") == Some(&client.url.clone().into()), "{claims}");

    appliance.crash()?;
    appliance.serve().await?;
    ensure!(keys(&appliance).await? == before);
    let (again, later) = ask("/after").await?;
    ensure!(again == header);
    for claim in ["iss", "sub", "aud"] {
        ensure!(later.get(claim) == claims.get(claim), "{claim}: {later} {claims}");
    }
    ensure!(later.get("jti") != claims.get("jti"));

    // A new key is there for all to see, also after a crash, and does not sign yet.
    let made: Value = serde_json::from_str(&appliance.sandboxo(&["identity", "rotate"])?)?;
    appliance.crash()?;
    appliance.serve().await?;
    let both = keys(&appliance).await?;
    ensure!(both.pointer("/keys/0") == before.pointer("/keys/0"), "{both}");
    ensure!(both.pointer("/keys/1/kid") == made.get("kid"), "{both} {made}");
    ensure!(ask("/rotated").await?.0 == header);
    let mut soon = appliance.command(&["identity", "rotate"])?;
    let soon = soon.output()?;
    ensure!(!soon.status.success() && String::from_utf8_lossy(&soon.stderr).contains("already"));
    let file = std::fs::metadata(appliance.state().join(Path::new("identity-keys")))?;
    ensure!(file.permissions().mode() & 0o777 == 0o600);

    // What nobody made for this sandbox is asked of nobody.
    let network = json!({ "rules": { Outside::HOST: [{ "transform": { "headers": {
        "Authorization": "${e2b.identity.tokens.other}",
    } } }] } });
    let path = format!("/sandboxes/{}/network", id(&sandbox)?);
    ensure!(client.api(Method::PUT, &path).json(&network).send().await?.status() == 204);
    ensure!(ask("/unknown").await.is_err() && outside.heard("/unknown").is_err());
    client.kill(&sandbox).await.map(drop)
}
