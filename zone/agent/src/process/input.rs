//! What a process is fed: a pipe, a terminal, or nothing.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::OwnedFd,
    sync::Arc,
};

use nix::errno::Errno;
use sandboxo_tasks::Stop;
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::Mutex,
};

use crate::readiness::{Held, watch};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Pipe,
    Terminal,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum InputError {
    #[error("stdin not enabled or closed")]
    Closed,
    #[error("stdin of a terminal can't be closed")]
    Terminal,
    #[error("a process with a terminal takes input of kind pty, others of kind stdin")]
    WrongForm,
    #[error("error writing to {}: {}", form_name(*.0), reason(.1))]
    Write(Form, io::Error),
    #[error("the process ended before it took all of the input")]
    Ended,
}

/// Writers wait for each other, in the order they came.
pub(crate) struct Input {
    form: Form,
    writer: Mutex<Option<Writer>>,
    /// No reader is left, whoever may still hold the other end.
    ended: Stop,
}

struct Writer {
    file: Arc<File>,
    /// Only once it was full: most input is short.
    waitable: Option<AsyncFd<Held>>,
}

impl Input {
    /// The file must not block.
    pub(crate) fn new(form: Form, fd: Option<OwnedFd>) -> Self {
        let writer = fd.map(|fd| Writer { file: Arc::new(File::from(fd)), waitable: None });
        Self { form, writer: Mutex::new(writer), ended: Stop::new() }
    }

    pub(crate) async fn write(&self, form: Form, bytes: &[u8]) -> Result<(), InputError> {
        if form != self.form {
            return Err(InputError::WrongForm);
        }
        let mut writer = self.writer.lock().await;
        let Some(open) = writer.as_mut() else { return Err(InputError::Closed) };
        tokio::select! {
            biased;
            () = self.ended.cancelled() => Err(InputError::Ended),
            written = open.write(bytes) => written.map_err(|error| InputError::Write(form, error)),
        }
    }

    pub(crate) async fn close(&self) -> Result<(), InputError> {
        match self.form {
            Form::Terminal => Err(InputError::Terminal),
            Form::Pipe => match self.writer.lock().await.take() {
                None => Err(InputError::Closed),
                Some(writer) => {
                    drop(writer);
                    Ok(())
                }
            },
        }
    }

    pub(crate) fn end(&self) {
        self.ended.cancel();
        if let Ok(mut writer) = self.writer.try_lock() {
            *writer = None;
        }
    }
}

impl Writer {
    async fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let result = match &self.waitable {
                None => (&*self.file).write(bytes),
                Some(waitable) => {
                    let mut ready = waitable.writable().await?;
                    match ready.try_io(|_waited_for| (&*self.file).write(bytes)) {
                        Ok(result) => result,
                        Err(_would_block) => continue,
                    }
                }
            };
            match result {
                Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let held = Held::File(self.file.clone());
                    self.waitable = Some(watch(held, Interest::WRITABLE)?);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn form_name(form: Form) -> &'static str {
    match form {
        Form::Pipe => "stdin",
        Form::Terminal => "pty",
    }
}

fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(errno) => Errno::from_raw(errno).desc().to_lowercase(),
        None => error.to_string(),
    }
}
