//! Everyone who listens to one process, and how fast the slowest may be.
//!
//! Output that nobody hears is dropped. A lone reader holds the process back as a pipe would. Among
//! several, one that takes nothing for a while is let go of, so that it can't stop the others.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select, select_all};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};

use super::exit::Exit;

/// Pieces that wait for a reader, beside what its connection holds.
const QUEUE: usize = 2;
/// How long several readers wait for the slowest of them to take one piece.
const PATIENCE: Duration = Duration::from_millis(250);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    Stdout(Bytes),
    Stderr(Bytes),
    Pty(Bytes),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) exit: Exit,
    /// Its time was up.
    pub(crate) timed_out: bool,
}

#[derive(Default)]
pub(crate) struct Readers {
    state: Mutex<State>,
    /// Someone came: a lone reader may be no longer alone.
    joined: Notify,
}

#[derive(Default)]
struct State {
    senders: Vec<mpsc::Sender<Piece>>,
    end: Option<End>,
}

impl Readers {
    /// Hears what comes from here on.
    pub(crate) fn join(&self) -> mpsc::Receiver<Piece> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let mut state = self.state.lock();
        if state.end.is_none() {
            state.senders.push(sender);
            drop(state);
            self.joined.notify_one();
        }
        receiver
    }

    /// `None` for a reader whose pieces have stopped: it was let go of.
    pub(crate) fn end(&self) -> Option<End> {
        self.state.lock().end
    }

    /// No piece follows. Readers see it behind the pieces they have not taken yet.
    pub(crate) fn finish(&self, end: End) {
        let mut state = self.state.lock();
        state.end = Some(end);
        state.senders.clear();
    }

    /// To those with room for it, now.
    pub(crate) fn offer(&self, piece: &Piece) {
        for sender in self.present() {
            if sender.try_send(piece.clone()).is_err() {
                // Full or gone.
            }
        }
    }

    /// To all. Dropped before it is done, some have it and some don't.
    pub(crate) async fn deliver(&self, piece: Piece) {
        let mut waiting = self.present();
        waiting.retain(|sender| {
            matches!(sender.try_send(piece.clone()), Err(mpsc::error::TrySendError::Full(_)))
        });
        while !waiting.is_empty() {
            let room = select_all(waiting.iter().map(|sender| Box::pin(sender.reserve())));
            let alone = self.present().len() < 2;
            let patience = async {
                if alone {
                    self.joined.notified().await;
                } else {
                    tokio::time::sleep(PATIENCE).await;
                }
            };
            let taken = match select(room, Box::pin(patience)).await {
                Either::Left(((permit, index, _others), _)) => {
                    // Closed: it left while we waited.
                    if let Ok(permit) = permit {
                        permit.send(piece.clone());
                    }
                    Some(index)
                }
                Either::Right(_) => None,
            };
            match taken {
                Some(index) => drop(waiting.swap_remove(index)),
                None if alone => {}
                None => self.let_go(&std::mem::take(&mut waiting)),
            }
        }
    }

    fn present(&self) -> Vec<mpsc::Sender<Piece>> {
        let mut state = self.state.lock();
        state.senders.retain(|sender| !sender.is_closed());
        state.senders.clone()
    }

    fn let_go(&self, slow: &[mpsc::Sender<Piece>]) {
        let mut state = self.state.lock();
        state.senders.retain(|sender| !slow.iter().any(|other| other.same_channel(sender)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(number: u8) -> Piece {
        Piece::Stdout(Bytes::from(vec![number]))
    }

    const END: End = End { exit: Exit::Code(0), timed_out: false };

    #[tokio::test(start_paused = true)]
    async fn nobody_is_waited_for_when_nobody_listens() {
        let readers = Readers::default();
        for number in 0..100 {
            readers.deliver(piece(number)).await;
        }
        drop(readers.join());
        for number in 0..100 {
            readers.deliver(piece(number)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_reader_hears_what_follows_and_the_end_behind_it() {
        let readers = Readers::default();
        readers.deliver(piece(1)).await;
        let mut late = readers.join();
        readers.deliver(piece(2)).await;
        readers.finish(END);
        assert_eq!(late.recv().await, Some(piece(2)));
        assert_eq!((late.recv().await, readers.end()), (None, Some(END)));
        assert_eq!(readers.join().recv().await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lone_slow_reader_holds_the_process_back() {
        let readers = Readers::default();
        let mut slow = readers.join();
        let hour = Duration::from_hours(1);
        let write_all = async {
            for number in 0..10 {
                readers.deliver(piece(number)).await;
            }
        };
        let read_all = async {
            for number in 0..10 {
                tokio::time::sleep(hour).await;
                assert_eq!(slow.recv().await, Some(piece(number)));
            }
        };
        tokio::join!(write_all, read_all);
    }

    #[tokio::test(start_paused = true)]
    async fn among_several_the_one_that_stops_is_let_go_of() {
        let readers = Readers::default();
        let (mut stopped, mut lively) = (readers.join(), readers.join());
        let write_all = async {
            for number in 0..100 {
                readers.deliver(piece(number)).await;
            }
            readers.finish(END);
        };
        let read_all = async {
            for number in 0..100 {
                assert_eq!(lively.recv().await, Some(piece(number)));
            }
        };
        tokio::time::timeout(Duration::from_secs(1), async { tokio::join!(write_all, read_all) })
            .await
            .unwrap();
        let mut seen = 0;
        while stopped.recv().await.is_some() {
            seen += 1;
        }
        assert_eq!(seen, QUEUE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lone_stopped_reader_is_let_go_of_once_another_comes() {
        let readers = Readers::default();
        let stopped = readers.join();
        let write_all = async {
            for number in 0..50 {
                readers.deliver(piece(number)).await;
            }
            readers.finish(END);
        };
        let another = async {
            tokio::time::sleep(Duration::from_mins(1)).await;
            let mut lively = readers.join();
            let mut seen = 0;
            while lively.recv().await.is_some() {
                seen += 1;
            }
            seen
        };
        let ((), seen) = tokio::join!(write_all, another);
        assert!(seen > 40, "{seen}");
        drop(stopped);
    }
}
