//! The kernel's state as text on the console: its counters, and what `./cops top` shows.
//!
//! A line is a word for its subject, followed by `NAME=VALUE` words. The name of a process is the
//! last of them and extends to the end of the line. A picture consists of the lines `statistics:`,
//! `hart:` and `process:`, then `end:`.

use core::fmt::Write;
use core::future::poll_fn;
use core::sync::atomic::{AtomicBool, Ordering::*};
use core::task::Poll;

use cops_abi::inspect::{HartRecord, ProcessRecord, text};
use cops_abi::statistics::Statistics;
use cops_executor::yield_now;
use cops_fallible::Text;

use crate::arch;
use crate::drivers::console::{self, Channel};
use crate::sched::Service;

/// A picture has been requested.
static WANTED: AtomicBool = AtomicBool::new(false);
/// Prints the pictures.
static REPORTER: Service = Service::new();

/// Requests a picture. Requests that arrive before it is begun share it.
pub fn request_picture() {
    WANTED.store(true, Release);
    REPORTER.wake();
}

/// Prints a picture whenever one is requested, one line per portion.
pub async fn service() {
    REPORTER.begin();
    loop {
        poll_fn(|_| if WANTED.swap(false, AcqRel) { Poll::Ready(()) } else { Poll::Pending }).await;
        statistics(Channel::Inspection);
        let mut number = 0;
        while let Some(hart) = super::hart(number) {
            line(|out| describe_hart(out, &hart));
            number += 1;
            yield_now().await;
        }
        let mut next = 0;
        while let Some(process) = super::process_at_or_after(next) {
            line(|out| describe_process(out, &process));
            next = process.process + 1;
            yield_now().await;
        }
        line(|out| {
            write!(
                out,
                "end: now_ticks={} ticks_per_second={}",
                arch::now_ticks(),
                arch::ticks_per_second()
            )
        });
    }
}

/// Prints the counters as one line.
pub fn statistics(channel: Channel) {
    print(channel, |out| {
        write!(out, "statistics:")?;
        let bytes = super::statistics().to_bytes();
        for (name, word) in Statistics::NAMES.iter().zip(bytes.as_chunks().0) {
            write!(out, " {name}={}", u64::from_le_bytes(*word))?;
        }
        Ok(())
    });
}

fn line(write: impl FnOnce(&mut Text) -> core::fmt::Result) {
    print(Channel::Inspection, write);
}

/// Without memory for the text, the line is missing or truncated.
fn print(channel: Channel, write: impl FnOnce(&mut Text) -> core::fmt::Result) {
    let mut line = Text::new();
    let _ = write(&mut line);
    let _ = line.write_str("\n");
    if channel == Channel::Inspection {
        console::write_waiting(channel, line.as_bytes());
    } else {
        console::write(channel, line.as_bytes());
    }
}

fn describe_hart(out: &mut Text, hart: &HartRecord) -> core::fmt::Result {
    write!(
        out,
        "hart: hart={} priority={} process={} cpu={} ready={} polls={} steals={} asleep_ticks={} process_ticks={} run_queue={}",
        hart.hart,
        hart.current_priority,
        hart.process,
        hart.cpu,
        hart.ready | hart.posted,
        hart.polls,
        hart.steals,
        hart.asleep_ticks,
        hart.process_ticks,
        hart.run_queue
    )
}

fn describe_process(out: &mut Text, process: &ProcessRecord) -> core::fmt::Result {
    write!(
        out,
        "process: process={} parent={} state={} cpus={} level={} ceiling={} pages={} run_ticks={} polls={} calls={} name=",
        process.process,
        process.parent,
        process.state,
        process.cpus,
        process.level,
        process.ceiling,
        process.pages,
        process.run_ticks,
        process.polls,
        process.calls_in_flight
    )?;
    for letter in text(&process.name).chars() {
        out.write_char(if letter.is_control() { '?' } else { letter })?;
    }
    Ok(())
}
