//! Shows the activity of the machine, refreshed; `top -h` prints the options.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::collections::BTreeMap;
use alloc::string::String;
use core::fmt::Write;
use core::pin::pin;

use cops::inspect::{self, HartRecord, ProcessRecord, state, text};
use cops::io::{self, Read, stdin, terminal};
use cops::memory::Statistics;
use cops::process::ExitCode;
use cops::task::{self, Priority};
use cops::time::{self, Duration, sleep};
use cops::{Arguments, eprintln, memory, print, process};
use futures_util::future::{Either, select};

const USAGE: &str = "usage: top [-n COUNT] [-d SECONDS] [-p]
  -n COUNT    ends after so many pictures; without it, with q or Ctrl-C
  -d SECONDS  between pictures (default 1; fractions are fine)
  -p          plain: pictures below each other, without the terminal's escapes (with -n, always)
Of each second: what harts and processes did since the picture before.
Examples: top    top -n 5 -d 0.5";

const CONTROL_C: u8 = 3;
/// Cursor home, clear to the end of the screen.
const HOME_AND_CLEAR: &str = "\x1b[H\x1b[J";

struct Options {
    count: Option<u32>,
    interval: Duration,
    plain: bool,
}

fn options(mut arguments: Arguments) -> Option<Options> {
    let mut options = Options { count: None, interval: Duration::from_secs(1), plain: false };
    arguments.next();
    while let Some(argument) = arguments.next() {
        match argument {
            "-n" => options.count = Some(arguments.next()?.parse().ok()?),
            "-d" => {
                let seconds = arguments
                    .next()?
                    .parse()
                    .ok()
                    .filter(|seconds| (0.01..=3600.0).contains(seconds))?;
                options.interval = Duration::from_secs_f64(seconds);
            }
            "-p" => options.plain = true,
            _ => return None,
        }
    }
    options.plain |= options.count.is_some();
    Some(options)
}

/// A snapshot of the machine.
struct Sample {
    statistics: Statistics,
    harts: alloc::vec::Vec<HartRecord>,
    processes: BTreeMap<u32, ProcessRecord>,
}

impl Sample {
    fn take() -> io::Result<Self> {
        Ok(Self {
            statistics: memory::statistics()?,
            harts: inspect::harts()?,
            processes: inspect::processes()?
                .into_iter()
                .map(|process| (process.process, process))
                .collect(),
        })
    }
}

#[cops::main]
async fn main(arguments: Arguments) -> io::Result<ExitCode> {
    let Some(options) = options(arguments) else {
        eprintln!("{USAGE}");
        return Ok(ExitCode(2));
    };
    // More urgent than the displayed programs, as far as its ceiling allows.
    if let Some(main) = task::current() {
        task::set_priority(main, Priority::MOST_URGENT);
    }
    // In the background there are no keys.
    let is_background = terminal::foreground().is_ok_and(|group| group != process::group());
    let mut keys =
        Keys { open: !is_background && terminal::set_mode(terminal::Mode::KEYS).is_ok() };
    let mut before = Sample::take()?;
    let mut pictures = 0;
    while options.count.is_none_or(|count| pictures < count) {
        if keys.quit_within(options.interval).await {
            break;
        }
        let now = Sample::take()?;
        let picture = picture(&before, &now);
        // In one piece, so that the screen does not flicker.
        print!(
            "{}{picture}{}",
            if options.plain { "" } else { HOME_AND_CLEAR },
            if options.plain { "\n" } else { "" }
        );
        (before, pictures) = (now, pictures + 1);
    }
    Ok(ExitCode::SUCCESS)
}

/// Standard input, until it ends.
struct Keys {
    open: bool,
}

impl Keys {
    /// Waits for this time, or until the user asks the program to end; then returns true.
    async fn quit_within(&mut self, interval: Duration) -> bool {
        let mut end = pin!(sleep(interval));
        loop {
            if !self.open {
                end.await;
                return false;
            }
            let mut bytes = [0; 16];
            let mut input = stdin();
            let count = match select(end.as_mut(), pin!(input.read(&mut bytes))).await {
                Either::Left(_) => return false,
                Either::Right((count, _)) => count.unwrap_or(0),
            };
            self.open = count > 0;
            if bytes.iter().take(count).any(|&byte| byte == b'q' || byte == CONTROL_C) {
                return true;
            }
        }
    }
}

fn picture(before: &Sample, now: &Sample) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = describe(&mut out, before, now);
    out
}

fn describe(out: &mut String, before: &Sample, now: &Sample) -> core::fmt::Result {
    let clock = |sample: &Sample| sample.harts.first().map_or(0, |hart| hart.now_ticks);
    let ticks = clock(now).saturating_sub(clock(before)).max(1);
    let seconds = time::duration_of_ticks(ticks).as_secs_f64();
    let statistics = &now.statistics;
    let mebibytes = |frames: u64| frames as f64 / 256.0;
    writeln!(
        out,
        "up {:.1} s, {} harts, {} processes, {} kernel coroutines, {} calls in flight, {:.1} of {:.1} MiB in use",
        time::duration_of_ticks(clock(now)).as_secs_f64(),
        now.harts.len(),
        statistics.processes,
        statistics.kernel_coroutines,
        statistics.calls_in_flight,
        mebibytes(statistics.frames_total - statistics.frames_free),
        mebibytes(statistics.frames_total)
    )?;
    describe_rates(out, &before.statistics, statistics, seconds)?;
    let percent = |part: u64| part as f64 * 100.0 / ticks as f64;
    writeln!(
        out,
        "\nHART  BUSY %  PROCESSES %  KERNEL PRIORITY  POLLS/s  RUNS      KERNEL'S READY LEVELS"
    )?;
    for (hart, earlier) in now.harts.iter().zip(&before.harts) {
        let busy = 100.0 - percent(hart.asleep_ticks.wrapping_sub(earlier.asleep_ticks)).min(100.0);
        let processes = percent(hart.process_ticks.wrapping_sub(earlier.process_ticks)).min(100.0);
        let polls = hart.polls.wrapping_sub(earlier.polls) as f64 / seconds;
        let runs = match hart.process {
            0 => String::from("-"),
            process => alloc::format!("{process}/{}", hart.cpu),
        };
        let priority = match hart.current_priority {
            level @ 0..64 => alloc::format!("{level}"),
            _ => String::from("-"),
        };
        write!(
            out,
            "{:4}  {busy:6.1}  {processes:11.1}  {priority:>15}  {polls:7.0}  {runs:8}  ",
            hart.hart
        )?;
        levels(out, hart.ready | hart.posted)?;
        writeln!(out)?;
    }
    write!(out, "virtual CPUs wait for a hart at levels: ")?;
    levels(out, now.harts.first().map_or(0, |hart| hart.run_queue))?;
    writeln!(
        out,
        "\n\n  PID STATE     LEVEL CEILING CPUS   TIME %   POLLS/s  CALLS    MEMORY NAME"
    )?;
    let mut list: alloc::vec::Vec<_> = now
        .processes
        .values()
        .map(|process| {
            let earlier = before.processes.get(&process.process);
            let since =
                |of: fn(&ProcessRecord) -> u64| of(process).wrapping_sub(earlier.map_or(0, of));
            (since(|process| process.run_ticks), since(|process| process.polls), process)
        })
        .collect();
    list.sort_by_key(|&(run_ticks, ..)| core::cmp::Reverse(run_ticks));
    for (run_ticks, polls, process) in list {
        writeln!(
            out,
            "{:5} {:9} {:5} {:7} {:4} {:8.1} {:9.0} {:6} {:5} KiB {}",
            process.process,
            state::name(process.state),
            process.level,
            process.ceiling,
            process.cpus,
            percent(run_ticks),
            polls as f64 / seconds,
            process.calls_in_flight,
            process.pages * 4,
            text(&process.name)
        )?;
    }
    Ok(())
}

/// Counters that grow, by their names in the record; counters that the kernel does not have are
/// omitted.
const RATES: [(&str, &str); 15] = [
    ("traps_from_user", "traps"),
    ("system_calls", "system calls"),
    ("interrupts", "interrupts"),
    ("cpu_switches", "CPU switches"),
    ("calls_completed_at_once", "calls done at once"),
    ("calls_deferred", "calls that waited"),
    ("parks", "parks"),
    ("unparks", "unparks"),
    ("ring_overflows", "ring overflows"),
    ("preemptions", "preemptions"),
    ("interprocessor_interrupts", "IPIs"),
    ("user_interrupts_posted", "user interrupts posted"),
    ("user_interrupts_sent", "sent"),
    ("user_interrupts_suppressed", "suppressed"),
    ("user_interrupts_taken", "taken"),
];

fn describe_rates(
    out: &mut String,
    before: &Statistics,
    now: &Statistics,
    seconds: f64,
) -> core::fmt::Result {
    let counter = |statistics: &Statistics, name: &str| {
        let index = Statistics::NAMES.iter().position(|known| *known == name)?;
        let bytes = statistics.to_bytes();
        Some(u64::from_le_bytes(*bytes.as_chunks().0.get(index)?))
    };
    write!(out, "per second:")?;
    let mut column = 11;
    for (name, shown) in RATES {
        let (Some(first), Some(last)) = (counter(before, name), counter(now, name)) else {
            continue;
        };
        let part = alloc::format!(" {:.0} {shown};", last.wrapping_sub(first) as f64 / seconds);
        if column + part.len() > 100 {
            write!(out, "\n           ")?;
            column = 11;
        }
        column += part.len();
        out.push_str(&part);
    }
    out.pop();
    writeln!(out)
}

/// The levels of a bitmap as a list of ranges.
fn levels(out: &mut String, bitmap: u64) -> core::fmt::Result {
    if bitmap == 0 {
        return write!(out, "-");
    }
    let mut level = 0;
    let mut separator = "";
    while level < 64 {
        if bitmap >> level & 1 == 0 {
            level += 1;
            continue;
        }
        let length = (!(bitmap >> level)).trailing_zeros().min(64 - level);
        match length {
            1 => write!(out, "{separator}{level}")?,
            _ => write!(out, "{separator}{level}-{}", level + length - 1)?,
        }
        separator = ",";
        level += length;
    }
    Ok(())
}
