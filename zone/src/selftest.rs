//! One sandbox at every start, to know that this host can run sandboxes before anybody asks.
//!
//! Its root file system holds nothing but the places that the agent's mounts need, so what fails
//! is the host's or the runtime's fault and not an image's.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use sandboxo_zone_protocol::{ImportError, NetworkMode, Platform, Resources, Shape};

use crate::{
    bringup::{BringUpError, bring_up},
    cgroup::Weight,
    host::Host,
};

const CLEAN_WITHIN: Duration = Duration::from_secs(5);
const RESOURCES: Resources = Resources { vcpus: 1, memory_mib: 128, disk_mib: 16, pids: 64 };

#[derive(Debug, thiserror::Error)]
pub enum SelfTestError {
    #[error("make the image of the self-test")]
    Image(#[from] ImportError),
    #[error("start the sandbox of the self-test; runsc's log, if it got so far, is {}", log.display())]
    Start { log: PathBuf, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("ask the agent of the self-test's sandbox")]
    Agent(#[source] Box<dyn std::error::Error + Send + Sync>),
}

pub(crate) async fn run(host: &Arc<Host>) -> Result<(), SelfTestError> {
    let tar = empty_root().map_err(ImportError::Read)?;
    let image = host.images.import(Box::new(io::Cursor::new(tar)), &*host.random).await?.image;
    let shape = Shape {
        image: image.digest,
        resources: RESOURCES,
        platform: Platform::Ptrace,
        mode: NetworkMode::Full,
    };
    let started = bring_up(host, shape, Weight::Normal, &host.tasks.stop()).await;
    let connected = started.map_err(|error: BringUpError| SelfTestError::Start {
        log: host.layout.failed_start_log(),
        source: error.into(),
    })?;
    let answered = connected.ping().await;
    connected.finish().await;
    host.janitor.settle(CLEAN_WITHIN).await;
    answered.map_err(|error| SelfTestError::Agent(error.into()))
}

/// The same bytes each time, so that it is one image.
fn empty_root() -> io::Result<Vec<u8>> {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Directory);
    header.set_path("./")?;
    header.set_mode(0o755);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(0);
    header.set_cksum();
    let mut archive = tar::Builder::new(Vec::new());
    archive.append(&header, io::empty())?;
    archive.into_inner()
}
