//! Entry of the harts into the kernel.
//!
//! The firmware starts the boot hart at the first byte of the image, and the other harts, on
//! request, at `__start_other`. Both entry points run at physical addresses, without translation.
//! Each sets the trap vector to the direct-map address of its next instruction and then enables
//! translation. The next fetch faults, because low addresses are not mapped, and the trap continues
//! at that direct-map address. So no identity mapping is ever needed.
//!
//! Before that, each hart shows that it has the extensions that the kernel was built for; without
//! this, the first trap of a hart that lacks one would be somewhere in the kernel.

use super::firmware;
use super::hart::{self, HartRecord};
use super::paging::{self, Entry, Rights, RootRegister, TABLE_ENTRIES};
use crate::machine::layout;
use core::arch::{asm, global_asm};
use core::cell::UnsafeCell;
use core::mem::offset_of;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::fence;

/// The page table that the boot hart uses until it has built the final one: the whole direct map in
/// 1 GiB pages with all rights. User mode and other harts never use it.
#[repr(C, align(4096))]
struct EarlyRoot([Entry; TABLE_ENTRIES]);

static EARLY_ROOT: EarlyRoot = EarlyRoot({
    let mut entries = [Entry::EMPTY; TABLE_ENTRIES];
    let gigabyte = paging::page_size_of_level(2);
    let mut physical = 0;
    while physical < layout::DIRECT_MAP_BYTES {
        let rights = Rights { read: true, write: true, execute: true };
        let index = paging::table_index(layout::DIRECT_MAP + physical, 2);
        entries[index] = Entry::kernel_leaf(physical, rights);
        physical += gigabyte;
    }
    entries
});

/// Whether the boot hart has started. In `.data`, because the boot hart clears `.bss`.
#[unsafe(link_section = ".data")]
static BOOT_HART_CAME: AtomicU32 = AtomicU32::new(0);

/// The firmware's oldest call that prints; each version has it.
const SBI_PUT_CHARACTER: usize = 1;
/// The firmware's extension that powers off (`SRST`).
const SBI_SYSTEM_RESET: usize = 0x5352_5354;

const BOOT_STACK_BYTES: usize = 64 * 1024;

/// The boot hart's stack until its own stack is mapped.
#[repr(C, align(4096))]
struct BootStack(UnsafeCell<[u8; BOOT_STACK_BYTES]>);

// SAFETY: only the boot hart uses it, as its stack, and no reference to its contents is ever made.
unsafe impl Sync for BootStack {}

static BOOT_STACK: BootStack = BootStack(UnsafeCell::new([0; BOOT_STACK_BYTES]));

global_asm!(
    ".pushsection .text.entry, \"ax\"",
    // A distance to a label in here is known, whatever the linker shortens elsewhere.
    ".option norelax",
    ".globl __start_boot",
    // a0: this hart's id, a1: physical address of the device tree.
    "__start_boot:",
    "    csrw sie, zero",
    "    jal t0, __demand_extensions",
    // Only the first hart that gets here is the boot hart. OpenSBI before 1.3 marks a hart as to be
    // started before it stores the start address. A hart that checks its mark in between comes
    // here, with the boot hart's arguments.
    "    lla t0, {boot_hart_came}",
    "    li t1, 1",
    ".option push", // some assemblers know nothing of the target's extensions out here
    ".option arch, +a",
    "    amoswap.w.aq t1, t1, (t0)",
    ".option pop",
    "    bnez t1, 5f",
    "    lla t0, __bss_start",
    "    lla t1, __bss_end",
    "1:  bgeu t0, t1, 2f",
    "    sd zero, 0(t0)",
    "    addi t0, t0, 8",
    "    j 1b",
    "2:  lla t0, {early_root}",
    "    srli t0, t0, 12",
    "    li t1, 8 << 60",
    "    or t0, t0, t1",
    "    li t2, {direct_map}",
    "    lla t1, 3f",
    "    add t1, t1, t2",
    "    csrw stvec, t1",
    "    sfence.vma",
    "    csrw satp, t0",
    ".balign 4",
    "3:  lla t0, __early_trap",
    "    csrw stvec, t0",
    "    lla tp, {records}",
    "    lla sp, {boot_stack}",
    "    li t0, {boot_stack_bytes}",
    "    add sp, sp, t0",
    "    mv s0, zero",
    "    mv ra, zero",
    "    tail {boot_hart}",
    // A hart that was started but sent to the wrong address. Its start block has the same index as
    // the record with its id.
    "5:  lla t0, {records}",
    "    lla a1, {start_blocks}",
    "    li t1, {harts}",
    "6:  ld t2, {record_id}(t0)",
    "    beq t2, a0, __start_other",
    "    addi t0, t0, {record_bytes}",
    "    addi a1, a1, {block_bytes}",
    "    addi t1, t1, -1",
    "    bnez t1, 6b",
    "7:  wfi", // one more than the kernel uses
    "    j 7b",
    // a0: this hart's id, a1: physical address of its `StartBlock`.
    ".globl __start_other",
    "__start_other:",
    "    csrw sie, zero",
    "    jal t0, __demand_extensions",
    "    ld t0, {block_root}(a1)",
    "    ld tp, {block_record}(a1)",
    "    li t2, {direct_map}",
    "    lla t1, 4f",
    "    add t1, t1, t2",
    "    csrw stvec, t1",
    "    sfence.vma",
    "    csrw satp, t0",
    ".balign 4",
    "4:  lla t0, __early_trap",
    "    csrw stvec, t0",
    "    ld sp, {record_stack}(tp)",
    "    mv s0, zero",
    "    mv ra, zero",
    "    tail {other_hart}",
    // Returns to t0 if this hart has the extensions; else prints what is wrong and powers off.
    "__demand_extensions:",
    "    lla t1, 8f",
    "    csrw stvec, t1",
    ".option push",
    ".option arch, +zba, +zbb, +zbs",
    "    sh1add t1, t0, t0",
    "    clz t1, t0",
    "    bset t1, t0, t0",
    ".option pop",
    "    jr t0",
    ".balign 4",
    "8:  lla s1, 10f",
    "    li a7, {put_character}",
    "9:  lbu a0, 0(s1)",
    "    beqz a0, 11f",
    "    ecall",
    "    addi s1, s1, 1",
    "    j 9b",
    "10: .asciz \"COPS needs harts with Zba, Zbb and Zbs, as QEMU's -cpu rv64 is\\r\\n\"",
    ".balign 4",
    "11: li a7, {system_reset}",
    "    li a6, 0",
    "    li a0, 0", // power off
    "    li a1, 1", // because something failed
    "    ecall",
    "12: wfi",
    "    j 12b",
    // A trap before the real vector is installed.
    ".balign 4",
    "__early_trap:",
    "    csrr a0, scause",
    "    csrr a1, sepc",
    "    csrr a2, stval",
    "    tail {early_trap}",
    ".popsection",
    put_character = const SBI_PUT_CHARACTER,
    system_reset = const SBI_SYSTEM_RESET,
    early_root = sym EARLY_ROOT,
    direct_map = const layout::DIRECT_MAP,
    boot_hart_came = sym BOOT_HART_CAME,
    records = sym hart::RECORDS,
    record_id = const offset_of!(HartRecord, id),
    record_bytes = const size_of::<HartRecord>(),
    start_blocks = sym START_BLOCKS,
    block_bytes = const size_of::<StartBlock>(),
    harts = const crate::arch::MAX_HARTS,
    boot_stack = sym BOOT_STACK,
    boot_stack_bytes = const BOOT_STACK_BYTES,
    boot_hart = sym boot_hart,
    other_hart = sym other_hart,
    early_trap = sym early_trap,
    block_root = const offset_of!(StartBlock, root_register),
    block_record = const offset_of!(StartBlock, record),
    record_stack = const offset_of!(HartRecord, stack_top),
);

unsafe extern "C" {
    /// Only the address is used, for the firmware; it is never called.
    fn __start_other();
}

/// The values that a started hart needs before it has translation.
#[repr(C)]
struct StartBlock {
    root_register: usize,
    record: usize,
}

extern "C" fn boot_hart(hart_id: usize, tree_physical: usize) -> ! {
    crate::enter_boot_hart(hart_id, tree_physical)
}

extern "C" fn other_hart() -> ! {
    crate::enter_secondary()
}

extern "C" fn early_trap(cause: usize, program_counter: usize, value: usize) -> ! {
    panic!("trap {cause:#x} at {program_counter:#x} (value {value:#x}) before the kernel is set up")
}

/// Leaves the boot stack for this hart's own stack, which must be mapped, and continues at `next`.
pub fn run_on_own_stack(next: extern "C" fn() -> !) -> ! {
    let top = hart::current().stack_top.load(Relaxed);
    // SAFETY: `describe_harts` set `stack_top` to the top of this hart's own stack, which is mapped
    // and unused. `next` does not return, so nothing on the old stack is needed any more.
    unsafe {
        asm!(
            "mv sp, {top}",
            "mv s0, zero",
            "mv ra, zero",
            "jr {next}",
            top = in(reg) top,
            next = in(reg) next,
            options(noreturn),
        )
    }
}

/// Starts every hart except the boot hart, which calls this. Each of them runs `enter_secondary` on
/// its own, at any time from now on, with the kernel's root table. A hart that the firmware does
/// not start is reported; it keeps its index and never runs.
pub fn start_other_harts(root: RootRegister) {
    let others = hart::RECORDS.iter().zip(&START_BLOCKS).take(hart::hart_count()).skip(1);
    for (record, place) in others {
        let block = StartBlock { root_register: root.value(), record: &raw const *record as usize };
        record.root.load(root.number());
        let place = place.0.get();
        // SAFETY: the only reader of this block is the hart that `start_hart` starts below.
        unsafe { place.write(block) };
        fence(SeqCst);
        let entry = layout::physical_of(__start_other as *const () as usize);
        let id = record.id.load(Relaxed);
        if let Err(error) = firmware::start_hart(id, entry, layout::physical_of(place as usize)) {
            log::error!("the firmware does not start hart {id}: error {error}");
        }
    }
}

/// A start block, in the kernel's image so that its physical address is known.
struct StartBlockCell(UnsafeCell<StartBlock>);

// SAFETY: the boot hart writes the block before it starts the only hart that reads it.
unsafe impl Sync for StartBlockCell {}

static START_BLOCKS: [StartBlockCell; crate::arch::MAX_HARTS] =
    [const { StartBlockCell(UnsafeCell::new(StartBlock { root_register: 0, record: 0 })) };
        crate::arch::MAX_HARTS];
