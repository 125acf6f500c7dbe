//! One appliance without its edges.

use std::{sync::Arc, time::Duration};

use sandboxo_control::{Control, ControlConfig, ImportTemplate, NewKey};
use sandboxo_model::{NewSandbox, SandboxRecord, TemplateRecord};
use sandboxo_spool::Spool;
use sandboxo_store::{Read as _, Store};
use sandboxo_tasks::Tasks;
use sandboxo_zone_protocol::{
    SandboxId, TeamId,
    fake::{FakeZone, ManualClock, SeededRandom},
};

pub(crate) struct World {
    pub(crate) control: Control,
    pub(crate) zone: Arc<FakeZone>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) store: Store,
    pub(crate) spool: Spool,
    pub(crate) team: TeamId,
    pub(crate) key: NewKey,
    pub(crate) template: Arc<TemplateRecord>,
    random: Arc<SeededRandom>,
    config: ControlConfig,
    tasks: Tasks,
}

impl World {
    /// A first key, and a template `base`.
    pub(crate) async fn new() -> Self {
        Self::on(Store::in_memory().unwrap()).await
    }

    pub(crate) async fn on(store: Store) -> Self {
        Self::with(store, ControlConfig::default()).await
    }

    pub(crate) async fn with(store: Store, config: ControlConfig) -> Self {
        let clock = Arc::new(ManualClock::default());
        let zone = FakeZone::new(clock.clone());
        let spool = Spool::temporary();
        let random = Arc::new(SeededRandom::new(1));
        let tasks = Tasks::new();
        let control = Control::start(
            config.clone(),
            store.clone(),
            spool.clone(),
            zone.clone(),
            clock.clone(),
            random.clone(),
            tasks.clone(),
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
        let template =
            control.templates.import(team, import, Box::new(&b"a root"[..])).await.unwrap();
        Self { control, zone, clock, store, spool, team, key, template, random, config, tasks }
    }

    /// The process dies.
    pub(crate) async fn die(&mut self) {
        assert!(self.tasks.shut_down(Duration::from_mins(1)).await, "a task did not stop");
        self.store.close().await;
    }

    /// Another process starts on what the first has left.
    pub(crate) async fn start_again(&mut self) {
        self.tasks = Tasks::new();
        self.control = Control::start(
            self.config.clone(),
            self.store.clone(),
            self.spool.clone(),
            self.zone.clone(),
            self.clock.clone(),
            self.random.clone(),
            self.tasks.clone(),
        )
        .await
        .unwrap();
    }

    pub(crate) async fn restart(&mut self) {
        self.die().await;
        self.start_again().await;
    }

    pub(crate) async fn create(&self) -> Arc<SandboxRecord> {
        self.control.sandboxes.create(self.team, new()).await.unwrap()
    }

    pub(crate) fn is_listed(&self, id: SandboxId) -> bool {
        self.control.sandboxes.get(self.team, id).is_some()
    }

    /// Waits for what happens by itself.
    pub(crate) async fn until(&self, what: &str, reached: impl Fn(&Self) -> bool) {
        for _ in 0..1000 {
            if reached(self) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("never: {what}");
    }

    /// The record, in whatever phase.
    pub(crate) async fn record(&self, id: SandboxId) -> Arc<SandboxRecord> {
        self.control.sandboxes.find(self.team, id).await.unwrap().unwrap()
    }

    /// Waits until the store says that it is dead.
    pub(crate) async fn dead(&self, id: SandboxId) -> String {
        for _ in 0..1000 {
            let stored = self.store.read(move |tx| tx.sandbox(id)).await.unwrap().unwrap();
            if let sandboxo_model::Phase::Dead { reason, .. } = &stored.phase {
                return reason.to_string();
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{id} never died: {:?}", self.record(id).await.phase);
    }
}

/// From `base`, for five minutes.
pub(crate) fn new() -> NewSandbox {
    NewSandbox {
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
    }
}
