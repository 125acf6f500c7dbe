//! The published SDKs against a real appliance: the scripts of tests/sdk.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Result, ensure};
use sandboxo_tests::{Appliance, Outside};
use serde_json::json;

use crate::tidy::root;

pub(crate) fn run(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output()?;
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{command:?}\n{stdout}\n{stderr}");
    Ok(())
}

/// Packages are kept beside the build products, and renewed when their list changes.
fn installed(
    name: &str,
    list: &Path,
    install: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let folder = root().join("target/sdk").join(name);
    let (wanted, have) =
        (std::fs::read(list)?, std::fs::read(folder.join("installed")).unwrap_or_default());
    if wanted != have {
        std::fs::create_dir_all(&folder)?;
        install(&folder)?;
        std::fs::write(folder.join("installed"), wanted)?;
    }
    Ok(folder)
}

pub(crate) fn against<'a>(command: &'a mut Command, appliance: &Appliance) -> &'a mut Command {
    command
        .env("E2B_API_URL", &appliance.client.url)
        .env("E2B_SANDBOX_URL", &appliance.client.url)
        .env("E2B_API_KEY", &appliance.client.key)
        .env("E2B_VOLUME_API_URL", &appliance.client.url)
}

pub(crate) fn scripts() -> PathBuf {
    root().join("tests/sdk")
}

/// `pytest` over a folder of scripts.
pub(crate) fn pytest(folder: &str) -> Result<Command> {
    let list = scripts().join("python/requirements.txt");
    let packages = installed("python", &list, |folder| {
        run(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
        run(Command::new(folder.join("bin/pip"))
            .args(["install", "--quiet", "--requirement"])
            .arg(&list))
    })?;
    let mut pytest = Command::new(packages.join("bin/pytest"));
    pytest.args(["-q", "-p", "no:cacheprovider"]).arg(scripts().join(folder));
    Ok(pytest)
}

#[tokio::test(flavor = "multi_thread")]
async fn python() -> Result<()> {
    let mut pytest = pytest("python")?;
    let outside = Outside::new()?;
    // The proxies that the scripts start are on this host.
    let zone = json!({ "proxy_networks": ["127.0.0.1/32"] });
    let appliance = Appliance::start_facing(2, &outside, zone).await?;
    run(against(&mut pytest, &appliance).env("OUTSIDE_HEARD", outside.hearing()))
}

#[tokio::test(flavor = "multi_thread")]
async fn javascript() -> Result<()> {
    node("js", "e2b.test.mjs").await
}

#[tokio::test(flavor = "multi_thread")]
async fn command_line() -> Result<()> {
    node("cli", "cli.test.mjs").await
}

async fn node(name: &str, script: &str) -> Result<()> {
    let scripts = scripts().join(name);
    let packages = installed(name, &scripts.join("package-lock.json"), |folder| {
        for name in ["package.json", "package-lock.json"] {
            std::fs::copy(scripts.join(name), folder.join(name))?;
        }
        run(Command::new("npm")
            .args(["ci", "--silent", "--no-audit", "--no-fund"])
            .current_dir(folder))
    })?;
    // Node looks for packages beside the script.
    std::fs::copy(scripts.join(script), packages.join(script))?;
    let outside = Outside::new()?;
    let appliance = Appliance::start_facing(2, &outside, json!({})).await?;
    let mut node = Command::new("node");
    node.args(["--test", script]).current_dir(&packages);
    run(against(&mut node, &appliance).env("OUTSIDE_HEARD", outside.hearing()))
}
