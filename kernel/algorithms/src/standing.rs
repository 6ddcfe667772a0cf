//! Where a switching coroutine is that holds a virtual CPU, and its level in the executor.
//!
//! The switching coroutine itself changes both in its poll, without a lock. A hart that raises it
//! does so under the run queue's lock, at the same time.
//!
//! | transition | by | what it may meet |
//! | --- | --- | --- |
//! | [`Cell::set`] | the switching coroutine in its poll | a raise |
//! | [`Cell::raise`] | a hart that holds the run queue's lock | a set |
//! | [`Level::set`] | either | another one |
//! | [`Pauses::begin`] | the switching coroutine in its poll | a look by a hart that makes it more urgent |
//!
//! Rules:
//!
//! 1. A raise changes only what is paused. One that has begun to run meanwhile must not be shown as
//!    paused: its hart would not be interrupted for something more urgent.
//! 2. When all are done, the executor has the level that is remembered here.
//! 3. One that becomes more urgent while it begins a pause sees that itself, or is seen to pause.

use cops_abi::Priority;

use crate::atomic::{AtomicU64, Ordering::*, const_unless_loom, fence};

/// Where the switching coroutine is that holds a virtual CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// This hart polls it and runs the virtual CPU or is about to.
    Running {
        /// The number of the hart, below 65,536.
        hart: usize,
    },
    /// It waits in the executor at this level, while coroutines of the kernel run or because it has
    /// just been handed the virtual CPU.
    Paused {
        /// The level.
        priority: Priority,
    },
}

impl Standing {
    const PAUSED: u64 = 1 << 16;

    fn to_word(self) -> u64 {
        match self {
            Standing::Running { hart } => hart as u64,
            Standing::Paused { priority } => Self::PAUSED | u64::from(priority.level()),
        }
    }

    fn from_word(word: u64) -> Self {
        match word & Self::PAUSED {
            0 => Standing::Running { hart: word as usize },
            _ => Standing::Paused { priority: Priority::saturating((word & !Self::PAUSED) as u32) },
        }
    }
}

/// The standing of one virtual CPU. All accesses are sequentially consistent: either the next loads
/// of the hart that changes it see what others wrote before they read it, or those see the change.
#[derive(Debug)]
pub struct Cell(AtomicU64);

impl Cell {
    const_unless_loom! {
        /// Of a virtual CPU that is not held.
        #[must_use]
        pub fn new() -> Self {
            Self(AtomicU64::new(0))
        }
    }

    /// The standing. Undefined while no switching coroutine holds the virtual CPU.
    #[inline]
    pub fn get(&self) -> Standing {
        Standing::from_word(self.0.load(SeqCst))
    }

    /// The switching coroutine runs, or pauses, or is handed the virtual CPU.
    #[inline]
    pub fn set(&self, standing: Standing) {
        self.0.store(standing.to_word(), SeqCst);
    }

    /// Raises it to `priority` if it is paused at a less urgent level. Returns whether it did.
    pub fn raise(&self, priority: Priority) -> bool {
        let mut word = self.0.load(SeqCst);
        while let Standing::Paused { priority: at } = Standing::from_word(word)
            && priority.is_more_urgent_than(at)
        {
            let raised = Standing::Paused { priority }.to_word();
            match self.0.compare_exchange(word, raised, SeqCst, SeqCst) {
                Ok(_) => return true,
                Err(other) => word = other,
            }
        }
        false
    }
}

impl Default for Cell {
    fn default() -> Self {
        Self::new()
    }
}

/// How many virtual CPUs of a process are paused: others of it look at them only if some are.
#[derive(Debug)]
pub struct Pauses(AtomicU64);

impl Pauses {
    const_unless_loom! {
        /// None.
        #[must_use]
        pub fn new() -> Self {
            Self(AtomicU64::new(0))
        }
    }

    /// One more is [`Standing::Paused`]. Afterwards its hart reads how urgent it is: it sees what
    /// was stored by harts that did not see it here.
    pub fn begin(&self) {
        self.0.fetch_add(1, Relaxed);
        fence(SeqCst);
    }

    /// One of them is about to run, or to be given up. Its hart reads afterwards how urgent it is.
    pub fn end(&self) {
        self.0.fetch_sub(1, Relaxed);
    }

    /// Whether any is paused. By a hart that has stored how urgent one is, before a sequentially
    /// consistent fence.
    #[inline]
    pub fn any(&self) -> bool {
        self.0.load(Relaxed) != 0
    }
}

impl Default for Pauses {
    fn default() -> Self {
        Self::new()
    }
}

/// The level of a coroutine in the executor, remembered because it is asked often and changes
/// rarely.
#[derive(Debug)]
pub struct Level(AtomicU64);

impl Level {
    const_unless_loom! {
        /// Of a coroutine that was spawned with this level.
        #[must_use]
        pub fn new(priority: Priority) -> Self {
            Self(AtomicU64::new(priority.level() as u64))
        }
    }

    /// Sets the level by `apply`, which tells the executor, if it is another one.
    ///
    /// A hart that applies looks afterwards whether another one has changed the level meanwhile,
    /// and applies that, too. So the last one to apply anything has seen the last change.
    #[inline]
    pub fn set(&self, priority: Priority, apply: impl Fn(Priority)) {
        let mut wanted = u64::from(priority.level());
        if self.0.load(Relaxed) == wanted {
            return;
        }
        self.0.store(wanted, SeqCst);
        loop {
            apply(Priority::saturating(wanted as u32));
            let now = self.0.load(SeqCst);
            if now == wanted {
                return;
            }
            wanted = now;
        }
    }
}

#[cfg(all(test, not(cops_loom)))]
mod tests {
    use super::*;
    use core::cell::Cell as Count;

    fn level(level: u8) -> Priority {
        Priority::saturating(level.into())
    }

    #[test]
    fn a_raise_changes_only_what_is_paused_at_a_less_urgent_level() {
        let cell = Cell::new();
        cell.set(Standing::Running { hart: 5 });
        assert!(!cell.raise(level(0)));
        assert_eq!(cell.get(), Standing::Running { hart: 5 });
        cell.set(Standing::Paused { priority: level(20) });
        assert!(!cell.raise(level(20)) && !cell.raise(level(21)));
        assert!(cell.raise(level(19)));
        assert_eq!(cell.get(), Standing::Paused { priority: level(19) });
    }

    #[test]
    fn a_level_is_applied_when_it_changes() {
        let applied = Count::new(0);
        let remembered = Level::new(level(32));
        let set = |to| remembered.set(level(to), |_| applied.set(applied.get() + 1));
        set(32);
        assert_eq!(applied.get(), 0);
        set(3);
        set(3);
        assert_eq!(applied.get(), 1);
        set(32);
        assert_eq!(applied.get(), 2);
    }
}
