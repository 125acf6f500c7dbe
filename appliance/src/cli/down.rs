//! `down`: nothing of this state folder's appliance is left on the host.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::{
    errno::Errno,
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use sandboxo_store::{OpenError, Store};
use sandboxo_zone_protocol::{Clock as _, SystemClock};

use super::Context;
use crate::{boot, config::Config, output::Progress, state::StateFolder};

/// Longer than a stopping appliance takes.
const PATIENCE: Duration = Duration::from_secs(40);

pub(crate) async fn down(context: &Context, keep: bool) -> Result<()> {
    let config = Config::load(&context.flags)?;
    let state = StateFolder::at(&config.state);
    if !state.root().exists() {
        return Ok(());
    }
    let progress = Progress::spinner("ending the appliance");
    // Held to the end, so that no appliance starts in the middle.
    let store = stop_appliance(&state).await?;
    if !keep {
        progress.phase("ending sandboxes and the keeper");
        let zone = boot::zone_config(&config, &state)?;
        sandboxo_zone::tear_down(&zone, SystemClock.now()).await.context("end the sandboxes")?;
    }
    store.close().await;
    Ok(())
}

async fn stop_appliance(state: &StateFolder) -> Result<Store> {
    let until = tokio::time::Instant::now() + PATIENCE;
    let mut told = None;
    loop {
        match Store::open(state.root()) {
            Ok(store) => return Ok(store),
            Err(OpenError::Locked { pid, .. }) => {
                if tokio::time::Instant::now() > until {
                    bail!("the appliance did not end within {PATIENCE:?}; it is process {pid:?}");
                }
                if let Some(pid) = pid
                    && told != Some(pid)
                {
                    told = Some(pid);
                    match kill(Pid::from_raw(i32::try_from(pid)?), Signal::SIGTERM) {
                        Ok(()) | Err(Errno::ESRCH) => {}
                        Err(errno) => bail!("end process {pid}: {errno}"),
                    }
                }
            }
            Err(other) => return Err(other).context("open the records"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
