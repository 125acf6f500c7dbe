//! Ends every sandbox of a zone that isn't running, its keeper, and all that is named after it.

use std::{fs, io, path::PathBuf};

use sandboxo_tasks::Tasks;
use sandboxo_zone_protocol::{EndReason, Ended, Timestamp};

use crate::{
    adoption::{found, read_slots},
    cgroup::{CgroupError, Cgroups},
    config::{Layout, ZoneConfig},
    disk,
    events::Ledger,
    keeper::{Keeper, KeeperConfig},
    local::KEEPER_GROUP,
    network::{Network, NetworkError},
};

#[derive(Debug, thiserror::Error)]
pub enum TearDownError {
    #[error("find cgroups")]
    Cgroups(#[from] CgroupError),
    #[error("remove the zone's network")]
    Network(#[from] NetworkError),
    #[error("{doing} {}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
}

fn at(doing: &'static str, path: PathBuf) -> impl FnOnce(io::Error) -> TearDownError {
    move |source| TearDownError::Io { doing, path, source }
}

/// The caller makes sure that no zone runs on this state folder. Images stay, and the ends of
/// sandboxes are written down for the next start. A repeat is a success.
pub async fn tear_down(config: &ZoneConfig, now: Timestamp) -> Result<(), TearDownError> {
    let layout = Layout::new(config);
    let cgroups = Cgroups::detect(&config.instance)?;
    let slots = read_slots(&layout).map_err(at("read", layout.slots()))?;
    let ledger = Ledger::open(layout.ended()).map_err(at("read", layout.ended()))?;
    for id in slots.values().filter_map(|slot| slot.claim.as_ref()).map(|claim| claim.id) {
        if !ledger.has_ended(id) {
            ledger.write_down(&Ended { id, at: now, reason: EndReason::Killed });
        }
    }
    let containers = found(&layout, &cgroups).map_err(at("look through", layout.slots()))?;
    for container in &containers {
        let group = cgroups.group(&container.to_string());
        let failed =
            at("end the processes of", group.folders().into_iter().next().unwrap_or_default());
        group.kill_all().await.map_err(failed)?;
        let failed = at("remove the cgroups of", PathBuf::from(container.to_string()));
        group.remove().map_err(failed)?;
    }
    end_keeper(config, &layout, &cgroups).await;
    disk::release_all(&layout.mounts()).map_err(at("unmount", layout.mounts()))?;
    for mounts in [layout.attached(), layout.volume_mounts()] {
        disk::release_all(&mounts).map_err(at("unmount", mounts))?;
    }
    Network::tear_down(&config.instance).await?;
    cgroups.tear_down().map_err(at("remove the cgroups of", config.instance.clone().into()))?;
    for folder in [layout.slots(), layout.run().to_owned()] {
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(at("remove", folder)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// A keeper that can't be asked is ended by its cgroup.
async fn end_keeper(config: &ZoneConfig, layout: &Layout, cgroups: &Cgroups) {
    let group = cgroups.group(KEEPER_GROUP);
    let runs = group.processes().is_ok_and(|pids| !pids.is_empty());
    if runs {
        let tasks = Tasks::new();
        let keeper = KeeperConfig {
            program: config.keeper.clone(),
            build: config.build.clone(),
            socket: layout.keeper_socket(),
            log: layout.keeper_log(),
            hide_proc_sys_net: false,
            cgroups: Vec::new(),
        };
        match Keeper::connect_or_start(keeper, &tasks).await {
            Ok((keeper, _held)) => {
                if let Err(error) = keeper.shut_down().await {
                    tracing::warn!(error = &error as &dyn std::error::Error, "end the keeper");
                }
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "reach the keeper");
            }
        }
        tasks.shut_down(std::time::Duration::from_secs(1)).await;
    }
    if let Err(error) = group.kill_all().await {
        tracing::warn!(error = &error as &dyn std::error::Error, "end the keeper");
    }
}
