//! Writes to kernel memory. The kernel must end this program with `SIGSEGV`, status 139, and
//! continue.
#![no_std]
#![no_main]
#![allow(unsafe_code)]

use cops::process::ExitCode;

/// Start of the kernel's image.
const KERNEL_TEXT: usize = 0xffff_ffc0_8020_0000;

#[cops::main]
fn main() -> ExitCode {
    // SAFETY: deliberately unsound: the address is not memory of this program. The kernel must end
    // the program before the write takes effect.
    unsafe { core::ptr::with_exposed_provenance_mut::<u64>(KERNEL_TEXT).write_volatile(0) };
    // Reached only if the kernel has no memory protection.
    ExitCode::SUCCESS
}
