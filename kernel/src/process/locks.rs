//! Futexes with priority inheritance (decision 40): locks of which the word is the id of the owner.
//!
//! The program locks and unlocks by itself while no thread waits. Then the bit `WAITERS` is in the
//! word, and the kernel hands the lock over. Everything here is done with the table locked, so that
//! a word and the table change together. There is one table for all processes, because an owner and
//! those that wait for it may be in several, and so may those that the owner waits for. Lock order:
//! this table, then those of processes and threads, then the virtual CPUs of a process.
#![forbid(unsafe_code)]

use alloc::sync::Arc;
use core::sync::atomic::Ordering::Relaxed;

use cops_abi::{Errno, Priority};
use cops_algorithms::futex::Word;
use cops_algorithms::inheritance::{self, Inheritance, Key, Refused, Threads};
use cops_lock::{Mutex, MutexGuard};

use super::cpu::{CpuState, VirtualCpu};
use super::futex::word;
use super::{Process, ProcessId, RUN_QUEUE, Thread, children, thread};
use crate::mm::UserRange;
use crate::sched::wake_by_number;

/// A lock: a word of the memory of this process, or of memory that processes share (with 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lock {
    process: ProcessId,
    word: Word,
}

impl Key for Lock {
    const FIRST: Self = Self { process: 0, word: Word { object: 0, address: 0 } };
}

/// A thread: its process and the number of its virtual CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ThreadKey {
    process: ProcessId,
    index: usize,
}

impl Key for ThreadKey {
    const FIRST: Self = Self { process: 0, index: 0 };
}

/// Where a thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Its process.
    process: ProcessId,
    /// The address of the lock's word in that process.
    address: usize,
    /// The number of the coroutine of its call.
    coroutine: u64,
}

type Table = Inheritance<Lock, ThreadKey, Wait>;
type Next = inheritance::Next<ThreadKey, Wait>;
/// Memory for a thread that waits.
pub type Places = inheritance::Places<Lock, ThreadKey, Wait>;

static LOCKS: Mutex<Table> = Mutex::new(Table::new());

/// How often the kernel tries to change a word that other harts change at the same time. A word
/// that says that threads wait is changed by a program that breaks the rules only.
const ATTEMPTS: usize = 64;

/// What an attempt to lock has found.
enum Found {
    /// The thread has the lock now.
    Locked,
    /// The thread with this id has it, and the word says that threads wait.
    Owned(u32),
    /// This thread, for which others wait, has ended: the word says so already, and the lock is
    /// about to go to the first of them. A thread that took it now would have it at the same time.
    Left(ThreadKey),
}

/// The levels of threads, for the table.
struct Levels<'a> {
    /// The process that most of them are of.
    own: &'a Process,
}

impl Levels<'_> {
    /// Calls `action` for a process, unless it has been freed.
    fn with<T>(&self, process: ProcessId, action: impl FnOnce(&Process) -> T) -> Option<T> {
        if process == self.own.id {
            return Some(action(self.own));
        }
        children::find(process).map(|process| action(&process))
    }
}

impl Threads<ThreadKey> for Levels<'_> {
    fn base(&self, thread: ThreadKey) -> Priority {
        let base = self.with(thread.process, |process| {
            let cpus = process.cpus.lock();
            let thread = cpus.get(thread.index).and_then(|(cpu, _)| cpu.as_thread());
            thread.map(Thread::base_priority)
        });
        base.flatten().unwrap_or(Priority::LEAST_URGENT)
    }

    fn set_effective(&mut self, thread: ThreadKey, priority: Priority) {
        self.with(thread.process, |process| {
            process.set_effective_priority(thread.index, priority);
        });
    }
}

impl Process {
    /// The thread of virtual CPU `index` counts as this urgent from now on, and so does what
    /// completes its call.
    fn set_effective_priority(&self, index: usize, priority: Priority) {
        let mut cpus = self.cpus.lock();
        let Some((cpu, state)) = cpus.get(index).map(|(cpu, state)| (cpu.clone(), state)) else {
            return;
        };
        if cpu.as_thread().is_none_or(|thread| thread.priority() == priority) {
            return;
        }
        cpus.set_thread_priority(&cpu, priority);
        let has_held = cpus.has_held();
        drop(cpus);
        self.urgency_changed(&cpu, state);
        if state == CpuState::Waiting {
            self.renew_call_of(&cpu);
        }
        if has_held {
            self.level_changed_while_held(state);
        }
    }

    /// `cpu`, which was found in this state, counts as more or less urgent than before.
    pub(super) fn urgency_changed(&self, cpu: &Arc<VirtualCpu>, state: CpuState) {
        let urgency = self.urgency(cpu);
        if matches!(state, CpuState::Running { .. }) {
            // Its hart compares it with others by this.
            cpu.entity.set_priority(urgency);
            RUN_QUEUE.raise_paused(cpu, urgency);
        } else {
            RUN_QUEUE.raise(cpu, urgency);
            if state == CpuState::Waiting {
                cpu.reorder_on_futex(urgency);
            }
        }
    }

    /// The thread of virtual CPU `index`, for the table.
    fn key_of(&self, index: usize) -> ThreadKey {
        ThreadKey { process: self.id, index }
    }

    /// The lock at `address`. `is_private`: no other process uses it, even if its memory is shared.
    fn lock_at(&self, address: usize, is_private: bool) -> Lock {
        let word = if is_private { Word::own(address) } else { self.futex_word(address) };
        Lock { process: if word.is_shared() { 0 } else { self.id }, word }
    }

    /// The thread with this id, which may own `lock`: for a lock in memory that processes share,
    /// one of a process that can write to it too.
    fn owner(&self, lock: Lock, id: u32) -> Option<Arc<VirtualCpu>> {
        if !lock.word.is_shared() {
            return self.thread(id);
        }
        thread::find(id).filter(|owner| owner.process.space.may_write_object(lock.word.object))
    }

    /// Sets the level of `cpu`, a thread of this process. It counts as more urgent while it
    /// inherits.
    pub fn set_thread_priority(&self, cpu: &VirtualCpu, priority: Priority) {
        let Some(thread) = cpu.as_thread() else { return };
        let mut table = LOCKS.lock();
        thread.set_base_priority(priority);
        table.base_changed(self.key_of(cpu.index), &mut Levels { own: self });
        drop(table);
        self.publish();
    }

    /// Locks the word at `address` for `thread` if it is free. Returns whether it has it now.
    ///
    /// # Errors
    /// `EDEADLK` if it has it already; `EFAULT`, `EAGAIN`.
    pub fn try_lock(
        &self,
        thread: &Thread,
        (address, is_private): (usize, bool),
        marks: bool,
    ) -> Result<bool, Errno> {
        let place = self.lock_place(address)?;
        let lock = self.lock_at(address, is_private);
        let table = LOCKS.lock();
        Ok(matches!(self.take(&table, thread.id, (lock, place), marks)?, Found::Locked))
    }

    /// As [`Self::try_lock`] for the thread of virtual CPU `index`; if the word is not free, the
    /// thread waits from now on, and its call's `coroutine` is woken when it has the lock.
    ///
    /// # Errors
    /// As [`Self::try_lock`]; `EDEADLK` also if the owner waits for this thread, `ESRCH` if the
    /// owner does not exist or has not mapped the word, `EINVAL` if the word contradicts the table,
    /// `EINTR` if the program ends.
    pub fn lock_or_wait(
        &self,
        (index, id): (usize, u32),
        (address, is_private): (usize, bool),
        coroutine: u64,
        places: Places,
    ) -> Result<bool, Errno> {
        let place = self.lock_place(address)?;
        let lock = self.lock_at(address, is_private);
        // Dropped without the lock of the table.
        let owner;
        let mut table = LOCKS.lock();
        // With the table locked: what ends the threads takes those out that wait by then.
        if self.is_program_ending() {
            return Err(Errno::EINTR);
        }
        let key = match self.take(&table, id, (lock, place), true)? {
            Found::Locked => return Ok(true),
            Found::Left(key) => key,
            // With the table locked: what frees a process removes its threads before it hands over
            // their locks.
            Found::Owned(id) => {
                owner = self.owner(lock, id).ok_or(Errno::ESRCH)?;
                if owner.as_thread().is_none_or(|owner| owner.has_left_locks.load(Relaxed)) {
                    return Err(Errno::ESRCH);
                }
                owner.process.key_of(owner.index)
            }
        };
        let wait = Wait { process: self.id, address, coroutine };
        let owned = (lock, key);
        match table.wait(self.key_of(index), owned, wait, places, &mut Levels { own: self }) {
            Ok(()) => Ok(false),
            Err(Refused::Deadlock) => Err(Errno::EDEADLK),
            Err(Refused::AnotherOwner) => Err(Errno::EINVAL),
        }
    }

    /// Whether virtual CPU `index` waits for a lock.
    pub fn waits_for_lock(&self, index: usize) -> bool {
        LOCKS.lock().is_blocked(self.key_of(index))
    }

    /// Virtual CPU `index` does not wait for a lock any more. Returns false if it has got it.
    pub fn stop_waiting_for_lock(&self, index: usize) -> bool {
        let thread = self.key_of(index);
        let mut table = LOCKS.lock();
        let Some(lock) = table.waits_for(thread) else { return false };
        if !lock.word.is_shared() && self.is_program_ending() {
            // All others that are concerned end, too.
            table.forget(thread);
        } else {
            table.leave(thread, &mut Levels { own: self });
        }
        true
    }

    /// `thread` unlocks the word at `address`: the next waiter has it then, if there is one.
    ///
    /// # Errors
    /// `EPERM` if it does not have it; `EFAULT`, `EAGAIN`.
    pub fn unlock(
        &self,
        thread: &Thread,
        (address, is_private): (usize, bool),
    ) -> Result<(), Errno> {
        let place = self.lock_place(address)?;
        let lock = self.lock_at(address, is_private);
        let mut table = LOCKS.lock();
        let mut before = self.space.compare_exchange(place, 0, 0)?;
        for _ in 0..ATTEMPTS {
            if before & word::OWNER != thread.id {
                return Err(Errno::EPERM);
            }
            let next = table.next(lock);
            let found = self.space.compare_exchange(place, before, self.word_for(next, 0))?;
            if found == before {
                table.hand_over(lock, &mut Levels { own: self });
                drop(table);
                wake_by_number(next.map_or(0, |next| next.wake.coroutine));
                return Ok(());
            }
            before = found;
        }
        Err(Errno::EAGAIN)
    }

    /// `cpu`, of which the thread ends: hands over one of the locks that it has and others wait
    /// for. Returns whether there may be more.
    pub fn leave_a_lock(&self, cpu: &VirtualCpu) -> bool {
        let Some(thread) = cpu.as_thread() else { return false };
        let table = LOCKS.lock();
        // No thread begins to wait for it from now on.
        thread.has_left_locks.store(true, Relaxed);
        let Some(lock) = table.lock_of(self.key_of(cpu.index)) else { return false };
        self.hand_over_of_ended(table, lock);
        true
    }

    /// The threads of the program have ended, or all but one that executes another program: hands
    /// over one of the locks that they had and threads of other processes wait for. Returns whether
    /// there may be more.
    pub(super) fn leave_a_lock_of_program(&self) -> bool {
        let table = LOCKS.lock();
        let Some((owner, lock)) = table.lock_from(self.key_of(0)) else { return false };
        if owner.process != self.id {
            return false;
        }
        self.hand_over_of_ended(table, lock);
        true
    }

    /// Hands over a lock of a thread that has ended: the word says so to the next owner.
    fn hand_over_of_ended(&self, mut table: MutexGuard<'_, Table>, lock: Lock) {
        let next = table.next(lock);
        let after = self.word_for(next, word::OWNER_DIED);
        // In the memory of the next owner. Also if that has unmapped the word, nothing waits for a
        // thread that has ended.
        let write = |process: &Process, address: usize| {
            let place = place_of(address)?;
            let mut before = process.space.compare_exchange(place, 0, 0)?;
            for _ in 0..ATTEMPTS {
                match process.space.compare_exchange(place, before, after)? {
                    found if found == before => break,
                    found => before = found,
                }
            }
            Ok::<(), Errno>(())
        };
        if let Some(wait) = next.map(|next| next.wake) {
            Levels { own: self }.with(wait.process, |process| write(process, wait.address));
        }
        table.hand_over(lock, &mut Levels { own: self });
        drop(table);
        wake_by_number(next.map_or(0, |next| next.wake.coroutine));
    }

    /// Locks a word for the thread `own`, if it is free, or its owner has died and no thread waits.
    /// If it is not free and `marks`, sets the bit that threads wait.
    fn take(
        &self,
        table: &Table,
        own: u32,
        (lock, place): (Lock, UserRange),
        marks: bool,
    ) -> Result<Found, Errno> {
        let mut before = self.space.compare_exchange(place, 0, 0)?;
        if marks && before & word::OWNER != own {
            // With the bit, the word changes by this table only. Without it, threads that lock and
            // unlock by themselves all the time could change it before each attempt here.
            before = self.space.fetch_or(place, word::WAITERS)? | word::WAITERS;
        }
        for _ in 0..ATTEMPTS {
            let owner = before & word::OWNER;
            let after = match owner {
                0 => {
                    let waited_for = table.owner(lock);
                    if let Some(key) = waited_for
                        && before & word::OWNER_DIED != 0
                    {
                        return Ok(Found::Left(key));
                    }
                    let waiters = if waited_for.is_some() { word::WAITERS } else { 0 };
                    own | waiters | before & word::OWNER_DIED
                }
                _ if owner == own => return Err(Errno::EDEADLK),
                _ if !marks => return Ok(Found::Owned(owner)),
                _ => before | word::WAITERS,
            };
            let found = self.space.compare_exchange(place, before, after)?;
            if found == before {
                return Ok(if owner == 0 { Found::Locked } else { Found::Owned(owner) });
            }
            before = found;
        }
        Err(Errno::EAGAIN)
    }

    /// The word of a lock that goes to `next`.
    fn word_for(&self, next: Option<Next>, owner_died: u32) -> u32 {
        let Some(next) = next else { return owner_died };
        let id = Levels { own: self }.with(next.thread.process, |process| {
            let cpus = process.cpus.lock();
            cpus.get(next.thread.index).and_then(|(cpu, _)| cpu.as_thread()).map(|own| own.id)
        });
        let waiters = if next.has_more { word::WAITERS } else { 0 };
        id.flatten().unwrap_or(0) | waiters | owner_died
    }

    /// The place of a lock's word. Its page is there afterwards: others do not wait for the table
    /// while it is made.
    fn lock_place(&self, address: usize) -> Result<UserRange, Errno> {
        let place = place_of(address)?;
        self.space.compare_exchange(place, 0, 0)?;
        Ok(place)
    }
}

fn place_of(address: usize) -> Result<UserRange, Errno> {
    UserRange::new(address, 4).ok_or(Errno::EFAULT)
}
