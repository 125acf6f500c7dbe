//! Who is who in the sandbox, read from its own `/etc/passwd` and `/etc/group`: a static program
//! has no name service to ask.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) home: String,
    /// The primary group first.
    pub(crate) groups: Vec<u32>,
}

impl User {
    /// Of the agent itself, whatever the system calls it.
    pub(crate) fn root() -> Self {
        let (name, home) = ("root".to_owned(), "/root".to_owned());
        Self { name, uid: 0, gid: 0, home, groups: vec![0] }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("user: unknown user {0}")]
pub(crate) struct UnknownUser(pub(crate) String);

/// The two files as they were at one moment.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    users: BTreeMap<String, Account>,
    user_names: BTreeMap<u32, String>,
    group_names: BTreeMap<u32, String>,
    memberships: BTreeMap<String, Vec<u32>>,
}

#[derive(Debug)]
struct Account {
    uid: u32,
    gid: u32,
    home: String,
}

impl Accounts {
    pub(crate) fn parse(passwd: &str, group: &str) -> Self {
        let mut accounts = Self::default();
        for line in passwd.lines() {
            accounts.add_user(line);
        }
        for line in group.lines() {
            accounts.add_group(line);
        }
        accounts
    }

    /// Lines that don't parse are passed over, as the C library does; the first of a name wins.
    fn add_user(&mut self, line: &str) -> Option<()> {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        let home = fields.nth(1).filter(|home| !home.is_empty()).unwrap_or("/");
        self.user_names.entry(uid).or_insert_with(|| name.to_owned());
        let account = Account { uid, gid, home: home.to_owned() };
        self.users.entry(name.to_owned()).or_insert(account);
        Some(())
    }

    fn add_group(&mut self, line: &str) -> Option<()> {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        let gid = fields.nth(1)?.parse().ok()?;
        self.group_names.entry(gid).or_insert_with(|| name.to_owned());
        for member in fields.next()?.split(',').filter(|member| !member.is_empty()) {
            self.memberships.entry(member.to_owned()).or_default().push(gid);
        }
        Some(())
    }

    pub(crate) fn user(&self, name: &str) -> Result<User, UnknownUser> {
        let account = self.users.get(name).ok_or_else(|| UnknownUser(name.to_owned()))?;
        let mut groups = vec![account.gid];
        for gid in self.memberships.get(name).into_iter().flatten() {
            if !groups.contains(gid) {
                groups.push(*gid);
            }
        }
        Ok(User {
            name: name.to_owned(),
            uid: account.uid,
            gid: account.gid,
            home: account.home.clone(),
            groups,
        })
    }

    /// The number where nobody has that name.
    pub(crate) fn user_name(&self, uid: u32) -> String {
        self.user_names.get(&uid).cloned().unwrap_or_else(|| uid.to_string())
    }

    pub(crate) fn group_name(&self, gid: u32) -> String {
        self.group_names.get(&gid).cloned().unwrap_or_else(|| gid.to_string())
    }
}

/// Reads the files again when they have changed: a look costs two calls instead of eight.
pub(crate) struct Directory {
    root: PathBuf,
    cached: Mutex<Option<(Stamps, Arc<Accounts>)>>,
}

type Stamps = [Option<(u64, u64, i64, i64)>; 2];

impl Directory {
    pub(crate) fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), cached: Mutex::new(None) }
    }

    pub(crate) fn accounts(&self) -> Arc<Accounts> {
        let (passwd, group) = (self.root.join("passwd"), self.root.join("group"));
        let stamps = [stamp(&passwd), stamp(&group)];
        let mut cached = self.cached.lock();
        if let Some((known, accounts)) = &*cached
            && *known == stamps
        {
            return accounts.clone();
        }
        let accounts = Arc::new(Accounts::parse(&text(&passwd), &text(&group)));
        *cached = Some((stamps, accounts.clone()));
        accounts
    }
}

fn stamp(path: &Path) -> Option<(u64, u64, i64, i64)> {
    let found = fs::metadata(path).ok()?;
    Some((found.ino(), found.size(), found.mtime(), found.mtime_nsec()))
}

/// A sandbox without the file has no users; that is told when one is asked for.
fn text(path: &Path) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\n\
        # a comment\nbroken:x:no:0::/:\n\
        user:x:1000:1000:,,,:/home/user:/bin/bash\n\
        user:x:1:1::/second:\nbare:x:5:6\nnohome:x:7:7:::\n";
    const GROUP: &str =
        "root:x:0:\nuser:x:1000:\nsudo:x:27:user,other\naudio:x:29:user\nuser2:x:1000:user\n";

    #[test]
    fn users_have_the_groups_that_list_them() {
        let accounts = Accounts::parse(PASSWD, GROUP);
        let user = accounts.user("user").unwrap();
        assert_eq!((user.uid, user.gid, user.home.as_str()), (1000, 1000, "/home/user"));
        assert_eq!(user.groups, [1000, 27, 29]);
        assert_eq!(accounts.user("root").unwrap().groups, [0]);
        assert_eq!(accounts.user("bare").unwrap().home, "/");
        assert_eq!(accounts.user("nohome").unwrap().home, "/");
        for unknown in ["broken", "nobody", "", "# a comment"] {
            let error = accounts.user(unknown).unwrap_err();
            assert_eq!(error.to_string(), format!("user: unknown user {unknown}"));
        }
    }

    #[test]
    fn numbers_without_a_name_stay_numbers() {
        let accounts = Accounts::parse(PASSWD, GROUP);
        assert_eq!((accounts.user_name(1000), accounts.user_name(4)), ("user".into(), "4".into()));
        assert_eq!((accounts.group_name(27), accounts.group_name(4)), ("sudo".into(), "4".into()));
    }

    #[test]
    fn a_changed_file_is_read_again() {
        let etc = tempfile::tempdir().unwrap();
        let directory = Directory::new(etc.path());
        assert!(directory.accounts().user("user").is_err());
        fs::write(etc.path().join("passwd"), PASSWD).unwrap();
        assert!(directory.accounts().user("user").is_ok());
        fs::write(etc.path().join("passwd"), "late:x:1:1::/:\n").unwrap();
        assert!(directory.accounts().user("late").is_ok());
    }
}
