//! The operation of `ppoll` and `pselect6`: waits until one of many files is ready (decision 31).
//!
//! ```text
//!   gather -> look -> store: done
//!              ^ |
//!              | v  nothing is ready, all are watched
//!            asleep
//! ```
//!
//! Each of the three works in steps of some descriptors, and an attempt makes a few steps. An
//! attempt that is not done wakes its own coroutine, so the next one follows. Files are watched as
//! soon as there is a coroutine that can be woken. `poll/form.rs` reads and writes the structures
//! of the two calls.
//!
//! As on Linux, a signal ends a call that has looked at all files and found nothing, also if its
//! time is over, and no call that has found something.
#![forbid(unsafe_code)]

mod form;

pub use form::{Form, Sets};

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};

use cops_abi::errno::CallResult;
use cops_abi::poll::event::{ALWAYS, INVALID};
use cops_abi::{CoroutineId, Errno, Priority};
use cops_algorithms::terminal::Party;
use cops_fallible::{List, OutOfMemory, try_arc, try_box};

use crate::arch;
use crate::fs::{Descriptor, File};
use crate::mm::quota::{Amounts, Charge, Family, Kind};
use crate::process::Process;
use crate::sched::leftovers::{self, Leftover};
use crate::sched::{Timer, WATCH_BYTES, Waiter, Waiting, WatchSlot, Watcher};

/// Descriptors that one step looks at.
const STEP: usize = 16;
/// How much work an attempt begins, in units of a step that reads or stores. A call with few
/// descriptors is done in its first attempt.
const WORK: usize = 4;
/// The work of a step that looks at files.
const LOOKING: usize = 2;
/// The work of a step that looks at files and watches them, which takes some 1,700 instructions for
/// each descriptor if the file has many watches.
const WATCHING: usize = WORK;
/// Entries of epoll instances that are not ready any more, and that a step arms again. It ends
/// before the next one.
const ARMED: usize = 4;
/// Memory for a descriptor that is waited for: its place, its watches, and its file's memory, which
/// the place keeps if the file is closed.
const POLLED_BYTES: u64 =
    (size_of::<Polled>() + size_of::<Watch>() + 16 + 2 * WATCH_BYTES + size_of::<File>()) as u64;

/// A call of `ppoll` or `pselect6`.
pub struct PollCall {
    form: Form,
    /// `None` once it is being dropped.
    polled: Option<Box<AllPolled>>,
    phase: Phase,
    /// Descriptors that are ready, as the call counts them.
    ready: usize,
    deadline_ticks: Option<u64>,
    /// A signal ends it when it has looked and found nothing.
    is_signalled: bool,
    /// Where a program for Linux learns the rest of the time; 0: it does not.
    rest: usize,
    timer: Option<Timer>,
    waiter: Option<Waiter>,
    /// Its level, with which entries of epoll instances are armed.
    priority: Priority,
}

#[derive(Clone, Copy)]
enum Phase {
    /// Reads the descriptors, from this one on.
    Gather(usize),
    /// Looks at the files, from this one on.
    Look(usize),
    /// Has found nothing ready. A wake begins to look again.
    Asleep,
    /// Writes what it has found, from this one on.
    Store(usize),
}

/// A descriptor that is waited for.
struct Polled {
    descriptor: usize,
    /// The events that were asked for.
    asked: u32,
    /// The events that were found.
    found: u32,
    /// `None`: the descriptor was not open.
    file: Option<Weak<File>>,
    watch: Option<Arc<Watch>>,
}

/// Wakes the coroutine of the call.
struct Watch {
    coroutine: CoroutineId,
    slots: [WatchSlot; 2],
}

impl Watcher for Watch {
    fn slot(&self, waiting: Waiting) -> &WatchSlot {
        &self.slots[usize::from(waiting == Waiting::ToWrite)]
    }

    fn notify(self: Arc<Self>) {
        cops_executor::wake_up(self.coroutine);
    }
}

/// All descriptors, in chunks of [`STEP`], so that growing never copies many.
struct AllPolled {
    chunks: List<List<Polled>>,
    count: usize,
    charge: Charge,
    next: Option<Box<dyn Leftover>>,
}

impl AllPolled {
    /// Adds a descriptor. Whole chunks are charged.
    ///
    /// # Errors
    /// `ENOMEM`.
    fn push(&mut self, polled: Polled) -> Result<(), Errno> {
        if self.count.is_multiple_of(STEP) {
            self.charge.grow(&Amounts::of(Kind::Memory, STEP as u64 * POLLED_BYTES))?;
            self.chunks.try_push(List::try_with_capacity(STEP)?)?;
        }
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.try_push(polled)?;
            self.count += 1;
        }
        Ok(())
    }

    fn get(&self, index: usize) -> Option<&Polled> {
        self.chunks.get(index / STEP)?.get(index % STEP)
    }

    /// The descriptors of a step that begins at `first`: up to the next multiple of [`STEP`].
    fn step(&mut self, first: usize) -> &mut [Polled] {
        let chunk = self.chunks.get_mut(first / STEP);
        chunk.and_then(|chunk| chunk.get_mut(first % STEP..)).unwrap_or_default()
    }
}

impl Leftover for AllPolled {
    fn free_some(&mut self) -> bool {
        if let Some(chunk) = self.chunks.pop() {
            chunk.iter().for_each(Polled::unwatch);
        }
        !self.chunks.is_empty()
    }

    fn next(&mut self) -> &mut Option<Box<dyn Leftover>> {
        &mut self.next
    }
}

impl Polled {
    /// Looks at the file, and watches it first if a coroutine waits. Returns false if it has to be
    /// looked at again, because it has used up `visits`.
    ///
    /// # Errors
    /// `ENOMEM`.
    fn look(
        &mut self,
        asker: (Party, Priority),
        waiter: Option<Waiter>,
        visits: &mut usize,
    ) -> Result<bool, Errno> {
        let Some(file) = &self.file else { return Ok(true) };
        let Some(file) = file.upgrade() else {
            self.found = INVALID;
            return Ok(true);
        };
        let wanted = self.asked | ALWAYS;
        if let Some(waiter) = waiter {
            let watch = match &self.watch {
                Some(watch) => watch,
                None => self.watch.insert(try_arc(Watch {
                    coroutine: waiter.coroutine,
                    slots: Default::default(),
                })?),
            };
            let watcher: Arc<dyn Watcher> = watch.clone();
            file.watch(&watcher, wanted, waiter.priority)?;
        }
        let Some(events) = file.look(wanted, asker, visits) else { return Ok(false) };
        self.found = events & wanted;
        Ok(true)
    }

    fn unwatch(&self) {
        if let (Some(watch), Some(file)) = (&self.watch, self.file.as_ref().and_then(Weak::upgrade))
        {
            file.unwatch(&**watch);
        }
    }
}

impl PollCall {
    /// A call of this level that waits until a deadline, and stores what is left of the time at
    /// an address, unless that is 0; `None`: for ever. Descriptors are charged to `family`.
    /// `is_signalled`: there is a signal already.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(
        form: Form,
        until: Option<(u64, usize)>,
        family: Family,
        priority: Priority,
        is_signalled: bool,
    ) -> Result<Self, Errno> {
        let polled = Some(try_box(AllPolled {
            chunks: List::new(),
            count: 0,
            charge: Charge::nothing(family),
            next: None,
        })?);
        Ok(Self {
            form,
            polled,
            phase: Phase::Gather(0),
            ready: 0,
            deadline_ticks: until.map(|(deadline_ticks, _)| deadline_ticks),
            is_signalled,
            rest: until.map_or(0, |(_, rest)| rest),
            timer: None,
            waiter: None,
            priority,
        })
    }

    /// Until when it lasts at most.
    pub fn deadline_ticks(&self) -> Option<u64> {
        self.deadline_ticks
    }

    /// A signal is to end it. Returns whether it does: not while it looks at files, because a file
    /// that is ready comes first. Then it ends by itself unless it finds one.
    pub fn interrupt(&mut self) -> bool {
        self.is_signalled = true;
        matches!(self.phase, Phase::Asleep)
    }

    /// As for `Operation::attempt`. `ERESTARTSYS`: a signal has ended it.
    pub fn attempt(&mut self, process: &Process) -> Option<CallResult> {
        if let Phase::Asleep = self.phase {
            (self.phase, self.ready) = (Phase::Look(0), 0);
        }
        let mut work = 0;
        while work < WORK {
            work += match (self.phase, self.watching()) {
                (Phase::Look(_), Some(_)) => WATCHING,
                (Phase::Look(_), None) => LOOKING,
                _ => 1,
            };
            if let Some(result) = self.step(process).transpose() {
                if let Some(deadline_ticks) = self.deadline_ticks {
                    process.store_rest(self.rest, deadline_ticks);
                }
                return Some(result);
            }
            if let Phase::Asleep = self.phase {
                return None;
            }
        }
        if let Some(waiter) = self.waiter {
            // Only a portion is over.
            cops_executor::wake_up(waiter.coroutine);
        }
        None
    }

    /// The call for which files are watched while they are looked at. As soon as one is ready, the
    /// others need not be.
    fn watching(&self) -> Option<Waiter> {
        self.waiter.filter(|_| self.ready == 0)
    }

    /// Makes a step. Returns the result if it was the last one.
    fn step(&mut self, process: &Process) -> Result<Option<usize>, Errno> {
        let watching = self.watching();
        let Some(polled) = self.polled.as_mut() else { return Ok(None) };
        match self.phase {
            Phase::Gather(from) => {
                let next = self.form.gather(process, from, |descriptor, asked| {
                    let file = process.files.lock().get(Descriptor(descriptor)).ok();
                    let file = file.as_ref().map(Arc::downgrade);
                    let found = if file.is_some() { 0 } else { INVALID };
                    polled.push(Polled { descriptor, asked, found, file, watch: None })
                })?;
                self.phase = next.map_or(Phase::Look(0), Phase::Gather);
            }
            Phase::Look(from) => {
                let asker = (process.party(), self.priority);
                let (mut next, mut visits) = (from, ARMED);
                for polled in polled.step(from) {
                    if !polled.look(asker, watching, &mut visits)? {
                        break;
                    }
                    self.ready +=
                        self.form.count((polled.descriptor, polled.asked), polled.found)?;
                    next += 1;
                }
                self.phase = if next < polled.count {
                    Phase::Look(next)
                } else if self.ready > 0 {
                    Phase::Store(0)
                } else if self.is_signalled {
                    return Err(Errno::ERESTARTSYS);
                } else if self.is_over() {
                    Phase::Store(0)
                } else {
                    Phase::Asleep
                };
            }
            Phase::Asleep => {}
            Phase::Store(from) => {
                match self.form.store(process, from, |index| {
                    polled.get(index).map(|polled| (polled.descriptor, polled.asked, polled.found))
                })? {
                    Some(next) => self.phase = Phase::Store(next),
                    None => return Ok(Some(self.ready)),
                }
            }
        }
        Ok(None)
    }

    fn is_over(&self) -> bool {
        self.deadline_ticks.is_some_and(|deadline| arch::now_ticks() >= deadline)
    }

    /// As for `Operation::insert_waiter`.
    pub fn insert_waiter(
        &mut self,
        process: &Arc<Process>,
        waiter: Waiter,
    ) -> Result<bool, OutOfMemory> {
        if self.waiter.is_some() {
            return Ok(false);
        }
        if let Some(deadline) = self.deadline_ticks {
            let waker = cops_executor::waker_of(waiter.coroutine);
            self.timer = Some(Timer::new(deadline, &waker, waiter.priority, process.clone())?);
        }
        (self.waiter, self.priority) = (Some(waiter), waiter.priority);
        if let (Phase::Look(_), 0) = (self.phase, self.ready) {
            // The files that have been looked at were not watched.
            self.phase = Phase::Look(0);
        }
        Ok(true)
    }

    /// Changes the priority of the call.
    pub fn set_priority(&mut self, priority: Priority) {
        if let Some(timer) = &mut self.timer {
            timer.set_priority(priority);
        }
        if let Some(waiter) = &mut self.waiter {
            waiter.priority = priority;
        }
        self.priority = priority;
    }
}

/// Few descriptors are freed at once, many in portions.
impl Drop for PollCall {
    fn drop(&mut self) {
        if let Some(polled) = self.polled.take() {
            leftovers::free(polled);
        }
    }
}
