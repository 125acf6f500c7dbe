//! Sandboxes that are frozen while nobody uses them: no client can tell.

use anyhow::Result;
use sandboxo_tests::Appliance;
use serde_json::json;

use crate::sdk;

#[tokio::test(flavor = "multi_thread")]
async fn an_sdk_does_not_notice_that_its_sandbox_was_frozen() -> Result<()> {
    let freezing = json!({ "zone": { "freeze_after_seconds": 1 } });
    let appliance = Appliance::start_set(1, freezing).await?;
    let mut pytest = sdk::pytest("frozen")?;
    pytest.env("SANDBOXO_TOKEN", &appliance.client.token);
    sdk::run(sdk::against(&mut pytest, &appliance))
}
