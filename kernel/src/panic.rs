//! Panics and other fatal errors of the kernel: prints what happened, where, and the backtrace.
//!
//! Uses no heap, and only locks that it can do without. Function names come from `boot/kernel.sym`
//! in the root image, if it exists.
#![allow(unsafe_code)]

use crate::arch::{self, TrapFrame};
use crate::drivers::emergency::Emergency;
use crate::drivers::power;
use crate::machine::{device_tree, image, layout};
use crate::trace;
use core::fmt::Write;
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicUsize, Ordering};

/// The exit status of the run.
const STATUS: u8 = 101;

/// Maximum number of return addresses printed.
const DEPTH: usize = 32;

/// The hart that panics, plus 1; 0 if none does.
static PANICKING: AtomicUsize = AtomicUsize::new(0);

/// Whether some hart panics. Then every hart that is interrupted stops.
pub fn is_panicking() -> bool {
    PANICKING.load(Ordering::Relaxed) != 0
}

#[panic_handler]
fn on_panic(info: &PanicInfo<'_>) -> ! {
    report(|out| writeln!(out, "kernel {info}"), None, arch::frame_pointer())
}

/// An exception in the kernel: an access to an unmapped page, or an illegal instruction.
pub fn on_kernel_exception(frame: &TrapFrame) -> ! {
    report(
        |out| {
            writeln!(out, "kernel exception: {} ({:#x})", frame.cause_name(), frame.value())?;
            writeln!(out, "{frame}")
        },
        Some(frame.program_counter()),
        frame.frame_pointer(),
    )
}

/// An overflow of the kernel's stack. Only the program counter and the frame pointer in `frame` are
/// valid.
pub fn on_stack_overflow(stack_pointer: usize, frame: &TrapFrame) -> ! {
    report(
        |out| writeln!(out, "kernel stack overflow: stack pointer {stack_pointer:#x}"),
        Some(frame.program_counter()),
        frame.frame_pointer(),
    )
}

/// Stops the other harts, prints `message` and the backtrace, and powers off.
fn report(
    message: impl Fn(&mut Emergency) -> core::fmt::Result,
    program_counter: Option<usize>,
    frame_pointer: usize,
) -> ! {
    arch::interrupts_off();
    let me = arch::hart_index() + 1;
    match PANICKING.compare_exchange(0, me, Ordering::SeqCst, Ordering::SeqCst) {
        Ok(_) => {}
        // A panic in this function: power off without another report.
        Err(hart) if hart == me => {
            arch::emergency_write(b"panic while reporting a panic\n");
            power::power_off(STATUS);
        }
        Err(_) => arch::stop_hart(),
    }
    for hart in (0..arch::hart_count()).filter(|&hart| hart + 1 != me) {
        arch::send_interrupt_to(hart);
    }
    let mut out = Emergency::take_over();
    // Writing to the emergency console cannot fail.
    let _ = writeln!(out, "\n!!! on hart {}:", me - 1);
    let _ = message(&mut out);
    let _ = writeln!(out, "backtrace:");
    let symbols = Symbols::find();
    if let Some(address) = program_counter {
        symbols.print(&mut out, address);
    }
    // A return address may already belong to the next function, so look up the call before it.
    arch::walk_frames(frame_pointer, DEPTH, |address| symbols.print(&mut out, address - 1));
    trace::print_last(&mut out);
    power::power_off(STATUS)
}

/// The table of function names: sorted lines `address name`, with the address in 16 hexadecimal
/// digits.
struct Symbols(&'static str);

impl Symbols {
    fn find() -> Self {
        let file = tar_no_std::TarArchiveRef::new(device_tree::root_image())
            .ok()
            .and_then(|archive| {
                archive.entries().find(|entry| entry.filename().as_str() == Ok("boot/kernel.sym"))
            })
            .and_then(|entry| entry.data_as_str().ok());
        Self(file.unwrap_or(""))
    }

    /// The function that contains `address`, and its start.
    fn look_up(&self, address: usize) -> Option<(&'static str, usize)> {
        let parse = |line: &'static str| {
            let (digits, name) = line.split_once(' ')?;
            Some((name, usize::from_str_radix(digits, 16).ok()?))
        };
        self.0.lines().filter_map(parse).take_while(|&(_, start)| start <= address).last()
    }

    fn print(&self, out: &mut Emergency, address: usize) {
        let is_code = image::text().contains(&address)
            || image::physical().contains(&address.wrapping_sub(layout::DIRECT_MAP));
        let _ = match self.look_up(address).filter(|_| is_code) {
            Some((name, start)) => {
                writeln!(out, "  {address:#018x} {name} + {:#x}", address - start)
            }
            None => writeln!(out, "  {address:#018x}"),
        };
    }
}
