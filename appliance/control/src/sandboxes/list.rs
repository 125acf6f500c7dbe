//! Listing.

use std::{collections::HashSet, sync::Arc};

use sandboxo_model::{
    PhaseKind,
    decide::list::{self, Query},
};
use sandboxo_store::Read as _;

use crate::{ListError, ListQuery, Page, Sandboxes, Scope};

impl Sandboxes {
    pub async fn list(&self, scope: impl Into<Scope>, query: ListQuery) -> Result<Page, ListError> {
        let scope = scope.into();
        let ListQuery { phases, metadata, started_after, template, order, limit, token } = query;
        if !(1..=ListError::MAX_LIMIT).contains(&limit) {
            return Err(ListError::BadLimit);
        }
        let after = match token {
            Some(token) => Some(token.parse().map_err(|list::NotACursor| ListError::BadToken)?),
            None => None,
        };
        let template = match template {
            Some(text) => match self.template_id(scope, &text) {
                Some(id) => Some(id),
                None => return Ok(Page { items: Vec::new(), next: None, running: 0 }),
            },
            None => None,
        };
        let mut records = self.context.index.records();
        if phases.contains(&PhaseKind::Dead) {
            let ended = self.context.store.read(|tx| tx.ended_sandboxes()).await?;
            // One that has just died may be in both.
            let ids: HashSet<_> = ended.iter().map(|record| record.id).collect();
            records.retain(|record| !ids.contains(&record.id));
            records.extend(ended.into_iter().map(Arc::new));
        }
        records.retain(|record| scope.includes(record.team));
        let query = Query { phases, metadata, started_after, template, order, limit, after };
        Ok(list::page(records, &query, self.context.now()))
    }

    fn template_id(&self, scope: Scope, text: &str) -> Option<sandboxo_zone_protocol::TemplateId> {
        let accounts = &self.context.accounts;
        match scope {
            Scope::Team(team) => accounts.source(team, text).map(|source| source.id()),
            Scope::Operator => accounts
                .read(|maps| maps.teams.keys().copied().collect::<Vec<_>>())
                .into_iter()
                .find_map(|team| accounts.source(team, text))
                .map(|source| source.id()),
        }
    }
}
