//! `bench tti`: from a create to the first output of a command, as an SDK does it, beside bare
//! runsc in the same run.

mod bare;
mod lifecycle;
pub(crate) mod machine;
pub(crate) mod stats;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use futures_util::future::join_all;
use sandboxo_agent_proto::process::{ProcessConfig, StartRequest, process_event::Event};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{Context, admin::rows, agent::Agent, api::Sandbox, target::Target};
use crate::{
    config::Config,
    output::{self, Form, Progress},
    programs,
};
use bare::Bare;
pub(crate) use lifecycle::{Lifecycle, lifecycle};
use stats::{Stats, rounded};

const ECHO: [&str; 4] = ["/bin/bash", "-l", "-c", "echo hi"];
const TRUE: [&str; 4] = ["/bin/bash", "-l", "-c", "true"];
/// How long the pool may take to fill, and sandboxes to freeze.
const WARM: Duration = Duration::from_mins(2);

#[derive(Debug, clap::Args)]
pub(crate) struct Tti {
    /// How many creates, paced, and how many commands
    #[arg(short, long, default_value_t = 100)]
    n: u32,
    /// Paced creates a second
    #[arg(long, default_value_t = 3.0)]
    pace: f64,
    /// How many at once in a burst; 0 leaves bursts out
    #[arg(long, default_value_t = 20)]
    burst: u32,
    /// How many idle sandboxes to weigh; 0 leaves it out
    #[arg(long, default_value_t = 50)]
    idle: u32,
    /// What to create
    #[arg(long, default_value = "base")]
    template: String,
}

pub(crate) async fn tti(context: &Context, tti: Tti) -> Result<()> {
    if tti.n == 0 || !(0.1..=100.0).contains(&tti.pace) {
        bail!("-n must be at least 1, and --pace from 0.1 to 100");
    }
    let bench = Bench::new(context, tti).await?;
    let result = bench.run().await;
    bench.clean().await;
    let result = result?;
    match context.form {
        Form::Json => output::print_json(&result)?,
        Form::Human => output::print(&summary(&result))?,
    }
    Ok(())
}

struct Bench {
    target: Target,
    tti: Tti,
    bare: Bare,
    /// How many the pool holds when it is full.
    pool: u64,
    runsc: PathBuf,
    made: parking_lot::Mutex<Vec<String>>,
}

impl Bench {
    async fn new(context: &Context, tti: Tti) -> Result<Self> {
        let config = Config::load(&context.flags)?;
        let target = Target::find(context)?;
        let zone = target.admin_get("/zone").await?;
        let templates = target.admin_get("/templates").await?;
        let rootfs = rootfs(&zone, &templates, &tti.template)?;
        let runsc = programs::runsc(&config)?;
        let bare = Bare::new(&runsc, &config.state, &rootfs)?;
        let pool = zone.get("poolSize").and_then(Value::as_u64).context("the pool's size")?;
        let made = parking_lot::Mutex::default();
        Ok(Self { target, tti, bare, pool, runsc, made })
    }

    async fn run(&self) -> Result<Value> {
        let mut result = Map::new();
        let mut put = |name: &str, value: Value| result.insert(name.into(), value);
        put("benchmark", "tti".into());
        put("machine", machine::machine());
        put("versions", machine::versions(&self.runsc));
        put("pool", self.pool.into());
        self.full().await?;

        let (paced, parts, bare) = self.sequential().await?;
        let ratio = rounded(paced.median_ms / bare.median_ms);
        let mut sequential = serde_json::to_value(&paced)?;
        extend(&mut sequential, "ratio_to_runsc_run", ratio);
        extend(&mut sequential, "pace_per_second", self.tti.pace);
        extend(&mut sequential, "parts_median_ms", parts);
        put("sequential", sequential);
        put("runsc_run", serde_json::to_value(&bare)?);

        self.full().await?;
        let (back_to_back, per_second) = self.back_to_back().await?;
        let mut sustained = serde_json::to_value(&back_to_back)?;
        extend(&mut sustained, "creates_per_second", rounded(per_second));
        put("back_to_back", sustained);
        put("runsc_run_detach", json!({ "per_second": rounded(self.detach_rate().await?) }));

        if self.tti.burst > 0 {
            let mut burst = serde_json::to_value(self.bursts().await?)?;
            extend(&mut burst, "at_once", self.tti.burst);
            put("burst", burst);
        }
        let (login, plain) = self.commands().await?;
        put("bash_login_true", serde_json::to_value(&login)?);
        put("bash_true", serde_json::to_value(&plain)?);
        if self.tti.idle > 0 {
            put("idle", self.idle().await?);
        }
        Ok(Value::Object(result))
    }

    /// Ours and the bare one take turns, so that both meet the same machine.
    async fn sequential(&self) -> Result<(Stats, Value, Stats)> {
        let progress = Progress::of_steps("paced creates, and runsc run", self.tti.n.into());
        let gap = Duration::from_secs_f64(1.0 / self.tti.pace);
        let (mut ours, mut bare) = (Vec::new(), Vec::new());
        for round in 0..self.tti.n {
            let next = Instant::now() + gap;
            let (took, sandbox) = self.create_and_run().await?;
            ours.push(took);
            self.kill(&sandbox).await?;
            tokio::time::sleep_until(next).await;
            progress.add(1);
            // A tenth of the samples is enough for a median, and each costs the pace of one.
            if round % 10 == 0 {
                for again in 0..2 {
                    let id = format!("bare-{round:05}-{again}");
                    bare.push(self.bare.run(&id, &ECHO).await?);
                }
                self.full().await?;
            }
        }
        let none = "no samples";
        let median = |part: fn(&Took) -> f64| {
            let stats = Stats::of(ours.iter().map(part).collect()).context(none)?;
            Ok::<_, anyhow::Error>(stats.median_ms)
        };
        let parts = json!({
            "create": median(|took| took.create)?,
            "process_started": median(|took| took.started - took.create)?,
            "first_output": median(|took| took.output - took.started)?,
        });
        let ours = ours.iter().map(|took| took.output).collect();
        Ok((Stats::of(ours).context(none)?, parts, Stats::of(bare).context(none)?))
    }

    async fn back_to_back(&self) -> Result<(Stats, f64)> {
        let n = self.tti.n.min(60);
        let progress = Progress::of_steps("creates back to back", n.into());
        let begin = Instant::now();
        let mut samples = Vec::new();
        for _ in 0..n {
            samples.push(self.create_and_run().await?.0.output);
            progress.add(1);
        }
        let per_second = f64::from(n) / begin.elapsed().as_secs_f64();
        self.kill_all().await?;
        Ok((Stats::of(samples).context("no samples")?, per_second))
    }

    async fn detach_rate(&self) -> Result<f64> {
        let n = 20_u32;
        let progress = Progress::of_steps("runsc run -detach in a loop", n.into());
        let ids: Vec<String> = (0..n).map(|round| format!("loop-{round:05}")).collect();
        let begin = Instant::now();
        for id in &ids {
            self.bare.detach(id).await?;
            progress.add(1);
        }
        let rate = f64::from(n) / begin.elapsed().as_secs_f64();
        for id in &ids {
            self.bare.delete(id).await?;
        }
        Ok(rate)
    }

    async fn bursts(&self) -> Result<Stats> {
        let rounds = 3_u32;
        let progress = Progress::of_steps("bursts", rounds.into());
        let mut samples = Vec::new();
        for _ in 0..rounds {
            self.full().await?;
            let burst = (0..self.tti.burst).map(|_| self.create_and_run());
            for outcome in join_all(burst).await {
                samples.push(outcome?.0.output);
            }
            self.kill_all().await?;
            progress.add(1);
        }
        Stats::of(samples).context("no samples")
    }

    /// Commands in a sandbox that runs: from the request to the end event.
    async fn commands(&self) -> Result<(Stats, Stats)> {
        self.full().await?;
        let progress = Progress::of_steps("commands in a running sandbox", self.tti.n.into());
        let sandbox = self.create().await?;
        let agent = Agent::of(&self.target, &sandbox, Some("user".into())).in_json();
        run(&agent, &TRUE, Until::End).await?;
        let (mut login, mut plain) = (Vec::new(), Vec::new());
        for _ in 0..self.tti.n {
            let begin = Instant::now();
            run(&agent, &TRUE, Until::End).await?;
            login.push(milliseconds(begin));
            let begin = Instant::now();
            run(&agent, &["/bin/bash", "-c", "true"], Until::End).await?;
            plain.push(milliseconds(begin));
            progress.add(1);
        }
        self.kill(&sandbox).await?;
        let none = "no samples";
        Ok((Stats::of(login).context(none)?, Stats::of(plain).context(none)?))
    }

    /// With a full pool before and after, the difference is the sandboxes'.
    async fn idle(&self) -> Result<Value> {
        let progress = Progress::of_steps("idle sandboxes", self.tti.idle.into());
        self.full().await?;
        let before = settled().await?;
        for _ in 0..self.tti.idle {
            self.create().await?;
            progress.add(1);
        }
        self.full().await?;
        let after = settled().await?;
        self.kill_all().await?;
        #[expect(clippy::cast_precision_loss, reason = "KiB of memory fit")]
        let each = (before.saturating_sub(after)) as f64 / 1024.0 / f64::from(self.tti.idle);
        Ok(json!({ "sandboxes": self.tti.idle, "mib_each": rounded(each) }))
    }

    async fn create(&self) -> Result<Sandbox> {
        let body = json!({ "templateID": self.tti.template, "timeout": 600 });
        let sandbox = self.target.create(&body).await?;
        self.made.lock().push(sandbox.id.clone());
        Ok(sandbox)
    }

    async fn create_and_run(&self) -> Result<(Took, Sandbox)> {
        let begin = Instant::now();
        let sandbox = self.create().await?;
        let create = milliseconds(begin);
        let agent = Agent::of(&self.target, &sandbox, Some("user".into())).in_json();
        let (started, output) = run(&agent, &ECHO, Until::Output).await?;
        let since = |moment: Instant| moment.duration_since(begin).as_secs_f64() * 1000.0;
        Ok((Took { create, started: since(started), output: since(output) }, sandbox))
    }

    async fn kill(&self, sandbox: &Sandbox) -> Result<()> {
        self.made.lock().retain(|id| *id != sandbox.id);
        self.target.kill(&sandbox.id).await.map(|_was_there| ())
    }

    async fn kill_all(&self) -> Result<()> {
        let ids = std::mem::take(&mut *self.made.lock());
        for id in ids {
            self.target.kill(&id).await?;
        }
        Ok(())
    }

    async fn clean(&self) {
        if let Err(error) = self.kill_all().await {
            output::note(&format!("some sandboxes of this run may be left: {error:#}"));
        }
    }

    async fn full(&self) -> Result<()> {
        level(&self.target, "/capacity/warm", self.pool).await
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// The first piece of output; the stream is read to its end after the clock has stopped.
    Output,
    End,
}

/// Milliseconds from the request for a sandbox to each answer.
struct Took {
    create: f64,
    started: f64,
    output: f64,
}

/// The request an SDK makes for `commands.run`. When it had started, and when the awaited event
/// came.
async fn run(agent: &Agent, command: &[&str], until: Until) -> Result<(Instant, Instant)> {
    let mut words = command.iter().map(|word| (*word).to_owned());
    let process = ProcessConfig {
        cmd: words.next().unwrap_or_default(),
        args: words.collect(),
        envs: std::collections::BTreeMap::new(),
        cwd: None,
    };
    let start = StartRequest { process: Some(process), pty: None, tag: None, stdin: Some(false) };
    let mut events = agent.start(&start, Some(Duration::from_mins(1))).await?;
    let (mut started, mut came) = (None, None);
    while let Some(event) = events.next().await? {
        match event.event {
            Some(Event::Start(_)) => started = Some(Instant::now()),
            Some(Event::Data(_)) if until == Until::Output && came.is_none() => {
                came = Some(Instant::now());
            }
            Some(Event::End(end)) => {
                if until == Until::End {
                    came = Some(Instant::now());
                }
                if !end.exited || end.exit_code != 0 {
                    bail!("{command:?} ended with {}", end.status);
                }
            }
            Some(_) | None => {}
        }
    }
    started.zip(came).with_context(|| format!("{command:?} said nothing"))
}

/// Waits for the level, not for a time, and for a report that is not older than the call.
async fn level(target: &Target, field: &str, wanted: u64) -> Result<()> {
    let until = Instant::now() + WARM;
    let mut before = None;
    loop {
        let zone = target.admin_get("/zone").await?;
        let now = zone.pointer(field).and_then(Value::as_u64).unwrap_or(0);
        let told_at = zone.pointer("/capacity/toldAt").and_then(Value::as_str);
        let before = before.get_or_insert_with(|| told_at.map(str::to_owned));
        if now >= wanted && told_at != before.as_deref() {
            return Ok(());
        }
        if Instant::now() > until {
            bail!("{field} is {now} and not {wanted} after {WARM:?}");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// `MemAvailable` in KiB once it stands still: two readings a second apart within 1 MiB.
async fn settled() -> Result<u64> {
    let read = || machine::meminfo("MemAvailable").context("read /proc/meminfo");
    let mut last = read()?;
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = read()?;
        if now.abs_diff(last) < 1024 {
            return Ok(now);
        }
        last = now;
    }
    Ok(last)
}

/// The unpacked image, for the bare runs; the appliance must be on this host.
fn rootfs(zone: &Value, templates: &Value, wanted: &str) -> Result<PathBuf> {
    let is = |text: Option<&Value>| text.and_then(Value::as_str) == Some(wanted);
    let template = rows(templates)
        .iter()
        .find(|template| is(template.get("name")) || is(template.get("id")))
        .with_context(|| format!("there is no template {wanted}"))?;
    let image = template.get("image").and_then(Value::as_str).context("the template's image")?;
    let images = zone.get("images").and_then(Value::as_str).context("the zone's images")?;
    let rootfs = Path::new(images).join(image).join("rootfs");
    if !rootfs.is_dir() {
        bail!("{} is not there: run the bench on the appliance's own host", rootfs.display());
    }
    Ok(rootfs)
}

fn milliseconds(begin: Instant) -> f64 {
    begin.elapsed().as_secs_f64() * 1000.0
}

fn extend(object: &mut Value, name: &str, value: impl Into<Value>) {
    if let Some(map) = object.as_object_mut() {
        map.insert(name.into(), value.into());
    }
}

fn summary(result: &Value) -> String {
    let number = |path: &str| result.pointer(path).and_then(Value::as_f64);
    let shown = |path: &str| number(path).map_or_else(|| "-".to_owned(), |n| format!("{n:.2}"));
    let row = |what: &str, key: &str| {
        let of = |field: &str| shown(&format!("/{key}/{field}"));
        [what.to_owned(), of("median_ms"), of("p95_ms"), of("p99_ms"), of("n").replace(".00", "")]
    };
    let rows = [
        row("create to first output, paced", "sequential"),
        row("runsc run to first output", "runsc_run"),
        row("create to first output, back to back", "back_to_back"),
        row("create to first output, burst", "burst"),
        row("bash -l -c true", "bash_login_true"),
        row("bash -c true", "bash_true"),
    ];
    format!(
        "{}\n\nof the paced median: create {}, process started {}, first output {}\n\
         ratio to runsc run: {}\ncreates a second: {} (runsc run -detach in a loop: {})\n\
         memory of an idle sandbox: {} MiB",
        output::table(["MILLISECONDS", "MEDIAN", "P95", "P99", "N"], &rows),
        shown("/sequential/parts_median_ms/create"),
        shown("/sequential/parts_median_ms/process_started"),
        shown("/sequential/parts_median_ms/first_output"),
        shown("/sequential/ratio_to_runsc_run"),
        shown("/back_to_back/creates_per_second"),
        shown("/runsc_run_detach/per_second"),
        shown("/idle/mib_each"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_says_what_was_left_out() {
        let result = json!({
            "sequential": { "n": 100, "median_ms": 21.5, "p95_ms": 30, "p99_ms": 41.25, "ratio_to_runsc_run": 0.17 },
            "runsc_run": { "n": 20, "median_ms": 126, "p95_ms": 130, "p99_ms": 140 },
            "back_to_back": { "n": 60, "median_ms": 60, "p95_ms": 70, "p99_ms": 80, "creates_per_second": 14.2 },
            "runsc_run_detach": { "per_second": 9.1 },
        });
        let text = summary(&result);
        assert!(
            text.contains("create to first output, paced         21.50   30.00   41.25   100"),
            "{text}"
        );
        assert!(text.contains("ratio to runsc run: 0.17"));
        assert!(text.contains("memory of an idle sandbox: - MiB"));
    }
}
