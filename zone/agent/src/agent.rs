//! The parts of the agent, and whose sandbox it is.

use std::{io, path::Path, sync::Arc, time::Duration};

use nix::sys::signal::Signal;
use parking_lot::Mutex;
use sandboxo_channel::{Claim, Response};
use sandboxo_tasks::Tasks;

use crate::{
    account,
    filesystem::{FilesystemService, Watchers},
    guest,
    identity::Identity,
    metrics::Meter,
    process::{ProcessService, Reaper},
    server::Tidy,
    trust,
    users::Directory,
    volumes::Volumes,
};

const ROOT: &str = "/";
const ETC: &str = "/etc";
/// For a process to end by itself, as when a machine is switched off.
const GENTLE: Duration = Duration::from_millis(300);
const DYING: Duration = Duration::from_secs(5);

pub(crate) struct Agent {
    identity: Mutex<Option<Arc<Identity>>>,
    pub(crate) reaper: Arc<Reaper>,
    pub(crate) processes: Arc<ProcessService>,
    pub(crate) filesystem: Arc<FilesystemService>,
    pub(crate) watchers: Arc<Watchers>,
    pub(crate) meter: Meter,
    pub(crate) tidy: Arc<Tidy>,
    pub(crate) volumes: Volumes,
}

impl Agent {
    pub(crate) fn start(path: String, tasks: &Tasks) -> io::Result<Arc<Self>> {
        let reaper = Arc::new(Reaper::default());
        let deaths = Reaper::listen()?;
        let same = reaper.clone();
        tasks.spawn_critical("reaper", |stop| same.run(deaths, stop));
        let watchers = Arc::new(Watchers::new(tasks.clone()));
        Ok(Arc::new(Self {
            identity: Mutex::new(None),
            processes: Arc::new(ProcessService::new(reaper.clone(), path, tasks.clone())?),
            reaper,
            filesystem: Arc::new(FilesystemService::new(watchers.clone())),
            watchers,
            meter: Meter::default(),
            tidy: Arc::default(),
            volumes: Volumes::default(),
        }))
    }

    /// `None`: nobody's yet, and nothing is served.
    pub(crate) fn identity(&self) -> Option<Arc<Identity>> {
        self.identity.lock().clone()
    }

    /// Once. A second one of the same sandbox changes nothing.
    pub(crate) fn claim(&self, claim: Claim) -> Response {
        let mut identity = self.identity.lock();
        match &*identity {
            Some(known) if known.sandbox_id == claim.sandbox_id => Response::Claimed,
            Some(_) => Response::Refused("the sandbox is another's".to_owned()),
            None => {
                guest::take_name(&claim);
                guest::limit_processes(claim.pids);
                *identity = Some(Arc::new(Identity::new(claim, Directory::new(ETC))));
                Response::Claimed
            }
        }
    }

    /// It goes on as somebody's, maybe another's than before.
    pub(crate) fn go_on_as(&self, claim: &Claim) {
        guest::take_name(claim);
        *self.identity.lock() = Some(Arc::new(Identity::new(claim.clone(), Directory::new(ETC))));
    }

    /// As after a boot, of a sandbox that had been running.
    pub(crate) async fn reboot(&self) -> io::Result<()> {
        self.end_processes().await?;
        guest::forget_memory();
        Ok(())
    }

    /// All but the agent.
    pub(crate) async fn end_processes(&self) -> io::Result<()> {
        let own = std::process::id();
        if own != 1 {
            self.processes.kill_all();
            return Ok(());
        }
        guest::end_all(Signal::SIGTERM);
        if guest::others_are_gone(GENTLE).await? {
            return Ok(());
        }
        guest::end_all(Signal::SIGKILL);
        if guest::others_are_gone(DYING).await? {
            Ok(())
        } else {
            Err(io::Error::other("some processes do not end"))
        }
    }

    /// What the claimed sandbox's own files must say.
    pub(crate) fn settle(&self, claim: &Claim) -> io::Result<()> {
        let named = guest::write_names(Path::new(ETC), claim);
        // As any other process it runs on somebody's host, whose files are not its to change.
        if std::process::id() != 1 {
            return named;
        }
        let believed = claim.authority.as_ref().map_or(Ok(()), |it| Self::believe(it));
        let is_known = |who: Arc<Identity>| {
            account::NAMES.iter().all(|name| who.find_user(Some(name)).is_ok())
        };
        if self.identity().is_none_or(is_known) {
            return named.and(believed);
        }
        account::make(Path::new(ROOT)).and(named).and(believed)
    }

    pub(crate) fn believe(authority: &str) -> io::Result<()> {
        // As above.
        if std::process::id() == 1 { trust::believe(Path::new(ROOT), authority) } else { Ok(()) }
    }
}
