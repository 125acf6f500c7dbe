//! Carrying out the plan for what an earlier process left.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::fd::OwnedFd,
    pin::pin,
    sync::Arc,
    time::Duration,
};

use futures_util::future::join_all;
use sandboxo_crashpoint::{Point, crashpoint};
use sandboxo_zone_protocol::{CheckpointId, EndReason, Ended, SandboxId};
use tokio::time::timeout;

use crate::{
    adopt::{Plan, ProcessView, SlotView, plan},
    bringup::{Connected, HELLO_TIMEOUT, Holdings, Running},
    cgroup::Cgroups,
    config::Layout,
    host::Host,
    janitor::{NetworkRemains, Remains},
    keeper::Held,
    process::{Process, ProcessMark},
    sandbox::{Shared, Task, let_go},
    slot::{ClaimRecord, ContainerId, Slot},
};

/// A checkpoint that was under way when the process before died.
const SAVED_WITHIN: Duration = Duration::from_secs(80);
/// One that was told to stand still, and does not greet for so long, does.
const STANDS_STILL: Duration = Duration::from_secs(2);

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
    let saved = saved(host, &slots);
    let views: Vec<_> = slots.values().map(|slot| view(shared, slot, &saved)).collect();
    let held = channels.keys().copied().collect();
    let found = found(&host.layout, &host.cgroups)?;
    let plan = plan(&views, &held, &found, host.clock.now());
    if plan != Plan::default() {
        tracing::info!(%plan, "what an earlier process left");
    }
    crashpoint(Point::AdoptPlanned);
    for (container, (id, reason)) in plan.remove.iter().filter_map(|(c, end)| Some((c, (*end)?))) {
        let was_saved = slots.get(container).is_some_and(|slot| slot.saving.is_some());
        let failed = was_saved && reason == EndReason::Crashed;
        tell(shared, id, if failed { EndReason::CheckpointFailed } else { reason });
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
    host.checkpoints.sweep()?;
    let mut needed = host.checkpoints.programs();
    for slot in read_slots(&host.layout)?.into_values() {
        needed.extend(slot.programs.into_iter().flat_map(|it| [it.agent, it.runsc.digest]));
    }
    needed.insert(host.runsc.digest().to_owned());
    host.programs.sweep(&needed)?;
    host.network.sweep(&[]).await;
    Ok(())
}

/// Everything that this zone has named after a container, slot or not.
pub(crate) fn found(layout: &Layout, cgroups: &Cgroups) -> io::Result<BTreeSet<ContainerId>> {
    let mut found = BTreeSet::new();
    for folder in [layout.slots(), layout.mounts(), layout.places()] {
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

/// Those that were saved when the process before died: their sandboxes are paused now, or go on
/// elsewhere, and what is left of the containers goes without a word.
fn saved(host: &Host, slots: &BTreeMap<ContainerId, Slot>) -> BTreeSet<ContainerId> {
    let lives = |slot: &Slot| slot.process.is_some_and(ProcessMark::is_alive);
    let mut saved = BTreeSet::new();
    for slot in slots.values().filter(|slot| !lives(slot)) {
        let (Some(id), Some(claim)) = (slot.saving, &slot.claim) else { continue };
        let goes_on = slots.values().any(|other| {
            let is_same = other.claim.as_ref().is_some_and(|it| it.id == claim.id);
            is_same && other.container != slot.container && !is_half_restored(other) && lives(other)
        });
        if goes_on || recover(host, slot, id) {
            saved.insert(slot.container);
        }
    }
    saved
}

/// A checkpoint whose writer ended, and then the zone before it could say so.
fn recover(host: &Host, slot: &Slot, id: CheckpointId) -> bool {
    let checkpoints = &host.checkpoints;
    if !checkpoints.is_whole(id) {
        if slot.host_boot != host.boot {
            // Nobody knows how much of it reached the disk.
            return false;
        }
        if let Err(error) = checkpoints.finish(id) {
            tracing::warn!(error = &error as &dyn std::error::Error, "a checkpoint was cut off");
            return false;
        }
    }
    match checkpoints.make_pause(id) {
        Ok(description) => {
            tracing::info!(sandbox.id = %description.sandbox, checkpoint = %id, "paused meanwhile");
            checkpoints.publish(description);
            true
        }
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "read a checkpoint");
            false
        }
    }
}

fn is_half_restored(slot: &Slot) -> bool {
    slot.restored.is_some_and(|restored| !restored.told)
}

fn view(shared: &Shared, slot: &Slot, saved: &BTreeSet<ContainerId>) -> SlotView {
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
        same_programs: slot.programs.as_ref().is_some_and(|it| it.is_same(&host.programs_now())),
        process,
        claim: slot.claim.as_ref().map(|claim| (claim.id, claim.deadline)),
        // A create from a checkpoint that was cut off is asked for again.
        has_ended: slot.ending
            || saved.contains(&slot.container)
            || is_half_restored(slot)
            || slot.blank
            || slot.claim.as_ref().is_some_and(|claim| shared.ledger.has_ended(claim.id)),
    }
}

async fn take_over(shared: &Arc<Shared>, slot: Slot, channel: OwnedFd) {
    let (container, claim) = (slot.container, slot.claim.clone());
    let saving = slot.saving;
    let half_saved = saving.map(|id| (id, slot.clone()));
    let reached = match reach(&shared.host, slot, channel).await {
        Ok((mut member, told)) => {
            // It was not saved after all, or not begun to be.
            if let Some(id) = saving {
                shared.host.checkpoints.give_up(id);
                if let Err(error) = member.holdings.record(|slot| slot.saving = None) {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(%container, error, "write down that it is not saved");
                }
            }
            Ok((member, told))
        }
        Err(_) if half_saved.is_some_and(|(id, slot)| recover(&shared.host, &slot, id)) => return,
        Err(reason) => Err(reason),
    };
    match reached {
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
            Ok(lease) => {
                let claim = holdings.slot.claim.as_ref();
                let recalled = match claim {
                    Some(claim) => {
                        lease.belongs_to(claim.id);
                        lease.recall(&claim.network).await
                    }
                    None => Ok(()),
                };
                if let Err(error) = recalled {
                    lost("its rules by name are not known: they allow nothing", &error);
                }
                holdings.lease = Some(lease);
            }
            Err(error) => {
                lost("its network is gone", &error);
                return Err(EndReason::Crashed);
            }
        }
    }
    // A frozen one does not greet.
    if let Err(error) = holdings.group.set_frozen(false) {
        lost("it is not let go on", &error);
    }
    let Some(Ok(process)) = mark.map(Process::open) else {
        return Err(EndReason::Crashed);
    };
    // One that is being saved does not greet, and ends.
    let patience = if holdings.slot.saving.is_some() { SAVED_WITHIN } else { HELLO_TIMEOUT };
    let held = holdings.slot.held.then(|| holdings.runsc()).transpose();
    let mut greeting = pin!(Running { holdings, process, channel }.greet());
    let mut greeted = timeout(patience.min(STANDS_STILL), &mut greeting).await;
    if greeted.is_err() {
        match held {
            Ok(None) => {}
            // One that is being saved is not kept from it.
            Ok(Some(runsc)) => match let_go(runsc, container).await {
                Ok(()) => tracing::info!(%container, "it is let go on"),
                Err(error) => lost("it is not let go on", &error),
            },
            Err(error) => lost("nobody can let it go on", &error),
        }
        greeted = timeout(patience, greeting).await;
    }
    match greeted {
        Ok(Ok((mut connected, hello))) => {
            if connected.holdings.slot.held
                && let Err(error) = connected.holdings.goes_on()
            {
                lost("it is let go on", &error);
            }
            Ok((connected, hello.claimed))
        }
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
    let volumes = claim.volumes.clone();
    let (task, handle) = Task::new(shared, claim.id, resources, volumes, &tasks.stop());
    shared.sandboxes.lock().insert(claim.id, handle);
    tasks.spawn("sandbox", |stop| task.adopt(member, claim, stop));
}

fn tell(shared: &Shared, id: SandboxId, reason: EndReason) {
    let ended = Ended { id, at: shared.host.clock.now(), reason };
    shared.ledger.write_down(&ended);
    shared.ledger.ended(ended);
}
