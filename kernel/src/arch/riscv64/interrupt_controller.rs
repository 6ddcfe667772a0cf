//! The platform-level interrupt controller (PLIC): which device wants which hart.
//!
//! A source that interrupts is *claimed* by the hart's handler and stays silent until it is
//! *completed*; the driver completes it after it has emptied the device, so a device can
//! never interrupt faster than its driver works.

use super::hart;
use crate::drivers::device_tree;
use crate::mm::layout;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Sources are numbered from 1 to this, by specification.
pub const MAX_SOURCE: usize = 1023;

const PRIORITY: usize = 0;
const ENABLE: usize = 0x2000;
const ENABLE_STRIDE: usize = 0x80;
const THRESHOLD: usize = 0x20_0000;
const CLAIM: usize = 0x20_0004;
const CONTEXT_STRIDE: usize = 0x1000;

/// Address of the controller in the direct map, 0 if the machine has none.
static BASE: AtomicUsize = AtomicUsize::new(0);

fn register(offset: usize) -> *mut u32 {
    layout::direct(BASE.load(Relaxed)).wrapping_add(offset).cast()
}

fn write(offset: usize, value: u32) {
    // SAFETY: a register of the controller, whose region the tree describes and the kernel maps.
    unsafe { register(offset).write_volatile(value) };
}

fn read(offset: usize) -> u32 {
    // SAFETY: as in `write`.
    unsafe { register(offset).read_volatile() }
}

/// The controller's context for a hart's supervisor mode.
fn context(hart: usize) -> Option<usize> {
    device_tree::facts().interrupt_context(hart::id_of(hart))
}

/// Opens the controller on this hart. Once per hart.
pub fn initialise_this_hart() {
    let Some(controller) = &device_tree::facts().interrupt_controller else { return };
    BASE.store(controller.start, Relaxed);
    if let Some(context) = context(hart::hart_index()) {
        write(THRESHOLD + context * CONTEXT_STRIDE, 0);
    }
}

/// Directs source `source` at logical hart `hart`. Not to be called concurrently.
pub fn enable(source: usize, hart: usize) {
    let Some(context) = context(hart) else { return };
    write(PRIORITY + 4 * source, 1);
    let word = ENABLE + context * ENABLE_STRIDE + source / 32 * 4;
    write(word, read(word) | 1 << (source % 32));
}

/// Takes the next source that wants this hart; `None` when there is no more. For the handler.
pub fn claim() -> Option<usize> {
    let context = context(hart::hart_index())?;
    match read(CLAIM + context * CONTEXT_STRIDE) as usize {
        0 => None,
        source => Some(source),
    }
}

/// Lets `source`, claimed by `hart`, interrupt again.
pub fn complete(source: usize, hart: usize) {
    if let Some(context) = context(hart) {
        write(CLAIM + context * CONTEXT_STRIDE, source as u32);
    }
}
