//! What is refused before anything is written down.

use sandboxo_model::Recipe;

/// A record is read whole by whoever looks how far its build is.
const MAX_STEPS: usize = 256;
const MAX_BYTES: usize = 512 << 10;

pub(super) fn check(recipe: &Recipe) -> Result<(), String> {
    let Recipe { from: _, steps, start, ready, force: _ } = recipe;
    if steps.len() > MAX_STEPS {
        return Err(format!("a recipe has at most {MAX_STEPS} steps"));
    }
    let texts = steps.iter().flat_map(|step| step.args.iter().chain([&step.kind]));
    let bytes: usize = texts.chain(start).chain(ready).map(String::len).sum();
    if bytes > MAX_BYTES {
        return Err(format!("the words of a recipe are at most {} KiB", MAX_BYTES >> 10));
    }
    let has_zero = |text: &String| text.contains('\0');
    if steps.iter().any(|step| step.args.iter().any(has_zero)) {
        return Err("a step has a NUL character in it".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use sandboxo_model::{From, Step};

    use super::*;

    #[test]
    fn table() {
        let step = |arg: &str| Step {
            kind: "RUN".into(),
            args: vec![arg.into()],
            files: None,
            force: false,
        };
        let recipe = |steps: Vec<Step>| Recipe {
            from: From::Template("base".into()),
            steps,
            start: None,
            ready: None,
            force: false,
        };
        let long = "x".repeat(MAX_BYTES);
        for (steps, expected) in [
            (vec![], Ok(())),
            (vec![step("ls"); MAX_STEPS], Ok(())),
            (vec![step("ls"); MAX_STEPS + 1], Err("a recipe has at most 256 steps")),
            (vec![step(&long)], Err("the words of a recipe are at most 512 KiB")),
            (vec![step("a\0")], Err("a step has a NUL character in it")),
        ] {
            assert_eq!(check(&recipe(steps)), expected.map_err(str::to_owned));
        }
    }
}
