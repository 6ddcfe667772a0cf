//! The operation of a call that waits for a lock with priority inheritance (decision 40).
//!
//! The thread is in the table of its process before the call waits, and the word is looked at in
//! the same step: so an unlock either finds the thread there, or has left the word free.
#![forbid(unsafe_code)]

use alloc::sync::Arc;

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_fallible::OutOfMemory;

use crate::arch;
use crate::mm::quota::{Amounts, Charge, Kind};
use crate::process::{LockPlaces, Process, Thread};
use crate::sched::{Timer, Waiter};

/// Memory for a wait: this value and its places in the table.
const WAIT_BYTES: u64 = (size_of::<LockWait>() + 4 * 128) as u64;

enum State {
    /// It has not been tried to wait.
    New(LockPlaces),
    /// The thread waits, or has got the lock since.
    Waits,
    /// The call is over.
    Over(CallResult),
}

/// A wait for a lock.
pub struct LockWait {
    /// The word, and whether no other process uses it.
    address: (usize, bool),
    /// The number of the virtual CPU and the id of its thread.
    thread: (usize, u32),
    deadline_ticks: Option<u64>,
    timer: Option<Timer>,
    state: State,
    /// The charge for the wait, beside that for the call.
    _charge: Charge,
}

impl LockWait {
    /// A wait of `thread`, which virtual CPU `index` runs.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(
        process: &Process,
        (index, thread): (usize, &Thread),
        address: (usize, bool),
        deadline_ticks: Option<u64>,
    ) -> Result<Self, Errno> {
        let _charge = Charge::new(process.family, &Amounts::of(Kind::Memory, WAIT_BYTES))?;
        let (thread, state) = ((index, thread.id), State::New(LockPlaces::try_new()?));
        Ok(Self { address, thread, deadline_ticks, timer: None, state, _charge })
    }

    /// As for `Operation::attempt`.
    pub fn attempt(&mut self, process: &Process) -> Option<CallResult> {
        match self.state {
            State::New(_) => None,
            State::Over(result) => Some(result),
            State::Waits if !process.waits_for_lock(self.thread.0) => Some(Ok(0)),
            State::Waits => {
                let is_late = self.deadline_ticks.is_some_and(|until| arch::now_ticks() >= until);
                if !is_late {
                    return None;
                }
                let waited = process.stop_waiting_for_lock(self.thread.0);
                let result = if waited { Err(Errno::ETIMEDOUT) } else { Ok(0) };
                self.state = State::Over(result);
                Some(result)
            }
        }
    }

    /// As for `Operation::insert_waiter`.
    pub fn insert_waiter(
        &mut self,
        process: &Arc<Process>,
        waiter: Waiter,
    ) -> Result<bool, OutOfMemory> {
        if !matches!(self.state, State::New(_)) {
            return Ok(false);
        }
        if let Some(deadline) = self.deadline_ticks {
            let waker = cops_executor::waker_of(waiter.coroutine);
            self.timer = Some(Timer::new(deadline, &waker, waiter.priority, process.clone())?);
        }
        if let State::New(places) = core::mem::replace(&mut self.state, State::Waits) {
            let wake = waiter.coroutine.raw();
            match process.lock_or_wait(self.thread, self.address, wake, places) {
                Ok(false) => {}
                Ok(true) => self.state = State::Over(Ok(0)),
                Err(error) => self.state = State::Over(Err(error)),
            }
        }
        Ok(true)
    }

    /// As for `Operation::remove_waiter`. A lock that the thread has got without being told goes to
    /// the next one.
    pub fn remove_waiter(&self, process: &Process, must_pass_on: bool) {
        let is_locked = match self.state {
            State::New(_) | State::Over(Err(_)) => false,
            State::Over(Ok(_)) => true,
            State::Waits => !process.stop_waiting_for_lock(self.thread.0),
        };
        if is_locked
            && must_pass_on
            && let Some(cpu) = process.thread(self.thread.1)
            && let Some(thread) = cpu.as_thread()
        {
            // It fails only if the program has changed the word.
            let _ = process.unlock(thread, self.address);
        }
    }
}
