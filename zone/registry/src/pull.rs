//! From a name to the layers of an image on the disk.

use std::{collections::BTreeMap, io, path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, Uri, uri::Authority};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use parking_lot::Mutex;
use sandboxo_zone_protocol::{Credentials, ImageDigest, ImageSource, PullError};
use sha2::{Digest as _, Sha256};
use tokio::{
    fs::File,
    io::{AsyncSeekExt as _, AsyncWriteExt as _},
    time::{sleep, timeout},
};

use crate::{
    MAX_DOCUMENTS, Registry,
    allowed::Allowed,
    challenge::{self, Challenge},
    client::{Failed, Question, Verdict, Web, document, verdict},
    manifest::{self, Blob, Document, MANIFESTS, digest_of, unusable, verified},
};

/// What registries take at most.
const MAX_DOCUMENT: usize = 4 << 20;
/// Between two pieces of a blob.
const PIECE_WITHIN: Duration = Duration::from_mins(1);
/// What does not pass in this time is told.
const PAUSES: [Duration; 4] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
];
const ANYTHING: &str = "*/*";

/// A cheap clone of one thing.
#[derive(Clone)]
pub struct Registries {
    web: Web,
    pauses: &'static [Duration],
}

/// An image, and whatever was said to be allowed to have it.
pub struct Found {
    /// Of its manifest for this platform.
    pub digest: ImageDigest,
    pub env: BTreeMap<String, String>,
    /// From the bottom.
    pub layers: Vec<Layer>,
    session: Session,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    pub digest: ImageDigest,
    /// As it is sent, which is mostly compressed.
    pub bytes: u64,
}

struct Session {
    web: Web,
    pauses: &'static [Duration],
    /// `https://registry/v2/repository/`
    place: String,
    repository: String,
    credentials: Option<Credentials>,
    authorization: Arc<Mutex<Option<HeaderValue>>>,
}

impl Registries {
    /// `named`: what an operator trusts beside the public internet.
    pub fn new(named: Vec<Registry>) -> Self {
        Self { web: Web::new(Allowed::new(named)), pauses: &PAUSES }
    }

    /// Before each new try of what may pass by itself.
    #[must_use]
    pub fn with_pauses(self, pauses: &'static [Duration]) -> Self {
        Self { pauses, ..self }
    }

    pub async fn find(
        &self,
        source: &ImageSource,
        credentials: Option<Credentials>,
    ) -> Result<Found, PullError> {
        let session = self.session(source, credentials)?;
        let mut reference = source.reference.clone();
        for _document in 0..MAX_DOCUMENTS {
            let body = session.document(&format!("manifests/{reference}"), MANIFESTS).await?;
            if reference.contains(':') {
                verified(&body, manifest::digest(&reference)?)?;
            }
            match manifest::read(&body)? {
                Document::Elsewhere(digest) => reference = format!("sha256:{digest}"),
                Document::Manifest { config, layers } => {
                    let Blob { digest, bytes: _ } = config;
                    let config = session.document(&blob(digest), ANYTHING).await?;
                    verified(&config, digest)?;
                    let layers =
                        layers.into_iter().map(|Blob { digest, bytes }| Layer { digest, bytes });
                    return Ok(Found {
                        digest: digest_of(&body),
                        env: manifest::read_config(&config)?.env,
                        layers: layers.collect(),
                        session,
                    });
                }
            }
        }
        Err(unusable("its manifest is a list of lists"))
    }

    fn session(
        &self,
        source: &ImageSource,
        credentials: Option<Credentials>,
    ) -> Result<Session, PullError> {
        let ImageSource { registry, repository, reference: _ } = source;
        // Its name is not where it is.
        let host = if registry == "docker.io" { "registry-1.docker.io" } else { registry };
        let authority: Authority =
            host.parse().map_err(|_unreadable| unusable(format!("{host:?} is no host")))?;
        let scheme = self.web.allowed.scheme(&authority);
        Ok(Session {
            web: self.web.clone(),
            pauses: self.pauses,
            place: format!("{scheme}://{authority}/v2/{repository}/"),
            repository: repository.clone(),
            credentials,
            authorization: Arc::default(),
        })
    }
}

impl Found {
    /// A file that is whole, and what it should be, once this returns.
    pub async fn download(&self, layer: &Layer, place: &Path) -> Result<(), PullError> {
        let mut file = File::create(place).await.map_err(storing)?;
        let mut download = Download { layer, file: &mut file, hash: Sha256::new(), have: 0 };
        let mut pauses = self.session.pauses.iter();
        loop {
            let before = download.have;
            match download.go_on(&self.session).await {
                Ok(()) => break,
                Err(Failed::Final(error)) => return Err(error),
                Err(Failed::Again(why)) => {
                    // What comes bit by bit comes.
                    if download.have > before {
                        pauses = self.session.pauses.iter();
                    }
                    let pause = pauses.next().ok_or(PullError::Unreachable(why))?;
                    sleep(*pause).await;
                }
            }
        }
        let digest = ImageDigest::from_bytes(download.hash.finalize().into());
        if digest != layer.digest {
            return Err(unusable(format!("a layer does not have the digest {}", layer.digest)));
        }
        file.flush().await.map_err(storing)
    }
}

struct Download<'a> {
    layer: &'a Layer,
    file: &'a mut File,
    hash: Sha256,
    have: u64,
}

impl Download<'_> {
    async fn go_on(&mut self, session: &Session) -> Result<(), Failed> {
        let answer = session.ask(&blob(self.layer.digest), ANYTHING, self.have).await?;
        // Not every place goes on in the middle.
        if self.have > 0 && answer.status() != StatusCode::PARTIAL_CONTENT {
            self.hash = Sha256::new();
            self.have = 0;
            empty(self.file).await?;
        }
        let mut body = answer.into_body();
        while self.have < self.layer.bytes {
            let frame = match timeout(PIECE_WITHIN, body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(error))) => {
                    return Err(Failed::Again(format!("a layer was cut: {error}")));
                }
                Ok(None) => return Err(Failed::Again("a layer was cut".into())),
                Err(_elapsed) => return Err(Failed::Again("nothing more of a layer comes".into())),
            };
            let Ok(piece) = frame.into_data() else { continue };
            self.take(&piece).await?;
        }
        Ok(())
    }

    async fn take(&mut self, piece: &Bytes) -> Result<(), Failed> {
        self.have += piece.len() as u64;
        if self.have > self.layer.bytes {
            return Err(unusable("a layer is longer than its manifest says").into());
        }
        self.hash.update(piece);
        Ok(self.file.write_all(piece).await.map_err(storing)?)
    }
}

async fn empty(file: &mut File) -> Result<(), PullError> {
    file.set_len(0).await.map_err(storing)?;
    file.rewind().await.map(drop).map_err(storing)
}

impl Session {
    async fn document(&self, path: &str, accept: &'static str) -> Result<Bytes, PullError> {
        let mut pauses = self.pauses.iter();
        loop {
            let asked = async {
                let answer = self.ask(path, accept, 0).await?;
                document(answer.into_body(), MAX_DOCUMENT).await
            };
            match asked.await {
                Ok(body) => return Ok(body),
                Err(Failed::Final(error)) => return Err(error),
                Err(Failed::Again(why)) => {
                    let pause = pauses.next().ok_or(PullError::Unreachable(why))?;
                    sleep(*pause).await;
                }
            }
        }
    }

    /// An answer that has what was asked for.
    async fn ask(
        &self,
        path: &str,
        accept: &'static str,
        from: u64,
    ) -> Result<Response<Incoming>, Failed> {
        let uri: Uri = format!("{}{path}", self.place)
            .parse()
            .map_err(|error| unusable(format!("its name makes no URL: {error}")))?;
        let mut was_challenged = false;
        loop {
            let authorization = self.authorization.lock().clone();
            let answer = self.web.ask(Question { uri: &uri, accept, from, authorization }).await?;
            match verdict(answer.status()) {
                Verdict::Fine => return Ok(answer),
                // Tokens are good for minutes, so one that was taken may be refused later.
                Verdict::Challenge if !was_challenged => {
                    was_challenged = true;
                    self.authorize(&answer).await?;
                }
                Verdict::Challenge | Verdict::Unauthorized => {
                    return Err(PullError::Unauthorized.into());
                }
                other @ (Verdict::NotFound | Verdict::Again | Verdict::Odd) => {
                    return Err(failed(other, &uri, answer.status()));
                }
            }
        }
    }

    async fn authorize(&self, answer: &Response<Incoming>) -> Result<(), Failed> {
        let own = self.credentials.as_ref().and_then(challenge::basic);
        let value = match challenge::challenge(answer.headers(), &self.repository) {
            None => None,
            Some(Challenge::Basic) => own,
            Some(Challenge::Token(realm)) => {
                let question =
                    Question { uri: &realm, accept: ANYTHING, from: 0, authorization: own };
                let answer = self.web.ask(question).await?;
                match verdict(answer.status()) {
                    Verdict::Fine => {
                        challenge::bearer(&document(answer.into_body(), MAX_DOCUMENT).await?)
                    }
                    Verdict::Challenge | Verdict::Unauthorized | Verdict::NotFound => None,
                    other @ (Verdict::Again | Verdict::Odd) => {
                        return Err(failed(other, &realm, answer.status()));
                    }
                }
            }
        };
        let value = value.ok_or(PullError::Unauthorized)?;
        self.authorization.lock().replace(value);
        Ok(())
    }
}

fn failed(verdict: Verdict, uri: &Uri, status: StatusCode) -> Failed {
    let said = format!("{} answers {status}", uri.host().unwrap_or_default());
    match verdict {
        Verdict::NotFound => PullError::NotFound.into(),
        Verdict::Challenge | Verdict::Unauthorized => PullError::Unauthorized.into(),
        Verdict::Again => Failed::Again(said),
        Verdict::Fine | Verdict::Odd => unusable(said).into(),
    }
}

fn blob(digest: ImageDigest) -> String {
    format!("blobs/sha256:{digest}")
}

fn storing(error: io::Error) -> PullError {
    if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
        PullError::DiskFull
    } else {
        PullError::Internal(Box::new(error))
    }
}
