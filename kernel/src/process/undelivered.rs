//! Results for which the ring of a process had no room.
//!
//! Such a result stays in the cell of its call. The cells are those of the room `call`, which is
//! above this one and registers itself at boot ([`set_calls`]).
#![forbid(unsafe_code)]

use alloc::sync::Arc;
use core::num::NonZeroU64;

use cops_abi::ring::Completion;
use cops_abi::{Errno, Priority};
use spin::Once;

use super::Process;
use crate::mm::quota::Family;

/// What processes need of the calls in flight. A cell is named by its number; it belongs to the
/// caller, from [`Process::complete`] until [`Self::free`].
pub trait Calls: Sync {
    /// Keeps the result of a call in its cell, as the last of a list.
    fn keep(&self, cell: u32, completion: Completion);

    /// Makes `next` the cell after `cell` in a list.
    fn link(&self, cell: u32, next: u32);

    /// The result that is kept in this cell.
    fn kept(&self, cell: u32) -> Option<Completion>;

    /// Frees this cell and its result. Returns the cell after it in the list. [`Self::shrink`]
    /// follows when some have been freed.
    fn free(&self, cell: u32) -> Option<u32>;

    /// Frees some of the memory of calls that are over. Returns whether there may be more.
    fn shrink(&self) -> bool;

    /// Takes the call of `process` with this handle out of its cell, so that no result of it comes.
    /// `None` if it has completed, or completes with what it has achieved, or fails because its
    /// socket has a timeout, or does not end for a signal; otherwise, for a sleep, the ticks until
    /// when it would have lasted. It is not asked a second time: a call that a signal does not end
    /// now either never ends for one, or ends by itself when it would wait.
    fn interrupt(&self, process: &Arc<Process>, handle: u64) -> Option<Option<u64>>;

    /// Starts a call that nothing waits for and that completes at `deadline_ticks`:
    /// [`Process::alarm_rings`] is called then. `Ok(None)`: that is now.
    ///
    /// # Errors
    /// `EAGAIN`, `ENOMEM`.
    fn start_alarm(
        &self,
        process: &Arc<Process>,
        number: u64,
        deadline_ticks: u64,
        priority: Priority,
    ) -> Result<Option<NonZeroU64>, Errno>;

    /// The ceilings of processes of `family` have changed: their calls become as urgent as they
    /// asked for and the ceiling allows now, in a portion of the cells, from number `first` on.
    /// Returns the number to continue with, if there are more cells.
    fn renew_some(&self, family: Family, first: usize) -> Option<usize>;

    /// Cancels calls of `process`, which has ended, in a portion of the cells, from number `first`
    /// on. Returns the number to continue with, if there are more cells.
    fn cancel_some(&self, process: &Arc<Process>, first: usize) -> Option<usize>;
}

static CALLS: Once<&dyn Calls> = Once::new();

/// Sets the implementation of [`Calls`]. Called once at boot.
pub fn set_calls(calls: &'static dyn Calls) {
    CALLS.call_once(|| calls);
}

/// The calls in flight.
pub(super) fn calls() -> &'static dyn Calls {
    *CALLS.get().expect("boot calls `set_calls`")
}

/// Results for which the ring had no room, oldest first, linked through their cells so that the
/// list takes no memory.
#[derive(Default)]
pub(super) struct UndeliveredList {
    head: Option<u32>,
    tail: Option<u32>,
    length: usize,
}

impl UndeliveredList {
    /// Number of results in the list.
    pub fn len(&self) -> usize {
        self.length
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Puts `completion` into the cell of its call, which is otherwise unused.
    pub fn push_back(&mut self, cell: u32, completion: Completion) {
        calls().keep(cell, completion);
        match self.tail.replace(cell) {
            Some(last) => calls().link(last, cell),
            None => self.head = Some(cell),
        }
        self.length += 1;
    }

    /// The oldest result.
    pub fn front(&self) -> Option<Completion> {
        calls().kept(self.head?)
    }

    /// Removes the oldest result and frees its cell. Returns whether there was one.
    pub fn pop_front(&mut self) -> bool {
        let Some(cell) = self.head else { return false };
        self.head = calls().free(cell);
        if self.head.is_none() {
            self.tail = None;
        }
        self.length -= 1;
        true
    }
}
