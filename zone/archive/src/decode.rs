//! What an archive is packed with, by its first bytes.

use std::io::{self, BufRead, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::{
    BlockDecodingStrategy, FrameDecoder,
    errors::{FrameDecoderError, ReadFrameHeaderError},
};

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Of frames that are no content; their number's lowest digit is anything.
const ZSTD_SKIPPED: [u8; 3] = [0x2a, 0x4d, 0x18];
const BUFFER: usize = 256 << 10;

pub fn decoded<'a>(stream: &'a mut impl Read) -> io::Result<Box<dyn Read + 'a>> {
    let mut first = Vec::with_capacity(ZSTD.len());
    stream.take(ZSTD.len() as u64).read_to_end(&mut first)?;
    let is_gzip = first.starts_with(&GZIP);
    let is_zstd = first.starts_with(&ZSTD) || first.get(1..) == Some(&ZSTD_SKIPPED);
    let whole = io::BufReader::with_capacity(BUFFER, io::Cursor::new(first).chain(stream));
    Ok(if is_gzip {
        Box::new(MultiGzDecoder::new(whole))
    } else if is_zstd {
        Box::new(Frames { decoder: FrameDecoder::new(), source: whole })
    } else {
        Box::new(whole)
    })
}

/// All frames of a stream, as if they were one; some tools make one for each file.
struct Frames<R> {
    decoder: FrameDecoder,
    source: R,
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Self { decoder, source } = self;
        while decoder.can_collect() == 0 && !buffer.is_empty() {
            if !decoder.is_finished() {
                let block = BlockDecodingStrategy::UptoBlocks(1);
                decoder.decode_blocks(&mut *source, block).map_err(io::Error::other)?;
            } else if source.fill_buf()?.is_empty() {
                return Ok(0);
            } else {
                begin(decoder, source)?;
            }
        }
        decoder.read(buffer)
    }
}

fn begin(decoder: &mut FrameDecoder, source: &mut impl BufRead) -> io::Result<()> {
    match decoder.init(&mut *source) {
        Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
            length,
            ..
        })) => io::copy(&mut source.take(length.into()), &mut io::sink()).map(drop),
        begun => begun.map_err(io::Error::other),
    }
}

#[cfg(test)]
mod tests {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    #[test]
    fn every_frame_counts() {
        let frame = |text: &[u8]| compress_to_vec(text, CompressionLevel::Fastest);
        let skipped = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
        let empty = frame(b"");
        for (frames, expected) in [
            (vec![frame(b"one")], "one"),
            (vec![frame(b"one"), frame(b"two")], "onetwo"),
            (vec![skipped.clone(), frame(b"one"), skipped.clone(), empty, frame(b"two")], "onetwo"),
        ] {
            let bytes = frames.concat();
            let mut read = String::new();
            decoded(&mut bytes.as_slice()).unwrap().read_to_string(&mut read).unwrap();
            assert_eq!(read, expected);
        }
        let mut cut = frame(&[b'x'; 1000]);
        cut.truncate(cut.len() - 2);
        assert!(decoded(&mut cut.as_slice()).unwrap().read_to_end(&mut Vec::new()).is_err());
    }
}
