//! Which processes there are, and for a while which there were.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use sandboxo_agent_proto::{
    connect::{Code, Failure},
    process::{ProcessSelector, process_selector::Selector},
};

use super::owner::Process;

/// How long an ended process can be connected to, for a client that asks late how it ended.
pub(crate) const REMEMBERED: Duration = Duration::from_secs(30);

#[derive(Default)]
pub(crate) struct Registry {
    tables: Mutex<Tables>,
}

#[derive(Default)]
struct Tables {
    live: BTreeMap<i32, Arc<Process>>,
    ended: BTreeMap<i32, Arc<Process>>,
}

impl Registry {
    pub(crate) fn insert(&self, process: Arc<Process>) {
        let mut tables = self.tables.lock();
        let pid = process.pid.as_raw();
        // The number is used again.
        tables.ended.remove(&pid);
        tables.live.insert(pid, process);
    }

    pub(crate) fn end(&self, process: &Arc<Process>) {
        let mut tables = self.tables.lock();
        let pid = process.pid.as_raw();
        if tables.live.get(&pid).is_some_and(|live| Arc::ptr_eq(live, process)) {
            tables.live.remove(&pid);
            tables.ended.insert(pid, process.clone());
        }
    }

    pub(crate) fn forget(&self, process: &Arc<Process>) {
        let mut tables = self.tables.lock();
        let pid = process.pid.as_raw();
        if tables.ended.get(&pid).is_some_and(|ended| Arc::ptr_eq(ended, process)) {
            tables.ended.remove(&pid);
        }
    }

    pub(crate) fn live(&self) -> Vec<Arc<Process>> {
        self.tables.lock().live.values().cloned().collect()
    }

    pub(crate) fn find_live(
        &self,
        selector: Option<ProcessSelector>,
    ) -> Result<Arc<Process>, Failure> {
        let selector = chosen(selector)?;
        find(&self.tables.lock().live, &selector).ok_or_else(|| not_found(&selector))
    }

    /// Also one that ended lately.
    pub(crate) fn find(&self, selector: Option<ProcessSelector>) -> Result<Arc<Process>, Failure> {
        let selector = chosen(selector)?;
        let tables = self.tables.lock();
        find(&tables.live, &selector)
            .or_else(|| find(&tables.ended, &selector))
            .ok_or_else(|| not_found(&selector))
    }
}

fn chosen(selector: Option<ProcessSelector>) -> Result<Selector, Failure> {
    selector
        .and_then(|selector| selector.selector)
        .ok_or_else(|| Failure::new(Code::InvalidArgument, "no process selected"))
}

/// Of those with one tag, the latest.
fn find(processes: &BTreeMap<i32, Arc<Process>>, selector: &Selector) -> Option<Arc<Process>> {
    match selector {
        Selector::Pid(pid) => processes.get(&i32::try_from(*pid).ok()?).cloned(),
        Selector::Tag(tag) => {
            processes.values().rfind(|process| process.tag.as_ref() == Some(tag)).cloned()
        }
    }
}

fn not_found(selector: &Selector) -> Failure {
    let message = match selector {
        Selector::Pid(pid) => format!("process with pid {pid} not found"),
        Selector::Tag(tag) => format!("process with tag {tag} not found"),
    };
    Failure::new(Code::NotFound, message)
}
