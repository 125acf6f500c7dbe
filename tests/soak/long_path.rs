//! Names that are longer than a socket's may be.

use anyhow::{Result, ensure};
use sandboxo_tests::Appliance;

/// 88: the kernel takes 107 bytes for a socket's path, and an alias may have 128.
#[tokio::test(flavor = "multi_thread")]
async fn row_88_a_state_folder_of_90_bytes_and_a_name_of_128_work() -> Result<()> {
    let mut prefix = "long-".to_owned();
    let rest = std::env::temp_dir().as_os_str().len() + 1 + 6;
    prefix.extend(std::iter::repeat_n('x', 90_usize.saturating_sub(rest + prefix.len())));
    let state = tempfile::Builder::new().prefix(&prefix).tempdir()?;
    ensure!(state.path().as_os_str().len() == 90, "{}", state.path().display());
    let mut appliance = Appliance::start_in(state, 1).await?;
    let name = "n".repeat(128);
    appliance.template(&name, &[]).await?;
    let client = appliance.client.clone();
    let asked = serde_json::json!({ "templateID": name, "timeout": 600 });
    let sandbox = client.create(asked).await?;
    ensure!(client.run(&sandbox, "echo hi").await?.stdout == "hi\n");
    appliance.crash()?;
    appliance.serve().await?;
    ensure!(client.run(&sandbox, "echo hi").await?.stdout == "hi\n");
    ensure!(client.kill(&sandbox).await? == 204);
    appliance.leaks().await.map(drop)
}
