//! The zone's network, between sandboxes that are threads and an internet that is a namespace.

mod guest;
mod headers;
mod names;
mod rules;
mod runsc;
mod secrets;
mod secure;
mod tunnel;
mod upkeep;
mod world;
