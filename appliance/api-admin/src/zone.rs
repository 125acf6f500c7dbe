//! `GET /zone`: what it is and how full.

use std::sync::Arc;

use axum::{Json, extract::State};
use sandboxo_zone_protocol::Capacity;
use serde::Serialize;

use crate::{AdminError, Operator, Surface};

/// What the binary knows of the zone that it runs in itself.
#[derive(Clone)]
pub struct ZoneFacts {
    /// Stands in the name of everything that it makes on the host.
    pub instance: String,
    /// How many sandboxes it keeps ready.
    pub pool_size: u32,
    pub blanks: u32,
    /// How long nobody uses a sandbox before it is frozen; 0: never.
    pub freeze_after_seconds: u64,
    /// The folder with its images.
    pub images: std::path::PathBuf,
    /// Which program the appliance is.
    pub build: String,
    /// Which one its keeper is.
    pub keeper_build: Arc<dyn Fn() -> String + Send + Sync>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct View {
    name: String,
    region: String,
    ready: bool,
    boot_id: Option<String>,
    instance: String,
    pool_size: u32,
    blanks: u32,
    freeze_after_seconds: u64,
    images: std::path::PathBuf,
    build: String,
    keeper_build: String,
    capacity: Option<CapacityView>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CapacityView {
    /// The zone tells it every 5 s.
    told_at: String,
    running: u32,
    limit: u32,
    warm: u32,
    blanks: u32,
    frozen: u32,
    free_memory_mib: u64,
    free_disk_mib: u64,
}

pub(crate) async fn show(
    State(surface): State<Surface>,
    _operator: Operator,
) -> Result<Json<View>, AdminError> {
    let status = surface.control.zones.list().into_iter().next().ok_or(AdminError::Unavailable)?;
    let ZoneFacts {
        instance,
        pool_size,
        blanks,
        freeze_after_seconds,
        images,
        build,
        keeper_build,
    } = (*surface.zone).clone();
    Ok(Json(View {
        name: status.info.name.to_string(),
        region: status.info.region.to_string(),
        ready: status.ready,
        boot_id: status.boot_id,
        instance,
        pool_size,
        blanks,
        freeze_after_seconds,
        images,
        build,
        keeper_build: keeper_build(),
        capacity: status.capacity.map(|(capacity, told_at)| {
            let Capacity { running, limit, warm, blanks, frozen, free_memory_mib, free_disk_mib } =
                capacity;
            let told_at = told_at.to_string();
            CapacityView {
                told_at,
                running,
                limit,
                warm,
                blanks,
                frozen,
                free_memory_mib,
                free_disk_mib,
            }
        }),
    }))
}
