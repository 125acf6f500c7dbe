//! Both ends over a real socketpair.

#[cfg(test)]
mod streams;
#[cfg(test)]
mod support;
#[cfg(test)]
mod takeover;
