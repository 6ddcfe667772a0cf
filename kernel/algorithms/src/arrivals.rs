//! Frames that are looked for instead of interrupting, while their hart is busy (decision 59).
//!
//! The receiver of the network card *waits* here while the card does not interrupt. Rules:
//!
//! 1. The hart on which the receiver began to wait takes it before it sleeps. So there is always a
//!    hart that will look: this one enters user mode, or goes to sleep, or its clock interrupts. It
//!    needs no fence for that, since it sees what it has written itself. If the receiver has begun
//!    again on another hart since then, it is that one's.
//! 2. Whichever takes the receiver wakes it: a look, a hart that is to sleep, a clock, or the
//!    receiver itself. It is taken once.
//! 3. A look compares the card's count of frames with the one up to which the receiver has received
//!    them. A look that does not see a receiver that has just begun leaves the frame to the next
//!    look, and at the latest to the clock of the hart on which it began. Every hart looks, before
//!    it enters user mode and before it sleeps.
//! 4. A receiver that *rests* knows that there are frames. Looks leave it alone; the clock or a
//!    hart that is to sleep takes it.
//!
//! For how long the receiver may receive before it rests: [`Credit`] (decision 73). When a look is
//! overdue, and what is found late: [`LastLook`].

use crate::atomic::{
    AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering::*, const_unless_loom,
};

/// What waits; see the module.
#[derive(Debug)]
pub struct Arrivals {
    /// The receiver that waits; 0 if none does.
    waiter: AtomicU64,
    /// The number of frames that it had received when it began to wait, modulo 2^16.
    received: AtomicU16,
    /// It rests.
    rests: AtomicBool,
    /// The hart on which it began.
    hart: AtomicUsize,
}

impl Default for Arrivals {
    fn default() -> Self {
        Self::new()
    }
}

impl Arrivals {
    const_unless_loom! {
        /// Nothing waits.
        #[must_use]
        pub fn new() -> Self {
            Self {
                waiter: AtomicU64::new(0),
                received: AtomicU16::new(0),
                rests: AtomicBool::new(false),
                hart: AtomicUsize::new(0),
            }
        }
    }

    /// The receiver, which has received the first `received` frames, begins to wait, on `hart`.
    /// `receiver` is not 0.
    pub fn begin(&self, receiver: u64, received: u16, hart: usize) {
        // A look that sees one of the stores and not another wakes in vain, or leaves it to the
        // next look.
        self.received.store(received, Relaxed);
        self.begin_as(receiver, false, hart);
    }

    /// The receiver begins to rest, on `hart`. `receiver` is not 0.
    pub fn begin_rest(&self, receiver: u64, hart: usize) {
        self.begin_as(receiver, true, hart);
    }

    fn begin_as(&self, receiver: u64, rests: bool, hart: usize) {
        self.hart.store(hart, Relaxed);
        self.rests.store(rests, Relaxed);
        self.waiter.store(receiver, Release);
    }

    /// The receiver runs again, for whatever reason.
    pub fn end(&self) {
        self.waiter.store(0, Relaxed);
    }

    /// Whether the receiver waits.
    #[inline]
    pub fn is_awaited(&self) -> bool {
        self.waiter.load(Relaxed) != 0
    }

    /// Whether the receiver waits, and began to on `hart`.
    #[inline]
    pub fn waits_on(&self, hart: usize) -> bool {
        self.is_awaited() && self.hart.load(Relaxed) == hart
    }

    /// Whether the receiver that waits rests.
    #[inline]
    pub fn rests(&self) -> bool {
        self.rests.load(Relaxed)
    }

    /// Takes the receiver, which the caller wakes; 0 if it does not wait.
    #[must_use]
    pub fn take(&self) -> u64 {
        // Only one of the harts that find it takes it.
        if self.is_awaited() { self.waiter.swap(0, Acquire) } else { 0 }
    }

    /// A hart looks: takes the receiver if the card's count of frames, `arrived`, is not the
    /// receiver's, unless it rests.
    #[must_use]
    pub fn look(&self, arrived: u16) -> u64 {
        if arrived == self.received.load(Relaxed) || self.rests.load(Relaxed) {
            return 0;
        }
        self.take()
    }

    /// `hart` is to sleep. Returns the receiver if it began to wait there, rests, or if a frame has
    /// come: then the caller wakes it, and does not sleep.
    #[must_use]
    pub fn begin_sleep(&self, hart: usize, arrived: u16) -> u64 {
        if self.hart.load(Relaxed) == hart || self.rests.load(Relaxed) {
            return self.take();
        }
        self.look(arrived)
    }
}

/// When a hart last looked for the receiver that waits.
///
/// Only times, by which nothing is ordered: so it is no part of what the model checker explores.
#[derive(Debug)]
pub struct LastLook(core::sync::atomic::AtomicU64);

impl Default for LastLook {
    fn default() -> Self {
        Self::new()
    }
}

impl LastLook {
    /// No hart has looked.
    #[must_use]
    pub const fn new() -> Self {
        Self(core::sync::atomic::AtomicU64::new(0))
    }

    /// The receiver begins to wait, or to rest: it has looked itself.
    pub fn begin(&self, now_ticks: u64) {
        self.0.store(now_ticks, Relaxed);
    }

    /// A hart looks. Returns for how long none had: what it finds may have lain there for so long.
    #[inline]
    #[must_use]
    pub fn look(&self, now_ticks: u64) -> u64 {
        let before_ticks = self.0.load(Relaxed);
        self.0.store(now_ticks, Relaxed);
        now_ticks.saturating_sub(before_ticks)
    }

    /// When the clock is to look, if no hart does for `latest_ticks`.
    #[must_use]
    pub fn due_ticks(&self, latest_ticks: u64) -> u64 {
        self.0.load(Relaxed).saturating_add(latest_ticks)
    }
}

/// For how long the receiver may receive before others run, on a machine with one hart (decision
/// 73). Frames that arrive faster than they are received would otherwise keep the programs, for
/// which they are, from running at all.
///
/// Time in which it does not receive is credited to it up to a maximum, time in which it does is
/// taken from that. When nothing is left, it rests. So in the long run it has half of the time if
/// others want the rest, and all of it if not. With several harts it has no more than half of the
/// machine anyway.
///
/// After J. C. Mogul and K. K. Ramakrishnan, "Eliminating Receive Livelock in an Interrupt-Driven
/// Kernel", 1997, section 7: a limit of the time that goes to the input of packets.
#[derive(Debug)]
pub struct Credit {
    left_ticks: u64,
    most_ticks: u64,
    rest_ticks: u64,
    /// The end of what has been credited or taken.
    until_ticks: u64,
}

impl Credit {
    /// Full: the receiver may receive for `most_ticks`, and after a rest at least for `rest_ticks`,
    /// which is how long a rest takes.
    #[must_use]
    pub fn new(most_ticks: u64, rest_ticks: u64) -> Self {
        Self { left_ticks: most_ticks, most_ticks, rest_ticks, until_ticks: 0 }
    }

    /// The receiver begins to receive.
    pub fn begin(&mut self, now_ticks: u64) {
        let credited = self.left_ticks.saturating_add(self.passed(now_ticks));
        self.left_ticks = credited.min(self.most_ticks);
    }

    /// The receiver has received since [`Self::begin`] or since the last call. Returns whether it
    /// rests now.
    #[must_use]
    pub fn spend(&mut self, now_ticks: u64) -> bool {
        self.left_ticks = self.left_ticks.saturating_sub(self.passed(now_ticks));
        self.left_ticks == 0
    }

    /// The receiver has rested, until the clock has woken it or no one else wanted the hart.
    pub fn rested(&mut self, now_ticks: u64) {
        self.begin(now_ticks);
        self.left_ticks = self.left_ticks.max(self.rest_ticks);
    }

    fn passed(&mut self, now_ticks: u64) -> u64 {
        now_ticks.saturating_sub(core::mem::replace(&mut self.until_ticks, now_ticks))
    }
}

/// Whether the hart of the receiver has been busy for some interrupts: only then frames are looked
/// for.
#[derive(Debug)]
pub struct Busyness {
    hart: usize,
    sleeps: u64,
    in_a_row: u32,
    required: u32,
}

impl Default for Busyness {
    fn default() -> Self {
        Self { hart: usize::MAX, sleeps: 0, in_a_row: 0, required: Self::INTERRUPTS }
    }
}

impl Busyness {
    /// After so many interrupts in a row without sleep, frames are looked for.
    pub const INTERRUPTS: u32 = 4;
    /// After so many if they were found late before.
    pub const INTERRUPTS_MAX: u32 = 1024;

    /// The card has interrupted `hart`, which has slept `sleeps` times. Returns whether frames are
    /// looked for from now on.
    pub fn interrupt(&mut self, hart: usize, sleeps: u64) -> bool {
        let is_busy = (hart, sleeps) == (self.hart, self.sleeps);
        self.in_a_row = if is_busy { self.in_a_row.saturating_add(1) } else { 0 };
        (self.hart, self.sleeps) = (hart, sleeps);
        self.in_a_row >= self.required
    }

    /// The receiver has waited. `in_time`: until a hart looked; otherwise a program has computed
    /// for long meanwhile, and twice as many interrupts are required from now on. A wait that ends
    /// in time saves three eighths of them: frames are looked for if fewer than two of five waits
    /// end late. It must not save more: the acknowledgement of what something urgent has answered
    /// is found in time, and the next request may find something less urgent. And not much less: a
    /// machine may lose its processor for milliseconds.
    pub fn waited(&mut self, in_time: bool) {
        if in_time {
            let saved = self.required * 3 / 8;
            self.required = self.required.saturating_sub(saved).max(Self::INTERRUPTS);
        } else {
            self.in_a_row = 0;
            self.required = (2 * self.required).min(Self::INTERRUPTS_MAX);
        }
    }
}
