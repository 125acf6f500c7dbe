//! Saving one: a pause, and a snapshot after which it goes on.
//!
//! Until runsc is called everything can be taken back, so all that can be checked is checked
//! before. From then on the sandbox ends, whatever comes of it.

use std::time::Duration;

use sandboxo_crashpoint::{Point, crashpoint};
use sandboxo_tasks::Stop;
use sandboxo_zone_protocol::{
    CheckpointId, EndReason, Kept, PAUSE_AGAIN, PauseError, Refused, SandboxId, Shape,
    pause_overdue,
};
use tokio::time::{Instant, timeout};

use super::{Life, Living, Over, PauseReply, Shared, Task, answer_pause};
use crate::{
    bringup::{Blank, BringUpError, Restore, bring_back, make_blank},
    cgroup::Weight,
    checkpoint::{Description, NoRoom, Room, VolumeFile},
    disk,
    fault::is_full,
    keeper::{CallError, Launch, Stdin},
    process::kill_now,
    runsc::Runsc,
    slot::ProgramsRecord,
};

/// A large sandbox on a slow disk. Its caller has given up by then.
const SAVE_TIMEOUT: Duration = Duration::from_secs(80);
/// From the end of runsc's call to that of the sandbox.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

pub(super) enum Failed {
    /// It goes on as if nobody had asked.
    Refused(PauseError),
    Ended(EndReason),
    /// Whatever comes of it, the next zone finds it.
    ZoneStops,
}

/// How runsc's call ended.
enum Called {
    Saved,
    Failed(BringUpError),
    /// Nobody came to say it. What it wrote does, if its sandbox ends within this time.
    Unknown(BringUpError, Duration),
}

impl Failed {
    pub(super) fn internal(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Refused(PauseError::Internal(Box::new(error)))
    }
}

/// A sandbox past its deadline that could not be paused.
#[derive(Default)]
pub(super) struct Overdue {
    /// The first and the last time.
    refused: Option<(Instant, Instant)>,
}

impl Overdue {
    /// How long to sleep, when so much time is left by the clock.
    pub(super) fn wait(&mut self, left: Duration) -> Duration {
        if !left.is_zero() {
            // It was given more time.
            *self = Self::default();
        }
        self.refused.map_or(left, |(_, last)| PAUSE_AGAIN.saturating_sub(last.elapsed()))
    }

    pub(super) fn pause(&self, wanted: Kept) -> Option<Kept> {
        let ago = |(first, last): (Instant, Instant)| Refused {
            first: first.elapsed(),
            last: last.elapsed(),
        };
        pause_overdue(wanted, self.refused.map(ago))
    }

    pub(super) fn refused(&mut self) {
        let now = Instant::now();
        self.refused = Some((self.refused.map_or(now, |(first, _)| first), now));
    }
}

impl Task {
    fn cut_off(&self) -> Failed {
        if self.kill.asked.is_cancelled() {
            Failed::Ended(EndReason::Killed)
        } else {
            Failed::ZoneStops
        }
    }

    /// Saves it, after which it is gone.
    pub(super) async fn checkpoint(
        &mut self,
        living: &mut Living,
        kept: Kept,
        is_pause: bool,
    ) -> Result<Description, Failed> {
        let host = self.shared.host.clone();
        let _use = living.freezer.enter();
        self.under_way = host.checkpoints.enter();
        if self.under_way.is_none() {
            return Err(Failed::Refused(PauseError::Busy));
        }
        let runsc = living.connected.holdings.runsc().map_err(Failed::internal)?;
        // Those of a snapshot are needed by the sandbox that goes on.
        let end_processes = is_pause && kept == Kept::Files;
        let bytes = living.to_be_saved(end_processes).map_err(Failed::internal)?;
        let free_mib = disk::free_mib(host.layout.state()).map_err(Failed::internal)?;
        let free_mib = free_mib.saturating_sub(host.limits.disk_reserve_mib);
        let room =
            host.checkpoints.room(bytes, free_mib).map_err(|NoRoom { needed_mib, free_mib }| {
                Failed::Refused(PauseError::DiskFull { needed_mib, free_mib })
            })?;
        let _one_of_few = tokio::select! {
            turn = timeout(SAVE_TIMEOUT, host.starts.acquire()) => match turn {
                Ok(turn) => turn,
                Err(_late) => return Err(Failed::Refused(PauseError::Busy)),
            },
            () = self.kill.either.cancelled() => return Err(self.cut_off()),
        };
        if let Err(error) = living.connected.quiesce(end_processes).await {
            tracing::warn!(
                sandbox.id = %self.id,
                error = &error as &dyn std::error::Error,
                "its agent does not get ready for a checkpoint"
            );
            living.connected.go_on().await;
            return Err(Failed::Refused(PauseError::AgentUnresponsive));
        }
        let saved = match self.hold(living).await {
            Ok(open_files) => self.save(living, &runsc, &room, kept, is_pause, open_files).await,
            Err(why) => Err(why),
        };
        if let Err(Failed::Refused(_)) = &saved {
            if living.connected.holdings.slot.held {
                self.let_go(living).await;
            }
            living.connected.go_on().await;
        }
        saved
    }

    async fn let_go(&self, living: &mut Living) {
        if let Err(error) = living.connected.holdings.let_go().await {
            let error = &error as &dyn std::error::Error;
            tracing::error!(sandbox.id = %self.id, error, "a sandbox is not let go on");
        }
    }

    async fn save(
        &self,
        living: &mut Living,
        runsc: &Runsc,
        room: &Room<'_>,
        kept: Kept,
        is_pause: bool,
        open_files: Vec<VolumeFile>,
    ) -> Result<Description, Failed> {
        let host = self.shared.host.clone();
        let holdings = &mut living.connected.holdings;
        let paths = holdings.paths.clone();
        let id = CheckpointId::random(&*host.random);
        let needed_mib = room.mib();
        let refused = |error: std::io::Error| {
            host.checkpoints.give_up(id);
            if is_full(&error) {
                let free_mib = disk::free_mib(host.layout.state()).unwrap_or(0);
                return Failed::Refused(PauseError::DiskFull { needed_mib, free_mib });
            }
            Failed::internal(error)
        };
        let description = Description {
            format: Description::FORMAT,
            id,
            sandbox: self.id,
            is_pause,
            kept,
            at: host.clock.now(),
            size_bytes: 0,
            shape: holdings.slot.shape,
            boot_id: std::fs::read_to_string(paths.boot_id()).map_err(refused)?,
            programs: holdings.programs(),
            open_files,
        };
        let image = host.checkpoints.begin(&description).map_err(refused)?;
        crashpoint(Point::CheckpointBegun);
        holdings.record(|slot| slot.saving = Some(id)).map_err(refused)?;
        crashpoint(Point::CheckpointMarked);
        let container = holdings.slot.container;
        let launch = Launch {
            label: container.to_string(),
            meta: String::new(),
            program: runsc.path().to_owned(),
            args: runsc.checkpoint_arguments(container, &paths.checkpoint_log(), &image),
            env: vec![("PATH".into(), "/usr/sbin:/usr/bin:/sbin:/bin".into())],
            stdin: Stdin::Null,
            log: paths.checkpoint_log(),
            cgroups: Vec::new(),
            netns: None,
            oom_score_adj: None,
            binds: Vec::new(),
            processors: Vec::new(),
        };
        let mut called = match host.keeper.spawn(launch).await {
            Ok(spawned) => tokio::select! {
                status = timeout(SAVE_TIMEOUT, host.keeper.wait(spawned.pid)) => match status {
                    Ok(Ok(status)) if status.success() => Called::Saved,
                    Ok(Ok(status)) => Called::Failed(BringUpError::Runsc {
                        status,
                        said: holdings.checkpoint_said(),
                    }),
                    Ok(Err(lost)) => Called::Unknown(BringUpError::Wait(lost), SAVE_TIMEOUT),
                    Err(_late) => {
                        kill_now(spawned.pid);
                        let said = holdings.checkpoint_said();
                        Called::Unknown(BringUpError::TimedOut(SAVE_TIMEOUT, said), ENDS_WITHIN)
                    }
                },
                () = self.kill.either.cancelled() => {
                    let cut_off = self.cut_off();
                    if let Failed::Ended(_) = cut_off {
                        kill_now(spawned.pid);
                        host.checkpoints.give_up(id);
                    }
                    return Err(cut_off);
                }
            },
            Err(error @ (CallError::Lost | CallError::TimedOut)) => {
                Called::Unknown(BringUpError::Keeper(error), SAVE_TIMEOUT)
            }
            Err(error) => Called::Failed(BringUpError::Keeper(error)),
        };
        if living.connected.holdings.slot.held {
            match &called {
                // All is written; what stands still does not end by itself.
                Called::Saved => living.connected.process.kill(),
                // If it is to end of it, it does so now.
                Called::Failed(_) | Called::Unknown(..) => self.let_go(living).await,
            }
        }
        let ends_within = match &called {
            Called::Saved | Called::Failed(_) => ENDS_WITHIN,
            Called::Unknown(_, within) => *within,
        };
        let has_ended = tokio::select! {
            ended = timeout(ends_within, living.connected.process.ended()) => ended.is_ok(),
            () = self.kill.either.cancelled() => {
                let cut_off = self.cut_off();
                if let Failed::Ended(_) = cut_off {
                    host.checkpoints.give_up(id);
                }
                return Err(cut_off);
            }
        };
        crashpoint(Point::CheckpointSaved);
        if let Called::Unknown(error, _) = &called
            && has_ended
        {
            tracing::warn!(
                sandbox.id = %self.id,
                error = error as &dyn std::error::Error,
                "nobody said how a checkpoint ended"
            );
            called = Called::Saved;
        }
        match called {
            Called::Saved => {}
            Called::Failed(error) | Called::Unknown(error, _) => {
                host.checkpoints.give_up(id);
                if has_ended {
                    tracing::error!(
                        sandbox.id = %self.id,
                        error = &error as &dyn std::error::Error,
                        "a checkpoint failed, and its sandbox has ended of it"
                    );
                    return Err(Failed::Ended(EndReason::CheckpointFailed));
                }
                let forgotten = living.connected.holdings.record(|slot| slot.saving = None);
                return Err(match forgotten {
                    Ok(()) => Failed::internal(error),
                    Err(cause) => Failed::internal(cause),
                });
            }
        }
        let finishing = host.clone();
        let finished = tokio::task::spawn_blocking(move || finishing.checkpoints.finish(id)).await;
        match finished.unwrap_or_else(|panicked| Err(std::io::Error::other(panicked))) {
            Ok(description) => Ok(description),
            Err(error) => {
                tracing::error!(
                    sandbox.id = %self.id,
                    error = &error as &dyn std::error::Error,
                    "a checkpoint could not be kept"
                );
                host.checkpoints.give_up(id);
                Err(Failed::Ended(EndReason::CheckpointFailed))
            }
        }
    }

    /// It is told once a create of the same id finds what was saved, and nothing else.
    pub(super) async fn paused(
        &mut self,
        living: Living,
        description: Description,
        reply: Option<PauseReply>,
    ) {
        self.finish(living.connected).await;
        self.leave();
        let checkpoint = description.told();
        let checkpoints = &self.shared.host.checkpoints;
        self.shared.ledger.paused(checkpoint, || checkpoints.publish(description));
        self.shared.pool.look();
        crashpoint(Point::PauseTold);
        if let Some(reply) = reply {
            answer_pause(reply, Ok(checkpoint));
        }
    }

    /// Saved and started again from that, as the same sandbox. If it can't be, it is paused.
    pub(super) async fn snapshot(
        &mut self,
        living: &mut Living,
        kept: Kept,
        reply: PauseReply,
    ) -> Option<Over> {
        let holdings = &living.connected.holdings;
        let (shape, programs) = (holdings.slot.shape, holdings.programs());
        let (shared, kill) = (self.shared.clone(), self.kill.either.clone());
        let successor = successor(&shared, self.id, shape, &programs, &kill);
        // Made while the old one is saved, so that it is away for less.
        let (saved, blank) = tokio::join!(self.checkpoint(living, kept, false), successor);
        let description = match saved {
            Ok(description) => description,
            Err(Failed::Ended(reason)) => return Some(Over::Ended(reason, Some(reply))),
            Err(Failed::ZoneStops) => return Some(Over::ZoneStops),
            Err(Failed::Refused(error)) => {
                if let Some(blank) = blank {
                    self.shared.pool.add_blank(blank);
                }
                answer_pause(reply, Err(error));
                return None;
            }
        };
        let host = self.shared.host.clone();
        match self.go_on(living, &description, blank).await {
            Ok(()) => {
                let checkpoint = description.told();
                host.checkpoints.publish(description);
                self.shared.pool.look();
                answer_pause(reply, Ok(checkpoint));
                None
            }
            Err(_) if self.kill.asked.is_cancelled() => {
                host.checkpoints.publish(description);
                Some(Over::Ended(EndReason::Killed, Some(reply)))
            }
            Err(error) => {
                tracing::error!(
                    sandbox.id = %self.id,
                    error = &error as &dyn std::error::Error,
                    "a sandbox is paused, since it could not go on after a snapshot"
                );
                match host.checkpoints.make_pause(description.id) {
                    Ok(description) => Some(Over::Paused(Box::new(description), Some(reply))),
                    Err(error) => {
                        tracing::error!(error = &error as &dyn std::error::Error, "keep a pause");
                        Some(Over::Ended(EndReason::CheckpointFailed, Some(reply)))
                    }
                }
            }
        }
    }

    async fn go_on(
        &mut self,
        living: &mut Living,
        description: &Description,
        blank: Option<Blank>,
    ) -> Result<(), BringUpError> {
        let host = &self.shared.host;
        let volumes = living.claim.volumes.clone();
        let from = Restore { checkpoint: description.clone(), reboot: false, volumes };
        let mut next = bring_back(host, description.shape, &from, blank, &self.kill.either).await?;
        next.resumed(living.claim.clone()).await?;
        let before = std::mem::replace(&mut living.connected, next);
        living.cpu = None;
        living.freezer = living.connected.freezer();
        let (end, freezer) = (living.connected.end.clone(), living.freezer.clone());
        self.life.send_modify(|life| {
            if let Life::Live { end: known, freezer: used, .. } = life {
                (*known, *used) = (end, freezer);
            }
        });
        self.finish(before).await;
        Ok(())
    }
}

/// A blank for what goes on elsewhere. Nothing depends on it: without one the start takes longer.
async fn successor(
    shared: &Shared,
    id: SandboxId,
    shape: Shape,
    programs: &ProgramsRecord,
    kill: &Stop,
) -> Option<Blank> {
    if !shared.host.restores_into_blanks(programs) {
        return None;
    }
    if let Some(blank) = shared.pool.take_blank(&shape) {
        return Some(blank);
    }
    make_blank(&shared.host, shape, Weight::Normal, kill)
        .await
        .inspect_err(|error| {
            let error = error as &dyn std::error::Error;
            tracing::warn!(sandbox.id = %id, error, "make a blank for its successor");
        })
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn memory_is_given_up_once_a_pause_was_refused_for_long() {
        let mut overdue = Overdue::default();
        assert_eq!(overdue.wait(Duration::ZERO), Duration::ZERO);
        overdue.refused();
        assert_eq!(overdue.wait(Duration::ZERO), PAUSE_AGAIN);
        assert_eq!(overdue.pause(Kept::Memory), None);
        tokio::time::advance(PAUSE_AGAIN).await;
        assert_eq!(overdue.pause(Kept::Memory), Some(Kept::Memory));
        overdue.refused();
        tokio::time::advance(Duration::from_mins(2)).await;
        assert_eq!(overdue.pause(Kept::Memory), Some(Kept::Files));
        let more = Duration::from_mins(1);
        assert_eq!(overdue.wait(more), more);
        assert_eq!(overdue.pause(Kept::Memory), Some(Kept::Memory), "more time is a new start");
    }
}
