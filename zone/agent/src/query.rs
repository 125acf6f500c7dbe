//! The query of a URL, as forms write it.

/// Pairs that don't decode are as if not there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(query: &str) -> Self {
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(name)?, decode(value)?))
        };
        Self(query.split('&').filter(|pair| !pair.is_empty()).filter_map(pair).collect())
    }

    /// The first of that name.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// As [`Self::get`], with an empty one as good as none.
    pub(crate) fn filled(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|value| !value.is_empty())
    }
}

fn decode(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'+' => b' ',
            b'%' => {
                let (high, low) = (digit(bytes.next()?)?, digit(bytes.next()?)?);
                high * 16 + low
            }
            other => other,
        });
    }
    Some(String::from_utf8_lossy(&out).into_owned())
}

fn digit(byte: u8) -> Option<u8> {
    u8::try_from(char::from(byte).to_digit(16)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_decoded_once() {
        let query =
            Query::parse("path=%2Ftmp%2Fa%252Fb+c%23%3F.txt&username=&x&bad=%zz&cut=%4&path=2");
        assert_eq!(query.get("path"), Some("/tmp/a%2Fb c#?.txt"));
        assert_eq!((query.get("username"), query.filled("username")), (Some(""), None));
        assert_eq!((query.get("x"), query.get("bad"), query.get("cut")), (Some(""), None, None));
        assert_eq!(Query::parse("p=%E6%97%A5").get("p"), Some("日"));
        assert_eq!(Query::parse(""), Query::default());
    }
}
