//! Trace events: what they are, and the rings they travel in.
//!
//! An event is one [`Record`] of 32 bytes. The kernel keeps a ring of records for each hart; a process that was
//! started while tracing was on has a small ring for each virtual CPU, in a page shared with the kernel, which
//! moves what it finds there to the hart's ring whenever that virtual CPU enters the kernel. `docs/abi.md`,
//! section 5, is the normative text, `docs/book/inspection.md` the explanation.
//!
//! The ring. Whoever writes is on one hart or virtual CPU, but may be interrupted there by a handler that writes too;
//! whoever reads may be anywhere. A writer takes a number (one atomic addition), writes the record's words, and
//! last the word that says which lap of the ring the record belongs to. A reader copies the words and then
//! checks the lap and that the number has not gone out of reach: what was being written or overwritten meanwhile
//! is not believed. Nobody waits, and the oldest is overwritten.

use core::sync::atomic::{AtomicU64, Ordering::*, fence};

/// Bytes of a record.
pub const RECORD_BYTES: usize = 32;
/// Records in a [`TracePage`].
pub const PAGE_RECORDS: usize = 127;

/// One event with the circumstances under which it was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Ticks of the machine's clock.
    pub time_ticks: u64,
    /// Which event: see [`Event`].
    pub kind: u8,
    /// A priority, where the event has one.
    pub level: u8,
    /// The hart it happened on, 0 to 15.
    pub hart: u8,
    /// The virtual CPU, where the event has one, 0 to 15.
    pub cpu: u8,
    /// The process, where the event has one; 0 otherwise.
    pub process: u32,
    /// Id of a coroutine of the kernel or of `process`, as the event says.
    pub coroutine: u64,
    /// As the event says.
    pub argument: u64,
}

impl Record {
    /// As it lies in rings and goes to files, with the lap in bits 24 to 31 of the second word.
    #[must_use]
    pub const fn to_words(self, lap: u8) -> [u64; 4] {
        let place = (self.hart as u64 & 15) << 4 | self.cpu as u64 & 15;
        let head = self.kind as u64
            | (self.level as u64) << 8
            | place << 16
            | (lap as u64) << 24
            | (self.process as u64) << 32;
        [self.time_ticks, head, self.coroutine, self.argument]
    }

    /// Reads [`Self::to_words`] back; any words are some record.
    #[must_use]
    pub const fn from_words(words: [u64; 4]) -> Self {
        let [time_ticks, head, coroutine, argument] = words;
        Self {
            time_ticks,
            kind: head as u8,
            level: (head >> 8) as u8,
            hart: (head >> 20) as u8 & 15,
            cpu: (head >> 16) as u8 & 15,
            process: (head >> 32) as u32,
            coroutine,
            argument,
        }
    }

    /// The words as little-endian bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(self.to_words(0)) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads [`Self::to_bytes`] back.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; RECORD_BYTES]) -> Self {
        let mut words = [0; 4];
        for (word, part) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*part);
        }
        Self::from_words(words)
    }

    /// The event, if this version knows it.
    #[must_use]
    pub fn event(&self) -> Option<Event> {
        Event::of(self)
    }
}

macro_rules! events {
    ($($(#[$doc:meta])+ $name:ident = $kind:literal { $($field:ident: $type:ty = $place:ident),* };)*) => {
        /// What can happen. Which field of a [`Record`] holds what is part of the ABI.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum Event { $($(#[$doc])+ $name { $($field: $type),* },)* }

        impl Event {
            /// Numbers and names of all events.
            pub const KINDS: &'static [(u8, &'static str)] = &[$(($kind, stringify!($name))),*];

            /// A record of this event, without time and hart.
            #[must_use]
            pub fn to_record(self) -> Record {
                match self {
                    $(Event::$name { $($field),* } => Record {
                        kind: $kind, $($place: $field,)* ..Record::default()
                    },)*
                }
            }

            fn of(record: &Record) -> Option<Self> {
                match record.kind {
                    $($kind => Some(Event::$name { $($field: record.$place),* }),)*
                    _ => None,
                }
            }
        }
    };
}

events! {
    // Coroutines of the kernel.
    /// The hart begins to poll a coroutine of the kernel.
    PollBegin = 1 { coroutine: u64 = coroutine, level: u8 = level };
    /// The poll is over; `finished` is 1 if the coroutine has ended.
    PollEnd = 2 { coroutine: u64 = coroutine, finished: u64 = argument };
    /// A coroutine of the kernel is woken by another (0: by an interrupt handler or at no coroutine's hands).
    Wake = 3 { coroutine: u64 = coroutine, by: u64 = argument };
    /// A coroutine of the kernel was made. 0 if there was no memory.
    Spawn = 4 { coroutine: u64 = coroutine, by: u64 = argument, level: u8 = level };
    /// A coroutine of the kernel gets another priority.
    SetPriority = 5 { coroutine: u64 = coroutine, level: u8 = level };

    // Harts.
    /// The hart has nothing to do and sleeps.
    Sleep = 8 {};
    /// It sleeps no more.
    Awake = 9 {};
    /// An interrupt: 1 the clock, 2 another hart, 3 a device.
    Interrupt = 10 { source: u64 = argument };
    /// Another hart is interrupted: why 1 to end its sleep, 2 to make it look.
    SendInterrupt = 11 { hart: u64 = argument, why: u8 = level };

    // Virtual CPUs.
    /// The hart enters user mode on this virtual CPU.
    EnterUser = 16 { process: u32 = process, cpu: u8 = cpu, level: u8 = level };
    /// User mode was left by a system call. `coroutine` names the caller of an asynchronous one.
    SystemCall = 17 { process: u32 = process, cpu: u8 = cpu, coroutine: u64 = coroutine, number: u64 = argument };
    /// User mode was left by an interrupt, or entering it was given up; `coroutine` is what the process says it ran.
    Interrupted = 18 { process: u32 = process, cpu: u8 = cpu, coroutine: u64 = coroutine };
    /// User mode was left by a fault.
    Fault = 19 { process: u32 = process, cpu: u8 = cpu, coroutine: u64 = coroutine };
    /// The virtual CPU gives way to another one of priority `level` (64: to none, its time is up).
    Preempted = 20 { process: u32 = process, cpu: u8 = cpu, level: u8 = level };
    /// The virtual CPU waits on its hart while coroutines of the kernel run.
    Paused = 21 { process: u32 = process, cpu: u8 = cpu };
    /// It has nothing to do and is parked.
    Park = 22 { process: u32 = process, cpu: u8 = cpu };
    /// It is runnable again.
    Unpark = 23 { process: u32 = process, cpu: u8 = cpu };
    /// It waits in a synchronous call.
    WaitBegin = 24 { process: u32 = process, cpu: u8 = cpu };
    /// That call has its result.
    WaitEnd = 25 { process: u32 = process, cpu: u8 = cpu };

    // Asynchronous calls, by the token that the caller chose.
    /// A call has to wait.
    CallBegin = 32 { process: u32 = process, coroutine: u64 = coroutine, token: u64 = argument, level: u8 = level };
    /// Its result is on its way to the wake ring.
    CallComplete = 33 { process: u32 = process, coroutine: u64 = coroutine, token: u64 = argument };
    /// It was cancelled, or there was no room for it.
    CallCancelled = 34 { process: u32 = process, coroutine: u64 = coroutine, token: u64 = argument };

    // User-level interrupts.
    /// Posted for a process; a hart runs it and is interrupted.
    UserInterruptSent = 40 { process: u32 = process, level: u8 = level, hart: u64 = argument };
    /// Posted, and nobody need be interrupted.
    UserInterruptSuppressed = 41 { process: u32 = process, level: u8 = level };
    /// The handler of the process is entered on this virtual CPU.
    UserInterruptTaken = 42 { process: u32 = process, cpu: u8 = cpu };

    // What a process says about its own coroutines.
    /// The virtual CPU begins to poll a coroutine.
    UserPollBegin = 48 { process: u32 = process, cpu: u8 = cpu, coroutine: u64 = coroutine, level: u8 = level };
    /// The poll is over.
    UserPollEnd = 49 { process: u32 = process, cpu: u8 = cpu, coroutine: u64 = coroutine, finished: u64 = argument };
    /// A coroutine is woken by another of the process (0: by the result of a call).
    UserWake = 50 { process: u32 = process, cpu: u8 = cpu, coroutine: u64 = coroutine, by: u64 = argument };
    /// A coroutine was made.
    UserSpawn = 51 { process: u32 = process, cpu: u8 = cpu, coroutine: u64 = coroutine, by: u64 = argument, level: u8 = level };
    /// The program marks a moment with a number of its choice.
    UserMark = 52 { process: u32 = process, cpu: u8 = cpu, coroutine: u64 = coroutine, value: u64 = argument };

    // The kernel's notes on the record itself.
    /// So many records of a virtual CPU's page were overwritten before the kernel could move them.
    Lost = 60 { process: u32 = process, cpu: u8 = cpu, count: u64 = argument };
    /// In a dump: ticks per second, and harts. The first record.
    DumpBegin = 64 { ticks_per_second: u64 = argument, harts: u64 = coroutine };
    /// In a dump: what follows is the ring of a hart; so many records, so many older ones overwritten.
    DumpRing = 65 { hart: u8 = level, records: u64 = coroutine, overwritten: u64 = argument };
    /// In a dump: eight bytes of a process's name, from byte 8 x `part` on.
    ProcessName = 66 { process: u32 = process, part: u8 = level, bytes: u64 = argument };
    /// In a dump: eight bytes of the name of a coroutine of the kernel.
    CoroutineName = 67 { coroutine: u64 = coroutine, part: u8 = level, bytes: u64 = argument };
    /// In a dump: the last record.
    DumpEnd = 68 {};
    /// In a dump: eight bytes of the name of a system call.
    SystemCallName = 69 { number: u64 = coroutine, part: u8 = level, bytes: u64 = argument };
}

impl Event {
    /// Whether a process may write it.
    #[must_use]
    pub const fn is_user_kind(kind: u8) -> bool {
        48 <= kind && kind <= 52
    }
}

/// A place for a record in a ring.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Slot([AtomicU64; 4]);

impl Slot {
    /// An empty one.
    #[must_use]
    pub const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; 4])
    }
}

/// The lap that record `number` belongs to; never 0, so that a fresh slot belongs to none.
const fn lap(number: u64, capacity: u64) -> u8 {
    (number / capacity % 255) as u8 + 1
}

const LAP_SHIFT: u32 = 24;

/// A ring over somebody's memory: how many records were begun, and the places.
#[derive(Clone, Copy, Debug)]
pub struct Ring<'a> {
    begun: &'a AtomicU64,
    slots: &'a [Slot],
}

/// Records of a ring as they could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portion {
    /// Number of the first record that was read, counted since the ring began: those before it that were asked for
    /// are lost.
    pub first: u64,
    /// Records read.
    pub count: usize,
}

impl<'a> Ring<'a> {
    /// A ring of `slots`, of which there is at least one.
    #[must_use]
    pub const fn new(begun: &'a AtomicU64, slots: &'a [Slot]) -> Self {
        Self { begun, slots }
    }

    fn capacity(&self) -> u64 {
        self.slots.len().max(1) as u64
    }

    /// Records begun so far: the number of the next.
    #[must_use]
    pub fn begun(&self) -> u64 {
        self.begun.load(Acquire)
    }

    /// Writes a record; from one hart or virtual CPU only, interrupt handlers included.
    #[inline]
    pub fn write(&self, record: Record) {
        let number = self.begun.fetch_add(1, Relaxed);
        let Some(Slot(words)) = self.slots.get((number % self.capacity()) as usize) else { return };
        // A reader that finds any of the words below also finds the number above taken.
        fence(Release);
        let [time, head, coroutine, argument] = record.to_words(lap(number, self.capacity()));
        words[0].store(time, Relaxed);
        words[2].store(coroutine, Relaxed);
        words[3].store(argument, Relaxed);
        // Pairs with the reader's acquire: who sees this lap sees the words.
        words[1].store(head, Release);
    }

    /// Reads record `number`: `None` if it is not written yet or overwritten already.
    fn read_one(&self, number: u64) -> Option<Record> {
        let Slot(words) = self.slots.get((number % self.capacity()) as usize)?;
        let head = words[1].load(Acquire);
        let [time, coroutine, argument] = [0, 2, 3].map(|index: usize| words[index].load(Relaxed));
        fence(Acquire);
        let is_overwritten = self.begun.load(Relaxed).wrapping_sub(number) > self.capacity();
        if is_overwritten || (head >> LAP_SHIFT) as u8 != lap(number, self.capacity()) {
            return None;
        }
        Some(Record::from_words([time, head, coroutine, argument]))
    }

    /// Reads records from number `from` on, oldest first, at most `limit`, into `put`. Records that are no longer
    /// there are skipped; it ends at one that is not complete yet.
    pub fn read(&self, from: u64, limit: usize, mut put: impl FnMut(Record)) -> Portion {
        let begun = self.begun();
        let oldest = begun.saturating_sub(self.capacity());
        let mut portion = Portion { first: from.max(oldest).min(begun), count: 0 };
        while portion.count < limit {
            let number = portion.first + portion.count as u64;
            if number >= begun {
                break;
            }
            match self.read_one(number) {
                Some(record) => {
                    put(record);
                    portion.count += 1;
                }
                // Overwritten while we looked: begin behind it. Only before the first; later it ends the portion.
                None if portion.count == 0 && self.begun().wrapping_sub(number) > self.capacity() => {
                    portion.first += 1
                }
                None => break,
            }
        }
        portion
    }
}

/// The ring of one virtual CPU: in the process's memory, written by it, read by the kernel, which believes none of it.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct TracePage {
    /// Records begun since the virtual CPU started.
    pub begun: AtomicU64,
    reserved: [u64; 3],
    slots: [Slot; PAGE_RECORDS],
}

const _: () = assert!(size_of::<TracePage>() == 4096);
const _: () = assert!(size_of::<Slot>() == RECORD_BYTES);

impl TracePage {
    /// The ring in this page.
    #[must_use]
    pub const fn ring(&self) -> Ring<'_> {
        Ring::new(&self.begun, &self.slots)
    }
}

/// What [`crate::syscall::COPS_TRACE`] does.
pub mod operation {
    /// `(CONTROL, 0 off, 1 on, 2 only ask) -> 0 or 1`: what it was before. Of the whole machine.
    pub const CONTROL: usize = 0;
    /// `(READ, hart, *mut ReadHeader, bytes) -> bytes`: the header's `from` says where to begin.
    pub const READ: usize = 1;
    /// `(MARK, value)`: writes [`Event::UserMark`](super::Event::UserMark) from the kernel.
    pub const MARK: usize = 2;
}

/// What stands before the records that `READ` fills in.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadHeader {
    /// In: the number of the first record wanted. Out: of the first that is there; those between are lost.
    pub from: u64,
    /// Out: records that follow.
    pub count: u64,
    /// Out: records this hart has written since tracing was first on.
    pub begun: u64,
    /// Out: records its ring holds.
    pub capacity: u64,
}

const _: () = assert!(size_of::<ReadHeader>() == RECORD_BYTES);

impl ReadHeader {
    /// As it travels.
    #[must_use]
    pub fn to_bytes(self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        let words = [self.from, self.count, self.begun, self.capacity];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads [`Self::to_bytes`] back.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; RECORD_BYTES]) -> Self {
        let mut words = [0; 4];
        for (word, part) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*part);
        }
        let [from, count, begun, capacity] = words;
        Self { from, count, begun, capacity }
    }
}

#[cfg(test)]
#[path = "trace_tests.rs"]
mod tests;
