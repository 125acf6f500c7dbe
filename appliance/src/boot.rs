//! Wiring, in the order in which things come to be.

use std::{
    io::{self, IsTerminal as _},
    net::SocketAddr,
    num::NonZeroU32,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sandboxo_api_admin::ZoneFacts;
use sandboxo_api_e2b::RateLimits;
use sandboxo_control::{Builds, Control, ControlConfig, IdentityConfig};
use sandboxo_front_door::{Domains, FrontDoor, FrontDoorConfig, ServeConfig, Site};
use sandboxo_spool::{Bounds, Spool};
use sandboxo_store::Store;
use sandboxo_tasks::Tasks;
use sandboxo_zone::{Limits, LocalZone, ZoneConfig, starts_at_once};
use sandboxo_zone_protocol::{Clock as _, Random, Secret, SystemClock, SystemRandom};
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;

use crate::{
    config::Config,
    hex::hex,
    output, programs,
    shutdown::{self, End, Signals},
    state::StateFolder,
};

/// From a create's start until its agent answers; a cold start on a busy host takes seconds.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// An import whose template is being recorded, and a create of the image before, are faster.
const IMAGE_GRACE: Duration = Duration::from_mins(10);

/// Of sandboxes that have no domain.
const DEFAULT_TRUST_DOMAIN: &str = "sandboxo";

pub(crate) async fn serve(config: Config) -> Result<End> {
    raise_open_files();
    let mut signals = Signals::listen().context("listen for signals")?;
    let tasks = Tasks::new();
    let Started { store, spool, zone, builds } = tokio::select! {
        started = start(&config, &tasks) => started?,
        () = signals.next() => return Ok(End::Asked),
    };
    shutdown::notify("READY=1");
    let drained = async {
        // A build may be what something crashed of.
        if !tasks.stop().is_cancelled()
            && let Err(error) = builds.set_aside().await
        {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "this end counts as an attempt of the builds that it cuts off"
            );
        }
        zone.drain().await;
    };
    let end = shutdown::run(&mut signals, &tasks, drained).await;
    // Last, so that what the others wrote on their way out is on the disk.
    spool.close().await;
    store.close().await;
    Ok(end)
}

/// Each sandbox and each connection costs some, and the usual soft limit is for older programs.
fn raise_open_files() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        tracing::warn!(%error, "raise the limit of open files");
    }
}

/// What has to come to its end in order.
struct Started {
    store: Store,
    spool: Spool,
    zone: Arc<LocalZone>,
    builds: Builds,
}

/// Each line needs the ones above it. What fails here, fails before anything was served.
async fn start(config: &Config, tasks: &Tasks) -> Result<Started> {
    let state = StateFolder::at(&config.state);
    state.make()?;
    let store = Store::open(state.root()).context("open the records")?;
    // Before anything slow: a port that is taken is told at once.
    let (listener, address) = bind(config.listen()).await?;

    let (clock, random) = (Arc::new(SystemClock), Arc::new(SystemRandom));
    let zone = zone_config(config, &state)?;
    let mut facts = ZoneFacts {
        instance: zone.instance.clone(),
        pool_size: zone.warm,
        blanks: zone.blanks,
        freeze_after_seconds: config.zone.freeze_after_seconds,
        images: zone.state.join("images"),
        build: zone.build.clone(),
        keeper_build: Arc::new(String::new),
    };
    let zone = LocalZone::start(zone, clock.clone(), random.clone(), tasks.clone())
        .await
        .context("start the zone; `sandboxo doctor` may know more")?;
    let keeper = zone.clone();
    facts.keeper_build = Arc::new(move || keeper.keeper_build());
    let spool = Spool::open(&state.spool(), bounds(config));
    let control = ControlConfig {
        starts_at_once: starts_at_once(),
        uploads: state.uploads(),
        uploads_reserve: config.limits.disk_reserve_mib << 20,
        volume_mib: config.limits.volume_mib,
        volume_key: state.secret_or_new("volume-key", &*random)?,
        secrets_key: state.secret_or_new("secrets-key", &*random)?,
        proxy_networks: config.zone.proxy_networks.clone(),
        identity: identity(config, &state, address, &*random)?,
        ..ControlConfig::default()
    };
    let control = Control::start(
        control,
        store.clone(),
        spool.clone(),
        zone.clone(),
        clock,
        random.clone(),
        tasks.clone(),
    )
    .await
    .context("start the control")?;

    let token = match &config.token {
        Some(token) => token.clone(),
        None => state.secret_or_new("token", &*random)?,
    };
    first_key(&control, &state).await?;

    let builds = control.builds.clone();
    listen(config, listener, control, token, facts, tasks);
    let url = format!("http://{address}");
    state.write_address(&url).context("write down the address")?;
    tracing::info!(
        url,
        state = %state.root().display(),
        version = env!("CARGO_PKG_VERSION"),
        "serving the E2B surface, the admin surface and the data plane"
    );
    Ok(Started { store, spool, zone, builds })
}

/// Who vouches for sandboxes.
fn identity(
    config: &Config,
    state: &StateFolder,
    address: SocketAddr,
    random: &dyn Random,
) -> Result<IdentityConfig> {
    let issuer = config.identity.issuer.clone().map_or_else(
        || match &config.domain {
            // Where clients go that are told the domain and nothing else.
            Some(domain) => format!("https://api.{domain}").parse(),
            None => format!("http://{address}").parse(),
        },
        Ok,
    );
    let name = config.domain.as_deref().and_then(|domain| domain.split(':').next());
    let trust_domain = config
        .identity
        .trust_domain
        .clone()
        .map_or_else(|| name.unwrap_or(DEFAULT_TRUST_DOMAIN).parse(), Ok);
    Ok(IdentityConfig {
        issuer: issuer.context("identity.issuer")?,
        trust_domain: trust_domain.context("identity.trust_domain")?,
        keyring: state.keyring(random, SystemClock.now())?,
        keep: Arc::new(state.clone()),
    })
}

fn bounds(config: &Config) -> Bounds {
    Bounds {
        bytes: config.spool.max_mib << 20,
        age: Duration::from_secs(config.spool.max_age_hours * 3600),
    }
}

async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr)> {
    let listener =
        TcpListener::bind(address).await.with_context(|| format!("listen on {address}"))?;
    let address = listener.local_addr().context("ask for the own address")?;
    Ok((listener, address))
}

/// Kept before it is known, and known before it is shown.
async fn first_key(control: &Control, state: &StateFolder) -> Result<()> {
    let folder = state.clone();
    let keep = move |key: &Secret| -> Result<()> { Ok(folder.keep("api-key", key.expose())?) };
    if let Some(made) = control.keys.ensure_first(keep).await.context("make the first API key")? {
        let path = state.root().join("api-key");
        let path = path.display();
        // A file or a journal would keep it for whoever may read those.
        output::note(&if io::stderr().is_terminal() {
            format!(
                "the first API key, shown this once and kept in {path}: {}",
                made.secret.expose()
            )
        } else {
            format!("the first API key is kept in {path}")
        });
    }
    Ok(())
}

/// What zone `local1` is told. `down` needs it without a zone.
pub(crate) fn zone_config(config: &Config, state: &StateFolder) -> Result<ZoneConfig> {
    let instance = instance(state.root());
    let program = std::env::current_exe().context("find this program")?;
    Ok(ZoneConfig {
        name: config.zone.name.clone(),
        region: config.region,
        state: state.zone(),
        run: PathBuf::from("/run/sandboxo").join(&instance),
        instance,
        runsc: programs::runsc(config)?,
        agent: programs::agent(config)?,
        build: programs::build(&program)?,
        keeper: program,
        warm: config.pool.size,
        blanks: config.pool.blanks,
        limits: Limits {
            sandboxes: config.limits.sandboxes,
            memory_reserve_mib: config.limits.memory_reserve_mib,
            memory_overcommit: config.limits.memory_overcommit,
            disk_reserve_mib: config.limits.disk_reserve_mib,
        },
        resolvers: config.zone.resolvers.iter().map(|resolver| resolver.0).collect(),
        proxy_networks: config.zone.proxy_networks.clone(),
        registries: config.images.registries.clone(),
        pull_max_mib: config.images.max_mib,
        image_grace: IMAGE_GRACE,
        freeze_after: match config.zone.freeze_after_seconds {
            0 => None,
            seconds => Some(Duration::from_secs(seconds)),
        },
        start_timeout: START_TIMEOUT,
    })
}

/// Names everything that this state folder's appliance makes on the host.
fn instance(state: &Path) -> String {
    let digest = Sha256::digest(state.as_os_str().as_encoded_bytes());
    hex(digest.get(..3).unwrap_or_default())
}

/// Both planes on one port.
fn listen(
    config: &Config,
    listener: TcpListener,
    control: Control,
    token: Secret,
    facts: ZoneFacts,
    tasks: &Tasks,
) {
    let rates = RateLimits {
        mode: config.rates.mode,
        list: NonZeroU32::new(config.rates.list_per_second),
        delete: NonZeroU32::new(config.rates.delete_per_second),
    };
    let router = sandboxo_api_e2b::router(control.clone(), config.domain.clone(), rates)
        .merge(sandboxo_api_admin::router(control.clone(), token.clone(), facts));
    let door = FrontDoorConfig {
        domains: Domains::new(config.domain.as_deref()),
        operator_token: Some(token),
        ..FrontDoorConfig::default()
    };
    let site = Site::new(FrontDoor::new(control, door, tasks.clone()), router);
    let connections = tasks.clone();
    tasks.spawn_critical("http", |stop| {
        sandboxo_front_door::serve(listener, site, ServeConfig::default(), connections, stop)
    });
}
