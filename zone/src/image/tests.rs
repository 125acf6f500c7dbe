//! Archives, good and bad, into real folders.

use std::os::unix::fs::{FileTypeExt, MetadataExt};

use sandboxo_zone_protocol::{SystemClock, SystemRandom, fake::ManualClock};
use tar::{Builder, EntryType, Header};

use super::*;

pub(super) struct Archive(Builder<Vec<u8>>);

impl Archive {
    pub(super) fn new() -> Self {
        Self(Builder::new(Vec::new()))
    }

    pub(super) fn with(
        mut self,
        path: &str,
        kind: EntryType,
        mode: u32,
        link: &str,
        content: &[u8],
    ) -> Self {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(1000);
        header.set_gid(1001);
        header.set_mtime(1_700_000_000);
        header.set_size(content.len() as u64);
        // By hand: the builder refuses what the tests are about.
        let name = &mut header.as_gnu_mut().unwrap().name;
        name[..path.len()].copy_from_slice(path.as_bytes());
        header.as_gnu_mut().unwrap().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_cksum();
        self.0.append(&header, content).unwrap();
        self
    }

    pub(super) fn file(self, path: &str, content: &[u8]) -> Self {
        self.with(path, EntryType::Regular, 0o644, "", content)
    }

    pub(super) fn link(self, path: &str, target: &str) -> Self {
        self.with(path, EntryType::Symlink, 0o777, target, b"")
    }

    pub(super) fn bytes(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }
}

const GRACE: Duration = Duration::from_mins(1);

fn open(folder: PathBuf) -> Images {
    Images::open(folder, 1, GRACE, Arc::new(SystemClock)).unwrap()
}

pub(super) struct Place {
    folder: tempfile::TempDir,
    pub(super) images: Images,
}

impl Place {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let images = open(folder.path().join("images"));
        Self { folder, images }
    }

    async fn import(&self, bytes: Vec<u8>) -> Result<ImageInfo, ImportError> {
        Ok(self.all(bytes).await?.image)
    }

    async fn all(&self, bytes: Vec<u8>) -> Result<Imported, ImportError> {
        self.images.import(Box::new(io::Cursor::new(bytes)), &SystemRandom).await
    }

    async fn rejection(&self, archive: Archive) -> String {
        match self.import(archive.bytes()).await {
            Err(ImportError::Rejected(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    fn rootfs(&self, info: ImageInfo) -> PathBuf {
        self.images.place(info.digest).join("rootfs")
    }

    fn leftovers(&self) -> usize {
        fs::read_dir(self.folder.path().join("images")).unwrap().count()
    }
}

#[tokio::test]
async fn everything_of_an_entry_is_kept() {
    let place = Place::new();
    let archive = Archive::new()
        .with("./", EntryType::Directory, 0o755, "", b"")
        .with("usr/bin/", EntryType::Directory, 0o750, "", b"")
        .link("bin", "usr/bin")
        .with("bin/tool", EntryType::Regular, 0o4755, "", b"through a link")
        .with("bin/same", EntryType::Link, 0o644, "usr/bin/tool", b"")
        .with("pipe", EntryType::Fifo, 0o600, "", b"")
        .with("dev/null", EntryType::Char, 0o666, "", b"")
        .with("sealed", EntryType::Directory, 0o000, "", b"")
        .file("sealed/in", b"x")
        .link("etc", "/usr/etc")
        .file("usr/etc/a", b"first")
        .file("usr/etc/a", b"second");
    let info = place.import(archive.bytes()).await.unwrap();
    let root = place.rootfs(info);
    let meta = |path: &str| fs::symlink_metadata(root.join(path)).unwrap();
    let tool = meta("usr/bin/tool");
    assert_eq!((tool.mode() & 0o7777, tool.uid(), tool.gid()), (0o4755, 1000, 1001));
    assert_eq!(tool.mtime(), 1_700_000_000);
    assert_eq!(meta("usr/bin/same").ino(), tool.ino());
    assert_eq!(meta("usr/bin").mode() & 0o7777, 0o750);
    assert_eq!(meta("usr/bin").mtime(), 1_700_000_000);
    assert_eq!(meta("sealed").mode() & 0o7777, 0);
    assert!(meta("pipe").file_type().is_fifo());
    assert_eq!((meta("bin").uid(), meta("bin").mtime()), (1000, 1_700_000_000));
    assert!(!root.join("dev/null").exists());
    assert_eq!(fs::read(root.join("usr/etc/a")).unwrap(), b"second");
    assert_eq!(info.size_bytes, 14 + 1 + 5 + 6);
    for made in [".sandboxo/agent", "proc/sys/kernel/random/boot_id", "tmp/.X11-unix", "sys"] {
        assert!(root.join(made).exists(), "{made}");
    }
    assert_eq!(meta("tmp").mode() & 0o7777, 0o1777);
}

#[tokio::test]
async fn what_could_leave_the_root_is_refused_and_named() {
    let place = Place::new();
    let outside = place.folder.path().join("outside");
    let climbing = format!("../../..{}", outside.display());
    for (archive, expected) in [
        (Archive::new().file("/etc/x", b""), "/etc/x: absolute paths are refused"),
        (Archive::new().file("a/../../x", b""), "a/../../x: paths with `..` are refused"),
        (Archive::new().link("out", "../x"), "out: its link ../x leaves the root"),
        (
            Archive::new().with("sda", EntryType::Block, 0o600, "", b""),
            "sda: device nodes are refused outside of dev/",
        ),
        (
            Archive::new().with("hard", EntryType::Link, 0o600, "/etc/passwd", b""),
            "hard: its hard link's target: absolute paths are refused",
        ),
        (
            Archive::new().with("hard", EntryType::Link, 0o600, "nobody", b""),
            "hard: its hard link's target nobody is not there",
        ),
        (Archive::new().link(".sandboxo", "etc"), ".sandboxo: the name .sandboxo is reserved"),
        (Archive::new().link("proc", "etc"), "/proc must be a folder"),
    ] {
        assert_eq!(place.rejection(archive).await, expected);
    }
    // A link that is fine by the letter, and one whose target is made to climb by another link.
    let archive = Archive::new()
        .with("a/b/c", EntryType::Directory, 0o755, "", b"")
        .link("up", "a/b/c")
        .link("up/over", &climbing)
        .file("up/over/escaped", b"x");
    assert!(place.import(archive.bytes()).await.is_err());
    let archive = Archive::new().link("l", &outside.to_string_lossy()).file("l/escaped", b"x");
    assert!(place.rejection(archive).await.starts_with("l/escaped: "));
    assert!(!outside.exists());
    assert_eq!(place.leftovers(), 0, "refused imports leave nothing");
}

#[tokio::test]
async fn gzip_is_recognized_and_the_digest_is_the_streams() {
    let place = Place::new();
    let plain = Archive::new().file("a", b"hello").bytes();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    io::Write::write_all(&mut gzip, &plain).unwrap();
    let gzip = gzip.finish().unwrap();
    for bytes in [plain, gzip] {
        let digest = ImageDigest::from_bytes(Sha256::digest(&bytes).into());
        let info = place.import(bytes.clone()).await.unwrap();
        assert_eq!(info.digest, digest);
        assert_eq!(fs::read(place.rootfs(info).join("a")).unwrap(), b"hello");
        assert!(place.images.contains(digest));
        assert_eq!(place.import(bytes).await.unwrap(), info, "a repeat is a success");
    }
    assert_eq!(place.leftovers(), 2);
}

#[tokio::test]
async fn holes_stay_holes() {
    let place = Place::new();
    let mut content = vec![0; 8 << 20];
    content[4 << 20] = 1;
    let info = place.import(Archive::new().file("sparse", &content).bytes()).await.unwrap();
    let file = place.rootfs(info).join("sparse");
    assert_eq!(fs::read(&file).unwrap(), content);
    assert!(fs::metadata(&file).unwrap().blocks() * 512 <= 64 << 10);
}

#[tokio::test]
async fn what_is_no_archive_is_refused() {
    let place = Place::new();
    let mut cut = Archive::new().file("a", &[7; 5000]).bytes();
    cut.truncate(3000);
    for (bytes, expected) in [
        (Vec::new(), "the archive is empty or not a tar"),
        (b"\x1f\x8b".to_vec(), "ends"),
        (b"hello, this is not a tar at all".repeat(100), "damaged"),
        (cut, "damaged"),
    ] {
        match place.import(bytes).await {
            Err(ImportError::Rejected(why)) => assert!(why.contains(expected), "{why}"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(place.leftovers(), 0);
}

#[tokio::test]
async fn a_small_disk_is_full_and_clean_again() {
    let folder = tempfile::tempdir().unwrap();
    let disks = crate::disk::Disks::new(folder.path().join("templates"));
    let at = folder.path().join("m");
    disks.make(folder.path().join("d.img"), at.clone(), 16).await.unwrap();
    let images = Images::open(at.join("images"), 0, GRACE, Arc::new(SystemClock)).unwrap();
    let archive = Archive::new().file("big", &vec![7; 20 << 20]).bytes();
    let full = images.import(Box::new(io::Cursor::new(archive)), &SystemRandom).await;
    assert!(matches!(full, Err(ImportError::DiskFull)), "{full:?}");
    assert_eq!(fs::read_dir(at.join("images")).unwrap().count(), 0);
    crate::disk::release(&at).unwrap();
}

#[test]
fn an_interrupted_import_is_cleaned_at_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join(".unfinished-1/rootfs/usr")).unwrap();
    fs::create_dir_all(folder.path().join("kept/rootfs")).unwrap();
    open(folder.path().to_owned());
    assert!(!folder.path().join(".unfinished-1").exists());
    assert!(folder.path().join("kept").exists());
}

#[tokio::test]
async fn what_nobody_may_ask_for_goes_after_its_grace_unless_it_is_used() {
    let clock = Arc::new(ManualClock::default());
    let folder = tempfile::tempdir().unwrap();
    let images = Images::open(folder.path().to_owned(), 1, GRACE, clock.clone()).unwrap();
    let import = async |name: &str| {
        let tar = io::Cursor::new(Archive::new().file(name, b"x").bytes());
        images.import(Box::new(tar), &SystemRandom).await.unwrap().image.digest
    };
    let (kept, used, unused) = (import("a").await, import("b").await, import("c").await);
    let collect = || images.collect(|| Ok([used].into())).unwrap();
    clock.advance(GRACE);
    assert!(collect().is_empty(), "nobody has said yet what is wanted");
    images.keep(&[kept].into()).unwrap();
    assert!(collect().is_empty(), "the grace begins");
    clock.advance(GRACE);
    assert!(images.contains(unused), "which begins the grace anew");
    assert!(collect().is_empty());
    clock.advance(GRACE);
    assert_eq!(collect(), [unused]);
    assert!(images.contains(kept) && images.contains(used) && !images.contains(unused));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    let again = import("c").await;
    assert_eq!(again, unused);
    assert!(collect().is_empty());
}

#[tokio::test]
async fn an_image_in_layers_is_what_its_layers_make() {
    let lower = Archive::new().file("kept", b"kept").file("gone", b"gone").file("over", b"lower");
    let upper = Archive::new().file(".wh.gone", b"").file("over", b"upper");
    let config = br#"{"config":{"Env":["A=b"],"User":"app","WorkingDir":"/srv"}}"#;
    let manifest =
        br#"[{"Config":"c.json","RepoTags":["x:1"],"Layers":["1/layer.tar","2/layer.tar"]}]"#;
    let saved = |upper: Archive| {
        Archive::new()
            .file("1/layer.tar", &upper.bytes())
            .link("2/layer.tar", "../1/layer.tar")
            .file("c.json", config)
            .file("manifest.json", manifest)
    };
    let place = Place::new();
    let twice = place.all(saved(lower).bytes()).await.unwrap();
    let root = place.rootfs(twice.image);
    assert_eq!(fs::read(root.join("over")).unwrap(), b"lower");
    let defaults = twice.defaults.unwrap();
    assert_eq!(
        (defaults.user.as_deref(), defaults.workdir.as_deref()),
        (Some("app"), Some("/srv"))
    );
    assert_eq!(defaults.env, [("A".to_owned(), "b".to_owned())].into());

    let lower = Archive::new().file("kept", b"kept").file("gone", b"gone").file("over", b"lower");
    let archive = Archive::new()
        .file("1/layer.tar", &lower.bytes())
        .file("2/layer.tar", &upper.bytes())
        .file("c.json", config)
        .file("manifest.json", manifest);
    let image = place.import(archive.bytes()).await.unwrap();
    let root = place.rootfs(image);
    let read = |name: &str| fs::read_to_string(root.join(name)).ok();
    assert_eq!(read("kept").as_deref(), Some("kept"));
    assert_eq!(read("over").as_deref(), Some("upper"));
    assert_eq!(read("gone"), None);
    assert_eq!(read("manifest.json"), None, "it is no part of the image");
    assert!(!place.images.place(image.digest).join("archive").exists());

    let none = Archive::new().file("c.json", config).file("manifest.json", manifest);
    let why = place.rejection(none).await;
    assert!(why.contains("its layer 1/layer.tar"), "{why}");
    let outside = Archive::new()
        .link("1/layer.tar", "../../../../etc/passwd")
        .file("c.json", config)
        .file("manifest.json", manifest);
    let why = place.rejection(outside).await;
    assert!(why.contains("1/layer.tar"), "{why}");
}
