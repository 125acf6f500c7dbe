//! Lines of a sandbox's log: as text that holds JSON for old clients, as fields for new ones.

use std::collections::BTreeMap;

use sandboxo_model::LogEntry;
use sandboxo_zone_protocol::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};

/// `GET /sandboxes/{id}/logs`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LogLines {
    logs: Vec<LogLine>,
    log_entries: Vec<Entry>,
}

/// `GET /v2/sandboxes/{id}/logs`.
#[derive(Serialize)]
pub(crate) struct LogPage {
    logs: Vec<Entry>,
}

#[derive(Serialize)]
struct LogLine {
    timestamp: Timestamp,
    line: String,
}

#[derive(Serialize)]
struct Entry {
    timestamp: Timestamp,
    level: &'static str,
    message: String,
    fields: BTreeMap<String, String>,
}

impl LogLines {
    pub(crate) fn of(entries: Vec<LogEntry>) -> Self {
        Self {
            logs: entries.iter().map(LogLine::of).collect(),
            log_entries: entries.into_iter().map(Entry::of).collect(),
        }
    }
}

impl LogPage {
    pub(crate) fn of(entries: Vec<LogEntry>) -> Self {
        Self { logs: entries.into_iter().map(Entry::of).collect() }
    }
}

impl LogLine {
    fn of(entry: &LogEntry) -> Self {
        let LogEntry { at, level, logger, message, fields } = entry;
        let text = |text: &str| Value::String(text.to_owned());
        let mut line: Map<String, Value> =
            fields.iter().map(|(name, value)| (name.clone(), text(value))).collect();
        // Over fields of these names.
        line.insert("level".into(), text(level.name()));
        line.insert("logger".into(), text(logger));
        line.insert("message".into(), text(message));
        Self { timestamp: *at, line: Value::Object(line).to_string() }
    }
}

impl Entry {
    fn of(entry: LogEntry) -> Self {
        let LogEntry { at, level, logger, message, mut fields } = entry;
        fields.insert("logger".into(), logger);
        Self { timestamp: at, level: level.name(), message, fields }
    }
}
