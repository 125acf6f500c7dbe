//! Who is asked, and in which order.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

/// How long one that did not answer is asked last.
const ASKED_LAST: Duration = Duration::from_secs(30);

/// The list, which may be replaced at any time. A cheap clone of one list.
#[derive(Clone, Default)]
pub struct Resolvers {
    list: Arc<Mutex<Vec<Resolver>>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Resolver {
    address: SocketAddr,
    failed_at: Option<Instant>,
}

impl Resolvers {
    pub fn new(addresses: Vec<SocketAddr>) -> Self {
        let resolvers = Self::default();
        resolvers.set(addresses);
        resolvers
    }

    /// What is known of those that stay is kept.
    pub fn set(&self, addresses: Vec<SocketAddr>) {
        let mut list = self.list.lock();
        *list = addresses
            .into_iter()
            .map(|address| {
                let known = list.iter().find(|it| it.address == address).copied();
                known.unwrap_or(Resolver { address, failed_at: None })
            })
            .collect();
    }

    pub(super) fn order(&self, now: Instant) -> Vec<SocketAddr> {
        order(&self.list.lock(), now)
    }

    pub(super) fn failed(&self, address: SocketAddr, now: Instant) {
        self.note(address, Some(now));
    }

    pub(super) fn answered(&self, address: SocketAddr) {
        self.note(address, None);
    }

    fn note(&self, address: SocketAddr, failed_at: Option<Instant>) {
        if let Some(it) = self.list.lock().iter_mut().find(|it| it.address == address) {
            it.failed_at = failed_at;
        }
    }
}

/// As listed, but those that failed lately come last.
fn order(list: &[Resolver], now: Instant) -> Vec<SocketAddr> {
    let mut order = list.to_vec();
    order.sort_by_key(|it| {
        it.failed_at.is_some_and(|at| now.saturating_duration_since(at) < ASKED_LAST)
    });
    order.into_iter().map(|it| it.address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_that_failed_is_asked_last_for_a_while() {
        let [a, b, c] = [1, 2, 3].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let resolvers = Resolvers::new(vec![a, b, c]);
        let now = Instant::now();
        assert_eq!(resolvers.order(now), [a, b, c]);
        resolvers.failed(a, now);
        assert_eq!(resolvers.order(now), [b, c, a]);
        resolvers.failed(b, now);
        assert_eq!(resolvers.order(now), [c, a, b]);
        resolvers.answered(a);
        assert_eq!(resolvers.order(now), [a, c, b]);
        // A list that is read again keeps what is known.
        resolvers.set(vec![b, c]);
        assert_eq!(resolvers.order(now), [c, b]);
        assert_eq!(resolvers.order(now + ASKED_LAST), [b, c]);
    }
}
