//! How far a test of a report goes.

/// The numbers of the reports where the scaled one catches the same fault in less time.
pub fn scaled(short: usize, full: usize) -> usize {
    if std::env::var_os("SANDBOXO_ROWS_FULL").is_some() { full } else { short }
}
