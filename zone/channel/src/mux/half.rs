//! One stream: what it may send, what it has received.

use bytes::{Buf, BytesMut};

use super::WINDOW;

pub(super) struct StreamState {
    pub(super) incoming: Incoming,
    pub(super) outgoing: Outgoing,
    /// It is in the queue of those that have something to send.
    pub(super) ready: bool,
    /// The peer let go: nothing more comes, nothing more is read there.
    pub(super) broken: bool,
    /// The holder let go after it had finished; the rest goes out.
    pub(super) abandoned: bool,
}

impl StreamState {
    pub(super) fn new() -> Self {
        Self {
            incoming: Incoming { buffer: BytesMut::new(), allowed: WINDOW, taken: 0, end: false },
            outgoing: Outgoing {
                buffer: BytesMut::new(),
                credit: WINDOW,
                end: End::Open,
                refused: false,
            },
            ready: false,
            broken: false,
            abandoned: false,
        }
    }

    /// What has been received can still be read.
    pub(super) fn break_off(&mut self) {
        self.broken = true;
        self.outgoing.buffer = BytesMut::new();
    }
}

pub(super) struct Incoming {
    buffer: BytesMut,
    /// What the peer may still send.
    allowed: u32,
    /// Read here and not yet given back as credit.
    taken: u32,
    end: bool,
}

impl Incoming {
    /// The error is what would have been allowed.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), u32> {
        match u32::try_from(bytes.len()).ok().and_then(|length| self.allowed.checked_sub(length)) {
            Some(left) => {
                self.allowed = left;
                self.buffer.extend_from_slice(bytes);
                Ok(())
            }
            None => Err(self.allowed),
        }
    }

    pub(super) fn take(&mut self, most: usize, take: impl FnOnce(&[u8])) -> usize {
        let count = self.buffer.len().min(most);
        if count == 0 {
            return 0;
        }
        if let Some(bytes) = self.buffer.get(..count) {
            take(bytes);
        }
        self.buffer.advance(count);
        if self.buffer.is_empty() {
            // An idle stream holds no memory.
            self.buffer = BytesMut::new();
        }
        #[expect(clippy::cast_possible_truncation, reason = "no more than a window is buffered")]
        let taken = count as u32;
        self.taken += taken;
        count
    }

    pub(super) fn credit_due(&mut self, step: u32) -> Option<u32> {
        if self.end || self.taken < step {
            return None;
        }
        self.allowed += self.taken;
        Some(std::mem::take(&mut self.taken))
    }

    pub(super) fn end(&mut self) {
        self.end = true;
    }

    pub(super) fn end_came(&self) -> bool {
        self.end
    }

    /// The peer has finished and all of it was read.
    pub(super) fn ended(&self) -> bool {
        self.end && self.buffer.is_empty()
    }

    pub(super) fn discard(&mut self) {
        self.buffer = BytesMut::new();
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Open,
    Asked,
    Sent,
}

/// Holds only bytes that there is credit for, so that whatever is here can go.
pub(super) struct Outgoing {
    buffer: BytesMut,
    credit: u32,
    end: End,
    /// A writer was told to wait.
    refused: bool,
}

impl Outgoing {
    pub(super) fn push(&mut self, bytes: &[u8], most: usize) -> usize {
        let room = most.saturating_sub(self.buffer.len()).min(self.credit as usize);
        let count = bytes.len().min(room);
        if count == 0 {
            self.refused = true;
            return 0;
        }
        if let Some(bytes) = bytes.get(..count) {
            self.buffer.extend_from_slice(bytes);
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most the credit")]
        let count32 = count as u32;
        self.credit -= count32;
        count
    }

    pub(super) fn take(&mut self, most: usize, take: impl FnOnce(&[u8])) {
        let count = self.buffer.len().min(most);
        if count == 0 {
            return;
        }
        if let Some(bytes) = self.buffer.get(..count) {
            take(bytes);
        }
        self.buffer.advance(count);
        if self.buffer.is_empty() {
            self.buffer = BytesMut::new();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    pub(super) fn was_refused(&self) -> bool {
        self.refused
    }

    pub(super) fn forget_refusal(&mut self) {
        self.refused = false;
    }

    pub(super) fn has_room(&self, most: usize) -> bool {
        self.credit > 0 && self.buffer.len() < most
    }

    /// `false`: that would be more than a window.
    pub(super) fn add_credit(&mut self, amount: u32) -> bool {
        match self.credit.checked_add(amount) {
            Some(credit) if credit <= WINDOW => {
                self.credit = credit;
                true
            }
            _ => false,
        }
    }

    /// `true`: it was open.
    pub(super) fn ask_end(&mut self) -> bool {
        let was_open = self.end == End::Open;
        if was_open {
            self.end = End::Asked;
        }
        was_open
    }

    pub(super) fn end_asked(&self) -> bool {
        self.end != End::Open
    }

    pub(super) fn end_sent(&self) -> bool {
        self.end == End::Sent
    }

    /// `true`: the end has to be told.
    pub(super) fn send_end(&mut self) -> bool {
        let asked = self.end == End::Asked;
        if asked {
            self.end = End::Sent;
        }
        asked
    }
}
