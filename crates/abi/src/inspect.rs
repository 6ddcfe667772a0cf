//! Records of `COPS_INSPECT`: the state of processes, virtual CPUs, coroutines and harts.
//!
//! A call asks for records of one kind, beginning with a given number. The reply is an
//! [`InspectHeader`] followed by as many records as fit; the header says from which number the next
//! call continues. Each record is consistent in itself. A change between two records, or between
//! two calls, may be missed.
//!
//! Values that a process publishes about itself (its coroutines, bitmaps and polls) are copied from
//! its memory and limited to their range. A process can falsify only the values about itself.
//!
//! The layouts are part of the ABI: little endian, in the order of the fields, without padding.

/// Version of the records; bits 8 and up of the call's first argument.
pub const INSPECT_VERSION: usize = 2;
/// Maximum size of a reply, in bytes.
pub const REPLY_BYTES_MAX: usize = 2048;

/// First argument of the call for records of `kind`.
#[must_use]
pub const fn request(kind: usize) -> usize {
    INSPECT_VERSION << 8 | kind
}

/// Kinds of records.
pub mod kind {
    /// [`HartRecord`](super::HartRecord)s. `from` is the number of a hart.
    pub const HARTS: usize = 1;
    /// [`ProcessRecord`](super::ProcessRecord)s. `from` is the number of a process.
    pub const PROCESSES: usize = 2;
    /// [`CpuRecord`](super::CpuRecord)s of one process. `from` is process << 32 | virtual CPU.
    pub const CPUS: usize = 3;
    /// [`CoroutineRecord`](super::CoroutineRecord)s of one process (0: of the kernel). `from` is
    /// process << 32 | slot.
    pub const COROUTINES: usize = 4;
    /// [`PortionRecord`](super::PortionRecord)s. `from` is a record's number. There are none unless
    /// the kernel was booted with `portions=on`.
    pub const PORTIONS: usize = 5;
}

/// Kinds of portions. A portion is what the kernel executes between two points at which something
/// more urgent can take the hart (SPEC 3.13a), or with interrupts disabled, or with the run queue
/// locked.
pub mod portion {
    /// A system call, or a portion of one. Detail: its number.
    pub const SYSTEM_CALL: u32 = 1;
    /// A page fault or another exception of a process. Detail: 0.
    pub const FAULT: u32 = 2;
    /// The work after an interrupt of user mode, without the handler itself. Detail: 0.
    pub const INTERRUPTED: u32 = 3;
    /// Choosing the virtual CPU that runs next and preparing its entry into user mode. Detail: 0.
    pub const SWITCH: u32 = 4;
    /// A poll of a kernel service. Detail: its slot.
    pub const SERVICE: u32 = 5;
    /// A poll of the coroutine that completes a call. Detail: the operation.
    pub const CALL: u32 = 6;
    /// The executor's own work between two polls. Detail: 0.
    pub const EXECUTOR: u32 = 7;
    /// An interrupt handler. Detail: the cause.
    pub const HANDLER: u32 = 8;
    /// A section with interrupts disabled. Detail: 0.
    pub const INTERRUPTS_OFF: u32 = 9;
    /// A section with the run queue locked. Detail: the purpose.
    pub const RUN_QUEUE: u32 = 10;
    /// Portions of kinds for which the kernel's table had no room: their lengths are known, but not
    /// what they were.
    pub const OVERFLOW: u32 = 11;

    /// Maximum number of instructions of one portion.
    pub const LIMIT: u64 = 50_000;

    /// The name in reports.
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
            OVERFLOW => "overflow",
            _ => "?",
        }
    }
}

/// States of processes, virtual CPUs and coroutines (SPEC 3.6). Not every state applies to all
/// three.
pub mod state {
    /// Waits for a virtual CPU or a hart.
    pub const READY: u32 = 1;
    /// Runs on a hart.
    pub const RUNNING: u32 = 2;
    /// Running-suspended: interrupted during a poll, and resumes there.
    pub const SUSPENDED: u32 = 3;
    /// Waits for an event: a wake, or the result of a synchronous call.
    pub const BLOCKED: u32 = 4;
    /// A virtual CPU without work, or a process with only such virtual CPUs.
    pub const PARKED: u32 = 5;
    /// Has ended, but has not been waited for.
    pub const ENDED: u32 = 6;
    /// Stopped by a signal.
    pub const STOPPED: u32 = 7;

    /// The name in reports.
    #[must_use]
    pub const fn name(state: u32) -> &'static str {
        match state {
            READY => "ready",
            RUNNING => "running",
            SUSPENDED => "suspended",
            BLOCKED => "blocked",
            PARKED => "parked",
            ENDED => "ended",
            STOPPED => "stopped",
            _ => "?",
        }
    }
}

/// What a coroutine is (SPEC 2.1). The kind is in the table of functions that its control block
/// points to.
pub mod coroutine_kind {
    /// A coroutine of a program.
    pub const TASK: u32 = 0;
    /// The `main` of a program.
    pub const MAIN: u32 = 1;
    /// Completes a system call that waits.
    pub const CALL: u32 = 2;
    /// A service of the kernel.
    pub const SERVICE: u32 = 3;
    /// The kernel's coroutine that switches to user mode, one for each hart.
    pub const SWITCHING: u32 = 4;

    /// The name in reports.
    #[must_use]
    pub const fn name(kind: u32) -> &'static str {
        match kind {
            TASK => "task",
            MAIN => "main",
            CALL => "call",
            SERVICE => "service",
            SWITCHING => "switching",
            _ => "?",
        }
    }
}

/// Why a coroutine is running-suspended: how its virtual CPU entered the kernel (SPEC 3.6).
pub mod cause {
    /// It is not.
    pub const NONE: u32 = 0;
    /// It was interrupted.
    pub const INTERRUPT: u32 = 1;
    /// An exception, such as a page fault.
    pub const EXCEPTION: u32 = 2;
    /// A synchronous system call.
    pub const CALL: u32 = 3;

    /// The name in reports; empty for none.
    #[must_use]
    pub const fn name(cause: u32) -> &'static str {
        match cause {
            INTERRUPT => "interrupt",
            EXCEPTION => "exception",
            CALL => "call",
            _ => "",
        }
    }
}

/// An integer or byte array in a record.
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

/// A record that is transferred as bytes.
pub trait Inspected: Copy {
    /// Its size in bytes, a multiple of 8.
    const BYTES: usize;
    /// Its number in [`kind`]; 0 if it cannot be asked for by itself.
    const KIND: usize;

    /// Writes the record to the start of `to`, which has at least [`Inspected::BYTES`] bytes.
    fn put(&self, to: &mut [u8]);

    /// Reads a record from the start of `from`, which has at least [`Inspected::BYTES`] bytes.
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
    /// Precedes the records of a reply.
    InspectHeader: 16, 0 => {
        /// Records that follow.
        count: u64,
        /// The number from which the next call continues; 0 if there are no more records.
        next: u64,
    }

    /// A hart.
    HartRecord: 96, kind::HARTS => {
        /// Its number.
        hart: u32,
        /// Priority of the kernel coroutine that it polls; 64 if it polls none.
        current_priority: u32,
        /// That coroutine; 0 if none. While the hart runs a process, this is its switching
        /// coroutine.
        current_coroutine: u64,
        /// The process that runs on it; 0 if none.
        process: u32,
        /// The virtual CPU that runs on it, if a process does.
        cpu: u32,
        /// Bit p: kernel coroutines of priority p are in this hart's ready lists.
        ready: u64,
        /// Bit p: kernel coroutines of priority p are in its inbox.
        posted: u64,
        /// Polls so far.
        polls: u64,
        /// Coroutines that it stole from other harts.
        steals: u64,
        /// Ticks during which it slept.
        asleep_ticks: u64,
        /// Ticks spent on processes: in user mode, and in the kernel on their behalf.
        process_ticks: u64,
        /// The machine's clock when the record was written, in ticks.
        now_ticks: u64,
        /// Bit p: virtual CPUs of priority p wait for a hart. The same for all harts.
        run_queue: u64,
        /// Reserved; 0.
        reserved: u64,
    }

    /// A process.
    ProcessRecord: 136, kind::PROCESSES => {
        /// Its number.
        process: u32,
        /// Its parent's number; 0 if the parent has ended.
        parent: u32,
        /// The [`state`] of its most active virtual CPU.
        state: u32,
        /// Number of virtual CPUs.
        cpus: u32,
        /// The most urgent level of its virtual CPUs; 64 if it has none.
        level: u32,
        /// Its ceiling: the most urgent level it may have.
        ceiling: u32,
        /// Pages of memory that it uses, including pages shared with the kernel.
        pages: u64,
        /// Ticks during which its virtual CPUs had a hart.
        run_ticks: u64,
        /// Polls of its coroutines, as the process publishes them.
        polls: u64,
        /// Asynchronous calls in flight.
        calls_in_flight: u64,
        /// The name it was started with, cut to size and padded with zeros.
        name: [u8; 80],
    }

    /// A virtual CPU.
    CpuRecord: 72, kind::CPUS => {
        /// Number of its process.
        process: u32,
        /// Its number within the process.
        cpu: u32,
        /// See [`state`].
        state: u32,
        /// Number of the hart that runs it, if its state is running.
        hart: u32,
        /// The level it is scheduled at.
        level: u32,
        /// Priority of the coroutine that it polls, as the process publishes it; 64 if none.
        current_priority: u32,
        /// That coroutine, as the process publishes it; 0 if none.
        current_coroutine: u64,
        /// Bit p: coroutines of priority p are in its ready lists, as the process publishes it.
        ready: u64,
        /// The same for its inbox.
        posted: u64,
        /// Polls, as the process publishes them.
        polls: u64,
        /// Ticks during which it had a hart.
        run_ticks: u64,
        /// If its state is suspended or blocked: how it entered the kernel, see [`cause`].
        cause: u32,
        /// Reserved; 0.
        reserved: u32,
    }

    /// The longest portion of one kind and detail on one hart.
    PortionRecord: 80, kind::PORTIONS => {
        /// See [`portion`].
        kind: u32,
        /// See [`portion`].
        detail: u32,
        /// The hart.
        hart: u32,
        /// Reserved; 0.
        reserved: u32,
        /// Length of the longest portion, in instructions.
        longest: u64,
        /// Number of portions of this kind and detail.
        count: u64,
        /// About the longest portion: the first argument of the call, the service's coroutine, or
        /// the kind and detail of the portion that contained it.
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
    CoroutineRecord: 48, kind::COROUTINES => {
        /// Its id, see [`crate::CoroutineId`].
        coroutine: u64,
        /// Number of its process; 0 for the kernel.
        process: u32,
        /// See [`state`].
        state: u32,
        /// 0 to 63.
        priority: u32,
        /// The worker (hart or virtual CPU) that runs it or ran it last.
        worker: u32,
        /// See [`coroutine_kind`]. That of a process's coroutine is as the process claims.
        kind: u32,
        /// If its state is suspended: why, see [`cause`].
        cause: u32,
        /// The name of a kernel service; zeros otherwise.
        name: [u8; 16],
    }
}

/// The text of a name in a record, without its padding.
#[must_use]
pub fn text(bytes: &[u8]) -> &str {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    match core::str::from_utf8(&bytes[..end]) {
        Ok(text) => text,
        // The name was cut in the middle of a character.
        Err(error) => core::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or(""),
    }
}

/// Converts a name for a record. A name that is too long loses its beginning, because the end of a
/// path tells more.
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

/// Splits a reply into its header and records. `None` if it is not a reply of this version.
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
        let mut reply = [0; 120];
        InspectHeader { count: 2, next: 7 }.put(&mut reply);
        let (header, records) = parse::<CoroutineRecord>(&reply).unwrap();
        assert_eq!((header.next, records.count()), (7, 2));
        assert!(parse::<CoroutineRecord>(&reply[..90]).is_none());
        assert!(parse::<CoroutineRecord>(&reply[..15]).is_none());
        InspectHeader { count: u64::MAX, next: 0 }.put(&mut reply);
        assert!(parse::<CoroutineRecord>(&reply).is_none());
    }
}
