//! What a zone has on this host, kind by kind, and what of it nobody owns. Only looks.
//!
//! Everything is named by its container or by the number of its network, so a leak has a name.
//! What is on its way is no leak: whoever asks looks again until it has arrived.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use sandboxo_zone_protocol::SandboxId;

use crate::{
    adoption::{names, read_slots},
    cgroup::{CgroupError, Cgroups},
    config::{Layout, ZoneConfig},
    disk,
    image::UNFINISHED,
    local::KEEPER_GROUP,
    network::{self, Census, Network, NetworkError},
    process::ProcessMark,
    slot::ContainerId,
};

#[derive(Debug, thiserror::Error)]
pub enum InventoryError {
    #[error("find cgroups")]
    Cgroups(#[from] CgroupError),
    #[error("look at the zone's network")]
    Network(#[from] NetworkError),
    #[error("look through {}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// What the appliance says that it has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Told {
    pub live: BTreeSet<SandboxId>,
    /// How many wait in the warm pool.
    pub pooled: usize,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Inventory {
    /// Whose each container is; `None` for the pool's.
    slots: BTreeMap<String, Option<SandboxId>>,
    /// Numbers of the networks that slots name.
    leased: BTreeSet<u32>,
    /// Kind → the containers that something of it is named after.
    of_containers: Vec<(&'static str, BTreeSet<String>)>,
    /// Kind → what there should be, and what is there.
    named: Vec<(&'static str, BTreeSet<String>, BTreeSet<String>)>,
    network: Census,
    /// Kind → what nobody has any use for.
    refuse: Vec<(&'static str, BTreeSet<String>)>,
    /// Kind → how many, where the kernel knows no names.
    counts: Vec<(&'static str, usize)>,
    pub keeper: Option<i32>,
}

/// One kind of thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub kind: &'static str,
    pub expected: usize,
    pub found: usize,
    /// There, and nobody's.
    pub extra: BTreeSet<String>,
    /// Somebody's, and not there.
    pub missing: BTreeSet<String>,
}

impl Row {
    pub fn is_even(&self) -> bool {
        self.extra.is_empty() && self.missing.is_empty()
    }

    fn of_names(kind: &'static str, expected: &BTreeSet<String>, found: &BTreeSet<String>) -> Self {
        Self {
            kind,
            expected: expected.len(),
            found: found.len(),
            extra: found.difference(expected).cloned().collect(),
            missing: expected.difference(found).cloned().collect(),
        }
    }

    /// All are named when there are too many: none of them is told from the others.
    fn of_count(kind: &'static str, expected: usize, found: &BTreeSet<String>) -> Self {
        let (extra, missing) = match found.len().cmp(&expected) {
            std::cmp::Ordering::Greater => (found.clone(), BTreeSet::new()),
            std::cmp::Ordering::Equal => (BTreeSet::new(), BTreeSet::new()),
            std::cmp::Ordering::Less => {
                (BTreeSet::new(), [format!("{} of them", expected - found.len())].into())
            }
        };
        Self { kind, expected, found: found.len(), extra, missing }
    }
}

impl Inventory {
    /// `process` is the appliance's, if it runs.
    pub async fn take(config: &ZoneConfig, process: Option<i32>) -> Result<Self, InventoryError> {
        let layout = Layout::new(config);
        let network = Network::census(&config.instance).await?;
        let cgroups = Cgroups::detect(&config.instance)?;
        let at = |path: PathBuf| move |source| InventoryError::Io { path, source };
        let slots = read_slots(&layout).map_err(at(layout.slots()))?;
        let groups = cgroups.list().map_err(at(PathBuf::from("/sys/fs/cgroup")))?;
        let keepers = cgroups.group(KEEPER_GROUP).processes();
        let keepers = keepers.map_err(at(PathBuf::from("/sys/fs/cgroup")))?.into_iter();
        let keeper = eldest(keepers.filter_map(|pid| ProcessMark::of(pid).ok()));
        let attached: BTreeSet<String> = slots
            .iter()
            .flat_map(|(id, slot)| {
                let volumes = slot.claim.as_ref().map_or(0, |claim| claim.volumes.len());
                (0..volumes).map(move |number| format!("{id}/{number}"))
            })
            .collect();
        let mut inventory = Self {
            leased: slots.values().filter_map(|slot| Some(slot.lease.as_ref()?.number())).collect(),
            slots: slots
                .into_iter()
                .map(|(id, slot)| (id.to_string(), slot.claim.map(|claim| claim.id)))
                .collect(),
            network,
            keeper,
            ..Self::default()
        };
        let groups: BTreeSet<_> = groups.into_iter().filter(|name| name != KEEPER_GROUP).collect();
        let look = |inventory: &mut Self| -> io::Result<()> {
            let processes = processes(&layout, &cgroups, &groups)?;
            let folders: BTreeSet<_> = names(&layout.slots())?.into_iter().collect();
            let mounts = disk::mount_points()?;
            let below = |folder: &Path| -> BTreeSet<String> {
                let name = |point: &PathBuf| {
                    let rest = point.strip_prefix(folder).ok()?.to_string_lossy().into_owned();
                    (!rest.is_empty()).then_some(rest)
                };
                mounts.iter().filter_map(name).collect()
            };
            let runsc: BTreeSet<_> = names(&layout.runsc_root())?;
            inventory.of_containers = vec![
                ("slot folders", folders),
                ("runsc processes", processes),
                ("cgroups", groups),
                ("mounts", below(&layout.mounts())),
                ("mount points", names(&layout.mounts())?),
                ("places of volumes", names(&layout.places())?),
                ("loop devices", loop_devices(&layout.slots())?),
                ("runsc state files", runsc.iter().filter_map(|name| container_in(name)).collect()),
            ];
            let (images, volumes) = (names(&layout.volumes())?, below(&layout.volume_mounts()));
            inventory.named = vec![
                ("volumes in sandboxes", attached, below(&layout.attached())),
                ("loop devices of volumes", volumes.clone(), loop_devices(&layout.volumes())?),
                ("volumes", volumes.intersection(&images).cloned().collect(), volumes),
            ];
            let unfinished = names(&layout.images())?.into_iter();
            let unfinished = unfinished.filter(|name| name.starts_with(UNFINISHED)).collect();
            inventory.refuse = vec![
                ("unfinished imports", unfinished),
                ("ends that nobody took", names(&layout.ended())?),
            ];
            // One connection binds the two, and the keeper also listens.
            if let Some(keeper) = keeper {
                let held = channels(keeper)?.saturating_sub(2);
                inventory.counts.push(("channels of the keeper", held));
            }
            if let Some(process) = process {
                let held = channels(process)?.saturating_sub(1);
                inventory.counts.push(("channels of the appliance", held));
            }
            Ok(())
        };
        look(&mut inventory).map_err(at(config.state.clone()))?;
        Ok(inventory)
    }

    /// Kind by kind: what there should be, what is there, and the difference.
    pub fn compare(&self, told: &Told) -> Vec<Row> {
        let containers: BTreeSet<_> = self.slots.keys().cloned().collect();
        let live: BTreeSet<_> = told.live.iter().map(SandboxId::label).collect();
        let claimed: BTreeSet<_> = self.slots.values().flatten().map(SandboxId::label).collect();
        let pooled = self.slots.iter().filter(|(_, claim)| claim.is_none());
        let pooled: BTreeSet<_> = pooled.map(|(id, _)| id.clone()).collect();
        let mut rows = vec![
            Row::of_names("sandboxes", &live, &claimed),
            Row::of_count("pool members", told.pooled, &pooled),
        ];
        let of_containers = self.of_containers.iter();
        rows.extend(of_containers.map(|(kind, found)| Row::of_names(kind, &containers, found)));
        let named = self.named.iter();
        rows.extend(named.map(|(kind, expected, found)| Row::of_names(kind, expected, found)));
        rows.extend(self.compare_network());
        rows.extend(self.refuse.iter().map(|(kind, found)| Row::of_count(kind, 0, found)));
        rows.extend(self.counts.iter().map(|(kind, found)| {
            let expected = containers.len();
            let difference = |more: usize, less: usize| match more.saturating_sub(less) {
                0 => BTreeSet::new(),
                count => BTreeSet::from([format!("{count} of them")]),
            };
            Row {
                kind,
                expected,
                found: *found,
                extra: difference(*found, expected),
                missing: difference(expected, *found),
            }
        }));
        rows
    }

    /// Those of slots, and those that are ready: each of these has all of its parts.
    fn compare_network(&self) -> Vec<Row> {
        let kinds = self.network.kinds();
        let mut whole = kinds.map(|(_, numbers)| numbers.clone()).into_iter();
        let first = whole.next().unwrap_or_default();
        let whole = whole.fold(first, |all, numbers| &all & &numbers);
        let spare: BTreeSet<_> = whole.difference(&self.leased).copied().collect();
        let spare = if spare.len() > network::READY { BTreeSet::new() } else { spare };
        let named = |numbers: &BTreeSet<u32>| numbers.iter().map(u32::to_string).collect();
        let expected: BTreeSet<String> = named(&(&self.leased | &spare));
        kinds.map(|(kind, numbers)| Row::of_names(kind, &expected, &named(numbers))).into()
    }
}

/// Those in a container's group, and those that carry its name and are in none.
fn processes(
    layout: &Layout,
    cgroups: &Cgroups,
    groups: &BTreeSet<String>,
) -> io::Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for group in groups {
        if !cgroups.group(group).processes()?.is_empty() {
            found.insert(group.clone());
        }
    }
    let root = layout.runsc_root().to_string_lossy().into_owned();
    for pid in names(Path::new("/proc"))?.iter().filter(|name| is_number(name)) {
        // One that ends meanwhile has no command line.
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        if line.contains(&root) {
            found.extend(container_in(&line));
        }
    }
    Ok(found)
}

/// A command that the keeper starts is in its group at first, and numbers are reused, so that it
/// may have a lower one.
fn eldest(marks: impl Iterator<Item = ProcessMark>) -> Option<i32> {
    marks.min_by_key(|mark| mark.started).map(|mark| mark.pid)
}

fn is_number(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_digit())
}

fn container_in(text: &str) -> Option<String> {
    let mut words = text.split(|c: char| !c.is_ascii_alphanumeric());
    words.find_map(|word| word.parse::<ContainerId>().ok()).map(|id| id.to_string())
}

/// By the folder in which the file behind each lies.
fn loop_devices(slots: &Path) -> io::Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for block in names(Path::new("/sys/block"))? {
        let file = Path::new("/sys/block").join(block).join("loop/backing_file");
        let Ok(backing) = fs::read_to_string(file) else { continue };
        if let Ok(below) = Path::new(backing.trim()).strip_prefix(slots)
            && let Some(container) = below.components().next()
        {
            found.insert(container.as_os_str().to_string_lossy().into_owned());
        }
    }
    Ok(found)
}

/// How many sockets of the channels' type a process holds, each counted once.
fn channels(pid: i32) -> io::Result<usize> {
    const SEQUENCED_PACKETS: &str = "0005";
    let table = fs::read_to_string(format!("/proc/{pid}/net/unix"))?;
    let sockets: BTreeSet<String> = table
        .lines()
        .filter_map(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            let inode = fields.get(6)?;
            (*fields.get(4)? == SEQUENCED_PACKETS).then(|| format!("socket:[{inode}]"))
        })
        .collect();
    let mut held = BTreeSet::new();
    let folder = PathBuf::from(format!("/proc/{pid}/fd"));
    for descriptor in names(&folder)? {
        // One that is closed meanwhile leads nowhere.
        let Ok(target) = fs::read_link(folder.join(descriptor)) else { continue };
        let target = target.to_string_lossy().into_owned();
        if sockets.contains(&target) {
            held.insert(target);
        }
    }
    Ok(held.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "c0000000000000001";
    const TWO: &str = "c0000000000000002";

    fn id(n: u8) -> SandboxId {
        format!("sbx_loc_{n:020}").parse().unwrap()
    }

    fn set<T: Ord + Clone>(items: &[T]) -> BTreeSet<T> {
        items.iter().cloned().collect()
    }

    fn names(items: &[&str]) -> BTreeSet<String> {
        items.iter().map(|&item| item.to_owned()).collect()
    }

    /// One sandbox and one pool member, with networks 2 and 3; 4 is ready.
    fn even() -> (Inventory, Told) {
        let inventory = Inventory {
            slots: [(ONE.to_owned(), Some(id(1))), (TWO.to_owned(), None)].into(),
            leased: set(&[2, 3]),
            of_containers: vec![("mounts", names(&[ONE, TWO]))],
            named: vec![("volumes", names(&["a"]), names(&["a"]))],
            network: Census {
                namespaces: set(&[2, 3, 4]),
                links: set(&[2, 3, 4]),
                chains: set(&[2, 3, 4]),
                elements: set(&[2, 3, 4]),
            },
            refuse: vec![("unfinished imports", BTreeSet::new())],
            counts: vec![("channels", 2)],
            keeper: None,
        };
        (inventory, Told { live: set(&[id(1)]), pooled: 1 })
    }

    fn uneven(inventory: &Inventory, told: &Told) -> Vec<(&'static str, String, String)> {
        let joined = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(" ");
        let rows = inventory.compare(told).into_iter().filter(|row| !row.is_even());
        rows.map(|row| (row.kind, joined(&row.extra), joined(&row.missing))).collect()
    }

    #[test]
    fn the_keeper_is_not_whoever_has_the_lowest_number() {
        let mark = |pid, started| ProcessMark { pid, started };
        assert_eq!(eldest([mark(40, 900), mark(30_000, 100)].into_iter()), Some(30_000));
    }

    #[test]
    fn what_is_owned_is_no_leak() {
        let (inventory, told) = even();
        assert_eq!(uneven(&inventory, &told), []);
    }

    type Change = fn(&mut Inventory, &mut Told);

    #[test]
    fn table() {
        let cases: [(Change, &str, &str, &str); 11] = [
            (
                |it, _| it.of_containers[0].1.insert("old".into()).then_some(()).unwrap(),
                "mounts",
                "old",
                "",
            ),
            (|it, _| it.of_containers[0].1.remove(ONE).then_some(()).unwrap(), "mounts", "", ONE),
            (|_, told| told.live.clear(), "sandboxes", "sbx-loc-00000000000000000001", ""),
            (
                |_, told| told.live = set(&[id(1), id(2)]),
                "sandboxes",
                "",
                "sbx-loc-00000000000000000002",
            ),
            (|_, told| told.pooled = 0, "pool members", TWO, ""),
            (|_, told| told.pooled = 2, "pool members", "", "1 of them"),
            (|it, _| it.network.chains = set(&[2, 3, 4, 9]), "nft chains", "9", ""),
            (|it, _| it.named[0].2 = names(&["a", "b"]), "volumes", "b", ""),
            (|it, _| it.named[0].1 = names(&["a", "b"]), "volumes", "", "b"),
            (|it, _| it.refuse[0].1 = names(&["x"]), "unfinished imports", "x", ""),
            (|it, _| it.counts[0].1 = 5, "channels", "3 of them", ""),
        ];
        for (change, kind, extra, missing) in cases {
            let (mut inventory, mut told) = even();
            change(&mut inventory, &mut told);
            let expected = [(kind, extra.to_owned(), missing.to_owned())];
            assert_eq!(uneven(&inventory, &told), expected);
        }
    }

    #[test]
    fn more_networks_than_are_kept_ready_are_all_named() {
        let (mut inventory, told) = even();
        let many: BTreeSet<u32> = (2..5 + u32::try_from(network::READY).unwrap()).collect();
        inventory.network = Census {
            namespaces: many.clone(),
            links: many.clone(),
            chains: many.clone(),
            elements: many,
        };
        let found = uneven(&inventory, &told);
        assert_eq!(found.len(), 4, "{found:?}");
        assert_eq!(found[0].0, "network namespaces");
    }
}
