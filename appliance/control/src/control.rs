//! Everything wired together.

use std::{path::PathBuf, sync::Arc, time::Duration};

use ipnet::Ipv4Net;
use parking_lot::{Mutex, RwLock};
use sandboxo_model::ZoneRecord;
use sandboxo_spool::Spool;
use sandboxo_store::{Read as _, Store, StoreError};
use sandboxo_tasks::Tasks;
use sandboxo_zone_protocol::{Clock, Random, Region, Secret, Zone, ZoneCode};
use tokio::sync::{Notify, Semaphore};

use crate::{
    Builds, Identities, IdentityConfig, Keys, Sandboxes, Secrets, Snapshots, Templates, Volumes,
    Zones,
    accounts::Accounts,
    builds::{MAX_UPLOAD_BYTES, Uploads},
    checkpoints::Checkpoints,
    context::Context,
    driver::Driver,
    index::Index,
    loops,
    starts::Starts,
    zones::Link,
};

/// A cheap clone of one thing.
#[derive(Clone)]
pub struct Control {
    pub sandboxes: Sandboxes,
    pub templates: Templates,
    pub builds: Builds,
    pub snapshots: Snapshots,
    pub volumes: Volumes,
    pub secrets: Secrets,
    pub identities: Identities,
    pub keys: Keys,
    pub zones: Zones,
}

#[derive(Debug, Clone)]
pub struct ControlConfig {
    /// How long a zone may take for a create.
    pub create_budget: Duration,
    /// How many creates a zone is asked for at once; the others wait for their teams' turns.
    pub starts_at_once: usize,
    /// How long a caller waits for a zone to confirm a kill or new rules.
    pub zone_budget: Duration,
    /// How long a zone may take for a pause, whether or not anybody waits.
    pub pause_budget: Duration,
    /// How many resumes may go on for requests whose clients have all left.
    pub resumes_for_nobody: usize,
    /// How long a dead sandbox can still be looked at.
    pub keep_dead: Duration,
    /// How long a repeat of a create is recognized. Not longer than `keep_dead`: the answer is in
    /// the record.
    pub keep_idempotency: Duration,
    /// How many templates are built at once; the others wait.
    pub builds_at_once: usize,
    /// How long one build may take from its turn on.
    pub build_budget: Duration,
    /// Where the files lie that builds copy.
    pub uploads: PathBuf,
    /// Of all that a team has sent and that is still kept.
    pub uploads_of_team: u64,
    /// Bytes that stay free where they lie.
    pub uploads_reserve: u64,
    /// Of each volume.
    pub volume_mib: u32,
    /// Signs the tokens for what is in volumes.
    pub volume_key: Secret,
    /// Seals the values of secrets, and the passwords of proxies.
    pub secrets_key: Secret,
    /// Where proxies of sandboxes may be beside the public internet.
    pub proxy_networks: Vec<Ipv4Net>,
    /// Who sandboxes say they are, and by whose word.
    pub identity: IdentityConfig,
}

impl Default for ControlConfig {
    fn default() -> Self {
        Self {
            create_budget: Duration::from_secs(30),
            starts_at_once: 8,
            zone_budget: Duration::from_secs(10),
            pause_budget: Duration::from_secs(80),
            resumes_for_nobody: 64,
            keep_dead: Duration::from_hours(24),
            keep_idempotency: Duration::from_hours(24),
            builds_at_once: 4,
            build_budget: Duration::from_hours(1),
            uploads: std::env::temp_dir().join("sandboxo-uploads"),
            // Four of the largest.
            uploads_of_team: 4 * MAX_UPLOAD_BYTES,
            uploads_reserve: 0,
            volume_mib: 10_240,
            volume_key: Secret::new("of nobody"),
            secrets_key: Secret::new("of nobody"),
            proxy_networks: Vec::new(),
            identity: IdentityConfig::default(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the zone is recorded in region {recorded}, and says it is in {told}")]
    RegionChanged { recorded: Region, told: Region },
    #[error("read the records")]
    Store(#[from] StoreError),
}

impl Control {
    /// Returns once the zone and the records agree; a zone that does not answer is asked again in
    /// the background.
    pub async fn start(
        config: ControlConfig,
        store: Store,
        spool: Spool,
        zone: Arc<dyn Zone>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        tasks: Tasks,
    ) -> Result<Self, StartError> {
        let zone_record = zone_record(&store, &*zone, &*random).await?;
        let read = store.read(|tx| {
            let accounts = Accounts::new(
                tx.all()?,
                tx.all()?,
                tx.all()?,
                tx.all()?,
                tx.all()?,
                tx.all()?,
                tx.all()?,
            );
            Ok::<_, StoreError>((accounts, tx.live_sandboxes()?))
        });
        let (accounts, sandboxes) = read.await?;
        let starts = Starts::new(config.starts_at_once);
        let for_nobody = Arc::new(Semaphore::new(config.resumes_for_nobody));
        let uploads =
            Uploads::at(config.uploads.clone(), config.uploads_of_team, config.uploads_reserve);
        let keyring = RwLock::new(Arc::new(config.identity.keyring.clone()));
        let context = Arc::new(Context {
            config,
            store,
            spool,
            zone,
            clock,
            random,
            tasks,
            index: Index::default(),
            accounts,
            starts,
            checkpoints: Checkpoints::default(),
            keyring,
            uploads,
            for_nobody,
            nudge_zone: Notify::new(),
            zone_code: zone_record.code,
        });
        let zones = Zones {
            context: Arc::clone(&context),
            link: Arc::new(Mutex::new(Link::of(zone_record))),
        };
        for record in sandboxes {
            Driver::take_over(&context, Arc::new(record));
        }
        let events = match zones.hello().await {
            Ok(events) => Some(events),
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the zone does not answer yet"
                );
                None
            }
        };
        let templates = Templates::new(Arc::clone(&context));
        templates.tell_images().await;
        let follow = zones.clone();
        context.tasks.spawn_critical("zone events", |stop| follow.follow(events, stop));
        loops::start(&context);
        let sandboxes = Sandboxes::new(Arc::clone(&context));
        let builds = Builds::new(Arc::clone(&context), sandboxes.clone(), templates.clone());
        builds.take_over().await?;
        let volumes = Volumes::new(Arc::clone(&context));
        volumes.take_over().await?;
        Ok(Self {
            sandboxes,
            templates,
            builds,
            snapshots: Snapshots::new(Arc::clone(&context)),
            volumes,
            secrets: Secrets::new(Arc::clone(&context)),
            identities: Identities::new(Arc::clone(&context)),
            keys: Keys::new(context),
            zones,
        })
    }
}

/// Made when the zone is seen first.
async fn zone_record(
    store: &Store,
    zone: &dyn Zone,
    random: &dyn Random,
) -> Result<ZoneRecord, StartError> {
    let info = zone.info();
    let fresh = ZoneRecord {
        name: info.name,
        region: info.region,
        code: ZoneCode::random(random),
        boot_id: None,
    };
    let write = store.write(move |tx| match tx.get::<ZoneRecord>(&fresh.name)? {
        Some(known) if known.region != fresh.region => {
            Err(StartError::RegionChanged { recorded: known.region, told: fresh.region })
        }
        Some(known) => Ok(known),
        None => {
            tx.put(&fresh);
            Ok(fresh)
        }
    });
    write.await
}
