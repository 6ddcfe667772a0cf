//! The program: parses the command line, runs the requested action, and converts the result to an
//! exit status.

use std::fs;
use std::io::{Write, stderr, stdin, stdout};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use cops_loadgen::arguments::Arguments;
use cops_loadgen::outcome::Outcome;
use cops_loadgen::output::MayBeClosed;
use cops_loadgen::progress::Progress;
use cops_loadgen::{hostile, load, opening};
use matrix_message::workload::Workload;

type AnyError = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = if let Some(file) = &arguments.replot {
        replot(file, &arguments).map(|()| true)
    } else if arguments.hostile {
        be_hostile(&arguments)
    } else {
        drive(&arguments)
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            complain(&error.to_string());
            ExitCode::from(3)
        }
    }
}

/// Runs the load. Returns whether there were no errors.
fn drive(arguments: &Arguments) -> Result<bool, AnyError> {
    let settings = &arguments.load;
    let address = resolve(&settings.connect)?;
    let workload = Workload::new(settings.operation(), settings.side(), settings.seed);
    let mut progress = Progress::new();
    let mut poll = mio::Poll::new()?;
    let connections = opening::open_all(&mut poll, address, settings, &workload, &mut progress)?;
    let hold = |what| if arguments.hold { hold(what) } else { Ok(()) };
    hold("all open")?;
    let at_end = || hold("all answered");
    let measurements =
        load::run(&mut poll, connections, settings, &workload, &mut progress, at_end)?;
    drop(progress);

    let outcome = Outcome::new(settings, &arguments.label, &measurements);
    for complaint in &measurements.complaints {
        complain(complaint);
    }
    // The files first: a table that cannot be printed must not cost them.
    let written = write_files(&outcome, arguments);
    let mut output = MayBeClosed(stdout());
    output.write_all(outcome.table().as_bytes())?;
    output.flush()?;
    written.map(|()| outcome.errors() == 0)
}

/// Writes the files that are asked for.
fn write_files(outcome: &Outcome, arguments: &Arguments) -> Result<(), AnyError> {
    if let Some(file) = &arguments.json {
        write(file, &outcome.to_json())?;
    }
    if let Some(file) = &arguments.csv {
        write(file, &outcome.to_csv())?;
    }
    if let Some(directory) = &arguments.plots {
        write_plots(outcome, directory)?;
    }
    Ok(())
}

/// Writes a line to standard error. If that is closed, the line is lost.
fn complain(what: &str) {
    let _ = writeln!(stderr(), "cops-loadgen: {what}");
}

/// Says `what` has been done, and waits until it may continue.
fn hold(what: &str) -> std::io::Result<()> {
    let mut output = MayBeClosed(stdout());
    writeln!(output, "{what}")?;
    output.flush()?;
    stdin().read_line(&mut String::new()).map(drop)
}

/// Runs the hostile clients. Returns whether the server passed every case.
fn be_hostile(arguments: &Arguments) -> Result<bool, AnyError> {
    let address = resolve(&arguments.load.connect)?;
    let suite = hostile::Suite {
        address,
        patience: Duration::from_secs_f64(arguments.patience_seconds),
        seed: arguments.load.seed,
        only: arguments.only.clone().unwrap_or_default(),
    };
    let tally = suite.run(&mut MayBeClosed(stdout().lock()))?;
    Ok(tally.failed == 0)
}

fn replot(file: &Path, arguments: &Arguments) -> Result<(), AnyError> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let outcome =
        Outcome::from_json(&text).map_err(|error| format!("{}: {error}", file.display()))?;
    write_plots(&outcome, arguments.plots.as_deref().unwrap_or(Path::new(".")))
}

fn write_plots(outcome: &Outcome, directory: &Path) -> Result<(), AnyError> {
    fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    write(&directory.join("latency.svg"), &outcome.latency_svg()?)?;
    write(&directory.join("throughput.svg"), &outcome.throughput_svg()?)
}

fn write(file: &Path, text: &str) -> Result<(), AnyError> {
    fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()).into())
}

fn resolve(address: &str) -> Result<SocketAddr, AnyError> {
    let mut found = address.to_socket_addrs().map_err(|error| format!("{address}: {error}"))?;
    found.next().ok_or_else(|| format!("{address}: no such host").into())
}
