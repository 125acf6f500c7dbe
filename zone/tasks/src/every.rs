//! A loop that wakes on a nudge or on a tick.

use std::{future::Future, time::Duration};

use tokio::{sync::Notify, time::MissedTickBehavior};

use crate::Stop;

/// Each pass reads the world again and takes no hint, so that the path after a missed nudge is
/// the path that always runs.
pub async fn every<F, Fut>(period: Duration, nudge: &Notify, stop: Stop, mut pass: F)
where
    F: FnMut() -> Fut,
    Fut: Future<Output = ()>,
{
    let mut ticks = tokio::time::interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
            () = nudge.notified() => {}
        }
        pass().await;
    }
}
