//! Which coding of a file a client gets.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    Identity,
    Gzip,
}

/// None of what we have will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotAcceptable;

/// Gzip where it is asked for; identity, unless it is ruled out, for parts of files and for those
/// who don't say. Of `gzip` and `identity` both named, the one weighed more.
pub(crate) fn choose(accepted: Option<&str>, only_identity: bool) -> Result<Coding, NotAcceptable> {
    let Some(accepted) = accepted else { return Ok(Coding::Identity) };
    let (mut gzip, mut identity, mut any) = (None, None, None);
    for item in accepted.split(',') {
        let (name, weight) = item_of(item);
        match name.as_str() {
            "gzip" | "x-gzip" => gzip = Some(weight),
            "identity" => identity = Some(weight),
            "*" => any = Some(weight),
            _ => {}
        }
    }
    let gzip_weight = gzip.or(any).unwrap_or(0);
    let identity_allowed = identity.or(any) != Some(0);
    let prefers_gzip = gzip_weight > 0 && gzip_weight >= identity.unwrap_or(0);
    if prefers_gzip && !only_identity {
        Ok(Coding::Gzip)
    } else if identity_allowed {
        Ok(Coding::Identity)
    } else {
        Err(NotAcceptable)
    }
}

/// A name and its weight in thousandths.
fn item_of(item: &str) -> (String, u32) {
    let mut parts = item.split(';').map(str::trim);
    let name = parts.next().unwrap_or_default().to_ascii_lowercase();
    let weight = parts.find_map(|part| {
        let value = part.strip_prefix("q=").or_else(|| part.strip_prefix("Q="))?;
        thousandths(value)
    });
    (name, weight.unwrap_or(1000))
}

fn thousandths(value: &str) -> Option<u32> {
    let (whole, fraction) = value.split_once('.').unwrap_or((value, ""));
    let digits: String = fraction.chars().chain("000".chars()).take(3).collect();
    Some((whole.parse::<u32>().ok()? * 1000 + digits.parse::<u32>().ok()?).min(1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_get_what_they_accept() {
        for (accepted, only_identity, wanted) in [
            (None, false, Ok(Coding::Identity)),
            (Some(""), false, Ok(Coding::Identity)),
            (Some("gzip, deflate"), false, Ok(Coding::Gzip)),
            (Some("gzip, deflate"), true, Ok(Coding::Identity)),
            (Some("zstd,gzip,br"), false, Ok(Coding::Gzip)),
            (Some("br"), false, Ok(Coding::Identity)),
            (Some("identity"), false, Ok(Coding::Identity)),
            (Some("gzip;q=0"), false, Ok(Coding::Identity)),
            (Some("*"), false, Ok(Coding::Gzip)),
            (Some("gzip;q=0.5, identity"), false, Ok(Coding::Identity)),
            (Some("GZIP;q=1.0, identity; q=0.5"), false, Ok(Coding::Gzip)),
            (Some("gzip, identity;q=0"), true, Err(NotAcceptable)),
            (Some("identity;q=0"), false, Err(NotAcceptable)),
            (Some("*;q=0"), false, Err(NotAcceptable)),
            (Some("br, *;q=0"), false, Err(NotAcceptable)),
            (Some("gzip, *;q=0"), false, Ok(Coding::Gzip)),
            (Some("identity, *;q=0"), false, Ok(Coding::Identity)),
        ] {
            assert_eq!(choose(accepted, only_identity), wanted, "{accepted:?}");
        }
    }
}
