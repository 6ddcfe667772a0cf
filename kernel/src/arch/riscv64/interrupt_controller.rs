//! The platform-level interrupt controller (PLIC): which device wants which hart.
//!
//! A source that interrupts is *claimed* by the hart's handler and stays silent until it is
//! *completed*; the driver completes it after it has emptied the device, so a device can
//! never interrupt faster than its driver works.

use super::hart;
use crate::arch::MAX_HARTS;
use crate::drivers::device_tree;
use crate::mm::layout;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use spin::Mutex;

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

/// The controller's context for a hart's supervisor mode, by the tree.
fn find_context(hart: usize) -> Option<usize> {
    device_tree::facts().interrupt_context(hart::id_of(hart))
}

/// What [`find_context`] said for each hart that runs, for the handlers.
static CONTEXTS: [AtomicUsize; MAX_HARTS] = [const { AtomicUsize::new(usize::MAX) }; MAX_HARTS];

fn context(hart: usize) -> Option<usize> {
    Some(CONTEXTS[hart].load(Relaxed)).filter(|&context| context != usize::MAX)
}

/// Which sources go to which hart: a bit each. Written down because the firmware clears a
/// hart's part of the controller when it starts the hart, after sources may have been
/// directed at it.
static ROUTES: Mutex<[[u32; SOURCE_WORDS]; MAX_HARTS]> = Mutex::new([[0; SOURCE_WORDS]; MAX_HARTS]);

const SOURCE_WORDS: usize = (MAX_SOURCE + 1) / 32;

/// Opens the controller on this hart. Once per hart.
pub fn initialise_this_hart() {
    let Some(controller) = &device_tree::facts().interrupt_controller else { return };
    BASE.store(controller.start, Relaxed);
    let hart = hart::hart_index();
    let Some(context) = find_context(hart) else { return };
    CONTEXTS[hart].store(context, Relaxed);
    let routes = ROUTES.lock();
    for (word, &sources) in routes[hart].iter().enumerate().filter(|(_, sources)| **sources != 0) {
        write(ENABLE + context * ENABLE_STRIDE + 4 * word, sources);
    }
    write(THRESHOLD + context * CONTEXT_STRIDE, 0);
}

/// Directs source `source` at logical hart `hart`, which need not run yet.
pub fn enable(source: usize, hart: usize) {
    let Some(context) = find_context(hart) else { return };
    write(PRIORITY + 4 * source, 1);
    let mut routes = ROUTES.lock();
    let word = &mut routes[hart][source / 32];
    *word |= 1 << (source % 32);
    write(ENABLE + context * ENABLE_STRIDE + source / 32 * 4, *word);
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
