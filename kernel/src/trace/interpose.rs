//! Events for wakes, spawns and priority changes of the kernel's coroutines. While tracing is on,
//! the kernel calls the scheduler through a table of functions that emit events.
//!
//! So the scheduler contains no trace points, and a kernel that does not trace calls it directly.
//! If an interrupt handler wakes a coroutine, the event names the interrupted coroutine as the
//! waker; the interrupt's own event precedes it.

use cops_executor::image::{self, CoreTable, Observer};
use spin::Once;

use super::current_number;
use super::{Event, emit};
use crate::vdso;

static OBSERVED: Once<CoreTable> = Once::new();

static OBSERVER: Observer = Observer {
    wake: |id| emit(|| Event::Wake { coroutine: id.raw(), by: current_number() }),
    spawn: |id, priority| {
        let level = priority.level();
        emit(|| Event::Spawn { coroutine: id.raw(), by: current_number(), level });
    },
    set_priority: |id, priority| {
        emit(|| Event::SetPriority { coroutine: id.raw(), level: priority.level() });
    },
};

/// Makes the kernel's calls go through the observer, or directly.
pub(super) fn switch(observed: bool) {
    let plain = vdso::core_table();
    image::install(if observed {
        OBSERVED.call_once(|| CoreTable::observed(plain, &OBSERVER))
    } else {
        plain
    });
}
