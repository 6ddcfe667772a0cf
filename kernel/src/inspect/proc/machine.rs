//! Files about the machine.

use core::fmt::{Result, Write};

use cops_abi::linux::system_name as name;
use cops_fallible::Text;

use super::super::{hart, statistics as counters};
use super::{CLOCK_TICKS, KB};
use crate::arch;
use crate::fs::{self, Ask, Change, NodeRef, path_of};
use crate::mm::frames::{self, FRAME_BYTES};
use crate::process::children;
use crate::sched::timer;

pub const HOST_NAME: &str = name::NODE;
pub const RELEASE: &str = name::RELEASE;
pub const SYSTEM: &str = name::SYSTEM;
pub const BUILD: &str = name::VERSION;
/// One more than the largest number of a process: where the numbers of threads begin.
pub const LAST_PROCESS: &str = "536870912";

/// The type of file systems in memory, and of this one.
const TEMPORARY: u64 = 0x0102_1994;

/// A text of one line.
pub fn line(out: &mut Text, text: &str) -> Result {
    writeln!(out, "{text}")
}

/// A time in units of [`CLOCK_TICKS`].
pub fn clock_ticks(ticks: u64) -> u64 {
    timer::nanoseconds_from_ticks(ticks) / (1_000_000_000 / CLOCK_TICKS)
}

/// Seconds with two decimals.
fn seconds(out: &mut Text, ticks: u64) -> Result {
    let hundredths = clock_ticks(ticks);
    write!(out, "{}.{:02}", hundredths / CLOCK_TICKS, hundredths % CLOCK_TICKS)
}

/// `cpuinfo`
pub fn harts(out: &mut Text) -> Result {
    for number in 0..arch::hart_count() {
        writeln!(out, "processor\t: {number}\nhart\t\t: {number}\n{}", arch::LINUX_DESCRIPTION)?;
    }
    Ok(())
}

/// `filesystems`
pub fn file_systems(out: &mut Text) -> Result {
    out.write_str("nodev\ttmpfs\nnodev\tproc\nnodev\tserved\n")
}

/// `loadavg`: no averages, the harts that run a process, the processes, and the last number.
pub fn load(out: &mut Text) -> Result {
    let (count, last) = (children::count(), children::last());
    writeln!(out, "0.00 0.00 0.00 {}/{count} {last}", running())
}

/// Number of harts that run a process.
fn running() -> usize {
    (0..arch::hart_count() as u64).filter_map(hart).filter(|hart| hart.process != 0).count()
}

/// `meminfo`
pub fn memory(out: &mut Text) -> Result {
    let (frames, kernel) = (frames::statistics(), counters());
    let kb = |frames: usize| frames as u64 * FRAME_BYTES as u64 / KB;
    let (total, free) = (kb(frames.total), kb(frames.free));
    let slab = kernel.heap_reserved_bytes / KB;
    let lines = [
        ("MemTotal:", total),
        ("MemFree:", free),
        ("MemAvailable:", free),
        ("Buffers:", 0),
        ("Cached:", 0),
        ("SwapCached:", 0),
        ("Active:", 0),
        ("Inactive:", 0),
        ("SwapTotal:", 0),
        ("SwapFree:", 0),
        ("Dirty:", 0),
        ("Writeback:", 0),
        ("Mapped:", 0),
        ("Shmem:", 0),
        ("Slab:", slab),
        ("SReclaimable:", 0),
        ("SUnreclaim:", slab),
        ("CommitLimit:", total),
    ];
    lines.iter().try_for_each(|(name, value)| writeln!(out, "{name:<15} {value:8} kB"))
}

/// `mounts`
pub fn mounts(out: &mut Text) -> Result {
    let mut mount = |path: &str, root: &NodeRef| {
        let ask = &mut Ask::default();
        let kind = match root.served() {
            Some(_) => "served",
            None => match root.usage(ask) {
                Some(Ok(usage)) if usage.kind == TEMPORARY => "tmpfs",
                _ => "proc",
            },
        };
        // Changing nothing fails where nothing can be changed; a server is not asked.
        let is_read_only = matches!(root.change(Change::default(), ask), Some(Err(_)));
        let mode = if is_read_only { "ro" } else { "rw" };
        writeln!(out, "{kind} {path} {kind} {mode} 0 0")
    };
    mount("/", fs::root_directory())?;
    for index in 0.. {
        let Some((covered, root)) = fs::mounted(index) else { break };
        // None is in a file system of a server.
        if let Some(Ok(path)) = path_of(covered, &mut Ask::default()) {
            mount(&path, &root)?;
        }
    }
    Ok(())
}

/// `stat`: time of processes, of the kernel, and asleep, in all and for each hart; then counters.
pub fn statistics(out: &mut Text) -> Result {
    let harts = (0..arch::hart_count() as u64).filter_map(hart);
    let times = harts.map(|hart| {
        let asleep = hart.asleep_ticks.min(hart.now_ticks);
        let kernel = hart.now_ticks.saturating_sub(asleep.saturating_add(hart.process_ticks));
        [hart.process_ticks, kernel, asleep].map(clock_ticks)
    });
    let mut sum = [0; 3];
    for hart in times.clone() {
        (0..3).for_each(|index| sum[index] += hart[index]);
    }
    let mut write = |name: &str, number: Option<usize>, [user, kernel, idle]: [u64; 3]| {
        out.write_str(name)?;
        match number {
            Some(number) => write!(out, "{number}")?,
            None => out.write_str(" ")?,
        }
        writeln!(out, " {user} 0 {kernel} {idle} 0 0 0 0 0 0")
    };
    write("cpu", None, sum)?;
    for (number, hart) in times.enumerate() {
        write("cpu", Some(number), hart)?;
    }
    let counters = counters();
    write!(
        out,
        "intr {}\nctxt {}\nbtime {}\nprocesses {}\nprocs_running {}\nprocs_blocked 0\n",
        counters.interrupts,
        counters.cpu_switches,
        timer::epoch_nanoseconds() / 1_000_000_000,
        children::last(),
        running(),
    )
}

/// `uptime`: since boot, and the time asleep of all harts.
pub fn uptime(out: &mut Text) -> Result {
    let asleep = (0..arch::hart_count() as u64).filter_map(hart).map(|hart| hart.asleep_ticks);
    seconds(out, arch::now_ticks())?;
    out.write_str(" ")?;
    seconds(out, asleep.sum())?;
    out.write_str("\n")
}

/// `version`
pub fn version(out: &mut Text) -> Result {
    writeln!(out, "{SYSTEM} version {RELEASE} (cops) {BUILD}")
}
