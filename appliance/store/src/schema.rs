//! Every table: its key, its value, who writes it, when a row goes away.

use redb::TableDefinition;

/// Keys and values are bytes; `codec` and `tables` know what they mean.
pub(crate) type Definition = TableDefinition<'static, &'static [u8], &'static [u8]>;

/// Grows with a change that older programs can't read past.
pub(crate) const FORMAT: u32 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// Id → record of a sandbox that is not dead. Its driver writes it; it moves to
    /// `EndedSandboxes` when it dies.
    Sandboxes,
    /// Id → record of a dead one. Collected after a day or so.
    EndedSandboxes,
    /// When it died, id → nothing. Written and removed with its row of `EndedSandboxes`.
    EndedByTime,
    /// Id → record. Removed when the template is deleted.
    Templates,
    /// Id → record. Removed with the last of its builds.
    Snapshots,
    /// Id → record. Removed a while after it is over, or with its template.
    Builds,
    /// Build's id → what it has said. Written when it is over, removed with it.
    BuildLogs,
    /// Key → record. Removed when nothing has used it for long, or when there are too many.
    Layers,
    /// Id → record. Removed once the zone has removed the volume.
    Volumes,
    /// Id → record, its value sealed.
    Secrets,
    /// Id → record.
    Teams,
    /// Id → record. Removed when the key is revoked.
    ApiKeys,
    /// Name → record.
    Zones,
    /// Team, key → record. Collected when it expires.
    Idempotency,
    /// When it expires, row's key → nothing.
    IdempotencyByTime,
    /// Sequence number → change. Trimmed as it grows.
    Changes,
    /// Name of a reader → sequence number of the last change it has dealt with.
    Cursors,
    /// `format` → format of the file; `last_change` → the highest sequence number given.
    Meta,
}

impl Table {
    pub(crate) const ALL: [Self; 18] = [
        Self::Sandboxes,
        Self::EndedSandboxes,
        Self::EndedByTime,
        Self::Templates,
        Self::Snapshots,
        Self::Builds,
        Self::BuildLogs,
        Self::Layers,
        Self::Volumes,
        Self::Secrets,
        Self::Teams,
        Self::ApiKeys,
        Self::Zones,
        Self::Idempotency,
        Self::IdempotencyByTime,
        Self::Changes,
        Self::Cursors,
        Self::Meta,
    ];

    /// The names are in the file: they stay.
    pub(crate) fn definition(self) -> Definition {
        Definition::new(match self {
            Self::Sandboxes => "sandboxes",
            Self::EndedSandboxes => "ended_sandboxes",
            Self::EndedByTime => "ended_sandboxes_by_time",
            Self::Templates => "templates",
            Self::Snapshots => "snapshots",
            Self::Builds => "builds",
            Self::BuildLogs => "build_logs",
            Self::Layers => "layers",
            Self::Volumes => "volumes",
            Self::Secrets => "secrets",
            Self::Teams => "teams",
            Self::ApiKeys => "api_keys",
            Self::Zones => "zones",
            Self::Idempotency => "idempotency",
            Self::IdempotencyByTime => "idempotency_by_time",
            Self::Changes => "changes",
            Self::Cursors => "cursors",
            Self::Meta => "meta",
        })
    }
}
