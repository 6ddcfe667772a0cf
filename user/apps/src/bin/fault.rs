//! Writes to kernel memory, which the kernel does not survive unless it is one: it ends this program with
//! `SIGSEGV`, status 139, and goes on.
#![no_std]
#![no_main]
#![allow(unsafe_code)]

use cops::process::ExitCode;

/// Where the kernel's image begins.
const KERNEL_TEXT: usize = 0xffff_ffc0_8020_0000;

#[cops::main]
fn main() -> ExitCode {
    // SAFETY: this is no memory of this program's, and it does not pretend so: the write must not happen.
    unsafe { core::ptr::with_exposed_provenance_mut::<u64>(KERNEL_TEXT).write_volatile(0) };
    // Only a kernel without protection lets it come here.
    ExitCode::SUCCESS
}
