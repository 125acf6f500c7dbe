//! Against a registry that does what registries do on their bad days.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use futures_util::{StreamExt as _, stream};
use parking_lot::Mutex;
use sandboxo_registry::{Found, Registries};
use sandboxo_zone_protocol::{Credentials, ImageDigest, ImageSource, PullError, Secret};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// One repository, `team/app`, with one image, `v1`.
#[derive(Default)]
struct Shop {
    documents: BTreeMap<String, Bytes>,
    /// Where blobs are, instead of here.
    elsewhere: Option<SocketAddr>,
    wants: Wants,
    /// Answers 503 to so many.
    busy: AtomicUsize,
    /// Cuts a blob after half of it, so many times.
    cuts: AtomicUsize,
    no_ranges: bool,
    asked: Mutex<Vec<String>>,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Wants {
    #[default]
    Nothing,
    Password,
    /// Anybody gets it, for a while.
    Token,
}

const PAUSES: [Duration; 4] = [Duration::from_millis(1); 4];
const PASSWORD: &str = "Basic bWU6b3BlbnNlc2FtZQ==";

impl Shop {
    fn of(layers: &[&[u8]]) -> Self {
        let mut shop = Self::default();
        let config = json!({
            "os": "linux",
            "architecture": "amd64",
            "config": { "Env": ["A=b"] },
        });
        let config = shop.blob(config.to_string().as_bytes());
        let layers: Vec<Value> = layers.iter().map(|layer| shop.blob(layer)).collect();
        let image = json!({ "schemaVersion": 2, "config": config, "layers": layers });
        let image = shop.put("manifests", image.to_string().as_bytes());
        let list = json!({ "schemaVersion": 2, "manifests": [{
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": image,
            "size": 1,
            "platform": { "os": "linux", "architecture": "amd64" },
        }]});
        let list = Bytes::from(list.to_string());
        shop.documents.insert("manifests/v1".into(), list);
        shop
    }

    fn put(&mut self, kind: &str, bytes: &[u8]) -> String {
        let digest = format!("sha256:{}", of(bytes));
        self.documents.insert(format!("{kind}/{digest}"), Bytes::copy_from_slice(bytes));
        digest
    }

    fn blob(&mut self, bytes: &[u8]) -> Value {
        let media_type = "application/vnd.oci.image.layer.v1.tar";
        let digest = self.put("blobs", bytes);
        json!({ "mediaType": media_type, "digest": digest, "size": bytes.len() })
    }

    /// Sends something else under the same digest.
    fn spoil(&mut self, kind: &str, with: impl Fn(&Bytes) -> Bytes) {
        for (path, bytes) in &mut self.documents {
            if path.starts_with(kind) && path.contains("sha256") {
                *bytes = with(bytes);
            }
        }
    }
}

fn of(bytes: &[u8]) -> ImageDigest {
    ImageDigest::from_bytes(Sha256::digest(bytes).into())
}

async fn serve(shop: Shop) -> (SocketAddr, Arc<Shop>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shop = Arc::new(shop);
    let router = Router::new().fallback(answer).with_state((Arc::clone(&shop), address));
    #[expect(clippy::disallowed_methods, reason = "the other end of a wire")]
    tokio::spawn(axum::serve(listener, router).into_future());
    (address, shop)
}

async fn answer(State((shop, own)): State<(Arc<Shop>, SocketAddr)>, request: Request) -> Response {
    let (path, headers) = (request.uri().path().to_owned(), request.headers());
    let said = headers.get(header::AUTHORIZATION).and_then(|it| it.to_str().ok()).unwrap_or("");
    shop.asked.lock().push(format!("{path} {said}").trim().to_owned());
    if path == "/token" {
        let asked = request.uri().query().unwrap_or_default();
        assert_eq!(asked, "service=here&scope=repository%3Ateam%2Fapp%3Apull");
        return json!({ "token": "t0ken" }).to_string().into_response();
    }
    let taken = |count: &AtomicUsize| {
        count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |it| it.checked_sub(1)).is_ok()
    };
    if taken(&shop.busy) {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let (fits, challenge) = match shop.wants {
        Wants::Nothing => (true, String::new()),
        Wants::Password => (said == PASSWORD, "Basic realm=\"here\"".to_owned()),
        Wants::Token => (
            said == "Bearer t0ken",
            format!("Bearer realm=\"http://{own}/token\",service=\"here\""),
        ),
    };
    if !fits {
        return (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, challenge)]).into_response();
    }
    let Some(document) = path.strip_prefix("/v2/team/app/") else {
        return StatusCode::NOT_FOUND.into_response();
    };
    if let Some(other) = shop.elsewhere.filter(|_| document.starts_with("blobs/")) {
        let place = format!("http://{other}{path}");
        return (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, place)]).into_response();
    }
    let Some(bytes) = shop.documents.get(document).cloned() else {
        return StatusCode::NOT_FOUND.into_response();
    };
    if document.starts_with("manifests") {
        return bytes.into_response();
    }
    let from = if shop.no_ranges { 0 } else { from(headers) };
    let status = if from > 0 { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
    let rest = bytes.slice(from..);
    let is_layer = !bytes.starts_with(b"{");
    if is_layer && rest.len() > 1 && taken(&shop.cuts) {
        let half = rest.slice(..rest.len() / 2);
        let cut = stream::once(async { Ok(half) }).chain(stream::once(async {
            // The first half goes out.
            tokio::task::yield_now().await;
            Err("cut")
        }));
        return (status, Body::from_stream(cut)).into_response();
    }
    (status, rest).into_response()
}

fn from(headers: &HeaderMap) -> usize {
    let range = headers.get(header::RANGE).and_then(|it| it.to_str().ok()).unwrap_or("bytes=0-");
    range.strip_prefix("bytes=").unwrap().strip_suffix('-').unwrap().parse().unwrap()
}

fn registries(known: &[SocketAddr]) -> Registries {
    let named = known.iter().map(|it| format!("http://{it}").parse().unwrap());
    Registries::new(named.collect()).with_pauses(&PAUSES)
}

fn source(registry: SocketAddr, reference: &str) -> ImageSource {
    ImageSource {
        registry: registry.to_string(),
        repository: "team/app".into(),
        reference: reference.into(),
    }
}

fn me(password: &str) -> Credentials {
    Credentials { user: "me".into(), password: Secret::new(password) }
}

/// All layers, as they arrive on the disk.
async fn layers(found: &Found) -> Result<Vec<Vec<u8>>, PullError> {
    let folder = tempfile::tempdir().unwrap();
    let mut read = Vec::new();
    for layer in &found.layers {
        let place = folder.path().join("layer");
        found.download(layer, &place).await?;
        read.push(std::fs::read(&place).unwrap());
    }
    Ok(read)
}

#[tokio::test]
async fn an_image_arrives_whatever_the_day_is_like() {
    let content: &[&[u8]] = &[b"the first layer", b"", b"the second"];
    let plain = || Shop::of(content);
    for (why, shop, credentials) in [
        ("on a good day", plain(), None),
        ("busy", Shop { busy: 3.into(), ..plain() }, None),
        ("cut again and again", Shop { cuts: 6.into(), ..plain() }, None),
        (
            "cut, and from the start again",
            Shop { cuts: 2.into(), no_ranges: true, ..plain() },
            None,
        ),
        ("with a password", Shop { wants: Wants::Password, ..plain() }, Some(me("opensesame"))),
        ("with a token for anybody", Shop { wants: Wants::Token, ..plain() }, None),
    ] {
        let (address, shop) = serve(shop).await;
        let registries = registries(&[address]);
        let found = registries.find(&source(address, "v1"), credentials).await.unwrap();
        assert_eq!(found.env, BTreeMap::from([("A".into(), "b".into())]), "{why}");
        let image = format!("manifests/sha256:{}", found.digest);
        assert!(shop.documents.contains_key(&image), "{why}: of this platform's manifest");
        assert_eq!(layers(&found).await.unwrap(), content, "{why}");
    }
}

#[tokio::test]
async fn what_goes_wrong_is_named() {
    let plain = || Shop::of(&[b"the first layer"]);
    let spoilt = |kind: &str, with: fn(&Bytes) -> Bytes| {
        let mut shop = plain();
        shop.spoil(kind, with);
        shop
    };
    let other = |bytes: &Bytes| Bytes::from(vec![b'x'; bytes.len()]);
    let longer = |bytes: &Bytes| Bytes::from([bytes, &b"more"[..]].concat());
    let password = || Shop { wants: Wants::Password, ..plain() };
    for (shop, reference, credentials, expected) in [
        (plain(), "v2", None, "the registry has no such image or tag"),
        (password(), "v1", None, "the registry wants other credentials, or has no such image"),
        (
            password(),
            "v1",
            Some(me("guess")),
            "the registry wants other credentials, or has no such image",
        ),
        (
            Shop { busy: 100.into(), ..plain() },
            "v1",
            None,
            "the registry can't be reached: 127.0.0.1 answers 503 Service Unavailable",
        ),
        (spoilt("manifests", other), "v1", None, "does not have the digest"),
        (spoilt("blobs", other), "v1", None, "does not have the digest"),
        (spoilt("blobs", longer), "v1", None, "does not have the digest"),
    ] {
        let (address, _shop) = serve(shop).await;
        let registries = registries(&[address]);
        let done = async {
            layers(&registries.find(&source(address, reference), credentials).await?).await
        };
        let error = done.await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error} is not {expected}");
    }
}

#[tokio::test]
async fn credentials_stay_with_the_registry_and_redirects_outside() {
    let (store, stored) = serve(Shop::of(&[b"layer"])).await;
    let shop = || {
        let wants = Wants::Password;
        Shop { wants, elsewhere: Some(store), ..Shop::of(&[b"layer"]) }
    };
    let (address, _shop) = serve(shop()).await;
    let find = async |known: &[SocketAddr]| {
        registries(known).find(&source(address, "v1"), Some(me("opensesame"))).await
    };
    let found = find(&[address, store]).await.unwrap();
    assert_eq!(layers(&found).await.unwrap(), [b"layer"]);
    let asked = stored.asked.lock().clone();
    assert!(asked.len() == 2 && asked.iter().all(|it| !it.contains("Basic")), "{asked:?}");
    // A place that the operator does not know is not asked, nor a registry.
    let Err(error) = find(&[address]).await else { panic!("it was found") };
    assert!(matches!(&error, PullError::NotAllowed(host) if *host == store.to_string()), "{error}");
    assert_eq!(stored.asked.lock().len(), 2);
    assert!(matches!(find(&[]).await, Err(PullError::NotAllowed(_))));
}

#[tokio::test]
async fn nobody_listens() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let found = registries(&[address]).find(&source(address, "v1"), None).await;
    let Err(PullError::Unreachable(why)) = found else { panic!("it was found") };
    assert!(why.contains("refused"), "{why}");
}
