//! Whose sandbox this is: what the claim said. Nothing is served before there is one.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use sandboxo_agent_proto::connect::{Code, Failure};
use sandboxo_channel::Claim;

use crate::{
    trust,
    users::{Accounts, Directory, UnknownUser, User},
};

pub(crate) struct Identity {
    pub(crate) sandbox_id: String,
    /// What every process of the sandbox finds, and `/envs` tells.
    pub(crate) environment: BTreeMap<String, String>,
    /// What processes find besides, where nobody says otherwise.
    pub(crate) trust: Vec<(&'static str, String)>,
    pub(crate) token: Option<String>,
    pub(crate) workdir: Option<String>,
    default_user: String,
    directory: Directory,
}

impl Identity {
    pub(crate) fn new(claim: Claim, directory: Directory) -> Self {
        let Claim { sandbox_id, template_id, env, agent_token, user, workdir, .. } = claim;
        let trust = claim.authority.map(|_| trust::variables(Path::new("/"))).unwrap_or_default();
        let mut environment = env;
        // A program asks these to know where it runs; a template or client can't say otherwise.
        for (name, value) in [
            ("E2B_SANDBOX", "true"),
            ("E2B_SANDBOX_ID", sandbox_id.as_str()),
            ("E2B_TEMPLATE_ID", template_id.as_str()),
        ] {
            environment.insert(name.to_owned(), value.to_owned());
        }
        Self {
            sandbox_id,
            environment,
            trust,
            token: agent_token,
            workdir,
            default_user: user,
            directory,
        }
    }

    pub(crate) fn accounts(&self) -> Arc<Accounts> {
        self.directory.accounts()
    }

    /// The default one, where none is named.
    pub(crate) fn find_user(&self, name: Option<&str>) -> Result<User, UnknownUser> {
        let name = name.filter(|name| !name.is_empty()).unwrap_or(&self.default_user);
        self.accounts().user(name)
    }

    /// As RPC tells it.
    pub(crate) fn user(&self, name: Option<&str>) -> Result<User, Failure> {
        self.find_user(name).map_err(|UnknownUser(name)| {
            Failure::new(Code::Unauthenticated, format!("invalid username: '{name}'"))
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;

    use super::*;

    pub(crate) fn claim() -> Claim {
        Claim {
            sandbox_id: "sbx-loc-0".into(),
            template_id: "base".into(),
            env: [("A".to_owned(), "b".to_owned()), ("E2B_SANDBOX".into(), "no".into())].into(),
            hostname: "box".into(),
            agent_token: None,
            user: "user".into(),
            workdir: None,
            nameservers: Vec::new(),
            pids: 0,
            authority: None,
        }
    }

    #[test]
    fn the_environment_tells_where_it_is() {
        let identity = Identity::new(claim(), Directory::new("/nowhere"));
        let wanted = [
            ("A", "b"),
            ("E2B_SANDBOX", "true"),
            ("E2B_SANDBOX_ID", "sbx-loc-0"),
            ("E2B_TEMPLATE_ID", "base"),
        ];
        assert_eq!(
            identity.environment,
            wanted.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
        );
    }

    #[test]
    fn no_name_is_the_default_user() {
        let etc = tempfile::tempdir().unwrap();
        fs::write(etc.path().join("passwd"), "root:x:0:0::/root:\nuser:x:5:5::/home/user:\n")
            .unwrap();
        let identity = Identity::new(claim(), Directory::new(etc.path()));
        for (name, wanted) in [(None, Ok(5)), (Some(""), Ok(5)), (Some("root"), Ok(0))] {
            assert_eq!(identity.user(name).map(|user| user.uid), wanted);
        }
        let failure = identity.user(Some("nobody")).unwrap_err();
        assert_eq!(failure, Failure::new(Code::Unauthenticated, "invalid username: 'nobody'"));
    }
}
