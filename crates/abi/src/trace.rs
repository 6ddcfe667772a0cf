//! Trace events, and the rings that hold them.
//!
//! An event is one [`Record`] of 32 bytes. The kernel has a ring of records for each hart. A
//! process that was started while tracing was on has a small ring for each virtual CPU, in a page
//! shared with the kernel; the kernel moves the records from there to the hart's ring whenever that
//! virtual CPU enters the kernel. `docs/abi.md`, section 5, is the normative text;
//! `docs/book/inspection.md` explains it.
//!
//! Each ring has a single writing hart or virtual CPU, but an interrupt handler there may write
//! while it interrupts another write. Readers may be on any hart.
//!
//! - A writer takes a number with one atomic addition, writes the record's words, and last the word
//!   that holds the record's *lap*: a count of the passes around the ring.
//! - A reader copies the words, then checks the lap and that the number has not been overwritten.
//!   It discards a record that was being written or overwritten meanwhile.
//!
//! Neither side waits for the other. A new record overwrites the oldest.

use core::sync::atomic::{AtomicU64, Ordering::*, fence};

/// Bytes of a record.
pub const RECORD_BYTES: usize = 32;
/// Records in a [`TracePage`].
pub const PAGE_RECORDS: usize = 127;

/// One event with its circumstances: time, hart, process and so on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The machine's clock, in ticks.
    pub time_ticks: u64,
    /// The event's number, see [`Event`].
    pub kind: u8,
    /// A priority, where the event has one.
    pub level: u8,
    /// The hart on which it happened, 0 to 15.
    pub hart: u8,
    /// The virtual CPU, where the event has one, 0 to 15.
    pub cpu: u8,
    /// The process, where the event has one; 0 otherwise.
    pub process: u32,
    /// Id of a coroutine of the kernel or of `process`, depending on the event.
    pub coroutine: u64,
    /// Meaning depends on the event.
    pub argument: u64,
}

impl Record {
    /// The record as four words, for rings and files. The lap is in bits 24 to 31 of the second
    /// word.
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

    /// Reads [`Self::to_words`] back. Any four words are a record.
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
        /// The events. The assignment of their fields to those of a [`Record`] is part of the ABI.
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
    /// The hart begins to poll a kernel coroutine of this
    /// [kind](crate::inspect::coroutine_kind).
    PollBegin = 1 { coroutine: u64 = coroutine, level: u8 = level, kind: u8 = cpu };
    /// The poll has returned; `finished` is 1 if the coroutine has ended.
    PollEnd = 2 { coroutine: u64 = coroutine, finished: u64 = argument };
    /// A kernel coroutine is woken by the coroutine `by` (0: by an interrupt handler, or outside of
    /// any coroutine).
    Wake = 3 { coroutine: u64 = coroutine, by: u64 = argument };
    /// A kernel coroutine was spawned. `coroutine` is 0 if there was no memory.
    Spawn = 4 { coroutine: u64 = coroutine, by: u64 = argument, level: u8 = level };
    /// A kernel coroutine's priority is changed.
    SetPriority = 5 { coroutine: u64 = coroutine, level: u8 = level };

    // Harts.
    /// The hart goes to sleep because it has no work.
    Sleep = 8 {};
    /// The hart wakes up.
    Awake = 9 {};
    /// An interrupt is taken. Source: 1 the clock, 2 another hart, 3 a device.
    Interrupt = 10 { source: u64 = argument };
    /// Another hart is interrupted. Why: 1 to end its sleep, 2 to make it reschedule.
    SendInterrupt = 11 { hart: u64 = argument, why: u8 = level };

    // Virtual CPUs.
    /// The hart enters user mode on this virtual CPU.
    EnterUser = 16 { process: u32 = process, cpu: u8 = cpu, level: u8 = level };
    /// The virtual CPU has entered the kernel by a system call. `coroutine` is the caller of an
    /// asynchronous one.
    SystemCall = 17 { process: u32 = process, cpu: u8 = cpu, coroutine: u64 = coroutine, number: u64 = argument };
    /// The virtual CPU was interrupted in user mode or just before it entered; `coroutine` is what
    /// the process says it ran.
    Interrupted = 18 { process: u32 = process, cpu: u8 = cpu, coroutine: u64 = coroutine };
    /// The virtual CPU has entered the kernel by a fault.
    Fault = 19 { process: u32 = process, cpu: u8 = cpu, coroutine: u64 = coroutine };
    /// The virtual CPU is preempted by another one of priority `level` (64: by none, its time slice
    /// has ended).
    Preempted = 20 { process: u32 = process, cpu: u8 = cpu, level: u8 = level };
    /// The virtual CPU is paused on its hart while kernel coroutines run.
    Paused = 21 { process: u32 = process, cpu: u8 = cpu };
    /// The virtual CPU has no work and parks.
    Park = 22 { process: u32 = process, cpu: u8 = cpu };
    /// The virtual CPU is runnable again.
    Unpark = 23 { process: u32 = process, cpu: u8 = cpu };
    /// The virtual CPU waits in a synchronous call.
    WaitBegin = 24 { process: u32 = process, cpu: u8 = cpu };
    /// That call has completed.
    WaitEnd = 25 { process: u32 = process, cpu: u8 = cpu };

    // Asynchronous calls, identified by the caller's token.
    /// A call has to wait.
    CallBegin = 32 { process: u32 = process, coroutine: u64 = coroutine, token: u64 = argument, level: u8 = level };
    /// A call has completed; its result goes to the wake ring.
    CallComplete = 33 { process: u32 = process, coroutine: u64 = coroutine, token: u64 = argument };
    /// A call was cancelled, or there was no memory for it.
    CallCancelled = 34 { process: u32 = process, coroutine: u64 = coroutine, token: u64 = argument };

    // User-level interrupts.
    /// An interrupt is posted for a process, and the hart that runs it is interrupted.
    UserInterruptSent = 40 { process: u32 = process, level: u8 = level, hart: u64 = argument };
    /// An interrupt is posted, and no hart needs to be interrupted.
    UserInterruptSuppressed = 41 { process: u32 = process, level: u8 = level };
    /// The process's handler is entered on this virtual CPU.
    UserInterruptTaken = 42 { process: u32 = process, cpu: u8 = cpu };

    // Events that a process writes about its own coroutines.
    /// The virtual CPU begins to poll a coroutine of this [kind](crate::inspect::coroutine_kind).
    UserPollBegin = 48 { process: u32 = process, cpu: u8 = cpu, coroutine: u64 = coroutine, level: u8 = level, kind: u64 = argument };
    /// The poll has returned.
    UserPollEnd = 49 { process: u32 = process, cpu: u8 = cpu, coroutine: u64 = coroutine, finished: u64 = argument };
    /// A coroutine is woken by the coroutine `by` of the process (0: by the result of a call).
    UserWake = 50 { process: u32 = process, cpu: u8 = cpu, coroutine: u64 = coroutine, by: u64 = argument };
    /// A coroutine was spawned.
    UserSpawn = 51 { process: u32 = process, cpu: u8 = cpu, coroutine: u64 = coroutine, by: u64 = argument, level: u8 = level };
    /// The program marks a moment with a number of its choice.
    UserMark = 52 { process: u32 = process, cpu: u8 = cpu, coroutine: u64 = coroutine, value: u64 = argument };

    // Events about the trace itself.
    /// `count` records of a virtual CPU's page were overwritten before the kernel could move them.
    Lost = 60 { process: u32 = process, cpu: u8 = cpu, count: u64 = argument };
    /// First record of a dump: ticks per second, and number of harts.
    DumpBegin = 64 { ticks_per_second: u64 = argument, harts: u64 = coroutine };
    /// In a dump: the records of one hart's ring follow. `overwritten` counts the older records
    /// that are lost.
    DumpRing = 65 { hart: u8 = level, records: u64 = coroutine, overwritten: u64 = argument };
    /// In a dump: eight bytes of a process's name, beginning at byte 8 x `part`.
    ProcessName = 66 { process: u32 = process, part: u8 = level, bytes: u64 = argument };
    /// In a dump: eight bytes of a kernel coroutine's name.
    CoroutineName = 67 { coroutine: u64 = coroutine, part: u8 = level, bytes: u64 = argument };
    /// Last record of a dump.
    DumpEnd = 68 {};
    /// In a dump: eight bytes of a system call's name.
    SystemCallName = 69 { number: u64 = coroutine, part: u8 = level, bytes: u64 = argument };
}

impl Event {
    /// Whether a process may write events of this kind.
    #[must_use]
    pub const fn is_user_kind(kind: u8) -> bool {
        48 <= kind && kind <= 52
    }
}

/// The memory of one record in a ring.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Slot([AtomicU64; 4]);

impl Slot {
    /// An empty slot.
    #[must_use]
    pub const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; 4])
    }
}

/// The lap of record `number`. Never 0, so that a zeroed slot does not look written.
const fn lap(number: u64, capacity: u64) -> u8 {
    (number / capacity % 255) as u8 + 1
}

const LAP_SHIFT: u32 = 24;

/// A ring over borrowed memory: the count of records begun, and the slots.
#[derive(Clone, Copy, Debug)]
pub struct Ring<'a> {
    begun: &'a AtomicU64,
    slots: &'a [Slot],
}

/// What [`Ring::read`] has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portion {
    /// Number of the first record that was read, counted since the ring began. Records between the
    /// one asked for and this one are lost.
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

    /// Records begun so far, which is the number of the next one.
    #[must_use]
    pub fn begun(&self) -> u64 {
        self.begun.load(Acquire)
    }

    /// Writes a record. Only one hart or virtual CPU may write, including its interrupt handlers.
    #[inline]
    pub fn write(&self, record: Record) {
        let number = self.begun.fetch_add(1, Relaxed);
        let Some(Slot(words)) = self.slots.get((number % self.capacity()) as usize) else { return };
        // A reader that sees any of the words stored below also sees that `begun` has advanced.
        fence(Release);
        let [time, head, coroutine, argument] = record.to_words(lap(number, self.capacity()));
        words[0].store(time, Relaxed);
        words[2].store(coroutine, Relaxed);
        words[3].store(argument, Relaxed);
        // Pairs with the reader's acquire: a reader that sees this lap also sees the words.
        words[1].store(head, Release);
    }

    /// Reads record `number`. `None` if it has not been completed or has been overwritten.
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

    /// Reads at most `limit` records into `put`, oldest first, beginning with number `from`. Skips
    /// records that have been overwritten; stops at the first incomplete one.
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
                // The record was overwritten while it was read: begin with the next. That is done
                // only for the first; a later one ends the portion.
                None if portion.count == 0
                    && self.begun().wrapping_sub(number) > self.capacity() =>
                {
                    portion.first += 1
                }
                None => break,
            }
        }
        portion
    }
}

/// The ring of one virtual CPU. It is in the process's memory; the process writes it, and the
/// kernel validates all that it reads.
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

/// Operations of [`crate::syscall::COPS_TRACE`].
pub mod operation {
    /// `(CONTROL, 0 off, 1 on, 2 query) -> 0 or 1`: switches tracing of the whole machine; returns
    /// the previous state.
    pub const CONTROL: usize = 0;
    /// `(READ, hart, *mut ReadHeader, bytes) -> bytes`: reads records, beginning at the header's
    /// `from`.
    pub const READ: usize = 1;
    /// `(MARK, value)`: writes [`Event::UserMark`](super::Event::UserMark) from the kernel.
    pub const MARK: usize = 2;
}

/// Precedes the records that `READ` returns.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadHeader {
    /// In: number of the first record wanted. Out: number of the first record returned; those
    /// between are lost.
    pub from: u64,
    /// Out: number of records that follow.
    pub count: u64,
    /// Out: number of records this hart has written since tracing was first on.
    pub begun: u64,
    /// Out: number of records that its ring holds.
    pub capacity: u64,
}

const _: () = assert!(size_of::<ReadHeader>() == RECORD_BYTES);

impl ReadHeader {
    /// The header as bytes.
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
