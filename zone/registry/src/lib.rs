//! What an OCI registry, or an archive, has of an image: its manifest, what its maker says of it,
//! and its layers.
//!
//! Anybody with a key names images, so a registry is believed nothing: what it sends is bounded
//! and compared with its digest, and redirects lead to the public internet or nowhere.
#![forbid(unsafe_code)]

mod allowed;
mod archive;
mod challenge;
mod client;
mod manifest;
mod pull;

/// A list of platforms, perhaps in another one, and the image.
const MAX_DOCUMENTS: usize = 3;

pub use allowed::{BadRegistry, Registry};
pub use archive::{ArchiveError, Archived, archived};
pub use pull::{Found, Layer, Registries};
