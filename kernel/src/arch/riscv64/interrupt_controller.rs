//! The platform-level interrupt controller (PLIC), which directs the interrupts of devices to
//! harts.
//!
//! The hart's handler *claims* a source that interrupts; the source cannot interrupt again until it
//! is *completed*. The driver completes it after it has emptied the device, so a device cannot
//! interrupt faster than its driver works.

use super::hart;
use crate::arch::MAX_HARTS;
use crate::machine::device_tree;
use crate::machine::layout;
use cops_lock::Mutex;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Highest number of a source, according to the PLIC's specification.
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
    // SAFETY: `initialise_this_hart` has set `BASE` to the controller that the device tree
    // describes and the kernel maps; `offset` is that of a 32-bit register of it.
    unsafe { register(offset).write_volatile(value) };
}

fn read(offset: usize) -> u32 {
    // SAFETY: `initialise_this_hart` has set `BASE` to the controller that the device tree
    // describes and the kernel maps; `offset` is that of a 32-bit register of it.
    unsafe { register(offset).read_volatile() }
}

/// The controller's context for a hart's supervisor mode, according to the device tree.
fn find_context(hart: usize) -> Option<usize> {
    device_tree::facts().interrupt_context(hart::id_of(hart))
}

/// The result of [`find_context`] for each hart that runs; the handlers read it.
static CONTEXTS: [AtomicUsize; MAX_HARTS] = [const { AtomicUsize::new(usize::MAX) }; MAX_HARTS];

fn context(hart: usize) -> Option<usize> {
    Some(CONTEXTS[hart].load(Relaxed)).filter(|&context| context != usize::MAX)
}

/// The sources directed at each hart, one bit each. Recorded because the firmware clears a hart's
/// part of the controller when it starts the hart, possibly after sources have been directed at it.
static ROUTES: Mutex<[[u32; SOURCE_WORDS]; MAX_HARTS]> = Mutex::new([[0; SOURCE_WORDS]; MAX_HARTS]);

const SOURCE_WORDS: usize = (MAX_SOURCE + 1) / 32;

/// Enables the controller on this hart. Called once per hart.
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

/// Directs `source` at logical hart `hart`, which need not run yet.
pub fn enable(source: usize, hart: usize) {
    let Some(context) = find_context(hart) else { return };
    let mut routes = ROUTES.lock();
    let word = &mut routes[hart][source / 32];
    *word |= 1 << (source % 32);
    write(ENABLE + context * ENABLE_STRIDE + source / 32 * 4, *word);
    // Last: QEMU's controller looks for pending sources when a priority is written, and not when
    // one is enabled. The device may have interrupted already, and need not do so again.
    write(PRIORITY + 4 * source, 1);
}

/// Claims the next source that interrupts this hart; `None` if there are no more. For the interrupt
/// handler.
pub fn claim() -> Option<usize> {
    let context = context(hart::hart_index())?;
    match read(CLAIM + context * CONTEXT_STRIDE) as usize {
        0 => None,
        source => Some(source),
    }
}

/// Lets `source`, which `hart` has claimed, interrupt again.
pub fn complete(source: usize, hart: usize) {
    if let Some(context) = context(hart) {
        write(CLAIM + context * CONTEXT_STRIDE, source as u32);
    }
}
