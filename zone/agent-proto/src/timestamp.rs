//! A moment as protobuf has it; RFC 3339 with `Z` in JSON.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};

#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct Timestamp {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the moment is out of range")]
pub struct OutOfRange;

impl TryFrom<Timestamp> for jiff::Timestamp {
    type Error = OutOfRange;

    fn try_from(at: Timestamp) -> Result<Self, OutOfRange> {
        Self::new(at.seconds, at.nanos).or(Err(OutOfRange))
    }
}

impl From<jiff::Timestamp> for Timestamp {
    fn from(at: jiff::Timestamp) -> Self {
        // Protobuf counts nanoseconds forward from the second below.
        let (mut seconds, mut nanos) = (at.as_second(), at.subsec_nanosecond());
        if nanos < 0 {
            seconds -= 1;
            nanos += 1_000_000_000;
        }
        Self { seconds, nanos }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let at = jiff::Timestamp::try_from(*self).map_err(ser::Error::custom)?;
        serializer.collect_str(&at)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Timestamp;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a moment as RFC 3339")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Timestamp, E> {
                let at: jiff::Timestamp = text
                    .parse()
                    .map_err(|_error| E::invalid_value(de::Unexpected::Str(text), &self))?;
                Ok(at.into())
            }
        }
        deserializer.deserialize_str(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_come_back_from_json() {
        for (seconds, nanos, text) in [
            (0, 0, "\"1970-01-01T00:00:00Z\""),
            (1, 500_000_000, "\"1970-01-01T00:00:01.5Z\""),
            (-2, 500_000_000, "\"1969-12-31T23:59:58.5Z\""),
            (1_790_000_000, 123_456_789, "\"2026-09-21T14:13:20.123456789Z\""),
        ] {
            let at = Timestamp { seconds, nanos };
            assert_eq!(serde_json::to_string(&at).unwrap(), text);
            assert_eq!(serde_json::from_str::<Timestamp>(text).unwrap(), at);
        }
        let offset: Timestamp = serde_json::from_str("\"1970-01-01T01:00:00+01:00\"").unwrap();
        assert_eq!(offset, Timestamp::default());
        assert!(serde_json::from_str::<Timestamp>("\"yesterday\"").is_err());
    }
}
