//! The end of a program that cannot go on.

use core::fmt::Write;
use core::panic::PanicInfo;

use crate::io::Gather;

/// Prints where and why, and ends the process as `SIGABRT` would. Nothing unwinds, nothing is dropped.
#[panic_handler]
fn panic(information: &PanicInfo<'_>) -> ! {
    // Out of memory comes here too, so nothing on the way may allocate.
    let _ = writeln!(Gather::new(2), "{information}");
    crate::process::abort()
}

/// The like of the panic handler, for what goes wrong before the program has begun.
#[cold]
pub(crate) fn fatal(message: core::fmt::Arguments<'_>) -> ! {
    let _ = writeln!(Gather::new(2), "cops: {message}");
    crate::process::abort()
}
