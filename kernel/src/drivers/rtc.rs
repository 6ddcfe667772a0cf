//! The real-time clock, a Goldfish RTC: which moment it is, read once at boot.
//!
//! May touch: the device's registers.

use super::device_tree;
use crate::mm::layout;
use cops_algorithms::wall_clock;

/// Nanoseconds since 1970-01-01, the low half. Reading it makes the device keep the high half that belongs to it.
const TIME_LOW: usize = 0;
const TIME_HIGH: usize = 4;
/// From the first register to the end of the last that is read.
const REGISTERS_BYTES: usize = TIME_HIGH + 4;

/// Nanoseconds since 1970-01-01 UTC, if there is a clock that tells them. For the boot hart, before others look.
pub fn nanoseconds() -> Option<u64> {
    let registers = device_tree::facts().rtc.as_ref().filter(|range| range.len() >= REGISTERS_BYTES)?;
    let read = |offset: usize| {
        // SAFETY: a register of the device, aligned, inside the range that the tree gives and `kernel_space` maps;
        // reading it changes no memory.
        unsafe { layout::direct(registers.start + offset).cast::<u32>().read_volatile() }
    };
    let low = read(TIME_LOW);
    wall_clock::joined(low, read(TIME_HIGH))
}
