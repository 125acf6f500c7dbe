//! What can be done, whoever asks: sandboxes, templates, keys.
//!
//! Knows nothing of HTTP, and cannot tell one zone from another.
#![forbid(unsafe_code)]

mod control;
mod keys;
mod sandboxes;
mod scope;
mod templates;

pub use control::{Control, ControlConfig, StartError};
pub use keys::{Caller, KeyError, Keys, NewKey};
pub use sandboxes::{
    ConnectError, CreateError, KillError, ListError, ListQuery, Lookup, Metrics, NetworkError,
    Page, Sandboxes, TimeoutError,
};
pub use scope::Scope;
pub use templates::{DeleteTemplateError, ImportTemplate, ImportTemplateError, Templates};
