//! The command line of the comparison of services: `service` says what it is.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use cops_executor_peers::service::contender::Contender;
use cops_executor_peers::service::experiment::{self, Plan};
use cops_executor_peers::service::{outcome, process};

/// A service with an interactive and a batch class, on cops-executor and on tokio, under batch
/// overload
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    /// Seconds rather than a minute: to see that it works
    #[arg(long)]
    quick: bool,
    /// Workers of the server, one run after the other
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2",
        value_parser = clap::value_parser!(u32).range(1..=64))]
    workers: Vec<u32>,
    /// Only this runtime (repeatable)
    #[arg(long, value_name = "NAME", value_parser = parse_contender)]
    contender: Vec<Contender>,
    /// Write two-classes.md, .json and plots into this folder
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// The server's process
    #[command(hide = true)]
    Serve {
        #[arg(value_parser = parse_contender)]
        contender: Contender,
        workers: u32,
        #[arg(value_delimiter = ',')]
        processors: Vec<usize>,
    },
}

fn parse_contender(key: &str) -> Result<Contender, String> {
    Contender::from_key(key).ok_or_else(|| {
        let keys = Contender::ALL.map(Contender::key).join(", ");
        format!("there are {keys}")
    })
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match &arguments.part {
        Some(Part::Serve { contender, workers, processors }) => {
            process::serve(*contender, *workers, processors).map(|()| 0)
        }
        None => measure(&arguments),
    };
    match result {
        Ok(0) => ExitCode::SUCCESS,
        Ok(errors) => {
            eprintln!("{errors} requests were not answered, or wrongly");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("two-classes: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the number of requests that went wrong.
fn measure(arguments: &Arguments) -> io::Result<u64> {
    let mut plan = if arguments.quick { Plan::quick() } else { Plan::new() };
    plan.workers.clone_from(&arguments.workers);
    if !arguments.contender.is_empty() {
        plan.contenders.clone_from(&arguments.contender);
    }
    let rows = experiment::run(&plan, &process::processors()?, |what| eprintln!("{what}"))?;
    // The files first: they must not be lost with an output that is closed (`| head`).
    let written = match &arguments.output {
        Some(folder) => outcome::write(folder, &plan, &rows),
        None => Ok(()),
    };
    let _ = writeln!(io::stdout(), "{}", outcome::table(&rows));
    written?;
    Ok(outcome::errors(&rows))
}
