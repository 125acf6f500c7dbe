//! What a command says: results on standard output, notes and progress on standard error.
//!
//! People get tables; `--json`, or a standard output that is no terminal, gets JSON.

use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Human,
    Json,
}

impl Form {
    pub(crate) fn choose(json: bool) -> Self {
        if json || !io::stdout().is_terminal() { Self::Json } else { Self::Human }
    }
}

/// A reader that left, as `head` does, is no failure of ours.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

pub(crate) fn print_json(value: &impl Serialize) -> io::Result<()> {
    print(&serde_json::to_string_pretty(value)?)
}

/// Nothing depends on whether a note could be written.
pub(crate) fn note(text: &str) {
    let mut out = io::stderr().lock();
    if writeln!(out, "{text}").is_err() { /* nobody reads notes */ }
}

/// Columns as wide as their widest cell, two spaces apart; the last one is not padded.
pub(crate) fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let mut widths = head.map(|cell| cell.chars().count());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: [&str; N]| {
        let mut line = String::new();
        for (cell, width) in cells.iter().zip(widths) {
            line.push_str(cell);
            let padding = width.saturating_sub(cell.chars().count()) + 2;
            line.extend(std::iter::repeat_n(' ', padding));
        }
        line.trim_end().to_owned()
    };
    let mut lines = vec![line(head)];
    lines.extend(rows.iter().map(|row| line(row.each_ref().map(String::as_str))));
    lines.join("\n")
}

/// `1.5 GiB`; whole numbers below a KiB.
pub(crate) fn bytes(count: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    #[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
    let mut size = count as f64 / 1024.0;
    let mut unit = "KiB";
    for next in units.iter().skip(1) {
        if size < 1024.0 {
            break;
        }
        size /= 1024.0;
        unit = next;
    }
    if size < 10.0 { format!("{size:.1} {unit}") } else { format!("{size:.0} {unit}") }
}

/// A moment as the surfaces write it, without the fraction of its second.
pub(crate) fn moment(text: &str) -> String {
    match text.split_once('.') {
        Some((whole, _)) => format!("{whole}Z"),
        None => text.to_owned(),
    }
}

/// Long work. On a terminal a bar or a spinner; elsewhere one line when a phase begins.
pub(crate) struct Progress {
    bar: ProgressBar,
    plain: bool,
}

impl Progress {
    pub(crate) fn spinner(what: &str) -> Self {
        let progress = Self::new(ProgressBar::new_spinner(), "{spinner} {msg} {elapsed}");
        progress.bar.enable_steady_tick(std::time::Duration::from_millis(120));
        progress.phase(what);
        progress
    }

    /// Of so many bytes; 0 when nobody knows. Says nothing where there is no terminal.
    pub(crate) fn of_bytes(what: &str, total: u64) -> Self {
        let (bar, form) = if total == 0 {
            (ProgressBar::new_spinner(), "{spinner} {msg} {bytes} {bytes_per_sec}")
        } else {
            (
                ProgressBar::new(total),
                "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
            )
        };
        let progress = Self::new(bar, form);
        progress.detail(what);
        progress
    }

    /// Of so many steps.
    pub(crate) fn of_steps(what: &str, total: u64) -> Self {
        let progress = Self::new(ProgressBar::new(total), "{msg} {wide_bar} {pos}/{len} {eta}");
        progress.phase(what);
        progress
    }

    fn new(bar: ProgressBar, form: &str) -> Self {
        let plain = !io::stderr().is_terminal();
        bar.set_draw_target(if plain {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr()
        });
        if let Ok(style) = ProgressStyle::with_template(form) {
            bar.set_style(style);
        }
        Self { bar, plain }
    }

    pub(crate) fn phase(&self, what: &str) {
        self.bar.set_message(what.to_owned());
        if self.plain {
            note(what);
        }
    }

    /// Shown on a terminal only: it changes too often for a log.
    pub(crate) fn detail(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    pub(crate) fn add(&self, steps: u64) {
        self.bar.inc(steps);
    }

    pub(crate) fn bar(&self) -> ProgressBar {
        self.bar.clone()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_as_wide_as_its_cells() {
        let rows = [["a".to_owned(), "long cell".to_owned()], ["bcd".to_owned(), String::new()]];
        assert_eq!(table(["ID", "NAME"], &rows), "ID   NAME\na    long cell\nbcd");
        assert_eq!(table(["ID"], &[]), "ID");
        assert_eq!(table(["A", "B"], &[["é".to_owned(), "x".to_owned()]]), "A  B\né  x");
    }

    #[test]
    fn moments() {
        assert_eq!(moment("2026-01-01T00:00:00.123Z"), "2026-01-01T00:00:00Z");
        assert_eq!(moment("2026-01-01T00:00:00Z"), "2026-01-01T00:00:00Z");
        assert_eq!(moment(""), "");
    }

    #[test]
    fn sizes() {
        for (count, shown) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (10 * 1024, "10 KiB"),
            (1024 * 1024 - 1, "1024 KiB"),
            (216_668_160, "207 MiB"),
            (3 * 1024 * 1024 * 1024 / 2, "1.5 GiB"),
            (u64::MAX, "16777216 TiB"),
        ] {
            assert_eq!(bytes(count), shown);
        }
    }
}
