//! Files about a process.

use core::fmt::{Result, Write};

use cops_abi::inspect::{ProcessRecord, state};
use cops_abi::page::NO_LEVEL;
use cops_abi::{Priority, layout};
use cops_algorithms::signals::{Action, SIGNALS, Set, bit};
use cops_fallible::Text;

use super::super::process_at_or_after;
use super::KB;
use super::machine::clock_ticks;
use crate::arch;
use crate::process::{Process, ProcessId, children};

/// Length of a name of a thread, as on Linux.
const NAME_BYTES: usize = 15;
/// The level of nice value 0, and the largest and smallest values.
const NICE_0: i64 = Priority::DEFAULT.level() as i64;
const NICE_MIN: i64 = -20;
const NICE_MAX: i64 = 19;
/// The device of the console, as `stat` shows it.
const CONSOLE: u32 = 5 << 8 | 1;

/// The letter and the word of a state.
fn state_of(record: &ProcessRecord) -> (char, &'static str) {
    match record.state {
        state::RUNNING | state::SUSPENDED | state::READY => ('R', "running"),
        state::STOPPED => ('T', "stopped"),
        state::ENDED => ('Z', "zombie"),
        _ => ('S', "sleeping"),
    }
}

/// The name of the first thread, or that of the program; letters that are not printable are `?`.
fn write_name(out: &mut Text, process: Option<&Process>) -> Result {
    let Some(process) = process else { return Ok(()) };
    let cpus = process.cpus.lock();
    let own = cpus.get(0).and_then(|(cpu, _)| cpu.as_thread().map(|one| *one.name.lock()));
    drop(cpus);
    let own = own.unwrap_or_default();
    let length = own.iter().position(|&byte| byte == 0).unwrap_or(own.len());
    let command = process.program().command;
    let name = match core::str::from_utf8(&own[..length]) {
        Ok(name) if !name.is_empty() => name,
        _ => &*command,
    };
    let mut rest = NAME_BYTES;
    for letter in name.chars() {
        let Some(left) = rest.checked_sub(letter.len_utf8()) else { break };
        rest = left;
        out.write_char(if letter.is_control() { '?' } else { letter })?;
    }
    Ok(())
}

/// What is known of a process, also after its end.
struct Known {
    record: ProcessRecord,
    group: ProcessId,
    session: ProcessId,
}

fn known(id: ProcessId) -> Option<Known> {
    let record = process_at_or_after(id).filter(|record| record.process == id)?;
    let kinship = children::kinship(id).ok()?;
    Some(Known { record, group: kinship.group, session: kinship.session })
}

/// `comm`
pub fn name(out: &mut Text, id: ProcessId) -> Result {
    write_name(out, children::find(id).as_deref())?;
    out.write_str("\n")
}

/// `stat`
pub fn statistics(out: &mut Text, id: ProcessId) -> Result {
    let Some(Known { record, group, session }) = known(id) else { return Ok(()) };
    let process = children::find(id);
    let process = process.as_deref();
    write!(out, "{id} (")?;
    write_name(out, process)?;
    let letter = state_of(&record).0;
    // No page faults.
    write!(
        out,
        ") {letter} {} {group} {session} {CONSOLE} -1 0 0 0 0 0 {} 0 {} 0",
        record.parent,
        clock_ticks(record.run_ticks),
        clock_ticks(process.map_or(0, |process| process.account.children_ticks())),
    )?;
    let level = if record.level == NO_LEVEL { NICE_0 } else { i64::from(record.level) };
    let nice = (level - NICE_0).clamp(NICE_MIN, NICE_MAX);
    let begin = process.map_or(0, |process| clock_ticks(process.begin_ticks));
    let bytes = process.map_or(0, |process| process.space.reserved_page_count()) as u64
        * layout::PAGE_BYTES as u64;
    write!(
        out,
        " {} {nice} {} 0 {begin} {bytes} {} {}",
        20 + nice,
        record.cpus,
        record.pages,
        u64::MAX,
    )?;
    // No addresses of code and stack, signals as in `status` (they are obsolete here), no channel,
    // no swap; the signal at the end, the hart, no real-time priority, no policy.
    out.write_str(" 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n")
}

/// `statm`, in pages: size, present, and what is data, which is all.
pub fn memory(out: &mut Text, id: ProcessId) -> Result {
    let Some(process) = children::find(id) else { return out.write_str("0 0 0 0 0 0 0\n") };
    let (size, present) = (process.space.reserved_page_count(), process.space.page_count());
    writeln!(out, "{size} {present} 0 0 0 {size} 0")
}

/// `status`
pub fn status(out: &mut Text, id: ProcessId) -> Result {
    let Some(Known { record, .. }) = known(id) else { return Ok(()) };
    let process = children::find(id);
    let process = process.as_deref();
    let (letter, word) = state_of(&record);
    out.write_str("Name:\t")?;
    write_name(out, process)?;
    let mask = process.map_or(0, |process| process.files.lock().mask);
    write!(
        out,
        "\nUmask:\t{mask:04o}\nState:\t{letter} ({word})\nTgid:\t{id}\nNgid:\t0\nPid:\t{id}\nPPid:\t{}\n",
        record.parent
    )?;
    out.write_str("TracerPid:\t0\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nFDSize:\t")?;
    let files = process.map_or(0, |process| process.files.lock().count());
    writeln!(out, "{files}\nGroups:\t0")?;
    if let Some(process) = process {
        let kb = |pages: usize| (pages * layout::PAGE_BYTES) as u64 / KB;
        let (size, present) =
            (kb(process.space.reserved_page_count()), kb(process.space.page_count()));
        writeln!(
            out,
            "VmSize:\t{size:8} kB\nVmRSS:\t{present:8} kB\nVmData:\t{size:8} kB\nVmSwap:\t       0 kB"
        )?;
    }
    writeln!(out, "Threads:\t{}", record.cpus)?;
    let signals = process.map(signals_of).unwrap_or_default();
    for (name, set) in ["SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt"].iter().zip(signals) {
        writeln!(out, "{name}:\t{set:016x}")?;
    }
    let harts = u64::MAX >> (64 - arch::hart_count());
    writeln!(out, "Cpus_allowed:\t{harts:x}")
}

/// Signals that wait for the first thread, those that wait for the process, those that the first
/// thread blocks, and those that are ignored and handled.
fn signals_of(process: &Process) -> [Set; 5] {
    let Some(linux) = process.personality.as_linux() else { return [0; 5] };
    let cpus = process.cpus.lock();
    let first = cpus.get(0).map(|(cpu, _)| cpu.clone());
    drop(cpus);
    let (waiting, blocked) =
        first.map_or((0, 0), |cpu| (cpu.signals.pending(), cpu.signals.mask()));
    let (mut shared, mut ignored, mut handled) = (0, 0, 0);
    if let Some(signals) = &*linux.signals.lock() {
        shared = signals.pending.set();
        for signal in 1..=SIGNALS {
            match signals.dispositions.get(signal).handler {
                Action::DEFAULT => {}
                Action::IGNORE => ignored |= bit(signal),
                _ => handled |= bit(signal),
            }
        }
    }
    [waiting, shared, blocked, ignored, handled]
}
