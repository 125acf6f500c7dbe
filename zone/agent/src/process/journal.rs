//! What programs have started and ended, until the zone asks. Bounded, whatever the tenant does.

use std::collections::VecDeque;

use jiff::Timestamp;
use parking_lot::Mutex;
use sandboxo_agent_proto::process::{ProcessConfig, process_event::EndEvent};
use sandboxo_channel::{Notice, Noticed};

/// All of it is one answer, which must fit into a message of the channel.
const MOST_BYTES: usize = 96 * 1024;
/// Of one command with its arguments.
const MOST_OF_COMMAND: usize = 1024;

#[derive(Default)]
pub(crate) struct Journal {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Each with its size in an answer.
    notices: VecDeque<(Notice, usize)>,
    bytes: usize,
    missed: u64,
}

impl Journal {
    pub(crate) fn started(&self, pid: u32, config: &ProcessConfig, now: Timestamp) {
        let words = [&config.cmd].into_iter().chain(&config.args).map(String::as_str);
        let command = cut(words.collect::<Vec<_>>().join(" "));
        self.put(now, Noticed::Started { pid, command });
    }

    pub(crate) fn ended(&self, pid: u32, end: EndEvent, now: Timestamp) {
        let EndEvent { exit_code, status, exited: _, error: _ } = end;
        self.put(now, Noticed::Ended { pid, exit_code, status });
    }

    fn put(&self, now: Timestamp, what: Noticed) {
        let notice = Notice { at_ms: now.as_millisecond(), what };
        // As it is written: an escape takes six bytes for one.
        let Ok(bytes) = serde_json::to_vec(&notice).map(|json| json.len() + 1) else { return };
        let mut state = self.state.lock();
        state.bytes += bytes;
        state.notices.push_back((notice, bytes));
        while state.bytes > MOST_BYTES {
            let Some((_, bytes)) = state.notices.pop_front() else { return };
            state.bytes -= bytes;
            state.missed += 1;
        }
    }

    /// Oldest first. They are not kept here any longer.
    pub(crate) fn take(&self, now: Timestamp) -> Vec<Notice> {
        let State { notices, bytes: _, missed } = std::mem::take(&mut *self.state.lock());
        let at_ms = notices.front().map_or(now.as_millisecond(), |(notice, _)| notice.at_ms);
        let missed =
            (missed > 0).then_some(Notice { at_ms, what: Noticed::Missed { count: missed } });
        missed.into_iter().chain(notices.into_iter().map(|(notice, _)| notice)).collect()
    }
}

fn cut(mut text: String) -> String {
    if text.len() > MOST_OF_COMMAND {
        text.truncate(text.floor_char_boundary(MOST_OF_COMMAND));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::exit::Exit;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn config(cmd: &str, args: &[&str]) -> ProcessConfig {
        let args = args.iter().map(|&arg| arg.to_owned()).collect();
        ProcessConfig { cmd: cmd.into(), args, ..ProcessConfig::default() }
    }

    #[test]
    fn what_was_told_once_is_not_told_again() {
        let journal = Journal::default();
        journal.started(7, &config("/bin/bash", &["-c", "exit 3"]), at(1));
        journal.ended(7, Exit::Code(3).to_event(), at(2));
        let command = "/bin/bash -c exit 3".to_owned();
        let status = "exit status 3".to_owned();
        let wanted = [
            Notice { at_ms: 1000, what: Noticed::Started { pid: 7, command } },
            Notice { at_ms: 2000, what: Noticed::Ended { pid: 7, exit_code: 3, status } },
        ];
        assert_eq!(journal.take(at(3)), wanted);
        assert_eq!(journal.take(at(3)), []);
    }

    #[test]
    fn a_long_command_is_cut_between_characters() {
        let journal = Journal::default();
        journal.started(1, &config("é", &[&"é".repeat(MOST_OF_COMMAND)]), at(1));
        let [Notice { what: Noticed::Started { command, .. }, .. }] = &journal.take(at(1))[..]
        else {
            panic!("one");
        };
        assert!(command.len() <= MOST_OF_COMMAND + '…'.len_utf8() && command.ends_with("é…"));
    }

    #[test]
    fn the_oldest_go_and_are_counted() {
        let journal = Journal::default();
        let nasty = "\u{1}".repeat(4 * MOST_OF_COMMAND);
        for pid in 0..100 {
            journal.started(pid, &config(&nasty, &[]), at(i64::from(pid)));
        }
        let told = journal.take(at(100));
        let answer = serde_json::to_vec(&sandboxo_channel::Response::Notices(told.clone()));
        assert!(answer.unwrap().len() <= MOST_BYTES + 1024);
        let (first, rest) = told.split_first().unwrap();
        assert_eq!(first.what, Noticed::Missed { count: 100 - rest.len() as u64 });
        assert_eq!(first.at_ms, rest[0].at_ms);
        assert_eq!(rest.last().unwrap().at_ms, 99_000);
        assert!(rest.len() > 10);
    }
}
