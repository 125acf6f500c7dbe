//! `sandbox logs` and `sandbox metrics`: what happened in one, also after its end.

use std::time::Duration;

use anyhow::Result;
use reqwest::Method;
use serde::{Deserialize, Serialize};

use super::{
    Context,
    admin::{cell, rows},
    api::{self, segment},
    target::Target,
    words,
};
use crate::output::{self, Form};

#[derive(Debug, clap::Args)]
pub(crate) struct Logs {
    /// Which
    id: String,
    /// Go on until it ends
    #[arg(short, long)]
    follow: bool,
    /// Only of this level and worse: debug, info, warn, error
    #[arg(long)]
    level: Option<String>,
    /// Only lines whose message has this in it
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Metrics {
    /// Which
    id: String,
    /// How far back: 90s, 5m, 2h, 1d
    #[arg(long, default_value = "10m")]
    since: words::Duration,
}

/// Between two looks for new lines.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
struct Line {
    timestamp: String,
    level: String,
    message: String,
    #[serde(default)]
    fields: std::collections::BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Page {
    logs: Vec<Line>,
}

pub(crate) async fn logs(context: &Context, logs: Logs) -> Result<()> {
    let target = Target::find(context)?;
    let path = format!("/v2/sandboxes/{}/logs", segment(&logs.id));
    let mut news = News::default();
    loop {
        let mut query = vec![("limit", "1000".to_owned())];
        query.extend(news.cursor()?.map(|cursor| ("cursor", cursor)));
        query.extend(logs.level.clone().map(|level| ("level", level)));
        query.extend(logs.search.clone().map(|text| ("search", text)));
        let page: Page =
            api::json(target.ask(Method::GET, &path)?.query(&query).send().await).await?;
        let is_full = page.logs.len() == 1000;
        let fresh = news.of(page.logs);
        for line in &fresh {
            match context.form {
                Form::Json => output::print(&serde_json::to_string(line)?)?,
                Form::Human => output::print(&shown(line))?,
            }
        }
        if is_full && !fresh.is_empty() {
            continue;
        }
        if !logs.follow || news.is_over {
            return Ok(());
        }
        // A filter may hide the line that tells its end.
        if target.is_gone(&logs.id).await? {
            news.is_over = true;
            continue;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Pages overlap at their edges, since a cursor is a whole millisecond.
#[derive(Default)]
struct News {
    last: Vec<Line>,
    is_over: bool,
}

impl News {
    fn cursor(&self) -> Result<Option<String>> {
        let Some(line) = self.last.last() else { return Ok(None) };
        let at: sandboxo_zone_protocol::Timestamp = line.timestamp.parse()?;
        Ok(Some(at.as_millisecond().to_string()))
    }

    /// What was not there before.
    fn of(&mut self, page: Vec<Line>) -> Vec<Line> {
        let fresh: Vec<Line> =
            page.iter().filter(|line| !self.last.contains(line)).cloned().collect();
        if !page.is_empty() {
            self.last = page;
        }
        fresh
    }
}

fn shown(line: &Line) -> String {
    let Line { timestamp, level, message, fields } = line;
    let logger = fields.get("logger").map(String::as_str).unwrap_or_default();
    let fields: Vec<_> = fields
        .iter()
        .filter(|(name, _)| *name != "logger")
        .map(|(name, value)| format!(" {}={}", plain(name), plain(value)))
        .collect();
    let (at, level) = (output::moment(timestamp), level.to_uppercase());
    format!("{at} {level:5} {logger}: {}{}", plain(message), fields.concat())
}

/// A program inside may have written it, and this may be a terminal.
fn plain(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() })
        .collect()
}

pub(crate) async fn metrics(context: &Context, metrics: Metrics) -> Result<()> {
    let target = Target::find(context)?;
    let now = sandboxo_zone_protocol::Clock::now(&sandboxo_zone_protocol::SystemClock);
    let start = now.checked_sub(metrics.since.0).unwrap_or_default().as_second();
    let path = format!("/sandboxes/{}/metrics", segment(&metrics.id));
    let request = target.ask(Method::GET, &path)?.query(&[("start", start)]);
    let samples: serde_json::Value = api::json(request.send().await).await?;
    match context.form {
        Form::Json => output::print_json(&samples)?,
        Form::Human => {
            let rows: Vec<_> = rows(&samples).iter().map(row).collect();
            output::print(&output::table(["TIME", "CPU", "MEMORY", "CACHE", "DISK"], &rows))?;
        }
    }
    Ok(())
}

fn row(sample: &serde_json::Value) -> [String; 5] {
    let bytes =
        |field| output::bytes(sample.get(field).and_then(serde_json::Value::as_u64).unwrap_or(0));
    let cpu = sample.get("cpuUsedPct").and_then(serde_json::Value::as_f64).unwrap_or(0.0);
    [
        output::moment(&cell(sample, "timestamp")),
        format!("{cpu:.1} %"),
        format!("{} of {}", bytes("memUsed"), bytes("memTotal")),
        bytes("memCache"),
        format!("{} of {}", bytes("diskUsed"), bytes("diskTotal")),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(at: &str, message: &str) -> Line {
        Line {
            timestamp: format!("2026-01-01T00:00:{at}Z"),
            level: "info".into(),
            message: message.into(),
            fields: [("logger".to_owned(), "process".to_owned())].into(),
        }
    }

    #[test]
    fn lines_at_the_edge_of_two_pages_are_told_once() {
        let mut news = News::default();
        assert_eq!(news.cursor().unwrap(), None);
        let (a, b, c) = (line("01.000100", "a"), line("01.000200", "b"), line("01.000300", "c"));
        assert_eq!(news.of(vec![a.clone(), b.clone()]), [a.clone(), b.clone()]);
        assert_eq!(news.cursor().unwrap().as_deref(), Some("1767225601000"));
        assert_eq!(news.of(vec![a, b, c.clone()]), [c]);
        assert!(news.of(vec![]).is_empty());
        assert_eq!(news.cursor().unwrap().as_deref(), Some("1767225601000"));
    }

    #[test]
    fn a_line_cannot_write_to_the_terminal() {
        let mut told = line("01.5", "a\x1b[31m\nb");
        told.fields.insert("pid".into(), "7".into());
        assert_eq!(shown(&told), "2026-01-01T00:00:01Z INFO  process: a\\u{1b}[31m\\nb pid=7");
    }

    #[test]
    fn a_row_of_metrics() {
        let sample = json!({
            "timestamp": "2026-01-01T00:00:00.5Z", "cpuUsedPct": 12.34, "memUsed": 1 << 20,
            "memTotal": 512 << 20, "memCache": 0, "diskUsed": 1024, "diskTotal": 1 << 30,
        });
        assert_eq!(
            row(&sample),
            ["2026-01-01T00:00:00Z", "12.3 %", "1.0 MiB of 512 MiB", "0 B", "1.0 KiB of 1.0 GiB"]
        );
    }
}
