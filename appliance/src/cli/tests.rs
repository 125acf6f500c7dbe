//! The tables of `cli`.

use clap::{CommandFactory as _, Parser as _};

use super::{words::Place, *};

fn parse(line: &str) -> Result<Cli, clap::error::ErrorKind> {
    Cli::try_parse_from(line.split(' ')).map_err(|error| error.kind())
}

#[test]
fn the_command_line_holds_together() {
    Cli::command().debug_assert();
}

#[test]
fn what_is_understood() {
    use clap::error::ErrorKind as E;
    for (line, expected) in [
        ("sandboxo", Some(E::DisplayHelpOnMissingArgumentOrSubcommand)),
        ("sandboxo serve", None),
        ("sandboxo serve --port 8000 --state s", None),
        ("sandboxo sandbox ls --json", None),
        ("sandboxo sandbox create", None),
        ("sandboxo sandbox create base --timeout 1h -e A=b -m c=d", None),
        ("sandboxo sandbox create --timeout soon", Some(E::ValueValidation)),
        ("sandboxo sandbox create -e A", Some(E::ValueValidation)),
        ("sandboxo sandbox exec ID", Some(E::MissingRequiredArgument)),
        ("sandboxo sandbox exec ID ls", Some(E::UnknownArgument)),
        ("sandboxo sandbox exec ID -- ls -l", None),
        ("sandboxo sandbox exec -t ID", None),
        ("sandboxo sandbox cp a ID:b", None),
        ("sandboxo sandbox cp a", Some(E::MissingRequiredArgument)),
        ("sandboxo sandbox logs ID --follow --level warn", None),
        ("sandboxo sandbox logs", Some(E::MissingRequiredArgument)),
        ("sandboxo sandbox metrics ID --since 1h", None),
        ("sandboxo completions zsh", None),
        ("sandboxo completions tcsh", Some(E::InvalidValue)),
        ("sandboxo man --dir pages", None),
        ("sandboxo sandbox create --on-timeout pause --auto-resume", None),
        ("sandboxo sandbox create --on-timeout sleep", Some(E::InvalidValue)),
        ("sandboxo sandbox pause", Some(E::MissingRequiredArgument)),
        ("sandboxo sandbox pause ID ID2 --files-only", None),
        ("sandboxo sandbox resume ID --timeout 1h --reboot", None),
        ("sandboxo sandbox fork", Some(E::MissingRequiredArgument)),
        ("sandboxo sandbox fork ID --count 3 --timeout 1h", None),
        ("sandboxo snapshot create ID --name snap:v1 --files-only", None),
        ("sandboxo snapshot ls --sandbox ID --name snap", None),
        ("sandboxo snapshot rm snap:v1", None),
        ("sandboxo snapshot rm", Some(E::MissingRequiredArgument)),
        ("sandboxo sandbox kill", Some(E::MissingRequiredArgument)),
        ("sandboxo sandbox kill --all", None),
        ("sandboxo sandbox kill --all ID", Some(E::ArgumentConflict)),
        ("sandboxo template import FILE.tar --name base", None),
        ("sandboxo template import FILE.tar", Some(E::MissingRequiredArgument)),
        ("sandboxo template base --fresh", None),
        ("sandboxo key create ci", None),
        ("sandboxo bench tti --n 100", None),
        ("sandboxo bench lifecycle -n 3 --memory 0,64 --forks 2 --at-once 0", None),
        ("sandboxo bench lifecycle --memory much", Some(E::ValueValidation)),
        ("sandboxo config print --state s", None),
        ("sandboxo doctor", None),
        ("sandboxo doctor --leaks --quiesce 30", None),
        ("sandboxo doctor --quiesce 30", Some(E::MissingRequiredArgument)),
        ("sandboxo down --keep", None),
        ("sandboxo keeper", None),
        ("sandboxo destroy", Some(E::InvalidSubcommand)),
    ] {
        assert_eq!(parse(line).err(), expected, "{line}");
    }
}

#[test]
fn everything_after_the_dashes_is_the_commands() {
    let Command::Sandbox(Sandbox::Exec(exec)) =
        parse("sandboxo sandbox exec --timeout 5s ID -- grep --json -t x").unwrap().command
    else {
        panic!("not exec");
    };
    assert!(format!("{exec:?}").contains(r#"command: ["grep", "--json", "-t", "x"]"#));
}

#[test]
fn a_copy_has_two_places() {
    let Command::Sandbox(Sandbox::Cp(cp)) = parse("sandboxo sandbox cp x ID:/y").unwrap().command
    else {
        panic!("not cp");
    };
    let shown = format!("{cp:?}");
    let places = [Place::Here("x".into()), Place::Sandbox { id: "ID".into(), path: "/y".into() }];
    assert!(places.iter().all(|place| shown.contains(&format!("{place:?}"))), "{shown}");
}

#[test]
fn serve_tells_all_problems_of_its_configuration() {
    let Err(problems) = parse("sandboxo serve --port x --region y").unwrap().ask() else {
        panic!("it was taken");
    };
    assert_eq!(problems.iter().count(), 2, "{problems}");
}
