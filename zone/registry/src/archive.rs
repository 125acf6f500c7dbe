//! Images in archives: OCI image layouts, and what `docker save` writes, with or without a layout
//! beside it.

use std::{
    io,
    path::{Path, PathBuf},
};

use sandboxo_zone_protocol::{ImageDefaults, ImageDigest, PullError};
use serde::Deserialize;

use crate::{
    MAX_DOCUMENTS,
    manifest::{self, Blob, Document, verified},
};

const DOCKERS: &str = "manifest.json";
const LAYOUT: &str = "oci-layout";
const INDEX: &str = "index.json";
/// What a root file system has, which may have files of those names too.
const OF_ROOTS: [&str; 4] = ["bin", "etc", "lib", "usr"];

/// The one image that is in an archive.
#[derive(Debug, PartialEq, Eq)]
pub struct Archived {
    /// From the archive's root, the lowest first.
    pub layers: Vec<PathBuf>,
    pub defaults: ImageDefaults,
}

#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("{0}")]
    Unusable(String),
    #[error("read {path}", path = .0.display())]
    Read(PathBuf, #[source] io::Error),
}

/// `None`: it is a root file system. `names`: what is at its root; `read`: a file of it, whole.
pub fn archived(
    names: &[impl AsRef<Path>],
    read: impl Fn(&Path) -> io::Result<Vec<u8>>,
) -> Result<Option<Archived>, ArchiveError> {
    let has = |name: &str| names.iter().any(|it| it.as_ref() == Path::new(name));
    if OF_ROOTS.iter().any(|name| has(name)) {
        return Ok(None);
    }
    let read = |path: &Path| read(path).map_err(|error| ArchiveError::Read(path.into(), error));
    if has(DOCKERS) {
        dockers(read).map(Some)
    } else if has(LAYOUT) {
        layout(read).map(Some)
    } else {
        Ok(None)
    }
}

fn dockers(
    read: impl Fn(&Path) -> Result<Vec<u8>, ArchiveError>,
) -> Result<Archived, ArchiveError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Image {
        config: PathBuf,
        layers: Vec<PathBuf>,
        repo_tags: Option<Vec<String>>,
    }
    let images: Vec<Image> = serde_json::from_slice(&read(Path::new(DOCKERS))?)
        .map_err(|error| ArchiveError::Unusable(format!("{DOCKERS} can't be read: {error}")))?;
    let [Image { config, layers, .. }] = &*images else {
        let tags = images.iter().map(|it| it.repo_tags.clone().unwrap_or_default().join(", "));
        let tags: Vec<_> = tags.collect();
        return Err(ArchiveError::Unusable(format!(
            "the archive holds {} images ({}); save one alone",
            images.len(),
            tags.join("; ")
        )));
    };
    if layers.is_empty() {
        return Err(ArchiveError::Unusable("its image has no layers".into()));
    }
    let defaults = manifest::read_config(&read(config)?).map_err(told)?;
    Ok(Archived { layers: layers.clone(), defaults })
}

fn layout(read: impl Fn(&Path) -> Result<Vec<u8>, ArchiveError>) -> Result<Archived, ArchiveError> {
    let whole = |digest: ImageDigest| {
        let body = read(&blob(digest))?;
        verified(&body, digest).map_err(told)?;
        Ok(body)
    };
    let mut body = read(Path::new(INDEX))?;
    for _document in 0..=MAX_DOCUMENTS {
        match manifest::read(&body).map_err(told)? {
            Document::Elsewhere(digest) => body = whole(digest)?,
            Document::Manifest { config: Blob { digest, .. }, layers } => {
                let defaults = manifest::read_config(&whole(digest)?).map_err(told)?;
                let layers = layers.iter().map(|it| blob(it.digest)).collect();
                return Ok(Archived { layers, defaults });
            }
        }
    }
    Err(ArchiveError::Unusable("its manifest is a list of lists".into()))
}

fn blob(digest: ImageDigest) -> PathBuf {
    format!("blobs/sha256/{digest}").into()
}

fn told(error: PullError) -> ArchiveError {
    ArchiveError::Unusable(if let PullError::Unusable(why) = error {
        why
    } else {
        error.to_string()
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::*;
    use crate::manifest::digest_of;

    #[derive(Default)]
    struct Files(BTreeMap<PathBuf, Vec<u8>>);

    impl Files {
        fn with(mut self, path: &str, content: &Value) -> Self {
            self.0.insert(path.into(), content.to_string().into());
            self
        }

        /// Gives what a list says of it.
        fn blob(&mut self, media_type: &str, content: &Value) -> Value {
            let bytes = content.to_string().into_bytes();
            let digest = digest_of(&bytes);
            let described =
                json!({ "mediaType": media_type, "digest": format!("sha256:{digest}"), "size": 1 });
            self.0.insert(blob(digest), bytes);
            described
        }

        fn read(&self) -> Result<Option<Archived>, String> {
            let names: Vec<_> = self.0.keys().filter_map(|path| path.iter().next()).collect();
            let read = |path: &Path| {
                self.0.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
            };
            archived(&names, read).map_err(|error| error.to_string())
        }
    }

    fn config() -> Value {
        json!({
            "os": "linux",
            "architecture": "amd64",
            "config": { "Env": ["A=b"], "User": "app", "WorkingDir": "/srv" },
        })
    }

    fn defaults() -> ImageDefaults {
        ImageDefaults {
            env: [("A".to_owned(), "b".to_owned())].into(),
            user: Some("app".into()),
            workdir: Some("/srv".into()),
        }
    }

    #[test]
    fn what_docker_saves() {
        let image = |tag: &str| json!({ "Config": "c.json", "RepoTags": [tag], "Layers": ["a/layer.tar", "b/layer.tar"] });
        let saved = |images: &Value| {
            Files::default().with("manifest.json", images).with("c.json", &config())
        };
        let found = saved(&json!([image("x:1")])).read().unwrap().unwrap();
        let layers = ["a/layer.tar", "b/layer.tar"].map(PathBuf::from);
        assert_eq!(found, Archived { layers: layers.into(), defaults: defaults() });
        for (images, why) in [
            (json!([image("x:1"), image("y:1")]), "holds 2 images (x:1; y:1)"),
            (json!([]), "holds 0 images"),
            (json!({}), "manifest.json can't be read"),
            (json!([{ "Config": "none", "Layers": ["a"] }]), "read none"),
            (json!([{ "Config": "c.json", "Layers": [] }]), "no layers"),
        ] {
            let said = saved(&images).read().unwrap_err();
            assert!(said.contains(why), "{said}");
        }
        let root = saved(&json!([image("x:1")])).with("etc/passwd", &json!(""));
        assert_eq!(root.read(), Ok(None));
        assert_eq!(Files::default().with("app", &json!("")).read(), Ok(None));
    }

    #[test]
    fn layouts() {
        let manifest_type = "application/vnd.oci.image.manifest.v1+json";
        let layer = |n: &str| {
            json!({
                "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
                "digest": format!("sha256:{}", n.repeat(64)),
                "size": 1,
            })
        };
        let mut files = Files::default().with("oci-layout", &json!({}));
        let config = files.blob("application/vnd.oci.image.config.v1+json", &config());
        let manifest =
            json!({ "schemaVersion": 2, "config": config, "layers": [layer("1"), layer("2")] });
        let manifest = files.blob(manifest_type, &manifest);
        let index = |manifests: &[&Value]| json!({ "schemaVersion": 2, "manifests": manifests });
        // Tools leave the platform out where there is one image, and put lists into lists.
        let list = files.blob("application/vnd.oci.image.index.v1+json", &index(&[&manifest]));
        let wanted: Vec<_> =
            ["1", "2"].map(|n| PathBuf::from(format!("blobs/sha256/{}", n.repeat(64)))).into();
        for manifests in [vec![&manifest], vec![&list]] {
            files = files.with("index.json", &index(&manifests));
            let found = files.read().unwrap().unwrap();
            assert_eq!(found, Archived { layers: wanted.clone(), defaults: defaults() });
        }
        files = files.with("index.json", &index(&[&manifest, &list]));
        assert!(files.read().is_err(), "two, and nothing says which");

        files = files.with("index.json", &index(&[&manifest]));
        let at = blob(manifest::digest(manifest["digest"].as_str().unwrap()).unwrap());
        files.0.insert(at, b"{}".into());
        let said = files.read().unwrap_err();
        assert!(said.contains("does not have the digest"), "{said}");
    }
}
