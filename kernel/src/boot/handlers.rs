//! What the kernel does at each interrupt, and at an exception in the kernel.

use crate::arch::{self, Handlers};
use crate::drivers;
use crate::panic;
use crate::sched::interrupt;

/// The handlers of every hart.
pub static HANDLERS: Handlers = Handlers {
    timer: interrupt::on_timer,
    interprocessor: || {
        if panic::is_panicking() {
            arch::stop_hart();
        }
        interrupt::on_interprocessor();
    },
    external: || {
        interrupt::on_external();
        drivers::interrupt::on_external();
    },
    kernel_exception: panic::on_kernel_exception,
    stack_overflow: panic::on_stack_overflow,
};
