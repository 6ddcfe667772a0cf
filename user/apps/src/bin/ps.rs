//! Lists processes, their virtual CPUs, and coroutines; `ps -h` prints the options.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use cops::inspect::{self, CoroutineRecord, ProcessRecord, cause, coroutine_kind, state, text};
use cops::process::ExitCode;
use cops::task::{self, Priority};
use cops::{Arguments, eprintln, io, println, time};

const USAGE: &str = "usage: ps [-v] [-c] [PID]
  (nothing)  processes: state of the most active virtual CPU, most urgent level, ceiling, memory, time, polls
  -v         also each virtual CPU: what it polls and what waits for it
  -c         also coroutines, by state and priority; those of the kernel come first
  PID        only this process; 0 is the kernel
Levels and priorities: 0 is the most urgent, 63 the least.
Examples: ps    ps -v    ps -c 0    ps -vc 1";

#[derive(Default)]
struct Options {
    virtual_cpus: bool,
    coroutines: bool,
    only: Option<u32>,
}

fn options(arguments: Arguments) -> Option<Options> {
    let mut options = Options::default();
    for argument in arguments.skip(1) {
        match argument.strip_prefix('-') {
            Some(letters) if !letters.is_empty() => {
                for letter in letters.chars() {
                    match letter {
                        'v' => options.virtual_cpus = true,
                        'c' => options.coroutines = true,
                        _ => return None,
                    }
                }
            }
            _ => options.only = Some(argument.parse().ok()?),
        }
    }
    Some(options)
}

#[cops::main]
async fn main(arguments: Arguments) -> io::Result<ExitCode> {
    let Some(options) = options(arguments) else {
        eprintln!("{USAGE}");
        return Ok(ExitCode(2));
    };
    // More urgent than the listed programs, as far as its ceiling allows.
    if let Some(main) = task::current() {
        task::set_priority(main, Priority::MOST_URGENT);
    }
    let mut processes = inspect::processes()?;
    if let Some(only) = options.only {
        processes.retain(|process| process.process == only);
        if processes.is_empty() && only != 0 {
            eprintln!("ps: there is no process {only}");
            return Ok(ExitCode::FAILURE);
        }
    }
    if options.only != Some(0) {
        println!(
            "  PID PARENT STATE     LEVEL CEILING CPUS   MEMORY     TIME      POLLS CALLS NAME"
        );
    }
    for process in &processes {
        print_process(process);
        if options.virtual_cpus {
            print_cpus(process.process)?;
        }
    }
    if options.coroutines {
        if options.only.unwrap_or(0) == 0 {
            print_coroutines("kernel", 0)?;
        }
        for process in processes.iter().filter(|process| process.state != state::ENDED) {
            print_coroutines(text(&process.name), process.process)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn level(level: u32) -> String {
    if level < 64 { alloc::format!("{level}") } else { String::from("-") }
}

fn print_process(process: &ProcessRecord) {
    let run = time::duration_of_ticks(process.run_ticks);
    println!(
        "{:5} {:6} {:9} {:>5} {:>7} {:4} {:5} KiB {:6}.{:01} {:10} {:5} {}",
        process.process,
        process.parent,
        state::name(process.state),
        level(process.level),
        level(process.ceiling),
        process.cpus,
        process.pages * 4,
        run.as_secs(),
        run.subsec_millis() / 100,
        process.polls,
        process.calls_in_flight,
        text(&process.name)
    );
}

fn print_cpus(process: u32) -> io::Result<()> {
    // It may have ended meanwhile.
    let Ok(cpus) = inspect::cpus(process) else { return Ok(()) };
    for cpu in cpus {
        let place = match cpu.state {
            state::RUNNING => alloc::format!("running on hart {}", cpu.hart),
            // It waits inside a coroutine's poll.
            state::SUSPENDED | state::BLOCKED if cpu.cause != cause::NONE => {
                alloc::format!("suspended ({})", cause::name(cpu.cause))
            }
            other => String::from(state::name(other)),
        };
        let polls = match cpu.current_coroutine {
            0 => String::from("polls nothing"),
            id => alloc::format!("polls {id:#x} at {}", level(cpu.current_priority)),
        };
        println!(
            "      cpu {} {place}, level {}; {polls}; waiting levels {:#x}, {} polls",
            cpu.cpu,
            level(cpu.level),
            cpu.ready | cpu.posted,
            cpu.polls
        );
    }
    Ok(())
}

fn print_coroutines(name: &str, process: u32) -> io::Result<()> {
    let Ok(mut coroutines) = inspect::coroutines(process) else { return Ok(()) };
    println!("coroutines of {name} ({process}): {}", summary(&coroutines));
    coroutines.sort_by_key(|coroutine| (coroutine.state, coroutine.priority, coroutine.coroutine));
    println!("  STATE                 KIND      PRIORITY WORKER ID               NAME");
    for coroutine in &coroutines {
        let mut state = String::from(state::name(coroutine.state));
        if coroutine.cause != cause::NONE {
            state = alloc::format!("{state} ({})", cause::name(coroutine.cause));
        }
        println!(
            "  {state:21} {:9} {:8} {:6} {:<16x} {}",
            coroutine_kind::name(coroutine.kind),
            coroutine.priority,
            coroutine.worker,
            coroutine.coroutine,
            text(&coroutine.name)
        );
    }
    Ok(())
}

/// Number of coroutines by state and priority.
fn summary(coroutines: &[CoroutineRecord]) -> String {
    let mut counts = BTreeMap::new();
    for coroutine in coroutines {
        *counts.entry((coroutine.state, coroutine.priority)).or_insert(0u32) += 1;
    }
    let parts: Vec<String> = counts
        .iter()
        .map(|((state, priority), count)| {
            alloc::format!("{count} {} at {priority}", state::name(*state))
        })
        .collect();
    if parts.is_empty() { String::from("none") } else { parts.join(", ") }
}
