//! What the documents of a registry say.

use sandboxo_zone_protocol::{ImageDefaults, ImageDigest, PullError};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

/// More is no image that anybody has made.
const MAX_LAYERS: usize = 512;

/// Everything that says what an image is made of.
pub(crate) const MANIFESTS: &str = "application/vnd.oci.image.index.v1+json, \
    application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, \
    application/vnd.docker.distribution.manifest.v2+json";

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Document {
    /// The one of several that is for this platform.
    Elsewhere(ImageDigest),
    Manifest {
        config: Blob,
        layers: Vec<Blob>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Blob {
    pub(crate) digest: ImageDigest,
    pub(crate) bytes: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    schema_version: u32,
    manifests: Option<Vec<Descriptor>>,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    media_type: String,
    digest: String,
    size: u64,
    platform: Option<Platform>,
}

#[derive(Deserialize)]
struct Platform {
    os: String,
    architecture: String,
    variant: Option<String>,
}

pub(crate) fn unusable(why: impl Into<String>) -> PullError {
    PullError::Unusable(why.into())
}

pub(crate) fn read(body: &[u8]) -> Result<Document, PullError> {
    let wire: Wire = serde_json::from_slice(body)
        .map_err(|error| unusable(format!("its manifest can't be read: {error}")))?;
    if wire.schema_version != 2 {
        return Err(unusable("its manifest is of a form that is not used any more"));
    }
    match (wire.manifests, wire.config, wire.layers) {
        (Some(manifests), None, None) => chosen(&manifests).map(Document::Elsewhere),
        (None, Some(config), Some(layers)) => {
            if layers.is_empty() || layers.len() > MAX_LAYERS {
                return Err(unusable(format!("it has {} layers", layers.len())));
            }
            if let Some(other) = layers.iter().find(|it| !is_of_files(&it.media_type)) {
                return Err(unusable(format!("it has a part of type {:?}", other.media_type)));
            }
            let layers = layers.iter().map(blob).collect::<Result<_, _>>()?;
            Ok(Document::Manifest { config: blob(&config)?, layers })
        }
        _ => Err(unusable("its manifest is neither of an image nor a list of them")),
    }
}

/// For linux/amd64, and the oldest processor where there are several.
fn chosen(manifests: &[Descriptor]) -> Result<ImageDigest, PullError> {
    let fits = |it: &&Descriptor| {
        let platform = it.platform.as_ref();
        platform.is_some_and(|it| it.os == "linux" && it.architecture == "amd64")
    };
    let variant = |it: &&Descriptor| {
        it.platform.as_ref().and_then(|it| it.variant.clone()).unwrap_or_default()
    };
    let alone = match manifests {
        // Its configuration says what it is for.
        [alone] if alone.platform.is_none() => Some(alone),
        _ => None,
    };
    let found = manifests.iter().filter(fits).min_by_key(variant).or(alone);
    digest(&found.ok_or(PullError::NoPlatform)?.digest)
}

/// Compressed or not, which its first bytes say.
fn is_of_files(media_type: &str) -> bool {
    media_type.starts_with("application/vnd.oci.image.layer.")
        || media_type.starts_with("application/vnd.docker.image.rootfs.")
}

fn blob(descriptor: &Descriptor) -> Result<Blob, PullError> {
    Ok(Blob { digest: digest(&descriptor.digest)?, bytes: descriptor.size })
}

pub(crate) fn digest(text: &str) -> Result<ImageDigest, PullError> {
    let hex = text.strip_prefix("sha256:").and_then(|hex| hex.parse().ok());
    hex.ok_or_else(|| unusable(format!("{text:?} is no SHA-256 digest")))
}

pub(crate) fn verified(body: &[u8], expected: ImageDigest) -> Result<(), PullError> {
    if digest_of(body) == expected {
        Ok(())
    } else {
        Err(unusable(format!("what the registry sent does not have the digest {expected}")))
    }
}

pub(crate) fn digest_of(body: &[u8]) -> ImageDigest {
    ImageDigest::from_bytes(Sha256::digest(body).into())
}

/// Gives what its maker set.
pub(crate) fn read_config(body: &[u8]) -> Result<ImageDefaults, PullError> {
    #[derive(Deserialize)]
    struct Config {
        #[serde(default)]
        os: String,
        #[serde(default)]
        architecture: String,
        #[serde(rename = "config")]
        defaults: Option<Defaults>,
    }
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Defaults {
        env: Option<Vec<String>>,
        user: Option<String>,
        working_dir: Option<String>,
    }
    let Config { os, architecture, defaults } = serde_json::from_slice(body)
        .map_err(|error| unusable(format!("its configuration can't be read: {error}")))?;
    // Old tools leave them out.
    if !matches!(os.as_str(), "linux" | "") || !matches!(architecture.as_str(), "amd64" | "") {
        return Err(PullError::NoPlatform);
    }
    let Defaults { env, user, working_dir } = defaults.unwrap_or_default();
    let pair = |text: &String| {
        let (name, value) = text.split_once('=')?;
        let fits = !name.is_empty() && !text.contains('\0');
        fits.then(|| (name.to_owned(), value.to_owned()))
    };
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    Ok(ImageDefaults {
        env: env.unwrap_or_default().iter().filter_map(pair).collect(),
        // Its group is the account's own here.
        user: given(user).map(|user| user.split(':').next().unwrap_or_default().to_owned()),
        workdir: given(working_dir),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn hex(n: u8) -> String {
        format!("sha256:{}", format!("{n:02x}").repeat(32))
    }

    fn part(media_type: &str, n: u8) -> Value {
        json!({ "mediaType": media_type, "digest": hex(n), "size": 10 })
    }

    fn listed(os: &str, architecture: &str, variant: Option<&str>, n: u8) -> Value {
        let mut entry = part("application/vnd.oci.image.manifest.v1+json", n);
        entry["platform"] = json!({ "os": os, "architecture": architecture, "variant": variant });
        entry
    }

    fn of(value: &Value) -> Result<Document, String> {
        read(value.to_string().as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn documents() {
        let blob = |n| Blob { digest: ImageDigest::from_bytes([n; 32]), bytes: 10 };
        let image = |layers: &[Value]| {
            json!({
                "schemaVersion": 2,
                "config": part("application/vnd.oci.image.config.v1+json", 1),
                "layers": layers,
            })
        };
        let list = |manifests: &[Value]| json!({ "schemaVersion": 2, "manifests": manifests });
        let gzip = "application/vnd.docker.image.rootfs.diff.tar.gzip";
        let zstd = "application/vnd.oci.image.layer.v1.tar+zstd";
        let mut both = image(&[part(gzip, 2)]);
        both["manifests"] = json!([]);
        let old = json!({ "schemaVersion": 1 });
        let elsewhere = |n| Ok(Document::Elsewhere(ImageDigest::from_bytes([n; 32])));
        for (why, document, expected) in [
            (
                "an image",
                image(&[part(gzip, 2), part(zstd, 3)]),
                Ok(Document::Manifest { config: blob(1), layers: vec![blob(2), blob(3)] }),
            ),
            (
                "several platforms",
                list(&[
                    listed("linux", "arm64", None, 4),
                    listed("unknown", "unknown", None, 5),
                    listed("linux", "amd64", Some("v3"), 6),
                    listed("linux", "amd64", None, 7),
                ]),
                elsewhere(7),
            ),
            (
                "another platform",
                list(&[listed("windows", "amd64", None, 4)]),
                Err("the image has no version for linux/amd64"),
            ),
            (
                "two things at once",
                both,
                Err("the image can't be used: its manifest is neither of an image nor a list of \
                     them"),
            ),
            (
                "something else",
                image(&[part("application/vnd.cncf.helm.chart.content.v1.tar+gzip", 2)]),
                Err("the image can't be used: it has a part of type \
                     \"application/vnd.cncf.helm.chart.content.v1.tar+gzip\""),
            ),
            ("no layers", image(&[]), Err("the image can't be used: it has 0 layers")),
            (
                "an old one",
                old,
                Err("the image can't be used: its manifest is of a form that is not used any more"),
            ),
        ] {
            assert_eq!(of(&document), expected.map_err(str::to_owned), "{why}");
        }
        let long = image(&vec![part(gzip, 2); MAX_LAYERS + 1]);
        assert!(of(&long).unwrap_err().contains("513 layers"));
    }

    #[test]
    fn configurations() {
        let read = |value: Value| read_config(value.to_string().as_bytes());
        let full = json!({
            "os": "linux",
            "architecture": "amd64",
            "config": {
                "Env": ["PATH=/bin:/usr/bin", "A=b=c", "odd", "=x"],
                "Cmd": ["sh"],
                "User": "app:staff",
                "WorkingDir": "/srv",
            },
        });
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let expected = ImageDefaults {
            env: [pair("A", "b=c"), pair("PATH", "/bin:/usr/bin")].into(),
            user: Some("app".into()),
            workdir: Some("/srv".into()),
        };
        assert_eq!(read(full).unwrap(), expected);
        let unsaid = json!({ "config": { "User": "", "WorkingDir": "", "Env": null } });
        for nothing in [json!({}), unsaid] {
            assert_eq!(read(nothing).unwrap(), ImageDefaults::default());
        }
        let arm = json!({ "os": "linux", "architecture": "arm64" });
        assert!(matches!(read(arm), Err(PullError::NoPlatform)));
        assert!(matches!(read_config(b"no"), Err(PullError::Unusable(_))));
    }
}
