//! A virtual CPU that is interrupted and loses its hart for a while keeps the values of all its
//! registers.
#![allow(unsafe_code)]

use alloc::vec::Vec;
use core::arch::global_asm;

use cops::process::Child;
use cops::task::{self, Priority};
use cops::time::{Duration, Instant};
use futures_util::future::join_all;

use crate::harness::{Outcome, soon, start};
use crate::processes::HELPER;
use crate::{check, tests};

tests! { registers:
    integer,
    floating_point,
    begin_clean,
}

/// Long enough to be interrupted many times.
const DURATION: Duration = Duration::from_millis(400);

// Both functions fill every register from a table, spin, and store every register to a second
// table. They need two registers to spin and to find the tables. `integer_registers` is given these
// two, a0 and a1 or s2 and s3, and is checked with both. `sp`, `gp` and `tp` are ordinary registers
// here, because only this code runs on the virtual CPU meanwhile.
global_asm!(
    ".macro spin_with_all_registers name, table, count",
    ".globl \\name",
    ".type \\name, @function",
    "\\name:",
    // The caller's registers, after the two tables of 32 words.
    "    sd ra, 512(a0)",
    "    sd sp, 520(a0)",
    "    sd gp, 528(a0)",
    "    sd tp, 536(a0)",
    "    sd s0, 544(a0)",
    "    sd s1, 552(a0)",
    "    sd s2, 560(a0)",
    "    sd s3, 568(a0)",
    "    sd s4, 576(a0)",
    "    sd s5, 584(a0)",
    "    sd s6, 592(a0)",
    "    sd s7, 600(a0)",
    "    sd s8, 608(a0)",
    "    sd s9, 616(a0)",
    "    sd s10, 624(a0)",
    "    sd s11, 632(a0)",
    ".ifnc \\table, a0",
    "    mv \\table, a0",
    "    mv \\count, a1",
    ".endif",
    ".irp n, 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
    ".ifnc x\\n, \\table",
    ".ifnc x\\n, \\count",
    "    ld x\\n, 8*\\n(\\table)",
    ".endif",
    ".endif",
    ".endr",
    "1:  addi \\count, \\count, -1",
    "    bnez \\count, 1b",
    ".irp n, 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
    "    sd x\\n, 256+8*\\n(\\table)",
    ".endr",
    ".ifnc \\table, a0",
    "    mv a0, \\table",
    ".endif",
    "    ld ra, 512(a0)",
    "    ld sp, 520(a0)",
    "    ld gp, 528(a0)",
    "    ld tp, 536(a0)",
    "    ld s0, 544(a0)",
    "    ld s1, 552(a0)",
    "    ld s2, 560(a0)",
    "    ld s3, 568(a0)",
    "    ld s4, 576(a0)",
    "    ld s5, 584(a0)",
    "    ld s6, 592(a0)",
    "    ld s7, 600(a0)",
    "    ld s8, 608(a0)",
    "    ld s9, 616(a0)",
    "    ld s10, 624(a0)",
    "    ld s11, 632(a0)",
    "    ret",
    ".endm",
    "spin_with_all_registers usertests_spin_by_x10_x11, x10, x11",
    "spin_with_all_registers usertests_spin_by_x18_x19, x18, x19",
    // At link time, the assembler does not know the target's extensions.
    ".option push",
    ".option arch, +d",
    ".globl usertests_spin_with_floats",
    ".type usertests_spin_with_floats, @function",
    "usertests_spin_with_floats:",
    "    frcsr t1",
    ".irp n, 8,9,18,19,20,21,22,23,24,25,26,27",
    "    fsd f\\n, 512+8*\\n(a0)",
    ".endr",
    ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
    "    fld f\\n, 8*\\n(a0)",
    ".endr",
    // Rounding towards zero, flags for overflow and inexact.
    "    li t0, 0x25",
    "    fscsr t0",
    "1:  addi a1, a1, -1",
    "    bnez a1, 1b",
    "    frcsr t2",
    ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
    "    fsd f\\n, 256+8*\\n(a0)",
    ".endr",
    ".irp n, 8,9,18,19,20,21,22,23,24,25,26,27",
    "    fld f\\n, 512+8*\\n(a0)",
    ".endr",
    "    fscsr t1",
    "    mv a0, t2",
    "    ret",
    ".globl usertests_read_floats",
    ".type usertests_read_floats, @function",
    "usertests_read_floats:",
    ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
    "    fsd f\\n, 8*\\n(a0)",
    ".endr",
    "    ret",
    ".option pop",
);

#[repr(C)]
struct Tables {
    given: [u64; 32],
    found: [u64; 32],
    saved: [u64; 32],
}

unsafe extern "C" {
    fn usertests_spin_by_x10_x11(tables: *mut Tables, count: u64);
    fn usertests_spin_by_x18_x19(tables: *mut Tables, count: u64);
    /// Returns the floating-point control and status register.
    fn usertests_spin_with_floats(tables: *mut Tables, count: u64) -> u64;
    fn usertests_read_floats(table: *mut [u64; 32]);
}

/// Turns of the loop between two readings of the clock.
const TURNS: u64 = 300_000;
/// The value of the control and status register.
const FLOAT_CONTROL: u64 = 0x25;

impl Tables {
    fn new(seed: u64) -> Self {
        let mut given = [0; 32];
        for (value, index) in given.iter_mut().zip(1..) {
            *value = seed
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .wrapping_add(index * 0x0101_0101_0101_0101);
        }
        Self { given, found: [0; 32], saved: [0; 32] }
    }

    fn wrong(&self, spared: &[usize]) -> Vec<usize> {
        (0..32)
            .filter(|index| !spared.contains(index) && self.given[*index] != self.found[*index])
            .collect()
    }
}

/// The registers that changed while spinning; none if all is correct.
pub fn spin_integers(seed: u64) -> Vec<usize> {
    let begin = Instant::now();
    while begin.elapsed() < DURATION {
        let mut tables = Tables::new(seed);
        // SAFETY: the function follows the calling convention and accesses only the tables, which
        // are exclusively borrowed.
        unsafe { usertests_spin_by_x10_x11(&mut tables, TURNS) };
        let wrong = tables.wrong(&[0, 10, 11]);
        if !wrong.is_empty() {
            return wrong;
        }
        // SAFETY: the function follows the calling convention and accesses only the tables, which
        // are exclusively borrowed.
        unsafe { usertests_spin_by_x18_x19(&mut tables, TURNS) };
        let wrong = tables.wrong(&[0, 18, 19]);
        if !wrong.is_empty() {
            return wrong;
        }
    }
    Vec::new()
}

pub fn spin_floats(seed: u64) -> Vec<usize> {
    let begin = Instant::now();
    while begin.elapsed() < DURATION {
        let mut tables = Tables::new(seed);
        // SAFETY: the function follows the calling convention and accesses only the tables, which
        // are exclusively borrowed.
        let control = unsafe { usertests_spin_with_floats(&mut tables, TURNS) };
        let mut wrong = tables.wrong(&[]);
        if control != FLOAT_CONTROL {
            wrong.push(32);
        }
        if !wrong.is_empty() {
            return wrong;
        }
    }
    Vec::new()
}

/// Spins on four virtual CPUs, beside another process that competes for the harts.
async fn disturb(spin: fn(u64) -> Vec<usize>) -> Outcome {
    let mut others: Vec<Child> = Vec::new();
    for _ in 0..2 {
        others.push(start(&[HELPER, "compute-with-floats"])?);
    }
    task::alloc_cpu(3)?;
    let spinning: Vec<_> = (1..=4)
        .map(|seed| task::spawn_join(async move { spin(seed) }, Priority::DEFAULT))
        .collect();
    let results = soon("four that spin", join_all(spinning)).await?;
    for child in &mut others {
        child.kill()?;
        child.wait().await?;
    }
    for wrong in results {
        let wrong = wrong?;
        check!(wrong.is_empty(), "registers {wrong:?} changed (32: control and status)");
    }
    Ok(())
}

async fn integer() -> Outcome {
    disturb(spin_integers).await
}

async fn floating_point() -> Outcome {
    disturb(spin_floats).await
}

/// The floating-point registers of a new virtual CPU contain nothing of another process.
async fn begin_clean() -> Outcome {
    let mut other = start(&[HELPER, "compute-with-floats"])?;
    let mut codes = Vec::new();
    for _ in 0..10 {
        let mut child = start(&[HELPER, "look-at-floats"])?;
        codes.push(soon("the end of a process", child.wait()).await??.code());
    }
    other.kill()?;
    other.wait().await?;
    check!(
        codes.iter().all(|&code| code == Some(0)),
        "registers that were not zero at the start: {codes:?}"
    );
    Ok(())
}

/// Runs in another process: fills registers with numbers, forever.
pub fn compute_with_floats() -> ! {
    loop {
        let mut tables = Tables::new(0xdead);
        // SAFETY: the function follows the calling convention and accesses only the tables, which
        // are exclusively borrowed.
        unsafe { usertests_spin_with_floats(&mut tables, 1000) };
    }
}

/// Runs in another process: counts the floating-point registers that are not zero.
pub fn look_at_floats() -> u8 {
    let mut table = [0; 32];
    // SAFETY: the function follows the calling convention and writes only the table, which is
    // exclusively borrowed.
    unsafe { usertests_read_floats(&mut table) };
    table.iter().filter(|&&value| value != 0).count() as u8
}
