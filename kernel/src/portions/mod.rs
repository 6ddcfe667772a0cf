//! Measures portions (SPEC 3.13a): how many instructions a hart executes between two points at
//! which something more urgent can take it (decision 18).
//!
//! A *portion* begins where the kernel is entered from user mode, where a poll of a kernel
//! coroutine begins or ends, and where a hart checks whether to stop what it runs. It ends where
//! the next one begins, or where the kernel is left. Sections within portions are measured too
//! ([`Section`]): interrupt handlers, interrupts disabled, the run queue's lock held. Instructions
//! of a handler, and of this module itself, do not count for any portion or other section.
//!
//! The boot argument `portions=on` switches it on. Otherwise each point costs one relaxed load and
//! a branch that is not taken, so the measured kernel is the one that ships. The unit is that of
//! `instret`: exact under `-icount`, meaningless elsewhere. `inspect::portions` prints the results
//! at power off; `COPS_INSPECT` reads them while the system runs.
//!
//! Each hart writes its own record; interrupt handlers write to it too, but only to entries that
//! exist from the start.
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use cops_abi::inspect::{PortionRecord, portion};

use crate::arch;
use crate::machine::device_tree;

/// Maximum number of different portions per hart: more than there are system calls of both kinds of
/// programs, services and measured sections. All others share the last entry, of the kind
/// [`portion::OVERFLOW`]; the tests fail if it is used.
const ENTRIES: usize = 320;

/// Identifies a kind of portion or section: one of [`portion`], and a detail.
type Key = u64;

const fn key(kind: u32, detail: u32) -> Key {
    (kind as u64) << 32 | detail as u64
}

struct Entry {
    key: AtomicU64,
    count: AtomicU64,
    longest: AtomicU64,
    /// About the longest: arguments of the call, or the number of the coroutine.
    about: [AtomicU64; 4],
}

impl Entry {
    const fn new() -> Self {
        Self {
            key: AtomicU64::new(0),
            count: AtomicU64::new(0),
            longest: AtomicU64::new(0),
            about: [const { AtomicU64::new(0) }; 4],
        }
    }
}

#[repr(align(64))]
struct Hart {
    /// The instruction count at which the current portion began; 0 if none is measured.
    begin: AtomicU64,
    /// The value of `excluded` at that time.
    begin_excluded: AtomicU64,
    key: AtomicU64,
    about: [AtomicU64; 4],
    /// The instruction count at which interrupts were disabled; 0 if they are enabled.
    off: AtomicU64,
    off_excluded: AtomicU64,
    /// Number of instructions that do not count for any portion: those of interrupt handlers and of
    /// this module.
    excluded: AtomicU64,
    entries: [Entry; ENTRIES],
}

static HARTS: [Hart; arch::MAX_HARTS] = [const {
    Hart {
        begin: AtomicU64::new(0),
        begin_excluded: AtomicU64::new(0),
        key: AtomicU64::new(0),
        about: [const { AtomicU64::new(0) }; 4],
        off: AtomicU64::new(0),
        off_excluded: AtomicU64::new(0),
        excluded: AtomicU64::new(0),
        entries: [const { Entry::new() }; ENTRIES],
    }
}; arch::MAX_HARTS];

static ON: AtomicBool = AtomicBool::new(false);

/// Reads the boot argument. Called once, before the other harts start.
pub fn configure() {
    if device_tree::boot_argument("portions") != Some("on") {
        return;
    }
    for hart in &HARTS {
        // The entries of interrupt handlers exist from the start, so a handler never races for a
        // free entry.
        for (place, cause) in hart.entries.iter().zip([1, 5, 9]) {
            place.key.store(key(portion::HANDLER, cause), Relaxed);
        }
    }
    ON.store(true, Relaxed);
}

/// Whether portions are measured.
#[inline(always)]
pub fn is_on() -> bool {
    ON.load(Relaxed)
}

/// A point at which something more urgent can take this hart: ends the current portion, and begins
/// one of `kind`.
#[inline(always)]
pub fn point(kind: u32, detail: impl FnOnce() -> u32) {
    if is_on() {
        HARTS[arch::hart_index()].point(key(kind, detail()));
    }
}

/// As [`point`], where interrupts have just been disabled.
#[inline(always)]
pub fn point_with_interrupts_off(kind: u32) {
    if is_on() {
        let hart = &HARTS[arch::hart_index()];
        hart.point(key(kind, 0));
        hart.off();
    }
}

/// The kernel was entered from user mode. Interrupts are disabled.
#[inline(always)]
pub fn enter() {
    point_with_interrupts_off(portion::INTERRUPTED);
}

/// The kernel is left for user mode or sleep. Interrupts are disabled.
#[inline(always)]
pub fn leave() {
    if is_on() {
        let hart = &HARTS[arch::hart_index()];
        hart.on();
        hart.point(0);
        hart.begin.store(0, Relaxed);
    }
}

/// This hart resumes after [`leave`]. Interrupts are disabled.
#[inline(always)]
pub fn resume() {
    if is_on() {
        HARTS[arch::hart_index()].off();
    }
}

/// Sets the kind of the current portion, once it is known.
#[inline(always)]
pub fn is(kind: u32, what: impl FnOnce() -> (u32, [u64; 4])) {
    if is_on() {
        let hart = &HARTS[arch::hart_index()];
        let (detail, about) = what();
        hart.key.store(key(kind, detail), Relaxed);
        hart.about.iter().zip(about).for_each(|(place, word)| place.store(word, Relaxed));
    }
}

/// Interrupts have been disabled.
#[inline(always)]
pub fn interrupts_off() {
    if is_on() {
        HARTS[arch::hart_index()].off();
    }
}

/// Interrupts are about to be enabled.
#[inline(always)]
pub fn interrupts_on() {
    if is_on() {
        HARTS[arch::hart_index()].on();
    }
}

/// A section that is measured within a portion, from its creation until it is dropped.
#[must_use]
pub struct Section {
    key: Key,
    /// 0 if nothing is measured.
    begin: u64,
    excluded: u64,
}

impl Section {
    /// Begins a section of `kind`. It must end on the same hart.
    #[inline(always)]
    pub fn begin(kind: u32, detail: u32) -> Self {
        if !is_on() {
            return Self { key: 0, begin: 0, excluded: 0 };
        }
        let excluded = HARTS[arch::hart_index()].excluded.load(Relaxed);
        Self { key: key(kind, detail), begin: arch::instructions_retired(), excluded }
    }
}

impl Drop for Section {
    #[inline(always)]
    fn drop(&mut self) {
        if self.begin != 0 {
            HARTS[arch::hart_index()].end(self);
        }
    }
}

impl Hart {
    #[cold]
    #[inline(never)]
    fn point(&self, next: Key) {
        let excluded = self.excluded.load(Relaxed);
        let now = arch::instructions_retired();
        let begin = self.begin.load(Relaxed);
        if begin != 0 {
            let length = length(now, begin, excluded, self.begin_excluded.load(Relaxed));
            let about = [0, 1, 2, 3].map(|index| self.about[index].load(Relaxed));
            self.record(self.key.load(Relaxed), length, about);
        }
        self.key.store(next, Relaxed);
        self.about.iter().for_each(|word| word.store(0, Relaxed));
        self.exclude_since(now, excluded);
        self.begin_excluded.store(self.excluded.load(Relaxed), Relaxed);
        self.begin.store(arch::instructions_retired(), Relaxed);
    }

    #[cold]
    #[inline(never)]
    fn off(&self) {
        self.off_excluded.store(self.excluded.load(Relaxed), Relaxed);
        self.off.store(arch::instructions_retired(), Relaxed);
    }

    #[cold]
    #[inline(never)]
    fn on(&self) {
        let excluded = self.excluded.load(Relaxed);
        let now = arch::instructions_retired();
        let begin = self.off.load(Relaxed);
        self.off.store(0, Relaxed);
        if begin != 0 {
            let length = length(now, begin, excluded, self.off_excluded.load(Relaxed));
            self.record(key(portion::INTERRUPTS_OFF, 0), length, [self.key.load(Relaxed), 0, 0, 0]);
        }
        self.exclude_since(now, excluded);
    }

    #[cold]
    #[inline(never)]
    fn end(&self, section: &Section) {
        let mut excluded = self.excluded.load(Relaxed);
        let now = arch::instructions_retired();
        let length = length(now, section.begin, excluded, section.excluded);
        self.record(section.key, length, [self.key.load(Relaxed), 0, 0, 0]);
        if section.key >> 32 == u64::from(portion::HANDLER) {
            excluded = excluded.wrapping_add(length);
        }
        self.exclude_since(now, excluded);
    }

    /// Excludes the instructions executed since `now`, when `excluded` had this value: they were
    /// this module's, or those of a handler that interrupted it.
    fn exclude_since(&self, now: u64, excluded: u64) {
        let own = arch::instructions_retired().wrapping_sub(now);
        self.excluded.store(excluded.wrapping_add(own), Relaxed);
    }

    fn record(&self, key: Key, length: u64, about: [u64; 4]) {
        if key == 0 {
            return;
        }
        let [own @ .., overflow] = &self.entries;
        let found = own.iter().find(|entry| {
            let other = entry.key.load(Relaxed);
            other == key || other == 0
        });
        let (entry, key) = match found {
            Some(entry) => (entry, key),
            None => (overflow, self::key(portion::OVERFLOW, 0)),
        };
        entry.key.store(key, Relaxed);
        entry.count.store(entry.count.load(Relaxed) + 1, Relaxed);
        if length > entry.longest.load(Relaxed) {
            entry.longest.store(length, Relaxed);
            entry.about.iter().zip(about).for_each(|(place, word)| place.store(word, Relaxed));
        }
    }
}

/// Number of instructions from `begin` to `now` that count, given the values of `excluded` at these
/// times.
fn length(now: u64, begin: u64, excluded: u64, excluded_at_begin: u64) -> u64 {
    now.wrapping_sub(begin).saturating_sub(excluded.wrapping_sub(excluded_at_begin))
}

/// The record with this number, or the next existing one, and its number. `None` if there are no
/// more.
pub fn at_or_after(number: u64) -> Option<(PortionRecord, u64)> {
    let first = usize::try_from(number).ok().filter(|_| is_on())?;
    let last = arch::hart_count() * ENTRIES;
    let (number, entry) = (first..last).find_map(|number| {
        let entry = &HARTS[number / ENTRIES].entries[number % ENTRIES];
        (entry.count.load(Relaxed) > 0).then_some((number, entry))
    })?;
    let key = entry.key.load(Relaxed);
    let record = PortionRecord {
        kind: (key >> 32) as u32,
        detail: key as u32,
        hart: (number / ENTRIES) as u32,
        reserved: 0,
        name: [0; 16],
        longest: entry.longest.load(Relaxed),
        count: entry.count.load(Relaxed),
        about: entry.about[0].load(Relaxed),
        about_1: entry.about[1].load(Relaxed),
        about_2: entry.about[2].load(Relaxed),
        about_3: entry.about[3].load(Relaxed),
    };
    Some((record, number as u64))
}
