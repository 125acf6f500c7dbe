//! `POST /files`: one file as it is, or several in a form. A machine that is pushed bytes does the
//! work; the shell around it moves long uploads off the event loop.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, Write},
    path::Path,
};

use flate2::write::MultiGzDecoder;
use http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::Serialize;
use tokio::task::spawn_blocking;

use super::{
    metadata,
    multipart::{Event, Multipart},
    refusal::Refusal,
    target,
};
use crate::{paths, users::User};

/// So much is written on the event loop: most uploads are small, and a thread costs more.
const INLINE: usize = 256 * 1024;
/// Compressed bytes taken at once: they can stand for a thousand times as many.
const GZIP_PIECE: usize = 2 * 1024;

/// One file that was written, as clients are told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Written {
    pub(crate) name: String,
    pub(crate) path: String,
    pub(crate) r#type: &'static str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) metadata: BTreeMap<String, String>,
}

impl Written {
    pub(crate) fn file(path: &str, metadata: BTreeMap<String, String>) -> Self {
        let name = paths::name(path).to_owned();
        Self { name, path: path.to_owned(), r#type: "file", metadata }
    }
}

/// The answer names the files in the order of the request. The folders that were made for them
/// are there by then.
pub(crate) async fn upload(
    user: User,
    workdir: Option<String>,
    path: Option<&str>,
    headers: &HeaderMap,
    mut body: Incoming,
) -> Result<Vec<Written>, Refusal> {
    let mut upload = Upload::begin(user, workdir, path, headers)?;
    let mut seen = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Refusal::bad(format!("the body was cut: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        seen += data.len();
        if seen <= INLINE {
            upload.push(&data)?;
            continue;
        }
        let pushed = spawn_blocking(move || {
            upload.push(&data)?;
            Ok::<_, Refusal>(upload)
        });
        upload = pushed.await.map_err(|_panic| given_up())??;
    }
    upload.finish()
}

fn given_up() -> Refusal {
    Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the upload was given up")
}

struct Upload {
    decoder: Decoder,
}

enum Decoder {
    Plain(Box<Files>),
    Gzip(Box<MultiGzDecoder<Files>>),
}

impl Upload {
    fn begin(
        user: User,
        workdir: Option<String>,
        path: Option<&str>,
        headers: &HeaderMap,
    ) -> Result<Self, Refusal> {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let content_type = text(header::CONTENT_TYPE).unwrap_or_default();
        let essence = content_type.split(';').next().unwrap_or_default().trim();
        let metadata =
            metadata::from_headers(headers).map_err(|error| Refusal::bad(error.to_string()))?;
        let mut files = Files {
            path: path.map(|path| paths::resolve(path, &user.home, workdir.as_deref())),
            user,
            workdir,
            metadata,
            multipart: None,
            written: Vec::new(),
            seen: BTreeSet::new(),
            open: None,
            refusal: None,
        };
        match essence.to_ascii_lowercase().as_str() {
            "multipart/form-data" => {
                let multipart = Multipart::new(content_type);
                files.multipart = Some(multipart.map_err(|error| Refusal::bad(error.to_string()))?);
            }
            "application/octet-stream" => {
                let path = files.path.clone();
                let path =
                    path.ok_or_else(|| Refusal::bad("the query parameter path is required"))?;
                files.begin(&path)?;
            }
            other => {
                return Err(Refusal::bad(format!(
                    "unsupported content type '{other}': use multipart/form-data or \
                     application/octet-stream"
                )));
            }
        }
        let coding = text(header::CONTENT_ENCODING).unwrap_or("identity").trim();
        let decoder = match coding.to_ascii_lowercase().as_str() {
            "identity" | "" => Decoder::Plain(Box::new(files)),
            "gzip" | "x-gzip" => Decoder::Gzip(Box::new(MultiGzDecoder::new(files))),
            other => {
                return Err(Refusal::bad(format!("unsupported content encoding '{other}'")));
            }
        };
        Ok(Self { decoder })
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        match &mut self.decoder {
            Decoder::Plain(files) => files.take(bytes),
            Decoder::Gzip(decoder) => {
                for piece in bytes.chunks(GZIP_PIECE) {
                    let outcome = decoder.write_all(piece);
                    settle(decoder.get_mut(), outcome)?;
                }
                Ok(())
            }
        }
    }

    fn finish(self) -> Result<Vec<Written>, Refusal> {
        let mut files = match self.decoder {
            Decoder::Plain(files) => *files,
            Decoder::Gzip(mut decoder) => {
                let finished = decoder.try_finish();
                settle(decoder.get_mut(), finished)?;
                decoder.finish().map_err(|error| Refusal::bad(error.to_string()))?
            }
        };
        if let Some(multipart) = &files.multipart {
            multipart.finish().map_err(|error| Refusal::bad(error.to_string()))?;
        }
        files.end();
        Ok(files.written)
    }
}

/// A refusal of the files comes through the decoder as an error of no meaning.
fn settle(files: &mut Files, decoded: io::Result<()>) -> Result<(), Refusal> {
    match (decoded, files.refusal.take()) {
        (_, Some(refusal)) => Err(refusal),
        (Ok(()), None) => Ok(()),
        (Err(error), None) => Err(Refusal::bad(format!("the body is not valid gzip: {error}"))),
    }
}

/// Where decoded bytes go.
struct Files {
    user: User,
    workdir: Option<String>,
    /// For all parts, where the query named it.
    path: Option<String>,
    metadata: BTreeMap<String, String>,
    multipart: Option<Multipart>,
    written: Vec<Written>,
    seen: BTreeSet<String>,
    /// None while bytes belong to no file.
    open: Option<File>,
    refusal: Option<Refusal>,
}

impl Files {
    fn take(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        let Some(multipart) = &mut self.multipart else { return self.write_on(bytes) };
        multipart.push(bytes);
        while let Some(event) = self.next_event()? {
            match event {
                Event::Begin(part) if part.name == "file" => {
                    let path = match (&self.path, part.file_name) {
                        (Some(path), _) => path.clone(),
                        (None, Some(name)) if !name.is_empty() => {
                            paths::resolve(&name, &self.user.home, self.workdir.as_deref())
                        }
                        (None, _) => {
                            return Err(Refusal::bad("a file has neither a path nor a name"));
                        }
                    };
                    self.begin(&path)?;
                }
                // A field that is no file says nothing to us.
                Event::Begin(_) | Event::End => self.end(),
                Event::Data(data) => self.write_on(&data)?,
            }
        }
        Ok(())
    }

    fn next_event(&mut self) -> Result<Option<Event>, Refusal> {
        match &mut self.multipart {
            Some(multipart) => multipart.next().map_err(|error| Refusal::bad(error.to_string())),
            None => Ok(None),
        }
    }

    fn begin(&mut self, path: &str) -> Result<(), Refusal> {
        if !self.seen.insert(path.to_owned()) {
            return Err(Refusal::bad(format!("path '{path}' is given more than once")));
        }
        self.open = Some(target::open(Path::new(path), &self.user, &self.metadata)?);
        self.written.push(Written::file(path, self.metadata.clone()));
        Ok(())
    }

    fn write_on(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        let Some(file) = &mut self.open else { return Ok(()) };
        file.write_all(bytes).map_err(|error| {
            let path = self.written.last().map(|file| file.path.clone()).unwrap_or_default();
            Refusal::io(&error, "writing", Path::new(&path))
        })
    }

    fn end(&mut self) {
        self.open = None;
    }
}

impl Write for Files {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.take(bytes) {
            Ok(()) => Ok(bytes.len()),
            Err(refusal) => {
                self.refusal = Some(refusal);
                Err(io::ErrorKind::Other.into())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
