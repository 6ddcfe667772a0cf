//! Processes of the tutorial personality: their threads, and the objects that these wait for
//! (decision 35).
#![forbid(unsafe_code)]

use alloc::sync::Arc;
use core::ops::Range;

use cops_abi::errno::CallResult;
use cops_abi::{Errno, layout};
pub use cops_algorithms::tutorial::Threads;
pub use cops_algorithms::tutorial::{FIRST as FIRST_THREAD, Kind as ObjectKind};
use cops_algorithms::tutorial::{Refusal, Turn};
use cops_fallible::try_box;

use super::signals::CpuSignals;
use super::{Process, Thread, VirtualCpu};
use crate::arch::UserContext;
use crate::mm::quota::{Amounts, Charge, Kind};
use crate::mm::{MapError, Rights};
use crate::sched::wake_by_number;

/// Size of a thread's stack. Its pages are charged when they are used. It stays for the next thread
/// with the same number: to unmap it, all harts would have to forget their translations.
const STACK_BYTES: usize = 256 << 10;
/// Distance between the tops of two stacks. What the stack does not use is the guard.
const STACK_STRIDE: usize = STACK_BYTES + layout::PAGE_BYTES;
/// Memory for the record of a thread or of an object.
const RECORD_BYTES: u64 = 64;

/// The threads and objects of a process, and the charge for them.
pub struct Tutorial {
    threads: Threads,
    charge: Charge,
}

/// What a thread waits for.
#[derive(Clone, Copy)]
pub enum Wanted {
    /// An object.
    Object(ObjectKind, usize),
    /// The signal of a condition variable, and then this mutex, which it releases.
    Signal { condition: usize, mutex: usize },
}

/// A wait of a thread for its turn.
///
/// The thread gets into the queue of the object when its call is in flight: one that fails has
/// changed nothing.
pub struct TurnWait {
    thread: usize,
    /// Until the thread is in the queue.
    wanted: Option<Wanted>,
    /// What is to be woken, as soon as the call is in flight.
    coroutine: Option<u64>,
}

impl TurnWait {
    /// A wait of `thread`, which has not begun.
    pub fn new(thread: usize, wanted: Wanted) -> Self {
        Self { thread, wanted: Some(wanted), coroutine: None }
    }

    /// The call is in flight: `coroutine` is woken when the thread gets what it waits for.
    pub fn set_wake(&mut self, coroutine: u64) {
        self.coroutine = Some(coroutine);
    }

    /// The result, if the thread has got its turn.
    pub fn attempt(&mut self, process: &Process) -> Option<CallResult> {
        let (mut has_turn, mut woken) = (false, None);
        let result = process.change_records(0, |threads| {
            self.advance(threads, &mut has_turn, &mut woken).map_err(errno)?;
            Ok(0)
        });
        // Without the lock.
        if let Some(coroutine) = woken {
            wake_by_number(coroutine);
        }
        (has_turn || result.is_err()).then_some(result)
    }

    fn advance(
        &mut self,
        threads: &mut Threads,
        has_turn: &mut bool,
        woken: &mut Option<u64>,
    ) -> Result<(), Refusal> {
        let thread = self.thread;
        if let Some(coroutine) = self.coroutine {
            threads.set_wake(thread, coroutine);
        }
        match (self.wanted, self.coroutine) {
            (Some(Wanted::Object(kind, object)), None) => {
                *has_turn = threads.take(kind, object, thread)?;
            }
            (Some(Wanted::Signal { .. }), None) => {}
            (Some(Wanted::Object(kind, object)), Some(_)) => {
                *has_turn = threads.down(kind, object, thread)? == Turn::Now;
                self.wanted = None;
            }
            (Some(Wanted::Signal { condition, mutex }), Some(_)) => {
                *woken = threads.wait_for_condition(condition, mutex, thread)?;
                self.wanted = None;
            }
            (None, _) => *has_turn = threads.take_turn(thread),
        }
        Ok(())
    }
}

/// Where the stack of thread `number`, which is not the first one, is.
fn stack_of(number: usize) -> Range<usize> {
    let top = layout::MAP_END + number * STACK_STRIDE;
    top - STACK_BYTES..top
}

impl VirtualCpu {
    /// The number of the thread in a program of the tutorial.
    pub fn tutorial_number(&self) -> usize {
        match self.as_thread() {
            Some(thread) if self.index != 0 => thread.id as usize,
            _ => FIRST_THREAD,
        }
    }
}

impl Process {
    /// Calls `change` with the threads and objects of this process, a program of the tutorial.
    /// `creates` so many records, and frees as many if the number is negative.
    ///
    /// # Errors
    /// `ENOMEM`, and those of `change`.
    fn change_records(
        &self,
        creates: i8,
        change: impl FnOnce(&mut Threads) -> Result<usize, Errno>,
    ) -> CallResult {
        let mut tutorial = self.personality.tutorial.lock();
        if tutorial.is_none() {
            let threads = Threads::try_new()?;
            *tutorial = Some(try_box(Tutorial { threads, charge: Charge::nothing(self.family) })?);
        }
        let Tutorial { threads, charge } = &mut **tutorial.as_mut().ok_or(Errno::ENOMEM)?;
        let record = Amounts::of(Kind::Memory, RECORD_BYTES);
        if creates > 0 {
            charge.grow(&record)?;
        }
        let result = change(threads);
        if creates < 0 && result.is_ok() || creates > 0 && result.is_err() {
            charge.shrink(&record);
        }
        result
    }

    /// Creates an object; the result is its number.
    ///
    /// # Errors
    /// `ENOMEM`, `EAGAIN` at the limit.
    pub fn create_object(
        &self,
        create: impl FnOnce(&mut Threads) -> Result<usize, Refusal>,
    ) -> CallResult {
        self.change_records(1, |threads| create(threads).map_err(errno))
    }

    /// Calls `change`, which gives something to a thread that waits, and wakes that.
    ///
    /// # Errors
    /// `EINVAL`, `ENOMEM`.
    pub fn hand_over(
        &self,
        change: impl FnOnce(&mut Threads) -> Result<Option<u64>, Refusal>,
    ) -> CallResult {
        let mut woken = None;
        let result = self.change_records(0, |threads| {
            woken = change(threads).map_err(errno)?;
            Ok(0)
        });
        // Without the lock.
        if let Some(coroutine) = woken {
            wake_by_number(coroutine);
        }
        result
    }

    /// Starts a thread that begins at `entry` with this argument. The result is its number.
    ///
    /// # Errors
    /// `EAGAIN` at the limit, `ESRCH` if the process is ending, `ENOMEM`.
    pub fn start_numbered_thread(
        self: &Arc<Self>,
        cpu: &VirtualCpu,
        entry: usize,
        argument: usize,
    ) -> CallResult {
        let number = self.create_object(Threads::add)?;
        let stack = stack_of(number);
        let start = || {
            match self.space.map_anonymous(stack.clone(), Rights::READ_WRITE) {
                // That of an earlier thread.
                Ok(()) | Err(MapError::Overlap) => {}
                Err(error) => return Err(error.into()),
            }
            let context = UserContext::new(entry, stack.end, argument);
            let thread = Thread::numbered(number as u32, self.current_priority(cpu));
            self.add_thread(context, thread, CpuSignals::default())
        };
        if let Err(error) = start() {
            let _ = self.change_records(-1, |threads| {
                threads.remove(number);
                Ok(0)
            });
            return Err(error);
        }
        Ok(number)
    }

    /// Thread `number`, which is not the first one, ends with this code.
    pub fn end_numbered_thread(&self, number: usize, code: i32) {
        if let Some(tutorial) = &mut *self.personality.tutorial.lock() {
            tutorial.threads.end(number, code);
        }
    }

    /// The code with which thread `number` has ended; `None` if it has not.
    ///
    /// # Errors
    /// `ESRCH` if there is no such thread, or it is the calling one.
    pub fn wait_for_thread(&self, caller: usize, number: usize) -> Result<Option<i32>, Errno> {
        let mut code = None;
        let result = self.change_records(-1, |threads| {
            code = Some(threads.wait(caller, number).map_err(errno)?);
            Ok(0)
        });
        match result {
            Err(Errno::EBUSY) => Ok(None),
            result => result.map(|_| code),
        }
    }
}

fn errno(refusal: Refusal) -> Errno {
    match refusal {
        Refusal::Invalid => Errno::EINVAL,
        Refusal::Full => Errno::EAGAIN,
        Refusal::OutOfMemory => Errno::ENOMEM,
        Refusal::Running => Errno::EBUSY,
    }
}
