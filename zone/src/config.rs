//! What a zone is told at its start, and where it keeps things.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use ipnet::Ipv4Net;
use sandboxo_registry::Registry;
use sandboxo_zone_protocol::{ImageDigest, Region, ZoneName};

use crate::slot::ContainerId;

#[derive(Debug, Clone)]
pub struct ZoneConfig {
    pub name: ZoneName,
    pub region: Region,
    /// The zone's own folder: images, disks, records. Survives a restart of the host.
    pub state: PathBuf,
    /// Sockets and mount points; a short path, since socket names end at 107 bytes.
    pub run: PathBuf,
    /// Names everything this zone makes on the host; six hex digits.
    pub instance: String,
    pub runsc: PathBuf,
    pub agent: PathBuf,
    /// The program that answers to `keeper --socket …`.
    pub keeper: PathBuf,
    /// Tells that program from others: a keeper of another build becomes this one.
    pub build: String,
    /// Sandboxes that wait for somebody, in all; kinds share them by how much they were asked for
    /// lately. 0 turns the pool off.
    pub warm: u32,
    /// Sandboxes that runsc has made and not started, for checkpoints to be restored into. There
    /// are none while there is no checkpoint.
    pub blanks: u32,
    pub limits: Limits,
    /// Registries that may be in the host's own network.
    pub registries: Vec<Registry>,
    /// What an image of a registry may hold, packed and unpacked. 0: none are pulled.
    pub pull_max_mib: u64,
    /// How long an image stays that no template has.
    pub image_grace: Duration,
    /// Where the zone's DNS forwarder asks; none: what the host uses.
    pub resolvers: Vec<SocketAddr>,
    /// Where sandboxes' own proxies may be beside the public internet.
    pub proxy_networks: Vec<Ipv4Net>,
    /// How long nobody uses a sandbox, and it is not at work, before it is frozen. `None`: never.
    pub freeze_after: Option<Duration>,
    /// From a create's start until its agent answers.
    pub start_timeout: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub sandboxes: u32,
    /// Stays free on the host, whatever is asked for.
    pub memory_reserve_mib: u64,
    /// How many times the host's memory may be promised in sum.
    pub memory_overcommit: u64,
    /// Stays free in the state folder's file system.
    pub disk_reserve_mib: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sandboxes: 200,
            memory_reserve_mib: 512,
            memory_overcommit: 4,
            disk_reserve_mib: 1024,
        }
    }
}

/// The paths, all in one place.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    state: PathBuf,
    run: PathBuf,
}

impl Layout {
    pub(crate) fn new(config: &ZoneConfig) -> Self {
        Self { state: config.state.clone(), run: config.run.clone() }
    }

    pub(crate) fn state(&self) -> &Path {
        &self.state
    }

    pub(crate) fn images(&self) -> PathBuf {
        self.state.join("images")
    }

    pub(crate) fn rootfs(&self, image: ImageDigest) -> PathBuf {
        self.images().join(image.to_string()).join("rootfs")
    }

    pub(crate) fn checkpoints(&self) -> PathBuf {
        self.state.join("checkpoints")
    }

    pub(crate) fn programs(&self) -> PathBuf {
        self.state.join("programs")
    }

    /// Empty file systems, one for each size, copied for each sandbox.
    pub(crate) fn disk_templates(&self) -> PathBuf {
        self.state.join("disk-templates")
    }

    /// One for each size of memory, for runsc to read.
    pub(crate) fn meminfo(&self, memory_mib: u32) -> PathBuf {
        self.state.join("meminfo").join(memory_mib.to_string())
    }

    pub(crate) fn slots(&self) -> PathBuf {
        self.state.join("slots")
    }

    pub(crate) fn slot(&self, container: ContainerId) -> SlotPaths {
        let folder = self.slots().join(container.to_string());
        let name = container.to_string();
        SlotPaths {
            mount: self.mounts().join(&name),
            places: self.places().join(&name),
            attached: self.attached().join(&name),
            folder,
        }
    }

    pub(crate) fn ended(&self) -> PathBuf {
        self.state.join("ended")
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.state.join("logs")
    }

    /// What runsc said in the last start that failed.
    pub(crate) fn failed_start_log(&self) -> PathBuf {
        self.logs().join("failed-start.log")
    }

    pub(crate) fn run(&self) -> &Path {
        &self.run
    }

    pub(crate) fn mounts(&self) -> PathBuf {
        self.run.join("m")
    }

    /// The authority of this zone, with its key.
    pub(crate) fn authority(&self) -> PathBuf {
        self.state.join("authority.pem")
    }

    /// The images of volumes, by their ids.
    pub(crate) fn volumes(&self) -> PathBuf {
        self.state.join("volumes")
    }

    pub(crate) fn volume_mounts(&self) -> PathBuf {
        self.run.join("v")
    }

    /// Where volumes are attached to sandboxes, as the zone sees it.
    pub(crate) fn places(&self) -> PathBuf {
        self.run.join("p")
    }

    /// And as sandboxes do.
    pub(crate) fn attached(&self) -> PathBuf {
        self.run.join("a")
    }

    pub(crate) fn runsc_root(&self) -> PathBuf {
        self.run.join("r")
    }

    pub(crate) fn keeper_socket(&self) -> PathBuf {
        self.run.join("keeper.sock")
    }

    pub(crate) fn keeper_log(&self) -> PathBuf {
        self.logs().join("keeper.log")
    }
}

/// The files of one container.
#[derive(Debug, Clone)]
pub(crate) struct SlotPaths {
    /// Also the OCI bundle.
    pub(crate) folder: PathBuf,
    /// Where its disk is mounted.
    pub(crate) mount: PathBuf,
    /// A folder for each volume.
    pub(crate) places: PathBuf,
    /// The same as it sees it, with volumes.
    pub(crate) attached: PathBuf,
}

impl SlotPaths {
    pub(crate) fn record(&self) -> PathBuf {
        self.folder.join("slot.json")
    }

    pub(crate) fn bundle_config(&self) -> PathBuf {
        self.folder.join("config.json")
    }

    pub(crate) fn boot_id(&self) -> PathBuf {
        self.folder.join("boot_id")
    }

    pub(crate) fn disk_image(&self) -> PathBuf {
        self.folder.join("disk.img")
    }

    pub(crate) fn pid_file(&self) -> PathBuf {
        self.folder.join("pid")
    }

    /// Of the call that saves it.
    pub(crate) fn checkpoint_log(&self) -> PathBuf {
        self.folder.join("checkpoint.log")
    }

    pub(crate) fn runsc_log(&self) -> PathBuf {
        self.folder.join("runsc.log")
    }

    pub(crate) fn panic_log(&self) -> PathBuf {
        self.folder.join("panic.log")
    }

    /// Guests reach it through the agent's descriptors, so it lies on their own disk, where it
    /// counts against their limit.
    pub(crate) fn output(&self) -> PathBuf {
        self.mount.join("output.log")
    }
}
