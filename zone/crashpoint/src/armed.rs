//! The order to die, in a file: a test can give it to a process that runs already.

use std::{path::PathBuf, sync::OnceLock};

use nix::{
    sys::signal::{Signal, kill},
    unistd::getpid,
};
use parking_lot::Mutex;

use crate::Point;

static FILE: OnceLock<PathBuf> = OnceLock::new();
static ORDER: Mutex<Option<Order>> = Mutex::new(None);

#[derive(Debug)]
struct Order {
    text: String,
    /// `None`: any.
    at: Option<Point>,
    reaches_left: u64,
}

/// From now on the file may hold `NAME:COUNT`: die when this point is reached for the so-manyth
/// time. `any` counts all of them.
pub fn obey(file: PathBuf) {
    if FILE.set(file).is_err() { /* the first file is the one */ }
}

fn parse(text: &str) -> Option<Order> {
    let (name, count) = text.trim().split_once(':')?;
    let at = match name {
        "any" => None,
        name => Some(*Point::ALL.iter().find(|point| point.name() == name)?),
    };
    let reaches_left = count.parse().ok().filter(|count| *count > 0)?;
    Some(Order { text: text.to_owned(), at, reaches_left })
}

pub(crate) fn crashpoint(point: Point) {
    let Some(file) = FILE.get() else { return };
    let mut order = ORDER.lock();
    let Ok(text) = std::fs::read_to_string(file) else {
        *order = None;
        return;
    };
    if order.as_ref().is_none_or(|order| order.text != text) {
        *order = parse(&text);
    }
    let Some(order) = order.as_mut().filter(|order| order.at.is_none_or(|at| at == point)) else {
        return;
    };
    order.reaches_left -= 1;
    if order.reaches_left == 0 {
        // SIGKILL runs no destructor and flushes nothing: what a crash of the process does.
        let killed = kill(getpid(), Signal::SIGKILL);
        unreachable!("this process outlived its end: {killed:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_understood() {
        for (text, understood) in [
            ("claim.recorded:1", true),
            ("any:57\n", true),
            ("any:0", false),
            ("claim.recorded", false),
            ("claim.recorded:x", false),
            ("nothing:1", false),
            ("", false),
        ] {
            assert_eq!(parse(text).is_some(), understood, "{text}");
        }
    }
}
