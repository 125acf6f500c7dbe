//! `/sandboxes`: every team's, and why those that ended did.

use std::collections::BTreeSet;

use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
};
use sandboxo_control::{ListQuery, Scope};
use sandboxo_model::{DeathReason, Phase, PhaseKind, SandboxRecord};
use sandboxo_zone_protocol::{EndReason, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{AdminError, Operator, Surface};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    /// Also those that ended, while their records are kept.
    #[serde(default)]
    dead: bool,
    token: Option<String>,
}

#[derive(Serialize)]
pub(crate) struct Page {
    sandboxes: Vec<View>,
    /// For the next page; `null` on the last.
    token: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct View {
    id: String,
    team: String,
    template: String,
    zone: String,
    phase: String,
    /// Of a dead one: a word for programs.
    reason: Option<&'static str>,
    /// The same for people.
    why: Option<String>,
    started_at: Timestamp,
    expires_at: Option<Timestamp>,
    paused_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
}

pub(crate) async fn list(
    State(surface): State<Surface>,
    _: Operator,
    query: Result<Query<Asked>, QueryRejection>,
) -> Result<Json<Page>, AdminError> {
    let Query(Asked { dead, token }) =
        query.map_err(|rejection| AdminError::Invalid(rejection.body_text()))?;
    let mut phases = BTreeSet::from([
        PhaseKind::Starting,
        PhaseKind::Running,
        PhaseKind::Pausing,
        PhaseKind::Paused,
        PhaseKind::Resuming,
        PhaseKind::Killing,
    ]);
    if dead {
        phases.insert(PhaseKind::Dead);
    }
    let query = ListQuery { phases, token, ..ListQuery::default() };
    let page = surface.control.sandboxes.list(Scope::Operator, query).await?;
    Ok(Json(Page {
        sandboxes: page.items.iter().map(|record| view(&surface, record)).collect(),
        token: page.next.map(|next| next.to_string()),
    }))
}

fn view(surface: &Surface, record: &SandboxRecord) -> View {
    let (expires_at, paused_at, ended_at, ended) = match &record.phase {
        Phase::Running { expires_at, .. } | Phase::Pausing { expires_at, .. } => {
            (Some(*expires_at), None, None, None)
        }
        Phase::Paused { paused_at, .. } | Phase::Resuming { paused_at, .. } => {
            (None, Some(*paused_at), None, None)
        }
        Phase::Starting { .. } | Phase::Killing { .. } => (None, None, None, None),
        Phase::Dead { at, reason, .. } => (None, None, Some(*at), Some(reason)),
    };
    let team = surface.control.keys.team(record.team);
    View {
        id: record.id.label(),
        team: team.map(|team| team.name.clone()).unwrap_or_default(),
        template: record.template.alias.clone().unwrap_or_else(|| record.template.id.to_string()),
        zone: record.zone.to_string(),
        phase: record.phase.kind().to_string(),
        reason: ended.map(word),
        why: ended.map(ToString::to_string),
        started_at: record.started_at(),
        expires_at,
        paused_at,
        ended_at,
    }
}

fn word(reason: &DeathReason) -> &'static str {
    match reason {
        DeathReason::StartFailed(_) => "start_failed",
        DeathReason::Missing => "missing",
        DeathReason::CheckpointLost => "checkpoint_lost",
        DeathReason::Ended(EndReason::Killed) => "killed",
        DeathReason::Ended(EndReason::TimedOut) => "timed_out",
        DeathReason::Ended(EndReason::OutOfMemory) => "out_of_memory",
        DeathReason::Ended(EndReason::Crashed) => "crashed",
        DeathReason::Ended(EndReason::AgentLost) => "agent_lost",
        DeathReason::Ended(EndReason::KeeperLost) => "keeper_lost",
        DeathReason::Ended(EndReason::ZoneRestarted) => "zone_restarted",
        DeathReason::Ended(EndReason::CheckpointFailed) => "checkpoint_failed",
    }
}
