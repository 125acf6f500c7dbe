//! The server becomes another program's: the question whether that one understands, what is handed
//! over, and what is made of it on the other side.

use std::{
    fs::File,
    os::{
        fd::{AsRawFd, OwnedFd, RawFd},
        unix::process::ExitStatusExt,
    },
    path::{Path, PathBuf},
    process::ExitStatus,
    rc::Rc,
};

use nix::{
    fcntl::{Flock, FlockArg},
    sys::{
        prctl::set_child_subreaper,
        signal::{Signal, kill},
    },
    unistd::Pid,
};

use super::{Connection, Launching, Server};
use crate::{
    args::Args,
    book::{Book, Saved},
    log,
    protocol::{Failure, Label, Launch, Stdin},
    setup::{self, Sockets},
    spawn::{self, Starting},
    state::{self, State},
    upgrade::{self, Inherited, READS, ResumeError},
};

/// A program that is asked whether it can be the next.
pub(super) struct Asking {
    pub(super) pid: i32,
    call: u64,
    program: PathBuf,
    build: String,
}

impl Server {
    pub(super) fn upgrade(&mut self, call: u64, program: PathBuf, build: String) {
        if self.ending {
            return self.answer(call, Err(Failure::Ending));
        }
        if let Some(before) = self.stop_asking() {
            self.answer(before, Err(Failure::Overtaken));
        }
        match spawn::begin(self.question(&program), None, &mut self.views) {
            Err(failure) => self.answer(call, Err(failure)),
            Ok(begun) => {
                let pid = begun.starting.pid;
                let connection = self.connections;
                self.starting.push(Launching {
                    starting: begun.starting,
                    call,
                    connection,
                    label: None,
                });
                self.asking = Some(Asking { pid, call, program, build });
            }
        }
    }

    fn question(&self, program: &Path) -> Launch {
        Launch {
            label: Label { label: String::new(), meta: String::new() },
            program: program.to_owned(),
            args: ["keeper", "--reads", &state::FORMAT.to_string()].map(str::to_owned).into(),
            env: Vec::new(),
            stdin: Stdin::Null,
            log: self.args.log.clone(),
            cgroups: Vec::new(),
            netns: false,
            oom_score_adj: None,
            binds: Vec::new(),
            processors: Vec::new(),
        }
    }

    /// Which call it was for. A program may take for ever to answer.
    pub(super) fn stop_asking(&mut self) -> Option<u64> {
        let Asking { pid, call, .. } = self.asking.take()?;
        self.starting.retain(|one| one.starting.pid != pid);
        // Ours and not yet reaped, so the number is still its own.
        if let Err(errno) = kill(Pid::from_raw(pid), Signal::SIGKILL) {
            log::line(&format!("end the program that was asked: {errno}"));
        }
        Some(call)
    }

    /// The program that was asked has ended.
    pub(super) fn asked(&mut self, asking: Asking, status: i32) {
        let Asking { call, program, build, .. } = asking;
        let failure = if ExitStatus::from_raw(status).code() == Some(READS.into()) {
            log::line(&format!("becoming {}, build {build}", program.display()));
            let args = Args { build, ..self.args.clone() };
            upgrade::become_program(&program, &args, &self.state(call))
        } else {
            Failure::Unread { program, format: state::FORMAT, status }
        };
        log::error(&failure);
        self.answer(call, Err(failure));
    }

    fn state(&self, call: u64) -> State {
        let Saved { identity, met, held, commands } = self.book.save(AsRawFd::as_raw_fd);
        let held = held.into_iter().map(|(label, channel)| state::Held { label, channel });
        let starting = self.starting.iter().map(|one| state::Launching {
            pid: one.starting.pid,
            program: one.starting.program.clone(),
            cgroups: one.starting.cgroups.clone(),
            report: one.starting.report.as_raw_fd(),
            call: one.call,
            connection: one.connection,
            label: one.label.clone(),
        });
        let unsent = |(message, channels): &(Vec<u8>, Vec<Rc<OwnedFd>>)| state::Unsent {
            message: String::from_utf8_lossy(message).into_owned(),
            descriptors: channels.iter().map(AsRawFd::as_raw_fd).collect(),
        };
        let connection = self.connection.as_ref().map(|connection| state::Connection {
            socket: connection.socket.as_raw_fd(),
            zone: connection.zone,
            outbox: connection.outbox.iter().map(unsent).collect(),
        });
        State {
            identity,
            met,
            held: held.collect(),
            commands,
            starting: starting.collect(),
            detached: self.detached.clone(),
            untold: self.untold.iter().cloned().collect(),
            listener: self.sockets.listener.as_raw_fd(),
            lock: self.sockets.lock.as_raw_fd(),
            connections: self.connections,
            connection,
            call,
        }
    }

    /// In the new program.
    pub(crate) fn resume(args: Args, memory: RawFd) -> Result<Self, ResumeError> {
        let state = upgrade::read(memory)?;
        let mut inherited = Inherited::take(&state.descriptors())?;
        let lock = File::from(inherited.alone(state.lock)?);
        // Held already by this very descriptor.
        let lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock)
            .map_err(|(_, source)| ResumeError::Descriptor { number: state.lock, source })?;
        let sockets = Sockets {
            listener: inherited.alone(state.listener)?,
            signals: setup::take_signals().map_err(ResumeError::Setup)?,
            lock,
        };
        set_child_subreaper(true).map_err(ResumeError::Setup)?;
        let mut starting = Vec::new();
        for one in state.starting {
            starting.push(Launching {
                starting: Starting {
                    pid: one.pid,
                    program: one.program,
                    cgroups: one.cgroups,
                    report: inherited.alone(one.report)?.into(),
                },
                call: one.call,
                connection: one.connection,
                label: one.label,
            });
        }
        let connection = match state.connection {
            None => None,
            Some(state::Connection { socket, zone, outbox }) => Some(Connection {
                number: state.connections,
                socket: inherited.alone(socket)?,
                zone,
                outbox: outbox
                    .into_iter()
                    .map(|state::Unsent { message, descriptors }| {
                        let shared = descriptors.into_iter().map(|it| inherited.shared(it));
                        Ok((message.into_bytes(), shared.collect::<Result<_, ResumeError>>()?))
                    })
                    .collect::<Result<_, ResumeError>>()?,
            }),
        };
        let mut held = Vec::new();
        for state::Held { label, channel } in state.held {
            held.push((label, inherited.shared(channel)?));
        }
        let book = Book::restore(Saved {
            identity: state.identity,
            met: state.met,
            held,
            commands: state.commands,
        });
        let mut server = Self {
            connection,
            connections: state.connections,
            starting,
            untold: state.untold.into_iter().collect(),
            detached: state.detached,
            ..Self::new(args, sockets, book)
        };
        log::line(&format!("goes on as build {}", server.args.build));
        server.answer(state.call, Ok(()));
        Ok(server)
    }
}
