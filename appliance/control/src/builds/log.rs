//! What a build says, as it says it.

use parking_lot::Mutex;
use sandboxo_model::{BuildLine, Level, StepName};
use sandboxo_zone_protocol::Clock;

use super::agent::Stream;

/// A build that says more is not read to its end by anybody; the rest is counted.
const MAX_LINES: usize = 20_000;
const MAX_BYTES: usize = 4 << 20;
const MAX_LINE: usize = 4 << 10;

#[derive(Default)]
pub(super) struct Log {
    lines: Mutex<Lines>,
}

#[derive(Default)]
struct Lines {
    all: Vec<BuildLine>,
    bytes: usize,
    lost: u64,
}

impl Log {
    pub(super) fn say(
        &self,
        clock: &dyn Clock,
        level: Level,
        step: Option<StepName>,
        message: impl Into<String>,
    ) {
        let mut message: String = message.into();
        if message.len() > MAX_LINE {
            message.truncate(message.floor_char_boundary(MAX_LINE));
            message.push('…');
        }
        let mut lines = self.lines.lock();
        let is_full = lines.all.len() >= MAX_LINES || lines.bytes + message.len() > MAX_BYTES;
        // How it ends is told in any case.
        if is_full && level < Level::Error {
            lines.lost += 1;
            return;
        }
        if lines.lost > 0 {
            let message =
                format!("{} lines before this are left out", std::mem::take(&mut lines.lost));
            lines.all.push(BuildLine { at: clock.now(), level: Level::Warn, message, step: None });
        }
        lines.bytes += message.len();
        lines.all.push(BuildLine { at: clock.now(), level, message, step });
    }

    pub(super) fn read<T>(&self, read: impl FnOnce(&[BuildLine]) -> T) -> T {
        read(&self.lines.lock().all)
    }
}

/// The last that were said at a step.
pub(super) fn last_of(lines: &[BuildLine], step: StepName, count: usize) -> Vec<BuildLine> {
    let of_step: Vec<_> = lines.iter().filter(|line| line.step == Some(step)).cloned().collect();
    let from = of_step.len().saturating_sub(count);
    of_step.into_iter().skip(from).collect()
}

/// Bytes of a program made into lines.
#[derive(Default)]
pub(super) struct Splitter {
    out: Vec<u8>,
    err: Vec<u8>,
}

impl Splitter {
    pub(super) fn push(
        &mut self,
        stream: Stream,
        bytes: &[u8],
        mut line: impl FnMut(Stream, &str),
    ) {
        let held = match stream {
            Stream::Out => &mut self.out,
            Stream::Err => &mut self.err,
        };
        for &byte in bytes {
            if byte == b'\n' || held.len() >= MAX_LINE {
                let text = String::from_utf8_lossy(held).into_owned();
                line(stream, text.trim_end_matches('\r'));
                held.clear();
            }
            if byte != b'\n' {
                held.push(byte);
            }
        }
    }

    /// What no newline has ended.
    pub(super) fn finish(&mut self, mut line: impl FnMut(Stream, &str)) {
        for (stream, held) in [(Stream::Out, &mut self.out), (Stream::Err, &mut self.err)] {
            if !held.is_empty() {
                line(stream, String::from_utf8_lossy(held).trim_end_matches('\r'));
                held.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sandboxo_zone_protocol::fake::ManualClock;

    use super::*;

    #[test]
    fn bytes_become_lines() {
        let mut splitter = Splitter::default();
        let mut lines = Vec::new();
        let mut push = |splitter: &mut Splitter, stream, bytes: &str| {
            splitter.push(stream, bytes.as_bytes(), |stream, line| {
                lines.push((stream, line.to_owned()));
            });
        };
        push(&mut splitter, Stream::Out, "one\r\ntw");
        push(&mut splitter, Stream::Err, "bad\n\n");
        push(&mut splitter, Stream::Out, "o\nthree");
        splitter.finish(|stream, line| lines.push((stream, line.to_owned())));
        let lines: Vec<_> = lines.iter().map(|(stream, line)| (*stream, line.as_str())).collect();
        assert_eq!(
            lines,
            [
                (Stream::Out, "one"),
                (Stream::Err, "bad"),
                (Stream::Err, ""),
                (Stream::Out, "two"),
                (Stream::Out, "three"),
            ]
        );
    }

    #[test]
    fn a_log_has_an_end_and_the_failure_is_in_it() {
        let clock = ManualClock::default();
        let log = Log::default();
        for _ in 0..MAX_LINES + 10 {
            log.say(&clock, Level::Info, Some(StepName::Step(1)), "x");
        }
        log.say(&clock, Level::Error, Some(StepName::Step(1)), "y".repeat(2 * MAX_LINE));
        assert_eq!(log.read(<[_]>::len), MAX_LINES + 2);
        let last = log.read(|lines| last_of(lines, StepName::Step(1), 1));
        assert!(last[0].level == Level::Error && last[0].message.len() < MAX_LINE + 4);
        let told = log.read(|lines| lines[MAX_LINES].message.clone());
        assert_eq!(told, "10 lines before this are left out");
    }
}
