//! The command line: commands, options, help with examples.

mod bench;
mod development;
mod machine;
mod observe;
mod programs;
mod values;

use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

pub use bench::{Bench, Loop, Measurement, Peer};
pub use development::{Check, Fuzz, Report, ReportAction, Test};
pub use machine::{Idle, Machine};
pub use observe::{PROFILE_OPTIONS, Profile, Top, Trace};
pub use programs::{Debug, Exec, Model, Run, Serve, Shell};
pub use values::CONNECTIONS_MAX;

#[derive(Debug, Parser)]
#[command(
    name = "cops",
    bin_name = "./cops",
    about = "COPS, a coroutine operating system: builds it, boots it in QEMU, measures and tests it",
    disable_help_subcommand = false,
    after_help = "Environment:\n  \
        COPS_QEMU             another qemu-system-riscv64 (7.2 or newer)\n  \
        COPS_GUEST_TOOLCHAIN  rustup or debian: which Rust builds the guest (default: the first that can)\n  \
        CARGO_TARGET_DIR      where everything that is built goes (default: target)\n  \
        NO_COLOR              no colours, on terminals too\n\n\
        `./cops help COMMAND` shows a command's options and examples."
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// Parses a command line, which begins with the program's name. A measurement gets to see which
    /// options of the machine were given, because some have a machine of their own.
    pub fn parse_words<W: Into<OsString> + Clone>(
        words: impl IntoIterator<Item = W>,
    ) -> Result<Self, clap::Error> {
        let matches = Self::command().try_get_matches_from(words)?;
        let mut cli =
            Self::from_arg_matches(&matches).map_err(|error| error.format(&mut Self::command()))?;
        if let Some((_, matches)) = matches.subcommand() {
            let is_given =
                |name: &&str| matches.value_source(name) == Some(ValueSource::CommandLine);
            match &mut cli.command {
                Command::Bench(bench) => {
                    bench.given = bench::MACHINE.into_iter().filter(is_given).collect();
                }
                Command::Profile(profile) => {
                    let names = observe::PROFILE_OPTIONS.into_iter().flatten().copied();
                    profile.given = names.filter(is_given).collect();
                }
                _ => {}
            }
        }
        Ok(cli)
    }
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Boot, serve matrices to a real client over TCP, and show throughput and latency
    Run(Run),
    /// Run one program: its output is passed through, its exit code is returned
    Exec(Exec),
    /// Boot into the shell, on this terminal
    Shell(Shell),
    /// Boot a server and keep it running for other clients until interrupted
    Serve(Serve),
    /// Show the activity of the harts and processes of a running server
    Top(Top),
    /// Run one measurement, print a table, write the data
    Bench(Bench),
    /// Run with tracing on, and write a file for Perfetto or Chrome's trace viewer
    Trace(Trace),
    /// Count the instructions of every function on every call path; compare two profiles
    Profile(Profile),
    /// Boot under gdb, with the symbols of kernel, vDSO and program
    Debug(Debug),
    /// The papers' experiments as a page; the data under docs/results: list them, measure them
    /// again, insert them into the documents
    Report(Report),
    /// Run every test, or some
    Test(Test),
    /// Fuzz system calls with nearly valid or arbitrary arguments
    Fuzz(Fuzz),
    /// Build vDSO, kernel and programs, without booting
    Build,
    /// Show the compiler's messages for every package, host and guest; editors run it
    Check(Check),
    /// Remove everything that was built
    Clean,
}

#[cfg(test)]
mod tests;
