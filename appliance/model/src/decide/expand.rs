//! `$NAME` in the values of a recipe, as Dockerfiles have it. What a shell would run stays text.

use crate::Surroundings;

/// What the agent gives every program; values often add to it.
pub(super) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// `$NAME`, `${NAME}`, `${NAME:-word}` and `${NAME:+word}`; `\$` is a dollar.
pub(super) fn expand(text: &str, around: &Surroundings) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['$', '\\']) {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        if let Some(after) = from.strip_prefix("\\$") {
            out.push('$');
            rest = after;
        } else if let Some((value, after)) = reference(from, around) {
            out.push_str(&value);
            rest = after;
        } else {
            let (one, after) = from.split_at(1);
            out.push_str(one);
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

/// The value, and what follows the reference. `None`: there is none.
fn reference<'t>(text: &'t str, around: &Surroundings) -> Option<(String, &'t str)> {
    let text = text.strip_prefix('$')?;
    let Some(braced) = text.strip_prefix('{') else {
        let end = text.find(|c: char| !of_a_name(c)).unwrap_or(text.len());
        let (name, after) = text.split_at(end);
        let starts = name.starts_with(|c: char| !c.is_ascii_digit());
        return starts.then(|| (value(name, around).unwrap_or_default(), after));
    };
    let (inner, after) = braced.split_once('}')?;
    let end = inner.find(|c: char| !of_a_name(c)).unwrap_or(inner.len());
    let (name, rule) = inner.split_at(end);
    if name.is_empty() {
        return None;
    }
    let set = value(name, around).filter(|value| !value.is_empty());
    let value = match rule.split_at_checked(2) {
        None if rule.is_empty() => set.unwrap_or_default(),
        Some((":-", word)) => set.unwrap_or_else(|| expand(word, around)),
        Some((":+", word)) => set.map(|_set| expand(word, around)).unwrap_or_default(),
        _ => return None,
    };
    Some((value, after))
}

fn of_a_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn value(name: &str, around: &Surroundings) -> Option<String> {
    around.env.get(name).cloned().or_else(|| match name {
        "PATH" => Some(PATH.into()),
        "HOME" => Some(around.home()),
        "USER" | "LOGNAME" => Some(around.user.clone()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        let around = Surroundings {
            env: [("A".into(), "1".into()), ("E".into(), String::new())].into(),
            user: "me".into(),
            workdir: None,
        };
        for (text, expected) in [
            ("", ""),
            ("plain", "plain"),
            ("$A", "1"),
            ("x${A}y", "x1y"),
            ("$A$A/$B.", "11/."),
            ("$A_", ""),
            ("\\$A", "$A"),
            ("a\\nb \\", "a\\nb \\"),
            ("$", "$"),
            ("$ 5", "$ 5"),
            ("$5", "$5"),
            ("${", "${"),
            ("${}", "${}"),
            ("${A", "${A"),
            ("${B:-x}", "x"),
            ("${E:-x}", "x"),
            ("${A:-x}", "1"),
            ("${A:+x$A}", "x1"),
            ("${B:+x}", ""),
            ("${A:?x}", "${A:?x}"),
            ("$(id) `id`", "$(id) `id`"),
            ("it's \"q\" $A", "it's \"q\" 1"),
            (
                "/opt:$PATH",
                concat!("/opt:", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
            ),
            ("$HOME $USER", "/home/me me"),
            ("\u{e9}$A\u{e9}", "\u{e9}1\u{e9}"),
        ] {
            assert_eq!(expand(text, &around), expected, "{text:?}");
        }
    }
}
