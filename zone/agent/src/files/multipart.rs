//! Takes apart a `multipart/form-data` body as it comes (RFC 7578). Bytes in, events out.

use bytes::{Buf, Bytes, BytesMut};

/// Of one part; a longer one is no file's.
const LONGEST_HEADERS: usize = 16 * 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    Begin(Part),
    Data(Bytes),
    End,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) file_name: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MultipartError {
    #[error("the multipart boundary is missing or malformed")]
    Boundary,
    #[error("the headers of a part are too long or malformed")]
    Headers,
    #[error("the multipart body is malformed after a boundary")]
    Malformed,
    #[error("the multipart body ended before its last boundary")]
    Cut,
}

#[derive(Debug)]
pub(crate) struct Multipart {
    /// With the line break that belongs to it.
    delimiter: Vec<u8>,
    buffer: BytesMut,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Preamble,
    AfterDelimiter,
    Headers,
    Body,
    Epilogue,
}

impl Multipart {
    pub(crate) fn new(content_type: &str) -> Result<Self, MultipartError> {
        let boundary = parameter(content_type, "boundary")
            .filter(|boundary| (1..=70).contains(&boundary.len()))
            .ok_or(MultipartError::Boundary)?;
        Ok(Self {
            delimiter: format!("\r\n--{boundary}").into_bytes(),
            // The first boundary may have no line before it.
            buffer: BytesMut::from(&b"\r\n"[..]),
            state: State::Preamble,
        })
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.state != State::Epilogue {
            self.buffer.extend_from_slice(bytes);
        }
    }

    /// `None`: more bytes are needed.
    pub(crate) fn next(&mut self) -> Result<Option<Event>, MultipartError> {
        loop {
            match self.state {
                State::Preamble => {
                    let Some(at) = memchr::memmem::find(&self.buffer, &self.delimiter) else {
                        self.keep_possible_start();
                        return Ok(None);
                    };
                    self.pass_delimiter(at);
                }
                State::AfterDelimiter => match self.buffer.get(..2) {
                    Some(b"--") => {
                        self.state = State::Epilogue;
                        self.buffer.clear();
                    }
                    Some(b"\r\n") => self.state = State::Headers,
                    // Space that was lost on the way may follow.
                    Some([b' ' | b'\t', _]) => self.buffer.advance(1),
                    Some(_) => return Err(MultipartError::Malformed),
                    None => return Ok(None),
                },
                State::Headers => return self.headers(),
                State::Body => return Ok(self.body()),
                State::Epilogue => return Ok(None),
            }
        }
    }

    /// The bytes have ended.
    pub(crate) fn finish(&self) -> Result<(), MultipartError> {
        if self.state == State::Epilogue { Ok(()) } else { Err(MultipartError::Cut) }
    }

    fn pass_delimiter(&mut self, at: usize) {
        self.buffer.advance(at + self.delimiter.len());
        self.state = State::AfterDelimiter;
    }

    fn keep_possible_start(&mut self) -> BytesMut {
        let sure = self.buffer.len().saturating_sub(self.delimiter.len() - 1);
        self.buffer.split_to(sure)
    }

    /// From the line break that ends the boundary to the empty line.
    fn headers(&mut self) -> Result<Option<Event>, MultipartError> {
        let Some(end) = memchr::memmem::find(&self.buffer, b"\r\n\r\n") else {
            if self.buffer.len() > LONGEST_HEADERS {
                return Err(MultipartError::Headers);
            }
            return Ok(None);
        };
        let headers = self.buffer.split_to(end);
        self.buffer.advance(4);
        self.state = State::Body;
        Ok(Some(Event::Begin(part_of(&headers))))
    }

    fn body(&mut self) -> Option<Event> {
        match memchr::memmem::find(&self.buffer, &self.delimiter) {
            Some(0) => {
                self.pass_delimiter(0);
                Some(Event::End)
            }
            Some(at) => Some(Event::Data(self.buffer.split_to(at).freeze())),
            None => {
                let data = self.keep_possible_start();
                (!data.is_empty()).then(|| Event::Data(data.freeze()))
            }
        }
    }
}

fn part_of(headers: &[u8]) -> Part {
    let headers = String::from_utf8_lossy(headers);
    for line in headers.split("\r\n") {
        let Some((name, value)) = line.split_once(':') else { continue };
        if name.trim().eq_ignore_ascii_case("content-disposition") {
            return Part {
                name: parameter(value, "name").unwrap_or_default(),
                file_name: parameter(value, "filename*")
                    .and_then(|value| extended(&value))
                    .or_else(|| parameter(value, "filename").map(|name| browser_name(&name))),
            };
        }
    }
    Part::default()
}

/// Of a header's value, by its name; quotes taken off.
fn parameter(value: &str, wanted: &str) -> Option<String> {
    let mut rest = value.split_once(';')?.1;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ';']);
        let (name, after) = rest.split_once('=')?;
        let (text, after) = if let Some(quoted) = after.strip_prefix('"') {
            unquoted(quoted)?
        } else {
            let end = after.find(';').unwrap_or(after.len());
            let (text, after) = after.split_at(end);
            (text.trim().to_owned(), after)
        };
        if name.trim().eq_ignore_ascii_case(wanted) {
            return Some(text);
        }
        rest = after;
    }
}

/// Up to the closing quote. Only quotes and backslashes are escaped by those who escape; browsers
/// write single backslashes as they are.
fn unquoted(quoted: &str) -> Option<(String, &str)> {
    let mut text = String::new();
    let mut chars = quoted.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((text, quoted.get(at + 1..).unwrap_or_default())),
            '\\' => {
                let escaped = chars.next_if(|(_, c)| matches!(c, '"' | '\\'));
                text.push(escaped.map_or('\\', |(_, c)| c));
            }
            c => text.push(c),
        }
    }
    None
}

/// Browsers write these three so and nothing else.
fn browser_name(name: &str) -> String {
    name.replace("%22", "\"").replace("%0D", "\r").replace("%0A", "\n")
}

/// `UTF-8''a%20b`
fn extended(value: &str) -> Option<String> {
    let (charset, rest) = value.split_once('\'')?;
    let (_language, encoded) = rest.split_once('\'')?;
    if !charset.eq_ignore_ascii_case("utf-8") {
        return None;
    }
    let mut out = Vec::new();
    let mut bytes = encoded.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let digits = [bytes.next()?, bytes.next()?];
            out.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TYPE: &str = "multipart/form-data; boundary=XX";

    /// Each part's name, file name and bytes.
    type Parts = Vec<(String, Option<String>, Vec<u8>)>;

    fn take_apart(body: &[u8], piece: usize) -> Result<Parts, MultipartError> {
        let mut multipart = Multipart::new(TYPE)?;
        let mut parts = Parts::new();
        let mut open = false;
        for bytes in body.chunks(piece) {
            multipart.push(bytes);
            while let Some(event) = multipart.next()? {
                match event {
                    Event::Begin(part) => {
                        assert!(!std::mem::replace(&mut open, true));
                        parts.push((part.name, part.file_name, Vec::new()));
                    }
                    Event::Data(data) => parts.last_mut().unwrap().2.extend_from_slice(&data),
                    Event::End => assert!(std::mem::replace(&mut open, false)),
                }
            }
        }
        multipart.finish()?;
        assert!(!open);
        Ok(parts)
    }

    #[test]
    fn bodies_come_apart() {
        let file =
            |name: &str, data: &[u8]| ("file".to_owned(), Some(name.to_owned()), data.to_vec());
        let head = "Content-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n";
        for (body, wanted) in [
            (format!("--XX\r\n{head}data\r\n--XX--\r\n"), Ok(vec![file("a", b"data")])),
            (format!("preamble\r\n--XX \r\n{head}\r\n--XX--"), Ok(vec![file("a", b"")])),
            (
                format!("--XX\r\n{head}1\r\n--X\r\n\r\n--XX\r\n{head}2\r\n--XX--epilogue\r\n--XX"),
                Ok(vec![file("a", b"1\r\n--X\r\n"), file("a", b"2")]),
            ),
            ("--XX--\r\n".to_owned(), Ok(vec![])),
            (format!("--XX\r\n{head}data\r\n--XX"), Err(MultipartError::Cut)),
            (format!("--XX\r\n{head}data"), Err(MultipartError::Cut)),
            (String::new(), Err(MultipartError::Cut)),
            (format!("--XXY\r\n{head}"), Err(MultipartError::Malformed)),
            (format!("--XX\r\n{}", "h".repeat(LONGEST_HEADERS + 9)), Err(MultipartError::Headers)),
        ] {
            for piece in [1, 2, 7, 10_000, 100_000] {
                assert_eq!(take_apart(body.as_bytes(), piece), wanted, "{body:?} by {piece}");
            }
        }
    }

    #[test]
    fn names_are_read_as_clients_write_them() {
        for (disposition, name, file_name) in [
            ("form-data; name=\"file\"", "file", None),
            ("form-data; name=file; filename=a.txt", "file", Some("a.txt")),
            (
                "form-data; filename=\"/tmp/a b;c.txt\"; name=\"file\"",
                "file",
                Some("/tmp/a b;c.txt"),
            ),
            ("form-data; name=\"file\"; filename=\"a%22b\"", "file", Some("a\"b")),
            ("form-data; name=\"file\"; filename=\"a%2Fb\"", "file", Some("a%2Fb")),
            ("form-data; name=\"file\"; filename=\"a\\\"b\\\\c\\d\"", "file", Some("a\"b\\c\\d")),
            ("form-data; name=\"file\"; filename=\"日本\"", "file", Some("日本")),
            (
                "form-data; name=\"file\"; filename=\"__\"; filename*=utf-8''%E6%97%A5%20x",
                "file",
                Some("日 x"),
            ),
            ("form-data; name=\"file\"; filename=\"open", "file", None),
        ] {
            let part = part_of(format!("Content-Disposition: {disposition}").as_bytes());
            assert_eq!((part.name.as_str(), part.file_name.as_deref()), (name, file_name));
        }
        assert_eq!(part_of(b""), Part::default());
    }

    #[test]
    fn boundaries_are_found() {
        for (content_type, fine) in [
            ("multipart/form-data; boundary=\"a b\"", true),
            ("multipart/form-data; charset=utf-8; boundary=x", true),
            ("multipart/form-data", false),
            ("multipart/form-data; boundary=", false),
        ] {
            assert_eq!(Multipart::new(content_type).is_ok(), fine, "{content_type}");
        }
    }

    proptest! {
        #[test]
        fn any_data_comes_through(
            contents in prop::collection::vec("([\r\n-]|X|[a-z]){0,60}", 0..4),
            piece in 1usize..50,
        ) {
            prop_assume!(contents.iter().all(|data| !format!("\r\n{data}").contains("\r\n--XX")));
            let mut body = String::new();
            for data in &contents {
                body += "--XX\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n";
                body += data;
                body += "\r\n";
            }
            body += "--XX--\r\n";
            let parts = take_apart(body.as_bytes(), piece).unwrap();
            let found: Vec<_> = parts.into_iter().map(|(_, _, data)| data).collect();
            let sent: Vec<_> = contents.into_iter().map(String::into_bytes).collect();
            prop_assert_eq!(found, sent);
        }
    }
}
