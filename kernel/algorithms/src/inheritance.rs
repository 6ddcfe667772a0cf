//! Locks with priority inheritance: which threads wait for which lock, and what its owner inherits.
//!
//! A lock is here while threads wait for it. Its owner counts as at least as urgent as the most
//! urgent of them; so does the owner of the lock that this owner waits for, and so on. A lock is
//! handed over to its most urgent waiter, and to the oldest of equals.
//!
//! | map | key | to find |
//! | --- | --- | --- |
//! | `locks` | lock | the owner |
//! | `waiting` | lock, level, arrival | the next owner |
//! | `held` | owner, level of the first waiter, lock | what an owner inherits, in a step |
//! | `blocked` | thread | where a thread waits |
//!
//! Every operation is a bounded number of steps in these maps. A chain of owners that wait for each
//! other is followed over at most [`CHAIN_MAX`] locks: a wait that would make a longer one is
//! refused, and a change of a level that has to go further stops there.

use cops_abi::Priority;
use cops_fallible::map::Spare;
use cops_fallible::{Map, OutOfMemory};

use super::priority::Rank;

/// Number of locks over which a chain is followed. Each link takes some 4,500 instructions in the
/// kernel, mostly for the owner's place among those that wait for a hart.
pub const CHAIN_MAX: usize = 8;

/// What identifies a lock, or a thread.
pub trait Key: Copy + Ord {
    /// None is before this one.
    const FIRST: Self;
}

/// The threads of a table: `T` identifies one.
pub trait Threads<T> {
    /// The level of the thread without what it inherits.
    fn base(&self, thread: T) -> Priority;
    /// The thread counts as this urgent from now on, and so does what it waits for.
    fn set_effective(&mut self, thread: T, priority: Priority);
}

/// The reason why a thread does not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Its lock's owner waits for the thread itself, perhaps through others; or the chain is too
    /// long to tell.
    Deadlock,
    /// The table has another owner for this lock.
    AnotherOwner,
}

type WaitingKey<L> = (L, Rank, u64);
type HeldKey<L, T> = (T, Rank, L);

#[derive(Clone, Copy, Debug)]
struct Lock<T> {
    owner: T,
    /// The level of its first waiter, as in `held`.
    top: Priority,
}

#[derive(Clone, Copy, Debug)]
struct Waiter<T, W> {
    thread: T,
    /// What wakes it.
    wake: W,
}

/// Memory for a thread that waits.
pub struct Places<L: Key, T: Key, W> {
    lock: Spare<L, Lock<T>>,
    waiting: Spare<WaitingKey<L>, Waiter<T, W>>,
    held: Spare<HeldKey<L, T>, ()>,
    blocked: Spare<T, WaitingKey<L>>,
}

impl<L: Key, T: Key, W> Places<L, T, W> {
    /// # Errors
    /// [`OutOfMemory`].
    pub fn try_new() -> Result<Self, OutOfMemory> {
        Ok(Self {
            lock: Spare::try_new()?,
            waiting: Spare::try_new()?,
            held: Spare::try_new()?,
            blocked: Spare::try_new()?,
        })
    }
}

/// The thread that gets a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next<T, W> {
    /// Which one it is.
    pub thread: T,
    /// What wakes it.
    pub wake: W,
    /// Others go on waiting.
    pub has_more: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Inheritance<L: Key, T: Key, W: Copy> {
    locks: Map<L, Lock<T>>,
    waiting: Map<WaitingKey<L>, Waiter<T, W>>,
    held: Map<HeldKey<L, T>, ()>,
    blocked: Map<T, WaitingKey<L>>,
    next_arrival: u64,
}

impl<L: Key, T: Key, W: Copy> Default for Inheritance<L, T, W> {
    fn default() -> Self {
        Self::new()
    }
}

impl<L: Key, T: Key, W: Copy> Inheritance<L, T, W> {
    /// No locks.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            locks: Map::new(),
            waiting: Map::new(),
            held: Map::new(),
            blocked: Map::new(),
            next_arrival: 0,
        }
    }

    /// Whether no thread waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocked.is_empty()
    }

    /// Whether this thread waits.
    #[must_use]
    pub fn is_blocked(&self, thread: T) -> bool {
        self.waits_for(thread).is_some()
    }

    /// The owner of a lock for which threads wait.
    #[must_use]
    pub fn owner(&self, lock: L) -> Option<T> {
        self.locks.get(&lock).map(|entry| entry.owner)
    }

    /// A thread that waits for no lock waits for this one, which `owner` has. `wake` is returned
    /// when it gets the lock.
    ///
    /// # Errors
    /// See [`Refused`]; nothing has changed.
    pub fn wait(
        &mut self,
        thread: T,
        (lock, owner): (L, T),
        wake: W,
        places: Places<L, T, W>,
        threads: &mut impl Threads<T>,
    ) -> Result<(), Refused> {
        self.check_chain(thread, owner)?;
        let at = self.inherited(thread, threads.base(thread));
        let Places { lock: place, waiting, held, blocked } = places;
        match self.locks.get(&lock) {
            Some(entry) if entry.owner != owner => return Err(Refused::AnotherOwner),
            Some(_) => {}
            None => {
                let _ = self.locks.insert_with(place, lock, Lock { owner, top: at });
                let _ = self.held.insert_with(held, (owner, Rank(at), lock), ());
            }
        }
        self.next_arrival += 1;
        let key = (lock, Rank(at), self.next_arrival);
        let _ = self.waiting.insert_with(waiting, key, Waiter { thread, wake });
        let _ = self.blocked.insert_with(blocked, thread, key);
        self.follow(lock, threads);
        Ok(())
    }

    /// Whether a wait of `thread` for a lock of `owner` ends.
    fn check_chain(&self, thread: T, owner: T) -> Result<(), Refused> {
        let mut at = owner;
        for _ in 0..CHAIN_MAX {
            if at == thread {
                return Err(Refused::Deadlock);
            }
            let Some(&(lock, ..)) = self.blocked.get(&at) else { return Ok(()) };
            let Some(entry) = self.locks.get(&lock) else { return Ok(()) };
            at = entry.owner;
        }
        Err(Refused::Deadlock)
    }

    /// The thread that gets the lock when its owner unlocks it.
    #[must_use]
    pub fn next(&self, lock: L) -> Option<Next<T, W>> {
        let first = (lock, Rank(Priority::MOST_URGENT), 0);
        let of_lock = |from: &WaitingKey<L>| {
            let (&key, waiter) = self.waiting.at_or_after(from)?;
            (key.0 == lock).then_some((key, *waiter))
        };
        let (key, waiter) = of_lock(&first)?;
        let has_more = of_lock(&(key.0, key.1, key.2 + 1)).is_some();
        Some(Next { thread: waiter.thread, wake: waiter.wake, has_more })
    }

    /// [`next`](Self::next) of this lock gets it.
    pub fn hand_over(&mut self, lock: L, threads: &mut impl Threads<T>) {
        let Some(next) = self.next(lock) else { return };
        let Some(Lock { owner, top }) = self.locks.get(&lock).copied() else { return };
        self.remove_waiter(next.thread);
        let place = self.held.take(&(owner, Rank(top), lock)).map(|(_, place)| place);
        if let Some(after) = self.next(lock).and_then(|after| self.level_of(after.thread)) {
            if let (Some(place), Some(entry)) = (place, self.locks.get_mut(&lock)) {
                *entry = Lock { owner: next.thread, top: after };
                let key = (next.thread, Rank(after), lock);
                let _ = self.held.insert_with(place, key, ());
            }
        } else {
            self.locks.remove(&lock);
        }
        self.update(owner, threads);
        self.update(next.thread, threads);
    }

    /// A thread that waits does so no longer, and does not get the lock.
    pub fn leave(&mut self, thread: T, threads: &mut impl Threads<T>) {
        if let Some((lock, ..)) = self.remove_waiter(thread) {
            self.follow(lock, threads);
            self.update(thread, threads);
        }
    }

    /// As [`leave`](Self::leave), without computing what others count as: for a process of which
    /// all threads end, in a few steps for each.
    pub fn forget(&mut self, thread: T) {
        if let Some((lock, ..)) = self.remove_waiter(thread) {
            self.refresh_lock(lock);
        }
    }

    /// A lock of this thread for which others wait.
    #[must_use]
    pub fn lock_of(&self, owner: T) -> Option<L> {
        let (found, lock) = self.lock_from(owner)?;
        (found == owner).then_some(lock)
    }

    /// The first lock for which others wait and of which the owner is `from` or after it, with that
    /// owner.
    #[must_use]
    pub fn lock_from(&self, from: T) -> Option<(T, L)> {
        let first = (from, Rank(Priority::MOST_URGENT), L::FIRST);
        self.held.at_or_after(&first).map(|(&(owner, _, lock), ())| (owner, lock))
    }

    /// The lock for which a thread waits.
    #[must_use]
    pub fn waits_for(&self, thread: T) -> Option<L> {
        self.blocked.get(&thread).map(|key| key.0)
    }

    /// The level of a thread without what it inherits has changed.
    pub fn base_changed(&mut self, thread: T, threads: &mut impl Threads<T>) {
        self.update(thread, threads);
    }

    fn remove_waiter(&mut self, thread: T) -> Option<WaitingKey<L>> {
        let key = self.blocked.remove(&thread)?;
        self.waiting.remove(&key);
        Some(key)
    }

    fn level_of(&self, thread: T) -> Option<Priority> {
        self.blocked.get(&thread).map(|key| key.1.0)
    }

    /// What a thread counts as, of this level by itself.
    fn inherited(&self, thread: T, base: Priority) -> Priority {
        let first = self.held.at_or_after(&(thread, Rank(Priority::MOST_URGENT), L::FIRST));
        match first {
            Some((&(owner, Rank(top), _), ())) if owner == thread => {
                if top.is_more_urgent_than(base) { top } else { base }
            }
            _ => base,
        }
    }

    /// The first waiter of a lock may be another one, or none, or of another level.
    fn follow(&mut self, lock: L, threads: &mut impl Threads<T>) {
        if let Some(owner) = self.refresh_lock(lock) {
            self.update(owner, threads);
        }
    }

    /// Enters the level of a lock's first waiter. Returns its owner, if that may inherit another
    /// level now.
    fn refresh_lock(&mut self, lock: L) -> Option<T> {
        let Lock { owner, top } = self.locks.get(&lock).copied()?;
        let before = (owner, Rank(top), lock);
        match self.next(lock).and_then(|next| self.level_of(next.thread)) {
            Some(after) if after == top => {}
            Some(after) => {
                if let Some(entry) = self.locks.get_mut(&lock) {
                    entry.top = after;
                }
                if let Some((_, place)) = self.held.take(&before) {
                    let _ = self.held.insert_with(place, (owner, Rank(after), lock), ());
                }
            }
            None => {
                self.locks.remove(&lock);
                self.held.remove(&before);
            }
        }
        Some(owner)
    }

    /// Computes what a thread counts as, then what those count as that it waits for.
    fn update(&mut self, thread: T, threads: &mut impl Threads<T>) {
        let mut thread = thread;
        for _ in 0..CHAIN_MAX {
            let level = self.inherited(thread, threads.base(thread));
            threads.set_effective(thread, level);
            let Some(&key) = self.blocked.get(&thread) else { return };
            if key.1.0 == level {
                return;
            }
            let after = (key.0, Rank(level), key.2);
            if let Some((waiter, place)) = self.waiting.take(&key) {
                let _ = self.waiting.insert_with(place, after, waiter);
            }
            if let Some(key) = self.blocked.get_mut(&thread) {
                *key = after;
            }
            let Some(owner) = self.refresh_lock(key.0) else { return };
            thread = owner;
        }
    }
}

#[cfg(test)]
#[path = "inheritance_tests.rs"]
mod tests;
