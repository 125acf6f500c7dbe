//! What a fuzzer does with a stream of messages: the way it is cut must not matter, and what was
//! read must come back as it was written.

use bytes::Bytes;

use crate::{
    connect::{Codec, Envelope, EnvelopeError, Envelopes, Form},
    filesystem, process,
};

/// Small, so that the fuzzer meets it.
const LIMIT: usize = 4096;

/// The first byte is the length of the pieces.
pub fn stream(data: &[u8]) {
    let Some((piece, bytes)) = data.split_first() else { return };
    let whole = read(bytes, bytes.len().max(1));
    assert_eq!(read(bytes, usize::from(*piece).max(1)), whole);
    for envelope in whole.into_iter().flatten() {
        if let Envelope::Message(message) = envelope {
            for codec in [Codec::Json, Codec::Proto] {
                messages(codec, &message);
            }
        }
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Some(form) = Form::of_content_type(text)
    {
        assert_eq!(Form::of_content_type(form.content_type()), Some(form));
    }
}

fn read(bytes: &[u8], piece: usize) -> Vec<Result<Envelope, EnvelopeError>> {
    let mut envelopes = Envelopes::new(LIMIT);
    let mut seen = Vec::new();
    for piece in bytes.chunks(piece) {
        envelopes.push(piece);
        while let Some(next) = envelopes.next() {
            let broken = next.is_err();
            seen.push(next);
            if broken {
                return seen;
            }
        }
    }
    seen.extend(envelopes.finish().err().map(Err));
    seen
}

fn messages(codec: Codec, bytes: &Bytes) {
    comes_back::<process::StartRequest>(codec, bytes);
    comes_back::<process::ConnectRequest>(codec, bytes);
    comes_back::<process::UpdateRequest>(codec, bytes);
    comes_back::<process::SendInputRequest>(codec, bytes);
    comes_back::<process::StreamInputRequest>(codec, bytes);
    comes_back::<process::SendSignalRequest>(codec, bytes);
    comes_back::<process::StartResponse>(codec, bytes);
    comes_back::<process::ListResponse>(codec, bytes);
    comes_back::<filesystem::ListDirRequest>(codec, bytes);
    comes_back::<filesystem::MoveRequest>(codec, bytes);
    comes_back::<filesystem::WatchDirRequest>(codec, bytes);
    comes_back::<filesystem::GetWatcherEventsRequest>(codec, bytes);
}

fn comes_back<M>(codec: Codec, bytes: &Bytes)
where
    M: prost::Message + Default + PartialEq + serde::Serialize + serde::de::DeserializeOwned,
{
    let Ok(message) = codec.decode::<M>(bytes) else { return };
    let again = codec.decode::<M>(&codec.encode(&message));
    assert!(again.is_ok_and(|again| again == message), "{codec:?}: {bytes:?}");
    let mut envelopes = Envelopes::new(usize::MAX);
    envelopes.push(&codec.envelop(&message));
    assert!(matches!(envelopes.next(), Some(Ok(Envelope::Message(_)))));
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_reads_the_same_however_it_is_cut() {
        replay::corpus(env!("CARGO_MANIFEST_DIR"), "connect", stream);
    }
}
