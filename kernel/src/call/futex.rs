//! The operation of a call that waits on a futex (decision 27): one of a coroutine, or with a
//! deadline. A thread that waits without one makes no call (`process/futex/wait.rs`).
//!
//! The call is in the table for its word before it reads the word the last time. So a thread that
//! changes the word and wakes afterwards finds the call there, or the call sees the change.
#![forbid(unsafe_code)]

use alloc::sync::Arc;

use cops_abi::errno::CallResult;
use cops_abi::{Errno, Priority};
use cops_algorithms::futex::{State, Waiter as FutexWaiter, Word};
use cops_fallible::{OutOfMemory, try_arc};

use crate::arch;
use crate::mm::quota::{Amounts, Charge, Kind};
use crate::process::{FutexPlace, Process, Sleeper, read_futex};
use crate::sched::{Timer, Waiter};

/// Memory for a wait: this value, the waiter, and its place in the table.
const WAIT_BYTES: u64 = (size_of::<FutexWait>() + size_of::<FutexWaiter>() + 64 + 48) as u64;

/// A wait on a futex.
pub struct FutexWait {
    waiter: Arc<FutexWaiter>,
    /// Where the word was when the call was made.
    address: usize,
    expected: u32,
    deadline_ticks: Option<u64>,
    timer: Option<Timer>,
    /// The charge for the wait, beside that for the call.
    _charge: Charge,
    /// The word was read after the call was put into the table.
    is_checked: bool,
    /// A signal ends it.
    is_interrupted: bool,
}

impl FutexWait {
    /// A wait for a wake of `word`, which is at `address`, with a bit of `mask`, while its value is
    /// `expected`.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(
        process: &Process,
        (address, word, mask): (usize, Word, u32),
        expected: u32,
        deadline_ticks: Option<u64>,
    ) -> Result<Self, Errno> {
        let _charge = Charge::new(process.family, &Amounts::of(Kind::Memory, WAIT_BYTES))?;
        let waiter = try_arc(FutexWaiter::new(word, mask))?;
        Ok(Self {
            waiter,
            address,
            expected,
            deadline_ticks,
            timer: None,
            _charge,
            is_checked: false,
            is_interrupted: false,
        })
    }

    /// As for `Operation::attempt`.
    pub fn attempt(&mut self, process: &Process) -> Option<CallResult> {
        let state = {
            let _table = process.futexes(self.waiter.word()).lock();
            self.waiter.state()
        };
        if state == State::Woken {
            return Some(Ok(0));
        }
        if !self.is_checked {
            self.is_checked = state == State::Queued;
            match read_futex(process, self.address) {
                Ok(word) if word == self.expected => {}
                Ok(_) => return Some(self.give_up(process, Errno::EAGAIN)),
                Err(error) => return Some(self.give_up(process, error)),
            }
        }
        if self.deadline_ticks.is_some_and(|deadline| arch::now_ticks() >= deadline) {
            return Some(self.give_up(process, Errno::ETIMEDOUT));
        }
        None
    }

    /// The result of a call that does not wait any longer: `error`, unless it was woken in the
    /// meantime.
    fn give_up(&self, process: &Process, error: Errno) -> CallResult {
        let mut table = process.futexes(self.waiter.word()).lock();
        if self.waiter.state() == State::Woken {
            // It stays so until the call is removed.
            return Ok(0);
        }
        table.remove(&self.waiter);
        Err(error)
    }

    /// As for `Operation::insert_waiter`.
    pub fn insert_waiter(
        &mut self,
        process: &Arc<Process>,
        waiter: Waiter,
    ) -> Result<bool, OutOfMemory> {
        if self.is_checked {
            return Ok(false);
        }
        if let Some(deadline) = self.deadline_ticks {
            let waker = cops_executor::waker_of(waiter.coroutine);
            self.timer = Some(Timer::new(deadline, &waker, waiter.priority, process.clone())?);
        }
        let place = FutexPlace::try_new()?;
        let (ours, wake) = (self.waiter.clone(), Sleeper::Call(waiter.coroutine.raw()));
        process.futexes(ours.word()).lock().insert(ours, place, waiter.priority, wake);
        Ok(true)
    }

    /// As for `Operation::interrupt`.
    pub fn interrupt(&mut self) -> bool {
        self.is_interrupted = true;
        true
    }

    /// As for `Operation::cut_short`: as on Linux, one that has been woken says so.
    pub fn cut_short(&self, process: &Process) -> Option<CallResult> {
        let _table = process.futexes(self.waiter.word()).lock();
        (self.waiter.state() == State::Woken).then_some(Ok(0))
    }

    /// As for `Operation::remove_waiter`. A wake that the call does not report, or that its program
    /// does not live to see, goes to another one with a bit of that wake.
    pub fn remove_waiter(&self, process: &Process, must_pass_on: bool) {
        let is_ending = process.is_program_ending();
        let mut table = process.futexes(self.waiter.word()).lock();
        if self.is_interrupted && self.waiter.state() == State::Woken && !is_ending {
            // It stays so: `cut_short` reports it.
            return;
        }
        let (before, _) = table.remove(&self.waiter);
        drop(table);
        let must_pass_on = must_pass_on || is_ending;
        if before == State::Woken && must_pass_on {
            process.wake_one_with_bits(self.waiter.word(), self.waiter.mask());
        }
    }

    /// Changes the priority of the call.
    pub fn set_priority(&mut self, process: &Process, priority: Priority) {
        if let Some(timer) = &mut self.timer {
            timer.set_priority(priority);
        }
        process.futexes(self.waiter.word()).lock().set_priority(&self.waiter, priority);
    }
}
