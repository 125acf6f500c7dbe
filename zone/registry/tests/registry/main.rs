//! What comes of a name, by real HTTP.

#[cfg(test)]
mod pull;
