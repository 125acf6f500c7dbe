//! Templates: what a sandbox can start from.

use std::sync::Arc;

use sandboxo_model::{Invalid, TemplateNameError, TemplateRecord};
use sandboxo_store::StoreError;
use sandboxo_zone_protocol::{Resources, TeamId};
use tokio::io::AsyncRead;

use crate::Scope;

#[derive(Clone)]
pub struct Templates {}

/// How to make or replace a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportTemplate {
    /// An alias; a template that has it gets the new image and keeps its id.
    pub name: String,
    /// Other teams may use it.
    pub public: bool,
    pub resources: Resources,
    pub user: String,
    pub workdir: Option<String>,
}

impl ImportTemplate {
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            public: true,
            resources: sandboxo_model::resources::DEFAULT,
            user: "user".into(),
            workdir: None,
        }
    }
}

impl Templates {
    /// By id, `alias[:tag]` or `team/alias[:tag]`: the team's own before public ones.
    pub fn resolve(&self, team: TeamId, text: &str) -> Option<Arc<TemplateRecord>> {
        todo!()
    }

    /// It exists, but it is another team's and not public.
    pub fn is_foreign(&self, team: TeamId, text: &str) -> bool {
        todo!()
    }

    /// The scope's own, by name.
    pub fn list(&self, scope: impl Into<Scope>) -> Vec<Arc<TemplateRecord>> {
        todo!()
    }

    /// `team/alias`, as clients are shown it.
    pub fn full_name(&self, template: &TemplateRecord) -> String {
        todo!()
    }

    /// From a tar of a root file system; gzip is recognized. Dropping the future drops the import.
    pub async fn import(
        &self,
        team: TeamId,
        import: ImportTemplate,
        tar: Box<dyn AsyncRead + Send + Unpin>,
    ) -> Result<Arc<TemplateRecord>, ImportTemplateError> {
        todo!()
    }

    /// By id or name, the scope's own only.
    pub async fn delete(
        &self,
        scope: impl Into<Scope>,
        text: &str,
    ) -> Result<(), DeleteTemplateError> {
        todo!()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ImportTemplateError {
    #[error(transparent)]
    Name(#[from] TemplateNameError),
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
    Store(#[from] StoreError),
}

#[derive(Debug, thiserror::Error)]
pub enum DeleteTemplateError {
    #[error("template '{0}' not found")]
    NotFound(String),
    #[error("{sandboxes} sandboxes use the template")]
    InUse { sandboxes: usize },
    #[error("record the deletion")]
    Store(#[from] StoreError),
}
