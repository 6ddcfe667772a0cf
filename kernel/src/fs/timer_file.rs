//! `timerfd`: a timer as a file. A read takes the number of expirations since the last one.
//!
//! Expirations are counted when the file is looked at (`cops_algorithms::expirations`). The queue
//! of the file is woken at the first one after a setting or a read; from then on the file is
//! readable until it is read. So an interval costs nothing that is not asked for by a read.
//!
//! Lock order: the state, then the queue of deadlines.

use alloc::sync::Arc;
use core::task::Waker;

use cops_abi::errno::CallResult;
use cops_abi::poll::bits_if;
use cops_abi::poll::event::READABLE;
use cops_abi::{Errno, Priority};
use cops_algorithms::expirations::Expirations;
use cops_fallible::{OutOfMemory, try_arc};
use cops_lock::Mutex;

use crate::arch;
use crate::mm::PinnedBuffer;
use crate::sched::timer::{self, Payer};
use crate::sched::{Timer, WaitQueue};

/// Size of the number that is read.
const BYTES: usize = 8;

/// What a timer is set to, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerSetting {
    /// Until the next expiration; 0: there is none.
    pub rest: u64,
    /// Between expirations; 0: there is one.
    pub interval: u64,
}

/// The process that has set a timer, and for which its wake is served.
#[derive(Clone)]
struct Setter {
    owner: Arc<dyn Payer>,
    priority: Priority,
}

#[derive(Default)]
struct State {
    expirations: Expirations,
    setter: Option<Setter>,
    /// For the next expiration, unless one has not been read.
    timer: Option<Timer>,
}

/// A timer.
pub struct TimerFile {
    /// Whether absolute times are those of the clock that counts from 1970.
    is_real: bool,
    state: Mutex<State>,
    readable: Arc<WaitQueue>,
}

fn now() -> u64 {
    timer::nanoseconds_from_ticks(arch::now_ticks())
}

impl TimerFile {
    /// A timer that is off. `is_real`: for the clock that counts from 1970, otherwise from boot.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new(is_real: bool) -> Result<Self, OutOfMemory> {
        let readable = try_arc(WaitQueue::new())?;
        Ok(Self { is_real, state: Mutex::default(), readable })
    }

    /// Sets it: it expires after `first`, or at that time of its clock if `is_absolute`, and then
    /// at each `interval`; never if `first` is 0 or there is no setter, which needs no memory.
    /// Returns what it was set to.
    ///
    /// # Errors
    /// `ENOMEM`; nothing has changed.
    pub fn set(
        &self,
        first: u64,
        interval: u64,
        is_absolute: bool,
        setter: Option<(Arc<dyn Payer>, Priority)>,
    ) -> Result<TimerSetting, Errno> {
        let now = now();
        let offset = if self.is_real { timer::epoch_nanoseconds() } else { 0 };
        let setter = setter.map(|(owner, priority)| Setter { owner, priority });
        let is_on = first > 0 && setter.is_some();
        let first = is_on.then(|| match is_absolute {
            true => first.saturating_sub(offset),
            false => now.saturating_add(first),
        });
        let expirations = Expirations::new(first, interval);
        let mut state = self.state.lock();
        let timer = match &setter {
            Some(setter) => self.arm(setter, first)?,
            None => None,
        };
        let setting = state.setting(now);
        let before = core::mem::replace(&mut *state, State { expirations, setter, timer });
        drop(state);
        drop(before);
        Ok(setting)
    }

    /// The timer for an expiration.
    fn arm(&self, setter: &Setter, at: Option<u64>) -> Result<Option<Timer>, Errno> {
        let Some(at) = at else { return Ok(None) };
        let waker = Waker::from(self.readable.clone());
        let (deadline_ticks, owner) = (timer::ticks_from_nanoseconds(at), setter.owner.clone());
        Ok(Some(Timer::new(deadline_ticks, &waker, setter.priority, owner)?))
    }

    /// What it is set to.
    pub fn setting(&self) -> TimerSetting {
        self.state.lock().setting(now())
    }

    /// Takes the number of expirations into `buffer`; `None` if there are none.
    pub fn attempt_read(&self, buffer: &PinnedBuffer) -> Option<CallResult> {
        if buffer.len() < BYTES {
            return Some(Err(Errno::EINVAL));
        }
        let now = now();
        let mut state = self.state.lock();
        if !state.expirations.is_due(now) {
            return None;
        }
        let next = state.expirations.next(now);
        let timer = match state.setter.as_ref().map(|setter| self.arm(setter, next)) {
            Some(Ok(timer)) => timer,
            Some(Err(error)) => return Some(Err(error)),
            None => None,
        };
        let before = core::mem::replace(&mut state.timer, timer);
        let count = state.expirations.take(now);
        drop(state);
        drop(before);
        buffer.write_at(0, &count.to_le_bytes());
        Some(Ok(BYTES))
    }

    /// The events of `ppoll` that it has.
    pub fn readiness(&self) -> u32 {
        bits_if(self.state.lock().expirations.is_due(now()), READABLE)
    }

    /// The calls that wait for an expiration.
    pub fn queue(&self) -> &WaitQueue {
        &self.readable
    }
}

impl State {
    fn setting(&mut self, now: u64) -> TimerSetting {
        let rest = self.expirations.next(now).map_or(0, |next| next.saturating_sub(now).max(1));
        TimerSetting { rest, interval: self.expirations.interval() }
    }
}
