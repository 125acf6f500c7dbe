//! How many starts are asked of the zone at once, and whose turn is next.

use std::sync::Arc;

use parking_lot::Mutex;
use sandboxo_model::decide::turns::Turns;
use sandboxo_zone_protocol::TeamId;
use tokio::sync::oneshot;

/// A cheap clone of one thing.
#[derive(Clone)]
pub(crate) struct Starts {
    turns: Arc<Mutex<Turns<oneshot::Sender<Turn>>>>,
}

/// Over when it is dropped.
pub(crate) struct Turn {
    /// `None`: it is over already.
    starts: Option<Starts>,
    team: TeamId,
}

impl Starts {
    pub(crate) fn new(at_once: usize) -> Self {
        Self { turns: Arc::new(Mutex::new(Turns::new(at_once))) }
    }

    pub(crate) fn at_once(&self) -> usize {
        self.turns.lock().at_once()
    }

    /// Whoever does not wait any longer loses the place and nothing else.
    pub(crate) async fn turn(&self, team: TeamId) -> Option<Turn> {
        let (reply, answer) = oneshot::channel();
        self.turns.lock().wait(team, reply);
        self.give();
        answer.await.ok()
    }

    fn give(&self) {
        loop {
            let next = self.turns.lock().give();
            let Some((team, waiting)) = next else { return };
            let turn = Turn { starts: Some(self.clone()), team };
            // One that has left: the next in this loop, and not within a drop of a drop.
            if let Err(mut turn) = waiting.send(turn) {
                turn.over();
            }
        }
    }
}

impl Turn {
    fn over(&mut self) -> Option<Starts> {
        let starts = self.starts.take()?;
        starts.turns.lock().done(self.team);
        Some(starts)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(starts) = self.over() {
            starts.give();
        }
    }
}
