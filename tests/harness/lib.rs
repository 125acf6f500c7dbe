//! Starts the real binary for a test and stops it again.
