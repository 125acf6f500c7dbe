//! Templates: what a sandbox can start from.

use std::{collections::BTreeMap, future::Future, sync::Arc};

use sandboxo_crashpoint::{Point, crashpoint};
use sandboxo_model::{
    Field, Invalid, NotAnImageName, SnapshotRecord, TemplateName, TemplateNameError,
    TemplateRecord, resources, rules,
};
use sandboxo_store::{Read as _, StoreError};
use sandboxo_zone_protocol::{
    BuildId, ImageDefaults, ImportError, Imported, Platform, Resources, TeamId, TemplateId,
    ZoneError,
};
use tokio::{io::AsyncRead, time::timeout};

use crate::{Scope, context::Context};

/// A cheap clone of one thing.
#[derive(Clone)]
pub struct Templates {
    context: Arc<Context>,
}

const DEFAULT_USER: &str = "user";
/// As other tools have it where an image names nobody.
const ROOT: &str = "root";

/// How to make or replace a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportTemplate {
    /// An alias; a template that has it gets the new image and keeps its id.
    pub name: String,
    /// Other teams may use it.
    pub public: bool,
    pub resources: Resources,
    pub platform: Platform,
    /// `None`: the image's own, and `user` of a root file system, of which nobody says anything.
    pub user: Option<String>,
    /// `None`: the image's own, or the user's home.
    pub workdir: Option<String>,
    /// What recipes may call the image, such as `ubuntu:22.04`.
    pub image_names: Vec<String>,
}

impl ImportTemplate {
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            public: true,
            resources: resources::DEFAULT,
            platform: Platform::default(),
            user: None,
            workdir: None,
            image_names: Vec::new(),
        }
    }
}

impl Templates {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    /// By id, `alias[:tag]` or `team/alias[:tag]`: the team's own before public ones.
    pub fn resolve(&self, team: TeamId, text: &str) -> Option<Arc<TemplateRecord>> {
        self.context.accounts.resolve(team, text)
    }

    /// The name or id is another team's, and not public.
    pub fn is_foreign(&self, team: TeamId, text: &str) -> bool {
        let others: Vec<_> = self
            .context
            .accounts
            .read(|maps| maps.teams.keys().filter(|other| **other != team).copied().collect());
        self.resolve(team, text).is_none()
            && others.into_iter().any(|other| self.resolve(other, text).is_some())
    }

    /// The scope's own, by name.
    pub fn list(&self, scope: impl Into<Scope>) -> Vec<Arc<TemplateRecord>> {
        let scope = scope.into();
        let mut templates: Vec<_> = self.context.accounts.read(|maps| {
            let own = maps.templates.values().filter(|template| scope.includes(template.team));
            own.map(Arc::clone).collect()
        });
        templates.sort_by(|one, other| (&one.name, one.id).cmp(&(&other.name, other.id)));
        templates
    }

    /// `team/alias`, as clients are shown it.
    pub fn full_name(&self, template: &TemplateRecord) -> String {
        self.context.accounts.read(|maps| match maps.teams.get(&template.team) {
            Some(team) => format!("{}/{}", team.name, template.name),
            None => template.name.to_string(),
        })
    }

    /// From a tar of a root file system or of one image (an OCI layout, what `docker save` writes);
    /// gzip is recognized. Dropping the future drops the import.
    ///
    /// A template that has the name gets the new image and keeps its id; sandboxes of the old
    /// image go on.
    pub async fn import(
        &self,
        team: TeamId,
        import: ImportTemplate,
        tar: Box<dyn AsyncRead + Send + Unpin>,
    ) -> Result<Arc<TemplateRecord>, ImportTemplateError> {
        let ImportTemplate { name, public, resources, platform, user, workdir, image_names } =
            import;
        let image_names = image_names.iter().map(|name| name.parse()).collect::<Result<_, _>>()?;
        let name: TemplateName = name.parse()?;
        resources::check(resources)?;
        user.as_deref().map(check_user).transpose()?;
        check_workdir(workdir.as_deref())?;
        let Imported { image, defaults } = self.context.zone.import_image(tar).await?;
        let around = Around::of(defaults, user, workdir)?;
        let context = Arc::clone(&self.context);
        let this = self.clone();
        let work = async move {
            let _changing = context.accounts.changing.lock().await;
            let now = context.now();
            let fresh = TemplateRecord {
                id: TemplateId::random(&*context.random),
                team,
                name,
                public,
                image: image.digest,
                image_bytes: image.size_bytes,
                image_names,
                build: BuildId::random(&*context.random),
                resources,
                platform,
                env: around.env,
                user: around.user,
                workdir: around.workdir,
                created_at: now,
                updated_at: now,
            };
            let write = context.store.write(move |tx| {
                let of_snapshot =
                    |it: &SnapshotRecord| it.team == team && it.name.as_ref() == Some(&fresh.name);
                if tx.all::<SnapshotRecord>()?.iter().any(of_snapshot) {
                    return Err(ImportTemplateError::NameTaken(fresh.name.to_string()));
                }
                let templates = tx.all::<TemplateRecord>()?;
                let known = templates.iter().find(|it| it.team == team && it.name == fresh.name);
                let template = match known {
                    Some(TemplateRecord { id, created_at, .. }) => {
                        TemplateRecord { id: *id, created_at: *created_at, ..fresh }
                    }
                    None => fresh,
                };
                tx.put(&template);
                Ok(template)
            });
            let template = Arc::new(write.await?);
            crashpoint(Point::ImportRecorded);
            context.accounts.put_template(Arc::clone(&template));
            this.tell_images().await;
            Ok::<_, ImportTemplateError>(template)
        };
        self.context.to_the_end("import template", work).await
    }

    /// Lets other teams use it, or no more; what has started from it goes on.
    pub async fn publish(
        &self,
        team: TeamId,
        text: &str,
        public: bool,
    ) -> Result<Arc<TemplateRecord>, PublishError> {
        let not_found = || PublishError::NotFound(text.to_owned());
        let id = self.own(Scope::Team(team), text).ok_or_else(not_found)?;
        let (context, unknown) = (Arc::clone(&self.context), not_found());
        let work = async move {
            let _changing = context.accounts.changing.lock().await;
            let write = context.store.write(move |tx| {
                let Some(record) = tx.get::<TemplateRecord>(&id)? else { return Err(unknown) };
                let record = TemplateRecord { public, ..record };
                tx.put(&record);
                Ok(record)
            });
            let record = Arc::new(write.await?);
            context.accounts.put_template(Arc::clone(&record));
            Ok(record)
        };
        self.context.to_the_end("publish template", work).await
    }

    /// By id or name, the scope's own only.
    pub async fn delete(
        &self,
        scope: impl Into<Scope>,
        text: &str,
    ) -> Result<(), DeleteTemplateError> {
        let own = self.own(scope.into(), text);
        let id = own.ok_or_else(|| DeleteTemplateError::NotFound(text.to_owned()))?;
        let context = Arc::clone(&self.context);
        let this = self.clone();
        let work = async move {
            let _changing = context.accounts.changing.lock().await;
            let write = context.store.write(move |tx| {
                // A create that is committed is in the table, one that is not finds no template.
                let live = tx.live_sandboxes()?;
                let sandboxes = live.iter().filter(|it| it.template.id == id).count();
                if sandboxes > 0 {
                    return Err(DeleteTemplateError::InUse { sandboxes });
                }
                tx.remove::<TemplateRecord>(&id);
                Ok(())
            });
            write.await?;
            context.accounts.remove_template(id);
            this.tell_images().await;
            Ok(())
        };
        self.context.to_the_end("delete template", work).await
    }

    /// Tells the zone what to have sandboxes ready of, and which images to keep at all.
    pub(crate) async fn tell_images(&self) {
        let warm = self.context.zone.keep_warm(self.context.accounts.shapes());
        told(&self.context, "what to keep warm", warm).await;
        keep_images(Arc::clone(&self.context)).await;
    }

    fn own(&self, scope: Scope, text: &str) -> Option<TemplateId> {
        let teams = match scope {
            Scope::Team(team) => vec![team],
            Scope::Operator => {
                self.context.accounts.read(|maps| maps.teams.keys().copied().collect())
            }
        };
        teams
            .into_iter()
            .filter_map(|team| self.resolve(team, text).filter(|found| found.team == team))
            .map(|found| found.id)
            .next()
    }
}

/// Templates may be asked for, and a live sandbox may have to be delivered again.
pub(crate) async fn keep_images(context: Arc<Context>) {
    let mut images = context.accounts.images();
    images.extend(context.index.records().iter().map(|record| record.spec.image));
    told(&context, "which images to keep", context.zone.keep_images(images)).await;
}

async fn told(
    context: &Context,
    what: &'static str,
    telling: impl Future<Output = Result<(), ZoneError>>,
) {
    match timeout(context.config.zone_budget, telling).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(
            error = &error as &dyn std::error::Error,
            what,
            "the zone could not be told"
        ),
        Err(_elapsed) => tracing::warn!(what, "the zone did not answer"),
    }
}

/// As in `/etc/passwd`.
/// In which programs start.
struct Around {
    env: BTreeMap<String, String>,
    user: String,
    workdir: Option<String>,
}

impl Around {
    /// What was asked for counts before what the image's maker wants.
    fn of(
        defaults: Option<ImageDefaults>,
        user: Option<String>,
        workdir: Option<String>,
    ) -> Result<Self, Invalid> {
        let Some(defaults) = defaults else {
            let user = user.unwrap_or_else(|| DEFAULT_USER.into());
            return Ok(Self { env: BTreeMap::new(), user, workdir });
        };
        let nameless = |it: &String| it.bytes().all(|b| b.is_ascii_digit());
        let user: String = match (user, defaults.user) {
            (Some(asked), _) => asked,
            (None, None) => ROOT.into(),
            (None, Some(number)) if nameless(&number) => {
                let rule = format!("must be given: the image's own, {number}, has no name in it");
                return Err(Invalid { field: Field::User, rule });
            }
            (None, Some(own)) => own,
        };
        check_user(&user)?;
        rules::env(&defaults.env)?;
        let workdir = workdir.or(defaults.workdir);
        check_workdir(workdir.as_deref())?;
        Ok(Self { env: defaults.env, user, workdir })
    }
}

fn check_user(user: &str) -> Result<(), Invalid> {
    let of_a_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let fits =
        (1..=32).contains(&user.len()) && user.bytes().all(of_a_name) && !user.starts_with('-');
    if fits {
        Ok(())
    } else {
        Err(Invalid { field: Field::User, rule: "must be the name of a user".into() })
    }
}

fn check_workdir(workdir: Option<&str>) -> Result<(), Invalid> {
    let fits = workdir
        .is_none_or(|path| path.starts_with('/') && path.len() <= 4096 && !path.contains('\0'));
    if fits {
        Ok(())
    } else {
        Err(Invalid { field: Field::Workdir, rule: "must be an absolute path".into() })
    }
}

impl From<ImportError> for ImportTemplateError {
    fn from(error: ImportError) -> Self {
        match error {
            ImportError::Rejected(why) => Self::Rejected(why),
            error @ ImportError::TooLarge { .. } => Self::Rejected(error.to_string()),
            ImportError::Read(source) => Self::Read(source),
            ImportError::DiskFull => Self::DiskFull,
            ImportError::Internal(source) => Self::Zone(source),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ImportTemplateError {
    #[error(transparent)]
    Name(#[from] TemplateNameError),
    #[error(transparent)]
    ImageName(#[from] NotAnImageName),
    #[error("'{0}' is the name of a snapshot, or of a template that is built")]
    NameTaken(String),
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The archive's fault: the text says which entry and why.
    #[error("{0}")]
    Rejected(String),
    #[error("read the archive")]
    Read(#[source] std::io::Error),
    #[error("the zone's disk is full")]
    DiskFull,
    #[error("store the image")]
    Zone(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("record the template")]
    Store(#[source] StoreError),
}

impl From<StoreError> for ImportTemplateError {
    fn from(error: StoreError) -> Self {
        if matches!(error, StoreError::DiskFull) { Self::DiskFull } else { Self::Store(error) }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    #[error("template '{0}' not found")]
    NotFound(String),
    #[error("the disk is full")]
    DiskFull,
    #[error("record the template")]
    Store(#[source] StoreError),
}

impl From<StoreError> for PublishError {
    fn from(error: StoreError) -> Self {
        if matches!(error, StoreError::DiskFull) { Self::DiskFull } else { Self::Store(error) }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum DeleteTemplateError {
    #[error("template '{0}' not found")]
    NotFound(String),
    #[error("{sandboxes} sandboxes use the template")]
    InUse { sandboxes: usize },
    #[error("the disk is full")]
    DiskFull,
    #[error("record the deletion")]
    Store(#[source] StoreError),
}

impl From<StoreError> for DeleteTemplateError {
    fn from(error: StoreError) -> Self {
        if matches!(error, StoreError::DiskFull) { Self::DiskFull } else { Self::Store(error) }
    }
}
