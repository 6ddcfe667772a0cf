//! What can be seen of processes, virtual CPUs, coroutines and harts: the records of `COPS_INSPECT`.
//!
//! A call asks for records of one kind, from a number on, and gets as many as fit behind an
//! [`InspectHeader`], which also says where to go on. Each record is true by itself; what changes between two
//! records, or two calls, is seen or not. Numbers that a process publishes about itself (its coroutines, its
//! bitmaps, its polls) are passed on as it says them, brought into range: it may lie about itself, and about
//! nothing else. The layouts are part of the ABI: little endian, in the order of the fields, without gaps.

/// Version of the records; upper half of the call's first argument.
pub const INSPECT_VERSION: usize = 1;
/// Most bytes that one call fills in.
pub const REPLY_BYTES_MAX: usize = 2048;

/// First argument of the call for records of `kind`.
#[must_use]
pub const fn request(kind: usize) -> usize {
    INSPECT_VERSION << 8 | kind
}

/// Kinds of records.
pub mod kind {
    /// [`HartRecord`](super::HartRecord)s, from a hart's number on.
    pub const HARTS: usize = 1;
    /// [`ProcessRecord`](super::ProcessRecord)s, from a process's number on.
    pub const PROCESSES: usize = 2;
    /// [`CpuRecord`](super::CpuRecord)s of one process, from process << 32 | number on.
    pub const CPUS: usize = 3;
    /// [`CoroutineRecord`](super::CoroutineRecord)s of one process (0: of the kernel), from process << 32 | slot on.
    pub const COROUTINES: usize = 4;
    /// [`PortionRecord`](super::PortionRecord)s, from a number on. None unless the kernel was booted with `portions=on`.
    pub const PORTIONS: usize = 5;
}

/// Kinds of portions and stretches: what the kernel executes between two points at which something more urgent can take
/// the hart (SPEC 3.13a), and what it executes without interrupts or with the run queue locked.
pub mod portion {
    /// A system call, or a portion of one. Detail: its number.
    pub const SYSTEM_CALL: u32 = 1;
    /// A page fault or another exception of a process. Detail: 0.
    pub const FAULT: u32 = 2;
    /// What follows an interrupt of user mode, without the handler. Detail: 0.
    pub const INTERRUPTED: u32 = 3;
    /// Choosing and preparing what enters user mode next. Detail: 0.
    pub const SWITCH: u32 = 4;
    /// A poll of a service of the kernel. Detail: its slot.
    pub const SERVICE: u32 = 5;
    /// A poll of a coroutine that finishes a call. Detail: which operation.
    pub const CALL: u32 = 6;
    /// The executor, between two polls. Detail: 0.
    pub const EXECUTOR: u32 = 7;
    /// An interrupt handler. Detail: the cause.
    pub const HANDLER: u32 = 8;
    /// A stretch with interrupts off. Detail: 0.
    pub const INTERRUPTS_OFF: u32 = 9;
    /// The run queue's lock held. Detail: for what.
    pub const RUN_QUEUE: u32 = 10;

    /// Most instructions that one may take.
    pub const LIMIT: u64 = 50_000;

    /// For people.
    #[must_use]
    pub const fn name(kind: u32) -> &'static str {
        match kind {
            SYSTEM_CALL => "system-call",
            FAULT => "fault",
            INTERRUPTED => "interrupted",
            SWITCH => "switch",
            SERVICE => "service",
            CALL => "call",
            EXECUTOR => "executor",
            HANDLER => "handler",
            INTERRUPTS_OFF => "interrupts-off",
            RUN_QUEUE => "run-queue",
            _ => "?",
        }
    }
}

/// States of processes, virtual CPUs and coroutines (SPEC 3.6). Not all three have each.
pub mod state {
    /// Waits for a virtual CPU, or a hart.
    pub const READY: u32 = 1;
    /// Runs.
    pub const RUNNING: u32 = 2;
    /// Running-suspended: interrupted in the midst of it; goes on where it was.
    pub const SUSPENDED: u32 = 3;
    /// Waits for something: a wake, or the result of a synchronous call.
    pub const BLOCKED: u32 = 4;
    /// A virtual CPU with nothing to do; a process all of whose virtual CPUs are.
    pub const PARKED: u32 = 5;
    /// Has ended, and nobody has asked how.
    pub const ENDED: u32 = 6;

    /// For people.
    #[must_use]
    pub const fn name(state: u32) -> &'static str {
        match state {
            READY => "ready",
            RUNNING => "running",
            SUSPENDED => "suspended",
            BLOCKED => "blocked",
            PARKED => "parked",
            ENDED => "ended",
            _ => "?",
        }
    }
}

/// A value in a record.
trait Field: Copy {
    const BYTES: usize;
    fn put(self, to: &mut [u8]);
    fn get(from: &[u8]) -> Self;
}

macro_rules! integer_fields {
    ($($type:ty),*) => { $(impl Field for $type {
        const BYTES: usize = size_of::<$type>();
        fn put(self, to: &mut [u8]) {
            to.copy_from_slice(&self.to_le_bytes());
        }
        fn get(from: &[u8]) -> Self {
            from.iter().rev().fold(0, |value, &byte| value << 8 | Self::from(byte))
        }
    })* };
}

integer_fields!(u16, u32, u64);

impl<const N: usize> Field for [u8; N] {
    const BYTES: usize = N;
    fn put(self, to: &mut [u8]) {
        to.copy_from_slice(&self);
    }
    fn get(from: &[u8]) -> Self {
        let mut bytes = [0; N];
        bytes.copy_from_slice(from);
        bytes
    }
}

/// A record that travels as bytes.
pub trait Inspected: Copy {
    /// Bytes of it; a multiple of 8.
    const BYTES: usize;
    /// The kind that a call asks for, of those in [`kind`]; 0 for what is no kind of its own.
    const KIND: usize;

    /// Writes it to the start of `to`, which has at least [`Inspected::BYTES`] bytes.
    fn put(&self, to: &mut [u8]);

    /// Reads it from the start of `from`, which has at least [`Inspected::BYTES`] bytes.
    fn get(from: &[u8]) -> Self;
}

macro_rules! records {
    ($($(#[$doc:meta])+ $name:ident: $bytes:literal, $kind:expr => { $($(#[$field_doc:meta])+ $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])+
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub struct $name { $($(#[$field_doc])+ pub $field: $type,)* }

            const _: () = assert!(0 $(+ <$type as Field>::BYTES)* == $bytes && $bytes % 8 == 0);

            impl Inspected for $name {
                const BYTES: usize = $bytes;
                const KIND: usize = $kind;

                fn put(&self, mut to: &mut [u8]) {
                    $(
                        let (place, rest) = core::mem::take(&mut to).split_at_mut(<$type as Field>::BYTES);
                        self.$field.put(place);
                        to = rest;
                    )*
                    let _ = to;
                }

                fn get(mut from: &[u8]) -> Self {
                    $(
                        let (place, rest) = from.split_at(<$type as Field>::BYTES);
                        let $field = <$type as Field>::get(place);
                        from = rest;
                    )*
                    let _ = from;
                    Self { $($field,)* }
                }
            }

            impl Default for $name {
                fn default() -> Self {
                    Self::get(&[0; $bytes])
                }
            }
        )*
    };
}

records! {
    /// Stands before the records.
    InspectHeader: 16, 0 => {
        /// Records that follow.
        count: u64,
        /// Where to go on; 0 if there are no more.
        next: u64,
    }

    /// A hart.
    HartRecord: 96, kind::HARTS => {
        /// Its number.
        hart: u32,
        /// Priority of the coroutine of the kernel that it polls; 64 if it polls none.
        current_priority: u32,
        /// That coroutine; 0 if none. While a process runs it is a switching coroutine.
        current_coroutine: u64,
        /// Process and virtual CPU that run here; process 0 if none.
        process: u32,
        /// See `process`.
        cpu: u32,
        /// Bit p: coroutines of the kernel of priority p wait in this hart's lists.
        ready: u64,
        /// Bit p: the same, in its inbox.
        posted: u64,
        /// Polls so far.
        polls: u64,
        /// Coroutines it took over from other harts.
        steals: u64,
        /// Ticks that it slept.
        asleep_ticks: u64,
        /// Ticks that it spent on processes: in user mode, and in the kernel on their behalf.
        process_ticks: u64,
        /// Ticks of the machine's clock when this was written.
        now_ticks: u64,
        /// Bit p: virtual CPUs of priority p wait for a hart. The same for all harts.
        run_queue: u64,
        /// For later.
        reserved: u64,
    }

    /// A process.
    ProcessRecord: 136, kind::PROCESSES => {
        /// Its number.
        process: u32,
        /// Its parent's; 0 if it has none any more.
        parent: u32,
        /// See [`state`]: that of its most active virtual CPU.
        state: u32,
        /// Virtual CPUs.
        cpus: u32,
        /// The most urgent level of its virtual CPUs; 64 if it has none.
        level: u32,
        /// The most urgent level it may have.
        ceiling: u32,
        /// Pages of memory that it has in use, those shared with the kernel included.
        pages: u64,
        /// Ticks that its virtual CPUs had a hart.
        run_ticks: u64,
        /// Polls of its coroutines, as it says.
        polls: u64,
        /// Asynchronous calls in flight.
        calls_in_flight: u64,
        /// What it was started as; cut, and filled up with zeros.
        name: [u8; 80],
    }

    /// A virtual CPU.
    CpuRecord: 64, kind::CPUS => {
        /// Its process.
        process: u32,
        /// Its number there.
        cpu: u32,
        /// See [`state`].
        state: u32,
        /// The hart, if it runs.
        hart: u32,
        /// The level it is scheduled at.
        level: u32,
        /// Priority of the coroutine it polls, as the process says; 64 if none.
        current_priority: u32,
        /// That coroutine, as the process says; 0 if none.
        current_coroutine: u64,
        /// Bit p: coroutines of priority p wait in its lists, as the process says.
        ready: u64,
        /// The same, in its inbox.
        posted: u64,
        /// Polls, as the process says.
        polls: u64,
        /// Ticks that it had a hart.
        run_ticks: u64,
    }

    /// The longest portion of one kind and detail that a hart has executed.
    PortionRecord: 80, kind::PORTIONS => {
        /// See [`portion`].
        kind: u32,
        /// See [`portion`].
        detail: u32,
        /// The hart.
        hart: u32,
        /// For later.
        reserved: u32,
        /// Instructions of the longest.
        longest: u64,
        /// How many there were.
        count: u64,
        /// About the longest: the first argument of the call, the service's coroutine, or the kind and detail of the portion in which it was.
        about: u64,
        /// The second argument of the call.
        about_1: u64,
        /// The third.
        about_2: u64,
        /// The fourth.
        about_3: u64,
        /// The service's name; zeros otherwise.
        name: [u8; 16],
    }

    /// A coroutine.
    CoroutineRecord: 40, kind::COROUTINES => {
        /// Its id.
        coroutine: u64,
        /// Its process; 0: the kernel.
        process: u32,
        /// See [`state`].
        state: u32,
        /// 0 to 63.
        priority: u32,
        /// The worker (hart, virtual CPU) that runs it or ran it last.
        worker: u32,
        /// What it is, if it is a service of the kernel; zeros otherwise.
        name: [u8; 16],
    }
}

/// A name in a record, without what fills it up.
#[must_use]
pub fn text(bytes: &[u8]) -> &str {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    match core::str::from_utf8(&bytes[..end]) {
        Ok(text) => text,
        // Cut in the middle of a letter.
        Err(error) => core::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or(""),
    }
}

/// Bytes for a name in a record: cut if it is too long. Of a path the end is kept, which says more.
#[must_use]
pub fn name<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    let start = text.len().saturating_sub(N);
    let start = (start..text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len());
    for (place, byte) in bytes.iter_mut().zip(text.bytes().skip(start)) {
        *place = byte;
    }
    bytes
}

/// Header and records of a reply; `None` if it is none of this version.
#[must_use]
pub fn parse<R: Inspected>(reply: &[u8]) -> Option<(InspectHeader, impl Iterator<Item = R>)> {
    let header = InspectHeader::get(reply.get(..InspectHeader::BYTES)?);
    let records = &reply[InspectHeader::BYTES..];
    let count = usize::try_from(header.count).ok()?;
    let records = records.get(..count.checked_mul(R::BYTES)?)?;
    Some((header, records.chunks_exact(R::BYTES).map(R::get)))
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    fn survives<R: Inspected + PartialEq + core::fmt::Debug>() {
        let bytes: Vec<u8> = (0..R::BYTES).map(|index| index as u8).collect();
        let record = R::get(&bytes);
        let mut again = std::vec![0; R::BYTES];
        record.put(&mut again);
        assert_eq!(bytes, again);
        assert!(InspectHeader::BYTES + R::BYTES <= REPLY_BYTES_MAX, "a reply has room for one");
    }

    #[test]
    fn records_survive_the_boundary() {
        survives::<InspectHeader>();
        survives::<HartRecord>();
        survives::<ProcessRecord>();
        survives::<CpuRecord>();
        survives::<CoroutineRecord>();
        survives::<PortionRecord>();
    }

    #[test]
    fn names_are_cut_at_letters() {
        assert_eq!(text(&name::<8>("abc")), "abc");
        assert_eq!(text(&name::<4>("/bin/hello")), "ello");
        assert_eq!(text(&name::<4>("xéyz")), "éyz");
        assert_eq!(text(&name::<2>("aéz")), "z");
        assert_eq!(text(b"a\xff"), "a");
    }

    #[test]
    fn replies_that_are_too_short_are_none() {
        let mut reply = [0; 100];
        InspectHeader { count: 2, next: 7 }.put(&mut reply);
        let (header, records) = parse::<CoroutineRecord>(&reply).unwrap();
        assert_eq!((header.next, records.count()), (7, 2));
        assert!(parse::<CoroutineRecord>(&reply[..90]).is_none());
        assert!(parse::<CoroutineRecord>(&reply[..15]).is_none());
        InspectHeader { count: u64::MAX, next: 0 }.put(&mut reply);
        assert!(parse::<CoroutineRecord>(&reply).is_none());
    }
}
