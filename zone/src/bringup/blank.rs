//! A sandbox that runsc has made and not started, and a checkpoint that is restored into it.
//!
//! What takes longest of a start, two processes of runsc's and the sentry's beginning, is over
//! before anybody asks. The rest is said to the sentry directly. A checkpoint of another runsc, or
//! of another agent, goes by the command line, and so does one that the sentry does not take.

use std::{os::fd::OwnedFd, sync::Arc};

use sandboxo_crashpoint::{Point, crashpoint};
use sandboxo_tasks::Stop;
use sandboxo_zone_protocol::Shape;
use tokio::time::{Instant, timeout_at};

use super::{BringUpError, Call, Connected, Holdings, Restore, Running, Start};
use crate::{
    cgroup::Weight,
    host::Host,
    process::Process,
    sentry::{ImageFiles, Sentry, SentryError},
    slot::RestoreRecord,
};

/// Its sentry waits, with a network.
pub(crate) struct Blank {
    holdings: Holdings,
    process: Process,
    channel: OwnedFd,
    sentry: Sentry,
}

/// One for a restore that is yet to be asked for.
pub(crate) async fn make_blank(
    host: &Arc<Host>,
    shape: Shape,
    weight: Weight,
    cancel: &Stop,
) -> Result<Blank, BringUpError> {
    let start = Start::begin(host, cancel);
    let _one_of_few = start.turn().await?;
    start.blank(shape, weight).await
}

/// A sandbox from a checkpoint, in a blank of its shape or without one.
pub(crate) async fn bring_back(
    host: &Arc<Host>,
    shape: Shape,
    from: &Restore,
    blank: Option<Blank>,
    cancel: &Stop,
) -> Result<Connected, BringUpError> {
    let start = Start::begin(host, cancel);
    let _one_of_few = start.turn().await?;
    if host.restores_into_blanks(&from.checkpoint.programs) {
        let filled = async {
            let blank = match blank.filter(Blank::is_alive) {
                Some(blank) => blank,
                None => start.blank(shape, Weight::Normal).await?,
            };
            start.fill(blank, from).await
        };
        match filled.await {
            // One that waited may have died a moment ago.
            Err(error @ (BringUpError::Sentry { .. } | BringUpError::Ended(_))) => tracing::warn!(
                checkpoint = %from.checkpoint.id,
                error = &error as &dyn std::error::Error,
                "a sentry does not take a checkpoint, so runsc's command line is asked"
            ),
            done => return done,
        }
    }
    start.by_command_line(shape, Weight::Normal, Some(from)).await
}

impl Start<'_> {
    async fn blank(&self, shape: Shape, weight: Weight) -> Result<Blank, BringUpError> {
        let Running { holdings, process, channel } = self.call(shape, weight, Call::Create).await?;
        let link = match &holdings.lease {
            None => None,
            Some(lease) => Some(lease.hand_over().await?),
        };
        let runsc = holdings.runsc()?;
        let (root, container) = (runsc.root().to_owned(), holdings.slot.container);
        let may_cut = runsc.cuts_connections(shape.mode);
        let configured = tokio::task::spawn_blocking(move || {
            let mut sentry = Sentry::connect(&root, container)?;
            sentry.configure_network(link.as_ref(), may_cut)?;
            Ok(sentry)
        });
        match settle(configured.await) {
            Ok(sentry) => Ok(Blank { holdings, process, channel, sentry }),
            Err(source) => Err(BringUpError::Sentry { said: holdings.said(), source }),
        }
    }

    async fn fill(&self, blank: Blank, from: &Restore) -> Result<Connected, BringUpError> {
        let running = blank.restore(from, self.give_up, self.cancel).await?;
        self.go_on()?;
        let connected = running.connect(self.give_up, self.cancel).await?;
        crashpoint(Point::BlankGreeted);
        Ok(connected)
    }
}

impl Blank {
    pub(crate) fn shape(&self) -> Shape {
        self.holdings.slot.shape
    }

    pub(crate) fn is_alive(&self) -> bool {
        !self.process.has_ended()
    }

    /// It goes on without this process, whose successor ends it.
    pub(crate) fn leave(mut self) {
        self.holdings.leave();
    }

    async fn restore(
        self,
        from: &Restore,
        give_up: Instant,
        cancel: &Stop,
    ) -> Result<Running, BringUpError> {
        let Self { mut holdings, process, channel, mut sentry } = self;
        holdings.write_boot_id(Some(from))?;
        holdings.attach(&from.volumes).await?;
        let id = from.checkpoint.id;
        holdings
            .record(|slot| {
                slot.blank = false;
                slot.restored = Some(RestoreRecord { checkpoint: id, told: false });
            })
            .map_err(BringUpError::at("write down what it is restored from"))?;
        crashpoint(Point::BlankTaken);
        holdings.group.set_weight(Weight::Normal).map_err(BringUpError::at("set its share"))?;
        let image: ImageFiles = holdings
            .host
            .checkpoints
            .image_files(id)
            .map_err(BringUpError::at("open the checkpoint"))?;
        let left = give_up.saturating_duration_since(Instant::now());
        let restored = tokio::task::spawn_blocking(move || sentry.restore(&image, left));
        let restored = tokio::select! {
            restored = timeout_at(give_up, restored) => restored,
            () = process.ended() => return Err(BringUpError::Ended(holdings.said())),
            () = cancel.cancelled() => return Err(BringUpError::Cancelled),
        };
        let Ok(restored) = restored else {
            let after = holdings.host.start_timeout;
            return Err(BringUpError::TimedOut(after, holdings.said()));
        };
        crashpoint(Point::BlankFilled);
        match settle(restored) {
            Ok(()) => Ok(Running { holdings, process, channel }),
            Err(source) => Err(BringUpError::Sentry { said: holdings.said(), source }),
        }
    }
}

fn settle<T>(
    done: Result<Result<T, SentryError>, tokio::task::JoinError>,
) -> Result<T, SentryError> {
    done.unwrap_or_else(|panicked| Err(std::io::Error::other(panicked).into()))
}
