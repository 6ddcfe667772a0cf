//! Wakes, spawns and changes of priority of the kernel's coroutines as events: while tracing is on, the kernel calls
//! the scheduler through a table that tells us.
//!
//! So the scheduler has no trace points, and a kernel that does not trace calls it directly. A wake by an interrupt
//! handler names the coroutine that was interrupted as the one that wakes: the interrupt's own event stands before it.
//! May touch: which table the kernel's executor is called through.

use cops_executor::image::{self, CoreTable, Observer};
use spin::Once;

use super::{Event, emit};
use crate::task;

static OBSERVED: Once<CoreTable> = Once::new();

static OBSERVER: Observer = Observer {
    wake: |id| emit(|| Event::Wake { coroutine: id.raw(), by: task::current_number() }),
    spawn: |id, priority| {
        let level = priority.level();
        emit(|| Event::Spawn { coroutine: id.raw(), by: task::current_number(), level });
    },
    set_priority: |id, priority| {
        emit(|| Event::SetPriority { coroutine: id.raw(), level: priority.level() });
    },
};

/// Has the kernel's calls go through the observer, or directly.
pub(super) fn switch(observed: bool) {
    let plain = task::core_table();
    image::install(if observed {
        OBSERVED.call_once(|| CoreTable::observed(plain, &OBSERVER))
    } else {
        plain
    });
}
