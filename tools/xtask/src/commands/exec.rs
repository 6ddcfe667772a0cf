//! `./cops exec`: runs one program in a fresh system, like a program of this host.

use std::time::{Duration, Instant};

use super::Prepared;
use crate::cli::Exec;
use crate::error::Outcome;
use crate::qemu::console::{Ending, PassThrough, follow};
use crate::qemu::machine::Machine;
use crate::terminal::Progress;
use crate::workspace::Workspace;

pub fn run(workspace: &Workspace, options: &Exec) -> Outcome<u8> {
    let prepared = Prepared::new(workspace, Progress::Transient)?
        .with_scheduler(workspace, options.scheduler.as_deref())?;
    let mut boot = prepared.boot(&options.machine, &options.argv, &options.add)?;
    boot.disk = options.disk.as_deref().map(super::disk_image).transpose()?;
    if let Some(personality) = options.personality {
        boot.boot_arguments.push(format!("personality={}", personality.name()));
    }
    if options.icount {
        boot.seed = options.seed;
        boot.make_repeatable();
    }
    let deadline = options.timeout.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds));
    let mut machine = Machine::start(&prepared.qemu, &boot)?;
    if options.interactive {
        super::shell::pass_input(&mut machine);
    }
    let ending = follow(
        machine,
        deadline,
        &mut PassThrough { show_firmware: options.machine.verbose, show_stdout: true },
    );
    report(&ending, options.timeout);
    Ok(ending.exit_status())
}

/// Reports why there is no exit code of the program.
pub fn report(ending: &Ending, timeout: Option<f64>) {
    match ending {
        Ending::Status(_) => {}
        Ending::TimedOut => {
            eprintln!("cops: ended after --timeout {} s", timeout.unwrap_or_default())
        }
        Ending::Broken(why) => eprintln!("cops: {why}"),
    }
}
