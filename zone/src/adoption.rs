//! Carrying out the plan for what an earlier process left.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::fd::OwnedFd,
    sync::Arc,
};

use futures_util::future::join_all;
use sandboxo_crashpoint::{Point, crashpoint};
use sandboxo_zone_protocol::{EndReason, Ended, SandboxId};
use tokio::time::timeout;

use crate::{
    adopt::{Plan, ProcessView, SlotView, plan},
    bringup::{Connected, HELLO_TIMEOUT, Holdings, Running},
    cgroup::Cgroups,
    config::Layout,
    host::Host,
    janitor::{NetworkRemains, Remains},
    keeper::Held,
    process::Process,
    sandbox::{Shared, Task},
    slot::{ClaimRecord, ContainerId, Slot},
};

/// Returns once all of it is adopted, in the pool, or removed.
pub(crate) async fn adopt(shared: &Arc<Shared>, held: Vec<Held>) -> io::Result<()> {
    let host = &shared.host;
    let mut slots = read_slots(&host.layout)?;
    let mut channels: BTreeMap<ContainerId, OwnedFd> = BTreeMap::new();
    for Held { label, channel, .. } in held {
        if let Ok(container) = label.parse() {
            channels.insert(container, channel);
        } else {
            tracing::warn!(label, "the keeper holds what is not a container's");
        }
    }
    let views: Vec<_> = slots.values().map(|slot| view(shared, slot)).collect();
    let held = channels.keys().copied().collect();
    let found = found(&host.layout, &host.cgroups)?;
    let plan = plan(&views, &held, &found, host.clock.now());
    if plan != Plan::default() {
        tracing::info!(%plan, "what an earlier process left");
    }
    crashpoint(Point::AdoptPlanned);
    for (id, reason) in plan.remove.values().flatten() {
        tell(shared, *id, *reason);
    }
    crashpoint(Point::AdoptTold);
    let mut removed = Vec::new();
    for container in plan.remove.keys() {
        let lease = slots.remove(container).and_then(|slot| slot.lease);
        let network = lease.map(NetworkRemains::Record);
        removed.push(host.janitor.remove(Remains { container: *container, network }));
    }
    let taken = plan.adopt.iter().chain(&plan.pool).filter_map(|container| {
        Some(take_over(shared, slots.remove(container)?, channels.remove(container)?))
    });
    join_all(taken).await;
    crashpoint(Point::AdoptTaken);
    // The others' channels close here; the keeper's are released by the janitor.
    drop(channels);
    join_all(removed).await;
    crashpoint(Point::AdoptRemoved);
    host.network.sweep(&[]).await;
    Ok(())
}

/// Everything that this zone has named after a container, slot or not.
pub(crate) fn found(layout: &Layout, cgroups: &Cgroups) -> io::Result<BTreeSet<ContainerId>> {
    let mut found = BTreeSet::new();
    for folder in [layout.slots(), layout.mounts()] {
        found.extend(names(&folder)?.iter().filter_map(|name| name.parse::<ContainerId>().ok()));
    }
    found.extend(cgroups.list()?.iter().filter_map(|name| name.parse::<ContainerId>().ok()));
    for name in names(&layout.runsc_root())? {
        let parts = name.split(|c: char| !c.is_ascii_alphanumeric());
        found.extend(parts.filter_map(|part| part.parse::<ContainerId>().ok()));
    }
    Ok(found)
}

pub(crate) fn names(folder: &std::path::Path) -> io::Result<BTreeSet<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        entries => entries?,
    };
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

/// Those that can be read; the others are removed as things without a slot.
pub(crate) fn read_slots(layout: &Layout) -> io::Result<BTreeMap<ContainerId, Slot>> {
    let mut slots = BTreeMap::new();
    for name in names(&layout.slots())? {
        let Ok(container) = name.parse::<ContainerId>() else { continue };
        match Slot::load(&layout.slot(container)) {
            Ok(slot) => {
                slots.insert(container, slot);
            }
            Err(error) => {
                tracing::warn!(%container, error = &error as &dyn std::error::Error, "read a slot");
            }
        }
    }
    Ok(slots)
}

fn view(shared: &Shared, slot: &Slot) -> SlotView {
    let host = &shared.host;
    let process = match slot.process {
        None => ProcessView::NotStarted,
        Some(mark) if mark.is_alive() => ProcessView::Alive,
        Some(_) => ProcessView::Gone {
            out_of_memory: host
                .cgroups
                .group(&slot.container.to_string())
                .oom_kills()
                .is_ok_and(|kills| kills > 0),
        },
    };
    SlotView {
        container: slot.container,
        same_host_boot: slot.host_boot == host.boot,
        same_keeper: slot.keeper_boot == host.keeper.boot_id(),
        process,
        claim: slot.claim.as_ref().map(|claim| (claim.id, claim.deadline)),
        has_ended: slot.ending
            || slot.claim.as_ref().is_some_and(|claim| shared.ledger.has_ended(claim.id)),
    }
}

async fn take_over(shared: &Arc<Shared>, slot: Slot, channel: OwnedFd) {
    let (container, claim) = (slot.container, slot.claim.clone());
    match reach(&shared.host, slot, channel).await {
        Ok((member, told)) => match (claim, told) {
            (None, None) => shared.pool.add(member),
            (Some(claim), Some(told)) if told == claim.id.label() => {
                adopted(shared, member, claim);
            }
            // The claim never reached the agent, so its create was never answered: whoever asked
            // for it asks again.
            (Some(claim), None) => {
                tracing::info!(sandbox.id = %claim.id, "its claim was cut off");
                member.finish().await;
            }
            (claim, told) => {
                tracing::error!(%container, ?claim, ?told, "slot and agent disagree");
                member.finish().await;
                if let Some(claim) = claim {
                    tell(shared, claim.id, EndReason::AgentLost);
                }
            }
        },
        Err(reason) => {
            if let Some(claim) = claim {
                tell(shared, claim.id, reason);
            }
        }
    }
}

/// Whose it is by its own words. Dropped in the middle, the janitor ends it.
async fn reach(
    host: &Arc<Host>,
    slot: Slot,
    channel: OwnedFd,
) -> Result<(Connected, Option<String>), EndReason> {
    let (container, mark) = (slot.container, slot.process);
    let lost = |what: &str, error: &(dyn std::error::Error + 'static)| {
        tracing::warn!(%container, error, "{what}");
    };
    let record = slot.lease.clone();
    let mut holdings = Holdings::new(host.clone(), slot, None);
    if let Some(record) = record {
        match host.network.adopt(record).await {
            Ok(lease) => holdings.lease = Some(lease),
            Err(error) => {
                lost("its network is gone", &error);
                return Err(EndReason::Crashed);
            }
        }
    }
    let Some(Ok(process)) = mark.map(Process::open) else {
        return Err(EndReason::Crashed);
    };
    let greeted = timeout(HELLO_TIMEOUT, Running { holdings, process, channel }.greet()).await;
    match greeted {
        Ok(Ok((connected, hello))) => Ok((connected, hello.claimed)),
        Ok(Err(error)) => {
            lost("its agent is lost", &error);
            Err(EndReason::AgentLost)
        }
        Err(late) => {
            lost("its agent does not greet", &late);
            Err(EndReason::AgentLost)
        }
    }
}

fn adopted(shared: &Arc<Shared>, member: Connected, claim: ClaimRecord) {
    let tasks = &shared.host.tasks;
    let resources = member.shape().resources;
    let (task, handle) = Task::new(shared, claim.id, resources, &tasks.stop());
    shared.sandboxes.lock().insert(claim.id, handle);
    tasks.spawn("sandbox", |stop| task.adopt(member, claim, stop));
}

fn tell(shared: &Shared, id: SandboxId, reason: EndReason) {
    let ended = Ended { id, at: shared.host.clock.now(), reason };
    shared.ledger.write_down(&ended);
    shared.ledger.ended(ended);
}
