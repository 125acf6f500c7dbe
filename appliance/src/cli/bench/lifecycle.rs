//! `bench lifecycle`: pauses, resumes, snapshots and forks of sandboxes that hold memory, as a
//! client asks for them, beside runsc's own checkpoint and restore in the same run.

mod frozen;

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, bail};
use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{
    Bare, ECHO, Until, extend, machine, milliseconds, rootfs, run,
    stats::{Stats, rounded},
};
use crate::{
    cli::{
        Context,
        admin::rows,
        agent::Agent,
        api::{self, Sandbox, segment},
        target::Target,
    },
    config::Config,
    output::{self, Form, Progress},
    programs,
};

/// For the agent, the kernel's own and what the memory is made with.
const BESIDE_MIB: u32 = 128;
/// How long blanks may take to be there.
const READY: Duration = Duration::from_mins(1);
/// A fork of many costs as much as many resumes.
const ROUNDS_PER_FORK: u32 = 3;

#[derive(Debug, clap::Args)]
pub(crate) struct Lifecycle {
    /// Rounds for each size of memory
    #[arg(short, long, default_value_t = 10)]
    n: u32,
    /// How much random memory the sandboxes hold, in MiB; half of a sandbox's memory at most
    #[arg(long, value_delimiter = ',', default_value = "0,64")]
    memory: Vec<u32>,
    /// How many copies a large fork has; 0 leaves it out
    #[arg(long, default_value_t = 10)]
    forks: u32,
    /// How many are resumed at once, without memory of their own; 0 leaves it out
    #[arg(long, default_value_t = 20)]
    at_once: u32,
    /// How many are frozen and woken, one after another; 0 leaves it out
    #[arg(long, default_value_t = 0)]
    frozen: u32,
    /// What to create
    #[arg(long, default_value = "base")]
    template: String,
}

pub(crate) async fn lifecycle(context: &Context, ask: Lifecycle) -> Result<()> {
    if ask.n == 0 || ask.forks > 100 {
        bail!("-n must be at least 1, and --forks at most 100");
    }
    let bench = Bench::new(context, ask).await?;
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
    ask: Lifecycle,
    bare: Bare,
    /// How many blanks wait while something can be restored.
    blanks: u64,
    /// How many the pool holds when it is full.
    pool: u64,
    /// In seconds; 0: never.
    freeze_after: u64,
    runsc: PathBuf,
    made: parking_lot::Mutex<Vec<String>>,
}

/// Milliseconds of each call, in the order of the rounds.
#[derive(Default)]
struct Samples {
    pause: Vec<f64>,
    resume: Vec<f64>,
    /// From the resume's request to a command's output.
    resume_to_output: Vec<f64>,
    snapshot: Vec<f64>,
    fork_one: Vec<f64>,
    fork_many: Vec<f64>,
    runsc_checkpoint: Vec<f64>,
    runsc_restore: Vec<f64>,
}

impl Bench {
    async fn new(context: &Context, ask: Lifecycle) -> Result<Self> {
        let config = Config::load(&context.flags)?;
        let target = Target::find(context)?;
        let zone = target.admin_get("/zone").await?;
        let templates = target.admin_get("/templates").await?;
        let rootfs = rootfs(&zone, &templates, &ask.template)?;
        let runsc = programs::runsc(&config)?;
        let bare = Bare::new(&runsc, &config.state, &rootfs)?;
        // An appliance of an earlier version has none.
        let number = |field: &str| zone.get(field).and_then(Value::as_u64).unwrap_or(0);
        let (blanks, pool) = (number("blanks"), number("poolSize"));
        let freeze_after = number("freezeAfterSeconds");
        let made = parking_lot::Mutex::default();
        Ok(Self { target, ask, bare, blanks, pool, freeze_after, runsc, made })
    }

    async fn run(&self) -> Result<Value> {
        let mut result = Map::new();
        let mut put = |name: &str, value: Value| result.insert(name.into(), value);
        put("benchmark", "lifecycle".into());
        put("machine", machine::machine());
        put("versions", machine::versions(&self.runsc));
        put("blanks", self.blanks.into());
        let mut sizes = Vec::new();
        for mib in &self.ask.memory {
            sizes.push(self.size(*mib).await?);
        }
        put("sizes", sizes.into());
        if self.ask.at_once > 0 {
            put("resumes_at_once", self.at_once().await?);
        }
        if self.ask.frozen > 0 {
            put("frozen", self.frozen().await?);
        }
        Ok(Value::Object(result))
    }

    /// Ours and the bare one take turns, so that both meet the same machine.
    async fn size(&self, mib: u32) -> Result<Value> {
        let progress = Progress::of_steps(&format!("sandboxes of {mib} MiB"), self.ask.n.into());
        let mut samples = Samples::default();
        for round in 0..self.ask.n {
            self.round(mib, round, &mut samples).await?;
            self.bare_round(mib, round, &mut samples).await?;
            progress.add(1);
        }
        samples.report(mib, self.ask.forks)
    }

    async fn round(&self, mib: u32, round: u32, samples: &mut Samples) -> Result<()> {
        let sandbox = self.hold(mib).await?;
        let begin = Instant::now();
        self.pause(&sandbox.id).await?;
        samples.pause.push(milliseconds(begin));

        self.ready().await?;
        let begin = Instant::now();
        let resumed = self.resume(&sandbox.id).await?;
        samples.resume.push(milliseconds(begin));
        let agent = Agent::of(&self.target, &resumed, Some("user".into())).in_json();
        run(&agent, &ECHO, Until::Output).await?;
        samples.resume_to_output.push(milliseconds(begin));

        self.ready().await?;
        let begin = Instant::now();
        let snapshot = self.snapshot(&sandbox.id).await?;
        samples.snapshot.push(milliseconds(begin));
        self.forget(&snapshot).await?;

        samples.fork_one.push(self.fork(&sandbox.id, 1).await?);
        if self.ask.forks > 0 && round.is_multiple_of(ROUNDS_PER_FORK) {
            samples.fork_many.push(self.fork(&sandbox.id, self.ask.forks).await?);
        }
        self.kill_all().await
    }

    async fn bare_round(&self, mib: u32, round: u32, samples: &mut Samples) -> Result<()> {
        let (id, again) =
            (format!("hold-{mib:05}-{round:05}"), format!("back-{mib:05}-{round:05}"));
        self.bare.hold(&id, mib).await?;
        samples.runsc_checkpoint.push(self.bare.checkpoint(&id).await?);
        samples.runsc_restore.push(self.bare.restore(&id, &again).await?);
        self.bare.delete(&again).await
    }

    async fn at_once(&self) -> Result<Value> {
        let count = self.ask.at_once;
        let progress = Progress::of_steps("resumes at once", count.into());
        for _ in 0..count {
            let sandbox = self.hold(0).await?;
            self.pause(&sandbox.id).await?;
            progress.add(1);
        }
        self.ready().await?;
        let paused = self.made.lock().clone();
        let begin = Instant::now();
        let resumes = paused.iter().map(|id| async {
            self.resume(id).await?;
            Ok::<_, anyhow::Error>(milliseconds(begin))
        });
        let samples: Result<Vec<f64>> = join_all(resumes).await.into_iter().collect();
        let stats = Stats::of(samples?).context("no samples")?;
        self.kill_all().await?;
        Ok(serde_json::to_value(stats)?)
    }

    /// One that has that much random memory.
    async fn hold(&self, mib: u32) -> Result<Sandbox> {
        let body = json!({ "templateID": self.ask.template, "timeout": 600 });
        let sandbox = self.target.create(&body).await?;
        self.made.lock().push(sandbox.id.clone());
        if let Some(memory) = self.target.sandbox_of(&sandbox.id).await?.memory_mb
            && mib + BESIDE_MIB.max(mib) > memory
        {
            bail!(
                "sandboxes of {} have {memory} MiB, in which {mib} MiB can't be held: name a \
                 template with more memory by --template, or less by --memory",
                self.ask.template
            );
        }
        let agent = Agent::of(&self.target, &sandbox, Some("user".into())).in_json();
        let fill = format!("head -c {mib}M /dev/urandom > /dev/shm/held && echo held");
        run(&agent, &["/bin/sh", "-c", &fill], Until::Output).await?;
        Ok(sandbox)
    }

    async fn pause(&self, id: &str) -> Result<()> {
        let path = format!("/sandboxes/{}/pause", segment(id));
        let answer = self.target.ask(Method::POST, &path)?.json(&json!({})).send().await;
        api::good(api::reached(answer)?).await.map(drop)
    }

    async fn resume(&self, id: &str) -> Result<Sandbox> {
        let path = format!("/v2/sandboxes/{}/connect", segment(id));
        let body = json!({ "timeout": 600 });
        api::json(self.target.ask(Method::POST, &path)?.json(&body).send().await).await
    }

    async fn snapshot(&self, id: &str) -> Result<String> {
        let path = format!("/sandboxes/{}/snapshots", segment(id));
        let answer = self.target.ask(Method::POST, &path)?.json(&json!({})).send().await;
        let taken: Value = api::json(answer).await?;
        let id = taken.get("snapshotID").and_then(Value::as_str).context("the snapshot's id")?;
        Ok(id.to_owned())
    }

    async fn forget(&self, snapshot: &str) -> Result<()> {
        let path = format!("/templates/{}", segment(snapshot));
        let answer = self.target.ask(Method::DELETE, &path)?.send().await;
        api::good(api::reached(answer)?).await.map(drop)
    }

    /// Milliseconds until all copies run.
    async fn fork(&self, id: &str, count: u32) -> Result<f64> {
        let path = format!("/sandboxes/{}/fork", segment(id));
        let body = json!({ "count": count, "timeout": 600 });
        self.ready().await?;
        let begin = Instant::now();
        let copies: Value =
            api::json(self.target.ask(Method::POST, &path)?.json(&body).send().await).await?;
        let took = milliseconds(begin);
        let ids =
            rows(&copies).iter().filter_map(|copy| copy.pointer("/sandbox/sandboxID")?.as_str());
        let ids: Vec<String> = ids.map(str::to_owned).collect();
        let run = ids.len();
        for copy in ids {
            self.target.kill(&copy).await?;
        }
        if run != count as usize {
            bail!("{run} of {count} copies started: {copies}");
        }
        Ok(took)
    }

    /// As they are when nobody has paused or resumed anything for some seconds.
    async fn ready(&self) -> Result<()> {
        let until = Instant::now() + READY;
        loop {
            let zone = self.target.admin_get("/zone").await?;
            let there = zone.pointer("/capacity/blanks").and_then(Value::as_u64).unwrap_or(0);
            if there >= self.blanks {
                return Ok(());
            }
            if Instant::now() > until {
                bail!("{there} of {} blanks are there after {READY:?}", self.blanks);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
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
}

impl Samples {
    fn report(self, mib: u32, forks: u32) -> Result<Value> {
        let mut report = json!({ "mib": mib, "forks": forks });
        let checkpoint = Stats::of(self.runsc_checkpoint).context("no samples")?;
        let restore = Stats::of(self.runsc_restore).context("no samples")?;
        for (name, samples, beside) in [
            ("pause", self.pause, Some(("ratio_to_runsc_checkpoint", checkpoint.median_ms))),
            ("resume", self.resume, Some(("ratio_to_runsc_restore", restore.median_ms))),
            ("resume_to_output", self.resume_to_output, None),
            ("snapshot", self.snapshot, None),
            ("fork_one", self.fork_one, None),
            ("fork_many", self.fork_many, None),
        ] {
            // What was left out has no samples.
            let Some(stats) = Stats::of(samples) else { continue };
            let median = stats.median_ms;
            let mut stats = serde_json::to_value(stats)?;
            if let Some((ratio, bare)) = beside {
                extend(&mut stats, ratio, rounded(median / bare));
            }
            extend(&mut report, name, stats);
        }
        extend(&mut report, "runsc_checkpoint", serde_json::to_value(checkpoint)?);
        extend(&mut report, "runsc_restore", serde_json::to_value(restore)?);
        Ok(report)
    }
}

fn summary(result: &Value) -> String {
    let mut shown = Vec::new();
    let mut row = |what: String, stats: Option<&Value>, ratio: Option<&str>| {
        let Some(stats) = stats else { return };
        let number = |field: &str| stats.get(field).and_then(Value::as_f64);
        let of = |field: &str| number(field).map_or_else(|| "-".to_owned(), |n| format!("{n:.1}"));
        let ratio = ratio.and_then(number).map(|n| format!("{n:.2}")).unwrap_or_default();
        let n = stats.get("n").and_then(Value::as_u64).unwrap_or(0).to_string();
        shown.push([what, of("median_ms"), of("p99_ms"), n, ratio]);
    };
    for size in result.get("sizes").map(rows).unwrap_or_default() {
        let mib = size.get("mib").and_then(Value::as_u64).unwrap_or(0);
        let forks = size.get("forks").and_then(Value::as_u64).unwrap_or(0);
        for (what, key, ratio) in [
            ("pause".to_owned(), "pause", Some("ratio_to_runsc_checkpoint")),
            ("runsc checkpoint".to_owned(), "runsc_checkpoint", None),
            ("resume".to_owned(), "resume", Some("ratio_to_runsc_restore")),
            ("runsc restore".to_owned(), "runsc_restore", None),
            ("resume to a command's output".to_owned(), "resume_to_output", None),
            ("snapshot".to_owned(), "snapshot", None),
            ("fork ×1".to_owned(), "fork_one", None),
            (format!("fork ×{forks}"), "fork_many", None),
        ] {
            row(format!("{what}, {mib} MiB"), size.get(key), ratio);
        }
    }
    let at_once = result.get("resumes_at_once");
    let count = at_once.and_then(|stats| stats.get("n")).and_then(Value::as_u64).unwrap_or(0);
    row(format!("{count} resumes at once"), at_once, None);
    let frozen = result.get("frozen");
    for (what, key) in [
        ("request to a frozen one", "/request/frozen"),
        ("the same again", "/request/awake"),
        ("command in a frozen one", "/command/frozen"),
        ("the same again", "/command/awake"),
    ] {
        row(what.to_owned(), frozen.and_then(|frozen| frozen.pointer(key)), None);
    }
    let weight = frozen.and_then(|frozen| frozen.get("mib_each")).and_then(Value::as_f64);
    let weight = weight.map(|mib| format!("a frozen one holds {mib:.1} MiB\n"));
    let mut text = output::table(["MILLISECONDS", "MEDIAN", "P99", "N", "TO RUNSC"], &shown);
    text.push_str(&weight.unwrap_or_default());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_ratios_to_the_same_run() {
        let samples = Samples {
            pause: vec![50.0],
            resume: vec![60.0, 80.0],
            runsc_checkpoint: vec![100.0],
            runsc_restore: vec![140.0],
            ..Samples::default()
        };
        let size = samples.report(64, 10).unwrap();
        assert_eq!(size["resume"]["ratio_to_runsc_restore"], 0.5);
        assert_eq!(size["pause"]["ratio_to_runsc_checkpoint"], 0.5);
        assert_eq!(size.get("fork_many"), None, "what was left out is not told");
        let text = summary(&json!({ "sizes": [size] }));
        let line = |name| text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        let words: Vec<_> = line("resume, 64 MiB").split_whitespace().collect();
        assert_eq!(words, ["resume,", "64", "MiB", "70.0", "80.0", "2", "0.50"], "{text}");
        assert!(!text.contains("fork"), "{text}");
    }
}
