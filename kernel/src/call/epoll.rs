//! The operation of `epoll_pwait` (decision 31).
#![forbid(unsafe_code)]

use alloc::sync::Arc;

use cops_abi::errno::CallResult;
use cops_abi::poll::EPOLL_EVENT_BYTES;
use cops_abi::{Errno, Priority};
use cops_fallible::OutOfMemory;

use crate::arch;
use crate::fs::{Epoll, File, Object};
use crate::mm::PinnedBuffer;
use crate::process::Process;
use crate::sched::{Timer, Waiter};

/// A wait for entries that are ready.
pub struct EpollWait {
    file: Arc<File>,
    /// Where the events go; as large as the number of events.
    buffer: PinnedBuffer,
    deadline_ticks: Option<u64>,
    timer: Option<Timer>,
    waiter: Option<Waiter>,
    /// The last attempt has not looked at all entries that are listed.
    has_more: bool,
    /// Its level, with which entries are armed.
    priority: Priority,
}

impl EpollWait {
    /// A wait for entries of `file`, until `deadline_ticks`; `None`: for ever.
    ///
    /// # Errors
    /// `EINVAL` if the file is not an epoll instance.
    pub fn new(
        file: Arc<File>,
        buffer: PinnedBuffer,
        deadline_ticks: Option<u64>,
        priority: Priority,
    ) -> Result<Self, Errno> {
        if !matches!(file.object, Object::Epoll(_)) {
            return Err(Errno::EINVAL);
        }
        Ok(Self {
            file,
            buffer,
            deadline_ticks,
            timer: None,
            waiter: None,
            has_more: false,
            priority,
        })
    }

    fn instance(&self) -> Option<&Epoll> {
        match &self.file.object {
            Object::Epoll(instance) => Some(instance),
            _ => None,
        }
    }

    /// As for `Operation::attempt`.
    pub fn attempt(&mut self, process: &Process) -> Option<CallResult> {
        let max = self.buffer.len() / EPOLL_EVENT_BYTES;
        let harvest = self.instance()?.harvest(process.party(), self.priority, max);
        for (index, report) in harvest.reports.iter().enumerate() {
            let mut bytes = [0; EPOLL_EVENT_BYTES];
            bytes[..4].copy_from_slice(&report.events.to_le_bytes());
            bytes[8..].copy_from_slice(&report.data.to_le_bytes());
            self.buffer.write_at(index * EPOLL_EVENT_BYTES, &bytes);
        }
        if !harvest.reports.is_empty() {
            return Some(Ok(harvest.reports.len()));
        }
        self.has_more = harvest.has_more;
        if self.has_more {
            return None;
        }
        self.deadline_ticks.filter(|&deadline| arch::now_ticks() >= deadline).map(|_| Ok(0))
    }

    /// Whether the last attempt has not looked at all entries: it waits for none of those.
    pub fn is_portion_over(&self) -> bool {
        self.has_more
    }

    /// As for `Operation::insert_waiter`.
    pub fn insert_waiter(
        &mut self,
        process: &Arc<Process>,
        waiter: Waiter,
    ) -> Result<bool, OutOfMemory> {
        if let (Some(deadline), None) = (self.deadline_ticks, self.waiter) {
            let waker = cops_executor::waker_of(waiter.coroutine);
            self.timer = Some(Timer::new(deadline, &waker, waiter.priority, process.clone())?);
        }
        self.waiter = Some(waiter);
        self.priority = waiter.priority;
        if self.has_more {
            // Only a portion is over: the coroutine is polled again.
            cops_executor::wake_up(waiter.coroutine);
            return Ok(false);
        }
        if let Some(instance) = self.instance() {
            instance.queue().insert(waiter);
        }
        Ok(true)
    }

    /// As for `Operation::remove_waiter`.
    pub fn remove_waiter(&self, number: u32, must_pass_on: bool) {
        if let Some(instance) = self.instance() {
            instance.queue().remove(number, must_pass_on || instance.has_listed());
        }
    }

    /// Changes the priority of the call, which attempts again to wait with it.
    pub fn set_priority(&mut self, number: u32, priority: Priority) {
        if let Some(timer) = &mut self.timer {
            timer.set_priority(priority);
        }
        if let Some(instance) = self.instance() {
            instance.queue().pass_on(number);
        }
        self.priority = priority;
    }
}
