//! What a sandbox's agent has to tell of programs, which it does once.

use sandboxo_channel::{ChannelError, Request, Response, ZoneEnd};
use sandboxo_zone_protocol::{Notice, Noticed, Timestamp};

pub(crate) async fn fetch(end: &ZoneEnd) -> Result<Vec<Notice>, ChannelError> {
    if let Response::Notices(notices) = end.request(Request::Notices).await? {
        Ok(notices.into_iter().map(notice).collect())
    } else {
        // An agent of an earlier version keeps none.
        Ok(Vec::new())
    }
}

fn notice(told: sandboxo_channel::Notice) -> Notice {
    use sandboxo_channel::Noticed as Told;
    let sandboxo_channel::Notice { at_ms, what } = told;
    Notice {
        at: Timestamp::from_millisecond(at_ms).unwrap_or_default(),
        what: match what {
            Told::Started { pid, command } => Noticed::Started { pid, command },
            Told::Ended { pid, exit_code, status } => Noticed::Ended { pid, exit_code, status },
            Told::Missed { count } => Noticed::Missed { count },
        },
    }
}
