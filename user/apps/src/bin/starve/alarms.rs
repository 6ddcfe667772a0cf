//! A program for Linux that sets an alarm and a timer, and switches them off. It is assembled here,
//! because only programs for Linux have alarms.

use alloc::vec::Vec;
use core::ffi::CStr;

use cops::abi::errno::CallResult;
use cops::abi::file::open;
use cops::abi::linux::{SETITIMER, TIMERFD_CREATE, TIMERFD_SETTIME};
use cops::abi::syscall::{self as number, AT_FDCWD, CLOCK_MONOTONIC, EXIT_GROUP};

use crate::call;

/// The exit code if an alarm or a timer could not be switched off.
pub const STILL_ON: u8 = 77;
/// The other exit code.
const ALL_OFF: u8 = STILL_ON - 1;

/// Numbers of registers.
const ZERO: u32 = 0;
const SP: u32 = 2;
const S0: u32 = 8;
const S1: u32 = 9;
const A0: u32 = 10;
const A1: u32 = 11;
const A2: u32 = 12;
const A3: u32 = 13;
const A7: u32 = 17;

const ECALL: u32 = 0x73;

const fn addi(to: u32, from: u32, value: i32) -> u32 {
    (value as u32) << 20 | from << 15 | to << 7 | 0x13
}

const fn or(to: u32, one: u32, other: u32) -> u32 {
    other << 20 | one << 15 | 6 << 12 | to << 7 | 0x33
}

/// `to` is 1 unless `from` is 0.
const fn snez(to: u32, from: u32) -> u32 {
    from << 20 | 3 << 12 | to << 7 | 0x33
}

/// Stores `from` at `SP + offset`. `offset` is below 2048.
const fn store(from: u32, offset: u32) -> u32 {
    offset >> 5 << 25 | from << 20 | SP << 15 | 3 << 12 | (offset & 31) << 7 | 0x23
}

/// Skips the next `count` instructions if `register` is negative. `count` is below 7.
const fn skip_if_negative(register: u32, count: u32) -> u32 {
    let distance = (count + 1) * 4;
    register << 15 | 4 << 12 | (distance & 31) << 7 | 0x63
}

const fn set(to: u32, value: usize) -> u32 {
    addi(to, ZERO, value as i32)
}

/// Where on the stack the setting is that switches off, and the one of a hundred seconds.
const OFF: i32 = 0;
const ON: i32 = 32;

const CODE: [u32; 43] = [
    addi(SP, SP, -64),
    store(ZERO, 0),
    store(ZERO, 8),
    store(ZERO, 16),
    store(ZERO, 24),
    store(ZERO, 32),
    store(ZERO, 40),
    set(A0, 100),
    store(A0, 48),
    store(ZERO, 56),
    // On. Each of these calls may fail.
    set(A0, 0),
    addi(A1, SP, ON),
    set(A2, 0),
    set(A7, SETITIMER),
    ECALL,
    set(A0, CLOCK_MONOTONIC),
    set(A1, 0),
    set(A7, TIMERFD_CREATE),
    ECALL,
    addi(S1, A0, 0),
    set(A1, 0),
    addi(A2, SP, ON),
    set(A3, 0),
    set(A7, TIMERFD_SETTIME),
    ECALL,
    // Off.
    set(A0, 0),
    addi(A1, SP, OFF),
    set(A2, 0),
    set(A7, SETITIMER),
    ECALL,
    addi(S0, A0, 0),
    addi(A0, S1, 0),
    set(A1, 0),
    addi(A2, SP, OFF),
    set(A3, 0),
    set(A7, TIMERFD_SETTIME),
    // There is no timer.
    skip_if_negative(S1, 2),
    ECALL,
    or(S0, S0, A0),
    snez(A0, S0),
    addi(A0, A0, ALL_OFF as i32),
    set(A7, EXIT_GROUP),
    ECALL,
];

/// Where the program is mapped.
const BASE: u64 = 0x10000;
const FILE_HEADER_BYTES: u16 = 64;
const SEGMENT_HEADER_BYTES: u16 = 56;

/// Where [`install`] puts the program.
pub const PATH: &CStr = c"/tmp/alarms";

/// Puts the program where the scenario finds it: one that wrote it itself could be killed before it
/// removes it.
pub fn install() -> CallResult {
    let flags = (open::CREATE | open::READ_WRITE) as usize;
    let path = PATH.as_ptr().addr();
    let file = call(number::OPENAT, [AT_FDCWD as usize, path, flags, 0o777])?;
    let program = program();
    call(number::WRITE, [file, program.as_ptr().addr(), program.len()])?;
    call(number::CLOSE, [file])
}

/// The program as an ELF file with one segment.
fn program() -> Vec<u8> {
    const HEADERS: u64 = FILE_HEADER_BYTES as u64 + SEGMENT_HEADER_BYTES as u64;
    const BYTES: u64 = HEADERS + size_of_val(&CODE) as u64;
    let mut file = Vec::new();
    let mut add = |bytes: &[u8]| file.extend_from_slice(bytes);
    // 64 bits, little endian, version 1; padding.
    add(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    // Executable, for RISC-V, version 1.
    add(&2u16.to_le_bytes());
    add(&243u16.to_le_bytes());
    add(&1u32.to_le_bytes());
    // The entry; the table of segments; no table of sections; flags.
    for word in [BASE + HEADERS, FILE_HEADER_BYTES.into(), 0] {
        add(&word.to_le_bytes());
    }
    add(&0u32.to_le_bytes());
    for half in [FILE_HEADER_BYTES, SEGMENT_HEADER_BYTES, 1, 0, 0, 0] {
        add(&half.to_le_bytes());
    }
    // Loaded, readable and executable: offset, addresses, sizes, alignment.
    add(&1u32.to_le_bytes());
    add(&5u32.to_le_bytes());
    for word in [0, BASE, BASE, BYTES, BYTES, 4096] {
        add(&word.to_le_bytes());
    }
    for instruction in CODE {
        add(&instruction.to_le_bytes());
    }
    file
}
