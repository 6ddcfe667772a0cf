//! The real-time clock, a Goldfish RTC, which is read once at boot.

use crate::machine::device_tree;
use crate::machine::layout;
use cops_algorithms::wall_clock;

/// The low half of the nanoseconds since 1970-01-01. Reading it makes the device keep the
/// corresponding high half.
const TIME_LOW: usize = 0;
const TIME_HIGH: usize = 4;
/// Distance from the first register to the end of the last one that is read.
const REGISTERS_BYTES: usize = TIME_HIGH + 4;

/// Nanoseconds since 1970-01-01 UTC, if the machine has a clock that runs. Only the boot hart may
/// call it, before other harts run.
pub fn nanoseconds() -> Option<u64> {
    let registers =
        device_tree::facts().rtc.as_ref().filter(|range| range.len() >= REGISTERS_BYTES)?;
    let read = |offset: usize| {
        // SAFETY: the register is aligned and inside the range that the device tree gives and
        // `kernel_space` maps; reading it changes no memory.
        unsafe { layout::direct(registers.start + offset).cast::<u32>().read_volatile() }
    };
    let low = read(TIME_LOW);
    wall_clock::joined(low, read(TIME_HIGH))
}
