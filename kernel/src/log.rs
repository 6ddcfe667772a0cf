//! The kernel's messages: the `log` crate's macros, printed on the console's channel `k`.
//!
//! Each line has the time since the kernel started, the hart, and the level unless it is "info".
//! Interrupt handlers must not log, because the console has a lock.

use crate::arch;
use crate::drivers::console::{self, Channel};
use crate::machine::device_tree;
use core::sync::atomic::{AtomicU64, Ordering};
use log::{Level, LevelFilter, Log, Metadata, Record};

pub use ::log::{error, info, warn};

struct ConsoleLog;

/// The time when the kernel started, in ticks.
static START_TICKS: AtomicU64 = AtomicU64::new(0);

/// Starts logging of the level in boot argument `loglevel` and more severe ones (default: info).
pub fn initialise() {
    START_TICKS.store(arch::now_ticks(), Ordering::Relaxed);
    let level = device_tree::boot_argument("loglevel").and_then(|name| name.parse().ok());
    log::set_max_level(level.unwrap_or(LevelFilter::Info));
    // Fails only when called twice, and then the logger is already set.
    let _ = log::set_logger(&ConsoleLog);
}

impl Log for ConsoleLog {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let ticks = arch::now_ticks() - START_TICKS.load(Ordering::Relaxed);
        let microseconds = u128::from(ticks) * 1_000_000 / u128::from(arch::ticks_per_second());
        let level = match record.level() {
            Level::Error => "error: ",
            Level::Warn => "warning: ",
            Level::Info => "",
            Level::Debug => "debug: ",
            Level::Trace => "trace: ",
        };
        let (seconds, fraction) = (microseconds / 1_000_000, microseconds % 1_000_000);
        let hart = arch::hart_index();
        console::write_formatted(
            Channel::Kernel,
            format_args!("[{seconds:4}.{fraction:06} {hart}] {level}{}\n", record.args()),
        );
    }

    fn flush(&self) {}
}
