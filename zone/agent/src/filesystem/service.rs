//! The methods of `filesystem.Filesystem`.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use http::Response;
use nix::{errno::Errno, sys::statfs::statfs};
use sandboxo_agent_proto::{
    connect::{Code, Codec, Failure},
    filesystem::{
        CreateWatcherRequest, CreateWatcherResponse, EntryInfo, GetWatcherEventsRequest,
        GetWatcherEventsResponse, ListDirRequest, MakeDirRequest, MakeDirResponse, MoveRequest,
        MoveResponse, RemoveRequest, RemoveResponse, RemoveWatcherRequest, RemoveWatcherResponse,
        StatRequest, StatResponse, WatchDirRequest,
    },
};
use tokio::task::spawn_blocking;

use super::{
    change,
    entry::look,
    failure::because,
    listing::{ListError, Listing, first_batch, most_entries},
    watch::Wish,
    watcher::{WatchError, WatchStream, Watched, Watchers},
};
use crate::{
    body::Body,
    identity::Identity,
    metrics::total_memory,
    paths,
    rpc::{self, Call},
    users::{Accounts, User},
};

pub(crate) struct FilesystemService {
    watchers: Arc<Watchers>,
}

/// Whose paths a call speaks of.
struct Caller {
    user: User,
    workdir: Option<String>,
    accounts: Arc<Accounts>,
}

impl Caller {
    fn path(&self, path: &str) -> PathBuf {
        paths::resolve(path, &self.user.home, self.workdir.as_deref()).into()
    }

    fn entry(&self, path: &Path) -> Result<EntryInfo, Failure> {
        look(path, &self.accounts).map_err(|error| {
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
                return not_found(path);
            }
            because(&error, &format!("looking at {}", path.display()))
        })
    }
}

impl FilesystemService {
    pub(crate) fn new(watchers: Arc<Watchers>) -> Self {
        Self { watchers }
    }

    pub(crate) async fn serve(
        self: Arc<Self>,
        who: Arc<Identity>,
        method: &str,
        call: Call,
    ) -> Response<Body> {
        let user = call.user.clone();
        let caller = || {
            let user = who.user(user.as_deref())?;
            let workdir = who.workdir.clone();
            Ok::<_, Failure>(Caller { user, workdir, accounts: who.accounts() })
        };
        let (codec, keepalive) = (call.form.codec, call.keepalive);
        match method {
            "Stat" => rpc::unary(call, async |request| stat(&caller()?, &request)).await,
            "MakeDir" => {
                rpc::unary(call, async |request| self.make_dir(&caller()?, &request)).await
            }
            "Move" => rpc::unary(call, async |request| self.shift(caller()?, request).await).await,
            "ListDir" => {
                rpc::unary_body(call, async |request| list_dir(caller()?, request, codec).await)
                    .await
            }
            "Remove" => rpc::unary(call, async |request| remove(caller()?, request).await).await,
            "WatchDir" => {
                rpc::server_stream(call, |request: WatchDirRequest| {
                    let watched = self.watch(&caller()?, &request)?;
                    Ok(WatchStream::new(watched, codec, keepalive))
                })
                .await
            }
            "CreateWatcher" => {
                rpc::unary(call, async |request| self.create_watcher(&caller()?, request)).await
            }
            "GetWatcherEvents" => {
                rpc::unary(call, async |request| self.watcher_events(&request)).await
            }
            "RemoveWatcher" => {
                rpc::unary(call, async |request| self.remove_watcher(&request)).await
            }
            unknown => rpc::unimplemented(&call, "filesystem.Filesystem", unknown),
        }
    }

    fn make_dir(
        &self,
        caller: &Caller,
        request: &MakeDirRequest,
    ) -> Result<MakeDirResponse, Failure> {
        let path = caller.path(&request.path);
        change::make_folder(&path, &caller.user)?;
        self.watchers.catch_up();
        Ok(MakeDirResponse { entry: Some(caller.entry(&path)?) })
    }

    async fn shift(&self, caller: Caller, request: MoveRequest) -> Result<MoveResponse, Failure> {
        let source = caller.path(&request.source);
        let destination = caller.path(&request.destination);
        let moved = blocking(move || {
            change::shift(&source, &destination, &caller.user)?;
            caller.entry(&destination)
        });
        let entry = moved.await?;
        self.watchers.catch_up();
        Ok(MoveResponse { entry: Some(entry) })
    }

    fn watch(&self, caller: &Caller, request: &WatchDirRequest) -> Result<Arc<Watched>, Failure> {
        let root = caller.path(&request.path);
        let shown = root.display();
        match std::fs::metadata(&root) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => return Err(not_a_folder(&root)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(no_path(&root)),
            Err(error) => return Err(because(&error, &format!("looking at {shown}"))),
        }
        if !request.allow_network_mounts && is_network_mount(&root) {
            let message = format!("cannot watch path on network filesystem: {shown}");
            return Err(Failure::new(Code::InvalidArgument, message));
        }
        let wish = Wish {
            root: root.clone(),
            recursive: request.recursive,
            include_entry: request.include_entry,
        };
        self.watchers.watch(wish, caller.accounts.clone()).map_err(|error| match error {
            WatchError::TooMany => Failure::new(Code::ResourceExhausted, "too many watchers"),
            WatchError::Kernel(Errno::EMFILE | Errno::ENOSPC) => {
                Failure::new(Code::ResourceExhausted, "too many folders are watched")
            }
            WatchError::Kernel(errno) => because(&errno.into(), &format!("watching {shown}")),
        })
    }

    fn create_watcher(
        &self,
        caller: &Caller,
        request: CreateWatcherRequest,
    ) -> Result<CreateWatcherResponse, Failure> {
        let CreateWatcherRequest { path, recursive, include_entry, allow_network_mounts } = request;
        let same = WatchDirRequest { path, recursive, include_entry, allow_network_mounts };
        let watched = self.watch(caller, &same)?;
        Ok(CreateWatcherResponse { watcher_id: self.watchers.keep(watched) })
    }

    fn watcher_events(
        &self,
        request: &GetWatcherEventsRequest,
    ) -> Result<GetWatcherEventsResponse, Failure> {
        let events = self.watchers.events(&request.watcher_id);
        let events = events.ok_or_else(|| no_watcher(&request.watcher_id))?;
        Ok(GetWatcherEventsResponse { events })
    }

    fn remove_watcher(
        &self,
        request: &RemoveWatcherRequest,
    ) -> Result<RemoveWatcherResponse, Failure> {
        if self.watchers.remove(&request.watcher_id) {
            return Ok(RemoveWatcherResponse {});
        }
        Err(no_watcher(&request.watcher_id))
    }
}

fn stat(caller: &Caller, request: &StatRequest) -> Result<StatResponse, Failure> {
    let entry = caller.entry(&caller.path(&request.path))?;
    Ok(StatResponse { entry: Some(entry) })
}

async fn list_dir(caller: Caller, request: ListDirRequest, codec: Codec) -> Result<Body, Failure> {
    blocking(move || {
        let path = caller.path(&request.path);
        let most = most_entries(total_memory());
        let listing = Listing::open(&path, request.depth, most, caller.accounts);
        listing.and_then(|listing| first_batch(listing, codec)).map_err(|error| match error {
            ListError::Read(error) if error.kind() == io::ErrorKind::NotFound => no_path(&path),
            ListError::Read(error) if error.kind() == io::ErrorKind::NotADirectory => {
                not_a_folder(&path)
            }
            ListError::Read(error) => because(&error, &format!("listing {}", path.display())),
            ListError::TooMany { .. } => Failure::new(Code::ResourceExhausted, error.to_string()),
        })
    })
    .await
}

async fn remove(caller: Caller, request: RemoveRequest) -> Result<RemoveResponse, Failure> {
    let path = caller.path(&request.path);
    blocking(move || change::remove(&path)).await?;
    Ok(RemoveResponse {})
}

/// A tree may be large; others are served meanwhile.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let broken = |_panic| Failure::new(Code::Internal, "the work was given up");
    spawn_blocking(work).await.map_err(broken)?
}

fn not_found(path: &Path) -> Failure {
    Failure::new(Code::NotFound, format!("file not found: {}", path.display()))
}

fn no_path(path: &Path) -> Failure {
    Failure::new(Code::NotFound, format!("path not found: {}", path.display()))
}

fn not_a_folder(path: &Path) -> Failure {
    Failure::new(Code::InvalidArgument, format!("path is not a directory: {}", path.display()))
}

fn no_watcher(id: &str) -> Failure {
    Failure::new(Code::NotFound, format!("watcher with id {id} not found"))
}

/// There the kernel hears nothing of what others change.
fn is_network_mount(path: &Path) -> bool {
    // From statfs(2): NFS, SMB, CIFS, SMB2, FUSE, Ceph, AFS, Lustre.
    const KINDS: [i64; 8] = [
        0x6969,
        0x517b,
        0xff53_4d42,
        0xfe53_4d42,
        0x6573_5546,
        0x00c3_6400,
        0x5346_414f,
        0x0bd0_0bd0,
    ];
    statfs(path).is_ok_and(|found| KINDS.contains(&found.filesystem_type().0))
}
