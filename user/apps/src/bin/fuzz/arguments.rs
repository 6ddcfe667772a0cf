//! Calls with nearly valid arguments.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use cops::abi::file::{control, open};
use cops::abi::inspect::request;
use cops::abi::socket::{AF_INET, AF_INET6};
use cops::abi::syscall as number;

use crate::garbage::Garbage;
use crate::memory;
use crate::signatures::{Kind, SIGNATURES, Signature};

/// Calls of at most this weight usually end the caller.
const RARE: u32 = 4;
/// Number of ports that children use to connect to each other.
const PORTS: u64 = 6;
const FIRST_PORT: u64 = 20_000;

/// Results of earlier calls for use by later ones; the newest replaces the oldest.
pub struct Remembered<const COUNT: usize> {
    values: [AtomicUsize; COUNT],
    next: AtomicUsize,
}

impl<const COUNT: usize> Remembered<COUNT> {
    pub const fn new() -> Self {
        Self { values: [const { AtomicUsize::new(0) }; COUNT], next: AtomicUsize::new(0) }
    }

    pub fn keep(&self, value: usize) {
        self.values[self.next.fetch_add(1, Relaxed) % COUNT].store(value, Relaxed);
    }

    fn any(&self, garbage: &mut Garbage) -> usize {
        self.values[garbage.below(COUNT as u64) as usize].load(Relaxed)
    }
}

/// Shared by all virtual CPUs of a child.
pub static DESCRIPTORS: Remembered<24> = Remembered::new();
pub static HANDLES: Remembered<48> = Remembered::new();
pub static CHILDREN: Remembered<8> = Remembered::new();
static SELF: AtomicUsize = AtomicUsize::new(0);
static SUPERVISOR: AtomicUsize = AtomicUsize::new(0);

/// Stores the ids of this process and of the supervisor.
pub fn prepare() {
    SELF.store(crate::kernel::call(number::GETPID, []).unwrap_or(0), Relaxed);
    SUPERVISOR.store(crate::kernel::call(number::GETPPID, []).unwrap_or(0), Relaxed);
}

/// The sum of all weights.
fn all_weights() -> u32 {
    SIGNATURES.iter().map(|signature| signature.weight).sum()
}

/// A random call, according to the weights.
fn weighed(garbage: &mut Garbage) -> &'static Signature {
    let mut left = garbage.below(all_weights().into()) as u32;
    for signature in SIGNATURES {
        if left < signature.weight {
            return signature;
        }
        left -= signature.weight;
    }
    &SIGNATURES[0]
}

/// A random number with arguments. `entry` is the entry point of a virtual CPU of this program.
pub fn any_call(cpu: usize, garbage: &mut Garbage, entry: usize) -> (usize, [usize; 6]) {
    let (number, kinds): (usize, &[Kind]) = match garbage.below(64) {
        // Unknown numbers, or numbers next to a known one.
        0 => (garbage.nasty() as usize, &[]),
        1 => (some_number(garbage).wrapping_add(garbage.below(5) as usize).wrapping_sub(2), &[]),
        // Any number with arbitrary arguments, including calls without a signature here.
        2..6 => (some_number(garbage), &[]),
        _ => {
            let signature = weighed(garbage);
            (signature.number, signature.arguments)
        }
    };
    // Calls that end the caller are made no more often than their weight says.
    let is_rare = SIGNATURES.iter().any(|known| known.number == number && known.weight <= RARE);
    let number =
        if kinds.is_empty() && is_rare && garbage.below(16) != 0 { number::GETPID } else { number };
    let kinds = if number == number::KILL { &[Kind::Process, Kind::Signal] } else { kinds };
    let mut arguments = [0; 6];
    for (index, place) in arguments.iter_mut().enumerate() {
        let kind = kinds.get(index).copied().unwrap_or_else(|| any_kind(garbage));
        // Three in a hundred arguments are of another kind than the signature says.
        let kind =
            if number != number::KILL && garbage.below(32) == 0 { any_kind(garbage) } else { kind };
        *place = argument(kind, cpu, index, garbage, entry);
    }
    (number, arguments)
}

fn some_number(garbage: &mut Garbage) -> usize {
    number::ALL[garbage.below(number::ALL.len() as u64) as usize].0
}

fn any_kind(garbage: &mut Garbage) -> Kind {
    use Kind::*;
    const KINDS: [Kind; 10] =
        [Any, Zero, Small, Descriptor, Pointer, Length, Page, Handle, Time, Address];
    KINDS[garbage.below(KINDS.len() as u64) as usize]
}

fn one_of(values: &[usize], garbage: &mut Garbage) -> usize {
    if garbage.below(24) == 0 {
        return garbage.nasty() as usize;
    }
    values[garbage.below(values.len() as u64) as usize]
}

/// An argument. `index` separates the memory of several pointers of one call.
fn argument(kind: Kind, cpu: usize, index: usize, garbage: &mut Garbage, entry: usize) -> usize {
    let place = memory::slot(cpu) + index * 512;
    match kind {
        Kind::Any => garbage.nasty() as usize,
        Kind::Zero => one_of(&[0], garbage),
        Kind::Small => one_of(&[0, 1, 1, 2, 3, 4, 5, 8, 16, 64], garbage),
        Kind::Descriptor => match garbage.below(16) {
            0 => garbage.nasty() as usize,
            1 => garbage.below(40) as usize,
            _ => DESCRIPTORS.any(garbage),
        },
        Kind::Directory => match garbage.below(4) {
            0 => argument(Kind::Descriptor, cpu, index, garbage, entry),
            _ => number::AT_FDCWD as usize,
        },
        Kind::OpenFlags => flags(
            &[
                open::WRITE_ONLY,
                open::READ_WRITE,
                open::CREATE,
                open::EXCLUSIVE,
                open::TRUNCATE,
                open::APPEND,
                open::NON_BLOCKING,
                open::DIRECTORY,
                open::NO_FOLLOW,
                open::CLOSE_ON_EXEC,
                open::PATH,
            ],
            garbage,
        ),
        Kind::AtFlags => flags(&[0x100, 0x200, 0x400, 0x1000], garbage),
        Kind::Control => one_of(&[0, 1, 2, 3, 4, control::DUPLICATE_CLOSE_ON_EXEC], garbage),
        Kind::Request => one_of(
            &[0x5401, 0x5402, 0x5413, 0x540f, 0x5410, 0x541b, 0x5421, 0x5450, 0x5451],
            garbage,
        ),
        Kind::Buffers => {
            for buffer in 0..4 {
                let words = [memory::pointer(garbage) as u64, memory::length(garbage) as u64];
                memory::fill(place + buffer * 16, &words);
            }
            or_pointer(place, garbage)
        }
        Kind::Polled => {
            for which in 0..40 {
                let descriptor = argument(Kind::Descriptor, cpu, index, garbage, entry);
                let events = garbage.below(64) << 32;
                memory::fill(place + which * 8, &[descriptor as u64 & 0xffff_ffff | events]);
            }
            or_pointer(place, garbage)
        }
        Kind::Pointer => memory::pointer(garbage),
        Kind::Length => memory::length(garbage),
        Kind::Page => memory::page(garbage),
        Kind::Path => path(place, garbage),
        Kind::Strings => strings(place, garbage),
        Kind::Address => address(place, garbage),
        Kind::AddressLength => one_of(&[16, 28, 16, 28, 0, 2, 15, 29, 128], garbage),
        Kind::PointerToLength => {
            memory::fill(place, &[one_of(&[0, 16, 28, 128, 7], garbage) as u64]);
            or_pointer(place, garbage)
        }
        Kind::Time => time(place, garbage),
        Kind::Operation => one_of(&[0, 1, 3, 4, 9, 10, 128, 129, 137, 265, 5], garbage),
        Kind::Process => process(garbage),
        Kind::Signal => signal(garbage),
        Kind::Level => one_of(&[0, 1, 31, 33, 40, 41, 50, 62, 63, 64], garbage),
        Kind::Handle => match garbage.below(8) {
            0 => HANDLES.any(garbage).wrapping_add(garbage.nasty() as usize),
            1 => garbage.nasty() as usize,
            _ => HANDLES.any(garbage),
        },
        Kind::Entry => {
            if garbage.below(64) == 0 {
                memory::pointer(garbage)
            } else {
                entry
            }
        }
        Kind::Protection => one_of(&[0, 1, 3, 3, 3, 5, 7], garbage),
        Kind::MapFlags => one_of(&[0x22, 0x22, 0x22, 0x32, 2], garbage),
        Kind::Inspected => {
            if garbage.below(8) == 0 {
                garbage.nasty() as usize
            } else {
                request(1 + garbage.below(4) as usize)
            }
        }
        Kind::InspectFrom => match garbage.below(4) {
            0 => garbage.below(64) as usize,
            1 => process(garbage) << 32 | garbage.below(256) as usize,
            2 => SELF.load(Relaxed) << 32 | garbage.below(1 << 20) as usize,
            _ => garbage.nasty() as usize,
        },
        Kind::Family => one_of(&[2, 2, 10, 1, 0], garbage),
    }
}

/// Mostly none or one of these flags.
fn flags(all: &[u32], garbage: &mut Garbage) -> usize {
    let mut flags = 0;
    while garbage.below(2) == 0 {
        flags |= all[garbage.below(all.len() as u64) as usize] as usize;
    }
    if garbage.below(32) == 0 { garbage.nasty() as usize } else { flags }
}

/// `place`, or rarely another pointer.
fn or_pointer(place: usize, garbage: &mut Garbage) -> usize {
    if garbage.below(12) == 0 { memory::pointer(garbage) } else { place }
}

fn path(place: usize, garbage: &mut Garbage) -> usize {
    const PATHS: [&[u8]; 24] = [
        // Names that all children use at the same time.
        b"/tmp",
        b"/tmp/a",
        b"/tmp/b",
        b"/tmp/a/c",
        b"/tmp/a/b",
        b"/tmp/b/a/../a",
        b"/dev/null",
        b"/dev/zero",
        b"a",
        b"b/",
        b"../a",
        b".",
        b"/bin/fuzz",
        b"/bin/fuzz",
        b"/bin/fuzz",
        b"/bin/fuzz",
        b"/bin",
        b"/",
        b"/etc/init",
        b"/boot/kernel.sym",
        b"",
        b"../../..//bin/./fuzz",
        b"/bin/no-such-program",
        b"\xff\xfe/\x01",
    ];
    if garbage.below(16) == 0 {
        // Longer than allowed, or without a terminating zero.
        for word in 0..40 {
            memory::fill(place + word * 8, &[0x6161_612f_6161_612f]);
        }
        memory::fill(place + 320, &[0]);
    } else {
        memory::fill_bytes(place, PATHS[garbage.below(PATHS.len() as u64) as usize]);
    }
    or_pointer(place, garbage)
}

/// Arguments of a program that ends by itself, independently of its parent; or invalid pointers.
fn strings(place: usize, garbage: &mut Garbage) -> usize {
    let (name, option, time) = (place + 64, place + 128, place + 192);
    memory::fill_bytes(name, b"fuzz");
    memory::fill_bytes(option, crate::NAP.as_bytes());
    memory::fill_bytes(time, [b"0" as &[u8], b"200", b"3000", b"20000"][garbage.below(4) as usize]);
    memory::fill(place, &[name as u64, option as u64, time as u64, 0]);
    match garbage.below(24) {
        0 => memory::fill(place + 16, &[memory::pointer(garbage) as u64]),
        1 => memory::fill(place + 24, &[garbage.nasty(), garbage.nasty(), 0]),
        _ => {}
    }
    if garbage.below(32) == 0 { memory::pointer(garbage) } else { place }
}

/// A socket address of this machine.
fn address(place: usize, garbage: &mut Garbage) -> usize {
    let port = match garbage.below(4) {
        0 => 0,
        _ => (FIRST_PORT + garbage.below(PORTS)).swap_bytes() >> 48,
    };
    let family =
        one_of(&[AF_INET.into(), AF_INET.into(), AF_INET.into(), AF_INET6.into(), 0], garbage)
            as u64;
    let family = family & 0xffff;
    if family == u64::from(AF_INET6) {
        let loopback = 1u64 << 56;
        memory::fill(place, &[family | port << 16, 0, loopback, 0]);
    } else {
        let host: u64 = if garbage.below(4) == 0 { 0 } else { 0x0100_007f };
        memory::fill(place, &[family | port << 16 | host << 32, 0, 0, 0]);
    }
    // Other pointers could refer to an address outside of this machine.
    match garbage.below(16) {
        0 => 0,
        1 => usize::MAX - 7,
        2 => place + 3,
        _ => place,
    }
}

/// A short time, a time in the past, or an invalid one.
fn time(place: usize, garbage: &mut Garbage) -> usize {
    let words = match garbage.below(8) {
        0 => [garbage.nasty(), garbage.nasty()],
        1 => [u64::MAX, 5],
        2 => [3600, 0],
        _ => [0, garbage.below(2_000_000)],
    };
    memory::fill(place, &words);
    or_pointer(place, garbage)
}

/// This process, one that it has started, or one that does not exist.
fn process(garbage: &mut Garbage) -> usize {
    match garbage.below(16) {
        0 => garbage.nasty() as usize | 1 << 20,
        1 => usize::MAX,
        2 => 0,
        3..6 => SELF.load(Relaxed),
        6 => 1,
        7 => SUPERVISOR.load(Relaxed),
        _ => CHILDREN.any(garbage),
    }
}

/// Mostly 0, which only checks whether the process exists.
fn signal(garbage: &mut Garbage) -> usize {
    match garbage.below(256) {
        0 => 9,
        // Not those that stop: no process would make a copy of this one go on.
        1 => match 1 + garbage.below(63) as usize {
            19..=22 => 18,
            signal => signal,
        },
        2..10 => 64 + (garbage.nasty() as usize >> 1),
        _ => 0,
    }
}
