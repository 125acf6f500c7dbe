//! What a reader of a process gets: its start, its output, its end, and signs of life between.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::Frame;
use sandboxo_agent_proto::{
    connect::{Code, Codec, Failure, end_of_stream},
    process::{
        ConnectResponse, ProcessEvent, StartResponse,
        process_event::{DataEvent, Event, KeepAlive, StartEvent, data_event::Output},
    },
};
use tokio::{
    sync::mpsc,
    time::{Instant, Sleep, sleep_until},
};

use super::{
    owner::Process,
    readers::{End, Piece},
};

/// Whose time is up when the stream's is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opened {
    ByStart,
    ByConnect,
}

pub(crate) struct ProcessStream {
    process: Arc<Process>,
    opened: Opened,
    codec: Codec,
    pieces: mpsc::Receiver<Piece>,
    next: Next,
    deadline: Option<Pin<Box<Sleep>>>,
    keepalive: Duration,
    silent_until: Pin<Box<Sleep>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Start,
    Pieces,
    EndOfStream,
    Nothing,
}

impl ProcessStream {
    pub(crate) fn new(
        process: Arc<Process>,
        opened: Opened,
        codec: Codec,
        deadline: Option<Instant>,
        keepalive: Duration,
    ) -> Self {
        let pieces = process.readers.join();
        Self {
            process,
            opened,
            codec,
            pieces,
            next: Next::Start,
            deadline: deadline.map(|at| Box::pin(sleep_until(at))),
            keepalive,
            silent_until: Box::pin(sleep_until(Instant::now() + keepalive)),
        }
    }

    fn event(&mut self, event: Event) -> Bytes {
        let later = Instant::now() + self.keepalive;
        self.silent_until.as_mut().reset(later);
        let event = Some(ProcessEvent { event: Some(event) });
        match self.opened {
            Opened::ByStart => self.codec.envelop(&StartResponse { event }),
            Opened::ByConnect => self.codec.envelop(&ConnectResponse { event }),
        }
    }

    fn fail(&mut self, code: Code, message: &str) -> Bytes {
        self.next = Next::Nothing;
        end_of_stream(Err(&Failure::new(code, message)))
    }

    fn over(&mut self) -> Bytes {
        match self.process.readers.end() {
            // Who set the time is told that it is over; others that the process was killed.
            Some(End { timed_out: true, .. }) if self.opened == Opened::ByStart => {
                self.time_is_up()
            }
            Some(End { exit, .. }) => {
                self.next = Next::EndOfStream;
                self.event(Event::End(exit.to_event()))
            }
            None => self.fail(Code::ResourceExhausted, "the reader fell behind the others"),
        }
    }

    fn time_is_up(&mut self) -> Bytes {
        self.fail(Code::DeadlineExceeded, "the command's time is up")
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        match self.next {
            Next::Start => {
                self.next = Next::Pieces;
                let pid = self.process.pid.as_raw().unsigned_abs();
                return Poll::Ready(Some(self.event(Event::Start(StartEvent { pid }))));
            }
            Next::EndOfStream => {
                self.next = Next::Nothing;
                return Poll::Ready(Some(end_of_stream(Ok(()))));
            }
            Next::Nothing => return Poll::Ready(None),
            Next::Pieces => {}
        }
        // First, or a flood of output would outlast it.
        if let Some(deadline) = &mut self.deadline
            && deadline.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Some(self.time_is_up()));
        }
        match self.pieces.poll_recv(cx) {
            Poll::Ready(Some(piece)) => {
                let output = match piece {
                    Piece::Stdout(bytes) => Output::Stdout(bytes),
                    Piece::Stderr(bytes) => Output::Stderr(bytes),
                    Piece::Pty(bytes) => Output::Pty(bytes),
                };
                let data = DataEvent { output: Some(output) };
                return Poll::Ready(Some(self.event(Event::Data(data))));
            }
            Poll::Ready(None) => return Poll::Ready(Some(self.over())),
            Poll::Pending => {}
        }
        if self.silent_until.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Some(self.event(Event::Keepalive(KeepAlive {}))));
        }
        Poll::Pending
    }
}

impl http_body::Body for ProcessStream {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.poll_next(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}
