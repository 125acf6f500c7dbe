//! One appliance without its edges, and an operator.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes},
    http::Request,
};
use http_body_util::BodyExt as _;
use sandboxo_api_admin::ZoneFacts;
use sandboxo_control::{Control, ControlConfig, CreateError, ImportTemplate};
use sandboxo_model::{NewSandbox, SandboxRecord};
use sandboxo_spool::Spool;
use sandboxo_store::Store;
use sandboxo_tasks::Tasks;
use sandboxo_zone_protocol::{
    Secret, TeamId,
    fake::{FakeZone, ManualClock, SeededRandom},
};
use serde_json::Value;
use tower::ServiceExt as _;

pub(crate) const TOKEN: &str = "the-operators-token";

pub(crate) struct World {
    pub(crate) control: Control,
    pub(crate) zone: Arc<FakeZone>,
    pub(crate) team: TeamId,
    router: Router,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Null where there is none.
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) fn message(&self) -> &str {
        assert_eq!(self.body["code"], self.status, "{self:?}");
        self.body["message"].as_str().unwrap()
    }
}

impl World {
    /// With a template `base`.
    pub(crate) async fn new() -> Self {
        let clock = Arc::new(ManualClock::default());
        let zone = FakeZone::new(clock.clone());
        let control = Control::start(
            ControlConfig::default(),
            Store::in_memory().unwrap(),
            Spool::temporary(),
            zone.clone(),
            clock,
            Arc::new(SeededRandom::new(5)),
            Tasks::new(),
        )
        .await
        .unwrap();
        let team = control
            .keys
            .ensure_first(|_key| Ok::<_, sandboxo_store::StoreError>(()))
            .await
            .unwrap()
            .unwrap()
            .record
            .team;
        let tar = Box::new(&b"a root"[..]);
        control.templates.import(team, ImportTemplate::new("base"), tar).await.unwrap();
        let facts = ZoneFacts {
            instance: "0a1b2c".into(),
            pool_size: 4,
            blanks: 2,
            freeze_after_seconds: 60,
            images: "/state/zone/images".into(),
            build: "1-new".into(),
            keeper_build: Arc::new(|| "1-old".to_owned()),
        };
        let router = sandboxo_api_admin::router(control.clone(), Secret::new(TOKEN), facts);
        Self { control, zone, team, router }
    }

    /// `line` is a method and a path below `/admin/v1`.
    pub(crate) async fn ask(&self, line: &str, body: &str) -> Answer {
        self.ask_as(Some(&format!("Bearer {TOKEN}")), line, body.to_owned().into()).await
    }

    pub(crate) async fn upload(&self, line: &str, pieces: Vec<std::io::Result<Bytes>>) -> Answer {
        let body = Body::from_stream(futures_util::stream::iter(pieces));
        self.ask_as(Some(&format!("Bearer {TOKEN}")), line, body).await
    }

    pub(crate) async fn ask_as(&self, who: Option<&str>, line: &str, body: Body) -> Answer {
        let (method, path) = line.split_once(' ').unwrap();
        let mut request = Request::builder()
            .method(method)
            .uri(format!("/admin/v1{path}"))
            .header("content-type", "application/json");
        if let Some(who) = who {
            request = request.header("authorization", who);
        }
        let response = self.router.clone().oneshot(request.body(body).unwrap()).await.unwrap();
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let body =
            if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).unwrap() };
        Answer { status, body }
    }

    pub(crate) async fn create(&self) -> Arc<SandboxRecord> {
        self.try_create(self.team).await.unwrap()
    }

    pub(crate) async fn try_create(&self, team: TeamId) -> Result<Arc<SandboxRecord>, CreateError> {
        let new = NewSandbox {
            template: "base".into(),
            timeout: Duration::from_mins(5),
            secure: true,
            env: [].into(),
            metadata: [].into(),
            internet: None,
            network: None,
            lifecycle: sandboxo_model::Lifecycle::default(),
            volumes: Vec::new(),
            tokens: sandboxo_model::Tokens::default(),
            idempotency_key: None,
        };
        self.control.sandboxes.create(team, new).await
    }
}
