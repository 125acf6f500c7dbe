//! What frozen sandboxes weigh, and how long one takes to answer again.

use anyhow::{Context as _, Result, bail};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    super::{ECHO, Until, level, milliseconds, rounded, run, settled, stats::Stats},
    Bench,
};
use crate::{
    cli::{
        agent::Agent,
        api::{self, Sandbox},
    },
    output::Progress,
};

/// Milliseconds of the same call, to a frozen one and right after that.
#[derive(Default)]
struct Pairs {
    frozen: Vec<f64>,
    awake: Vec<f64>,
}

impl Pairs {
    fn report(self) -> Result<Value> {
        let frozen = Stats::of(self.frozen).context("no samples")?;
        let awake = Stats::of(self.awake).context("no samples")?;
        Ok(json!({ "added_median_ms": rounded(frozen.median_ms - awake.median_ms),
            "frozen": frozen, "awake": awake }))
    }
}

impl Bench {
    /// Each sandbox is woken once by the smallest request, and once by a command.
    pub(super) async fn frozen(&self) -> Result<Value> {
        let count = self.ask.frozen;
        if self.freeze_after == 0 {
            bail!(
                "this appliance freezes no sandbox: set zone.freeze_after_seconds (1 is quickest), \
                 or leave this out with --frozen 0"
            );
        }
        let progress = Progress::of_steps("frozen sandboxes", (count * 3).into());
        level(&self.target, "/capacity/warm", self.pool).await?;
        let before = settled().await?;
        let mut sandboxes = Vec::new();
        for _ in 0..count {
            let body = json!({ "templateID": self.ask.template, "timeout": 600 });
            let sandbox = self.target.create(&body).await?;
            self.made.lock().push(sandbox.id.clone());
            sandboxes.push(sandbox);
            progress.add(1);
        }
        level(&self.target, "/capacity/warm", self.pool).await?;
        level(&self.target, "/capacity/frozen", count.into()).await?;
        let after = settled().await?;
        #[expect(clippy::cast_precision_loss, reason = "KiB of memory fit")]
        let each = (before.saturating_sub(after)) as f64 / 1024.0 / f64::from(count);

        let mut request = Pairs::default();
        for sandbox in &sandboxes {
            let agent = Agent::of(&self.target, sandbox, None);
            request.frozen.push(health(&agent).await?);
            request.awake.push(health(&agent).await?);
            progress.add(1);
        }
        level(&self.target, "/capacity/frozen", count.into()).await?;
        let mut command = Pairs::default();
        for sandbox in &sandboxes {
            command.frozen.push(self.output(sandbox).await?);
            command.awake.push(self.output(sandbox).await?);
            progress.add(1);
        }
        self.kill_all().await?;
        Ok(json!({
            "sandboxes": count,
            "mib_each": rounded(each),
            "request": request.report()?,
            "command": command.report()?,
        }))
    }

    async fn output(&self, sandbox: &Sandbox) -> Result<f64> {
        let agent = Agent::of(&self.target, sandbox, Some("user".into())).in_json();
        let begin = Instant::now();
        let (_started, output) = run(&agent, &ECHO, Until::Output).await?;
        Ok(output.duration_since(begin).as_secs_f64() * 1000.0)
    }
}

async fn health(agent: &Agent) -> Result<f64> {
    let begin = Instant::now();
    let answer = agent.request(Method::GET, "/health").send().await;
    api::good(api::reached(answer)?).await?;
    Ok(milliseconds(begin))
}
