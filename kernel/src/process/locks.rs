//! Futexes with priority inheritance (decision 40): locks of which the word is the id of the owner.
//!
//! The program locks and unlocks by itself while no thread waits. Then the bit `WAITERS` is in the
//! word, and the kernel hands the lock over. Everything here is done with the table of the process
//! locked, so that a word and the table change together. Lock order: this table, then the virtual
//! CPUs.
#![forbid(unsafe_code)]

use core::sync::atomic::Ordering::Relaxed;

use cops_abi::{CoroutineId, Errno, Priority};
use cops_algorithms::inheritance::{Inheritance, Next, Places, Refused, Threads};

use super::cpu::{CpuState, VirtualCpu};
use super::futex::word;
use super::{Process, RUN_QUEUE, Thread};
use crate::mm::UserRange;
use crate::sched::wake_by_number;

/// How often the kernel tries to change a word that other harts change at the same time.
const ATTEMPTS: usize = 64;

/// What an attempt to lock has found.
enum Found {
    /// The thread has the lock now.
    Locked,
    /// The thread with this id has it, and the word says that threads wait.
    Owned(u32),
}

/// The levels of the threads of a process, for the table.
struct Levels<'a>(&'a Process);

impl Threads for Levels<'_> {
    fn base(&self, index: usize) -> Priority {
        let cpus = self.0.cpus.lock();
        let thread = cpus.get(index).and_then(|(cpu, _)| cpu.as_thread());
        thread.map_or(Priority::LEAST_URGENT, Thread::base_priority)
    }

    fn set_effective(&mut self, index: usize, priority: Priority) {
        let process = self.0;
        let mut cpus = process.cpus.lock();
        let Some((cpu, state)) = cpus.get(index).map(|(cpu, state)| (cpu.clone(), state)) else {
            return;
        };
        if cpu.as_thread().is_none_or(|thread| thread.priority() == priority) {
            return;
        }
        cpus.set_thread_priority(&cpu, priority);
        drop(cpus);
        let urgency = process.urgency(&cpu);
        if matches!(state, CpuState::Running { .. }) {
            // Its hart compares it with others by this.
            cpu.entity.set_priority(urgency);
            RUN_QUEUE.raise_paused(&cpu, urgency);
        } else {
            RUN_QUEUE.raise(&cpu, urgency);
            if state == CpuState::Waiting {
                cpu.reorder_on_futex(urgency);
            }
        }
    }

    fn set_waiting(&mut self, wake: u64, priority: Priority) {
        // The coroutine of its call: it runs before the thread when the thread gets the lock.
        if let Some(id) = CoroutineId::from_raw(wake) {
            cops_executor::set_priority(id, self.0.ceiling.cap(priority));
        }
    }
}

impl Process {
    /// Sets the level of `cpu`, a thread of this process. It counts as more urgent while it
    /// inherits.
    pub fn set_thread_priority(&self, cpu: &VirtualCpu, priority: Priority) {
        let Some(thread) = cpu.as_thread() else { return };
        let mut table = self.locks.lock();
        thread.set_base_priority(priority);
        table.base_changed(cpu.index, &mut Levels(self));
        drop(table);
        self.publish();
    }

    /// Locks the word at `address` for `thread` if it is free. Returns whether it has it now.
    ///
    /// # Errors
    /// `EDEADLK` if it has it already; `EFAULT`, `EAGAIN`.
    pub fn try_lock(&self, thread: &Thread, address: usize, marks: bool) -> Result<bool, Errno> {
        let table = self.locks.lock();
        Ok(matches!(self.take(&table, thread.id, address, marks)?, Found::Locked))
    }

    /// As [`Self::try_lock`] for the thread of virtual CPU `index`; if the word is not free, the
    /// thread waits from now on, and `wake` is woken when it has the lock.
    ///
    /// # Errors
    /// As [`Self::try_lock`]; `EDEADLK` also if the owner waits for this thread, `ESRCH` if the
    /// owner does not exist, `EINVAL` if the word contradicts the table.
    pub fn lock_or_wait(
        &self,
        (index, id): (usize, u32),
        address: usize,
        wake: u64,
        places: Places,
    ) -> Result<bool, Errno> {
        let mut table = self.locks.lock();
        let owner = match self.take(&table, id, address, true)? {
            Found::Locked => return Ok(true),
            Found::Owned(owner) => self.thread(owner).ok_or(Errno::ESRCH)?,
        };
        if owner.as_thread().is_none_or(|owner| owner.has_left_locks.load(Relaxed)) {
            return Err(Errno::ESRCH);
        }
        let lock = (address, owner.index);
        match table.wait(index, lock, wake, places, &mut Levels(self)) {
            Ok(()) => Ok(false),
            Err(Refused::Deadlock) => Err(Errno::EDEADLK),
            Err(Refused::AnotherOwner) => Err(Errno::EINVAL),
        }
    }

    /// Whether virtual CPU `index` waits for a lock.
    pub fn waits_for_lock(&self, index: usize) -> bool {
        self.locks.lock().is_blocked(index)
    }

    /// Virtual CPU `index` does not wait for a lock any more. Returns false if it has got it.
    pub fn stop_waiting_for_lock(&self, index: usize) -> bool {
        let mut table = self.locks.lock();
        let waits = table.is_blocked(index);
        if self.is_ending() || self.is_being_replaced() {
            // Many calls end in one portion then.
            table.forget(index);
        } else {
            table.leave(index, &mut Levels(self));
        }
        waits
    }

    /// `thread` unlocks the word at `address`: the next waiter has it then, if there is one.
    ///
    /// # Errors
    /// `EPERM` if it does not have it; `EFAULT`, `EAGAIN`.
    pub fn unlock(&self, thread: &Thread, address: usize) -> Result<(), Errno> {
        let mut table = self.locks.lock();
        let place = place_of(address)?;
        let mut before = self.space.compare_exchange(place, 0, 0)?;
        for _ in 0..ATTEMPTS {
            if before & word::OWNER != thread.id {
                return Err(Errno::EPERM);
            }
            let next = table.next(address);
            let found = self.space.compare_exchange(place, before, self.word_for(next, 0))?;
            if found == before {
                table.hand_over(address, &mut Levels(self));
                drop(table);
                wake_by_number(next.map_or(0, |next| next.wake));
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
        let mut table = self.locks.lock();
        // No thread begins to wait for it from now on.
        thread.has_left_locks.store(true, Relaxed);
        let Some(address) = table.lock_of(cpu.index) else { return false };
        let next = table.next(address);
        if let Ok(place) = place_of(address)
            && let Ok(mut before) = self.space.compare_exchange(place, 0, 0)
        {
            let after = self.word_for(next, word::OWNER_DIED);
            for _ in 0..ATTEMPTS {
                match self.space.compare_exchange(place, before, after) {
                    Ok(found) if found != before => before = found,
                    _ => break,
                }
            }
        }
        // Also if the program has unmapped the word: nothing waits for a thread that has ended.
        table.hand_over(address, &mut Levels(self));
        drop(table);
        wake_by_number(next.map_or(0, |next| next.wake));
        true
    }

    /// Locks a word for the thread `own`, if it is free or its owner has died. If it is not free
    /// and `marks`, sets the bit that threads wait.
    fn take(
        &self,
        table: &Inheritance,
        own: u32,
        address: usize,
        marks: bool,
    ) -> Result<Found, Errno> {
        let place = place_of(address)?;
        let mut before = self.space.compare_exchange(place, 0, 0)?;
        for _ in 0..ATTEMPTS {
            let owner = before & word::OWNER;
            let after = match owner {
                0 => {
                    let waiters = if table.owner(address).is_some() { word::WAITERS } else { 0 };
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
        let cpus = self.cpus.lock();
        let thread = cpus.get(next.thread).and_then(|(cpu, _)| cpu.as_thread());
        let waiters = if next.has_more { word::WAITERS } else { 0 };
        thread.map_or(0, |thread| thread.id) | waiters | owner_died
    }
}

fn place_of(address: usize) -> Result<UserRange, Errno> {
    UserRange::new(address, 4).ok_or(Errno::EFAULT)
}
