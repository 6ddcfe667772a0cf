//! A thread that waits on a futex itself, without a call (decision 43).
//!
//! It is in the table until a wake, a signal or the end of its program takes it out, under the
//! table's lock. The one that has taken it out, and no other, ends the wait.
//!
//! Lock order: the thread's record, a table, the virtual CPUs of the process.
#![forbid(unsafe_code)]

use alloc::sync::Arc;

use cops_abi::{Errno, Priority};
use cops_algorithms::futex::{State, Waiter, Word};
use cops_fallible::try_arc;
use cops_lock::Mutex;

use super::{Place, Sleeper};
use crate::mm::UserRange;
use crate::process::{Process, VirtualCpu};

/// Memory for a thread's waits, which is charged with the thread: the waiter with its counts of
/// references, and the place with the links of the map.
pub(in crate::process) const WAIT_BYTES: usize =
    size_of::<Waiter>() + 16 + size_of::<(Word, u64, u64)>() + size_of::<Arc<Waiter>>() + 48;

/// What a thread keeps for its waits on futexes; nothing before the first one.
#[derive(Default)]
pub(in crate::process) struct OwnWait(Mutex<Option<Record>>);

struct Record {
    waiter: Arc<Waiter>,
    /// `None` while the waiter is in a table, and until a wake has returned it.
    place: Option<Place>,
}

impl Record {
    fn new(word: Word) -> Result<Self, Errno> {
        let waiter = try_arc(Waiter::new(word, u32::MAX))?;
        Ok(Self { waiter, place: Some(Place::try_new()?) })
    }
}

impl VirtualCpu {
    /// Begins to wait for a wake of `word`, which is at `address`, with a bit of `mask`, if its
    /// value is `expected`. The virtual CPU is that of a thread, and runs on this hart.
    ///
    /// If its process is ending, it ends instead.
    ///
    /// # Errors
    /// `EAGAIN` for another value, `EFAULT`, `ENOMEM`.
    pub fn wait_on_futex(
        self: &Arc<Self>,
        (address, word, mask): (usize, Word, u32),
        expected: u32,
    ) -> Result<(), Errno> {
        let process = &self.process;
        let place = UserRange::new(address, size_of::<u32>()).ok_or(Errno::EFAULT)?;
        let mut own = self.futex.0.lock();
        if own.is_none() {
            *own = Some(Record::new(word)?);
        }
        let Some(record) = own.as_mut() else { return Err(Errno::ENOMEM) };
        let mut table = process.futexes(word).lock();
        // Under the lock: a thread that changes the word and wakes afterwards finds this one in the
        // table, or has changed the word before it is read here.
        if process.space.load(place)? != expected {
            return Err(Errno::EAGAIN);
        }
        if process.begin_waiting(self)
            && let Some(place) = record.place.take()
        {
            record.waiter.reset(word, mask);
            let priority = process.current_priority(self);
            table.insert(record.waiter.clone(), place, priority, Sleeper::Thread(self.clone()));
        }
        Ok(())
    }

    /// A wake has taken it out of the table. Returns whether it continues, and does not end.
    pub(super) fn end_wait_on_futex(self: &Arc<Self>, place: Place) -> bool {
        if let Some(record) = &mut *self.futex.0.lock() {
            record.place = Some(place);
        }
        self.process.end_wait_of(self, Some(0))
    }

    /// If it waits on a futex, it does so with this priority from now on.
    pub(in crate::process) fn reorder_on_futex(&self, priority: Priority) {
        if let Some(record) = &*self.futex.0.lock() {
            let table = self.process.futexes(record.waiter.word());
            table.lock().set_priority(&record.waiter, priority);
        }
    }

    /// Takes it out of the table. Returns false if it was not there: it does not wait on a futex,
    /// or a wake has taken it out and ends the wait.
    pub(in crate::process) fn leave_futex(&self) -> bool {
        let mut own = self.futex.0.lock();
        let Some(record) = own.as_mut() else { return false };
        // A wake may move it to another word meanwhile, but not to another table.
        let (before, place) =
            self.process.futexes(record.waiter.word()).lock().remove(&record.waiter);
        if place.is_some() {
            record.place = place;
        }
        before == State::Queued
    }
}

/// The word at `address`.
///
/// # Errors
/// `EFAULT`, `ENOMEM`.
pub fn read(process: &Process, address: usize) -> Result<u32, Errno> {
    let place = UserRange::new(address, size_of::<u32>()).ok_or(Errno::EFAULT)?;
    Ok(process.space.load(place)?)
}
