//! The command line: what can be said, and who does it.

mod admin;
mod agent;
mod api;
mod base;
mod bench;
mod copy;
mod doctor;
mod down;
mod exec;
mod history;
mod identity;
mod keys;
mod pages;
mod sandboxes;
mod snapshots;
mod target;
mod templates;
mod terminal;
mod volumes;
mod words;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::{
    config::{self, Config, Flags, Settings},
    output::{self, Form},
};

/// Sandboxes for untrusted code, in gVisor, on this host.
#[derive(Debug, Parser)]
#[command(name = "sandboxo", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    reach: target::Reach,
    /// Print JSON (the default when standard output is no terminal)
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the appliance
    Serve(Settings),
    /// Create, list, use and kill sandboxes
    #[command(subcommand)]
    Sandbox(Sandbox),
    /// What sandboxes start from
    #[command(subcommand)]
    Template(Template),
    /// Moments of sandboxes, to start others from
    #[command(subcommand)]
    Snapshot(Snapshot),
    /// Folders that outlive sandboxes
    #[command(subcommand)]
    Volume(Volume),
    /// API keys of clients
    #[command(subcommand)]
    Key(Key),
    /// Keys of the tokens that say who sandboxes are
    #[command(subcommand)]
    Identity(Identity),
    /// Check this host and the appliance on it, and say what to do
    Doctor(doctor::Doctor),
    /// Measure
    #[command(subcommand)]
    Bench(Bench),
    /// Check or print the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// End the appliance of this state folder, its sandboxes and its keeper
    Down {
        /// End the appliance only; sandboxes live on
        #[arg(long)]
        keep: bool,
    },
    /// Print a script that completes this command line
    Completions(pages::Completions),
    /// Print the manual page, or write those of all commands
    Man(pages::Manual),
    /// Starts every runsc and holds the sockets to the agents; the appliance starts it
    #[command(hide = true)]
    Keeper,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Sandbox {
    /// Create one and print its id
    Create(sandboxes::Create),
    /// List them
    Ls(sandboxes::Ls),
    /// Run a command in one; its exit code becomes this one's
    Exec(exec::Exec),
    /// Copy files in and out; a sandbox's path is written ID:PATH
    Cp(copy::Cp),
    /// What happened in one, also after its end
    Logs(history::Logs),
    /// What one used of its processors, memory and disk
    Metrics(history::Metrics),
    /// End them for now; a resume, or whoever connects, finds them as they were
    Pause(sandboxes::Pause),
    /// Let paused ones go on
    Resume(sandboxes::Resume),
    /// Start copies that go on from where it is
    Fork(snapshots::Fork),
    /// End them
    Kill(sandboxes::Kill),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Snapshot {
    /// Take one of a sandbox, which goes on, and print its id
    Create(snapshots::Create),
    /// List them, newest first
    Ls(snapshots::Ls),
    /// Delete one; what has started from it goes on
    Rm {
        /// Its id or name
        snapshot: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Volume {
    /// Make one and print its id
    Create(volumes::Create),
    /// List them
    Ls,
    /// Delete one with all that is in it
    Rm {
        /// Its id or name
        volume: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Template {
    /// List them
    Ls,
    /// Make one of a root file system in a tar archive, or replace its image
    Import(templates::Import),
    /// Make the template `base` of this host's own Debian or Ubuntu packages
    Base(base::Base),
    /// Delete one
    Rm {
        /// Its name or id
        template: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Key {
    /// List them; the keys themselves are not kept
    Ls,
    /// Make one and print it, once
    Create {
        /// What it is for
        name: String,
    },
    /// Revoke one
    Rm {
        /// Its id
        id: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Identity {
    /// Make another key, which signs in ten minutes, once all who verify can know it
    Rotate,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// From a create to the first output of a command
    Tti(bench::Tti),
    /// Pauses, resumes, snapshots and forks of sandboxes that hold memory
    Lifecycle(bench::Lifecycle),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Say everything that is wrong with it
    Check(Settings),
    /// Print all settings in force; secrets are hidden
    Print(Settings),
}

/// What a client's command needs of the command line.
pub(crate) struct Context {
    pub(crate) flags: Flags,
    pub(crate) reach: target::Reach,
    pub(crate) form: Form,
}

/// `sandboxo serve` is `boot`'s; all else is done here.
pub(crate) enum Ask {
    Serve(Box<Config>),
    Client(Box<(Context, Command)>),
}

impl Cli {
    pub(crate) fn ask(self) -> Result<Ask, config::Problems> {
        let Self { flags, reach, json, command } = self;
        if let Command::Serve(settings) = command {
            return Ok(Ask::Serve(Box::new(Config::load(&Flags { settings, ..flags })?)));
        }
        let context = Context { flags, reach, form: Form::choose(json) };
        Ok(Ask::Client(Box::new((context, command))))
    }
}

pub(crate) async fn run(context: Context, command: Command) -> Result<ExitCode> {
    match command {
        Command::Sandbox(Sandbox::Create(create)) => sandboxes::create(&context, create).await?,
        Command::Sandbox(Sandbox::Ls(ls)) => sandboxes::ls(&context, ls).await?,
        Command::Sandbox(Sandbox::Pause(pause)) => return sandboxes::pause(&context, pause).await,
        Command::Sandbox(Sandbox::Resume(resume)) => {
            return sandboxes::resume(&context, resume).await;
        }
        Command::Sandbox(Sandbox::Fork(fork)) => return snapshots::fork(&context, fork).await,
        Command::Snapshot(Snapshot::Create(create)) => snapshots::create(&context, create).await?,
        Command::Snapshot(Snapshot::Ls(ls)) => snapshots::ls(&context, ls).await?,
        Command::Snapshot(Snapshot::Rm { snapshot }) => snapshots::rm(&context, &snapshot).await?,
        Command::Sandbox(Sandbox::Kill(kill)) => return sandboxes::kill(&context, kill).await,
        Command::Sandbox(Sandbox::Logs(logs)) => history::logs(&context, logs).await?,
        Command::Sandbox(Sandbox::Metrics(metrics)) => history::metrics(&context, metrics).await?,
        Command::Sandbox(Sandbox::Exec(exec)) => return exec::exec(&context, exec).await,
        Command::Sandbox(Sandbox::Cp(cp)) => copy::cp(&context, cp).await?,
        Command::Template(Template::Ls) => templates::ls(&context).await?,
        Command::Template(Template::Import(import)) => templates::import(&context, import).await?,
        Command::Template(Template::Base(base)) => base::base(&context, base).await?,
        Command::Template(Template::Rm { template }) => templates::rm(&context, &template).await?,
        Command::Volume(Volume::Create(create)) => volumes::create(&context, create).await?,
        Command::Volume(Volume::Ls) => volumes::ls(&context).await?,
        Command::Volume(Volume::Rm { volume }) => volumes::rm(&context, &volume).await?,
        Command::Key(Key::Ls) => keys::ls(&context).await?,
        Command::Key(Key::Create { name }) => keys::create(&context, &name).await?,
        Command::Key(Key::Rm { id }) => keys::rm(&context, &id).await?,
        Command::Identity(Identity::Rotate) => identity::rotate(&context).await?,
        Command::Doctor(ask) => return doctor::doctor(&context, ask).await,
        Command::Bench(Bench::Tti(tti)) => bench::tti(&context, tti).await?,
        Command::Bench(Bench::Lifecycle(ask)) => bench::lifecycle(&context, ask).await?,
        Command::Completions(asked) => pages::completions(&asked)?,
        Command::Man(asked) => pages::manual(&asked)?,
        Command::Down { keep } => down::down(&context, keep).await?,
        Command::Config(ConfigCommand::Check(settings)) => {
            Config::load(&Flags { settings, ..context.flags })?;
            output::note("the configuration is good");
        }
        Command::Config(ConfigCommand::Print(settings)) => {
            let config = Config::load(&Flags { settings, ..context.flags })?;
            output::print_json(&config::print(&config))?;
        }
        // The first is `boot`'s, the second never comes this far.
        Command::Serve(_) | Command::Keeper => {}
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
#[path = "cli/tests.rs"]
mod tests;
