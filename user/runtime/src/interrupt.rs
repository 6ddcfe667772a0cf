//! User-level interrupts: the handler that makes coroutines ready when their results arrive while a
//! virtual CPU is inside a poll (decision 11).
//!
//! The handler may have interrupted any code, including the heap and the executor while they hold
//! their locks. So it takes no lock, frees nothing and calls no foreign code: it reads which
//! coroutines the results in the ring are for, and wakes them, which the executor allows in
//! interrupts. The results themselves stay in the ring until the next scheduling point of any
//! worker: see [`wake_coroutines_with_results`].
//!
//! May touch: registers, its own stacks, this process's interrupt records.
#![allow(unsafe_code)]

use core::arch::global_asm;
use core::cell::UnsafeCell;
use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering::*, fence};

use cops_abi::interrupt::{CpuRecord, status};
use cops_abi::page::MAX_CPUS;
use cops_abi::{CoroutineId, ring, syscall};

use crate::{arch, shared, worker};

/// Far more than the handler needs. Pages are allocated on first use, as everywhere.
const STACK_BYTES: usize = 16 * 1024;

/// What is at the address in the handler's stack pointer when it starts.
#[repr(C, align(16))]
struct Top {
    /// The value of `tp` for Rust code on this virtual CPU.
    thread_pointer: *const (),
    record: *const CpuRecord,
}

#[repr(C, align(16))]
struct Stack {
    room: [u8; STACK_BYTES],
    top: Top,
}

struct Stacks(UnsafeCell<[Stack; MAX_CPUS]>);

// SAFETY: only the virtual CPU with its index initialises and uses each stack.
unsafe impl Sync for Stacks {}

static STACKS: Stacks = Stacks(UnsafeCell::new(
    [const {
        Stack {
            room: [0; STACK_BYTES],
            top: Top { thread_pointer: ptr::null(), record: ptr::null() },
        }
    }; MAX_CPUS],
));

// The handler restores every register. It runs on its own stack, which the kernel has exchanged for
// that of the interrupted code, because that code may use `sp` for anything. The register for the
// system call number is saved in the record, because the return is a system call. Floating-point
// registers are saved if the interrupted code uses them, which the cause says.
global_asm!(
    ".pushsection .text.interrupt, \"ax\"",
    ".option push",
    // At link time, the assembler does not know the target's extensions.
    ".option arch, +d",
    ".balign 4",
    ".globl __cops_user_interrupt",
    ".type __cops_user_interrupt, @function",
    "__cops_user_interrupt:",
    "    addi sp, sp, -304",
    "    sd ra, 0(sp)",
    "    sd t0, 8(sp)",
    "    sd t1, 16(sp)",
    "    sd t2, 24(sp)",
    "    sd t3, 32(sp)",
    "    sd t4, 40(sp)",
    "    sd t5, 48(sp)",
    "    sd t6, 56(sp)",
    "    sd a0, 64(sp)",
    "    sd a1, 72(sp)",
    "    sd a2, 80(sp)",
    "    sd a3, 88(sp)",
    "    sd a4, 96(sp)",
    "    sd a5, 104(sp)",
    "    sd a6, 112(sp)",
    "    sd tp, 120(sp)",
    "    ld tp, 304+{thread_pointer}(sp)",
    "    ld t0, 304+{record}(sp)",
    "    sd a7, {number_register}(t0)",
    "    lw t1, {cause}+4(t0)",
    "    andi t1, t1, 1",
    "    sd t1, 128(sp)",
    "    beqz t1, 1f",
    "    frcsr t2",
    "    sd t2, 136(sp)",
    "    fsd ft0, 144(sp)",
    "    fsd ft1, 152(sp)",
    "    fsd ft2, 160(sp)",
    "    fsd ft3, 168(sp)",
    "    fsd ft4, 176(sp)",
    "    fsd ft5, 184(sp)",
    "    fsd ft6, 192(sp)",
    "    fsd ft7, 200(sp)",
    "    fsd ft8, 208(sp)",
    "    fsd ft9, 216(sp)",
    "    fsd ft10, 224(sp)",
    "    fsd ft11, 232(sp)",
    "    fsd fa0, 240(sp)",
    "    fsd fa1, 248(sp)",
    "    fsd fa2, 256(sp)",
    "    fsd fa3, 264(sp)",
    "    fsd fa4, 272(sp)",
    "    fsd fa5, 280(sp)",
    "    fsd fa6, 288(sp)",
    "    fsd fa7, 296(sp)",
    "1:  call {handle}",
    "    ld t1, 128(sp)",
    "    beqz t1, 2f",
    "    fld ft0, 144(sp)",
    "    fld ft1, 152(sp)",
    "    fld ft2, 160(sp)",
    "    fld ft3, 168(sp)",
    "    fld ft4, 176(sp)",
    "    fld ft5, 184(sp)",
    "    fld ft6, 192(sp)",
    "    fld ft7, 200(sp)",
    "    fld ft8, 208(sp)",
    "    fld ft9, 216(sp)",
    "    fld ft10, 224(sp)",
    "    fld ft11, 232(sp)",
    "    fld fa0, 240(sp)",
    "    fld fa1, 248(sp)",
    "    fld fa2, 256(sp)",
    "    fld fa3, 264(sp)",
    "    fld fa4, 272(sp)",
    "    fld fa5, 280(sp)",
    "    fld fa6, 288(sp)",
    "    fld fa7, 296(sp)",
    "    ld t2, 136(sp)",
    "    fscsr t2",
    "2:  ld ra, 0(sp)",
    "    ld t0, 8(sp)",
    "    ld t1, 16(sp)",
    "    ld t2, 24(sp)",
    "    ld t3, 32(sp)",
    "    ld t4, 40(sp)",
    "    ld t5, 48(sp)",
    "    ld t6, 56(sp)",
    "    ld a0, 64(sp)",
    "    ld a1, 72(sp)",
    "    ld a2, 80(sp)",
    "    ld a3, 88(sp)",
    "    ld a4, 96(sp)",
    "    ld a5, 104(sp)",
    "    ld a6, 112(sp)",
    "    ld tp, 120(sp)",
    "    addi sp, sp, 304",
    "    li a7, {uret}",
    "    ecall",
    "    unimp",
    ".option pop",
    ".popsection",
    thread_pointer = const offset_of!(Top, thread_pointer),
    record = const offset_of!(Top, record),
    number_register = const offset_of!(CpuRecord, number_register),
    cause = const offset_of!(CpuRecord, cause),
    uret = const syscall::COPS_URET,
    handle = sym handle,
);

unsafe extern "C" {
    /// Only the address is used, for the kernel; it is never called.
    fn __cops_user_interrupt();
}

/// Enables interrupts of the calling virtual CPU, number `index`.
///
/// # Safety
/// Called once on each virtual CPU, after its thread pointer was set.
pub(crate) unsafe fn enable(index: usize) {
    let page = shared::process_page();
    let Some(record) = page.cpus.get(index) else { return };
    // SAFETY: `index` is below `MAX_CPUS`, because there is a record with that number, so the stack
    // is inside `STACKS`.
    let stack = unsafe { STACKS.0.get().cast::<Stack>().add(index) };
    let top = Top { thread_pointer: arch::thread_pointer(), record };
    // SAFETY: the stack belongs to this virtual CPU alone, and is not in use before the store to
    // `status` below.
    unsafe { (&raw mut (*stack).top).write(top) };
    // SAFETY: `stack` points into `STACKS`, so the address of its field is in bounds; no reference
    // is made.
    let stack_pointer = unsafe { &raw const (*stack).top };
    record.scratch.store(stack_pointer.expose_provenance() as u64, Relaxed);
    page.posted.handler.store(__cops_user_interrupt as *const () as usize as u64, Relaxed);
    record.status.store(status::ENABLE, Release);
}

/// The handler, on the interrupted virtual CPU, with further interrupts masked.
extern "C" fn handle() {
    wake_coroutines_with_results();
    // The woken coroutines wait behind the interrupted poll, unless a parked virtual CPU takes
    // them.
    worker::offer();
}

/// The index in the ring at which the last handler stopped.
static REACHED: AtomicU32 = AtomicU32::new(0);

/// Wakes the coroutines that the results in the ring are for.
///
/// Such a coroutine may be polled by a worker that read the ring just before the result arrived.
/// Then the coroutine finds nothing and blocks again; that worker's next scheduling point delivers
/// the result and wakes it once more.
fn wake_coroutines_with_results() {
    let page = shared::process_page();
    page.posted.pending.store(0, Relaxed);
    fence(SeqCst);
    let reached = ring::for_each_waiting(
        &page.ring,
        REACHED.load(Relaxed),
        shared::ring_entry,
        |coroutine| {
            if let Some(id) = CoroutineId::from_raw(coroutine) {
                cops_executor::wake_up(id);
            }
        },
    );
    REACHED.store(reached, Relaxed);
}
