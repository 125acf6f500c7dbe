//! One appliance without its edges, and a client that sees whole answers.

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    http::{HeaderMap, Request},
};
use http_body_util::BodyExt as _;
use sandboxo_api_e2b::RateLimits;
use sandboxo_control::{Control, ControlConfig, ImportTemplate};
use sandboxo_model::TemplateRecord;
use sandboxo_spool::Spool;
use sandboxo_store::Store;
use sandboxo_tasks::Tasks;
use sandboxo_zone_protocol::{
    TeamId,
    fake::{FakeZone, ManualClock, SeededRandom},
};
use serde_json::Value;
use tower::ServiceExt as _;

pub(crate) struct World {
    pub(crate) control: Control,
    pub(crate) zone: Arc<FakeZone>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) team: TeamId,
    pub(crate) template: Arc<TemplateRecord>,
    router: Router,
    key: String,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    /// Null where there is none.
    pub(crate) body: Value,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(RateLimits::default()).await
    }

    pub(crate) async fn with(rates: RateLimits) -> Self {
        let clock = Arc::new(ManualClock::default());
        let zone = FakeZone::new(clock.clone());
        let control = Control::start(
            ControlConfig::default(),
            Store::in_memory().unwrap(),
            Spool::temporary(),
            zone.clone(),
            clock.clone(),
            Arc::new(SeededRandom::new(7)),
            Tasks::new(),
        )
        .await
        .unwrap();
        let key = control
            .keys
            .ensure_first(|_key| Ok::<_, sandboxo_store::StoreError>(()))
            .await
            .unwrap()
            .unwrap();
        let team = key.record.team;
        let import = ImportTemplate::new("base");
        let tar = Box::new(&b"a root"[..]);
        let template = control.templates.import(team, import, tar).await.unwrap();
        let router = sandboxo_api_e2b::router(control.clone(), None, rates);
        let key = key.secret.expose().to_owned();
        Self { control, zone, clock, team, template, router, key }
    }

    pub(crate) async fn ask(&self, line: &str, body: &str) -> Answer {
        self.ask_with(line, body, &[("X-API-KEY", &self.key)]).await
    }

    /// `line` is a method and a path.
    pub(crate) async fn ask_with(
        &self,
        line: &str,
        body: &str,
        headers: &[(&str, &str)],
    ) -> Answer {
        let (method, path) = line.split_once(' ').unwrap();
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let body =
            if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).unwrap() };
        Answer { status, headers, body }
    }

    pub(crate) async fn ask_with_key(&self, line: &str, body: &str, more: (&str, &str)) -> Answer {
        self.ask_with(line, body, &[("X-API-KEY", &self.key), more]).await
    }

    /// The id of a new one from `base`.
    pub(crate) async fn create(&self) -> String {
        let created = self.ask("POST /v2/sandboxes", r#"{"templateID":"base"}"#).await;
        assert_eq!(created.status, 201, "{:?}", created.body);
        created.body["sandboxID"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn end_at(&self, id: &str) -> String {
        let detail = self.ask(&format!("GET /sandboxes/{id}"), "").await;
        detail.body["endAt"].as_str().unwrap().to_owned()
    }
}
