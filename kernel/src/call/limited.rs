//! Calls on a socket with a timeout (`SO_RCVTIMEO`, `SO_SNDTIMEO`).
//!
//! A synchronous call that has to wait on such a socket is wrapped: its operation is attempted as
//! before, and ends at a deadline too. Other calls are not wrapped and have no deadline. The
//! memory is charged with the call. Only a virtual CPU waits in such a call, so there are at most
//! as many as virtual CPUs.
#![forbid(unsafe_code)]

use alloc::boxed::Box;
use alloc::sync::Arc;

use cops_abi::errno::CallResult;
use cops_abi::{Errno, Priority};
use cops_fallible::{OutOfMemory, try_box};

use super::{CellIndex, Operation};
use crate::arch;
use crate::mm;
use crate::process::Process;
use crate::sched::{Timer, Waiter, timer};

/// An operation that ends at a deadline.
pub struct Limited {
    /// A long transfer, or an operation that waits for a file: others have no timeout.
    operation: Operation,
    deadline_ticks: u64,
    /// Made when the call begins to wait.
    timer: Option<Timer>,
    /// Whether it has ended because of the deadline.
    has_timed_out: bool,
}

impl Limited {
    /// `operation`, which has to wait now, and does so for at most this time.
    ///
    /// # Errors
    /// `ENOMEM`.
    #[cold]
    #[inline(never)]
    pub fn new(operation: Operation, microseconds: u64) -> Result<Box<Self>, Errno> {
        mm::admit()?;
        let ticks = timer::ticks_from_microseconds(microseconds);
        let deadline_ticks = arch::now_ticks().saturating_add(ticks);
        Ok(try_box(Self { operation, deadline_ticks, timer: None, has_timed_out: false })?)
    }

    /// As [`Operation::number`].
    #[inline(never)]
    pub fn number(&self) -> u32 {
        self.operation.number()
    }

    /// As [`Operation::done`].
    pub fn done(&self) -> Option<usize> {
        self.operation.done()
    }

    /// As [`Operation::interrupt`].
    pub fn interrupt(&mut self) -> bool {
        self.operation.interrupt()
    }

    /// What the call does.
    pub fn operation(&self) -> &Operation {
        &self.operation
    }

    /// As [`Operation::attempt`]. The deadline ends a wait: a transfer that has more to move now
    /// continues.
    pub fn attempt(&mut self, process: &Arc<Process>) -> Option<CallResult> {
        let result = self.operation.attempt(process);
        if result.is_some()
            || self.operation.waits_for_another_event()
            || arch::now_ticks() < self.deadline_ticks
        {
            return result;
        }
        self.has_timed_out = true;
        Some(self.done().ok_or(self.operation.error_of_no_wait()))
    }

    /// The operation, which registers a waiter next. The timer wakes the waiter at the deadline.
    ///
    /// # Errors
    /// [`OutOfMemory`], only the first time.
    #[inline(never)]
    pub fn with_timer(
        &mut self,
        process: &Arc<Process>,
        waiter: Waiter,
    ) -> Result<&mut Operation, OutOfMemory> {
        if self.timer.is_none() {
            let waker = cops_executor::waker_of(waiter.coroutine);
            let owner = process.clone();
            self.timer = Some(Timer::new(self.deadline_ticks, &waker, waiter.priority, owner)?);
        }
        Ok(&mut self.operation)
    }

    /// The operation, of which the priority has changed too.
    #[inline(never)]
    pub fn with_priority(&mut self, priority: Priority) -> &mut Operation {
        if let Some(timer) = &mut self.timer {
            timer.set_priority(priority);
        }
        &mut self.operation
    }

    /// As [`Operation::remove_waiter`]. A call that has timed out may have been woken at the same
    /// time, also if its result is what it has moved before.
    pub fn remove_waiter(&mut self, process: &Process, cell: CellIndex, must_pass_on: bool) {
        self.operation.remove_waiter(process, cell, must_pass_on || self.has_timed_out);
    }
}
