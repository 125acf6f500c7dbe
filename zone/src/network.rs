//! The zone's network: one namespace for all sandboxes of this host, and in it a link to each.
//!
//! Everything is named by the instance, so that what a killed process leaves behind is found.
//! The rules of a sandbox live in the kernel and stay in force while nobody is there.

mod book;
mod handover;
mod host;
mod lease;
mod leftovers;
mod namespace;
mod netlink;
mod nft;
mod plan;
mod rules;
mod worker;
mod zone_side;

use std::{
    collections::BTreeSet,
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use ipnet::Ipv4Net;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use parking_lot::Mutex;
use sandboxo_crashpoint::{Point, crashpoint};
use sandboxo_egress::{
    Guests,
    dns::{self, Resolvers},
    proxy::{Interception, NewSocket, Proxy},
};
use sandboxo_tasks::{Stop, Tasks, every};
use sandboxo_zone_protocol::{Random, SystemRandom, Vault};
use tokio::sync::Notify;

use self::{book::Book, host::Host, netlink::Changes, plan::Plan, worker::Worker};

pub(crate) use self::handover::Handover;
pub use self::{
    host::HostError,
    lease::{Lease, LeaseRecord},
    leftovers::Census,
    nft::NftError,
};

/// How often the pool and the host are looked at without being asked to.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// How many links are kept ready.
pub(crate) const READY: usize = 8;

pub struct NetworkConfig {
    /// Names everything on the host; at most 10 letters and digits.
    pub instance: String,
    /// Empty: those of the host's `/etc/resolv.conf`.
    pub resolvers: Vec<SocketAddr>,
    pub uplink: Uplink,
    /// How many links are kept ready.
    pub ready: usize,
    pub random: Arc<dyn Random>,
    /// Where requests are given headers.
    pub interception: Interception,
    /// Where sandboxes' own proxies may be beside the public internet.
    pub proxy_networks: Vec<Ipv4Net>,
}

/// How sandboxes reach the internet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Uplink {
    /// The host forwards for the zone's one link, behind its own address.
    Forward,
    /// Not at all.
    None,
}

impl NetworkConfig {
    pub fn new(instance: impl Into<String>, interception: Interception) -> Self {
        Self {
            instance: instance.into(),
            resolvers: Vec::new(),
            uplink: Uplink::Forward,
            ready: READY,
            random: Arc::new(SystemRandom),
            interception,
            proxy_networks: Vec::new(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    #[error("an instance is named by 1 to 10 lowercase letters and digits")]
    BadInstance,
    #[error("the host uses every private network that sandboxes could have")]
    NoFreeNetwork,
    #[error("the zone's limit of {0} sandboxes with a network is reached")]
    Exhausted(usize),
    #[error("the sandbox's network is gone")]
    NotFound,
    #[error("the zone's network was stopped")]
    Stopped,
    #[error("make {what}")]
    Make { what: String, source: io::Error },
    #[error("remove {what}")]
    Remove { what: String, source: io::Error },
    #[error("change the rules")]
    Rules(#[from] NftError),
    #[error("open the way out")]
    Host(#[from] HostError),
    /// Several callers may have waited for the same thing.
    #[error("prepare a sandbox's network")]
    Prepare(#[source] Arc<NetworkError>),
}

fn making(what: &str) -> impl Fn(io::Error) -> NetworkError {
    move |source| NetworkError::Make { what: what.to_owned(), source }
}

/// A cheap clone.
#[derive(Clone)]
pub struct Network {
    inner: Arc<Inner>,
}

struct Inner {
    plan: Plan,
    uplink: Uplink,
    /// Makes and removes links; lives in the zone's namespace.
    links: Worker,
    /// Runs nft; lives in the zone's namespace too. Apart from `links`, so that a policy never
    /// waits for a link that is removed.
    rules: Worker,
    /// Looks after the host's side.
    host: Worker,
    resolvers: Resolvers,
    guests: Guests,
    fixed_resolvers: bool,
    mtu: u32,
    state: Mutex<State>,
    /// What leaves is removed by one at a time, so that a number is free only once.
    removing: tokio::sync::Mutex<()>,
    /// There may be something to prepare or to remove.
    work: Notify,
    /// Something is ready, or won't be.
    prepared: Notify,
}

struct State {
    book: Book,
    /// Callers who found nothing ready.
    waiting: usize,
    /// How often preparing failed, and why the last time.
    failures: u64,
    failure: Option<Arc<NetworkError>>,
    host: Host,
    closed: bool,
}

impl Network {
    /// Makes what is missing of the zone's network. What sandboxes of an earlier process have is
    /// left as it is, until it is adopted or swept.
    pub async fn start(config: NetworkConfig, tasks: &Tasks) -> Result<Self, NetworkError> {
        let NetworkConfig {
            instance,
            resolvers: given,
            uplink,
            ready,
            random,
            interception,
            proxy_networks,
        } = config;
        let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        if !(1..=10).contains(&instance.len()) || !instance.bytes().all(is_name) {
            return Err(NetworkError::BadInstance);
        }
        let host = Worker::start("sbxo-host", None).map_err(making("a thread"))?;
        let begun = host.run(move || zone_side::begin(&instance, uplink)).await??;
        let worker = |name| -> io::Result<Worker> {
            Worker::start(name, Some(begun.namespace.try_clone()?))
        };
        let links = worker("sbxo-links").map_err(making("a thread"))?;
        let rules = worker("sbxo-rules").map_err(making("a thread"))?;
        let (plan, own) = (begun.plan.clone(), begun.host.own.clone());
        rules.run(move || nft::apply(&rules::base(&plan, &own))).await??;
        if uplink == Uplink::Forward {
            let (plan, seen) = (begun.plan.clone(), begun.host.clone());
            host.run(move || host::open_the_way(&plan, &seen)).await??;
        }
        let plan = begun.plan.clone();
        let (sockets, listener, found, named) = links
            .run(move || {
                let at = |port| SocketAddr::from((plan.forwarder(), port));
                let sockets = dns::Sockets::bind(at(53));
                let listener = std::net::TcpListener::bind(at(rules::PROXY_PORT));
                (sockets, listener, leftovers::numbers(&plan), leftovers::named(&plan))
            })
            .await?;
        let sockets = sockets.map_err(making("the DNS forwarder's sockets"))?;
        let listener = listener.map_err(making("the proxy's socket"))?;
        let guests = Guests::default();
        named?.into_iter().for_each(|guest| guests.await_rules(guest));

        let changes = Changes::open().map_err(making("a watch of the host's addresses"))?;
        let resolvers = Resolvers::new(given.clone());
        let inner = Arc::new(Inner {
            mtu: begun.host.mtu,
            plan: begun.plan,
            uplink,
            links,
            rules,
            host,
            resolvers: resolvers.clone(),
            guests: guests.clone(),
            fixed_resolvers: !given.is_empty(),
            state: Mutex::new(State {
                book: Book::new(ready, found?),
                waiting: 0,
                failures: 0,
                failure: None,
                host: begun.host,
                closed: false,
            }),
            removing: tokio::sync::Mutex::default(),
            work: Notify::new(),
            prepared: Notify::new(),
        });
        let network = Self { inner };
        network.look_at_resolvers().await;
        let proxy = Proxy::new(
            listener,
            guests.clone(),
            resolvers.clone(),
            random.clone(),
            new_socket(worker("sbxo-dials").map_err(making("a thread"))?),
            interception,
            proxy_networks,
        );
        let proxy = proxy.map_err(making("the proxy"))?;
        tasks.spawn_critical("proxy", |stop| proxy.run(tasks.clone(), stop));
        let forwarder = dns::Forwarder::new(sockets, resolvers, guests, random)
            .map_err(making("the DNS forwarder"))?;
        tasks.spawn_critical("dns", |stop| forwarder.run(stop));
        let pool = network.clone();
        tasks.spawn_critical("network pool", |stop| async move { pool.keep_ready(stop).await });
        let watcher = network.clone();
        tasks.spawn_critical(
            "network host",
            |stop| async move { watcher.watch(changes, stop).await },
        );
        Ok(network)
    }

    /// Whom secrets in rules are asked for.
    pub fn use_vault(&self, vault: Arc<dyn Vault>) {
        self.inner.guests.use_vault(vault);
    }

    /// From the pool at once, or as soon as one is made.
    pub async fn lease(&self) -> Result<Lease, NetworkError> {
        let mut waiting = Waiting::new(&self.inner);
        loop {
            let changed = self.inner.prepared.notified();
            tokio::pin!(changed);
            // From here on no change is missed.
            changed.as_mut().enable();
            if let Some(number) = waiting.try_take()? {
                self.inner.work.notify_one();
                return Ok(self.fresh_lease(number));
            }
            self.inner.work.notify_one();
            changed.await;
        }
    }

    /// What a sandbox of an earlier process has, with the rules it had.
    pub async fn adopt(&self, record: LeaseRecord) -> Result<Lease, NetworkError> {
        let number = record.number();
        if record != LeaseRecord::new(&self.inner.plan, number)
            || !self.inner.state.lock().book.adopt(number)
        {
            return Err(NetworkError::NotFound);
        }
        // From here on it is dropped or released like any other.
        let lease = self.adopted_lease(number);
        let plan = self.inner.plan.clone();
        if !self.inner.links.run(move || zone_side::is_whole(&plan, number)).await?? {
            return Err(NetworkError::NotFound);
        }
        let plan = self.inner.plan.clone();
        self.inner.rules.run(move || nft::apply(&rules::readmit(&plan, number))).await??;
        Ok(lease)
    }

    /// Removes what no lease of this process holds and `keep` doesn't name.
    pub async fn sweep(&self, keep: &[LeaseRecord]) {
        let keep: BTreeSet<u32> = keep.iter().map(LeaseRecord::number).collect();
        self.inner.state.lock().book.sweep(&keep);
        self.remove_leaving().await;
    }

    /// Removes everything of that instance, whether it runs in this process, was killed, or
    /// never was.
    pub async fn tear_down(instance: &str) -> Result<(), NetworkError> {
        let instance = instance.to_owned();
        let worker = Worker::start("sbxo-tear-down", None).map_err(making("a thread"))?;
        worker.run(move || leftovers::tear_down(&instance)).await?
    }

    /// The names of all that exists of that instance on this host.
    pub async fn inventory(instance: &str) -> Result<Vec<String>, NetworkError> {
        let instance = instance.to_owned();
        let worker = Worker::start("sbxo-inventory", None).map_err(making("a thread"))?;
        worker.run(move || leftovers::inventory(&instance)).await?
    }

    /// The numbers of the networks that exist of that instance, by kind.
    pub async fn census(instance: &str) -> Result<Census, NetworkError> {
        let name = plan::name(instance);
        let zone = namespace::open(&name).map_err(making("a list of what exists"))?;
        let Some(zone) = zone else { return Ok(Census::default()) };
        let instance = instance.to_owned();
        let worker = Worker::start("sbxo-census", Some(zone)).map_err(making("a thread"))?;
        worker.run(move || leftovers::census(&instance)).await?
    }

    /// What on this host keeps sandboxes from the internet, for people.
    pub async fn obstacles() -> Result<Vec<String>, NetworkError> {
        let worker = Worker::start("sbxo-obstacles", None).map_err(making("a thread"))?;
        Ok(worker.run(host::obstacles).await??)
    }

    /// How many links are ready.
    pub fn ready(&self) -> usize {
        self.inner.state.lock().book.ready()
    }

    async fn keep_ready(&self, stop: Stop) {
        every(LOOK_AGAIN, &self.inner.work, stop, || async {
            self.remove_leaving().await;
            self.fill().await;
        })
        .await;
        {
            let mut state = self.inner.state.lock();
            state.closed = true;
            state.book.close();
        }
        self.inner.prepared.notify_waiters();
        self.remove_leaving().await;
    }

    async fn fill(&self) {
        loop {
            let reserved = self.inner.state.lock().reserve();
            let result = match reserved {
                Some(numbers) if numbers.is_empty() => return,
                Some(numbers) => self.prepare_all(numbers).await,
                None => Err(NetworkError::Exhausted(plan::numbers().len())),
            };
            let failed = result.is_err();
            if let Err(error) = result {
                tracing::warn!(error = &error as &dyn std::error::Error, "no network prepared");
                let mut state = self.inner.state.lock();
                state.failures += 1;
                state.failure = Some(Arc::new(error));
            }
            self.inner.prepared.notify_waiters();
            if failed {
                return;
            }
        }
    }

    async fn prepare_all(&self, numbers: Vec<u32>) -> Result<(), NetworkError> {
        let result = self.prepare(numbers.clone()).await;
        let mut state = self.inner.state.lock();
        for number in numbers {
            match result {
                Ok(()) => state.book.prepared(number),
                Err(_) => state.book.leave(number),
            }
        }
        result
    }

    async fn prepare(&self, numbers: Vec<u32>) -> Result<(), NetworkError> {
        let (plan, mtu) = (self.inner.plan.clone(), self.inner.mtu);
        let admitted = rules::admit(&plan, &numbers);
        self.inner
            .links
            .run(move || numbers.iter().try_for_each(|it| zone_side::add(&plan, *it, mtu)))
            .await??;
        crashpoint(Point::LinkMade);
        self.inner.rules.run(move || nft::apply(&admitted)).await??;
        crashpoint(Point::LinkAdmitted);
        Ok(())
    }

    /// One that could not be removed is tried again at the next look.
    async fn remove_leaving(&self) {
        let _alone = self.inner.removing.lock().await;
        let numbers = self.inner.state.lock().book.leaving();
        if numbers.is_empty() {
            return;
        }
        if let Err(error) = self.remove(numbers).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "a network stays behind");
        }
    }

    /// Rules and links at the same time: a packet needs both.
    async fn remove(&self, numbers: Vec<u32>) -> Result<(), NetworkError> {
        let plan = self.inner.plan.clone();
        let (dismissed, leaving) = (rules::dismiss(&plan, &numbers), numbers.clone());
        let (rules, links) = tokio::join!(
            self.inner.rules.run(move || nft::apply(&dismissed)),
            self.inner.links.run(move || zone_side::remove(&plan, &leaving)),
        );
        for number in &numbers {
            self.inner.guests.forget(self.inner.plan.guest(*number).addr());
        }
        links??;
        rules??;
        let mut state = self.inner.state.lock();
        for number in numbers {
            state.book.gone(number);
        }
        Ok(())
    }

    /// The host changes under us: addresses come and go, firewalls are loaded anew. The kernel
    /// tells the first; that new addresses are the host's own is enforced before we know them.
    async fn watch(&self, host: Changes, stop: Stop) {
        let changed = Notify::new();
        let tell = async {
            while let Ok(()) = host.next().await {
                changed.notify_one();
            }
            tracing::warn!("changes of the host's addresses are seen late");
            std::future::pending::<()>().await;
        };
        let look = every(LOOK_AGAIN, &changed, stop, || async {
            self.look_at_resolvers().await;
            if let Err(error) = self.look_at_host().await {
                tracing::warn!(error = &error as &dyn std::error::Error, "the host's side");
            }
        });
        tokio::select! {
            () = look => {}
            () = tell => {}
        }
    }

    async fn look_at_resolvers(&self) {
        if self.inner.fixed_resolvers {
            return;
        }
        match tokio::fs::read_to_string("/etc/resolv.conf").await {
            Ok(text) => {
                let found = host::resolvers(&text).into_iter();
                self.inner.resolvers.set(found.map(|it: IpAddr| (it, 53).into()).collect());
            }
            Err(error) => tracing::warn!(%error, "read the host's resolvers"),
        }
    }

    async fn look_at_host(&self) -> Result<(), NetworkError> {
        let (plan, uplink) = (self.inner.plan.clone(), self.inner.uplink);
        let before = self.inner.state.lock().host.clone();
        let known = before.clone();
        let now = self
            .inner
            .host
            .run(move || -> Result<Host, NetworkError> {
                let now = host::read(plan.instance())?;
                if uplink == Uplink::Forward && (known != now || !host::is_open(&plan, &now)?) {
                    host::open_the_way(&plan, &now)?;
                }
                Ok(now)
            })
            .await??;
        if before.own != now.own {
            let batch = rules::base(&self.inner.plan, &now.own);
            self.inner.rules.run(move || nft::apply(&batch)).await??;
        }
        self.inner.state.lock().host = now;
        Ok(())
    }
}

/// One that lives in the namespace of that worker, whoever connects it.
fn new_socket(worker: Worker) -> NewSocket {
    let worker = Arc::new(worker);
    Arc::new(move || {
        let worker = worker.clone();
        Box::pin(async move {
            let made = worker.run(|| {
                let flags = SockFlag::SOCK_CLOEXEC;
                socket(AddressFamily::Inet, SockType::Stream, flags, None)
            });
            Ok(made.await.map_err(io::Error::other)??)
        })
    })
}

impl State {
    fn reserve(&mut self) -> Option<Vec<u32>> {
        let waiting = self.waiting;
        self.book.reserve(waiting)
    }
}

/// A caller who waits; dropped, it waits no more.
struct Waiting<'a> {
    inner: &'a Inner,
    failures: u64,
    is_counted: bool,
}

impl<'a> Waiting<'a> {
    fn new(inner: &'a Inner) -> Self {
        let mut state = inner.state.lock();
        state.waiting += 1;
        Self { inner, failures: state.failures, is_counted: true }
    }

    fn try_take(&mut self) -> Result<Option<u32>, NetworkError> {
        let mut state = self.inner.state.lock();
        if state.closed {
            return Err(NetworkError::Stopped);
        }
        if let Some(number) = state.book.take_ready() {
            // At once, or one more than is wanted is made for whoever has got one.
            state.waiting -= 1;
            self.is_counted = false;
            return Ok(Some(number));
        }
        match &state.failure {
            Some(failure) if state.failures > self.failures => {
                if let NetworkError::Exhausted(limit) = **failure {
                    return Err(NetworkError::Exhausted(limit));
                }
                Err(NetworkError::Prepare(failure.clone()))
            }
            _ => Ok(None),
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.is_counted {
            self.inner.state.lock().waiting -= 1;
        }
    }
}
