//! One value of a coroutine's state word: its fields, and what can be read off them.
//!
//! Bits: base priority 5..0, inherited priority 11..6, level 17..12, worker 23..18, place 25..24,
//! WOKEN 26, CANCELLED 27, generation 63..32. The transitions between values are in `state`.

use super::priority::Priority;

pub(super) const BASE_SHIFT: u32 = 0;
pub(super) const INHERITED_SHIFT: u32 = 6;
const LEVEL_SHIFT: u32 = 12;
pub(super) const WORKER_SHIFT: u32 = 18;
const SIX_BITS: u64 = 63;
const PLACE_SHIFT: u32 = 24;
pub(super) const PLACE_MASK: u64 = 3 << PLACE_SHIFT;
pub(super) const WOKEN: u64 = 1 << 26;
pub(super) const CANCELLED: u64 = 1 << 27;
pub(super) const GENERATION_SHIFT: u32 = 32;
/// Everything but the generation.
const LOW_HALF: u64 = u32::MAX as u64;
/// It inherits no priority: never more urgent than its own.
pub(super) const NOTHING_INHERITED: u64 = SIX_BITS << INHERITED_SHIFT;

/// Where a coroutine is: this is its state, as far as the scheduler is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum Place {
    /// Nowhere: the slot is free.
    Nowhere = 0,
    /// With the source of its next wake.
    Blocked = 1 << PLACE_SHIFT,
    /// In the inbox of `worker`.
    Inbox = 2 << PLACE_SHIFT,
    /// In the list of `listed_at` of `worker`, where it stays while it is polled.
    List = 3 << PLACE_SHIFT,
}

/// One value of the word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Snapshot(pub(super) u64);

impl Snapshot {
    /// The first value of a coroutine's word. `id_high` is what the slot's word had, advanced by a
    /// generation.
    #[inline(always)]
    pub fn born(id_high: u64, place: Place, priority: Priority, worker: u32) -> Snapshot {
        let level = priority.level() as u64;
        let numbers =
            level << BASE_SHIFT | level << LEVEL_SHIFT | (worker as u64 & SIX_BITS) << WORKER_SHIFT;
        Snapshot(id_high | place as u64 | NOTHING_INHERITED | numbers)
    }

    /// The low half of all words that are in the list of `priority` of `worker` and ask for nothing
    /// but a poll: not woken again, not cancelled, nothing inherited, and their priority is their
    /// list's.
    #[inline(always)]
    pub fn plain(priority: Priority, worker: u32) -> u64 {
        Snapshot::born(0, Place::List, priority, worker).0
    }

    /// The word of a coroutine of this id, of which that is the low half.
    #[inline(always)]
    pub fn plain_of(id: u64, plain: u64) -> Snapshot {
        Snapshot(id & !LOW_HALF | plain)
    }

    /// Whether the low half of the word is this one.
    #[inline(always)]
    pub fn is(self, plain: u64) -> bool {
        // Halves are compared: a machine need not take the word apart for that.
        self.0 as u32 == plain as u32
    }

    /// The high half of the coroutine's id, in a word with a known low half.
    #[inline(always)]
    pub fn id_high_of(self, plain: u64) -> u64 {
        self.0.wrapping_sub(plain)
    }

    /// The high half of the coroutine's id.
    pub fn id_high(self) -> u64 {
        self.0 & !LOW_HALF
    }

    pub fn generation(self) -> u32 {
        (self.0 >> GENERATION_SHIFT) as u32
    }

    /// What it runs at: the more urgent of its own priority and what it has inherited.
    #[inline(always)]
    pub fn priority(self) -> Priority {
        let (base, inherited) =
            (self.0 >> BASE_SHIFT & SIX_BITS, self.0 >> INHERITED_SHIFT & SIX_BITS);
        Priority::from_bits(if base < inherited { base } else { inherited })
    }

    /// Its own priority.
    pub fn base(self) -> Priority {
        Priority::from_bits(self.0 >> BASE_SHIFT)
    }

    /// The priority of the list in which it is, if it is in one; else its own.
    #[inline(always)]
    pub fn listed_at(self) -> Priority {
        Priority::from_bits(self.0 >> LEVEL_SHIFT)
    }

    /// The worker that has it in its list or inbox, or on which it ran last.
    pub fn worker(self) -> u32 {
        (self.0 >> WORKER_SHIFT & SIX_BITS) as u32
    }

    #[inline(always)]
    pub fn place(self) -> Place {
        match self.0 & PLACE_MASK {
            0 => Place::Nowhere,
            place if place == Place::Blocked as u64 => Place::Blocked,
            place if place == Place::Inbox as u64 => Place::Inbox,
            _ => Place::List,
        }
    }

    pub fn is_cancelled(self) -> bool {
        self.has(CANCELLED)
    }

    /// No request for it is pending.
    #[inline(always)]
    pub fn is_untouched(self) -> bool {
        !self.has(WOKEN | CANCELLED)
    }

    /// In a list that is not that of its priority: a request to change it has not been carried out
    /// yet.
    pub fn is_misplaced(self) -> bool {
        self.place() == Place::List && self.listed_at() != self.priority()
    }

    /// Whether this is the coroutine that an id of `generation` names.
    #[inline(always)]
    pub fn names(self, generation: u32) -> bool {
        self.generation() == generation && self.0 & PLACE_MASK != Place::Nowhere as u64
    }

    /// Whether it is that coroutine, and blocked.
    #[inline(always)]
    pub fn is_blocked(self, generation: u32) -> bool {
        self.0 >> GENERATION_SHIFT == generation as u64
            && self.0 & PLACE_MASK == Place::Blocked as u64
    }

    #[inline(always)]
    pub(super) fn has(self, flags: u64) -> bool {
        self.0 & flags != 0
    }

    #[inline(always)]
    pub(super) fn with(self, flags: u64) -> Snapshot {
        Snapshot(self.0 | flags)
    }

    #[inline(always)]
    pub(super) fn without(self, flags: u64) -> Snapshot {
        Snapshot(self.0 & !flags)
    }

    #[inline(always)]
    pub(super) fn at(self, place: Place) -> Snapshot {
        Snapshot(self.0 & !PLACE_MASK | place as u64)
    }

    /// The same, with the level of its priority.
    #[inline(always)]
    pub(super) fn levelled(self) -> Snapshot {
        self.with_six_bits(LEVEL_SHIFT, self.priority().level() as u64)
    }

    #[inline(always)]
    pub(super) fn with_worker(self, worker: u32) -> Snapshot {
        self.with_six_bits(WORKER_SHIFT, worker as u64)
    }

    #[inline(always)]
    pub(super) fn with_six_bits(self, shift: u32, value: u64) -> Snapshot {
        Snapshot(self.0 & !(SIX_BITS << shift) | (value & SIX_BITS) << shift)
    }
}
