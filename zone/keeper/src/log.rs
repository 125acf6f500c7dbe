//! The keeper's log: its standard error, a file.

use std::{error::Error, io::Write};

/// A log that can't be written has nowhere to say so.
pub(crate) fn line(words: &str) {
    drop(writeln!(std::io::stderr(), "keeper: {words}"));
}

pub(crate) fn error(error: &dyn Error) {
    line(&chain(error));
}

pub(crate) fn chain(error: &dyn Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        words.push_str(": ");
        words.push_str(&error.to_string());
        source = error.source();
    }
    words
}
