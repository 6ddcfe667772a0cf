//! The waiters on futexes of a process, and of memory that processes share; wakes of many of them,
//! in portions.
//!
//! A thread that waits without a deadline is in the table itself (`wait`, decision 43). Other waits
//! are calls (`call/futex.rs`).
#![forbid(unsafe_code)]

mod robust;
mod wait;

pub use robust::Releasing;
pub(super) use robust::word;
pub use wait::read;
pub(super) use wait::{OwnWait, WAIT_BYTES};

use alloc::sync::Arc;

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_algorithms::futex::{self, PORTION_VISITS, Sweep, Woken, Word};
use cops_lock::Mutex;

use super::{Process, VirtualCpu};
use crate::mm::UserRange;
use crate::sched::wake_by_number;

/// The waiters of a table, with what wakes them.
pub type Futexes = futex::Futexes<Sleeper>;
/// Memory for a waiter in a table.
pub type Place = futex::Place<Sleeper>;

/// What waits on a futex.
pub enum Sleeper {
    /// A call, by the number of its kernel coroutine.
    Call(u64),
    /// A thread, without a call.
    Thread(Arc<VirtualCpu>),
}

impl Sleeper {
    /// Wakes it, which was in the table in this place. Returns whether it takes notice: a thread
    /// that is to end does not. Called without the table's lock.
    fn wake(self, place: Place) -> bool {
        match self {
            Self::Call(coroutine) => {
                wake_by_number(coroutine);
                true
            }
            Self::Thread(cpu) => cpu.end_wait_on_futex(place),
        }
    }
}

/// Ends the wait of a waiter that a sweep has found. Returns whether the sweep counts it.
fn end_wait(woken: Woken<Sleeper>) -> bool {
    woken.wake.wake(woken.place) && woken.has_common_bit
}

/// Waits on words in memory that processes share.
static SHARED: Mutex<Futexes> = Mutex::new(Futexes::new());

impl Process {
    /// The table of the waiters on `word`, which is one that this process can name.
    pub(crate) fn futexes(&self, word: Word) -> &Mutex<Futexes> {
        if word.is_shared() { &SHARED } else { &self.own_futexes }
    }

    /// The futex at `address`: a word of the object that is mapped there and that other processes
    /// may have mapped, otherwise one of this process.
    pub fn futex_word(&self, address: usize) -> Word {
        self.space
            .shared_place(address)
            .map_or(Word::own(address), |(object, place)| Word { object, address: place })
    }

    /// Wakes the first waiter on the futex `word`, if there is one.
    pub fn wake_one_on_futex(&self, word: Word) {
        self.wake_one_with_bits(word, u32::MAX);
    }

    /// Wakes the first waiter on the futex `word` that has a bit of `mask`, if it is among as many
    /// as a portion visits.
    pub fn wake_one_with_bits(&self, word: Word, mask: u32) {
        let mut sweep = self.futexes(word).lock().sweep(word, mask);
        let mut visits = PORTION_VISITS;
        loop {
            let woken = self.futexes(word).lock().wake_next(&mut sweep, &mut visits);
            let Some(woken) = woken else { return };
            // Without the lock.
            if end_wait(woken) {
                return;
            }
        }
    }
}

/// A `FUTEX_WAKE` or `FUTEX_REQUEUE` that is being executed.
pub struct Sweeping {
    sweep: Sweep,
    /// How many waiters are still to be woken.
    wake: usize,
    /// How many are still to be moved.
    requeue: usize,
    from: Word,
    to: Word,
    /// How many have been woken or moved.
    done: usize,
}

impl Sweeping {
    /// Wakes `wake` of the waiters that wait now on `from` and have a bit of `mask`, then moves
    /// `requeue` of them to `to`. Waiters that would have to move to another table are woken: each
    /// program must expect wakes without a reason.
    pub fn new(
        process: &Process,
        (from, mask): (Word, u32),
        wake: usize,
        (to, requeue): (Word, usize),
    ) -> Self {
        let sweep = process.futexes(from).lock().sweep(from, mask);
        let (wake, requeue) = if from.is_shared() == to.is_shared() {
            (wake, requeue)
        } else {
            (wake.saturating_add(requeue), 0)
        };
        Self { sweep, wake, requeue, from, to, done: 0 }
    }

    /// Whether it concerns waiters of other processes.
    pub fn is_shared(&self) -> bool {
        self.from.is_shared()
    }

    /// Executes a portion: to wake a waiter takes some 1,000 instructions, and to move one among
    /// thousands some 3,500. `None` if there is more to do; the result is the number of waiters.
    pub fn resume(&mut self, process: &Process) -> Option<CallResult> {
        let mut visits = PORTION_VISITS;
        while self.wake > 0 {
            let woken = process.futexes(self.from).lock().wake_next(&mut self.sweep, &mut visits);
            let Some(woken) = woken else { return self.end_of_search(visits) };
            // Without the lock.
            if end_wait(woken) {
                self.wake -= 1;
                self.done += 1;
            }
        }
        while self.requeue > 0 {
            let mut futexes = process.futexes(self.from).lock();
            if !futexes.move_next(&mut self.sweep, &mut visits, self.to) {
                return self.end_of_search(visits);
            }
            self.requeue -= 1;
            self.done += 1;
        }
        Some(Ok(self.done))
    }

    fn end_of_search(&self, visits: usize) -> Option<CallResult> {
        (visits > 0).then_some(Ok(self.done))
    }
}

/// The error of a futex call for this address: it must be aligned, and the program's.
///
/// # Errors
/// `EINVAL`, `EFAULT`.
pub fn check_address(address: usize) -> Result<(), Errno> {
    if !address.is_multiple_of(4) {
        return Err(Errno::EINVAL);
    }
    UserRange::new(address, 4).map(drop).ok_or(Errno::EFAULT)
}
