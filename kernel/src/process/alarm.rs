//! The interval timer of a Linux program (`setitimer`, `alarm`): a call in flight that no thread
//! waits for. When it completes, the process gets `SIGALRM`, and the next one begins.
//!
//! Each call has a number; one with another number than the alarm's has been replaced, and rings in
//! vain. Lock order: the alarm, then a call's cell and the signals of the process.
#![forbid(unsafe_code)]

use alloc::sync::Arc;
use core::num::NonZeroU64;

use cops_abi::linux::signal_code;
use cops_abi::syscall::signal;
use cops_abi::{Errno, Priority};
use cops_algorithms::signals::Information;
use cops_fallible::try_box;

use super::Process;
use super::undelivered::calls;
use crate::arch;
use crate::log;
use crate::mm;
use crate::sched::timer;

/// The shortest time between two signals, in nanoseconds: each costs a portion of the kernel's
/// work.
const SHORTEST_INTERVAL_NANOSECONDS: u64 = 100_000;

/// When the alarm rings.
#[derive(Clone, Copy, Default)]
pub struct Alarm {
    /// That of the call in flight, or of the last one.
    number: u64,
    /// `None`: it is off.
    deadline_ticks: Option<u64>,
    /// Time between two signals; 0: it rings once.
    interval_ticks: u64,
    priority: Priority,
    /// The call in flight, as soon as that is known.
    call: Option<NonZeroU64>,
}

impl Alarm {
    /// Ticks until it rings, if it is on, and then between two signals.
    pub fn rest(&self) -> (Option<u64>, u64) {
        let rest = |deadline: u64| deadline.saturating_sub(arch::now_ticks()).max(1);
        (self.deadline_ticks.map(rest), self.interval_ticks)
    }

    /// Begins again, with another number.
    fn begin(&mut self) -> Option<(u64, u64, Priority)> {
        self.number += 1;
        self.call = None;
        Some((self.number, self.deadline_ticks?, self.priority))
    }
}

impl Process {
    /// The alarm.
    pub fn alarm(&self) -> Alarm {
        let linux = self.personality.as_linux();
        linux.and_then(|linux| linux.alarm.lock().as_deref().copied()).unwrap_or_default()
    }

    /// The alarm rings in `after_ticks`, and then every `interval_ticks`, which can be 0; `None`:
    /// it is off, which needs no memory. Returns what it was.
    ///
    /// # Errors
    /// `EAGAIN`, `ENOMEM`; only if it is to ring.
    pub fn set_alarm(
        self: &Arc<Self>,
        after_ticks: Option<u64>,
        interval_ticks: u64,
        priority: Priority,
    ) -> Result<Alarm, Errno> {
        let linux = self.personality.as_linux().ok_or(Errno::ENOSYS)?;
        if after_ticks.is_some() {
            mm::admit()?;
        }
        let mut guard = linux.alarm.lock();
        let alarm = match &mut *guard {
            Some(alarm) => alarm,
            None if after_ticks.is_none() => return Ok(Alarm::default()),
            none => none.insert(try_box(Alarm::default())?),
        };
        let before = **alarm;
        let number = before.number;
        let deadline_ticks = after_ticks.map(|ticks| arch::now_ticks().saturating_add(ticks));
        **alarm = Alarm { number, deadline_ticks, interval_ticks, priority, call: None };
        let begun = alarm.begin();
        drop(guard);
        if let Some(call) = before.call {
            calls().interrupt(self, call.get());
        }
        self.start_alarm(begun).map(|()| before)
    }

    /// The call with this number has completed.
    pub fn alarm_rings(self: &Arc<Self>, number: u64) {
        if self.is_ending() {
            return;
        }
        let Some(next) = self.ring(number) else { return };
        if let Err(error) = self.start_alarm(next) {
            log::warn!("{self}: its alarm is off: {error:?}");
        }
    }

    /// The call with this number has failed: [`Process::start_alarm`], in which that happens, finds
    /// the alarm off.
    pub fn alarm_has_failed(&self, number: u64) {
        let Some(linux) = self.personality.as_linux() else { return };
        if let Some(alarm) = linux.alarm.lock().as_mut().filter(|alarm| alarm.number == number) {
            alarm.deadline_ticks = None;
        }
    }

    /// Begins the alarm again in the program that has replaced the one that had set it.
    pub(super) fn restart_alarm(self: &Arc<Self>) {
        let Some(linux) = self.personality.as_linux() else { return };
        let begun = linux.alarm.lock().as_mut().and_then(|alarm| alarm.begin());
        if let Err(error) = self.start_alarm(begun) {
            log::warn!("{self}: its alarm is off: {error:?}");
        }
    }

    /// Sends the signal, unless the alarm has another number. Returns what begins then.
    fn ring(self: &Arc<Self>, number: u64) -> Option<Option<(u64, u64, Priority)>> {
        let linux = self.personality.as_linux()?;
        let mut guard = linux.alarm.lock();
        let alarm = guard.as_mut()?;
        if alarm.number != number {
            return None;
        }
        let (now, interval) = (arch::now_ticks(), alarm.interval_ticks);
        let shortest = timer::ticks_from_nanoseconds(SHORTEST_INTERVAL_NANOSECONDS);
        let next = |deadline: u64| deadline.saturating_add(interval).max(now + shortest);
        alarm.deadline_ticks = alarm.deadline_ticks.filter(|_| interval > 0).map(next);
        let fields = [0; 2];
        // With the lock: after a call that switches the alarm off, it does not ring any more.
        self.signal(Information { signal: signal::SIGALRM, code: signal_code::KERNEL, fields });
        Some(alarm.begin())
    }

    /// Starts the call that begins now, if there is one.
    fn start_alarm(self: &Arc<Self>, mut begun: Option<(u64, u64, Priority)>) -> Result<(), Errno> {
        while let Some((number, deadline_ticks, priority)) = begun {
            let Some(linux) = self.personality.as_linux() else { return Ok(()) };
            let started = calls().start_alarm(self, number, deadline_ticks, priority);
            let mut guard = linux.alarm.lock();
            let Some(alarm) = guard.as_mut() else { return Ok(()) };
            let is_current = alarm.number == number;
            match started {
                Ok(Some(_)) if is_current && alarm.deadline_ticks.is_none() => {
                    return Err(Errno::ENOMEM);
                }
                // The reaper looks for calls after the end has begun: it finds this one, or this
                // sees the end.
                Ok(Some(call)) if is_current && !self.is_ending() => alarm.call = Some(call),
                Ok(Some(call)) => {
                    drop(guard);
                    calls().interrupt(self, call.get());
                }
                Ok(None) => {
                    drop(guard);
                    begun = self.ring(number).flatten();
                    continue;
                }
                Err(error) => {
                    if is_current {
                        alarm.deadline_ticks = None;
                    }
                    return Err(error);
                }
            }
            break;
        }
        Ok(())
    }
}
