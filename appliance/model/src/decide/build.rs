//! What a recipe comes to: each step with everything it needs, and by which key what it leaves is
//! known.

use sha2::{Digest as _, Sha256};

use super::expand::expand;
use crate::{FilesHash, LayerKey, Recipe, Step, StepName, Surroundings};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub stages: Vec<Stage>,
    /// What the version's sandboxes have, and its start command.
    pub result: Surroundings,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    pub name: StepName,
    /// For the log.
    pub title: String,
    /// Before it.
    pub around: Surroundings,
    pub action: Action,
    /// Of everything that led here, itself with it.
    pub key: LayerKey,
    /// What it left in earlier builds is of no use.
    pub fresh: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// What every sandbox needs that an image may lack.
    Provision,
    Run {
        command: String,
        user: String,
    },
    Copy {
        files: FilesHash,
        from: String,
        /// Absolute; a slash at its end says that it is a folder.
        to: String,
        /// `user` or `user:group`, names or numbers.
        owner: String,
        mode: Option<u32>,
    },
    MakeFolder {
        path: String,
    },
    MakeUser {
        name: String,
        sudo: bool,
    },
    /// Only what comes later is changed.
    Nothing,
}

impl Action {
    /// Worth keeping for other builds; the rest is done again in no time.
    pub fn leaves_a_layer(&self) -> bool {
        match self {
            Self::Provision | Self::Run { .. } | Self::Copy { .. } => true,
            Self::MakeFolder { .. } | Self::MakeUser { .. } | Self::Nothing => false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PlanError {
    pub step: StepName,
    pub message: String,
}

/// Grows when `Provision` does something else than before.
const PROVISIONING: u32 = 1;

/// `base`: what the first layer stands on, in words that differ for what differs.
pub fn plan(
    recipe: &Recipe,
    base: &str,
    around: Surroundings,
    provision: bool,
) -> Result<Plan, PlanError> {
    let mut key = LayerKey(Sha256::digest(base.as_bytes()).into());
    let mut around = around;
    let mut fresh = recipe.force;
    let mut stages = Vec::new();
    if provision {
        key = after(key, &["provision", &PROVISIONING.to_string()]);
        stages.push(Stage {
            name: StepName::Base,
            title: "PROVISION".into(),
            around: around.clone(),
            action: Action::Provision,
            key,
            fresh,
        });
    }
    for (number, step) in (1..).zip(&recipe.steps) {
        let name = StepName::Step(number);
        fresh |= step.force;
        let (action, next) = act(step, &around).map_err(|message| PlanError {
            step: name,
            message: format!("{}: {message}", step.kind),
        })?;
        let files = step.files.as_ref().map_or("", FilesHash::as_str);
        let words: Vec<&str> = [step.kind.as_str(), files]
            .into_iter()
            .chain(step.args.iter().map(String::as_str))
            .collect();
        key = after(key, &words);
        let title = format!("{} {}", step.kind, step.args.join(" ")).trim_end().to_owned();
        let before = std::mem::replace(&mut around, next);
        stages.push(Stage { name, title, around: before, action, key, fresh });
    }
    Ok(Plan { stages, result: around })
}

/// Up to which stage, and with it, layers make the work needless.
pub fn cached(stages: &[Stage], has: impl Fn(LayerKey) -> bool) -> Option<usize> {
    let usable = stages.iter().take_while(|stage| !stage.fresh).count();
    let (usable, _) = stages.split_at(usable);
    usable.iter().rposition(|stage| stage.action.leaves_a_layer() && has(stage.key))
}

fn after(LayerKey(before): LayerKey, words: &[&str]) -> LayerKey {
    let mut hash = Sha256::new();
    hash.update(before);
    for word in words {
        hash.update((word.len() as u64).to_be_bytes());
        hash.update(word.as_bytes());
    }
    LayerKey(hash.finalize().into())
}

fn act(step: &Step, around: &Surroundings) -> Result<(Action, Surroundings), String> {
    let args: Vec<&str> = step.args.iter().map(String::as_str).collect();
    let mut next = around.clone();
    let action = match (step.kind.as_str(), args.as_slice()) {
        ("RUN", [command, rest @ ..]) => {
            let user = rest.first().filter(|user| !user.is_empty());
            let user = user.map_or_else(|| around.user.clone(), |user| (*user).to_owned());
            Action::Run { command: (*command).to_owned(), user }
        }
        ("ENV" | "ARG", pairs) if pairs.len() % 2 == 0 => {
            for pair in pairs.chunks_exact(2) {
                if let [name, value] = pair {
                    if name.is_empty() || name.contains(['=', '\0']) {
                        return Err(format!("{name:?} can't be the name of a variable"));
                    }
                    next.env.insert((*name).to_owned(), expand(value, around));
                }
            }
            Action::Nothing
        }
        ("WORKDIR", [path]) if !path.is_empty() => {
            let path = clean(&absolute(&expand(path, around), around));
            next.workdir = Some(path.clone());
            Action::MakeFolder { path }
        }
        ("USER", [name, rest @ ..]) => {
            let name = expand(name, around);
            let name = name.split(':').next().unwrap_or_default().to_owned();
            check_user(&name)?;
            next.user.clone_from(&name);
            Action::MakeUser { name, sudo: rest.first() == Some(&"true") }
        }
        ("COPY" | "ADD", [from, to, rest @ ..]) => {
            let files = step.files.clone().ok_or("the hash of its files is missing")?;
            let owner = rest.first().filter(|owner| !owner.is_empty());
            let owner = owner.map_or_else(|| around.user.clone(), |owner| (*owner).to_owned());
            let mode = rest.get(1).filter(|mode| !mode.is_empty());
            let mode = mode.map(|mode| octal(mode)).transpose()?;
            let to = expand(to, around);
            let mut path = clean(&absolute(&to, around));
            if (to.is_empty() || to.ends_with('/') || to.ends_with("/.") || to == ".")
                && path != "/"
            {
                path.push('/');
            }
            Action::Copy { files, from: (*from).to_owned(), to: path, owner, mode }
        }
        ("RUN" | "ENV" | "ARG" | "WORKDIR" | "USER" | "COPY" | "ADD", _) => {
            return Err(format!("{} arguments are not what it takes", args.len()));
        }
        _ => return Err("this kind of step is not known".into()),
    };
    Ok((action, next))
}

fn octal(text: &str) -> Result<u32, String> {
    let bad = || format!("{text:?} is not a mode: it has up to four octal digits");
    if text.len() > 5 || !text.bytes().all(|b| (b'0'..=b'7').contains(&b)) {
        return Err(bad());
    }
    u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777).ok_or_else(bad)
}

/// It becomes a word of commands and a line of `/etc/passwd`.
fn check_user(name: &str) -> Result<(), String> {
    let of_a_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let fits = (1..=32).contains(&name.len())
        && name.bytes().all(of_a_name)
        && !name.starts_with(['-', '.'])
        && !name.bytes().all(|b| b.is_ascii_digit());
    if fits { Ok(()) } else { Err(format!("{name:?} can't be the name of a user")) }
}

fn absolute(path: &str, around: &Surroundings) -> String {
    if path.starts_with('/') {
        return path.to_owned();
    }
    if let Some(rest) = path.strip_prefix('~')
        && (rest.is_empty() || rest.starts_with('/'))
    {
        return format!("{}{rest}", around.home());
    }
    format!("{}/{path}", around.folder())
}

/// Without empty parts, `.` and `..`.
fn clean(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

impl Surroundings {
    /// As every tool makes it; the agent knows the truth, and nothing here is worth a question.
    pub fn home(&self) -> String {
        if self.user == "root" { "/root".into() } else { format!("/home/{}", self.user) }
    }

    pub fn folder(&self) -> String {
        self.workdir.clone().unwrap_or_else(|| self.home())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::From;

    fn step(kind: &str, args: &[&str]) -> Step {
        Step {
            kind: kind.into(),
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            files: matches!(kind, "COPY" | "ADD").then(|| "ab".repeat(32).parse().unwrap()),
            force: false,
        }
    }

    fn recipe(steps: Vec<Step>) -> Recipe {
        let from = From::Template("base".into());
        Recipe { from, steps, start: None, ready: None, force: false }
    }

    fn around() -> Surroundings {
        Surroundings {
            env: BTreeMap::new(),
            user: "user".into(),
            workdir: Some("/home/user".into()),
        }
    }

    fn of(steps: Vec<Step>) -> Result<Plan, PlanError> {
        plan(&recipe(steps), "image", around(), false)
    }

    #[test]
    fn what_each_step_does() {
        let files: FilesHash = "ab".repeat(32).parse().unwrap();
        let copy = |from: &str, to: &str, owner: &str, mode| Action::Copy {
            files: files.clone(),
            from: from.into(),
            to: to.into(),
            owner: owner.into(),
            mode,
        };
        let run =
            |command: &str, user: &str| Action::Run { command: command.into(), user: user.into() };
        for (kind, args, expected) in [
            ("RUN", &["ls"][..], Ok(run("ls", "user"))),
            ("RUN", &["ls", ""], Ok(run("ls", "user"))),
            ("RUN", &["ls", "root"], Ok(run("ls", "root"))),
            ("RUN", &[], Err("RUN: 0 arguments are not what it takes")),
            ("ENV", &["A", "b"], Ok(Action::Nothing)),
            ("ENV", &["A"], Err("ENV: 1 arguments are not what it takes")),
            ("ENV", &["A=", "b"], Err("ENV: \"A=\" can't be the name of a variable")),
            ("WORKDIR", &["x"], Ok(Action::MakeFolder { path: "/home/user/x".into() })),
            ("WORKDIR", &["/a/./b/../c/"], Ok(Action::MakeFolder { path: "/a/c".into() })),
            ("WORKDIR", &["~/x"], Ok(Action::MakeFolder { path: "/home/user/x".into() })),
            ("USER", &["me"], Ok(Action::MakeUser { name: "me".into(), sudo: false })),
            ("USER", &["me:them", "true"], Ok(Action::MakeUser { name: "me".into(), sudo: true })),
            ("USER", &["a b"], Err("USER: \"a b\" can't be the name of a user")),
            ("COPY", &["a", "b"], Ok(copy("a", "/home/user/b", "user", None))),
            ("COPY", &["a", "b/", "", ""], Ok(copy("a", "/home/user/b/", "user", None))),
            ("COPY", &["a", ".", "", ""], Ok(copy("a", "/home/user/", "user", None))),
            ("COPY", &["a", "/", "", ""], Ok(copy("a", "/", "user", None))),
            ("COPY", &["a", "/b", "x:y", "0755"], Ok(copy("a", "/b", "x:y", Some(0o755)))),
            (
                "COPY",
                &["a", "/b", "", "rwx"],
                Err("COPY: \"rwx\" is not a mode: it has up to four octal digits"),
            ),
            ("COPY", &["a"], Err("COPY: 1 arguments are not what it takes")),
            ("VOLUME", &["/a"], Err("VOLUME: this kind of step is not known")),
        ] {
            let planned = of(vec![step(kind, args)]);
            let action = planned.as_ref().map(|plan| &plan.stages[0].action);
            let action = action.map_err(|error| error.message.as_str());
            assert_eq!(action, expected.as_ref().map_err(|it| *it), "{kind} {args:?}");
        }
    }

    #[test]
    fn steps_build_on_each_other() {
        let plan = of(vec![
            step("ENV", &["A", "1", "B", "$A"]),
            step("ENV", &["B", "${A}2"]),
            step("USER", &["root"]),
            step("WORKDIR", &["/srv/$B"]),
            step("WORKDIR", &["deep"]),
            step("RUN", &["pwd"]),
        ])
        .unwrap();
        let env = BTreeMap::from([("A".into(), "1".into()), ("B".into(), "12".into())]);
        let result =
            Surroundings { env, user: "root".into(), workdir: Some("/srv/12/deep".into()) };
        assert_eq!(plan.result, result);
        assert_eq!(plan.stages[5].around, result);
        assert_eq!(plan.stages[0].around, around());
        assert_eq!(plan.stages[5].title, "RUN pwd");
    }

    #[test]
    fn a_key_is_of_everything_that_led_there() {
        let keys = |steps: Vec<Step>| -> Vec<_> {
            of(steps).unwrap().stages.iter().map(|stage| stage.key).collect()
        };
        let one = keys(vec![step("RUN", &["a"]), step("RUN", &["b"])]);
        assert_eq!(one, keys(vec![step("RUN", &["a"]), step("RUN", &["b"])]));
        let other = keys(vec![step("RUN", &["c"]), step("RUN", &["b"])]);
        assert!(one[0] != other[0] && one[1] != other[1]);
        assert_ne!(keys(vec![step("RUN", &["a", "b"])]), keys(vec![step("RUN", &["ab"])]));
        let elsewhere = plan(&recipe(vec![step("RUN", &["a"])]), "other", around(), false).unwrap();
        assert_ne!(elsewhere.stages[0].key, one[0]);
    }

    #[test]
    fn layers_are_taken_up_to_where_something_is_to_be_done_anew() {
        let steps = |forced: Option<usize>| -> Vec<Step> {
            let all = [
                step("RUN", &["a"]),
                step("ENV", &["A", "b"]),
                step("RUN", &["c"]),
                step("RUN", &["d"]),
            ];
            let force = |(at, step)| Step { force: forced == Some(at), ..step };
            all.into_iter().enumerate().map(force).collect()
        };
        for (why, forced, has, expected) in [
            ("none is there", None, &[][..], None),
            ("the last that is there", None, &[0, 2], Some(2)),
            ("one below it has gone", None, &[2], Some(2)),
            ("a step without a layer", None, &[1], None),
            ("all of them", None, &[0, 2, 3], Some(3)),
            ("a step is forced", Some(2), &[0, 2, 3], Some(0)),
            ("the first is forced", Some(0), &[0, 2, 3], None),
        ] {
            let plan = of(steps(forced)).unwrap();
            let keys: Vec<_> = has.iter().map(|at| plan.stages[*at].key).collect();
            assert_eq!(cached(&plan.stages, |key| keys.contains(&key)), expected, "{why}");
        }
        let forced = Recipe { force: true, ..recipe(steps(None)) };
        let plan = plan(&forced, "image", around(), true).unwrap();
        assert_eq!(cached(&plan.stages, |_key| true), None);
    }
}
