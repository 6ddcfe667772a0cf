//! The cells in which calls wait, and the kernel coroutine that each of them carries.
//!
//! A coroutine's data word is the cell's number: a coroutine that outlives its call (it was
//! cancelled while queued) finds no cell, a free one, or one with another call. It sees from the
//! coroutine id that it has nothing to do, and ends. The memory of the cells is `pool`'s. May
//! touch: the kernel's executor. The only unsafe code is the spawn itself and its two functions'
//! signatures.
#![allow(unsafe_code)]

use alloc::sync::Arc;
use core::num::NonZeroU64;

use cops_abi::errno::{CallResult, encode};
use cops_abi::inspect::{coroutine_kind, portion};
use cops_abi::ring::Completion;
use cops_abi::standing::{ENDED, left};
use cops_abi::{CoroutineId, Errno, Priority};
use cops_executor::FutureVTable;
use cops_lock::MutexGuard;

use super::pool::{self, CellIndex, Looked};
use super::{Call, Delivery, Operation, StandingRead, Submitted, deliver, polled, submit};
use crate::arch;
use crate::mm::quota::{self, Family};
use crate::portions;
use crate::process::{self, Process};
use crate::sched::{self, Asked, Waiter, Waiting};
use crate::trace;

#[derive(Default)]
pub(super) struct Cell {
    /// Counts the calls that have used this cell; part of their handles.
    pub(super) generation: u32,
    /// The call, from submission until it is completed or cancelled.
    pub(super) call: Option<Call>,
    /// The coroutine that executes `call`.
    coroutine: Option<CoroutineId>,
    /// Process of the last call, so that a late cancel can be recognized.
    owner: u32,
    /// A result for which the ring had no room.
    undelivered: Option<Completion>,
    /// The next cell in the overflow list.
    next: Option<u32>,
}

impl Cell {
    /// A free cell; `generation` is that of the last call that may have lived at its number.
    pub(super) fn new(generation: u32) -> Self {
        Self { generation, ..Self::default() }
    }

    /// A call of `process` is about to be put into this cell, which is that of `index`, with the
    /// coroutine that executes it, if one does. Returns the call's handle.
    #[inline(always)]
    fn begin(
        &mut self,
        index: CellIndex,
        process: &Process,
        coroutine: Option<CoroutineId>,
    ) -> u64 {
        self.generation = self.generation.wrapping_add(1).max(1);
        self.owner = process.id;
        self.coroutine = coroutine;
        self.handle(index)
    }

    /// The handle of the call that is in this cell, which is that of `index`, or was the last one.
    #[inline(always)]
    fn handle(&self, index: CellIndex) -> u64 {
        u64::from(self.generation) << 32 | u64::from(index.number())
    }
}

/// Puts a call into a cell, creates its coroutine, and registers it for the event that it waits
/// for.
///
/// The coroutine starts out blocked, because the operation has just been attempted without success.
/// One more attempt after the registration detects events that happened in between.
///
/// # Errors
/// `ENOMEM`; the call is dropped.
pub(super) fn start(
    process: Arc<Process>,
    operation: Operation,
    delivery: Delivery,
    asked: Asked,
    begin_waiting: impl FnOnce(CoroutineId),
) -> Result<NonZeroU64, Errno> {
    let index = pool::allocate()?;
    let mut guard = index.lock();
    // With the cell locked: see `renew_some`.
    let priority = process.ceiling.allowed(asked);
    // The data word is a number: it is never dereferenced, and nothing has to be freed.
    let data = core::ptr::without_provenance_mut(index.number() as usize);
    // SAFETY: `poll` and `drop_nothing` accept any data word: they look up the number and check
    // that the cell belongs to this coroutine. Everything they access is behind locks, so any hart
    // may call them.
    let spawned = unsafe { sched::executor().spawn_raw_blocked(data, &VTABLE, priority) };
    let Ok(coroutine) = spawned else {
        drop(guard);
        pool::release(index);
        return Err(Errno::ENOMEM);
    };
    begin_waiting(coroutine);
    let handle = guard.begin(index, &process, Some(coroutine));
    let call = guard.call.insert(Call { process, operation, delivery, asked, priority });
    if let Some(result) = call.attempt_after_inserting(index, coroutine) {
        // In the time slice of the calling process.
        drop(finish(guard, index, result));
        cops_executor::cancel(coroutine);
    }
    NonZeroU64::new(handle).ok_or(Errno::ENOMEM)
}

/// Puts a call into a cell, of which the service of `polled` attempts it.
///
/// # Errors
/// `ENOMEM`; the call is dropped.
#[cold]
pub(super) fn start_polled(
    process: Arc<Process>,
    operation: Operation,
    delivery: Delivery,
    asked: Asked,
) -> Result<NonZeroU64, Errno> {
    let index = pool::allocate()?;
    let mut guard = index.lock();
    let priority = process.ceiling.allowed(asked);
    let handle = guard.begin(index, &process, None);
    // With the cell locked: the service finds the call in it.
    if let Err(error) = polled::submit(handle, priority) {
        drop(guard);
        pool::release(index);
        return Err(error);
    }
    guard.call = Some(Call { process, operation, delivery, asked, priority });
    NonZeroU64::new(handle).ok_or(Errno::ENOMEM)
}

/// What has come of a visit to a polled call.
pub(super) enum Visit {
    /// It has been attempted in vain. The priority is the call's, or that of a less urgent worker
    /// of its process that is about to look at its results.
    InVain(Priority),
    /// It is not to be visited any more; whether that is because it has completed now.
    Over { has_completed: bool },
}

/// Attempts the polled call with this `handle`; the time is accounted to the calling process.
pub(super) fn visit(handle: u64) -> Visit {
    let begin_ticks = arch::now_ticks();
    let generation = (handle >> 32) as u32;
    let is_it = |cell: &Cell| cell.generation == generation && cell.coroutine.is_none();
    let Looked::Found(index, mut guard) = pool::look(handle as u32, is_it) else {
        return Visit::Over { has_completed: false };
    };
    let Some(call) = guard.call.as_mut() else { return Visit::Over { has_completed: false } };
    portions::is(portion::CALL, || (call.operation.number(), [0; 4]));
    let result = match &call.operation {
        Operation::Standing(read) => call.stand(read, index, announce_one).0,
        _ => call.operation.attempt(&call.process),
    };
    let spent_ticks = || arch::now_ticks().saturating_sub(begin_ticks);
    let Some(result) = result else {
        call.process.account.charge(spent_ticks());
        // With the cell locked, as the results of a standing read are delivered.
        let active =
            call.process.least_urgent_active().filter(|it| call.priority.is_more_urgent_than(*it));
        return Visit::InVain(active.unwrap_or(call.priority));
    };
    if let Some(process) = finish(guard, index, result) {
        process.account.charge(spent_ticks());
    }
    Visit::Over { has_completed: true }
}

impl Call {
    /// Inserts the call into the queue of the event that it waits for, then attempts the operation
    /// in case the event has already happened.
    fn attempt_after_inserting(
        &mut self,
        cell: CellIndex,
        coroutine: CoroutineId,
    ) -> Option<CallResult> {
        let waiter = Waiter { number: cell.number(), coroutine, priority: self.priority };
        match (self.operation.insert_waiter(&self.process, waiter), &self.operation) {
            (Ok(true), Operation::Standing(read)) => {
                self.operation.found(cell);
                if read.wants_more() {
                    // The program asks. What has arrived may be for another read until then.
                    self.operation.remove_waiter(&self.process, cell, true);
                } else {
                    // One result in a portion: the next one is for the next.
                    cops_executor::wake_up(coroutine);
                }
                None
            }
            (Ok(true), _) => {
                let result = self.operation.attempt(&self.process);
                if result.is_some() {
                    self.operation.found(cell);
                } else if self.operation.waits_for_another_event() {
                    // The next poll registers for it.
                    cops_executor::wake_up(coroutine);
                }
                result
            }
            (Ok(false), Operation::Standing(read)) => {
                read.file.let_waiter_stay(Waiting::ToRead, cell.number());
                None
            }
            (Ok(false), _) => None,
            (Err(error), _) => Some(self.operation.done().ok_or(error.into())),
        }
    }

    /// The level of a thread that waits in this call may have changed: then that of the coroutine
    /// was set, without a lock of the cell.
    #[inline]
    fn follow_level_of(&mut self, coroutine: CoroutineId, cell: CellIndex) {
        if let Some(level) = cops_executor::base_priority(coroutine)
            && level != self.priority
        {
            self.priority = level;
            // Whether it must attempt again: it is about to.
            self.operation.reorder(&self.process, cell, level);
        }
    }

    /// Attempts a standing read. Returns the result of the call if that ends, and whether it waits
    /// on where it waits.
    fn stand(
        &self,
        read: &StandingRead,
        cell: CellIndex,
        announce: impl FnOnce(&Arc<Process>, Priority),
    ) -> (Option<CallResult>, bool) {
        let (moved, waits) = attempt_standing(read, cell);
        let result = moved.and_then(|moved| self.deliver_and_stand(moved, announce));
        (result, waits)
    }

    /// Delivers what an attempt of a standing read has moved. Returns the result of the call if
    /// that ends: with an error, at the end of the stream, or because the ring has no room.
    ///
    /// `announce` tells the process of a result that is in its ring, for a coroutine of this
    /// priority.
    fn deliver_and_stand(
        &self,
        moved: CallResult,
        announce: impl FnOnce(&Arc<Process>, Priority),
    ) -> Option<CallResult> {
        let Delivery::Ring { coroutine, token } = self.delivery else { return Some(moved) };
        let Some(count) = moved.ok().filter(|count| count & ENDED != 0) else { return Some(moved) };
        let completion = Completion { coroutine, token, result: encode(Ok(count & !ENDED)) };
        if !self.process.put_if_room(completion) {
            return Some(moved);
        }
        announce(&self.process, self.priority);
        None
    }
}

/// Attempts a standing read. Returns what it has moved, and whether the call waits on where it
/// waits: it is in the queue of its connection since an earlier poll and stays there, so what
/// arrives after the attempt wakes it.
fn attempt_standing(read: &StandingRead, cell: CellIndex) -> (Option<CallResult>, bool) {
    let (moved, wakes) = read.attempt();
    (moved, wakes && cell.wait_node().stays())
}

/// Ends a call with a completed operation: takes it out of its cell, unlocks, and delivers the
/// result. Returns the calling process.
fn finish(
    mut guard: MutexGuard<'_, Cell>,
    index: CellIndex,
    result: CallResult,
) -> Option<Arc<Process>> {
    guard.coroutine = None;
    // Taken apart at once: as a whole, it would be copied at each step.
    let Call { process, mut operation, delivery, mut priority, .. } = guard.call.take()?;
    drop(guard);
    operation.remove_waiter(&process, index, result.is_err());
    if result.is_ok()
        && let Some(of_result) = operation.priority_of_result()
        && priority.is_more_urgent_than(of_result)
    {
        priority = of_result;
    }
    // Unpins the buffers before the process can learn that it may use them again.
    drop(operation);
    deliver(&process, delivery, priority, result, index);
    Some(process)
}

/// What the coroutines of calls are.
const KIND: usize = coroutine_kind::CALL as usize;

static VTABLE: FutureVTable = FutureVTable { poll, drop: drop_nothing, kind: KIND };

/// One poll of a call's coroutine. Returns whether the coroutine has ended.
unsafe extern "C" fn poll(data: *mut (), coroutine: u64) -> bool {
    let poll = || {
        let is_polled = |call: &Call| {
            portions::is(portion::CALL, || (call.operation.number(), [coroutine, 0, 0, 0]));
            true
        };
        attempt(data.addr() as u32, coroutine, is_polled, announce_one)
    };
    !matches!(trace::poll(KIND, poll, |&attempted| attempted != Attempted::Waits), Attempted::Waits)
}

/// Tells the process of one result in its ring.
fn announce_one(process: &Arc<Process>, priority: Priority) {
    process.announce(priority);
}

/// What has become of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Attempted {
    /// The call has ended, and so has its coroutine.
    Ended,
    /// The call waits for an event.
    Waits,
    /// The call has ended before.
    Gone,
    /// The attempt was not made.
    Refused,
}

/// Attempts the operation of the call in the cell with this number, if `may` says so and the call
/// has this `coroutine`. The time is accounted to the calling process. `announce`: see
/// [`Call::deliver_and_stand`].
pub(super) fn attempt(
    number: u32,
    coroutine: u64,
    may: impl FnOnce(&Call) -> bool,
    announce: impl FnOnce(&Arc<Process>, Priority),
) -> Attempted {
    let begin_ticks = arch::now_ticks();
    let is_it = |cell: &Cell| cell.coroutine.is_some_and(|mine| mine.raw() == coroutine);
    let Looked::Found(index, mut guard) = pool::look(number, is_it) else {
        return Attempted::Gone;
    };
    let (Some(coroutine), Some(call)) = (guard.coroutine, guard.call.as_mut()) else {
        return Attempted::Gone;
    };
    if !may(call) {
        return Attempted::Refused;
    }
    if call.delivery.is_synchronous() {
        call.follow_level_of(coroutine, index);
    }
    let (mut result, waits) = match &call.operation {
        // Without room the call would end, and the program would have to make it anew.
        Operation::Standing(read)
            if !call.process.ring_seems_to_have_room() && read.waits_for_room() =>
        {
            cops_executor::wake_up(coroutine);
            return Attempted::Waits;
        }
        Operation::Standing(read) => call.stand(read, index, announce),
        _ => (call.operation.attempt(&call.process), false),
    };
    if result.is_none() && !waits {
        result = call.attempt_after_inserting(index, coroutine);
    }
    let Some(result) = result else {
        call.process.account.charge(arch::now_ticks().saturating_sub(begin_ticks));
        return Attempted::Waits;
    };
    if let Some(process) = finish(guard, index, result) {
        process.account.charge(arch::now_ticks().saturating_sub(begin_ticks));
    }
    Attempted::Ended
}

/// Ends the coroutine of a call that has ended in an attempt by others.
pub(super) fn end_coroutine(coroutine: u64) {
    if let Some(id) = CoroutineId::from_raw(coroutine) {
        cops_executor::cancel(id);
    }
}

/// The data word owns nothing: the call was already taken out when it ended.
///
/// The executor chooses the next coroutine after each dropped coroutine, so a portion ends here.
unsafe extern "C" fn drop_nothing(_data: *mut ()) {
    portions::point(portion::EXECUTOR, || 0);
}

/// The cell of the call with this `handle`; `None` if it has completed.
///
/// # Errors
/// `EINVAL` if `process` never had such a call.
fn in_flight(
    process: &Arc<Process>,
    handle: u64,
) -> Result<Option<(CellIndex, MutexGuard<'static, Cell>)>, Errno> {
    let generation = (handle >> 32) as u32;
    let is_it = |cell: &Cell| generation == cell.generation && cell.owner == process.id;
    match pool::look(handle as u32, is_it) {
        Looked::Found(index, guard) => Ok(Some((index, guard))),
        // The cell has another call by now, or never had one of this process.
        Looked::Other(highest) if (1..=highest).contains(&generation) => Ok(None),
        Looked::Other(_) | Looked::Never => Err(Errno::EINVAL),
    }
}

/// Takes the call with this `handle` out of its cell; `None` if it has completed.
///
/// # Errors
/// `EINVAL` if `process` never had such a call.
pub(super) fn take_out(process: &Arc<Process>, handle: u64) -> Result<Option<Call>, Errno> {
    take_out_if(process, handle, |_| true)
}

/// Like [`take_out`], only if `may_end` says so of its operation.
///
/// # Errors
/// As [`take_out`].
pub(super) fn take_out_if(
    process: &Arc<Process>,
    handle: u64,
    may_end: impl FnOnce(&mut Operation) -> bool,
) -> Result<Option<Call>, Errno> {
    let Some((index, mut guard)) = in_flight(process, handle)? else { return Ok(None) };
    if guard.call.as_mut().is_some_and(|call| !may_end(&mut call.operation)) {
        return Ok(None);
    }
    Ok(cut_short(guard, index))
}

/// Takes an uncompleted call out of its cell and frees the cell.
fn cut_short(mut guard: MutexGuard<'_, Cell>, index: CellIndex) -> Option<Call> {
    let mut call = guard.call.take();
    let coroutine = guard.coroutine.take();
    if coroutine.is_none() {
        polled::withdraw(guard.handle(index));
    }
    drop(guard);
    if let Some(call) = &mut call {
        call.operation.remove_waiter(&call.process, index, true);
    }
    pool::release_and_shrink(index);
    if let Some(coroutine) = coroutine {
        cops_executor::cancel(coroutine);
    }
    call
}

/// Changes the priority of a call's coroutine. Returns false if the call has completed.
///
/// # Errors
/// `EINVAL` if `process` never had such a call.
pub(super) fn set_priority(
    process: &Arc<Process>,
    handle: u64,
    asked: Asked,
) -> Result<bool, Errno> {
    let Some((index, mut guard)) = in_flight(process, handle)? else { return Ok(false) };
    if let Some(call) = &mut guard.call {
        call.asked = asked;
    }
    renew(guard, index);
    Ok(true)
}

/// Gives a call what its ceiling allows of what it asks for.
fn renew(mut guard: MutexGuard<'_, Cell>, index: CellIndex) {
    let coroutine = guard.coroutine;
    let Some(call) = &mut guard.call else { return };
    let priority = call.process.ceiling.allowed(call.asked);
    let must_attempt = core::mem::replace(&mut call.priority, priority) != priority
        && call.operation.reorder(&call.process, index, priority);
    // With the cell locked: of two that do this, the last one knows what both have changed.
    if let Some(coroutine) = coroutine {
        cops_executor::set_priority(coroutine, priority);
        if must_attempt {
            cops_executor::wake_up(coroutine);
        }
    }
}

/// The ceilings of processes of `family` have changed: renews the priorities of its calls in a
/// portion of the cells, from number `first` up to a multiple of `count`. Returns the number to
/// continue with, if there are more cells.
///
/// A call that is put into its cell after that, finds the new ceiling: it reads it with the cell
/// locked, as this does.
pub(super) fn renew_some(family: Family, first: usize, count: usize) -> Option<usize> {
    let first = pool::existing_from(first)?;
    let is_it = |cell: &Cell| {
        cell.call.as_ref().is_some_and(|call| quota::is_within(call.process.family, family))
    };
    let end = (first / count + 1) * count;
    for number in first..end {
        let Looked::Found(index, guard) = pool::look(number as u32, is_it) else { continue };
        // That of a thread has the level of the thread, which may have changed since then.
        let waits = guard.call.as_ref().and_then(|call| {
            let (Delivery::Cpu { index } | Delivery::Again { index }) = call.delivery else {
                return None;
            };
            Some((call.process.clone(), index))
        });
        if !waits.is_some_and(|(process, cpu)| process.renew_call_of_thread(cpu)) {
            renew(guard, index);
        }
    }
    Some(end)
}

/// Attempts the standing read with this `handle` for its program, which has emptied the block.
/// Returns the result if the block has been filled. 0 if not, or if the call has ended: what comes
/// then, comes through the ring.
///
/// In the time slice of the calling process.
///
/// # Errors
/// `EINVAL` if `process` never had such a call, or if it is no standing read.
pub(super) fn resume_read(process: &Arc<Process>, handle: u64) -> CallResult {
    let Some((index, mut guard)) = in_flight(process, handle)? else { return Ok(0) };
    let coroutine = guard.coroutine;
    let Some(call) = guard.call.as_mut() else { return Ok(0) };
    let Operation::Standing(read) = &call.operation else { return Err(Errno::EINVAL) };
    // Of a polled call, the service attempts it.
    let Some(coroutine) = coroutine else { return Ok(0) };
    let (moved, waits) = attempt_standing(read, index);
    let (delivered, mut ends) = match moved {
        Some(Ok(moved)) if moved & ENDED != 0 => (moved & !ENDED, None),
        ends => (0, ends),
    };
    // It need not begin to wait if the program asks for what is left.
    let is_asked = left(delivered) > 0 && !waits && read.wants_more();
    if ends.is_none() && !waits && !is_asked {
        ends = call.attempt_after_inserting(index, coroutine);
    }
    if let Some(result) = ends {
        drop(finish(guard, index, result));
        cops_executor::cancel(coroutine);
    }
    Ok(delivered)
}

/// Takes calls of `process` out, looking at the cells from number `first` on, up to a multiple of
/// `count` or to the first call of which the end takes long. Returns the number to go on with, if
/// there are more cells.
///
/// Only the end of a process does it, which looks at every cell there is.
pub(super) fn take_out_some(
    process: &Arc<Process>,
    first: usize,
    count: usize,
    mut each: impl FnMut(Call),
) -> Option<usize> {
    let first = pool::existing_from(first)?;
    let is_it =
        |cell: &Cell| cell.call.as_ref().is_some_and(|call| Arc::ptr_eq(&call.process, process));
    let end = (first / count + 1) * count;
    for number in first..end {
        if let Looked::Found(index, guard) = pool::look(number as u32, is_it)
            && let Some(call) = cut_short(guard, index)
        {
            let takes_long = call.operation.takes_long_to_end();
            each(call);
            if takes_long {
                return Some(number + 1);
            }
        }
    }
    Some(end)
}

/// The cells of results for which a ring had no room.
pub(super) struct Cells;

impl process::Calls for Cells {
    fn keep(&self, cell: u32, completion: Completion) {
        let mut guard = CellIndex::of_call(cell).lock();
        guard.undelivered = Some(completion);
        guard.next = None;
    }

    fn link(&self, cell: u32, next: u32) {
        CellIndex::of_call(cell).lock().next = Some(next);
    }

    fn kept(&self, cell: u32) -> Option<Completion> {
        CellIndex::of_call(cell).lock().undelivered
    }

    fn free(&self, cell: u32) -> Option<u32> {
        let index = CellIndex::of_call(cell);
        let mut guard = index.lock();
        guard.undelivered = None;
        let next = guard.next.take();
        drop(guard);
        pool::release(index);
        next
    }

    fn shrink(&self) -> bool {
        pool::shrink()
    }

    fn interrupt(&self, process: &Arc<Process>, handle: u64) -> Option<Option<u64>> {
        super::interrupt(process, handle)
    }

    fn start_alarm(
        &self,
        process: &Arc<Process>,
        number: u64,
        deadline_ticks: u64,
        priority: Priority,
    ) -> Result<Option<NonZeroU64>, Errno> {
        let sleep = Operation::sleep_until(deadline_ticks);
        match submit(process, sleep, Delivery::Alarm { number }, priority.into(), |_| {}) {
            Submitted::Done(result) => result.map(|_| None),
            Submitted::InFlight(handle) => Ok(Some(handle)),
        }
    }

    fn renew_some(&self, family: Family, first: usize) -> Option<usize> {
        renew_some(family, first, super::PORTION_CELLS)
    }

    fn cancel_some(&self, process: &Arc<Process>, first: usize) -> Option<usize> {
        super::cancel_some(process, first)
    }
}
