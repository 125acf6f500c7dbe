//! What can be done, whoever asks: sandboxes, templates, keys.
//!
//! Knows nothing of HTTP, and cannot tell one zone from another.
//! The record says what should be, the zone reports what is; one driver per live sandbox brings
//! the two together, and a request only ever waits for it.
#![forbid(unsafe_code)]

mod accounts;
mod context;
mod control;
mod driver;
mod fingerprint;
mod index;
mod keys;
mod loops;
mod notices;
mod samples;
mod sandboxes;
mod scope;
mod starts;
mod templates;
mod tokens;
mod zones;

pub use control::{Control, ControlConfig, StartError};
pub use keys::{Caller, KeyError, Keys, NewKey};
pub use sandboxes::{
    ConnectError, Connected, CreateError, HistoryError, KillError, ListError, ListQuery, Lookup,
    Metrics, NetworkError, Page, PauseError, ResumeError, Sandboxes, TimeoutError,
};
pub use scope::Scope;
pub use templates::{DeleteTemplateError, ImportTemplate, ImportTemplateError, Templates};
pub use zones::{ZoneStatus, Zones};
