//! Panics and fatal errors.

use core::fmt::Write;
use core::panic::PanicInfo;

use crate::io::Gather;

/// Prints the panic and ends the process like `SIGABRT`. Does not unwind and drops nothing.
#[panic_handler]
fn panic(information: &PanicInfo<'_>) -> ! {
    // This also handles out-of-memory, so nothing here may allocate.
    let _ = writeln!(Gather::new(2), "{information}");
    crate::process::abort()
}

/// Like the panic handler, for errors before the program has started.
#[cold]
pub(crate) fn fatal(message: core::fmt::Arguments<'_>) -> ! {
    let _ = writeln!(Gather::new(2), "cops: {message}");
    crate::process::abort()
}
