//! What programs do in a sandbox, from its agent into its log.

use std::time::Duration;

use sandboxo_model::{PhaseKind, decide::story};
use sandboxo_spool::Owner;
use tokio::time::timeout;

use crate::{context::Context, index::Live};

/// A reader or a kill waits so long for a sandbox that does not answer.
pub(crate) const BRIEFLY: Duration = Duration::from_millis(200);

/// Without an answer the lines come later, or are lost with the sandbox.
pub(crate) async fn gather(context: &Context, live: &Live, budget: Duration) {
    let record = live.record();
    if record.phase.kind() != PhaseKind::Running {
        return;
    }
    let notices = match timeout(budget, context.zone.notices(live.id)).await {
        Ok(Ok(notices)) => notices,
        Ok(Err(error)) => {
            tracing::debug!(
                sandbox.id = %live.id,
                error = &error as &dyn std::error::Error,
                "no news of its processes"
            );
            return;
        }
        Err(_elapsed) => {
            tracing::debug!(sandbox.id = %live.id, "no news of its processes in time");
            return;
        }
    };
    let owner = Owner { team: record.team, sandbox: live.id };
    let now = context.now();
    for notice in notices {
        context.spool.log(owner, story::noticed(notice, &record, now));
    }
}
