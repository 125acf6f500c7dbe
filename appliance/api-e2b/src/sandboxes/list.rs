//! `GET /v2/sandboxes`, with filters and pages, and `GET /sandboxes`, the older form.

use axum::{Json, extract::State, http::HeaderMap};
use sandboxo_control::ListQuery;

use crate::{
    ApiError, Surface,
    caller::Caller,
    query::{Asked, List, Running, pairs},
    view::Listed,
};

pub(super) async fn page(
    State(surface): State<Surface>,
    caller: Caller,
    Asked(list): Asked<List>,
) -> Result<(HeaderMap, Json<Vec<Listed>>), ApiError> {
    let page = surface.control.sandboxes.list(caller.team, list.try_into()?).await?;
    let mut headers = HeaderMap::new();
    headers.insert("x-total-running", page.running.into());
    if let Some(next) = page.next.and_then(|next| next.to_string().parse().ok()) {
        headers.insert("x-next-token", next);
    }
    let now = surface.control.sandboxes.now();
    Ok((headers, Json(page.items.iter().map(|record| Listed::new(record, now)).collect())))
}

/// All of them: its clients know no pages.
pub(super) async fn running(
    State(surface): State<Surface>,
    caller: Caller,
    Asked(asked): Asked<Running>,
) -> Result<Json<Vec<Listed>>, ApiError> {
    let metadata = pairs(asked.metadata.as_deref().unwrap_or_default());
    let mut query = ListQuery { metadata, ..ListQuery::default() };
    let mut listed = Vec::new();
    loop {
        let page = surface.control.sandboxes.list(caller.team, query.clone()).await?;
        let now = surface.control.sandboxes.now();
        listed.extend(page.items.iter().map(|record| Listed::new(record, now)));
        match page.next {
            Some(next) => query.token = Some(next.to_string()),
            None => return Ok(Json(listed)),
        }
    }
}
