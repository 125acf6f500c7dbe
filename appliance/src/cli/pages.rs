//! What is made of the command line's own description: completions of shells, and manual pages.

use std::{
    io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use clap::{Command, CommandFactory as _};
use clap_complete::{Shell, generate};
use clap_mangen::Man;

use super::Cli;

#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    /// Whose
    shell: Shell,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Manual {
    /// Write a page for each command here, instead of the first one to standard output
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

pub(crate) fn completions(asked: &Completions) -> Result<()> {
    let mut script = Vec::new();
    generate(asked.shell, &mut Cli::command(), "sandboxo", &mut script);
    crate::output::print(String::from_utf8_lossy(&script).trim_end())?;
    Ok(())
}

pub(crate) fn manual(asked: &Manual) -> Result<()> {
    let pages = pages(described())?;
    if let Some(folder) = &asked.dir {
        return write(&pages, folder);
    }
    let first = pages.first().map(|(_, page)| page.as_str()).unwrap_or_default();
    Ok(crate::output::print(first.trim_end())?)
}

fn write(pages: &[(String, String)], folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    for (name, page) in pages {
        let path = folder.join(format!("{name}.1"));
        std::fs::write(&path, page).with_context(|| format!("write {}", path.display()))?;
    }
    crate::output::note(&format!("{} pages in {}", pages.len(), folder.display()));
    Ok(())
}

/// With every command's whole name, and flags of all commands said where they are meant.
fn described() -> Command {
    let mut command = Cli::command();
    command.build();
    command
}

/// A command before those below it.
fn pages(command: Command) -> io::Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    let mut left = vec![command];
    while let Some(command) = left.pop() {
        if command.is_hide_set() || command.get_name() == "help" {
            continue;
        }
        left.extend(command.get_subcommands().cloned());
        let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
        let mut page = Vec::new();
        Man::new(command).title(name.to_uppercase()).render(&mut page)?;
        all.push((name, String::from_utf8_lossy(&page).into_owned()));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page() {
        let pages = pages(described()).unwrap();
        let names: Vec<_> = pages.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names[0], "sandboxo");
        for expected in ["sandboxo-serve", "sandboxo-sandbox", "sandboxo-sandbox-logs"] {
            assert!(names.contains(&expected), "{names:?}");
        }
        assert!(!names.contains(&"sandboxo-keeper"), "nobody starts it by hand");
        let (_, exec) = pages.iter().find(|(name, _)| name == "sandboxo-sandbox-exec").unwrap();
        assert!(exec.contains(".SH SYNOPSIS") && exec.contains("sandboxo sandbox exec"), "{exec}");
    }

    #[test]
    fn each_shell_completes_the_commands() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            generate(shell, &mut Cli::command(), "sandboxo", &mut script);
            let script = String::from_utf8(script).unwrap();
            assert!(script.contains("metrics") && script.contains("template"), "{shell}");
        }
    }
}
