//! What clients were told, and whether it holds after the next start.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use futures_util::future::{join_all, try_join_all};
use reqwest::{Method, StatusCode};
use sandboxo_tests::{Appliance, Client, eventually, id};
use serde_json::{Value, json};
use tokio::time::Instant;

/// A client is told of an end this much late at most, on a busy machine.
const LATE: Duration = Duration::from_secs(20);

#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) sandbox: Value,
    pub(crate) promise: Promise,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Promise {
    /// Its create was answered.
    Lives,
    /// It was, and its time is short.
    Until(Instant),
    /// A kill was asked for, and not answered.
    Ending,
    /// The kill was answered.
    Dead,
}

pub(crate) type Book = BTreeMap<String, Known>;

pub(crate) struct World {
    pub(crate) appliance: Appliance,
    pub(crate) client: Client,
    pub(crate) book: Book,
    buried: BTreeSet<String>,
    /// How much of the log was looked at.
    heard: usize,
}

/// Never said by an appliance that comes back as it should.
const NEVER: [&str; 5] = [
    "not everything could be reconciled",
    "the ends of some sandboxes are not recorded yet",
    "slot and agent disagree",
    "can't kill a sandbox without a record",
    "panicked",
];

impl World {
    pub(crate) async fn start(warm: u32) -> Result<Self> {
        // Whatever dies, some sandboxes are frozen meanwhile.
        let freezing = json!({ "zone": { "freeze_after_seconds": 1 } });
        let appliance = Appliance::start_set(warm, freezing).await?;
        let client = appliance.client.clone();
        let (book, buried) = (Book::new(), BTreeSet::new());
        Ok(Self { appliance, client, book, buried, heard: 0 })
    }

    /// Until the server has died; whatever was asked of it has no effect on this.
    pub(crate) async fn dies_within(&mut self, limit: Duration) -> Result<bool> {
        let until = Instant::now() + limit;
        while !self.appliance.has_died()? {
            if Instant::now() > until {
                return Ok(false);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(true)
    }

    /// Serves again, and compares.
    pub(crate) async fn comes_back(&mut self) -> Result<()> {
        self.appliance.call_off_death()?;
        self.appliance.serve().await?;
        self.check().await.with_context(|| self.appliance.tail())
    }

    /// Every promise is kept, everything that is listed is of use, and nothing is left over.
    async fn check(&mut self) -> Result<()> {
        // Creates that were not answered are finished first.
        self.appliance.leaks().await?;
        let listed: BTreeSet<String> =
            self.client.listed("running,paused").await?.into_iter().collect();
        let now = Instant::now();
        for (id, known) in &mut self.book {
            let is_listed = listed.contains(id);
            match known.promise {
                Promise::Lives => ensure!(is_listed, "{id} was promised, and is lost"),
                Promise::Dead => ensure!(!is_listed, "{id} was killed, and is back"),
                Promise::Until(end) => {
                    ensure!(is_listed || now + LATE > end, "{id} ended before its time");
                    ensure!(!is_listed || now < end + LATE, "{id} outlives its time");
                }
                Promise::Ending => {
                    known.promise = if is_listed { Promise::Lives } else { Promise::Dead };
                }
            }
        }
        ensure!(listed.is_disjoint(&self.buried), "a dead one is back: {listed:?}");
        for id in &listed {
            if self.book.contains_key(id) {
                continue;
            }
            let sandbox = self.client.connect(&json!({ "sandboxID": id })).await?;
            self.book.insert(id.clone(), Known { sandbox, promise: Promise::Lives });
        }
        let of_use = self.book.values().filter(|known| known.promise == Promise::Lives);
        try_join_all(of_use.map(|known| usable(&self.client, &known.sandbox))).await?;
        self.bury(&listed).await?;
        let said = self.appliance.said();
        let news = said.get(self.heard..).unwrap_or_default();
        for never in NEVER {
            ensure!(!news.contains(never), "it said {never:?}");
        }
        self.heard = said.len();
        Ok(())
    }

    /// The dead are recorded as dead, each for a reason that a client gave.
    async fn bury(&mut self, listed: &BTreeSet<String>) -> Result<()> {
        let reasons = self.reasons().await?;
        for (id, reason) in &reasons {
            let asked_for = matches!(reason.as_str(), "killed" | "timed_out");
            // A create that nobody was answered may have been too late when it was found.
            let is_unknown = !self.book.contains_key(id) && !self.buried.contains(id);
            let too_late = reason == "start_failed" && is_unknown;
            ensure!(asked_for || too_late, "{id} died of {reason}");
        }
        let over = |id: &String, known: &Known| match known.promise {
            Promise::Dead => true,
            Promise::Until(_) => !listed.contains(id),
            Promise::Lives | Promise::Ending => false,
        };
        let gone: Vec<_> =
            self.book.iter().filter(|(id, it)| over(id, it)).map(|(id, _)| id.clone()).collect();
        for id in gone {
            ensure!(reasons.contains_key(&id), "nothing is known of the end of {id}");
            self.book.remove(&id);
            self.buried.insert(id);
        }
        Ok(())
    }

    async fn reasons(&self) -> Result<BTreeMap<String, String>> {
        let mut reasons = BTreeMap::new();
        let mut query = vec![("dead", "true".to_owned())];
        loop {
            let ask = self.client.admin(Method::GET, "/admin/v1/sandboxes").query(&query);
            let page: Value = ask.send().await?.error_for_status()?.json().await?;
            for sandbox in page.get("sandboxes").and_then(Value::as_array).context("sandboxes")? {
                let text = |field: &str| Some(sandbox.get(field)?.as_str()?.to_owned());
                if let (Some(id), Some(reason)) = (text("id"), text("reason")) {
                    reasons.insert(id, reason);
                }
            }
            match page.get("token").and_then(Value::as_str) {
                Some(token) => {
                    query = vec![("dead", "true".to_owned()), ("token", token.to_owned())];
                }
                None => return Ok(reasons),
            }
        }
    }

    /// Whatever one start found out of step, the next one finds in step.
    pub(crate) async fn has_converged(&mut self) -> Result<()> {
        self.check().await?;
        self.appliance.crash()?;
        self.appliance.serve().await?;
        let said = self.appliance.said();
        let news = said.get(self.heard..).unwrap_or_default();
        ensure!(!news.contains("zone and records differ"), "a second pass was needed: {news}");
        self.check().await
    }
}

/// `None`: no answer came.
pub(crate) async fn create(client: &Client, seconds: u64, key: &str) -> Result<Option<Value>> {
    create_as(client, json!({ "templateID": "base", "timeout": seconds }), key).await
}

/// With the volume of this name.
pub(crate) async fn create_with(
    client: &Client,
    seconds: u64,
    key: &str,
    volume: &str,
) -> Result<Option<Value>> {
    let mounts = json!([{ "name": volume, "path": "/data" }]);
    let body = json!({ "templateID": "base", "timeout": seconds, "volumeMounts": mounts });
    create_as(client, body, key).await
}

async fn create_as(client: &Client, body: Value, key: &str) -> Result<Option<Value>> {
    let asked = client.api(Method::POST, "/v2/sandboxes");
    let asked = asked.header("Idempotency-Key", key).json(&body);
    let Some((status, text)) = answer(asked).await else { return Ok(None) };
    ensure!(status == StatusCode::CREATED, "a create was answered with {status}: {text}");
    Ok(Some(serde_json::from_str(&text)?))
}

/// With the key of a create that got no answer: one sandbox comes of both.
pub(crate) async fn create_again(client: &Client, seconds: u64, key: &str) -> Result<Value> {
    eventually(Duration::from_secs(30), || async {
        create(client, seconds, key).await?.context("no answer")
    })
    .await
}

pub(crate) async fn kill(client: &Client, known: &mut Known) -> Result<()> {
    let path = format!("/sandboxes/{}", id(&known.sandbox)?);
    let may_be_gone = matches!(known.promise, Promise::Until(_));
    if !may_be_gone {
        known.promise = Promise::Ending;
    }
    match answer(client.api(Method::DELETE, &path)).await {
        None => {}
        Some((StatusCode::NO_CONTENT, _)) => known.promise = Promise::Dead,
        Some((StatusCode::NOT_FOUND, _)) if may_be_gone => {}
        Some((status, text)) => bail!("a kill was answered with {status}: {text}"),
    }
    Ok(())
}

pub(crate) async fn set_timeout(client: &Client, known: &mut Known, seconds: u64) -> Result<()> {
    let path = format!("/sandboxes/{}/timeout", id(&known.sandbox)?);
    let asked = client.api(Method::POST, &path).json(&json!({ "timeout": seconds }));
    match answer(asked).await {
        None | Some((StatusCode::NO_CONTENT, _)) => Ok(()),
        Some((status, text)) => bail!("a timeout was answered with {status}: {text}"),
    }
}

/// `false`: no answer came.
pub(crate) async fn import(client: &Client, content: &str) -> Result<bool> {
    let asked = client
        .admin(Method::POST, "/admin/v1/templates")
        .query(&[("name", "tiny"), ("disk_mib", "64"), ("memory_mib", "128")])
        .body(tiny(content)?);
    let Some((status, text)) = answer(asked).await else { return Ok(false) };
    ensure!(status == StatusCode::CREATED, "an import was answered with {status}: {text}");
    Ok(true)
}

/// Begins it, or waits until it is ready.
pub(crate) async fn build(client: &Client, name: &str, begin: bool) -> Result<()> {
    let called = name.replace('.', "-");
    if begin {
        let asked = client.api(Method::POST, "/v3/templates").json(&json!({ "name": called }));
        let (status, text) = answer(asked).await.context("no answer to a build's request")?;
        ensure!(status == StatusCode::ACCEPTED, "a build was answered with {status}: {text}");
        let made: Value = serde_json::from_str(&text)?;
        let field = |name: &str| made.get(name).and_then(Value::as_str).context("an id");
        let (template, build) = (field("templateID")?, field("buildID")?);
        let step = json!({ "type": "RUN", "args": [format!("echo {name} > made")] });
        let asked = client
            .api(Method::POST, &format!("/v2/templates/{template}/builds/{build}"))
            .json(&json!({ "fromTemplate": "base", "steps": [step] }));
        if let Some((status, text)) = answer(asked).await {
            ensure!(status == StatusCode::ACCEPTED, "a start was answered with {status}: {text}");
        }
        return Ok(());
    }
    let is_ready = || async {
        let asked = client.api(Method::GET, &format!("/templates/{called}"));
        let (_, text) = answer(asked).await.context("no answer")?;
        let template: Value = serde_json::from_str(&text)?;
        ensure!(template.get("buildStatus") == Some(&json!("ready")), "{template}");
        Ok(())
    };
    eventually(Duration::from_mins(1), is_ready).await?;
    let body = json!({ "templateID": called, "timeout": 60 });
    let sandbox = client.create(body).await?;
    let made = client.read(&sandbox, "/home/user/made").await?;
    ensure!(made == format!("{name}\n").as_bytes(), "{made:?}");
    ensure!(client.kill(&sandbox).await? == StatusCode::NO_CONTENT, "a kill");
    Ok(())
}

/// Running, or paused and resumed for this.
pub(crate) async fn usable(client: &Client, sandbox: &Value) -> Result<()> {
    let id = id(sandbox)?;
    client.connect(sandbox).await?;
    let said = client.run(sandbox, "echo alive").await.with_context(|| format!("use {id}"))?;
    ensure!(said.stdout == "alive\n", "{id} is of no use: {said:?}");
    Ok(())
}

/// `None` when the server died before it had said all.
async fn answer(asked: reqwest::RequestBuilder) -> Option<(StatusCode, String)> {
    let answer = asked.send().await.ok()?;
    let status = answer.status();
    answer.text().await.ok().map(|text| (status, text))
}

/// A tar archive with one file in it.
fn tiny(content: &str) -> Result<Vec<u8>> {
    let folder = tempfile::tempdir()?;
    std::fs::File::create(folder.path().join("content"))?.write_all(content.as_bytes())?;
    let tar = std::process::Command::new("tar")
        .args(["-C", &folder.path().to_string_lossy(), "-cf", "-", "content"])
        .output()?;
    ensure!(tar.status.success(), "tar: {}", String::from_utf8_lossy(&tar.stderr));
    Ok(tar.stdout)
}

/// Kills all of these, and expects it to be answered.
pub(crate) async fn kill_all(client: &Client, known: Vec<&mut Known>) -> Result<()> {
    for killed in join_all(known.into_iter().map(|known| kill(client, known))).await {
        killed?;
    }
    Ok(())
}

/// `false`: no answer came.
pub(crate) async fn create_volume(client: &Client, name: &str) -> Result<bool> {
    let asked = client.api(Method::POST, "/volumes").json(&json!({ "name": name }));
    let Some((status, text)) = answer(asked).await else { return Ok(false) };
    ensure!(status == StatusCode::CREATED, "a volume was answered with {status}: {text}");
    Ok(true)
}

/// With what the volume of the other name holds. `false`: no answer came.
pub(crate) async fn clone_volume(client: &Client, name: &str, of: &str) -> Result<bool> {
    let asked = client.api(Method::POST, "/volumes");
    let asked = asked.json(&json!({ "name": name, "fromVolume": of }));
    let Some((status, text)) = answer(asked).await else { return Ok(false) };
    ensure!(status == StatusCode::CREATED, "a clone was answered with {status}: {text}");
    Ok(true)
}

/// Asks for the end of all of this name. `false`: no answer came.
pub(crate) async fn delete_volumes(client: &Client, name: &str) -> Result<bool> {
    for id in volumes(client, name).await? {
        let asked = client.api(Method::DELETE, &format!("/volumes/{id}"));
        let Some((status, text)) = answer(asked).await else { return Ok(false) };
        ensure!(status == StatusCode::NO_CONTENT, "a deletion was answered with {status}: {text}");
    }
    Ok(true)
}

/// Their ids.
pub(crate) async fn volumes(client: &Client, name: &str) -> Result<Vec<String>> {
    let listed: Value = client.api(Method::GET, "/volumes").send().await?.json().await?;
    let listed = listed.as_array().context("a list of volumes")?;
    let called = listed.iter().filter(|it| it.get("name") == Some(&json!(name)));
    let ids = called.map(|it| it.get("volumeID").and_then(Value::as_str).map(str::to_owned));
    ids.collect::<Option<_>>().context("the volumes' ids")
}
