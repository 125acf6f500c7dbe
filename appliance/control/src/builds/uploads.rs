//! The archives that clients send for COPY steps, by team and by hash.

use std::{
    io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use sandboxo_model::FilesHash;
use sandboxo_zone_protocol::{Random, TeamId, Timestamp};
use tokio::{
    fs,
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
};

/// A folder of sources that is larger is better fetched by a RUN step.
pub const MAX_UPLOAD_BYTES: u64 = 2 << 30;
const UNFINISHED: &str = "new";
const PIECE: usize = 256 << 10;
/// Of an upload, between two looks at what there is in all.
const CHECK_EVERY: u64 = 32 << 20;

#[derive(Debug, Clone)]
pub(crate) struct Uploads {
    folder: PathBuf,
    of_team: u64,
    reserve: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    #[error("this link is not, or no longer, good for an upload: ask for another")]
    BadLink,
    #[error("the archive is larger than {} MiB", MAX_UPLOAD_BYTES >> 20)]
    TooLarge,
    #[error(
        "the team's uploads are more than {max_mib} MiB: each goes seven days after its last use"
    )]
    TooMuch { max_mib: u64 },
    #[error("the archive was cut: {0}")]
    Cut(#[source] io::Error),
    #[error("the disk is full")]
    DiskFull,
    #[error("keep the archive")]
    Write(#[source] io::Error),
}

impl Uploads {
    pub(crate) fn at(folder: PathBuf, of_team: u64, reserve: u64) -> Self {
        Self { folder, of_team, reserve }
    }

    pub(crate) fn place(&self, team: TeamId, hash: &FilesHash) -> PathBuf {
        self.folder.join(team.to_string()).join(hash.as_str())
    }

    /// Asked for is used: it stays for a while more.
    pub(crate) async fn has(&self, team: TeamId, hash: &FilesHash, now: Timestamp) -> bool {
        let place = self.place(team, hash);
        let since = Duration::from_secs(u64::try_from(now.as_second()).unwrap_or_default());
        let moment = SystemTime::UNIX_EPOCH + since;
        let touched = tokio::task::spawn_blocking(move || {
            let file = std::fs::File::options().append(true).open(place)?;
            file.set_times(std::fs::FileTimes::new().set_modified(moment))
        });
        touched.await.is_ok_and(|touched| touched.is_ok())
    }

    pub(crate) async fn put(
        &self,
        team: TeamId,
        hash: &FilesHash,
        bytes: impl AsyncRead + Unpin,
        random: &dyn Random,
    ) -> Result<(), UploadError> {
        let place = self.place(team, hash);
        let mut name = [0; 8];
        random.fill(&mut name);
        let unfinished =
            place.with_extension(format!("{:016x}.{UNFINISHED}", u64::from_ne_bytes(name)));
        self.write(&Unfinished(unfinished), &place, bytes).await
    }

    async fn write(
        &self,
        Unfinished(unfinished): &Unfinished,
        place: &Path,
        bytes: impl AsyncRead + Unpin,
    ) -> Result<(), UploadError> {
        let folder = place.parent().unwrap_or(&self.folder);
        fs::create_dir_all(folder).await.map_err(storing)?;
        let mut file = fs::File::create(unfinished).await.map_err(storing)?;
        let mut bytes = bytes.take(MAX_UPLOAD_BYTES + 1);
        let mut piece = vec![0; PIECE];
        let (mut total, mut unchecked) = (0, CHECK_EVERY);
        loop {
            let count = bytes.read(&mut piece).await.map_err(UploadError::Cut)?;
            let Some(piece) = piece.get(..count).filter(|piece| !piece.is_empty()) else { break };
            total += count as u64;
            unchecked += count as u64;
            if total > MAX_UPLOAD_BYTES {
                return Err(UploadError::TooLarge);
            }
            if unchecked >= CHECK_EVERY {
                unchecked = 0;
                self.is_there_room(folder.to_owned(), count as u64).await?;
            }
            file.write_all(piece).await.map_err(storing)?;
        }
        file.flush().await.map_err(storing)?;
        file.sync_all().await.map_err(storing)?;
        fs::rename(unfinished, place).await.map_err(storing)
    }

    /// For more of this team's, with all that it sends at this moment.
    async fn is_there_room(&self, folder: PathBuf, more: u64) -> Result<(), UploadError> {
        let Self { of_team, reserve, .. } = *self;
        let look = move || -> io::Result<(u64, u64)> {
            let mut kept = 0;
            for file in std::fs::read_dir(&folder)? {
                // One that is just renamed or given up is not there.
                kept += file?.metadata().map_or(0, |file| file.len());
            }
            let disk = nix::sys::statvfs::statvfs(&folder)?;
            Ok((kept, disk.blocks_available() * disk.fragment_size()))
        };
        let looked = tokio::task::spawn_blocking(look).await.map_err(io::Error::other);
        let (kept, free) = looked.and_then(|looked| looked).map_err(storing)?;
        if kept.saturating_add(more) > of_team {
            Err(UploadError::TooMuch { max_mib: of_team >> 20 })
        } else if free < reserve.saturating_add(more) {
            Err(UploadError::DiskFull)
        } else {
            Ok(())
        }
    }

    /// Those that nobody has asked for since, and halves of an earlier process.
    pub(crate) async fn sweep(&self, before: Timestamp) -> io::Result<()> {
        let folder = self.folder.clone();
        let swept = tokio::task::spawn_blocking(move || {
            let Ok(teams) = std::fs::read_dir(&folder) else { return Ok(()) };
            for team in teams {
                for file in std::fs::read_dir(team?.path())? {
                    let file = file?;
                    let used = Timestamp::try_from(file.metadata()?.modified()?);
                    if used.is_ok_and(|used| used < before) {
                        std::fs::remove_file(file.path())?;
                    }
                }
            }
            Ok(())
        });
        swept.await.map_err(io::Error::other)?
    }
}

/// Goes unless it gets its name, also when the client hangs up and nobody writes on.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(error = &error as &dyn std::error::Error, "half an upload stays");
        }
    }
}

fn storing(error: io::Error) -> UploadError {
    if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
        UploadError::DiskFull
    } else {
        UploadError::Write(error)
    }
}

#[cfg(test)]
mod tests {
    use sandboxo_zone_protocol::fake::SeededRandom;

    use super::*;

    #[tokio::test]
    async fn nothing_is_left_of_an_upload_whose_client_hangs_up() {
        let folder = tempfile::tempdir().unwrap();
        let uploads = Uploads::at(folder.path().to_owned(), 1 << 20, 0);
        let hash: FilesHash = "ab".repeat(32).parse().unwrap();
        let (mut client, bytes) = tokio::io::duplex(64);
        client.write_all(&[b'x'; 64]).await.unwrap();
        let random = SeededRandom::new(1);
        let team = folder.path().join(TeamId::NIL.to_string());
        let there = || std::fs::read_dir(&team).map_or(0, Iterator::count);
        {
            let put = uploads.put(TeamId::NIL, &hash, bytes, &random);
            tokio::pin!(put);
            while there() == 0 {
                let step = tokio::time::timeout(Duration::from_millis(10), &mut put).await;
                assert!(step.is_err(), "it waits for more");
            }
        }
        assert_eq!(there(), 0);
        let whole = io::Cursor::new(b"whole");
        uploads.put(TeamId::NIL, &hash, whole, &random).await.unwrap();
        assert_eq!(std::fs::read(uploads.place(TeamId::NIL, &hash)).unwrap(), b"whole");
    }

    #[tokio::test]
    async fn a_team_keeps_so_much_and_the_disk_its_reserve() {
        let folder = tempfile::tempdir().unwrap();
        let at = |of_team, reserve| Uploads::at(folder.path().to_owned(), of_team, reserve);
        let random = SeededRandom::new(1);
        let [one, two] = [TeamId::random(&random), TeamId::random(&random)];
        let put = async |uploads: &Uploads, team, n: usize| {
            let hash = format!("{n:064x}").parse().unwrap();
            let bytes = io::Cursor::new(vec![b'x'; 400]);
            uploads.put(team, &hash, bytes, &random).await
        };
        let uploads = at(1000, 0);
        for n in [1, 2] {
            put(&uploads, one, n).await.unwrap();
        }
        let more = put(&uploads, one, 3).await;
        assert!(matches!(more, Err(UploadError::TooMuch { .. })), "{more:?}");
        put(&uploads, two, 3).await.unwrap();
        let full = put(&at(1000, u64::MAX), two, 4).await;
        assert!(matches!(full, Err(UploadError::DiskFull)), "{full:?}");
        let there = std::fs::read_dir(folder.path().join(one.to_string())).unwrap().count();
        assert_eq!(there, 2, "nothing is left of one that was refused");
    }
}
