//! Which file a client means by a path. Text in, text out.

/// `~` is the user's home; what is relative starts at the default workdir, or else at home.
pub(crate) fn resolve(path: &str, home: &str, workdir: Option<&str>) -> String {
    if path == "~" {
        return clean(home);
    }
    if let Some(rest) = path.strip_prefix("~/") {
        return clean(&format!("{home}/{rest}"));
    }
    if path.starts_with('/') {
        return clean(path);
    }
    clean(&format!("{}/{path}", workdir.unwrap_or(home)))
}

/// Without `.`, `..` and doubled slashes, by the text alone.
fn clean(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// The last part; the root's is `/`.
pub(crate) fn name(path: &str) -> &str {
    match path.rsplit('/').next() {
        None | Some("") => "/",
        Some(name) => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_resolve() {
        for (path, workdir, wanted) in [
            ("~", None, "/home/user"),
            ("~/", None, "/home/user"),
            ("~/a", Some("/code"), "/home/user/a"),
            ("~other/a", None, "/home/user/~other/a"),
            ("a/b", None, "/home/user/a/b"),
            ("a", Some("/code"), "/code/a"),
            ("a", Some("code"), "/code/a"),
            ("", None, "/home/user"),
            (".", Some("/code"), "/code"),
            ("../../../../etc/passwd", None, "/etc/passwd"),
            ("/a//b/./c/..", None, "/a/b"),
            ("/..", None, "/"),
            ("/", None, "/"),
            ("..%2f..", None, "/home/user/..%2f.."),
            ("/tmp/日本 \"x\".txt", None, "/tmp/日本 \"x\".txt"),
        ] {
            assert_eq!(resolve(path, "/home/user", workdir), wanted, "{path:?} in {workdir:?}");
        }
    }

    #[test]
    fn the_name_is_the_last_part() {
        for (path, wanted) in [("/", "/"), ("/a", "a"), ("/a/b c", "b c")] {
            assert_eq!(name(path), wanted, "{path}");
        }
    }
}
