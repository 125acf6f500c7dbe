//! Both ends over a real socketpair.

mod streams;
mod support;
mod takeover;
