//! The processor: entering the kernel, the first instructions of a program, the thread pointer, the
//! clock.
//!
//! This is the only module with code for RISC-V, except the handler in `interrupt`. May touch:
//! registers.
#![allow(unsafe_code)]

use core::arch::{asm, global_asm};

// The kernel starts the program here with `sp` at the argument vector; other registers have no
// defined value. A zero frame pointer ends backtraces; a zero thread pointer means that no worker
// runs here yet.
global_asm!(
    ".section .text.start, \"ax\"",
    ".globl _start",
    ".type _start, @function",
    "_start:",
    "    mv   a0, sp",
    "    mv   s0, zero",
    "    mv   tp, zero",
    "    andi sp, sp, -16",
    "    call {start}",
    "    unimp",
    ".size _start, . - _start",
    start = sym crate::start::start,
);

/// Makes a system call. Returns `(a0, a1)` (see `cops_abi::syscall` for the convention).
///
/// # Safety
/// The kernel accesses the memory that the arguments name as the call specifies: now or, for a call
/// in flight, later. The caller must guarantee that this memory is valid for that access as long as
/// the call lasts.
#[inline]
pub unsafe fn system_call(
    number: usize,
    arguments: [usize; 6],
    coroutine: u64,
    token: u64,
) -> (isize, u64) {
    let [a0, a1, a2, a3, a4, a5] = arguments;
    let (value, handle);
    // SAFETY: the kernel preserves every register except a0 and a1, which are outputs. By this
    // function's contract the memory that the call accesses is valid.
    unsafe {
        asm!(
            "ecall",
            inlateout("a0") a0 => value,
            inlateout("a1") a1 => handle,
            in("a2") a2,
            in("a3") a3,
            in("a4") a4,
            in("a5") a5,
            in("a6") coroutine,
            in("a7") number,
            in("t0") token,
            options(nostack),
        );
    }
    (value, handle)
}

/// The machine's clock in ticks, which is the same on every hart.
#[inline]
pub fn clock_ticks() -> u64 {
    let ticks;
    // SAFETY: `rdtime` reads a counter into an output register and has no other effect.
    unsafe { asm!("rdtime {}", out(reg) ticks, options(nomem, nostack, preserves_flags)) };
    ticks
}

/// The pointer that [`set_thread_pointer`] stored on this virtual CPU; null before.
#[inline]
pub fn thread_pointer() -> *const () {
    let pointer;
    // SAFETY: the instruction copies `tp` into an output register and has no other effect. Not
    // `pure`, because another virtual CPU may poll the coroutine next time.
    unsafe { asm!("mv {}, tp", out(reg) pointer, options(nomem, nostack, preserves_flags)) };
    pointer
}

// Starts a thread: the arguments are those of `clone`. In the new thread, on its own stack, calls
// the function that never returns. A zero frame pointer ends its backtraces.
global_asm!(
    ".pushsection .text.start_thread, \"ax\"",
    ".globl __cops_start_thread",
    ".type __cops_start_thread, @function",
    "__cops_start_thread:",
    "    li   a6, 0",
    "    li   a7, {clone}",
    "    ecall",
    "    bnez a0, 1f",
    "    mv   s0, zero",
    "    call {begin}",
    "    unimp",
    "1:  ret",
    ".size __cops_start_thread, . - __cops_start_thread",
    ".popsection",
    clone = const cops_abi::syscall::CLONE,
    begin = sym crate::thread::begin,
);

unsafe extern "C" {
    fn __cops_start_thread(
        flags: usize,
        stack_top: usize,
        unused: usize,
        thread_pointer: usize,
        number: usize,
    ) -> isize;
}

/// Starts a thread of this process, which calls `thread::begin` on the stack that ends at
/// `stack_top`. The kernel stores its id in the word at `number` before it runs, and 0 when it has
/// ended. Returns the id, or what `cops_abi::errno::decode` decodes.
///
/// # Safety
/// The stack is mapped, belongs to the thread alone, and `stack_top` is a multiple of 16. What
/// `thread_pointer` and `number` point to is valid until the thread has ended.
pub unsafe fn start_thread(
    flags: usize,
    stack_top: usize,
    thread_pointer: usize,
    number: usize,
) -> isize {
    // SAFETY: the function is defined above with these parameters; this function's contract covers
    // what the kernel and the new thread access.
    unsafe { __cops_start_thread(flags, stack_top, 0, thread_pointer, number) }
}

/// Sets the register that distinguishes virtual CPUs and threads. Programs have no other use for
/// it.
///
/// # Safety
/// Called once on each virtual CPU, before coroutines run on it, with a pointer that
/// [`crate::worker`] can read.
pub unsafe fn set_thread_pointer(pointer: *const ()) {
    // SAFETY: the compiler uses no thread-local storage on this target, so no other code uses `tp`.
    unsafe { asm!("mv tp, {}", in(reg) pointer, options(nostack, preserves_flags)) };
}
