//! The accounts that clients name, where a template lacks them: images of other makers have only
//! their own or none, and files and commands are asked for as `user` or `root`.

use std::{
    collections::BTreeSet,
    fs::{self, Permissions},
    io,
    os::unix::fs::{PermissionsExt, chown},
    path::Path,
};

/// As clients call them, whatever the template's own user is.
pub(crate) const NAMES: [&str; 2] = [NAME, "root"];
const NAME: &str = "user";
const HOME: &str = "/home/user";
/// The first number that systems give to people.
const FIRST: u32 = 1000;
/// The last of them; there are far fewer accounts in any image.
const LAST: u32 = 59_999;
/// Members may become root, where there is such a group.
const ROOTS: &str = "sudo";

#[derive(Debug, PartialEq, Eq)]
struct Files {
    passwd: String,
    group: String,
    number: u32,
}

/// With the lines that are missing in each file. A group of that name is the account's own.
fn with_accounts(passwd: &str, group: &str, shell: &str) -> Files {
    let has = |text: &str, wanted: &str| text.lines().any(|line| name(line) == Some(wanted));
    let root = format!("root:x:0:0:root:/root:{shell}\n");
    let passwd = if has(passwd, "root") { ended(passwd) } else { root + &ended(passwd) };
    let group = if has(group, "root") { ended(group) } else { "root:x:0:\n".to_owned() + group };
    if let Some(line) = passwd.lines().find(|line| name(line) == Some(NAME)) {
        let number = number(line).unwrap_or(FIRST);
        return Files { passwd, group, number };
    }
    let taken: BTreeSet<u32> = passwd.lines().filter_map(number).collect();
    let named = group.lines().find(|line| name(line) == Some(NAME)).and_then(number);
    let groups: BTreeSet<u32> = group.lines().filter_map(number).collect();
    let is_free =
        |number: &u32| !taken.contains(number) && (named.is_some() || !groups.contains(number));
    let number = (FIRST..LAST).find(is_free).unwrap_or(LAST);
    let gid = named.unwrap_or(number);
    let own = if named.is_some() { String::new() } else { format!("{NAME}:x:{gid}:\n") };
    let group = group.lines().map(|line| joined(line) + "\n").collect::<String>() + &own;
    let passwd = passwd + &format!("{NAME}:x:{number}:{gid}::{HOME}:{shell}\n");
    Files { passwd, group, number }
}

fn joined(line: &str) -> String {
    let is_roots = name(line) == Some(ROOTS) && line.matches(':').count() == 3;
    match line.ends_with(':') {
        true if is_roots => format!("{line}{NAME}"),
        false if is_roots => format!("{line},{NAME}"),
        _ => line.to_owned(),
    }
}

fn ended(text: &str) -> String {
    if text.is_empty() || text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") }
}

fn name(line: &str) -> Option<&str> {
    line.split(':').next()
}

fn number(line: &str) -> Option<u32> {
    line.split(':').nth(2)?.parse().ok()
}

/// Writes it into the sandbox whose root this is.
pub(crate) fn make(root: &Path) -> io::Result<()> {
    let etc = root.join("etc");
    fs::create_dir_all(&etc)?;
    let read = |name: &str| match fs::read_to_string(etc.join(name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        other => other,
    };
    let shell = ["/bin/bash", "/bin/sh"]
        .into_iter()
        .find(|shell| root.join(shell.trim_start_matches('/')).exists());
    let made = with_accounts(&read("passwd")?, &read("group")?, shell.unwrap_or("/bin/sh"));
    fs::write(etc.join("group"), made.group)?;
    fs::write(etc.join("passwd"), made.passwd)?;
    let home = root.join(HOME.trim_start_matches('/'));
    fs::create_dir_all(&home)?;
    fs::set_permissions(&home, Permissions::from_mode(0o755))?;
    let gid = read("group")?.lines().find(|line| name(line) == Some(NAME)).and_then(number);
    chown(&home, Some(made.number), gid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_take_free_numbers_and_join_who_may_become_root() {
        for (passwd, group, wanted_passwd, wanted_group) in [
            (
                "",
                "",
                "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n",
                "root:x:0:\nuser:x:1000:\n",
            ),
            (
                "user:x:7:7::/home/user:/bin/sh\n",
                "user:x:7:\n",
                "root:x:0:0:root:/root:/bin/sh\nuser:x:7:7::/home/user:/bin/sh\n",
                "root:x:0:\nuser:x:7:\n",
            ),
            (
                "root:x:0:0::/root:/bin/sh",
                "root:x:0:\nsudo:x:27:",
                "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n",
                "root:x:0:\nsudo:x:27:user\nuser:x:1000:\n",
            ),
            (
                "root:x:0:0::/root:/bin/sh\nnode:x:1000:1000::/n:/bin/sh\n",
                "root:x:0:\nnode:x:1000:\nother:x:1001:\nsudo:x:27:node\n",
                "root:x:0:0::/root:/bin/sh\nnode:x:1000:1000::/n:/bin/sh\nuser:x:1002:1002::/home/user:/bin/sh\n",
                "root:x:0:\nnode:x:1000:\nother:x:1001:\nsudo:x:27:node,user\nuser:x:1002:\n",
            ),
            (
                "root:x:0:0::/root:/bin/sh\n",
                "root:x:0:\nuser:x:50:\n",
                "root:x:0:0::/root:/bin/sh\nuser:x:1000:50::/home/user:/bin/sh\n",
                "root:x:0:\nuser:x:50:\n",
            ),
        ] {
            let made = with_accounts(passwd, group, "/bin/sh");
            assert_eq!((made.passwd.as_str(), made.group.as_str()), (wanted_passwd, wanted_group));
        }
    }

    /// As root, whose files can be given away.
    #[test]
    fn row_127_a_root_without_accounts_gets_one() {
        use std::os::unix::fs::MetadataExt;
        let root = tempfile::tempdir().unwrap();
        make(root.path()).unwrap();
        let passwd = fs::read_to_string(root.path().join("etc/passwd")).unwrap();
        assert!(passwd.ends_with("\nuser:x:1000:1000::/home/user:/bin/sh\n"), "{passwd}");
        let home = fs::metadata(root.path().join("home/user")).unwrap();
        assert_eq!((home.uid(), home.gid(), home.mode() & 0o777), (1000, 1000, 0o755));
    }
}
