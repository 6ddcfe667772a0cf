//! Builds, boots, runs, tests and debugs COPS. Started by the script `./cops` at the root of the
//! checkout.
//!
//! - `toolchain` finds a Rust toolchain for the guest.
//! - `build` builds what is booted.
//! - `qemu` boots it and reads its output.
//! - `service` is the matrix server with its client.
//! - `trace` and `profile` are what they tell of a run.
//! - `output` writes to standard output and standard error, which may be closed.
//! - `commands` are the commands of `./cops`.
//! - `test` runs everything that CI runs.
//!
//! xtask does not depend on other crates of this repository, except for its tests.

// First: its macros are those of all other modules.
#[macro_use]
mod output;

mod build;
mod busybox;
mod cli;
mod commands;
mod control;
mod debian;
mod distribution;
mod error;
mod figures;
mod interrupt;
mod linux_kernel;
mod open_files;
mod packages;
mod page;
mod process;
mod profile;
mod qemu;
mod repository;
mod scheduler;
mod service;
mod switch_budget;
mod terminal;
mod test;
mod toolchain;
mod trace;
mod workspace;

use std::process::ExitCode;

use cli::{Cli, Command};
use error::Outcome;
use workspace::Workspace;

fn main() -> ExitCode {
    let cli = match Cli::parse_words(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => {
            output::print_with(|| error.print());
            // Not clap's 2, because `exec` returns the program's status, and this is not one.
            let status = if error.use_stderr() { error::STATUS_FAILED } else { 0 };
            return ExitCode::from(output::final_status(status));
        }
    };
    match dispatch(cli.command) {
        Ok(status) => ExitCode::from(output::final_status(status)),
        Err(failure) => {
            interrupt::restore_terminal();
            let palette = terminal::stderr_palette();
            eprintln!("{}cops:{} {failure}", palette.red, palette.reset);
            ExitCode::from(error::STATUS_FAILED)
        }
    }
}

/// Runs a command. Returns the exit status.
fn dispatch(command: Command) -> Outcome<u8> {
    open_files::raise_limit();
    interrupt::install()?;
    let workspace = Workspace::locate()?;
    match command {
        Command::Run(options) => commands::run::run(&workspace, &options),
        Command::Exec(options) => commands::exec::run(&workspace, &options),
        Command::Shell(options) => commands::shell::run(&workspace, &options),
        Command::Serve(options) => commands::serve::run(&workspace, &options),
        Command::Top(options) => commands::top::run(&workspace, &options),
        Command::Bench(options) => commands::bench::run(&workspace, &options),
        Command::Profile(options) => commands::profile::run(&workspace, &options),
        Command::Trace(options) => commands::trace::run(&workspace, &options),
        Command::Debug(options) => commands::debug::run(&workspace, &options),
        Command::Fuzz(options) => commands::fuzz::run(&workspace, &options),
        Command::Report(options) => commands::report::run(&workspace, &options),
        Command::Test(options) => test::run(&workspace, &options),
        Command::Build => commands::build::run(&workspace),
        Command::Check(options) => commands::check::run(&workspace, &options),
        Command::Clean => commands::clean::run(&workspace),
    }
}
