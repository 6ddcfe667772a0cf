//! The COPS kernel: list of modules, and boot order.
//!
//! docs/book/architecture.md lists the folders and their order, from `arch` at the bottom to `boot`
//! at the top.
#![no_std]
#![no_main]

extern crate alloc;
// Its symbols replace those of Rust's own library.
extern crate cops_memcpy as _;

mod arch;
mod boot;
mod call;
mod counters;
mod disk;
mod drivers;
mod fs;
mod inspect;
mod log;
mod machine;
mod mm;
mod net;
mod panic;
mod portions;
mod process;
mod sched;
mod syscall;
mod trace;
mod vdso;

use cops_algorithms::fixed_list::FixedList;
use drivers::console;
use machine::{device_tree, image, layout};
use mm::{asid, frames, kernel_space};

/// The boot hart, on the boot stack, with the early page table: reads the machine's description and
/// takes over its memory.
fn enter_boot_hart(hart_id: usize, tree_physical: usize) -> ! {
    device_tree::discover(tree_physical);
    let facts = device_tree::facts();
    console::initialise();
    log::initialise();

    let mut reserved = FixedList::<_, 18>::new(0..0);
    facts.reserved.iter().cloned().chain([image::physical()]).for_each(|range| {
        reserved.push(range);
    });
    #[allow(unsafe_code)]
    // SAFETY: the device tree's memory, without what the tree reserves and without the kernel's
    // image, is used by no other code yet. This hart is the only one.
    unsafe {
        frames::initialise(
            &facts.memory,
            reserved,
            device_tree::boot_argument("junk") == Some("on"),
        )
    };

    // The boot hart is number 0; the others follow in the order of the device tree.
    let others = facts.harts.iter().map(|hart| hart.id).filter(|&id| id != hart_id);
    let harts = arch::describe_harts([hart_id].into_iter().chain(others), |hart| {
        layout::kernel_stack(hart).end
    });
    kernel_space::initialise(facts, harts).expect("memory for the kernel's page tables");
    arch::run_on_own_stack(start_boot_hart)
}

/// The boot hart, on its own stack, with the final page table.
extern "C" fn start_boot_hart() -> ! {
    asid::initialise();
    prepare_this_hart();
    let memory = frames::statistics();
    ::log::info!(
        "COPS {}: {} hart(s), {} MiB of memory free, clock {} Hz{}",
        env!("CARGO_PKG_VERSION"),
        arch::hart_count(),
        (memory.free * frames::FRAME_BYTES) >> 20,
        arch::ticks_per_second(),
        if device_tree::facts().supervisor_timer { ", own timers" } else { "" },
    );
    boot::start()
}

/// Every other hart, on its own stack, after `arch::start_other_harts`.
fn enter_secondary() -> ! {
    prepare_this_hart();
    boot::start()
}

/// The initialisation that each hart does for itself.
fn prepare_this_hart() {
    arch::controller::initialise_this_hart();
    arch::install_traps(&boot::HANDLERS);
}
