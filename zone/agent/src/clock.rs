//! The only reader of the wall clock in the agent; decisions are given the time.

use jiff::Timestamp;

#[expect(clippy::disallowed_methods, reason = "this is where the others get it from")]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}
