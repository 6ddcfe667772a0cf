//! `./cops top`: shows the activity of the harts and processes of a running `./cops serve`, on the
//! host.

use std::fmt::Write as _;
use std::io::{ErrorKind, Write as _};
use std::time::{Duration, Instant};

use crate::cli::Top;
use crate::control;
use crate::error::{Because, Failure, Outcome};
use crate::interrupt;
use crate::qemu::inspection::{Numbers, Picture, get, state};
use crate::workspace::Workspace;

/// Cursor home, clear to the end of the screen.
const HOME_AND_CLEAR: &str = "\x1b[H\x1b[J";
/// Interval at which Ctrl-C is checked between two snapshots.
const LOOK: Duration = Duration::from_millis(20);
/// Number of levels; this number itself means "no level".
const LEVELS: u64 = 64;

pub fn run(workspace: &Workspace, options: &Top) -> Outcome<u8> {
    let server = choose(&control::servers(workspace), options.pid)?;
    let look = || Picture::parse(&control::ask(workspace, server)?);
    let mut before = look()?;
    if options.json {
        println!("{:#}", before.to_json());
        return Ok(0);
    }
    interrupt::defer();
    let interval = Duration::from_secs_f64(options.interval);
    let is_screen = std::io::IsTerminal::is_terminal(&std::io::stdout()) && !options.once;
    loop {
        let next = Instant::now() + interval;
        while Instant::now() < next {
            if interrupt::requested() {
                return Ok(0);
            }
            std::thread::sleep(LOOK.min(next.saturating_duration_since(Instant::now())));
        }
        let now = match look() {
            Err(_) if interrupt::requested() => return Ok(0),
            looked => looked?,
        };
        let text = describe(&before, &now);
        let mut out = std::io::stdout().lock();
        let written =
            if is_screen { write!(out, "{HOME_AND_CLEAR}{text}") } else { writeln!(out, "{text}") };
        let written = written.and_then(|()| out.flush());
        drop(out);
        match written {
            Ok(()) if !options.once => {}
            // The output is closed (`| head`), or full.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                return Err(error).because(|| "cannot write to standard output".into());
            }
            _ => return Ok(0),
        }
        before = now;
    }
}

/// The server to observe.
fn choose(running: &[u32], wanted: Option<u32>) -> Outcome<u32> {
    let list = running.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    match (running, wanted) {
        ([], _) => Err(Failure::new("no ./cops serve runs from this checkout")
            .advise("start one first, as in ./cops serve /bin/matrix-server --port 9000:9000")),
        (_, Some(pid)) if running.contains(&pid) => Ok(pid),
        (_, Some(pid)) => Err(Failure::new(format!("no ./cops serve has process id {pid}"))
            .advise(format!("those that run have: {list}"))),
        ([one], None) => Ok(*one),
        (_, None) => Err(Failure::new(format!(
            "{} ./cops serve run, with process ids {list}",
            running.len()
        ))
        .advise("choose one with --pid")),
    }
}

fn describe(before: &Picture, now: &Picture) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = describe_into(&mut out, before, now);
    out
}

fn describe_into(out: &mut String, before: &Picture, now: &Picture) -> std::fmt::Result {
    let ticks = now.now_ticks.saturating_sub(before.now_ticks).max(1);
    let seconds = ticks as f64 / now.ticks_per_second as f64;
    let percent = |part: u64| (part as f64 * 100.0 / ticks as f64).min(100.0);
    let counter = |name| get(&now.statistics, name);
    let rate = |name| counter(name).wrapping_sub(get(&before.statistics, name)) as f64 / seconds;
    let mebibytes = |frames: u64| frames as f64 / 256.0;
    writeln!(
        out,
        "up {:.1} s, {} harts, {} processes, {} connections, {} kernel coroutines, {} calls in flight, {:.1} of {:.1} MiB in use",
        now.now_ticks as f64 / now.ticks_per_second as f64,
        now.harts.len(),
        counter("processes"),
        counter("connections"),
        counter("kernel_coroutines"),
        counter("calls_in_flight"),
        mebibytes(counter("frames_total").saturating_sub(counter("frames_free"))),
        mebibytes(counter("frames_total")),
    )?;
    writeln!(
        out,
        "per second: {:.0} frames received, {:.0} sent; {:.0} system calls; {:.0} calls done at once, {:.0} that waited; {:.0} interrupts; {:.0} CPU switches",
        rate("network_frames_received"),
        rate("network_frames_sent"),
        rate("system_calls"),
        rate("calls_completed_at_once"),
        rate("calls_deferred"),
        rate("interrupts"),
        rate("cpu_switches"),
    )?;
    writeln!(out, "\nHART  BUSY %  PROCESSES %  POLLS/s  KERNEL PRIORITY  RUNS")?;
    for (hart, earlier) in now.harts.iter().zip(&before.harts) {
        let since = |name| get(hart, name).wrapping_sub(get(earlier, name));
        let runs = match get(hart, "process") {
            0 => "-".to_owned(),
            process => format!("{process}/{}", get(hart, "cpu")),
        };
        writeln!(
            out,
            "{:4}  {:6.1}  {:11.1}  {:7.0}  {:>15}  {runs}",
            get(hart, "hart"),
            100.0 - percent(since("asleep_ticks")),
            percent(since("process_ticks")),
            since("polls") as f64 / seconds,
            level(get(hart, "priority")),
        )?;
    }
    writeln!(
        out,
        "\n  PID STATE     LEVEL CEILING CPUS   TIME %   POLLS/s  CALLS     MEMORY NAME"
    )?;
    let nothing = Numbers::new();
    let mut list: Vec<_> = now
        .processes
        .iter()
        .map(|(number, process)| {
            let earlier = before.processes.get(number).map_or(&nothing, |earlier| &earlier.numbers);
            let since = |name| get(&process.numbers, name).wrapping_sub(get(earlier, name));
            (since("run_ticks"), since("polls"), process)
        })
        .collect();
    list.sort_by_key(|&(run_ticks, ..)| std::cmp::Reverse(run_ticks));
    for (run_ticks, polls, process) in list {
        let number = |name| get(&process.numbers, name);
        writeln!(
            out,
            "{:5} {:9} {:>5} {:>7} {:4} {:8.1} {:9.0} {:6} {:6} KiB {}",
            number("process"),
            state(number("state")),
            level(number("level")),
            level(number("ceiling")),
            number("cpus"),
            // Summed over several harts, so it may exceed 100.
            run_ticks as f64 * 100.0 / ticks as f64,
            polls as f64 / seconds,
            number("calls"),
            number("pages") * 4,
            process.name
        )?;
    }
    Ok(())
}

fn level(level: u64) -> String {
    if level < LEVELS { level.to_string() } else { "-".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_is_chosen_or_the_error_says_how() {
        assert_eq!(choose(&[7], None).unwrap(), 7);
        assert_eq!(choose(&[7, 8], Some(8)).unwrap(), 8);
        assert!(choose(&[], None).unwrap_err().to_string().contains("./cops serve /bin/"));
        assert!(choose(&[7, 8], None).unwrap_err().to_string().contains("--pid"));
        assert!(choose(&[7, 8], Some(9)).unwrap_err().to_string().contains("7, 8"));
    }

    #[test]
    fn rates_are_those_between_two_pictures() {
        let picture = |ticks: u64, run: u64, asleep: u64| {
            let text = format!(
                "statistics: system_calls={ticks} frames_total=512 frames_free=256\nhart: hart=0 priority=64 asleep_ticks={asleep}\n\
                 process: process=1 state=2 cpus=1 level=32 ceiling=0 run_ticks={run} pages=3 name=bin/a\n\
                 end: now_ticks={ticks} ticks_per_second=100\n"
            );
            Picture::parse(&text).unwrap()
        };
        let text = describe(&picture(100, 10, 20), &picture(300, 110, 120));
        for part in [
            "up 3.0 s, 1 harts",
            "1.0 of 2.0 MiB",
            "100 system calls",
            "   0    50.0",
            "    50.0",
            "12 KiB bin/a",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
    }
}
