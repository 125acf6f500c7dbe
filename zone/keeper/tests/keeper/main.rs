//! A real keeper with real children.

#[cfg(test)]
mod commands;
#[cfg(test)]
mod holding;
#[cfg(test)]
mod program;
#[cfg(test)]
mod upgrading;
#[cfg(test)]
mod zone;
