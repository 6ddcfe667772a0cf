//! Locks with priority inheritance, of the threads of one process: which threads wait for which
//! lock, and what its owner inherits.
//!
//! A lock is here while threads wait for it. Its owner counts as at least as urgent as the most
//! urgent of them; so does the owner of the lock that this owner waits for, and so on. A lock is
//! handed over to its most urgent waiter, and to the oldest of equals.
//!
//! | map | key | to find |
//! | --- | --- | --- |
//! | `locks` | address | the owner |
//! | `waiting` | address, level, arrival | the next owner |
//! | `held` | owner, level of the first waiter, address | what an owner inherits, in a step |
//! | `blocked` | thread | where a thread waits |
//!
//! Every operation is a bounded number of steps in these maps. A chain of owners that wait for each
//! other is followed over at most [`CHAIN_MAX`] locks: a wait that would make a longer one is
//! refused, and a change of a level that has to go further stops there.

use cops_abi::Priority;
use cops_fallible::map::Spare;
use cops_fallible::{Map, OutOfMemory};

use super::priority::Rank;

/// Number of locks over which a chain is followed.
pub const CHAIN_MAX: usize = 16;

/// What the table asks of threads.
pub trait Threads {
    /// The level of the thread without what it inherits.
    fn base(&self, thread: usize) -> Priority;
    /// The thread counts as this urgent from now on.
    fn set_effective(&mut self, thread: usize, priority: Priority);
    /// What `wake` wakes, for a thread that waits, counts as this urgent from now on.
    fn set_waiting(&mut self, wake: u64, priority: Priority);
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

type WaitingKey = (usize, Rank, u64);
type HeldKey = (usize, Rank, usize);

#[derive(Clone, Copy, Debug)]
struct Lock {
    owner: usize,
    /// The level of its first waiter, as in `held`.
    top: Priority,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    thread: usize,
    /// What wakes it.
    wake: u64,
}

/// Memory for a thread that waits.
pub struct Places {
    lock: Spare<usize, Lock>,
    waiting: Spare<WaitingKey, Waiter>,
    held: Spare<HeldKey, ()>,
    blocked: Spare<usize, WaitingKey>,
}

impl Places {
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
pub struct Next {
    /// Its number.
    pub thread: usize,
    /// What wakes it.
    pub wake: u64,
    /// Others go on waiting.
    pub has_more: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Inheritance {
    locks: Map<usize, Lock>,
    waiting: Map<WaitingKey, Waiter>,
    held: Map<HeldKey, ()>,
    blocked: Map<usize, WaitingKey>,
    next_arrival: u64,
}

impl Inheritance {
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
    pub fn is_blocked(&self, thread: usize) -> bool {
        self.blocked.contains_key(&thread)
    }

    /// The owner of a lock for which threads wait.
    #[must_use]
    pub fn owner(&self, address: usize) -> Option<usize> {
        self.locks.get(&address).map(|lock| lock.owner)
    }

    /// A thread that waits for no lock waits for this one, which `owner` has. `wake` is returned
    /// when it gets the lock.
    ///
    /// # Errors
    /// See [`Refused`]; nothing has changed.
    pub fn wait(
        &mut self,
        thread: usize,
        (address, owner): (usize, usize),
        wake: u64,
        places: Places,
        threads: &mut impl Threads,
    ) -> Result<(), Refused> {
        self.check_chain(thread, owner)?;
        let at = self.inherited(thread, threads.base(thread));
        let Places { lock, waiting, held, blocked } = places;
        match self.locks.get(&address) {
            Some(lock) if lock.owner != owner => return Err(Refused::AnotherOwner),
            Some(_) => {}
            None => {
                let _ = self.locks.insert_with(lock, address, Lock { owner, top: at });
                let _ = self.held.insert_with(held, (owner, Rank(at), address), ());
            }
        }
        self.next_arrival += 1;
        let key = (address, Rank(at), self.next_arrival);
        let _ = self.waiting.insert_with(waiting, key, Waiter { thread, wake });
        let _ = self.blocked.insert_with(blocked, thread, key);
        self.follow(address, threads);
        Ok(())
    }

    /// Whether a wait of `thread` for a lock of `owner` ends.
    fn check_chain(&self, thread: usize, owner: usize) -> Result<(), Refused> {
        let mut at = owner;
        for _ in 0..CHAIN_MAX {
            if at == thread {
                return Err(Refused::Deadlock);
            }
            let Some(&(address, ..)) = self.blocked.get(&at) else { return Ok(()) };
            let Some(lock) = self.locks.get(&address) else { return Ok(()) };
            at = lock.owner;
        }
        Err(Refused::Deadlock)
    }

    /// The thread that gets the lock when its owner unlocks it.
    #[must_use]
    pub fn next(&self, address: usize) -> Option<Next> {
        let first = (address, Rank(Priority::MOST_URGENT), 0);
        let of_lock = |from: &WaitingKey| {
            let (&key, waiter) = self.waiting.at_or_after(from)?;
            (key.0 == address).then_some((key, *waiter))
        };
        let (key, waiter) = of_lock(&first)?;
        let has_more = of_lock(&(key.0, key.1, key.2 + 1)).is_some();
        Some(Next { thread: waiter.thread, wake: waiter.wake, has_more })
    }

    /// [`next`](Self::next) of this lock gets it.
    pub fn hand_over(&mut self, address: usize, threads: &mut impl Threads) {
        let Some(next) = self.next(address) else { return };
        let Some(Lock { owner, top }) = self.locks.get(&address).copied() else { return };
        self.remove_waiter(next.thread);
        let place = self.held.take(&(owner, Rank(top), address)).map(|(_, place)| place);
        if let Some(after) = self.next(address).and_then(|after| self.level_of(after.thread)) {
            if let (Some(place), Some(lock)) = (place, self.locks.get_mut(&address)) {
                *lock = Lock { owner: next.thread, top: after };
                let key = (next.thread, Rank(after), address);
                let _ = self.held.insert_with(place, key, ());
            }
        } else {
            self.locks.remove(&address);
        }
        self.update(owner, threads);
        self.update(next.thread, threads);
    }

    /// A thread that waits does so no longer, and does not get the lock.
    pub fn leave(&mut self, thread: usize, threads: &mut impl Threads) {
        if let Some((address, ..)) = self.remove_waiter(thread) {
            self.follow(address, threads);
            self.update(thread, threads);
        }
    }

    /// As [`leave`](Self::leave), without computing what others count as: for a process of which
    /// all threads end, in a few steps for each.
    pub fn forget(&mut self, thread: usize) {
        if let Some((address, ..)) = self.remove_waiter(thread) {
            self.refresh_lock(address);
        }
    }

    /// A lock of this thread for which others wait.
    #[must_use]
    pub fn lock_of(&self, owner: usize) -> Option<usize> {
        let (&(found, _, address), ()) =
            self.held.at_or_after(&(owner, Rank(Priority::MOST_URGENT), 0))?;
        (found == owner).then_some(address)
    }

    /// The level of a thread without what it inherits has changed.
    pub fn base_changed(&mut self, thread: usize, threads: &mut impl Threads) {
        self.update(thread, threads);
    }

    fn remove_waiter(&mut self, thread: usize) -> Option<WaitingKey> {
        let key = self.blocked.remove(&thread)?;
        self.waiting.remove(&key);
        Some(key)
    }

    fn level_of(&self, thread: usize) -> Option<Priority> {
        self.blocked.get(&thread).map(|key| key.1.0)
    }

    /// What a thread counts as, of this level by itself.
    fn inherited(&self, thread: usize, base: Priority) -> Priority {
        let first = self.held.at_or_after(&(thread, Rank(Priority::MOST_URGENT), 0));
        match first {
            Some((&(owner, Rank(top), _), ())) if owner == thread => {
                if top.is_more_urgent_than(base) { top } else { base }
            }
            _ => base,
        }
    }

    /// The first waiter of a lock may be another one, or none, or of another level.
    fn follow(&mut self, address: usize, threads: &mut impl Threads) {
        if let Some(owner) = self.refresh_lock(address) {
            self.update(owner, threads);
        }
    }

    /// Enters the level of a lock's first waiter. Returns its owner, if that may inherit another
    /// level now.
    fn refresh_lock(&mut self, address: usize) -> Option<usize> {
        let Lock { owner, top } = self.locks.get(&address).copied()?;
        let before = (owner, Rank(top), address);
        match self.next(address).and_then(|next| self.level_of(next.thread)) {
            Some(after) if after == top => {}
            Some(after) => {
                if let Some(lock) = self.locks.get_mut(&address) {
                    lock.top = after;
                }
                if let Some((_, place)) = self.held.take(&before) {
                    let _ = self.held.insert_with(place, (owner, Rank(after), address), ());
                }
            }
            None => {
                self.locks.remove(&address);
                self.held.remove(&before);
            }
        }
        Some(owner)
    }

    /// Computes what a thread counts as, then what those count as that it waits for.
    fn update(&mut self, thread: usize, threads: &mut impl Threads) {
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
                threads.set_waiting(waiter.wake, level);
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
