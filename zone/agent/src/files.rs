//! `/files`: whole files over plain HTTP, read and written with constant memory.

mod compose;
mod conditions;
mod disposition;
mod download;
mod encoding;
mod metadata;
mod multipart;
mod refusal;
mod target;
mod upload;

pub(crate) use compose::{Composition, compose};
pub(crate) use download::download;
pub(crate) use refusal::Refusal;
pub(crate) use upload::upload;
