//! `./cops trace`: runs a program, or the matrix server under load, with tracing on, and writes the
//! trace for Perfetto or Chrome's trace viewer. A program that is ended, at the time limit or with
//! Ctrl-C, has a trace too.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::Prepared;
use crate::cli::{Model, Trace};
use crate::error::{Because, Failure, Outcome};
use crate::interrupt;
use crate::qemu::command::Boot;
use crate::qemu::console::{Ending, PassThrough, Sink, follow_trace, follow_while};
use crate::qemu::demux::Channel;
use crate::qemu::machine::Machine;
use crate::qemu::server::Server;
use crate::service::{self, Client, Load, Pace};
use crate::terminal::Progress;
use crate::trace::dump::{Collector, Dump};
use crate::trace::summary::Summary;
use crate::trace::timeline::Timeline;
use crate::trace::{check, chrome, story};
use crate::workspace::Workspace;

/// The load on the server with `--run`.
const LOAD: Load = Load {
    connections: 16,
    matrix: 15,
    pace: Pace::every_ms(20),
    seconds: 1,
    warm_up_seconds: 1,
    settle_seconds: 0,
    drain_seconds: service::DRAIN_SECONDS,
};

pub fn run(workspace: &Workspace, options: &Trace) -> Outcome<u8> {
    let (dump, status) =
        if options.run { serve(workspace, options)? } else { execute(workspace, options)? };
    let timeline = Timeline::new(&dump);
    let story = story::tell(&dump, &timeline);
    let file = options.out.clone().unwrap_or_else(|| workspace.results_folder().join("trace.json"));
    write(&file, &dump, &timeline, &story)?;
    let counts = checked(&file)?;
    eprintln!("{}", Summary { dump: &dump, timeline: &timeline, story: &story });
    eprintln!(
        "{}: {} slices, {} arrows, {} calls, {} moments; open it in https://ui.perfetto.dev or about:tracing",
        file.display(),
        counts.slices,
        counts.arrows,
        counts.spans,
        counts.moments
    );
    Ok(status)
}

/// Interval at which the time limit and Ctrl-C are checked while a program runs.
const LOOK: Duration = Duration::from_millis(20);
/// Exit status after Ctrl-C: 128 + SIGINT.
const STATUS_INTERRUPTED: u8 = 130;

/// A boot with tracing on.
fn boot(prepared: &Prepared, options: &Trace, argv: &[String]) -> Outcome<Boot> {
    let mut boot = prepared.boot(&options.machine, argv, &options.add)?;
    boot.boot_arguments.push(format!("trace={}", options.records));
    if options.icount {
        boot.make_repeatable();
    }
    Ok(boot)
}

/// Runs one program to its end, and then the kernel writes its trace; or to the time limit or
/// Ctrl-C, and then it is asked for that.
fn execute(workspace: &Workspace, options: &Trace) -> Outcome<(Dump, u8)> {
    let prepared = Prepared::new(workspace, Progress::Transient)?;
    let mut boot = boot(&prepared, options, &options.argv)?;
    boot.boot_arguments.push("trace_dump=on".to_owned());
    let machine = Machine::start(&prepared.qemu, &boot)?;
    let deadline = options.timeout.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds));
    let through = PassThrough { show_firmware: options.machine.verbose, show_stdout: true };
    let mut sink = Collecting { through, collector: Collector::default() };
    // Another Ctrl-C ends this program, without a trace.
    interrupt::defer();
    let is_over =
        || interrupt::requested() || deadline.is_some_and(|deadline| Instant::now() >= deadline);
    let wait = |_| (!is_over()).then(|| Some(Instant::now() + LOOK));
    let status = match follow_while(machine, wait, &mut sink) {
        Ok(ending) => {
            super::exec::report(&ending, options.timeout);
            ending.exit_status()
        }
        Err(mut machine) => {
            let status = if interrupt::requested() {
                eprintln!("cops: interrupted");
                STATUS_INTERRUPTED
            } else {
                super::exec::report(&Ending::TimedOut, options.timeout);
                Ending::TimedOut.exit_status()
            };
            follow_trace(&mut machine, &mut sink.collector, &mut sink.through)?;
            status
        }
    };
    Ok((sink.collector.finish()?, status))
}

/// Puts a short load on the matrix server, and then requests the kernel's trace.
fn serve(workspace: &Workspace, options: &Trace) -> Outcome<(Dump, u8)> {
    let prepared = Prepared::new(workspace, Progress::Lines)?;
    let client = Client::build(workspace, Progress::Lines)?;
    let boot =
        boot(&prepared, options, &service::server_arguments(Model::Kcuc, options.machine.smp))?;
    let sink = PassThrough { show_firmware: options.machine.verbose, show_stdout: false };
    let (mut server, port) =
        Server::start_on_free_port(&prepared.qemu, &boot, service::PORT, sink)?;
    let scratch = workspace.scratch()?;
    let json = scratch.file("load.json");
    let mut load = client.load(port, &LOAD, &json);
    let is_clean = service::drive(&mut server, load.stdout(Stdio::null()))?;
    let collector = server.trace()?;
    server.shut_down();
    Ok((collector.finish()?, u8::from(!is_clean)))
}

/// Separates the trace from other output.
struct Collecting {
    through: PassThrough,
    collector: Collector,
}

impl Sink for Collecting {
    fn bytes(&mut self, channel: Channel, bytes: &[u8]) {
        match channel {
            Channel::Trace => self.collector.feed(bytes),
            _ => self.through.bytes(channel, bytes),
        }
    }
}

fn write(file: &Path, dump: &Dump, timeline: &Timeline, story: &story::Story) -> Outcome<()> {
    let cannot = || format!("cannot write {}", file.display());
    if let Some(folder) = file.parent().filter(|folder| *folder != PathBuf::new()) {
        std::fs::create_dir_all(folder).because(cannot)?;
    }
    let mut out = BufWriter::new(std::fs::File::create(file).because(cannot)?);
    chrome::write(&mut out, dump, timeline, story).and_then(|()| out.flush()).because(cannot)
}

/// Reads the file back and checks it, because viewers do not report errors.
fn checked(file: &Path) -> Outcome<check::Counts> {
    let bytes = std::fs::read(file).because(|| format!("cannot read {}", file.display()))?;
    let trace =
        serde_json::from_slice(&bytes).because(|| format!("{} is no JSON", file.display()))?;
    check::check(&trace)
        .map_err(|why| Failure::new(format!("{} is not a valid trace: {why}", file.display())))
}
