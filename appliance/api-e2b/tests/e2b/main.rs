//! The surface through its real router, over real control, an in-memory store and a fake zone.

#[cfg(test)]
mod create;
#[cfg(test)]
mod errors;
#[cfg(test)]
mod identity;
#[cfg(test)]
mod life;
#[cfg(test)]
mod list;
#[cfg(test)]
mod logs;
#[cfg(test)]
mod rates;
#[cfg(test)]
mod secrets;
#[cfg(test)]
mod sleep;
#[cfg(test)]
mod snapshots;
#[cfg(test)]
mod templates;
#[cfg(test)]
mod world;
