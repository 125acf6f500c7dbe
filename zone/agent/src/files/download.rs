//! `GET /files`: a file, whole or in part, plain or gzip.

use std::{
    fs::{self, File, Metadata},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::task::{JoinHandle, spawn_blocking};

use super::{
    conditions::{Wanted, format_date, is_partial_or_conditional, wanted},
    disposition::inline,
    encoding::{Coding, choose},
    refusal::Refusal,
};
use crate::{
    body::{Body, empty, full},
    paths,
};

const PIECE: usize = 64 * 1024;
/// So much is read on the event loop: most files are small, and a thread costs more.
const INLINE: usize = 256 * 1024;

pub(crate) fn download(path: &str, headers: &HeaderMap) -> Result<Response<Body>, Refusal> {
    let place = Path::new(path);
    let found = fs::metadata(place).map_err(|error| {
        if error.kind() == io::ErrorKind::NotADirectory {
            return Refusal::absent(place);
        }
        Refusal::io(&error, "opening", place)
    })?;
    let kind = found.file_type();
    if kind.is_dir() {
        return Err(Refusal::folder(place));
    }
    if kind.is_fifo() || kind.is_socket() {
        // Opening one would wait for somebody else.
        return Err(Refusal::bad(format!("path '{path}' is not a regular file")));
    }
    // Files of /proc have bytes and no size; what they have is known at their end.
    let sized = kind.is_file() && found.len() > 0;
    let partial = sized && is_partial_or_conditional(headers);
    let accepted = headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    let coding = choose(accepted, partial).map_err(|_none| {
        let message = "no acceptable encoding: identity and gzip are served";
        Refusal::new(StatusCode::NOT_ACCEPTABLE, message)
    })?;
    let wish = if partial { wanted(headers, found.len(), found.mtime()) } else { Wanted::All };

    let mut response = match wish {
        Wanted::Nothing => status(StatusCode::NOT_MODIFIED),
        Wanted::Refused => status(StatusCode::PRECONDITION_FAILED),
        Wanted::OutOfRange => {
            let mut response = status(StatusCode::RANGE_NOT_SATISFIABLE);
            set(&mut response, header::CONTENT_RANGE, &format!("bytes */{}", found.len()));
            response
        }
        Wanted::Part { first, length } => {
            let mut file = open(place)?;
            file.seek(SeekFrom::Start(first))
                .map_err(|error| Refusal::io(&error, "reading", place))?;
            let reader = Reader::new(file, Some(length), Coding::Identity);
            let mut response = Response::new(FileBody::start(reader, place)?);
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            let last = first + length - 1;
            let range = format!("bytes {first}-{last}/{}", found.len());
            set(&mut response, header::CONTENT_RANGE, &range);
            response
        }
        Wanted::All => {
            let length = (sized && coding == Coding::Identity).then_some(found.len());
            let reader = Reader::new(open(place)?, length, coding);
            let mut response = Response::new(FileBody::start(reader, place)?);
            if coding == Coding::Gzip {
                set(&mut response, header::CONTENT_ENCODING, "gzip");
            }
            response
        }
    };
    describe(&mut response, path, &found, sized);
    Ok(response)
}

fn open(place: &Path) -> Result<File, Refusal> {
    File::open(place).map_err(|error| Refusal::io(&error, "opening", place))
}

fn status(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(empty());
    *response.status_mut() = status;
    response
}

fn describe(response: &mut Response<Body>, path: &str, found: &Metadata, sized: bool) {
    set(response, header::VARY, "Accept-Encoding");
    let name = paths::name(path);
    set(response, header::CONTENT_DISPOSITION, &inline(name));
    set(response, header::CONTENT_TYPE, content_type(name));
    if sized {
        set(response, header::ACCEPT_RANGES, "bytes");
    }
    if let Some(date) = format_date(found.mtime()) {
        set(response, header::LAST_MODIFIED, &date);
    }
}

fn set(response: &mut Response<Body>, name: header::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

/// What a browser may show by itself; all else is bytes.
fn content_type(name: &str) -> &'static str {
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    match extension.to_ascii_lowercase().as_str() {
        "txt" | "log" | "md" => "text/plain; charset=utf-8",
        "html" | "htm" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "csv" => "text/csv; charset=utf-8",
        "json" => "application/json",
        "xml" => "text/xml; charset=utf-8",
        "pdf" => "application/pdf",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "svg" => "image/svg+xml",
        "mp4" => "video/mp4",
        "webm" => "video/webm",
        "mp3" => "audio/mpeg",
        "wav" => "audio/x-wav",
        "wasm" => "application/wasm",
        _ => "application/octet-stream",
    }
}

/// Gives a file in pieces. Blocks.
struct Reader {
    file: File,
    /// What is still owed, where a length was promised.
    left: Option<u64>,
    encoder: Option<GzEncoder<Vec<u8>>>,
    done: bool,
}

impl Reader {
    fn new(file: File, length: Option<u64>, coding: Coding) -> Self {
        let encoder = match coding {
            Coding::Gzip => Some(GzEncoder::new(Vec::new(), Compression::fast())),
            Coding::Identity => None,
        };
        Self { file, left: length, encoder, done: false }
    }

    /// `None`: there is no more.
    fn next(&mut self) -> io::Result<Option<Bytes>> {
        while !self.done {
            let limit = self.left.map_or(PIECE, |left| usize::try_from(left).unwrap_or(PIECE));
            let mut piece = vec![0; limit.min(PIECE)];
            let count = if piece.is_empty() { 0 } else { self.read(&mut piece)? };
            piece.truncate(count);
            self.done = count == 0;
            if let Some(left) = &mut self.left {
                *left -= count as u64;
                if self.done && *left > 0 {
                    // Half a file must not look like a whole one.
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                self.done = *left == 0;
            }
            let piece = match &mut self.encoder {
                None => piece,
                Some(encoder) if count > 0 => {
                    encoder.write_all(&piece)?;
                    std::mem::take(encoder.get_mut())
                }
                Some(encoder) => {
                    encoder.try_finish()?;
                    std::mem::take(encoder.get_mut())
                }
            };
            if !piece.is_empty() {
                return Ok(Some(piece.into()));
            }
        }
        Ok(None)
    }

    fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.file.read(piece) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }
}

struct FileBody {
    first: Option<Bytes>,
    reader: Option<Reader>,
    work: Option<JoinHandle<(Reader, io::Result<Option<Bytes>>)>>,
    length: Option<u64>,
    sent: usize,
}

impl FileBody {
    /// An error of the first read can still be told.
    fn start(mut reader: Reader, place: &Path) -> Result<Body, Refusal> {
        let length = reader.left;
        let first = reader.next().map_err(|error| Refusal::io(&error, "reading", place))?;
        let Some(first) = first else { return Ok(empty()) };
        if reader.done {
            return Ok(full(first));
        }
        let body = Self { first: Some(first), reader: Some(reader), work: None, length, sent: 0 };
        Ok(body.boxed_unsync())
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Ok(Some(first)));
        }
        if let Some(mut reader) = self.reader.take() {
            if self.sent < INLINE {
                let piece = reader.next();
                self.reader = Some(reader);
                return Poll::Ready(piece);
            }
            self.work = Some(spawn_blocking(move || {
                let piece = reader.next();
                (reader, piece)
            }));
        }
        let Some(work) = &mut self.work else { return Poll::Ready(Ok(None)) };
        let (reader, piece) =
            std::task::ready!(Pin::new(work).poll(cx)).map_err(io::Error::other)?;
        self.work = None;
        self.reader = Some(reader);
        Poll::Ready(piece)
    }
}

impl http_body::Body for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let piece = std::task::ready!(self.poll_piece(cx));
        if let Ok(Some(piece)) = &piece {
            self.sent += piece.len();
            if let Some(length) = &mut self.length {
                *length = length.saturating_sub(piece.len() as u64);
            }
        }
        Poll::Ready(piece.transpose().map(|piece| piece.map(Frame::data)))
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
