//! How a process ended, and how that is told.

use nix::libc;
use sandboxo_agent_proto::process::process_event::EndEvent;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Code(i32),
    Signal { number: i32, dumped: bool },
}

impl Exit {
    /// From what `waitpid` gives for a process that is gone.
    pub(crate) fn of(status: i32) -> Self {
        if libc::WIFSIGNALED(status) {
            return Self::Signal {
                number: libc::WTERMSIG(status),
                dumped: libc::WCOREDUMP(status),
            };
        }
        Self::Code(libc::WEXITSTATUS(status))
    }

    pub(crate) fn to_event(self) -> EndEvent {
        let status = match self {
            Self::Code(code) => format!("exit status {code}"),
            Self::Signal { number, dumped } => {
                let dumped = if dumped { " (core dumped)" } else { "" };
                format!("signal: {}{dumped}", signal_name(number))
            }
        };
        let (exit_code, exited) = match self {
            Self::Code(code) => (code, true),
            Self::Signal { .. } => (-1, false),
        };
        let error = (self != Self::Code(0)).then(|| status.clone());
        EndEvent { exit_code, exited, status, error }
    }
}

fn signal_name(number: i32) -> String {
    let name = match number {
        libc::SIGHUP => "hangup",
        libc::SIGINT => "interrupt",
        libc::SIGQUIT => "quit",
        libc::SIGILL => "illegal instruction",
        libc::SIGTRAP => "trace/breakpoint trap",
        libc::SIGABRT => "aborted",
        libc::SIGBUS => "bus error",
        libc::SIGFPE => "floating point exception",
        libc::SIGKILL => "killed",
        libc::SIGUSR1 => "user defined signal 1",
        libc::SIGSEGV => "segmentation fault",
        libc::SIGUSR2 => "user defined signal 2",
        libc::SIGPIPE => "broken pipe",
        libc::SIGALRM => "alarm clock",
        libc::SIGTERM => "terminated",
        libc::SIGSTKFLT => "stack fault",
        libc::SIGXCPU => "CPU time limit exceeded",
        libc::SIGXFSZ => "file size limit exceeded",
        libc::SIGVTALRM => "virtual timer expired",
        libc::SIGPROF => "profiling timer expired",
        libc::SIGIO => "I/O possible",
        libc::SIGPWR => "power failure",
        libc::SIGSYS => "bad system call",
        other => return format!("signal {other}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_status_says_how_it_ended() {
        for (status, exit) in [
            (0, Exit::Code(0)),
            (3 << 8, Exit::Code(3)),
            (9, Exit::Signal { number: 9, dumped: false }),
            (0x0b | 0x80, Exit::Signal { number: 11, dumped: true }),
            (40, Exit::Signal { number: 40, dumped: false }),
        ] {
            assert_eq!(Exit::of(status), exit);
        }
    }

    #[test]
    fn each_end_is_told_so() {
        for (exit, exit_code, exited, status, error) in [
            (Exit::Code(0), 0, true, "exit status 0", false),
            (Exit::Code(3), 3, true, "exit status 3", true),
            (Exit::Signal { number: 9, dumped: false }, -1, false, "signal: killed", true),
            (Exit::Signal { number: 15, dumped: false }, -1, false, "signal: terminated", true),
            (
                Exit::Signal { number: 11, dumped: true },
                -1,
                false,
                "signal: segmentation fault (core dumped)",
                true,
            ),
            (Exit::Signal { number: 40, dumped: false }, -1, false, "signal: signal 40", true),
        ] {
            let error = error.then(|| status.to_owned());
            let wanted = EndEvent { exit_code, exited, status: status.to_owned(), error };
            assert_eq!(exit.to_event(), wanted);
        }
    }
}
