//! Time is given, never taken: decisions get a `Timestamp`, shells hold a `Clock`.

pub use jiff::Timestamp;

pub trait Clock: Send + Sync {
    fn now(&self) -> Timestamp;
}

/// The only reader of the wall clock in the workspace.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the Clock the others take")]
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}
