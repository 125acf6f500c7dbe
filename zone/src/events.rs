//! What the zone tells: one ledger of who lives and who has ended, and those who listen.
//!
//! An end is written down before it is told, and kept until it is acknowledged, so that an
//! appliance that was away learns of it whenever it comes back.

use std::{collections::BTreeMap, fs, io, path::PathBuf};

use parking_lot::Mutex;
use sandboxo_crashpoint::{Point, crashpoint};
use sandboxo_zone_protocol::{
    Capacity, Checkpoint, Ended, Paused, SandboxId, Timestamp, ZoneEvent, ZoneReport, ZoneSandbox,
};
use tokio::sync::mpsc;

use crate::slot::write_whole;

/// A listener that is further behind is closed, and subscribes again.
const BACKLOG: usize = 1024;

pub(crate) struct Ledger {
    folder: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    live: BTreeMap<SandboxId, ZoneSandbox>,
    ended: BTreeMap<SandboxId, Ended>,
    listeners: Vec<mpsc::Sender<ZoneEvent>>,
}

impl State {
    fn tell(&mut self, event: &ZoneEvent) {
        self.listeners.retain(|listener| listener.try_send(event.clone()).is_ok());
    }
}

impl Ledger {
    /// Reads the ends that nobody has acknowledged.
    pub(crate) fn open(folder: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&folder)?;
        let mut state = State::default();
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                // On its way when the process died.
                fs::remove_file(&path)?;
                continue;
            }
            match serde_json::from_slice::<Ended>(&fs::read(&path)?) {
                Ok(ended) => {
                    state.ended.insert(ended.id, ended);
                }
                // Cut off by a crash of the host; what it was about is in no hello either, and
                // the appliance records that.
                Err(error) => {
                    tracing::warn!(%error, path = %path.display(), "an unreadable end");
                    fs::remove_file(&path)?;
                }
            }
        }
        Ok(Self { folder, state: Mutex::new(state) })
    }

    pub(crate) fn started(&self, sandbox: ZoneSandbox) {
        self.state.lock().live.insert(sandbox.id, sandbox);
    }

    pub(crate) fn set_deadline(&self, id: SandboxId, deadline: Timestamp) {
        if let Some(sandbox) = self.state.lock().live.get_mut(&id) {
            sandbox.deadline = deadline;
        }
    }

    /// For the next process, should this one not come to tell it.
    pub(crate) fn write_down(&self, ended: &Ended) {
        let written = serde_json::to_vec(ended)
            .map_err(io::Error::from)
            .and_then(|bytes| write_whole(&self.path(ended.id), &bytes));
        if let Err(error) = written {
            // It is still told; only a restart before the acknowledgement would lose the reason.
            tracing::error!(
                sandbox.id = %ended.id,
                error = &error as &dyn std::error::Error,
                "write down an end"
            );
        }
    }

    /// Tells what was written down.
    pub(crate) fn ended(&self, ended: Ended) {
        tracing::info!(sandbox.id = %ended.id, reason = ?ended.reason, "sandbox ended");
        let mut state = self.state.lock();
        state.live.remove(&ended.id);
        state.ended.insert(ended.id, ended.clone());
        state.tell(&ZoneEvent::SandboxEnded(ended));
    }

    /// In no hello it is both running and paused, or neither: `publish` puts the checkpoint on the
    /// list of those that are there.
    pub(crate) fn paused(&self, checkpoint: Checkpoint, publish: impl FnOnce()) {
        let id = checkpoint.sandbox;
        tracing::info!(sandbox.id = %id, checkpoint = %checkpoint.id, "sandbox paused");
        let mut state = self.state.lock();
        publish();
        state.live.remove(&id);
        state.tell(&ZoneEvent::SandboxPaused(Paused { id, checkpoint }));
    }

    pub(crate) fn has_ended(&self, id: SandboxId) -> bool {
        self.state.lock().ended.contains_key(&id)
    }

    pub(crate) fn acknowledge(&self, ids: &[SandboxId]) -> io::Result<()> {
        for id in ids {
            match fs::remove_file(self.path(*id)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            self.state.lock().ended.remove(id);
            crashpoint(Point::EndAcknowledged);
        }
        Ok(())
    }

    /// Nothing happens between the hello and the first event after it.
    pub(crate) fn subscribe(
        &self,
        boot_id: String,
        capacity: Capacity,
        checkpoints: impl FnOnce() -> Vec<Checkpoint>,
    ) -> mpsc::Receiver<ZoneEvent> {
        let (sender, receiver) = mpsc::channel(BACKLOG);
        let mut state = self.state.lock();
        let report = ZoneReport {
            boot_id,
            capacity,
            sandboxes: state.live.values().copied().collect(),
            ended: state.ended.values().cloned().collect(),
            checkpoints: checkpoints(),
        };
        if sender.try_send(ZoneEvent::Hello(report)).is_ok() {
            state.listeners.push(sender);
        }
        receiver
    }

    pub(crate) fn ping(&self, capacity: Capacity) {
        self.state.lock().tell(&ZoneEvent::Ping(capacity));
    }

    fn path(&self, id: SandboxId) -> PathBuf {
        self.folder.join(format!("{}.json", id.label()))
    }
}

#[cfg(test)]
mod tests {
    use sandboxo_zone_protocol::{EndReason, Region, SystemRandom, ZoneCode};

    use super::*;

    fn sandbox() -> ZoneSandbox {
        let region: Region = "loc".parse().unwrap();
        let code = ZoneCode::random(&SystemRandom);
        let id = SandboxId::random(region, code, &SystemRandom);
        ZoneSandbox { id, started_at: Timestamp::UNIX_EPOCH, deadline: Timestamp::UNIX_EPOCH }
    }

    fn end_of(sandbox: &ZoneSandbox) -> Ended {
        Ended { id: sandbox.id, at: Timestamp::UNIX_EPOCH, reason: EndReason::Crashed }
    }

    async fn hello(ledger: &Ledger) -> ZoneReport {
        match ledger.subscribe("boot".into(), Capacity::default(), Vec::new).recv().await {
            Some(ZoneEvent::Hello(report)) => report,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn ends_are_kept_over_restarts_until_acknowledged() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(folder.path().join("ended")).unwrap();
        let (one, two) = (sandbox(), sandbox());
        ledger.started(one);
        ledger.started(two);
        let mut events = ledger.subscribe("boot".into(), Capacity::default(), Vec::new);
        ledger.write_down(&end_of(&one));
        ledger.ended(end_of(&one));
        assert!(matches!(events.recv().await, Some(ZoneEvent::Hello(_))));
        assert_eq!(events.recv().await, Some(ZoneEvent::SandboxEnded(end_of(&one))));
        let report = hello(&ledger).await;
        assert_eq!((report.sandboxes, report.ended), (vec![two], vec![end_of(&one)]));

        let ledger = Ledger::open(folder.path().join("ended")).unwrap();
        assert_eq!(hello(&ledger).await.ended, vec![end_of(&one)]);
        assert!(ledger.has_ended(one.id));
        ledger.acknowledge(&[one.id, one.id]).unwrap();
        assert!(!ledger.has_ended(one.id));
        std::fs::write(folder.path().join("ended/half.new"), "{").unwrap();
        let ledger = Ledger::open(folder.path().join("ended")).unwrap();
        assert!(hello(&ledger).await.ended.is_empty());
        assert_eq!(fs::read_dir(folder.path().join("ended")).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_listener_that_falls_behind_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(folder.path().to_owned()).unwrap();
        let mut slow = ledger.subscribe("boot".into(), Capacity::default(), Vec::new);
        for _ in 0..=BACKLOG {
            ledger.ping(Capacity::default());
        }
        let mut received = 0;
        while slow.recv().await.is_some() {
            received += 1;
        }
        assert_eq!(received, BACKLOG);
    }
}
