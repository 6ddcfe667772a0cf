//! The page in which the kernel publishes the state of the system. Every process can read it.

use core::sync::atomic::Ordering::Relaxed;

use cops_abi::note;
use cops_abi::page::{NO_LEVEL, SystemPage};
use spin::Once;

use crate::arch;
use crate::mm::{Frame, SharedFrame};

static SYSTEM_PAGE: Once<SharedFrame<SystemPage>> = Once::new();

/// Makes the page. Called once, before there are coroutines.
///
/// # Panics
/// Without memory for it: the system cannot start.
pub fn make() {
    let page = SYSTEM_PAGE.call_once(|| match Frame::allocate_zeroed() {
        Ok(frame) => SharedFrame::new(frame),
        Err(_) => panic!("no memory for the system page"),
    });
    page.version.store(note::ABI_VERSION, Relaxed);
    page.harts.store(arch::hart_count() as u32, Relaxed);
    page.ticks_per_second.store(arch::ticks_per_second(), Relaxed);
    for hart in &page.hart {
        hart.current_priority.store(NO_LEVEL, Relaxed);
    }
}

/// The page.
///
/// # Panics
/// Before [`make`].
pub fn system_page() -> &'static SharedFrame<SystemPage> {
    SYSTEM_PAGE.get().expect("the system page is made before the first process")
}
