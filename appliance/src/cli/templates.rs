//! `template`: what sandboxes start from.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use futures_util::TryStreamExt as _;
use reqwest::{Body, Method};
use serde_json::Value;
use tokio::fs::File;
use tokio_util::io::ReaderStream;

use super::{
    Context,
    admin::{cell, rows},
    api::{self, segment},
    target::Target,
};
use crate::output::{self, Form, Progress};

const PIECE: usize = 256 << 10;

#[derive(Debug, clap::Args)]
pub(crate) struct Import {
    /// A tar archive of a root file system or of one image: an OCI layout, or what `docker save`
    /// writes; gzip is recognized
    archive: PathBuf,
    /// What clients will call it
    #[arg(long)]
    name: String,
    /// Processors of a sandbox (1 to 64) [default: 2]
    #[arg(long)]
    vcpus: Option<u32>,
    /// Its memory [default: 512]
    #[arg(long, value_name = "MIB")]
    memory_mib: Option<u32>,
    /// How much it may write [default: 10240]
    #[arg(long, value_name = "MIB")]
    disk_mib: Option<u32>,
    /// `ptrace` starts programs fast and costs nothing while it waits; `systrap` is for heavy use
    /// of files and system calls [default: ptrace]
    #[arg(long)]
    platform: Option<String>,
    /// Whose its commands are unless they say otherwise [default: the image's own, and `user` of a
    /// root file system]
    #[arg(long)]
    user: Option<String>,
    /// Where they run [default: the image's own, or the user's home]
    #[arg(long, value_name = "FOLDER")]
    workdir: Option<String>,
    /// A name of the image for templates that are built from it, such as `ubuntu:22.04`; may be
    /// given more than once
    #[arg(long, value_name = "NAME")]
    image: Vec<String>,
}

impl Import {
    /// What was said; the server checks it, and knows what stands for the rest.
    fn query(&self) -> Vec<(&'static str, String)> {
        let Self { archive: _, name, vcpus, memory_mib, disk_mib, platform, user, workdir, image } =
            self;
        let number = |number: &Option<u32>| number.map(|number| number.to_string());
        let all = [
            ("name", Some(name.clone())),
            ("vcpus", number(vcpus)),
            ("memory_mib", number(memory_mib)),
            ("disk_mib", number(disk_mib)),
            ("platform", platform.clone()),
            ("user", user.clone()),
            ("workdir", workdir.clone()),
            ("image", (!image.is_empty()).then(|| image.join(","))),
        ];
        all.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
    }
}

pub(crate) async fn ls(context: &Context) -> Result<()> {
    let templates = Target::find(context)?.admin_get("/templates").await?;
    match context.form {
        Form::Json => output::print_json(&templates)?,
        Form::Human => {
            let row = |template: &Value| {
                let size = template.get("sizeBytes").and_then(Value::as_u64).map(output::bytes);
                [
                    cell(template, "id"),
                    cell(template, "name"),
                    size.unwrap_or_default(),
                    output::moment(&cell(template, "updatedAt")),
                ]
            };
            let rows: Vec<_> = rows(&templates).iter().map(row).collect();
            output::print(&output::table(["ID", "NAME", "SIZE", "UPDATED"], &rows))?;
        }
    }
    Ok(())
}

pub(crate) async fn rm(context: &Context, template: &str) -> Result<()> {
    Target::find(context)?.admin_delete(&format!("/templates/{}", segment(template))).await
}

pub(crate) async fn import(context: &Context, import: Import) -> Result<()> {
    let target = Target::find(context)?;
    let made = upload(&target, &import.archive, &import.query()).await?;
    show(context, &made)
}

pub(crate) fn show(context: &Context, template: &Value) -> Result<()> {
    match context.form {
        Form::Json => output::print_json(template)?,
        Form::Human => {
            let (name, id) = (cell(template, "name"), cell(template, "id"));
            output::print(&format!("template {name} ({id}) is ready"))?;
        }
    }
    Ok(())
}

/// Sends the archive; the zone unpacks it while it comes.
pub(crate) async fn upload(
    target: &Target,
    archive: &Path,
    query: &[(&'static str, String)],
) -> Result<Value> {
    let name = query.iter().find(|(key, _)| *key == "name").map_or("", |(_, name)| name);
    let shown = archive.display();
    let file = File::open(archive).await.with_context(|| format!("open {shown}"))?;
    let length = file.metadata().await.with_context(|| format!("read {shown}"))?.len();
    let progress = Progress::of_bytes(&format!("import {name}"), length);
    let bar = progress.bar();
    let pieces = ReaderStream::with_capacity(file, PIECE)
        .inspect_ok(move |piece| bar.inc(piece.len() as u64));
    let request = target
        .admin(Method::POST, "/templates")?
        .query(query)
        .header("Content-Type", "application/x-tar")
        .body(Body::wrap_stream(pieces));
    api::json(request.send().await).await.with_context(|| format!("import {shown} as {name}"))
}
